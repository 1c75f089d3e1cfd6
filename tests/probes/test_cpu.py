from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.host.procfs import CpuTimes, FormatError, parse_cpu_times
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.cpu import Cpu

BUSY = "pinchpoint_resource_busy_seconds_total"
SATURATED = "pinchpoint_resource_saturated_seconds_total"


def stat(*cpus: tuple[int, ...]) -> str:
    """Return /proc/stat with user, nice, system, idle, iowait, irq, softirq, steal and guest times of each CPU."""
    lines = [f"cpu{number} {' '.join(map(str, fields))}" for number, fields in enumerate(cpus)]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 0 0", *lines, "intr 5 0 0", "ctxt 6\n"])


def busy(probe: Cpu, resource: str, metric: str = BUSY) -> float | None:
    serves = {"cpu": "cpu,runqueue", "softirq_cpu": "network"}[resource]
    return Snapshot.of(0, probe.points()).value(metric, resource=resource, owner="host", serves=serves)


def test_host_is_as_busy_as_its_cpus_on_average(machine: Machine) -> None:
    probe = Cpu(machine.host())
    machine.write("proc/stat", stat((0,) * 10, (0,) * 10))
    probe.sample(10.0)
    machine.write("proc/stat", stat((70, 0, 20, 10, 0, 0, 0, 0, 0, 0), (0, 0, 10, 60, 30, 0, 0, 0, 0, 0)))
    probe.sample(11.0)

    assert busy(probe, "cpu") == pytest.approx((0.9 + 0.1) / 2)
    assert busy(probe, "cpu", SATURATED) == 0


def test_time_that_the_hypervisor_took_is_busy_and_waiting_for_io_is_not(machine: Machine) -> None:
    probe = Cpu(machine.host())
    machine.write("proc/stat", stat((0,) * 10))
    probe.sample(10.0)
    machine.write("proc/stat", stat((40, 0, 0, 0, 10, 0, 0, 50, 0, 0)))
    probe.sample(12.0)

    assert busy(probe, "cpu") == pytest.approx(2 * 0.9)
    assert busy(probe, "cpu", SATURATED) == 2


def test_one_cpu_full_of_interrupts_is_seen_among_many(machine: Machine) -> None:
    probe = Cpu(machine.host())
    idle = (0, 0, 0, 100, 0, 0, 0, 0, 0, 0)
    machine.write("proc/stat", stat((0,) * 10, *[(0,) * 10] * 7))
    probe.sample(10.0)
    machine.write("proc/stat", stat((0, 0, 5, 10, 0, 15, 70, 0, 0, 0), *[idle] * 7))
    probe.sample(11.0)

    assert busy(probe, "softirq_cpu") == pytest.approx(0.85)
    assert busy(probe, "softirq_cpu", SATURATED) == 1
    assert busy(probe, "cpu") == pytest.approx(0.9 / 8)


def test_cpus_that_come_go_or_count_backwards_do_no_harm(machine: Machine) -> None:
    probe = Cpu(machine.host())
    machine.write("proc/stat", stat((500, 0, 0, 500, 90, 0, 0, 0, 0, 0), (9,) * 10))
    probe.sample(10.0)
    machine.write("proc/stat", stat((400, 0, 0, 600, 80, 0, 0, 0, 0, 0)))
    probe.sample(11.0)
    machine.write("proc/stat", stat((450, 0, 0, 650, 80, 0, 0, 0, 0, 0), (100,) * 10))
    probe.sample(12.0)

    assert busy(probe, "cpu") == pytest.approx(0.5)


def test_no_stat_is_absence_and_a_stat_without_cpus_is_a_failure(machine: Machine) -> None:
    probe = Cpu(machine.host())
    with pytest.raises(NotPresent):
        probe.sample(1.0)
    machine.write("proc/stat", "cpu0 1 2\nctxt 7\n")
    with pytest.raises(FormatError):
        probe.sample(2.0)


def test_damaged_lines_of_stat_are_left_out() -> None:
    raw = b"cpu  1 1 1 1 1 1 1 1\ncpu0 1 2 3\ncpu1 1 2 3 4 5 6 7 8 9 10\ncpu2 1 2 x 4 5 6 7 8\ncpux 1 2 3 4 5 6 7 8"
    assert parse_cpu_times(raw) == {1: CpuTimes(1, 2, 3, 4, 5, 6, 7, 8)}


@given(st.binary() | st.lists(st.sampled_from([b"cpu0", b"cpu", b" ", b"7", b"-1", b"\n", b"9" * 30])).map(b"".join))
def test_any_bytes_give_times_or_a_format_error(raw: bytes) -> None:
    try:
        times = parse_cpu_times(raw)
    except FormatError:
        return
    assert all(value >= 0 for cpu in times.values() for value in cpu)


def test_this_machine_is_busy_and_for_no_more_time_than_has_passed(this_host: Host) -> None:
    probe = Cpu(this_host)
    begin, used = time.monotonic(), time.thread_time()
    probe.sample(begin)
    while time.thread_time() - used < 0.05:
        pass
    end = time.monotonic()
    probe.sample(end)

    assert 0 < (busy(probe, "cpu") or 0) <= end - begin
