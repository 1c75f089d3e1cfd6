"""The hottest thread without a role, as the probe `tasks` reports it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from machine import KERNEL_THREAD, KWORKER, Machine
from pinchpoint.bpf.choice import BPF
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host
from pinchpoint.probes.tasks import Tasks
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.wire.exposition import text
from polling import until

TICK = 0.1


class WholeHost:
    """A source that sees the whole host, with uses set by a test."""

    name = "fake"
    file = ""
    reason = ""
    unreadable = 0

    def __init__(self) -> None:
        self.followed: set[int] = set()
        self.running: dict[Task, tuple[float, float]] = {}
        """Run and wait time of threads as shares of each sample."""

    def thread(self, tgid: int, tid: int, comm: str, run: float = 1.0, wait: float = 0.0) -> Task:
        """Have a thread run from now on."""
        task = Task(tgid, tid, comm, 0.0)
        self.running[task] = run, wait
        return task

    def follow(self, tgids: Iterable[int], now: float) -> None:
        self.followed = set(tgids)

    def sample(self, now: float, *, all_tasks: bool = False) -> list[TaskUse]:
        return [
            TaskUse(task, round(run * TICK * 1e9), round(wait * TICK * 1e9))
            for task, (run, wait) in self.running.items()
        ]

    def tasks(self) -> Iterable[Task]:
        return [task for task in self.running if task.tgid in self.followed]

    def close(self) -> None:
        pass


class Watched:
    """A machine, and a probe that observes it through such a source."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.source = WholeHost()
        self.probe = Tasks(machine.host(), self.source)
        self.now = 50.0
        self.tick()

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.probe.sample(self.now)
            self.now += TICK

    @property
    def named(self) -> dict[tuple[str, str], float]:
        """The share of the named thread, by its name and the name of its process."""
        return named(self.probe)

    def seconds(self, what: str) -> float:
        return integral(self.probe, what)


def named(probe: Tasks) -> dict[tuple[str, str], float]:
    found = Snapshot.of(0, probe.points()).series("pinchpoint_unknown_thread_busy_ratio")
    return {(labels["thread"], labels["process"]): value for labels, value in found}


def integral(probe: Tasks, what: str) -> float:
    found = Snapshot.of(0, probe.points()).series(f"pinchpoint_resource_{what}_seconds_total")
    return sum(value for labels, value in found if (labels["resource"], labels["owner"]) == ("unknown_thread", "host"))


@pytest.fixture
def watched(machine: Machine) -> Watched:
    return Watched(machine)


def test_a_hot_thread_of_a_process_that_no_rule_names_is_named(watched: Watched) -> None:
    watched.machine.process(700, "foo", threads={701: "my_thread"})
    watched.source.thread(700, 701, "my_thread", run=0.7, wait=0.3)
    watched.tick(40)

    assert watched.named == {("my_thread", "foo"): pytest.approx(1.0)}
    assert watched.seconds("busy") == pytest.approx(4.0)
    assert watched.seconds("runqueue") == pytest.approx(1.2)
    assert watched.seconds("saturated") == pytest.approx(4.0)


def test_it_serves_nothing_and_so_is_never_blamed(watched: Watched) -> None:
    found = Snapshot.of(0, watched.probe.points()).series("pinchpoint_resource_busy_seconds_total")

    assert [labels["serves"] for labels, _ in found if labels["resource"] == "unknown_thread"] == [""]


def test_a_thread_without_a_role_in_a_process_that_is_followed_is_unknown_too(watched: Watched) -> None:
    watched.machine.process(10, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    watched.tick(5)
    watched.source.thread(10, 11, "my_thread", run=0.9)
    watched.source.thread(10, 12, "ms_dispatch", run=1.0)
    watched.tick(40)

    assert watched.named == {("my_thread", "ceph-mds"): pytest.approx(0.9)}
    cpu = Snapshot.of(0, watched.probe.points()).value(
        "pinchpoint_thread_cpu_seconds_total", role="ceph_mds_other", owner="mds.a"
    )
    assert cpu == pytest.approx(40 * TICK * 0.9)


def test_threads_with_a_role_are_not_unknown_even_where_it_can_not_be_full(watched: Watched) -> None:
    watched.machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "3"))
    watched.machine.process(20, "fio")
    watched.tick(5)
    watched.source.thread(10, 11, "ms_dispatch")
    watched.source.thread(20, 20, "anything")
    watched.tick(40)

    assert watched.named == {}
    assert watched.seconds("busy") == 0


def test_a_process_of_interest_that_was_just_started_is_not_unknown(watched: Watched) -> None:
    """New processes are looked for only every quarter of a second."""
    watched.machine.process(20, "fio")
    watched.source.thread(20, 20, "fio")
    watched.tick()

    assert watched.seconds("busy") == 0


def test_a_worker_is_called_by_its_work_if_that_has_no_role(watched: Watched) -> None:
    watched.machine.process(90, "kworker/u8:1+events_unbound", flags=KWORKER)
    watched.machine.process(91, "kworker/u8:2-flush-ceph-1", flags=KWORKER)
    watched.tick(5)
    watched.source.thread(90, 90, "kworker/u8:1", run=0.8)
    watched.source.thread(91, 91, "kworker/u8:2", run=1.0)
    watched.tick(40)

    assert watched.named == {("events_unbound", "kworker"): pytest.approx(0.8)}


def test_a_worker_is_unknown_as_long_as_it_does_what_has_no_role(watched: Watched) -> None:
    watched.machine.process(90, "kworker/u8:1+events_unbound", flags=KWORKER)
    watched.tick(5)
    watched.source.thread(90, 90, "kworker/u8:1")
    watched.tick(10)
    watched.machine.write("proc/90/comm", "kworker/u8:1-flush-ceph-1\n")
    watched.tick(10)

    assert watched.seconds("busy") == pytest.approx(1.0)


def test_a_process_that_calls_itself_a_worker_is_named_as_what_it_is(watched: Watched) -> None:
    watched.machine.process(700, "kworker/u8:1+flush-ceph-1")
    watched.tick(5)
    watched.source.thread(700, 700, "kworker/u8:1+fl")
    watched.tick(40)

    assert watched.named.keys() == {("kworker/u8:1+fl", "kworker/u8:1+flush-ceph-1")}


def test_a_kernel_thread_is_one_of_the_kernel_and_has_its_whole_name(watched: Watched) -> None:
    watched.machine.process(80, "irq/35-a_very_long_name", flags=KERNEL_THREAD)
    watched.tick(5)
    watched.source.thread(80, 80, "irq/35-a_very_l")
    watched.tick(40)

    assert watched.named.keys() == {("irq/35-a_very_long_name", "kernel")}


def test_a_process_that_has_gone_before_it_was_asked_is_called_by_what_is_known(watched: Watched) -> None:
    watched.source.thread(700, 700, "foo")
    watched.tick(40)
    assert watched.named.keys() == {("foo", "foo")}

    watched.source.running.clear()
    watched.source.thread(800, 801, "my_thread")
    watched.tick(40)
    assert watched.named.keys() == {("my_thread", "?")}


def test_what_was_used_before_the_first_sample_counts_for_nothing(machine: Machine) -> None:
    source = WholeHost()
    source.thread(700, 700, "foo", run=1e6)
    probe = Tasks(machine.host(), source)
    probe.sample(50.0)
    source.running.clear()
    probe.sample(50.1)

    assert named(probe) == {}
    assert integral(probe, "busy") == 0


def test_a_hostile_name_stays_one_line_of_the_exposition(watched: Watched) -> None:
    watched.machine.process(700, 'a"}\\\n1')
    watched.source.thread(700, 701, 'x"} 1\\')
    watched.tick(40)

    lines = [line for line in text(watched.probe.points()).splitlines() if "unknown_thread_busy_ratio{" in line]
    assert len(lines) == 1
    assert 'thread="x\\"} 1\\\\"' in lines[0]


def test_without_a_source_that_sees_the_whole_host_threads_of_known_processes_are_seen(machine: Machine) -> None:
    """Threads that cannot be full are read once a second; a hot one without a role is then read at each sample."""
    machine.process(1, "systemd")
    machine.ran(1, 1, 1.0)
    machine.process(10, "ceph-mds", threads={10: "ceph-mds", 11: "my_thread"}, argv=("ceph-mds", "-i", "a"))
    probe = Tasks(machine.host())
    for turn in range(80):
        machine.ran(10, 11, turn * TICK)
        probe.sample(50 + turn * TICK)

    assert named(probe) == {("my_thread", "ceph-mds"): pytest.approx(1.0)}
    assert 6.5 < integral(probe, "busy") < 8.0
    assert 6.5 < integral(probe, "saturated") < 8.0
    probe.close()


def test_a_thread_that_has_cooled_is_read_rarely_again(machine: Machine) -> None:
    machine.process(1, "systemd")
    machine.ran(1, 1, 1.0)
    machine.process(10, "ceph-mds", threads={10: "ceph-mds", 11: "my_thread"}, argv=("ceph-mds", "-i", "a"))
    probe = Tasks(machine.host())
    turn, used = 0, 0.0

    def sampled_every(turns: int, share: float) -> int:
        nonlocal turn, used
        for _ in range(turns):
            turn, used = turn + 1, used + share * TICK
            machine.ran(10, 11, used)
            probe.sample(50 + turn * TICK)
        assert probe._source is not None
        return next(task.sampled_every for task in probe._source.tasks() if task.tid == 11)

    assert sampled_every(5, 0.0) > 1
    assert sampled_every(40, 1.0) == 1
    assert sampled_every(100, 0.0) > 1
    probe.close()


FOO = """
import ctypes, sys, threading
name = ctypes.CDLL(None).prctl
# 15 is PR_SET_NAME: the name of the calling thread; that of the first one is the process'.
name(15, b"foo", 0, 0, 0)
def spin():
    name(15, b"my_thread", 0, 0, 0)
    print("named", flush=True)
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
sys.stdin.readline()
"""


@pytest.fixture(params=BPF)
def whole_host(request: pytest.FixtureRequest, this_host: Host) -> Iterator[Tasks]:
    """Return a probe with a source that sees the whole host."""
    try:
        source = BPF[request.param](this_host.procfs)
    except Exception as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    probe = Tasks(this_host, source)
    yield probe
    probe.close()


def test_a_real_thread_that_spins_in_a_process_that_nobody_knows_is_named(whole_host: Tasks) -> None:
    def seen(condition: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            whole_host.sample(time.monotonic())
            return condition()

        return look

    with subprocess.Popen([sys.executable, "-c", FOO], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as foo:
        assert foo.stdout is not None
        assert foo.stdout.readline() == "named\n"
        full = until(20, seen(lambda: integral(whole_host, "saturated") > 1.0), pause=TICK)
        hot = until(20, seen(lambda: named(whole_host).get(("my_thread", "foo"), 0.0) > 0.5), pause=TICK)
        found = named(whole_host)
        foo.kill()
    assert full
    assert hot, found
    assert until(20, seen(lambda: ("my_thread", "foo") not in named(whole_host)), pause=TICK)
