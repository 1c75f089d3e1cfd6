from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from pinchpoint.diagnosis.comparison import RunGroup, compare
from pinchpoint.diagnosis.knobs import Difference, Origin, Settings
from pinchpoint.diagnosis.marks import bottleneck
from pinchpoint.runs import LimitMark, PhaseMark, RunState, StepMark, VerdictMark
from pinchpoint.terminal.shifts import bottleneck_words, difference_words, shift_parts

LOCK = VerdictMark("resource", (LimitMark("mds_lock", "mds.a", 0.82),))
SEVERAL = VerdictMark("several", (LimitMark("cpu", "", 0.5), LimitMark("disk", "vda", 0.4)))


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ([], "not judged"),
        ([LOCK], "mds_lock of mds.a 82%"),
        ([SEVERAL], "cpu 50% + disk of vda 40%"),
        ([VerdictMark("latency-bound")], "latency-bound"),
        ([VerdictMark("stuck", (LimitMark("stuck", "osd.0", 1.0),))], "stuck: stuck of osd.0 100%"),
        (
            [LOCK, VerdictMark("idle"), LOCK, SEVERAL],
            "mds_lock of mds.a 82% (2 of 4 runs; else idle, cpu + disk of vda)",
        ),
    ],
)
def test_what_limited_a_phase_is_said_in_words(marks: list[VerdictMark], words: str) -> None:
    assert bottleneck_words(bottleneck(marks)) == words


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference(Origin.TAG, "c6", ("on",), ("off",)), "c6: on -> off"),
        (Difference(Origin.TAG, "c6", ("",), ("off",)), "c6: - -> off"),
        (Difference(Origin.TAG, "c6", ("on", "off"), ("off",)), "c6: on | off -> off (varies in base)"),
        (Difference(Origin.TAG, "c6", ("on", "off"), ("on", "off")), "c6: on | off (varies in base and other)"),
        (Difference(Origin.COMMAND, "command", ("mpirun -np 2 ior -w",), ("mpirun -np 4 ior -w",)),
         "command: -np 2 -> -np 4"),
        (Difference(Origin.COMMAND, "command", ("fio a",), ("fio --direct=1 a",)), "command: - -> --direct=1"),
        (Difference(Origin.COMMAND, "command", ("fio a", "fio b"), ("fio a",)),
         "command: fio a | fio b -> fio a (varies in base)"),
        (Difference(Origin.FACT, "mtu", ("1500",), ("9000",)), "mtu: 1500 -> 9000"),
        (Difference(Origin.FACT, "mtu", ("1500",), ("9000",), ("a", "b"), 2), "mtu: 1500 -> 9000 (all 2 hosts)"),
        (Difference(Origin.FACT, "mtu", ("1500",), ("9000",), ("a", "b"), 7), "mtu: 1500 -> 9000 (a, b)"),
        (Difference(Origin.FACT, "mtu", ("1500",), ("9000",), tuple("abcd"), 7), "mtu: 1500 -> 9000 (4 of 7 hosts)"),
        (Difference(Origin.TAG, "\x1b[2J", ("\u202e",), ("a",)), "\ufffd[2J: \ufffd -> a"),
    ],
)  # fmt: skip
def test_a_setting_that_differs_is_said_in_words(difference: Difference, words: str) -> None:
    assert difference_words(difference) == words


def test_steps_that_moved_are_named_with_their_phase() -> None:
    def group(seconds: float) -> RunGroup:
        mark = VerdictMark("latency-bound", steps=(StepMark("OSD write", "kv commit", seconds),))
        return RunGroup("g", (RunState("r", "io500", 0.0, 1.0, phases=[PhaseMark("write", 0.0, verdict=mark)]),))

    output = StringIO()
    for part in shift_parts(compare(group(1.2e-3), group(4.1e-3)), named=False):
        Console(file=output, width=120).print(part)

    assert "write: kv commit of an OSD write takes 1.2 ms in base and 4.1 ms in other" in output.getvalue()


@pytest.mark.parametrize("width", [30, 80, 120])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_lost(width: int) -> None:
    def group(mark: VerdictMark, **tags: str) -> RunGroup:
        run = RunState("r", "io500", 0.0, 1.0, phases=[PhaseMark("p" * 40, 0.0, verdict=mark)])
        return RunGroup("g", (run,), (Settings("r", tags, ["x" * 100, *tags.values()]),))

    output = StringIO()
    console = Console(file=output, width=width)
    for part in shift_parts(compare(group(LOCK, c6="on"), group(SEVERAL, c6="o" * 200)), named=True):
        console.print(part)
    lines = output.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    assert output.getvalue().count("o" * 10) >= 10
    assert "differs" in output.getvalue()
