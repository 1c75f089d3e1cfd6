from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from pinchpoint.diagnosis.comparison import RunGroup, compare
from pinchpoint.diagnosis.knobs import Settings
from pinchpoint.figures import bare_figure
from pinchpoint.runs import PhaseMark, Result, RunState
from pinchpoint.terminal.comparison import comparison_parts

BYTES = "bytes_per_second"


def run(name: str, value: float, phase: str = "write", **changes: object) -> RunState:
    state = RunState(name, "io500", 0.0, 1.0, "finished")
    state.phases = [PhaseMark(phase, 0.0, 100.0, [Result("write", BYTES, value)], seconds=100.0)]
    for key, change in changes.items():
        setattr(state, key, change)
    return state


def shown(base: list[RunState], other: list[RunState], width: int = 80, noise: float | None = None) -> str:
    output = StringIO()
    console = Console(file=output, width=width)
    for part in comparison_parts([compare(RunGroup("", tuple(base)), RunGroup("", tuple(other)), noise=noise)]):
        console.print(part)
    return output.getvalue()


def line(text: str, word: str) -> str:
    (found,) = [line.strip() for line in text.splitlines() if line.strip().startswith(f"{word} ")]
    return " ".join(found.split())


def test_a_row_has_both_figures_the_change_the_noise_and_what_it_means() -> None:
    text = shown([run("a", 2.0 * 2**30), run("b", 2.1 * 2**30)], [run("c", 6.0 * 2**30)])

    assert line(text, "write") == "write 2.05 GiB/s 6 GiB/s +192.7% 71.1% faster"
    assert "noise: what a difference has to exceed" in text


def test_single_runs_are_said_to_tell_nothing() -> None:
    text = shown([run("a", 2.0)], [run("b", 3.0)])

    assert line(text, "write") == "write 2 B/s 3 B/s +50.0% - spread unknown"
    assert "one run each: spread unknown, so nothing is said to be faster or slower" in text
    assert "noise: what a difference" not in text


@pytest.mark.parametrize("width", [30, 60, 75])
def test_where_a_table_does_not_fit_each_figure_is_two_lines_and_nothing_is_lost(width: int) -> None:
    text = shown([run("a", 2.0 * 2**30), run("b", 2.1 * 2**30)], [run("c", 6.0 * 2**30)], width=width)

    assert "write: faster\n" in text
    assert "2.05 GiB/s -> 6 GiB/s, +192.7%, noise 71.1%" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


def test_a_difference_that_few_repeats_do_not_prove_is_said_to_be_none() -> None:
    text = shown([run("a", 2.0), run("b", 2.1)], [run("c", 2.3)])

    assert line(text, "write").endswith("71.1% not proved")
    assert "not proved: more than the repeats differ by" in text
    assert "not proved" not in shown([run("a", 2.0), run("b", 2.1)], [run("c", 2.1)])


def test_the_groups_stand_above_with_each_run_and_how_it_ended() -> None:
    failed = run("b", 2.0, state="failed", reason="no space left", valid=False)
    text = shown([run("a", 2.0), failed], [run("c", 3.0)])

    assert [" ".join(line.split()) for line in text.splitlines()[:3]] == [
        "base a io500 finished",
        "b io500 failed INVALID: no space left",
        "other c io500 finished",
    ]


def test_what_stood_before_an_imported_run_is_shown_in_one_line() -> None:
    settings = (Settings("a", note="缓存 " * 100),)
    output = StringIO()
    console = Console(file=output, width=80)
    for part in comparison_parts([compare(RunGroup("", (run("a", 2.0),), settings), RunGroup("", (run("b", 3.0),)))]):
        console.print(part)

    lines = output.getvalue().splitlines()
    assert lines[1].startswith("      缓存")
    assert cell_len(lines[1]) <= 80
    assert lines[2].startswith("other")


def test_short_phases_are_marked_and_the_mark_is_explained() -> None:
    short = run("b", 3.0)
    short.phases[0].seconds = 3.0

    text = shown([run("a", 2.0)], [short], width=120)

    assert line(text, "write").endswith("spread unknown; short")
    assert "short: under 30 s" in text


def test_phases_of_several_benchmarks_say_which_they_are_of() -> None:
    text = shown([run("a", 2.0), run("b", 2.0, benchmark="fio")], [run("c", 3.0)])

    assert line(text, "io500 write")
    assert line(text, "fio write").endswith("only in base")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_too_wide_whatever_a_phase_is_called(width: int) -> None:
    text = shown([run("r" * 60, 2.0, phase="p" * 64)], [run("c", 3.0)], width=width)

    assert max(len(line) for line in text.splitlines()) <= width
    assert text.count("p") >= 64
    assert "only in base" in " ".join(text.split())


def test_what_is_no_text_is_replaced() -> None:
    text = shown([run("a", 2.0, phase="\x1b[2J", reason="\u202e")], [run("c", 3.0)])

    assert not set(text) & {"\x1b", "\u202e"}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (11.2798, "score", "11.28"),
        (0.000178, "seconds", "178 us"),
        (2.5 * 2**30, BYTES, "2.5 GiB/s"),
        (12_345.0, "operations_per_second", "12.3 kIOPS"),
    ],
)
def test_figures_are_written_as_people_write_them(value: float, unit: str, text: str) -> None:
    assert bare_figure(value, unit) == text
