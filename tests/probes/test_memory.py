from __future__ import annotations

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.memory import MemoryProbe, parse_pressure, parse_vmstat

PAGE = mmap.PAGESIZE
RESOURCE = {"resource": "memory", "owner": "host", "serves": "memory"}


def vmstat(dirty: int = 0, stalls: str = "allocstall_normal 0") -> str:
    return f"nr_free_pages 99\nnr_dirty {dirty}\nnr_writeback 3\n{stalls}\nnr_dirty_threshold 1000\npgfault 4\n"


def pressure(total: int) -> str:
    """Return /proc/pressure/memory with a total in microseconds (psi_show, Linux 6.1)."""
    return (
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    )  # fmt: skip


def value(probe: MemoryProbe, name: str, **labels: str) -> float | None:
    return Snapshot.of(0, probe.points()).value(f"pinchpoint_{name}", **labels)


def test_pages_are_exported_in_bytes(machine: Machine) -> None:
    machine.write("proc/vmstat", vmstat(dirty=7))
    probe = MemoryProbe(machine.host())
    probe.sample(1.0)

    assert value(probe, "memory_dirty_bytes") == 7 * PAGE
    assert value(probe, "memory_writeback_bytes") == 3 * PAGE
    assert value(probe, "memory_dirty_threshold_bytes") == 1000 * PAGE


@pytest.mark.parametrize(
    ("lines", "total"),
    [("allocstall 5", 5), ("allocstall_dma 1\nallocstall_normal 2\nallocstall_movable 30", 33)],
    ids=["before Linux 4.10", "by zone"],
)
def test_stalls_of_all_zones_are_added_up(machine: Machine, lines: str, total: int) -> None:
    machine.write("proc/vmstat", vmstat(stalls=lines))
    probe = MemoryProbe(machine.host())
    probe.sample(1.0)

    assert value(probe, "memory_allocation_stalls_total") == total


def test_pressure_is_the_time_in_which_a_task_stalled(machine: Machine) -> None:
    machine.write("proc/vmstat", vmstat())
    probe = MemoryProbe(machine.host())
    for now, total in ((1.0, 5_000_000), (2.0, 5_050_000), (3.0, 5_250_000)):
        machine.write("proc/pressure/memory", pressure(total))
        probe.sample(now)

    assert value(probe, "resource_busy_seconds_total", **RESOURCE) == pytest.approx(0.25)
    assert value(probe, "resource_saturated_seconds_total", **RESOURCE) == 1.0  # 0.2 is above the threshold, 0.05 not


def test_without_pressure_files_there_is_no_memory_resource(machine: Machine) -> None:
    machine.write("proc/vmstat", vmstat())
    probe = MemoryProbe(machine.host())
    probe.sample(1.0)
    probe.sample(2.0)

    assert value(probe, "resource_busy_seconds_total", **RESOURCE) is None
    assert value(probe, "memory_dirty_bytes") == 0


def test_pressure_is_neither_negative_nor_longer_than_the_time_that_passed(machine: Machine) -> None:
    machine.write("proc/vmstat", vmstat())
    probe = MemoryProbe(machine.host())
    for now, total in ((1.0, 50), (2.0, 20), (3.0, 9_000_000)):
        machine.write("proc/pressure/memory", pressure(total))
        probe.sample(now)

    assert value(probe, "resource_busy_seconds_total", **RESOURCE) == 1.0


def test_no_vmstat_is_absence_and_an_unknown_one_is_a_failure(machine: Machine) -> None:
    probe = MemoryProbe(machine.host())
    with pytest.raises(NotPresent):
        probe.sample(1.0)
    machine.write("proc/vmstat", "nr_dirty\nnr_dirty x\n")
    with pytest.raises(FormatError):
        probe.sample(2.0)


LINES = st.lists(
    st.sampled_from([b"nr_dirty ", b"allocstall_", b"some ", b"total=", b"7", b"-1", b"\n", b" ", b"9" * 30])
).map(b"".join)


@given(st.binary() | LINES)
def test_any_bytes_give_fields_or_a_format_error(raw: bytes) -> None:
    try:
        assert all(field >= 0 for field in parse_vmstat(raw).values())
    except FormatError:
        pass
    try:
        assert parse_pressure(raw) >= 0
    except FormatError:
        pass


def test_this_machine_tells_of_dirty_memory_and_stalls(this_host: Host) -> None:
    probe = MemoryProbe(this_host)
    probe.sample(1.0)
    probe.sample(2.0)

    assert (value(probe, "memory_dirty_threshold_bytes") or 0) > 0
    assert value(probe, "memory_dirty_bytes") is not None
    assert value(probe, "memory_allocation_stalls_total") is not None
