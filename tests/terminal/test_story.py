from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from pinchpoint.diagnosis.comparison import RunGroup, compare
from pinchpoint.diagnosis.knobs import Settings
from pinchpoint.runs import LimitMark, PhaseMark, Result, RunState, VerdictMark
from pinchpoint.terminal.story import story_parts

BYTES = "bytes_per_second"


def group(label: str, *values: float, note: str = "", verdict: VerdictMark | None = None, **tags: str) -> RunGroup:
    """Return two runs with a phase for each value; the values of the second are slightly larger."""
    runs = []
    for factor in (1.0, 1.001):
        run = RunState(label, "fio", 0.0, 1.0, "finished")
        run.phases = [
            PhaseMark(f"p{place}", 0.0, 100.0, [Result("write", BYTES, value * factor)], seconds=100.0, verdict=verdict)
            for place, value in enumerate(values)
        ]
        runs.append(run)
    return RunGroup(label, tuple(runs), (Settings(label, tags, note=note), Settings(label, tags)))


def shown(*groups: RunGroup, width: int = 120) -> str:
    output = StringIO()
    console = Console(file=output, width=width)
    for part in story_parts([compare(groups[0], other) for other in groups[1:]]):
        console.print(part)
    return output.getvalue()


def test_a_run_of_one_figure_is_told_by_it() -> None:
    text = shown(group("a", 100.0), group("longer", 200.0), group("c", 100.02))

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "a 100 B/s"
    assert lines[1].startswith("longer 200 B/s +100.0% faster, noise")
    assert lines[2].startswith("c 100 B/s +0.0% inside the noise of 0")
    assert "2 steps: 1 faster, 1 inside the noise" in lines


def test_a_run_of_several_figures_without_a_score_is_told_by_their_number() -> None:
    text = shown(group("a", 100.0, 100.0, 100.0), group("b", 200.0, 100.0, 300.0))

    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "a"
    assert lines[1] == "b 2 faster, 1 inside the noise"
    assert lines[2] == "beyond noise p2 +200.0%, p0 +100.0%"
    assert "step" not in text


def test_of_many_phases_the_ones_that_changed_most_are_named() -> None:
    text = shown(group("a", *[100.0] * 6), group("b", 150.0, 200.0, 250.0, 300.0, 350.0, 400.0))

    assert "p5 +300.0%, p4 +250.0%, p3 +200.0% and 3 more" in text


def test_a_figure_that_is_no_part_of_the_score_is_told_without_its_factor() -> None:
    def scored(label: str, factor: float) -> RunGroup:
        runs = []
        for noise in (1.0, 1.001):
            run = RunState(label, "io500", 0.0, 1.0, "finished")
            figures = (
                ("ior", "write", BYTES),
                ("mdtest", "create", "operations_per_second"),
                ("ping", "rtt", "seconds"),
            )
            run.phases = [
                PhaseMark(name, 0.0, 100.0, [Result(what, unit, 100.0 * factor * noise)], seconds=100.0)
                for name, what, unit in figures
            ]
            run.scores = [Result("total", "score", 10.0 * factor * noise)]
            runs.append(run)
        return RunGroup(label, tuple(runs), (Settings(label, {}), Settings(label, {})))

    text = shown(scored("a", 1.0), scored("b", 1.2))

    assert "mdtest +20.0% (score +9.5%)" in text
    assert "ping" in text


def test_only_bottlenecks_that_moved_are_told() -> None:
    lock = VerdictMark("resource", (LimitMark("mds_lock", "mds.a", 0.8),))
    base = group("a", 100.0, verdict=lock)

    assert "p0: mds_lock of mds.a 80% -> idle" in shown(base, group("b", 100.0, verdict=VerdictMark("idle")))
    assert "limit" not in shown(base, group("b", 100.0, verdict=lock))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_too_wide_and_a_note_is_cut_to_one(width: int) -> None:
    note = "缓存" * 200
    text = shown(group("a", 100.0), group("b" * 60, 200.0, note=note, c6="o" * 100), width=width)

    assert max(map(cell_len, text.splitlines())) <= width
    assert len([line for line in text.splitlines() if "缓存" in line]) == 1
    assert text.count("o" * 5) >= 10


def test_what_is_no_text_is_replaced() -> None:
    text = shown(group("a\x1b", 100.0), group("\u202e", 200.0, note="\x07"))

    assert not set(text) & {"\x1b", "\u202e", "\x07"}
