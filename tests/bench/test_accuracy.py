from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accuracy
from accuracy import BY, SECTIONS, missed, read, summary, written
from trials import Ending, Trial

TEXT = accuracy.PAGE.read_text()
WHERE = "Linux 6.1, 2 CPUs"
RIGHT, WRONG, NOT_JUDGED = Ending
WORDS = st.text(st.sampled_from("ab_|\n<>*`[]\\ -1.5"), max_size=12)
TRIALS = st.lists(
    st.builds(
        Trial,
        proof=WORDS,
        group=WORDS,
        ending=st.sampled_from(Ending),
        seconds=st.floats(0, 100),
        reason=WORDS,
        truth=WORDS,
        expected=st.sampled_from(["", "resource", "stuck"]),
        found=WORDS,
        said=WORDS,
        confidence=st.sampled_from(["", "high", "low"]),
        chain=st.sampled_from(["", "right", "wrong"]),
        led=st.booleans(),
        first_right=st.none() | st.floats(0, 100),
        measured=st.dictionaries(WORDS, WORDS, max_size=2),
        disturbance=st.dictionaries(st.sampled_from(["others", "memory"]), st.floats(0, 2), max_size=2),
    ),
    max_size=12,
)


def scenario(
    proof: str,
    ending: Ending = RIGHT,
    *,
    found: str = "resource",
    said: str = "limited by disk of vda",
    confidence: str = "high",
    chain: str = "",
    led: bool = False,
    reason: str = "",
    first: float | None = None,
    **disturbance: float,
) -> Trial:
    return Trial(
        proof=proof,
        group="Local faults",
        ending=ending,
        seconds=30.0,
        reason=reason,
        truth="resource: disk vda",
        expected="resource",
        found=found,
        said=said,
        confidence=confidence,
        chain=chain,
        led=led,
        first_right=first,
        disturbance=disturbance,
    )


def alert(ending: Ending = RIGHT, **measured: str) -> Trial:
    names = {name.replace("_", " "): value for name, value in measured.items()}
    return Trial(proof="an_alert_is_first", group="Alerts", ending=ending, seconds=60.0, measured=names)


def page(trials: Sequence[Trial]) -> str:
    return written(TEXT, trials, WHERE)


def section(trials: Sequence[Trial], name: str) -> str:
    return page(trials).partition(f"<!-- {name}: made by `{BY}` -->")[2].partition(f"<!-- end of {name} -->")[0]


def many(right: int, wrong: int) -> list[Trial]:
    """Return verdicts of proofs with at most one wrong trial each."""
    return [scenario(f"right_{n}") for n in range(right)] + [scenario(f"wrong_{n}", WRONG) for n in range(wrong)]


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        (38, 2, "verdicts are right in 38 of 40 = 95 %, 95 % interval 83.5 % to 98.6 %; goal 95 %: met; "
                "wrong with high confidence: 2"),
        (37, 3, "verdicts are right in 37 of 40 = 92.5 %, 95 % interval 80.1 % to 97.4 %; goal 95 %: "
                "not significantly below; wrong with high confidence: 3"),
        (30, 10, "verdicts are right in 30 of 40 = 75 %, 95 % interval 59.8 % to 85.8 %; goal 95 %: **missed**; "
                 "wrong with high confidence: 10"),
    ],
)  # fmt: skip
def test_the_summary_says_the_rate_its_interval_and_whether_the_goal_is_met(right: int, wrong: int, line: str) -> None:
    trials = many(right, wrong)

    assert f"V{line[1:]}." in section(trials, "summary")


@pytest.mark.parametrize(
    ("late", "slow", "half", "most"),
    [
        ([4.0] * 10, 2.5, ("comes within 2.5 s", "met"), ("comes within 4.0 s", "met")),
        ([4.0] * 8 + [9.0] * 2, 2.6, ("comes within 2.6 s", "**missed**"), ("comes within 9.0 s", "**missed**")),
        ([4.0] * 8 + [None] * 2, 2.5, ("comes within 2.5 s", "met"), ("does not come", "**missed**")),
    ],
)
def test_the_summary_says_when_the_first_right_verdict_comes(
    late: list[float | None], slow: float, half: tuple[str, str], most: tuple[str, str]
) -> None:
    trials = [scenario("a", first=first) for first in [1.0] * 9 + [slow] + late]

    assert (
        f"The first right verdict {half[0]} in 50 % of the trials (goal 2.5 s: {half[1]}), "
        f"and {most[0]} in 95 % of the trials (goal 5 s: {most[1]})."
    ) in section([*trials, alert()], "summary")


def test_page_and_terminal_say_the_same() -> None:
    trials = [*many(30, 10), alert(), scenario("lost", NOT_JUDGED)]

    assert summary(trials).splitlines()[:4] == [
        "verdicts are right in 30 of 40 = 75 %, 95 % interval 59.8 % to 85.8 %; goal 95 %: missed; "
        "wrong with high confidence: 10",
        "other proofs are right in 1 of 1 = 100 %",
        "not judged, since other load disturbed them: 1 of 42 trials",
        "never judged: lost",
    ]
    assert "42 trials took 22 minutes; not judged: 1." in section(trials, "summary")
    assert WHERE in section(trials, "summary")


def test_the_terminal_has_what_was_wrong_and_what_is_too_often() -> None:
    trials = [scenario("good")] * 27 + [scenario("a_bad_one", WRONG, reason="\nlimited by *cpu*\nmore")] * 3

    assert summary(trials).splitlines()[1:] == [
        *["wrong: a bad one (high confidence): limited by *cpu*"] * 3,
        "missed: a bad one: right in 0 of 3 = 0 %, significantly below 95 %",
    ]


def test_a_proof_is_a_row_under_the_heading_of_its_group() -> None:
    trials = [
        scenario("a_slow_disk", first=2.0),
        alert(lead_over_Ceph="12.5 s"),
        scenario("a_slow_disk", NOT_JUDGED, first=99.0),
        scenario("a_slow_disk", first=3.0),
        scenario("a_slow_disk", WRONG, first=9.0),
        scenario("a_quota"),
        alert(lead_over_Ceph="14.5 s"),
        alert(NOT_JUDGED, lead_over_Ceph="1 s"),
    ]
    head = "| proof | what is true | right | rate (95 % interval) | not judged | first right verdict after |\n"
    disk = (
        "| a slow disk | resource: disk vda | 2 of 3 | 66.7 % (20.8 % to 93.9 %) | 1 | 3.0 s, at most 9.0 s |\n"
        "| a quota | resource: disk vda | 1 of 1 | 100 % (20.7 % to 100 %) |  |  |\n"
    )
    first = "| an alert is first | 2 of 2 | 100 % (34.2 % to 100 %) | 1 | lead over Ceph: 13.5 s (12.5 to 14.5) |\n"
    found = section(trials, "proofs")

    assert f"### Local faults\n\n{head}| --- | --- | --- | --- | --- | --- |\n{disk}" in found
    assert "### Alerts\n\n| proof | right | rate (95 % interval) | not judged | measured |\n" in found
    assert first in found


def test_a_proof_that_misses_its_goal_is_bold_in_its_row_and_one_that_was_never_judged_has_no_rate() -> None:
    found = section([scenario("bad", WRONG)] * 3 + [scenario("lost", NOT_JUDGED)], "proofs")

    assert "| bad | resource: disk vda | 0 of 3 | 0 % (0 % to 56.1 %), **missed** |" in found
    assert "| lost | resource: disk vda | 0 of 0 |  | 1 |" in found


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        (["12.3 s"], "x: 12.3 s"),
        (["1 s", "3 s", "2 s"], "x: 2 s (1 to 3)"),
        (["1500 us", "2500 us"], "x: 2,000 us (1,500 to 2,500)"),
        (["-0.5 %", "0.25 %"], "x: -0.125 % (-0.5 to 0.25)"),
        (["7", "9"], "x: 8 (7 to 9)"),
        (["1 s", "2 ms"], "x: 1 s, 2 ms"),
        (["1 s", "never"], "x: 1 s, never"),
        (["a", "b", "a", "c", "d"], "x: a, b, c, ..."),
        (["1" * 400, "1 s"], f"x: {'1' * 237}..., 1 s"),
    ],
)
def test_what_was_measured_is_a_median_with_its_range_or_words(values: list[str], cell: str) -> None:
    assert f" {cell} |" in section([alert(x=value) for value in values], "proofs")


def test_confused_kinds_stand_beside_each_other_and_a_wrong_resource_on_the_diagonal() -> None:
    trials = [
        scenario("a"),
        scenario("b"),
        scenario("b", WRONG),
        scenario("c", WRONG, found="several"),
        scenario("d", NOT_JUDGED, found="idle"),
        scenario("e", WRONG, found=""),
        alert(WRONG),
    ]

    assert section(trials, "confusion").strip().splitlines() == [
        "| true (row), found (column) | nothing | resource | several |",
        "| --- | --- | --- | --- |",
        "| resource | 1, **1 wrong** | 3, **1 wrong** | 1, **1 wrong** |",
    ]


def test_wrong_ones_are_listed_and_those_that_were_sure_are_bold() -> None:
    trials = [
        scenario("a"),
        scenario("b_c", WRONG, said="limited by cpu", confidence="low", reason="names <cpu>\nand more"),
        scenario("d", WRONG, said="limited by cpu", reason="no disk"),
    ]

    assert section(trials, "wrong").strip().splitlines() == [
        "| proof | what is true | what was said | confidence | why it is wrong |",
        "| --- | --- | --- | --- | --- |",
        "| b c | resource: disk vda | limited by cpu | low | names &lt;cpu&gt; |",
        "| **d** | **resource: disk vda** | **limited by cpu** | **high** | **no disk** |",
    ]
    assert section([scenario("a")], "wrong").strip() == "None."


def test_who_wakes_whom_is_counted_beside_the_rules() -> None:
    trials = [
        scenario("a", chain="right"),
        scenario("a", chain="right"),
        scenario("b", chain="wrong"),
        scenario("c"),
        scenario("d", WRONG, chain="right"),
        scenario("e", NOT_JUDGED, chain="wrong"),
        scenario("f", chain="right", led=True),
        alert(),
    ]

    assert section(trials, "chains").strip().splitlines() == [
        "| by the rules (row), by who wakes whom alone (column) | right | wrong | nothing full |",
        "| --- | --- | --- | --- |",
        "| right | 2 | 1 | 1 |",
        "| wrong | 1 | 0 | 0 |",
        "",
        "Where the rules named nothing, who wakes whom was right in 1 of 1 = 100 %.",
    ]
    assert section([alert()], "chains").strip() == "No verdict was judged."


def test_the_highest_of_what_others_did_is_shown_of_what_was_judged_and_what_not() -> None:
    trials = [
        scenario("a", others=0.1, steal=0.02, memory=0.0, cpu=0.5),
        scenario("a", others=0.14, steal=0.01, memory=0.05, cpu=0.25),
        scenario("a", NOT_JUDGED, others=1.5),
    ]
    found = section(trials, "disturbance")

    assert "more than 0.15 CPUs" in found
    assert "more than 5 % of all CPUs" in found
    assert "| judged | 2 | 0.14 | 0.02 | 5 % | 50 % | not known |" in found
    assert "| not judged | 1 | 1.50 | not known | not known | not known | not known |" in found


def test_missed_are_the_verdicts_together_and_each_proof_by_itself() -> None:
    assert missed(many(38, 2)) == []
    assert missed(many(30, 10)) == ["all verdicts: right in 30 of 40 = 75 %, significantly below 95 %"]
    assert missed([alert(WRONG)] * 2) == ["an alert is first: right in 0 of 2 = 0 %, significantly below 95 %"]
    assert missed([alert(WRONG)]) == []
    assert missed([scenario("lost", NOT_JUDGED)] * 9) == []
    assert missed([]) == []


@given(TRIALS)
def test_whatever_the_trials_say_the_page_keeps_its_prose_and_can_be_written_again(trials: list[Trial]) -> None:
    once = page(trials)
    cells = {line.count("|") for line in section(trials, "wrong").splitlines() if line.startswith("|")}

    assert page(trials) == written(once, trials, WHERE) == once
    assert written(once, [], WHERE) == page([])
    assert len(cells) <= 1
    assert summary(trials)


def test_the_page_has_the_sections_that_are_made() -> None:
    assert sorted(SECTIONS) == sorted(
        line.partition(":")[0].removeprefix("<!-- ") for line in TEXT.splitlines() if f": made by `{BY}` -->" in line
    )


def test_a_page_without_a_section_is_refused() -> None:
    with pytest.raises(ValueError, match="no section"):
        written("prose", [], WHERE)


def test_trials_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    trials = [scenario("a"), alert(WRONG, x="1 s")]
    file.write_text("".join(f"{trial.to_json()}\n\n" for trial in trials))

    assert read(file) == trials


def test_a_line_that_is_no_trial_is_named(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text(f'{alert().to_json()}\n{{"proof": \n')

    with pytest.raises(ValueError, match=r"results\.jsonl:2: not a trial"):
        read(file)


def ran(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, accuracy.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_script_writes_the_page_and_fails_only_where_that_is_asked_for(tmp_path: Path) -> None:
    results, copy = tmp_path / "results.jsonl", tmp_path / "accuracy.md"
    copy.write_text(TEXT)
    results.write_text("".join(f"{alert(WRONG).to_json()}\n" for _ in range(2)))

    done = ran(results, "--page", copy)
    checked = ran(results, "--page", "/dev/null", "--check")

    assert done.returncode == 0, done.stderr
    assert "no verdict was judged\nother proofs are right in 0 of 2 = 0 %" in done.stdout
    assert "| an alert is first | 0 of 2 |" in copy.read_text()
    assert "Linux" in copy.read_text()
    assert (checked.returncode, checked.stderr) == (
        1,
        "an alert is first: right in 0 of 2 = 0 %, significantly below 95 %\n",
    )


@pytest.mark.parametrize(("content", "said"), [("", "no trials"), ("{}\n", ":1: not a trial"), (None, "No such file")])
def test_results_that_cannot_be_read_leave_the_page_alone(tmp_path: Path, content: str | None, said: str) -> None:
    results, copy = tmp_path / "results.jsonl", tmp_path / "accuracy.md"
    copy.write_text(TEXT)
    if content is not None:
        results.write_text(content)

    done = ran(results, "--page", copy)

    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert copy.read_text() == TEXT
