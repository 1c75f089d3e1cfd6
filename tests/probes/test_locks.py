from __future__ import annotations

import os
import struct

import pytest

from machine import Machine, stat_line
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent
from pinchpoint.probes.locks import Locks
from pinchpoint.threads.lock_state import FUTEX_CALLS

LOCK = 0x4000
FUTEX = FUTEX_CALLS[os.uname().machine].decode()


class Mds:
    """An MDS whose lock takes turns, and the probe that reads it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = 10.0
        self.turn = 1000
        self.used, self.works = 0.0, 0.3
        self.probe = Locks(machine.host())
        self.probe.host.activity.note(self.now, 1000.0)
        machine.process(50, "ceph-mds", threads={51: "ms_dispatch", 52: "log"}, argv=("ceph-mds", "-i", "a"))
        waits = f"{FUTEX} {LOCK + 48:#x} 0x189 0x0 0x0 0x0 0xffffffff 0x7f00 0x7f01\n"
        for tid in (50, 51, 52):
            machine.write(f"proc/50/task/{tid}/syscall", waits if tid == 51 else "running\n")

    def passes(self, seconds: float, out: int) -> None:
        """Let time pass with so many tickets out, and sample."""
        self.now += seconds
        self.turn += 100
        self.used += self.works * os.sysconf("SC_CLK_TCK") * seconds
        if (self.machine.procfs / "50").exists():
            self.machine.write("proc/50/stat", stat_line(50, "ceph-mds", utime=round(self.used)))
        path = self.machine.procfs / "50" / "mem"
        path.write_bytes(bytes(LOCK) + struct.pack("=II", self.turn + out, self.turn))
        self.probe.sample(self.now)

    def is_found(self) -> Mds:
        for _ in range(3):
            self.passes(1.0, 2)
        return self

    def seconds(self, what: str) -> float | None:
        found = Snapshot.of(0, self.probe.points())
        return found.value(f"pinchpoint_lock_{what}_seconds_total", resource="mds_lock", owner="mds.a")


@pytest.fixture
def mds(machine: Machine) -> Mds:
    return Mds(machine)


def test_time_counts_as_held_and_waited_for_by_the_tickets_that_are_out(mds: Mds) -> None:
    mds.is_found()
    for out in (0, 1, 3, 0):
        mds.passes(0.05, out)

    assert mds.seconds("observed") == pytest.approx(0.2)
    assert mds.seconds("held") == pytest.approx(0.1)
    assert mds.seconds("waiting") == pytest.approx(0.1)


def test_a_lock_that_was_never_found_has_no_series(mds: Mds) -> None:
    mds.machine.write("proc/50/task/51/syscall", "running\n")
    mds.is_found().passes(0.05, 1)

    assert [*mds.probe.points()] == []


def test_the_lock_of_an_mds_that_does_nothing_is_searched_for_seldom_and_found_later(mds: Mds) -> None:
    mds.works = 0.0
    for _ in range(9):
        mds.passes(1.0, 2)
    mds.passes(0.05, 2)
    assert (mds.seconds("observed"), mds.probe.interval) == (None, 1.0)

    for _ in range(25):
        mds.passes(1.0, 2)
    mds.passes(0.05, 2)
    assert mds.seconds("observed") is not None
    assert mds.probe.interval == 0.1


def test_a_lock_that_was_not_found_for_minutes_is_searched_for_seldom(mds: Mds) -> None:
    waits = (mds.machine.procfs / "50/task/51/syscall").read_bytes()
    mds.machine.write("proc/50/task/51/syscall", "running\n")
    for _ in range(125):
        mds.passes(1.0, 2)
    mds.machine.write("proc/50/task/51/syscall", waits)
    for _ in range(4):
        mds.passes(1.0, 2)
    mds.passes(0.05, 2)
    assert mds.seconds("observed") is None

    for _ in range(30):
        mds.passes(1.0, 2)
    mds.passes(0.05, 2)
    assert mds.seconds("observed") is not None


def test_a_process_that_begins_to_work_anew_is_searched_as_at_first(mds: Mds) -> None:
    waits = (mds.machine.procfs / "50/task/51/syscall").read_bytes()
    mds.machine.write("proc/50/task/51/syscall", "running\n")
    for works in (0.3, 0.0):
        mds.works = works
        for _ in range(125):
            mds.passes(1.0, 2)
    mds.machine.write("proc/50/task/51/syscall", waits)
    mds.works = 0.3
    for _ in range(14):
        mds.passes(1.0, 2)
    mds.passes(0.05, 2)

    assert mds.seconds("observed") is not None


def test_on_a_host_at_rest_nothing_is_searched(mds: Mds) -> None:
    mds.now += 2000.0

    assert mds.is_found().seconds("observed") is None


def test_what_passed_while_nobody_looked_does_not_count(mds: Mds) -> None:
    mds.is_found().passes(0.05, 1)
    mds.passes(30.0, 1)
    mds.passes(0.05, 1)

    assert mds.seconds("observed") == pytest.approx(0.1)


def test_a_thread_that_does_not_take_the_lock_does_not_lead_to_it(mds: Mds) -> None:
    waits = (mds.machine.procfs / "50/task/51/syscall").read_text()
    mds.machine.write("proc/50/task/51/syscall", "running\n")
    mds.machine.write("proc/50/task/52/syscall", waits)
    mds.is_found().passes(0.05, 1)

    assert mds.seconds("observed") is None


def test_where_there_is_no_mds_there_is_nothing_to_read(machine: Machine) -> None:
    machine.process(50, "ceph-osd", argv=("ceph-osd", "-i", "3"))

    with pytest.raises(NotPresent):
        Locks(machine.host()).sample(10.0)


def test_the_memory_of_a_process_that_only_has_the_name_is_not_read(mds: Mds) -> None:
    mds.machine.runs_as(50, 1000, "home/u/ceph-mds")

    with pytest.raises(NotPresent):
        mds.is_found()


def test_memory_that_may_not_be_read_is_no_failure(mds: Mds, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def denied(path: os.PathLike[str], flags: int) -> int:
        if os.fspath(path).endswith("/mem"):
            raise PermissionError(1, "Operation not permitted")
        return opened(path, flags)

    monkeypatch.setattr("pinchpoint.threads.lock_state.os.open", denied)
    with pytest.raises(NotPresent, match=r"^the memory of mds\.a may not be read: Operation not permitted$"):
        mds.passes(1.0, 1)
    with pytest.raises(NotPresent, match=r"may not be read"):
        mds.passes(0.1, 1)


def test_an_mds_that_has_ended_takes_its_series_along_and_its_memory_is_closed(mds: Mds) -> None:
    mds.is_found().passes(0.05, 1)
    mds.machine.end(50)
    mds.now += 10.0
    with pytest.raises(NotPresent):
        mds.probe.sample(mds.now)

    assert [*mds.probe.points()] == []


def test_two_processes_with_one_name_have_one_series(mds: Mds) -> None:
    mds.machine.process(60, "ceph-mds", threads={61: "ms_dispatch"}, argv=("ceph-mds", "-i", "a"))
    waits = (mds.machine.procfs / "50/task/51/syscall").read_text()
    mds.machine.write("proc/60/task/61/syscall", waits)
    (mds.machine.procfs / "60" / "mem").symlink_to("../50/mem")
    mds.is_found().passes(0.05, 1)
    found = [(point.metric.name, point.labels) for point in mds.probe.points()]

    assert len(found) == len(set(found)) > 0


def test_nothing_stays_open(mds: Mds) -> None:
    before = len(os.listdir("/proc/self/fd"))
    mds.is_found()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    mds.probe.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_the_lock_of_a_ceph_client_shows_that_it_is_held_and_not_who_waits(machine: Machine) -> None:
    machine.process(70, "ceph-fuse", threads={71: "ms_dispatch"})
    probe = Locks(machine.host())
    probe.host.activity.note(10.0, 1000.0)
    for tid in (70, 71):
        machine.write(f"proc/70/task/{tid}/syscall", f"{FUTEX} {LOCK:#x} 0x80 0x2 0x0 0x0 0x0 0x7f00 0x7f01\n")
    memory = machine.procfs / "70" / "mem"
    for now, owner in ((10.0, 70), (20.0, 71), (30.0, 70)):
        memory.write_bytes(bytes(LOCK) + struct.pack("=iIiIi", 2, 0, owner, 1, 0))
        probe.sample(now)
    for now, word in ((30.1, 1), (30.2, 0), (30.3, 0), (30.4, 2)):
        memory.write_bytes(bytes(LOCK) + struct.pack("=iIiIi", word, 0, 70, 1, 0))
        probe.sample(now)
    found = Snapshot.of(0, probe.points())
    client = {"resource": "client_lock", "owner": "ceph-fuse"}

    assert found.value("pinchpoint_lock_observed_seconds_total", **client) == pytest.approx(0.4)
    assert found.value("pinchpoint_lock_held_seconds_total", **client) == pytest.approx(0.2)
    assert found.value("pinchpoint_lock_waiting_seconds_total", **client) is None
