from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from machine import KERNEL_THREAD, Machine
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes.affinity import MAX_THREADS_PER_LOOK, Affinity
from pinchpoint.threads.processes import Processes
from polling import until

BUSY = "pinchpoint_resource_busy_seconds_total"
SATURATED = "pinchpoint_resource_saturated_seconds_total"


class Pinned:
    """A machine with CPUs, and threads that are pinned to some of them."""

    def __init__(self, machine: Machine, cpus: int = 4) -> None:
        self.machine = machine
        self.probe = Affinity(machine.host())
        self.now = 10.0
        self._ticks = [(0, 0)] * cpus
        self._write()

    def allow(self, pid: int, cpus: str, *tids: int) -> None:
        """Set where a process, or some of its threads, may run."""
        for tid in tids or (pid,):
            status = f"Name:\tfio\nUmask:\t0022\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
            self.machine.write(f"proc/{pid}/task/{tid}/status", status)

    def passes(self, *busy: float, seconds: float = 1.0) -> None:
        """Advance the clock, with each CPU busy for a share of that time, and sample."""
        self.now += seconds
        self._ticks = [
            (run + round(100 * seconds * share), idle + round(100 * seconds * (1 - share)))
            for (run, idle), share in zip(self._ticks, busy, strict=True)
        ]
        self._write()
        self.probe.sample(self.now)

    def _write(self) -> None:
        lines = [f"cpu{number} {run} 0 0 {idle} 0 0 0 0 0 0" for number, (run, idle) in enumerate(self._ticks)]
        self.machine.write("proc/stat", "\n".join(["cpu  1 2 3 4 5 6 7 8 0 0", *lines, ""]))

    def value(self, owner: str, metric: str = BUSY) -> float | None:
        found = Snapshot.of(0, self.probe.points())
        return found.value(metric, resource="cpu_set", owner=owner, serves="cpu,runqueue")

    def owners(self) -> set[str]:
        return {labels["owner"] for labels, _ in Snapshot.of(0, self.probe.points()).series(BUSY)}


def test_a_set_is_as_busy_as_its_cpus_on_average_whatever_the_others_do(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(50, "ceph-osd", argv=("ceph-osd", "-i", "3"))
    pinned.allow(50, "2-3")
    pinned.passes(0, 0, 0, 0)
    pinned.passes(0, 0.5, 1, 0.8)

    assert pinned.value("osd.3") == pytest.approx(0.9)
    assert pinned.value("osd.3", SATURATED) == 1.0


def test_who_may_use_all_cpus_that_are_online_has_no_set(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(50, "fio")
    machine.process(51, "ior")
    pinned.allow(50, "0-3")
    pinned.allow(51, "0-191")  # CPUs that could be hot-plugged count as allowed
    pinned.passes(1, 1, 1, 1)
    pinned.passes(1, 1, 1, 1)

    assert pinned.owners() == set()


def test_of_ranks_that_are_pinned_to_a_core_each_the_busiest_speaks(machine: Machine) -> None:
    pinned = Pinned(machine)
    for rank in range(3):
        machine.process(50 + rank, "ior")
        pinned.allow(50 + rank, str(rank))
    pinned.passes(0, 0, 0, 0)
    pinned.passes(0.2, 0.95, 0.4, 1.0)
    pinned.passes(0.7, 0.1, 0.4, 1.0)

    assert pinned.value("ior") == pytest.approx(0.95 + 0.7)
    assert pinned.value("ior", SATURATED) == 1.0


def test_a_thread_may_be_pinned_alone(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(50, "fio", threads={50: "fio", 51: "fio"})
    pinned.allow(50, "0-3")
    pinned.allow(50, "3", 51)
    pinned.passes(0, 0, 0, 0)
    pinned.passes(0, 0, 0, 1)

    assert pinned.value("fio") == pytest.approx(1.0)


def test_threads_of_many_are_read_in_turns(machine: Machine) -> None:
    pinned = Pinned(machine)
    for pid in (1000, 2000):
        tids = list(range(pid, pid + MAX_THREADS_PER_LOOK + 1))
        machine.process(pid, "fio" if pid == 1000 else "ior", threads=dict.fromkeys(tids, "x"))
        pinned.allow(pid, "0-3")
        pinned.allow(pid, "1", *tids[1:])
    seen = []
    for _ in range(2):
        pinned.passes(0, 1, 0, 0, seconds=6)
        seen.append(len(pinned.owners()))

    assert seen == [1, 2]


def test_a_process_that_starts_between_two_looks_is_found_at_once(machine: Machine) -> None:
    pinned = Pinned(machine)
    pinned.passes(0, 0, 0, 0)
    machine.process(50, "fio")
    pinned.allow(50, "1")
    pinned.passes(0, 0.5, 0, 0)

    assert pinned.value("fio") == pytest.approx(0.5)


def test_a_set_that_is_changed_or_lifted_is_seen_at_the_next_look(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(50, "fio")
    pinned.allow(50, "1")
    pinned.passes(0, 1, 0, 0)
    pinned.passes(0, 1, 0, 0)
    assert pinned.value("fio") == pytest.approx(1.0)
    pinned.allow(50, "0")
    pinned.passes(0, 1, 0, 0, seconds=6)
    assert pinned.value("fio") == pytest.approx(1.0)
    pinned.allow(50, "0-3")
    pinned.passes(1, 1, 0, 0, seconds=6)
    assert pinned.value("fio") == pytest.approx(1.0)


def test_an_owner_is_shown_a_while_after_its_end_and_then_no_more(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(50, "fio")
    pinned.allow(50, "1")
    pinned.passes(0, 1, 0, 0)
    pinned.passes(0, 1, 0, 0)
    machine.end(50)
    pinned.passes(0, 1, 0, 0, seconds=6)
    assert pinned.value("fio") == pytest.approx(1.0)
    pinned.passes(0, 1, 0, 0, seconds=1000)
    assert pinned.owners() == set()


def test_kernel_threads_belong_to_their_cpus_and_are_left_out(machine: Machine) -> None:
    pinned = Pinned(machine)
    machine.process(16, "ksoftirqd/0", flags=KERNEL_THREAD)
    pinned.allow(16, "0")
    pinned.passes(1, 0, 0, 0)

    assert pinned.owners() == set()


@pytest.mark.parametrize("cpus", ["", "x", "7-", "99999999999", "9"])
def test_a_damaged_list_and_cpus_that_are_not_online_are_no_set(machine: Machine, cpus: str) -> None:
    pinned = Pinned(machine)
    machine.process(50, "fio")
    pinned.allow(50, cpus)
    pinned.passes(1, 1, 1, 1)

    assert pinned.owners() == set()


def test_no_stat_is_absence_and_a_stat_without_cpus_is_a_failure(machine: Machine) -> None:
    probe = Affinity(machine.host())
    with pytest.raises(NotPresent):
        probe.sample(1.0)
    machine.write("proc/stat", "ctxt 7\n")
    with pytest.raises(FormatError):
        probe.sample(2.0)


def spinning(cpus: Iterable[int]) -> subprocess.Popen[bytes]:
    script = f"import os; os.sched_setaffinity(0, {set(cpus)})\nprint(flush=True)\nwhile True: pass"
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)


def test_a_real_process_that_is_pinned_to_a_cpu_keeps_it_busy(this_host: Host) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("this process may use only one CPU")
    loop = spinning(cpus[:1])
    try:
        assert loop.stdout is not None
        assert loop.stdout.readline() == b"\n"
        host = replace(this_host, processes=Processes(this_host.procfs, this_host.roles, adopted=lambda: (loop.pid,)))
        probe = Affinity(host)
        comm = (this_host.procfs / str(loop.pid) / "comm").read_text().strip()

        def saturated() -> float:
            probe.sample(time.monotonic())
            found = Snapshot.of(0, probe.points())
            return found.value(SATURATED, resource="cpu_set", owner=comm, serves="cpu,runqueue") or 0.0

        assert until(20, lambda: saturated() > 1.0, pause=0.2)
    finally:
        loop.kill()
        loop.communicate()
