from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from pinchpoint.diagnosis.findings import Finding, Level
from pinchpoint.terminal.check import check_parts


def finding(
    level: Level = Level.PROBLEM,
    text: str = "CPUs run under powersave.",
    *,
    check: str = "governor",
    what: str = "frequency governor",
    hosts: tuple[str, ...] = ("a",),
) -> Finding:
    return Finding(
        check=check,
        what=what,
        level=level,
        hosts=hosts,
        text=text,
        matters="The clock stays low.",
        harmless="a full disk",
        page="runbooks/GovernorPowersave.md",
    )


def page(findings: Sequence[Finding], hosts: Sequence[str] = ("a",), *, every: bool = False, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, highlight=False, color_system=None)
    for part in check_parts(findings, hosts, every=every):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_problem_says_the_value_why_when_not_and_what_to_read() -> None:
    assert page([finding()]).splitlines() == [
        "PROBLEM frequency governor",
        "  CPUs run under powersave.",
        "  why      The clock stays low.",
        "  harmless a full disk",
        "  read     pinchpoint runbook GovernorPowersave",
        "",
        "1 host: 1 problem, 0 hints, 0 fine",
    ]


def test_of_several_hosts_those_are_named_that_it_is_about() -> None:
    text = page([finding(hosts=("a", "b"))], ["a", "b", "c"])
    assert text.startswith("PROBLEM frequency governor on a, b\n")
    assert text.endswith("3 hosts: 1 problem, 0 hints, 0 fine\n")


def test_a_check_that_finds_several_things_explains_itself_once() -> None:
    text = page([finding(text="first."), finding(text="second.", hosts=("b",))], ["a", "b"])
    assert "  - a: first.\n  - b: second.\n" in text
    assert text.count("why") == 1


def test_hosts_that_the_sentence_names_are_not_named_again() -> None:
    text = page([finding(text="5.7 on b1."), finding(text="6.1 on b2.", hosts=("b2",))], ["b1", "b2"])
    assert "  - b2: " not in text


def test_what_is_fine_is_only_named_unless_it_is_asked_for() -> None:
    fine = [finding(Level.OK, "turbo is on", check="turbo", what="turbo")]
    assert "turbo is on" not in page(fine)
    assert "turbo (--all" in page(fine)
    assert "turbo: turbo is on" in page(fine, every=True)


def test_what_is_not_seen_is_always_told() -> None:
    text = page([finding(Level.UNSEEN, "no CPU has cpufreq")])
    assert "not seen\n  - frequency governor: no CPU has cpufreq\n" in text
    assert text.endswith("1 host: 0 problems, 0 hints, 1 not seen, 0 fine\n")


def test_nothing_that_a_terminal_obeys_comes_from_a_host() -> None:
    assert "\x1b" not in page([finding(text="\x1b[2Jgone", hosts=("\x1b[31m",))], ["\x1b[31m", "b"])


@given(st.lists(st.sampled_from(list(Level)), max_size=6), st.integers(30, 200))
def test_no_line_is_wider_than_the_terminal_nor_than_80_columns(levels: list[Level], width: int) -> None:
    text = " ".join(["words"] * 60)
    findings = [finding(level, text, check=str(number)) for number, level in enumerate(levels)]
    for line in page(findings, [f"host{number}" for number in range(9)], every=True, width=width).splitlines():
        assert cell_len(line) <= width
        assert cell_len(line) <= 80 or line.startswith(("PROBLEM", "hint"))
