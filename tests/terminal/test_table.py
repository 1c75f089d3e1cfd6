from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from pinchpoint.diagnosis.usage import ResourceUse, Usage
from pinchpoint.diagnosis.verdict import Kind, Limit, Verdict
from pinchpoint.figures import format_result
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.session.phases import PhaseRecord
from pinchpoint.terminal.table import run_table


def shown(phases: list[PhaseRecord], width: int, *, alerts: bool = True) -> str:
    output = StringIO()
    Console(file=output, width=width).print(run_table(phases, alerts=alerts, width=width))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n") + "\n"


def resource(name: str, owner: str, busy: float, saturated: float) -> ResourceUse:
    return ResourceUse(
        resource=name, owner=owner, serves=("disk",), busy=busy, saturated=saturated, runqueue=None, threshold=0.8
    )


DISK = Limit(
    resource="disk",
    owner="vda",
    host="a",
    serves=("disk",),
    busy=0.93,
    runqueue=0.0,
    blocked=0.0,
    saturated=0.98,
    threshold=0.8,
    full=True,
    blame=0.9,
    reach=0.9,
)
WRITE = PhaseRecord(
    PhaseMark(
        "disk_random_write",
        100.0,
        125.2,
        [Result("write", "bytes_per_second", 2.22 * 2**30)],
        alerts=["BenchmarkThreadSaturated", "DiskSaturated"],
    ),
    Usage(
        time=0.0,
        seconds=25.0,
        resources=(resource("disk", "vda", 0.93, 0.98), resource("filesystem_kernel", "host", 0.41, 0.04)),
    ),
    Verdict(Kind.RESOURCE, 25.0, {"disk": 0.96, "cpu": 0.04}, (DISK,), margin="just over: something"),
)
BLIND = PhaseRecord(PhaseMark("read", 130.0, 140.0))


def test_a_wide_terminal_has_a_column_of_alerts_and_a_narrow_one_a_line_for_each() -> None:
    wide, narrow = (shown([WRITE], width).splitlines() for width in (110, 80))

    assert wide[2].split()[-1] == "BenchmarkThreadSaturated"
    assert [line.strip() for line in narrow if "Saturated" in line] == ["BenchmarkThreadSaturated", "DiskSaturated"]


def test_the_verdict_comes_first_and_says_what_was_waited_for_and_when_it_was_close() -> None:
    text = shown([WRITE], 80)

    assert "limited by disk of vda" in text
    assert "over)" in text
    assert "waits: disk 96%" in text


@pytest.mark.parametrize("width", [80, 100, 110])
def test_no_name_is_broken(width: int) -> None:
    text = shown([WRITE, BLIND], width)

    for name in ("disk_random_write", "write 2.22 GiB/s", "! disk vda 93%, 98%", "filesystem_kernel host 41%, 4%"):
        assert name in text
    assert "BenchmarkThreadSaturated" in text
    assert "DiskSaturated" in text
    assert "no samples" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_what_the_verdict_names_is_shown_whatever_else_is_fuller() -> None:
    others = tuple(resource("disk", f"loop{number}", 1.0, 1.0) for number in range(5))
    usage = Usage(time=0.0, seconds=25.0, resources=(*others, resource("disk", "vda", 0.93, 0.98)))

    lines = shown([PhaseRecord(WRITE.mark, usage, WRITE.verdict)], 110)

    assert lines.index("! disk vda") < lines.index("! disk loop0")


def test_what_is_full_most_of_the_time_is_marked_and_the_mark_is_explained() -> None:
    text = shown([WRITE], 80)

    assert "! disk vda" in text
    assert "! filesystem_kernel" not in text
    assert "! full for most of the phase" in text


def test_without_a_prometheus_nothing_is_said_of_alerts() -> None:
    assert "alerts" not in shown([BLIND], 110, alerts=False)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("bytes_per_second", 0.0, "write 0 B/s"),
        ("bytes_per_second", 1023.6, "write 1024 B/s"),
        ("bytes_per_second", 3.5 * 2**50, "write 3584 TiB/s"),
        ("operations_per_second", 146_200.0, "write 146 kIOPS"),
        ("operations_per_second", 12.34, "write 12.3 IOPS"),
        ("seconds", 2.5, "write 2.5 s"),
    ],
)
def test_results_are_shown_in_the_units_of_the_field(unit: str, value: float, text: str) -> None:
    assert format_result(Result("write", unit, value)) == text
