from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ceph_answers import run_daemon
from daemon_socket import DaemonSocket
from machine import Machine, stat_line
from patience import Load
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.workloads import Leader, Workload
from pinchpoint.bpf.choice import UnusableSourceError
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.ceph import follower
from pinchpoint.ceph.waiting import Looked
from pinchpoint.choices import WAIT_SOURCES
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, waits
from pinchpoint.probes.benchmark import BenchmarkProbe
from pinchpoint.probes.waits import (
    KEEP_STACK_SECONDS,
    MAX_USER_WORKLOADS,
    MAX_WORKLOADS,
    NO_WORKLOAD_INTERVAL_SECONDS,
    Waits,
)
from pinchpoint.quotas import MAX_USER_THREADS
from pinchpoint.threads.kernel_stacks import StackFile
from pinchpoint.threads.task_source import KeptFile
from pinchpoint.waits.stack_files import MAX_STACKS_PER_LOOK, StackFiles
from pinchpoint.waits.stack_rules import WAITS, Stacks
from pinchpoint.waits.watched import Place, WaitSource, WatchedProcess
from polling import until

LOOK = 0.125
"""Seconds; a sum of these is exact."""
SECONDS = "pinchpoint_workload_seconds_total"
PROCESSES = "pinchpoint_workload_processes"
RUN = {"benchmark": "fio", "run": "r"}
ME = os.getpid()

DISK = ("submit_bio_wait", "blkdev_issue_flush", "ext4_sync_file")
FUSE = ("request_wait_answer", "__fuse_simple_request", "fuse_do_getattr")
FUTEX = ("futex_do_wait", "__futex_wait", "do_futex")
SLEEP = ("hrtimer_nanosleep", "common_nsleep")
AIO = ("read_events", "do_io_getevents")
LOCK = ("path_openat", "do_filp_open")
STRANGE = ("zyx_wait", "zyx_read")
INTERRUPTED = ("irqentry_exit_to_user_mode", "asm_sysvec_apic_timer_interrupt")
YIELD = ("__do_sys_sched_yield",)
STORED = "20 1 254:0 / / rw - ext4 /dev/vda rw\n21 20 0:30 / /mnt/c rw - ceph x:/ rw\n"


class Bench:
    """A machine whose benchmark a test controls, one look at a time."""

    def __init__(self, machine: Machine, host: Host | None = None) -> None:
        self.machine = machine
        self.host = host or replace(machine.host(), benchmarks=BENCHMARKS, wait_source="files")
        self.probe = Waits(self.host)
        self.now = 100.0
        self.used: dict[tuple[int, int], list[float]] = {}
        self.pids: list[int] = []
        self.begun = False

    def process(self, pid: int = 10, comm: str = "fio", threads: dict[int, str] | None = None, **options: Any) -> None:
        """Add a process of the run ``r``."""
        self.machine.process(pid, comm, threads=threads, **options)
        self.pids.append(pid)
        self.leads(*self.pids)

    def leads(self, *pids: int) -> None:
        self.host.found.tell(Leader(pid, 100, {"fio"}, Workload("fio", "r")) for pid in pids)

    def in_stack(self, frames: tuple[str, ...], pid: int = 10, tid: int | None = None, *, state: str = "S") -> None:
        """Set the kernel stack of a thread."""
        task = f"proc/{pid}/task/{tid or pid}"
        self.machine.write(f"{task}/stack", "".join(f"[<0>] {frame}+0x1/0x9\n" for frame in frames))
        name = (self.machine.procfs.parent / task / "comm").read_text().strip()
        self.machine.write(f"{task}/stat", stat_line(tid or pid, name).replace(b") S ", f") {state} ".encode()))

    def ran(self, run: float, late: float = 0.0, pid: int = 10, tid: int | None = None) -> None:
        """Add these seconds to the time that a thread has run, and has waited for a CPU."""
        times = self.used.setdefault((pid, tid or pid), [0.0, 0.0])
        times[0] += run
        times[1] += late
        self.machine.ran(pid, tid or pid, *times)

    def look(self, count: int = 1, before: Callable[[], None] = lambda: None) -> None:
        for _ in range(count):
            before()
            self.machine.uptime(1000.0 + self.now)
            self.probe.sample(self.now)
            self.now += LOOK

    def spend(self, seconds: float, before: Callable[[], None] = lambda: None) -> None:
        """Let time pass; it begins with the first look."""
        if not self.begun:
            self.begun = True
            self.look()
        self.look(int(seconds / LOOK), before)

    def snapshot(self) -> Snapshot:
        return Snapshot.of(0, self.probe.points())

    def seconds(self, **labels: str) -> dict[str, float]:
        """Return the seconds of the run by class, without classes that have none."""
        wanted = labels or RUN
        return {
            found["wait"]: value
            for found, value in self.snapshot().series(SECONDS)
            if value and {key: found[key] for key in ("benchmark", "run")} == wanted
        }

    def shares(self, **labels: str) -> dict[str, Any]:
        """Return the shares of the classes, as approximate values to compare with."""
        seconds = self.seconds(**labels)
        return {wait: pytest.approx(value / sum(seconds.values()), abs=0.03) for wait, value in seconds.items()}


@pytest.fixture
def bench(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(KeptFile, "kept", 0)
    machine.process(1, "systemd", ppid=0)
    machine.ran(1, 1, 1.0)  # some process must have run, or the probe assumes that schedstat is off
    found = Bench(machine)
    yield found
    found.probe.close()
    assert KeptFile.kept == 0


def test_a_thread_that_sleeps_in_a_disks_function_waits_for_the_disk(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(2.0)}
    assert bench.snapshot().value(PROCESSES, **RUN) == 1
    assert bench.snapshot().value("pinchpoint_workload_owner_info", **RUN, owner="fio") == 1


def test_time_on_cpus_and_waiting_for_them_is_exact_and_the_rest_is_the_stacks(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.spend(2.0, lambda: bench.ran(0.3 * LOOK, 0.2 * LOOK))

    assert bench.seconds() == {
        "cpu": pytest.approx(0.6),
        "runqueue": pytest.approx(0.4),
        "disk": pytest.approx(1.0),
    }


def test_every_class_is_there_from_the_beginning(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.look(10)

    assert {labels["wait"] for labels, _ in bench.snapshot().series(SECONDS)} == set(WAITS)


def test_what_a_thread_does_after_a_long_sleep_is_counted_in_full_though_it_is_read_rarely(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.spend(5.0)
    bench.spend(5.0, lambda: bench.ran(0.09))
    found = bench.seconds()

    assert found["cpu"] == pytest.approx(40 * 0.09)
    assert sum(found.values()) == pytest.approx(10.0)


def read_stacks(bench: Bench, monkeypatch: pytest.MonkeyPatch, looks: int) -> Counter[str]:
    """Let every thread run for a while in each of some looks; return how often each thread's stack was read."""
    read: Counter[str] = Counter()
    original = StackFile.read

    def counted(file: StackFile) -> bytes | None:
        read[file._directory] += 1
        return original(file)

    bench.look(3)
    monkeypatch.setattr(StackFile, "read", counted)

    def all_run() -> None:
        for pid, tid in list(bench.used):
            bench.ran(0.01, pid=pid, tid=tid)

    bench.look(looks, all_run)
    return read


def test_of_many_threads_the_stacks_seen_longest_ago_are_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tids = range(10, 10 + 5 * MAX_STACKS_PER_LOOK)
    bench.process(threads=dict.fromkeys(tids, "fio"))
    for tid in tids:
        bench.in_stack(DISK, tid=tid)
        bench.ran(0.0, tid=tid)
    read = read_stacks(bench, monkeypatch, looks=10)

    assert read.total() == 10 * MAX_STACKS_PER_LOOK
    assert set(read.values()) == {2}
    assert bench.seconds().keys() == {"cpu", "disk"}


def test_threads_of_an_untrusted_user_take_no_looks_from_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.process(10)
    tids = range(100, 100 + 5 * MAX_STACKS_PER_LOOK)
    bench.process(100, threads=dict.fromkeys(tids, "fio"), uid=65534)
    for pid, tid in ((10, 10), *((100, tid) for tid in tids)):
        bench.in_stack(DISK, pid, tid)
        bench.ran(0.0, pid=pid, tid=tid)
    read = read_stacks(bench, monkeypatch, looks=10)

    assert sum(count for directory, count in read.items() if directory.endswith("/10")) == 10
    assert read.total() == 10 + 10 * MAX_STACKS_PER_LOOK


def test_of_an_untrusted_users_many_threads_so_many_are_read(bench: Bench) -> None:
    many = MAX_USER_THREADS + 10
    bench.process(10, threads=dict.fromkeys(range(10, 10 + many), "fio"))
    bench.process(20_000, threads=dict.fromkeys(range(20_000, 20_000 + many), "fio"), uid=65534)
    bench.process(30_000, uid=65534)
    bench.look()

    numbers = {pid: len(worker.threads) for pid, worker in bench.probe._workers.items()}
    assert numbers == {10: many, 20_000: MAX_USER_THREADS // 2, 30_000: 1}


def test_a_wait_counts_also_while_the_thread_that_was_woken_has_no_cpu(bench: Bench) -> None:
    bench.process()
    bench.in_stack(FUSE, state="R")
    bench.spend(2.0)

    assert bench.seconds() == {"client": pytest.approx(2.0)}


def test_a_thread_that_is_seen_running_waited_for_what_it_waited_for_last(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.spend(0.5, lambda: bench.ran(LOOK / 2))
    bench.in_stack(INTERRUPTED, state="R")
    bench.spend(1.5, lambda: bench.ran(LOOK / 2))

    assert bench.seconds() == {"cpu": pytest.approx(1.0), "disk": pytest.approx(1.0)}


@pytest.mark.parametrize("stack", [INTERRUPTED, (), STRANGE])
def test_a_thread_that_could_run_and_does_not_waits_for_a_cpu(bench: Bench, stack: tuple[str, ...]) -> None:
    bench.process()
    bench.in_stack(stack, state="R")
    bench.spend(1.875)
    assert bench.seconds() == {"runqueue": 1.5}, "as far as it is settled"

    bench.ran(LOOK, 1.875)  # the kernel reports it when it is over
    bench.spend(LOOK)
    assert bench.seconds() == {"runqueue": 1.875, "cpu": LOOK}


def test_a_thread_that_has_ended_and_is_not_reaped_waits_for_nothing(bench: Bench) -> None:
    bench.process(threads={10: "fio", 11: "fio"})
    bench.in_stack((), state="Z")
    bench.in_stack(DISK, tid=11)
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(2.0)}


def test_helper_threads_that_are_parked_do_not_count(bench: Bench) -> None:
    bench.process(threads={10: "fio", 11: "fio", 12: "helper"})
    bench.in_stack(SLEEP)
    bench.in_stack(DISK, tid=11)
    bench.in_stack(FUTEX, tid=12)
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(2.0)}


def test_a_process_all_of_whose_threads_are_parked_is_idle(bench: Bench) -> None:
    bench.process(threads={10: "fio", 11: "fio"})
    bench.in_stack(SLEEP)
    bench.in_stack(FUTEX, tid=11)
    bench.spend(2.0)

    assert bench.seconds() == {"idle": pytest.approx(2.0)}


def test_a_stack_that_no_rule_knows_is_other_and_is_counted(bench: Bench) -> None:
    bench.process()
    bench.in_stack(STRANGE, state="D")
    bench.spend(2.0)

    assert bench.seconds() == {"other": pytest.approx(2.0)}
    assert bench.snapshot().value("pinchpoint_workload_unknown_stacks") == 1
    bench.machine.end(10)
    bench.now += KEEP_STACK_SECONDS + 1
    bench.look(10)
    assert bench.snapshot().value("pinchpoint_workload_unknown_stacks") == 0


def test_a_thread_that_was_born_meanwhile_counts_from_zero(bench: Bench) -> None:
    bench.process()
    bench.in_stack(SLEEP)
    bench.spend(1.0)
    start = int((1000.0 + bench.now) * os.sysconf("SC_CLK_TCK"))  # see `look`: the uptime
    bench.machine.process(11, "fio", start=start, ppid=10)
    bench.ran(0.08, pid=11)
    bench.in_stack(DISK, pid=11)
    bench.machine.write("proc/11/task/11/stat", stat_line(11, "fio", start=start))
    bench.spend(1.0)

    assert bench.seconds()["cpu"] == pytest.approx(0.08)


@pytest.mark.parametrize(("mount", "wait"), [(20, "disk"), (21, "osd")])
def test_asynchronous_io_waits_for_where_the_open_files_are(bench: Bench, mount: int, wait: str) -> None:
    bench.process()
    bench.machine.write("proc/10/mountinfo", STORED)
    bench.machine.opens(10, 5, "/somewhere/file")
    bench.machine.write("proc/10/fdinfo/5", f"pos:\t0\nflags:\t0{os.O_RDWR | os.O_DIRECT:o}\nmnt_id:\t{mount}\n")
    bench.in_stack(AIO)
    bench.spend(2.0)

    assert bench.seconds() == {wait: pytest.approx(2.0)}


def test_a_kernel_mount_of_ceph_is_named_as_the_client(bench: Bench) -> None:
    (bench.machine.sysfs / "class" / "bdi" / "ceph-1").mkdir(parents=True)
    bench.process()
    bench.machine.write("proc/10/mountinfo", STORED)
    bench.machine.opens(10, 5, "/mnt/c/file")
    bench.machine.write("proc/10/fdinfo/5", "pos:\t0\nflags:\t02\nmnt_id:\t21\n")
    bench.in_stack(AIO)
    bench.look(10)

    clients = {labels["client"] for labels, _ in bench.snapshot().series("pinchpoint_workload_client_info")}
    assert clients == {"kernel", "ceph-1"}


def test_a_parent_that_idles_while_its_jobs_work_is_left_out(bench: Bench) -> None:
    for pid in (10, 11, 12):
        bench.process(pid)
        bench.in_stack(DISK if pid > 10 else SLEEP, pid=pid)
    bench.spend(4.0, lambda: bench.ran(0.001))

    assert "idle" not in bench.seconds()
    assert bench.snapshot().value(PROCESSES, **RUN) == 2


def test_when_all_processes_idle_the_run_idles(bench: Bench) -> None:
    for pid in (10, 11):
        bench.process(pid)
        bench.in_stack(SLEEP, pid=pid)
    bench.spend(2.0)

    assert bench.seconds() == {"idle": pytest.approx(4.0)}
    assert bench.snapshot().value(PROCESSES, **RUN) == 2


def test_ranks_that_take_turns_on_a_directory_wait_for_what_its_holder_waits_for(bench: Bench) -> None:
    for pid in (10, 11, 12):
        bench.process(pid)
        bench.in_stack(DISK if pid == 10 else LOCK, pid=pid)
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(6.0)}


def test_a_lock_that_nobody_of_the_run_holds_is_a_lock(bench: Bench) -> None:
    for pid in (10, 11):
        bench.process(pid)
        bench.in_stack(LOCK, pid=pid)
    bench.spend(2.0)

    assert bench.seconds() == {"lock": pytest.approx(4.0)}


def test_a_neighbour_is_counted_by_itself(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.machine.process(30, "stress")
    bench.in_stack(SLEEP, pid=30)
    bench.spend(3.0)

    assert bench.shares() == {"disk": 1.0}
    assert bench.shares(benchmark="stress", run="") == {"idle": 1.0}


def test_a_process_that_has_ended_takes_its_time_along(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.look(11)
    before = bench.seconds()
    bench.machine.end(10)
    bench.look(80)

    assert bench.seconds()["disk"] <= before["disk"] + 5.1
    assert bench.snapshot().value(PROCESSES, **RUN) == 0
    bench.now += KEEP_ENDED_SECONDS
    bench.look(2)
    assert bench.seconds() == {}


def test_however_many_runs_there_are_few_are_shown(bench: Bench) -> None:
    pids = range(10, 10 + 3 * MAX_WORKLOADS)
    for pid in pids:
        bench.machine.process(pid, "fio")
        bench.in_stack(DISK, pid=pid)
    bench.host.found.tell(Leader(pid, 100, {"fio"}, Workload("fio", f"r{pid}")) for pid in pids)
    bench.look(11)
    shown = [labels for labels, _ in bench.snapshot().series(PROCESSES)]

    assert len(shown) == MAX_WORKLOADS + 1, shown
    assert {"benchmark": "more", "run": ""} in shown


def test_however_many_runs_a_user_has_those_of_others_are_shown(bench: Bench) -> None:
    pids = range(10, 10 + 2 * MAX_WORKLOADS)
    for pid in (*pids, 200):
        bench.machine.process(pid, "fio")
        bench.in_stack(DISK, pid=pid)
    found = {pid: f"r{pid}@uid1000" for pid in pids} | {200: "ours"}
    bench.host.found.tell(Leader(pid, 100, {"fio"}, Workload("fio", run)) for pid, run in found.items())
    bench.look(21)  # each thread must have been seen waiting
    shown = [labels["run"] for labels, _ in bench.snapshot().series(PROCESSES)]

    assert "ours" in shown
    assert "@uid1000" in shown  # that of the benchmark "more"
    assert len(shown) == 1 + MAX_USER_WORKLOADS + 1


def test_a_long_pause_is_no_time_of_anybody(bench: Bench) -> None:
    bench.process()
    bench.in_stack(DISK)
    bench.look(11)
    bench.now += 60
    bench.look(10)

    assert bench.seconds()["disk"] < 3


def test_without_stacks_the_innermost_function_has_to_do(bench: Bench) -> None:
    bench.process()
    bench.machine.write("proc/10/task/10/wchan", "submit_bio_wait")
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(2.0)}
    source = [labels for labels, _ in bench.snapshot().series("pinchpoint_waits_source_info")]
    assert source == [{"source": "wchan", "reason": "stack: No such file or directory"}]


def test_where_nothing_may_be_read_it_is_said_and_waits_are_other(bench: Bench) -> None:
    bench.process()
    bench.spend(2.0, lambda: bench.ran(LOOK / 2))
    source = [labels["source"] for labels, _ in bench.snapshot().series("pinchpoint_waits_source_info")]

    assert source == ["none"]
    assert bench.shares() == {"cpu": 0.5, "other": 0.5}


class Broken(StackFiles):
    """A source that works at the start and not any more when there are threads."""

    interval: float | None = 0.5
    kernel_seconds = 3.0

    def follow(self, processes: Collection[WatchedProcess], now: float) -> None:
        if processes:
            raise BpfError("too many threads")


def test_a_source_that_fails_is_replaced_until_the_benchmark_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(procfs: Path, stacks: Stacks, place: Place, wanted: str = "auto") -> WaitSource:
        return Broken(stacks, place)

    monkeypatch.setattr(waits, "choose_source", choose)
    bench.probe = Waits(bench.host)
    assert bench.probe.interval == 0.5
    bench.process()
    bench.in_stack(DISK)
    bench.spend(2.0)

    assert bench.seconds() == {"disk": pytest.approx(2.0)}
    assert bench.probe.interval is None
    source = [labels for labels, _ in bench.snapshot().series("pinchpoint_waits_source_info")]
    assert source == [{"source": "stack", "reason": "no bpf: too many threads"}]
    assert bench.snapshot().value("pinchpoint_waits_kernel_seconds_total") == 3.0

    bench.machine.end(10)
    bench.look(60)
    assert bench.probe.interval == 0.5


def test_without_a_benchmark_there_is_nothing_to_look_at_often(bench: Bench) -> None:
    bench.look(2)
    assert bench.probe.interval == NO_WORKLOAD_INTERVAL_SECONDS
    bench.process()
    bench.look(10)
    assert bench.probe.interval is None
    bench.machine.end(10)
    bench.leads()
    bench.look(10)
    assert bench.probe.interval == NO_WORKLOAD_INTERVAL_SECONDS


def test_without_a_benchmark_there_is_nothing_and_that_is_no_failure(bench: Bench) -> None:
    bench.look(10)

    assert [name for name in bench.snapshot().values if name != "pinchpoint_workload_unknown_stacks"] == []


def test_a_rank_that_spins_in_a_barrier_is_idle_and_left_out_while_others_work(bench: Bench) -> None:
    bench.machine.process(9, "mpirun")
    for pid in (10, 11):
        bench.process(pid, ppid=9)
        bench.machine.write(f"proc/{pid}/io", "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\n")
    bench.in_stack(DISK, pid=10)
    bench.in_stack(YIELD, pid=11, state="R")
    bench.spend(8.0, lambda: bench.ran(0.6 * LOOK, 0.4 * LOOK, pid=11))
    before = bench.seconds()
    bench.spend(2.0, lambda: bench.ran(0.6 * LOOK, 0.4 * LOOK, pid=11))
    gained = {wait: value - before.get(wait, 0.0) for wait, value in bench.seconds().items()}

    assert gained.pop("disk") == pytest.approx(2.0)
    assert sum(gained.values()) == 0


def test_a_process_that_is_no_rank_works_whatever_it_does_with_its_cpu(bench: Bench) -> None:
    bench.process()
    bench.in_stack(YIELD, state="R")
    bench.machine.write("proc/10/io", "rchar: 1\nwchar: 1\nsyscr: 1\nsyscw: 1\n")
    bench.spend(4.0, lambda: bench.ran(LOOK))

    assert bench.seconds() == {"cpu": pytest.approx(4.0)}


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonSocket]:
    monkeypatch.setattr(follower, "LOOK_AGAIN_SECONDS", (0.0,))
    with DaemonSocket(tmp_path / "client.asok", {"perf dump": {"objecter": {"op_active": 0}}}) as found:
        yield found


def client(bench: Bench, socket: DaemonSocket, comm: str) -> None:
    """Make this test process a client on the machine that listens at the socket."""
    run_daemon(bench.machine, comm, "x", socket.path)


def looks_until(bench: Bench, condition: Callable[[], object]) -> None:
    """Take looks while the client's own thread queries it, which takes real time."""

    def look() -> object:
        bench.look(4)
        return condition()

    assert until(20, look, pause=0.2), bench.seconds()


def test_a_library_that_waits_for_osds_says_so_by_its_operations_in_flight(bench: Bench, socket: DaemonSocket) -> None:
    socket.answers["perf dump"] = json.dumps({"objecter": {"op_active": 4}}).encode()
    client(bench, socket, "fio")
    bench.machine.process(ME, "fio", threads={ME: "fio", 2: "msgr-worker-0"})
    bench.leads(ME)
    for tid in (ME, 2):
        bench.in_stack(FUTEX, ME, tid)

    looks_until(bench, lambda: bench.seconds().get("osd", 0) > 1)
    assert bench.seconds()["osd"] > 0.8 * sum(bench.seconds().values())
    assert bench.snapshot().value("pinchpoint_workload_client_info", **RUN, client="fio") == 1


def test_time_in_which_nobody_looked_at_a_client_is_divided_by_the_next_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many clients on a host each is looked at every few seconds."""
    bench.process(threads={10: "fio", 11: "msgr-worker-0"})
    for tid in (10, 11):
        bench.in_stack(FUTEX, tid=tid)
    blocks = itertools.count()
    libraries = bench.probe._libraries
    libraries.interval = 2.0
    monkeypatch.setattr(
        libraries, "looked", lambda now: {10: Looked(looks=1, active=1) if next(blocks) % 4 == 3 else Looked()}
    )
    bench.spend(8.0)

    assert bench.shares() == {"osd": 1.0}
    assert sum(bench.seconds().values()) > 5.0


def test_a_client_that_nobody_looks_at_any_more_is_idle(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.process(threads={10: "fio", 11: "msgr-worker-0"})
    for tid in (10, 11):
        bench.in_stack(FUTEX, tid=tid)
    monkeypatch.setattr(bench.probe._libraries, "looked", lambda now: {10: Looked()})
    bench.spend(4.0)

    assert bench.shares() == {"idle": 1.0}


def test_a_library_without_a_socket_is_blind(bench: Bench) -> None:
    bench.process(threads={10: "fio", 11: "msgr-worker-0"})
    for tid in (10, 11):
        bench.in_stack(FUTEX, tid=tid)
    bench.spend(4.0)

    assert bench.shares() == {"ceph": 1.0}


def test_waiting_for_a_fuse_mount_is_divided_by_what_its_client_says(bench: Bench, socket: DaemonSocket) -> None:
    bench.process()
    bench.in_stack(FUSE)
    bench.machine.write("proc/10/mountinfo", "30 1 0:40 / /mnt/f rw - fuse.ceph-fuse ceph-fuse rw\n")
    client(bench, socket, "ceph-fuse")
    waited = 0.0

    def half_of_it_was_for_an_mds() -> bool:
        nonlocal waited
        waited += 0.25
        bench.ran(0.2, pid=ME)
        latency = {"avgcount": 1, "sum": waited}
        socket.answers["perf dump"] = json.dumps({"client": {"lat": latency}}).encode()
        return min(bench.seconds().get(wait, 0.0) for wait in ("mds", "client")) > 1

    looks_until(bench, half_of_it_was_for_an_mds)
    assert bench.seconds().keys() <= {"mds", "client"}
    assert bench.snapshot().value("pinchpoint_workload_client_info", **RUN, client="ceph-fuse") == 1


def test_a_fuse_mount_whose_client_cannot_be_asked_is_blind(bench: Bench) -> None:
    bench.process()
    bench.in_stack(FUSE)
    bench.machine.write("proc/10/mountinfo", "30 1 0:40 / /mnt/f rw - fuse.ceph-fuse ceph-fuse rw\n")
    bench.spend(4.0)

    assert bench.shares() == {"ceph": 1.0}


class Real:
    """Both probes on the machine that the tests run on, beside a load."""

    def __init__(self, host: Host) -> None:
        self.host = replace(host, benchmarks=BENCHMARKS)
        self.runs, self.waits = BenchmarkProbe(self.host), Waits(self.host)

    def seconds(self, benchmark: str, pid: int) -> dict[str, float]:
        """Take a sample; return the seconds so far of the benchmark that this process leads, by class."""
        workload = Workload(benchmark, "test")
        start = self.host.processes.everything(time.monotonic())[pid].start
        self.host.found.tell([Leader(pid, start, (), workload)])
        self.waits.sample(time.monotonic())
        return {
            labels["wait"]: value
            for labels, value in Snapshot.of(0, self.waits.points()).series(SECONDS)
            if (labels["benchmark"], labels["run"]) == workload
        }

    def shares(
        self, benchmark: str, seconds: float, *, pid: int, blocked: float = 0.0, seen: str = ""
    ) -> dict[str, float]:
        """Observe a benchmark's processes for this many seconds in total; return the shares of its classes.

        For so many of these seconds, `blocked`, they neither run nor wait for a CPU. The seconds begin when the class
        `seen` was.
        """
        before: dict[str, float] = {}
        found: dict[str, float] = {}
        if seen:
            assert until(90, lambda: self.seconds(benchmark, pid).get(seen, 0.0) > 0, pause=0.1)
            before = self.seconds(benchmark, pid)

        def enough() -> bool:
            now = self.seconds(benchmark, pid)
            found.update({wait: value - before.get(wait, 0.0) for wait, value in now.items()})
            total = sum(found.values())
            return total >= seconds and total - found["cpu"] - found["runqueue"] >= blocked

        assert until(90, enough, pause=0.1), found
        return {wait: value / sum(found.values()) for wait, value in found.items()}


@pytest.fixture(params=WAIT_SOURCES[1:])
def real(this_host: Host, request: pytest.FixtureRequest) -> Iterator[Real]:
    try:
        found = Real(replace(this_host, wait_source=request.param))
    except UnusableSourceError as error:
        pytest.skip(str(error))
    yield found
    found.waits.close()


def stacks_can_be_read() -> bool:
    """Return whether a sleeping process' stack may be read here."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            # A running process has no stack; a moment later it sleeps.
            return bool(until(2, lambda: "+0x" in Path(f"/proc/{process.pid}/stack").read_text()))
        except OSError:
            return False
        finally:
            process.kill()


@pytest.fixture
def load() -> Iterator[Callable[..., int]]:
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str, ready: bool = False) -> int:
        """Start a load that ends in any case; wait for its first output if it is to report that it is `ready`."""
        process = subprocess.Popen(
            ["timeout", "-s", "KILL", "180", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert not ready or process.stdout.readline()
        return process.pid

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # including all its children
        process.communicate()


def test_a_process_that_computes_spends_its_time_on_cpus_or_waiting_for_one(
    real: Real, load: Callable[..., int]
) -> None:
    began = Load.read()
    shares = real.shares("compute", 2.0, pid=load(sys.executable, "-uc", "print()\nwhile True: pass", ready=True))

    # CPU time stolen by a hypervisor is on no thread's clock, and looks idle; all of it may come from this thread.
    stolen = Load.read().stolen_share(began) * (os.cpu_count() or 1)
    assert shares["cpu"] + shares["runqueue"] > 0.9 - stolen, shares
    assert shares["cpu"] + shares["runqueue"] > 0.9 * (1 - shares["idle"]), shares


def test_of_more_runnable_threads_than_cpus_each_waits_for_a_cpu(real: Real, load: Callable[..., int]) -> None:
    pid = load("sh", "-c", "for i in $(seq $((4 * $(nproc)))); do while :; do :; done & done; wait")
    shares = real.shares("crowd", 10.0, pid=pid)

    assert shares["runqueue"] == max(shares.values()), shares


def test_a_process_that_sleeps_is_idle(real: Real, load: Callable[..., int]) -> None:
    # It starts first, which on a busy machine takes some time.
    assert real.shares("sleep", 1.0, pid=load("sleep", "600"), seen="idle")["idle"] > 0.95


def test_dd_that_syncs_each_block_waits_for_its_disk(real: Real, load: Callable[..., int], disk_path: Path) -> None:
    filesystem = subprocess.run(["stat", "-fc%T", disk_path], capture_output=True, text=True, check=True).stdout.strip()
    if filesystem not in ("ext2/ext3", "xfs", "btrfs") or not stacks_can_be_read():
        pytest.skip(f"needs a disk under {disk_path} (it is {filesystem}), and the right to read stacks")
    pid = load("dd", "if=/dev/zero", f"of={disk_path / 'file'}", "bs=4k", "count=1000000", "oflag=dsync")
    shares = real.shares("dd", 3.0, pid=pid, blocked=0.3, seen="disk")
    left = {wait: share for wait, share in shares.items() if wait not in ("cpu", "runqueue")}

    # The share depends on the other load on the CPUs: for most of the time it may wait for one.
    assert left.pop("disk") > max(left.values()), shares
    assert sum(left.values()) < 0.1, left


def test_of_several_jobs_the_slowest_is_known_by_its_rate_and_what_it_waits_for(bench: Bench) -> None:
    bench.process()
    for pid in (11, 12, 13):
        bench.process(pid, ppid=10)
    bench.leads(10)
    for pid in (10, 11, 12, 13):
        bench.in_stack(DISK if pid == 12 else SLEEP if pid == 10 else AIO, pid)
    moved = dict.fromkeys((10, 11, 12, 13), 0)

    def work() -> None:
        for pid in moved:
            moved[pid] += {10: 0, 12: 1 << 16}.get(pid, 1 << 18)
            bench.machine.moved(f"{pid}", moved[pid], moved[pid])
            bench.machine.write(f"proc/{pid}/status", "Name:\tfio\nUid:\t0\t0\t0\t0\nvoluntary_ctxt_switches:\t1\n")

    work()
    bench.spend(6, work)

    found = bench.snapshot()
    name = "pinchpoint_workload_rank"
    assert found.value(f"{name}s", **RUN, state="working") == 3
    assert found.value(f"{name}_rate", **RUN, which="median", unit="bytes") == pytest.approx((1 << 18) / LOOK)
    assert found.value(f"{name}_rate", **RUN, which="slowest", unit="bytes") == pytest.approx((1 << 16) / LOOK)
    assert found.value("pinchpoint_workload_slowest_rank", **RUN, numbered="start") == 1
    series = found.series("pinchpoint_workload_slowest_rank_seconds_total")
    waits = {labels["wait"]: value for labels, value in series}
    assert waits["disk"] > 0.7 * sum(waits.values())


class Crew:
    """The threads of a lone process: main, three that move data, and one that counts it."""

    workers = (11, 12, 13)

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.each = dict.fromkeys(self.workers, 1 << 18)
        """Bytes that each moves between two looks."""
        self.moved = dict.fromkeys(self.workers, 0)
        bench.process(threads=dict.fromkeys((*self.workers, 14), "fio"))
        for tid in (10, 14):
            bench.in_stack(SLEEP, tid=tid)
            bench.machine.moved(f"10/task/{tid}", 4096, 4096)
        for tid in self.workers:
            bench.in_stack(DISK, tid=tid)
        self.work()

    def work(self) -> None:
        bench = self.bench
        for tid in self.moved:
            self.moved[tid] += self.each[tid]
            bench.machine.moved(f"10/task/{tid}", self.moved[tid], self.moved[tid])
            if self.each[tid]:
                bench.ran(0.01, tid=tid)
        bench.machine.moved("10", sum(self.moved.values()), sum(self.moved.values()))
        bench.machine.write("proc/10/status", "Name:\tfio\nUid:\t0\t0\t0\t0\nvoluntary_ctxt_switches:\t1\n")

    def ends(self, tid: int) -> None:
        self.bench.machine.end(10, tid)
        del self.moved[tid]

    def ranks(self) -> dict[str, float]:
        found = self.bench.snapshot().series("pinchpoint_workload_ranks")
        return {labels["state"]: value for labels, value in found}


def test_threads_of_a_process_that_is_alone_are_its_ranks(bench: Bench) -> None:
    crew = Crew(bench)
    crew.each[12] = 1 << 16
    bench.spend(6, crew.work)

    found = bench.snapshot()
    rate = "pinchpoint_workload_rank_rate"
    assert crew.ranks() == {"working": 3, "done": 0}
    assert found.value(rate, **RUN, which="median", unit="bytes") == pytest.approx((1 << 18) / LOOK)
    assert found.value(rate, **RUN, which="slowest", unit="bytes") == pytest.approx((1 << 16) / LOOK)
    assert found.value("pinchpoint_workload_slowest_rank", **RUN, numbered="thread") == 1
    series = found.series("pinchpoint_workload_slowest_rank_seconds_total")
    waits = {labels["wait"]: value for labels, value in series}
    assert waits["cpu"] / sum(waits.values()) == pytest.approx(0.08, abs=0.01)
    assert waits["disk"] / sum(waits.values()) == pytest.approx(0.92, abs=0.01)
    done = found.value("pinchpoint_workload_done_total", **RUN, unit="bytes")
    assert done == pytest.approx(sum(crew.moved.values()), rel=0.25)  # without those of its threads a second time


def test_threads_that_pause_between_their_requests_wait_for_nothing(bench: Bench) -> None:
    crew = Crew(bench)
    for tid in crew.workers:
        bench.in_stack(SLEEP, tid=tid)
    bench.spend(6, crew.work)

    assert crew.ranks() == {"working": 3, "done": 0}
    series = bench.snapshot().series("pinchpoint_workload_slowest_rank_seconds_total")
    assert {labels["wait"] for labels, value in series if value} == {"cpu", "idle"}


def test_a_thread_that_has_ended_or_waits_for_another_one_is_done(bench: Bench) -> None:
    crew = Crew(bench)
    bench.spend(4, crew.work)
    crew.ends(11)
    crew.each[13] = 0
    bench.in_stack(FUTEX, tid=13)
    bench.spend(8, crew.work)

    assert crew.ranks() == {"working": 1, "done": 2}
    assert bench.snapshot().value("pinchpoint_workload_slowest_rank", **RUN, numbered="thread") == 1


def test_a_thread_that_waits_for_a_disk_is_not_done_however_long(bench: Bench) -> None:
    crew = Crew(bench)
    bench.spend(4, crew.work)
    crew.each[13] = 0
    bench.spend(8, crew.work)

    assert crew.ranks() == {"working": 3, "done": 0}


def test_when_the_last_thread_has_ended_nothing_is_compared(bench: Bench) -> None:
    crew = Crew(bench)
    bench.spend(4, crew.work)
    for tid in crew.workers[:2]:
        crew.ends(tid)
    bench.spend(8, crew.work)
    assert crew.ranks() == {"working": 1, "done": 2}

    crew.ends(crew.workers[2])
    bench.spend(8, crew.work)
    assert crew.ranks() == {}


def test_threads_of_several_processes_are_not_compared_but_the_processes_are(bench: Bench) -> None:
    crew = Crew(bench)
    bench.process(20)
    bench.in_stack(DISK, 20)
    bench.machine.write("proc/20/status", "Name:\tfio\nUid:\t0\t0\t0\t0\nvoluntary_ctxt_switches:\t1\n")

    def work() -> None:
        crew.work()
        bench.machine.moved("20", crew.moved[11], 0)

    work()
    bench.spend(6, work)

    assert crew.ranks() == {"working": 2, "done": 0}
    assert bench.snapshot().value("pinchpoint_workload_slowest_rank", **RUN, numbered="start") == 1


def test_an_untrusted_users_ranks_are_known_without_reading_their_memory(bench: Bench) -> None:
    bench.machine.process(9, "mpirun")
    for pid in (10, 11, 12):
        bench.process(pid, ppid=9, uid=1000)
        bench.in_stack(DISK, pid)
        bench.machine.write(f"proc/{pid}/environ", b"PMIX_RANK=99\0")
        bench.machine.write(
            f"proc/{pid}/status", "Name:\tfio\nUid:\t1000\t1000\t1000\t1000\nvoluntary_ctxt_switches:\t1\n"
        )
    leaders = bench.host.found.leaders
    moved = dict.fromkeys((10, 11, 12), 0)

    def work() -> None:
        for pid in moved:
            moved[pid] += 1 << (16 if pid == 12 else 18)
            bench.machine.moved(f"{pid}", moved[pid], moved[pid])

    work()
    bench.spend(3, work)
    slowest = "pinchpoint_workload_slowest_rank"
    assert bench.snapshot().value(slowest, **RUN, numbered="start") == 2

    bench.host.found.tell(leaders, {(1000, pid, 100): pid - 6 for pid in moved})
    bench.spend(waits.RECOUNT_INTERVAL_SECONDS + 2, work)
    assert bench.snapshot().value(slowest, **RUN, numbered="mpi") == 6


def test_processes_whose_io_may_not_be_read_have_no_ranks(bench: Bench) -> None:
    for pid in (10, 11):
        bench.process(pid)
        bench.in_stack(DISK, pid)

    bench.spend(4)

    assert not bench.snapshot().values.get("pinchpoint_workload_ranks")
    assert bench.seconds()


def test_both_sources_say_the_same(this_host: Host, load: Callable[..., int], disk_path: Path) -> None:
    try:
        probes = [Real(replace(this_host, wait_source=name)) for name in WAIT_SOURCES[1:]]
    except UnusableSourceError as error:
        pytest.skip(str(error))
    pid = load("dd", "if=/dev/zero", f"of={disk_path / 'file'}", "bs=4k", "count=1000000", "oflag=dsync")
    found: list[dict[str, float]] = [{}, {}]

    def enough() -> bool:
        for number, one in enumerate(probes):
            found[number] = one.seconds("dd", pid)
        return min(sum(times.values()) for times in found) >= 6.0

    try:
        assert until(60, enough, pause=0.1)
    finally:
        for one in probes:
            one.waits.close()
    bpf, files = ({wait: value / sum(times.values()) for wait, value in times.items()} for times in found)

    # Times on CPUs and waits for them are exact in both; of the rest both see samples, of one class nearly always.
    assert bpf == pytest.approx(files, abs=0.1)
