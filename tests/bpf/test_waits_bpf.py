"""A timer in the kernel that looks at threads: what real threads do, as far as it can be known."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from descriptors import bpf_ids, exist
from machine import Machine
from pinchpoint.bpf import libbpf, waits
from pinchpoint.bpf.libbpf import BpfError, Loaded
from pinchpoint.bpf.waits import MAX_WATCHED_THREADS, StackTimer, Watch
from pinchpoint.waits.stack_rules import PARKED, load_waits, parse_stack
from polling import until
from puppet import Puppet

PROC = Path("/proc")
RULES = load_waits()
SHORTEST_PERIOD, LONGEST_PERIOD = 0.0375, 0.125
"""Seconds between two looks at least, and at most on an idle machine."""
KINDS = """
import ctypes, mmap, os, select, sys, threading, time
directory = sys.argv[1]
lock = threading.Lock()
lock.acquire()
there = threading.Barrier(7)
def futex(): lock.acquire()
def pipe(ends=os.pipe()): os.read(ends[0], 1)
def sleep(): time.sleep(0.003)
def epoll(waiter=select.epoll()): waiter.poll(0.005)
def fsync(file=os.open(directory + "/fsync", os.O_RDWR | os.O_CREAT)):
    os.pwrite(file, bytes(4096), 0)
    os.fsync(file)
def direct(file=os.open(directory + "/direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT), block=mmap.mmap(-1, 65536)):
    os.pwritev(file, [block], 0)
def endless(kind):
    ctypes.CDLL(None).prctl(15, kind.__name__.encode(), 0, 0, 0)  # PR_SET_NAME
    there.wait()
    while True:
        kind()
for kind in (futex, pipe, sleep, epoll, fsync, direct):
    threading.Thread(target=endless, args=(kind,), daemon=True).start()
there.wait()
print(flush=True)
sys.stdin.read()
"""
"""A thread in each of some waits, by the thread's name."""


class Sum:
    """All that was spent by one process, or by one thread that is followed as one."""

    def __init__(self) -> None:
        self.span = self.run = self.wait = self.parked = self.busy = 0.0
        self.stacks: dict[tuple[str, ...], float] = {}
        self.looks = self.rank_looks = 0

    @property
    def blocked(self) -> float:
        return sum(self.stacks.values())

    @property
    def waited(self) -> bool:
        """Whether it was seen waiting for more than the interpreter's lock, or for that alone all the time."""
        return any(not any("futex" in frame for frame in frames) for frames in self.stacks) or (
            bool(self.stacks) and self.blocked > 0.8 * self.span
        )

    def main_stack(self) -> tuple[str, ...]:
        return max(self.stacks, key=lambda frames: self.stacks[frames])


class Timed:
    """A timer, and the sums of what it says."""

    def __init__(self) -> None:
        self.timer = StackTimer(PROC, lambda raw: RULES.decide(parse_stack(raw)) == PARKED)
        self.sums: dict[object, Sum] = {}

    def follow(self, processes: dict[Any, dict[Any, Watch]]) -> None:
        self.collect()
        self.timer.follow(processes)

    def collect(self) -> dict[object, Sum]:
        for spent in self.timer.collect():
            found = self.sums.setdefault(spent.process, Sum())
            for name in ("span", "run", "wait", "parked", "busy"):
                setattr(found, name, getattr(found, name) + getattr(spent, name))
            for raw, seconds, looks, rank_looks in spent.stacks:
                frames = parse_stack(raw)
                found.stacks[frames] = found.stacks.get(frames, 0.0) + seconds
                found.looks += looks
                found.rank_looks += rank_looks
        return self.sums

    def until_span(self, seconds: float, *processes: object) -> None:
        """Wait until these have been looked at for so many more seconds."""
        self.collect()
        before = {process: self.sums[process].span for process in processes}
        assert until(60, lambda: all(self.collect()[one].span - before[one] >= seconds for one in processes))


@pytest.fixture
def timed() -> Iterator[Timed]:
    try:
        found = Timed()
    except BpfError as error:
        pytest.skip(str(error))
    yield found
    found.timer.close()


def threads_of(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def watches(pid: int) -> dict[Any, Watch]:
    return {(pid, tid): Watch(pid, tid) for tid in threads_of(pid)}


def followed_one_by_one(pid: int, tids: list[int]) -> dict[Any, dict[Any, Watch]]:
    """Follow each thread as if it were a process."""
    return {tid: {tid: Watch(pid, tid)} for tid in tids}


@pytest.fixture
def kinds(disk_path: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """Run threads that wait; yield their process and its threads by name."""
    command = [sys.executable, "-c", KINDS, str(disk_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            names = {(PROC / str(process.pid) / "task" / str(tid) / "comm").read_text().strip(): tid
                     for tid in threads_of(process.pid) if tid != process.pid}  # fmt: skip
            yield process.pid, names
        finally:
            process.kill()


def test_the_kernel_verifies_its_programs_in_a_few_steps(timed: Timed) -> None:
    followed = []
    for number in os.listdir("/proc/self/fdinfo"):
        with suppress(FileNotFoundError):  # the directory's own
            lines = Path(f"/proc/self/fdinfo/{number}").read_text().splitlines()
            followed += [int(line.split()[1]) for line in lines if line.startswith("verified_insns:")]  # Linux 5.16

    assert max(followed, default=0) < 50_000


def test_a_thread_is_charged_to_the_stack_that_it_waits_in_also_while_it_waits(
    timed: Timed, kinds: tuple[int, dict[str, int]]
) -> None:
    pid, names = kinds
    timed.follow(followed_one_by_one(pid, list(names.values())))
    timed.until_span(1.0, *names.values())
    # Without a CPU, a thread with a fast disk is seldom seen where it waits for it.
    assert until(60, lambda: all(timed.collect()[tid].waited for tid in names.values()))
    sums = {name: timed.sums[tid] for name, tid in names.items()}

    assert any("futex" in frame for frame in sums["futex"].main_stack())
    assert any("pipe" in frame for frame in sums["pipe"].main_stack())
    assert any("nanosleep" in frame for frame in sums["sleep"].main_stack())
    assert any("ep_poll" in frame or "epoll" in frame for frame in sums["epoll"].main_stack())
    for name in ("futex", "pipe"):  # these never end
        assert sums[name].stacks[sums[name].main_stack()] > 0.8 * sums[name].span
    for name in ("futex", "pipe", "sleep", "epoll"):
        assert RULES.decide(sums[name].main_stack()) == PARKED
        assert sums[name].parked + sums[name].run + sums[name].wait >= 0.8 * sums[name].span, name
    for name in ("direct", "fsync"):
        # Where CPUs are short, a thread of Python waits longer for the interpreter's lock than for its disk.
        interpreter = {frames for frames in sums[name].stacks if any("futex" in frame for frame in frames)}
        waited = {frames: seconds for frames, seconds in sums[name].stacks.items() if frames not in interpreter}
        assert RULES.decide(max(waited, key=lambda frames: waited[frames])) != PARKED
        elsewhere = sums[name].parked - sum(sums[name].stacks[frames] for frames in interpreter)
        assert elsewhere < 0.2 * sums[name].span


def test_all_the_time_of_a_thread_is_divided(timed: Timed, kinds: tuple[int, dict[str, int]]) -> None:
    pid, names = kinds
    timed.follow(followed_one_by_one(pid, list(names.values())))
    timed.until_span(0.5, *names.values())  # every stack was read
    before = {tid: (found.span, found.run + found.wait + found.blocked) for tid, found in timed.sums.items()}
    timed.until_span(1.0, *names.values())

    for name, tid in names.items():
        found = timed.sums[tid]
        span, divided = found.span - before[tid][0], found.run + found.wait + found.blocked - before[tid][1]
        # A look may be in progress while its sums are read.
        assert divided == pytest.approx(span, abs=0.1 * span + LONGEST_PERIOD), name


def test_a_process_is_parked_while_all_its_threads_are(timed: Timed, kinds: tuple[int, dict[str, int]]) -> None:
    pid, names = kinds
    asleep = {name: Watch(pid, names[name]) for name in ("futex", "pipe")}
    timed.follow({"asleep": asleep, "works": asleep | {"direct": Watch(pid, names["direct"])}})
    timed.until_span(1.0, "asleep")

    assert timed.sums["asleep"].parked > 0.9 * timed.sums["asleep"].span


def test_times_on_cpus_are_those_of_schedstat(timed: Timed) -> None:
    with Puppet() as puppet:
        tids = puppet.do("start(3)")
        timed.follow(followed_one_by_one(puppet.pid, tids))
        timed.until_span(0.2, *tids)
        before = puppet.used()
        timed.collect()
        runs = {tid: timed.sums[tid].run for tid in tids}
        for number, tid in enumerate(tids):
            puppet.on(tid, f"bursts(10, {0.004 * (number + 1)})")
        after = puppet.used()
        timed.until_span(0.5, *tids)

        for tid in tids:
            used = (after[tid][0] - before[tid][0]) / 1e9
            assert timed.sums[tid].run - runs[tid] == pytest.approx(used, abs=1e-6)


@contextmanager
def crowded(loop: str, count: int) -> Iterator[list[int]]:
    """Run so many processes with this loop on one CPU; yield them once they are there."""
    code = (
        f"import os\nos.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}])\nprint(flush=True)\nwhile True: {loop}"
    )
    crowd = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in crowd:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in crowd]
    finally:
        for process in crowd:
            process.kill()
            process.communicate()


def test_a_thread_without_a_cpu_waits_for_one_before_the_kernel_has_counted_it(timed: Timed) -> None:
    with crowded("pass", 4) as pids:
        timed.follow({pid: {pid: Watch(pid, pid)} for pid in pids})
        timed.until_span(2.0, *pids)
        waited = sum(timed.sums[pid].wait for pid in pids)

        assert waited > 0.6 * sum(timed.sums[pid].span for pid in pids)
        assert waited > 0.9 * sum(timed.sums[pid].span - timed.sums[pid].run for pid in pids)


def test_a_rank_that_could_run_is_looked_at_too(timed: Timed) -> None:
    with crowded("os.sched_yield()", 3) as (first, *_):
        timed.follow({first: {first: Watch(first, first, rank=True)}})
        timed.collect()

        assert until(60, lambda: timed.collect()[first].rank_looks > 10)
        found = timed.sums[first]
        assert found.busy == pytest.approx(found.run + found.wait)


def test_what_a_new_thread_used_before_it_was_met_counts(timed: Timed) -> None:
    with Puppet() as puppet:
        timed.follow({0: watches(puppet.pid)})
        time.sleep(0.1)  # two listings within two ticks are one
        timed.follow({0: watches(puppet.pid)})
        timed.until_span(0.1, 0)
        time.sleep(0.1)
        (tid,) = puppet.do("start()")
        puppet.on(tid, "spin(0.2)")
        timed.follow({0: watches(puppet.pid)})
        timed.until_span(1.0, 0)

        assert timed.sums[0].run >= 0.2


def test_what_a_process_used_before_it_was_followed_does_not_count(timed: Timed) -> None:
    with Puppet() as puppet:
        puppet.do("spin(0.3)")
        timed.follow({0: watches(puppet.pid)})
        timed.until_span(0.5, 0)

        assert timed.sums[0].run < 0.1


def test_time_in_which_a_thread_was_not_yet_seen_waiting_is_in_no_class(timed: Timed) -> None:
    """A look reads 16 stacks: the first one those from the 33rd thread on, the fourth one those before them."""
    with Puppet() as many:
        tids = many.do("start(64)")
        timed.follow(followed_one_by_one(many.pid, tids))
        timed.until_span(0.2, *tids)
        spans = [timed.sums[tid].span for tid in tids]

    assert max(spans[16:32]) + 2 * SHORTEST_PERIOD < min(spans[32:48])
    for tid in tids:
        assert timed.sums[tid].parked + timed.sums[tid].run + timed.sums[tid].wait >= 0.99 * timed.sums[tid].span


def test_a_thread_that_has_ended_does_nothing(timed: Timed) -> None:
    with Puppet() as puppet:
        (tid,) = puppet.do("start()")
        timed.follow({"ends": {tid: Watch(puppet.pid, tid)}})
        timed.until_span(0.2, "ends")
        puppet.do(f"end({tid})")
        timed.until_span(0.1, "ends")
        found = timed.collect()["ends"]
        before, blocked = found.run + found.wait, found.blocked
        timed.until_span(0.3, "ends")

        assert (found.run + found.wait, found.blocked) == (before, blocked)


def test_a_number_that_belongs_to_another_process_now_is_not_looked_at(timed: Timed) -> None:
    with Puppet() as puppet, Puppet() as other:
        timed.follow({"reused": {0: Watch(other.pid, puppet.pid)}})
        puppet.do("spin(0.2)")
        timed.until_span(0.2, "reused")

        assert timed.sums["reused"].run == timed.sums["reused"].blocked == 0


def test_a_thread_that_calls_exec_takes_no_time_of_its_leader(timed: Timed) -> None:
    program = """
import os, sys, threading, time
end = time.process_time() + 0.5
while time.process_time() < end: pass
print(flush=True)
sys.stdin.readline()
threading.Thread(target=os.execvp, args=("sleep", ["sleep", "600"])).start()
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            timed.follow({0: watches(process.pid)})
            timed.until_span(0.2, 0)
            process.stdin.write(b"\n")
            process.stdin.flush()
            comm = PROC / str(process.pid) / "comm"
            assert until(20, lambda: comm.read_text() == "sleep\n")
            timed.until_span(0.3, 0)

            found = timed.sums[0]
            assert found.run + found.wait <= found.span
            assert found.run < 0.3, "the leader had used half a second"
            assert any("nanosleep" in frame for frames in found.stacks for frame in frames)
        finally:
            process.kill()


def test_a_number_of_a_process_is_used_again_without_its_times(timed: Timed) -> None:
    with Puppet() as first, Puppet() as second:
        timed.follow({"first": watches(first.pid)})
        first.do("spin(0.2)")
        timed.until_span(0.3, "first")
        timed.follow({"second": watches(second.pid)})
        timed.until_span(0.3, "second")

        assert timed.sums["second"].run < 0.1
        assert timed.sums["second"].span < timed.sums["first"].span + 10


@pytest.mark.parametrize("full", ["cells", "stacks"])
def test_where_there_is_no_more_room_it_begins_anew(
    full: str, monkeypatch: pytest.MonkeyPatch, kinds: tuple[int, dict[str, int]]
) -> None:
    room = {full: 4}
    loads = []
    original = libbpf.load

    def load(name: str) -> Loaded:
        loads.append(name)
        return original(name, entries=dict(room))

    monkeypatch.setattr(waits, "load", load)
    try:
        timed = Timed()
    except BpfError as error:
        pytest.skip(str(error))
    try:
        pid, names = kinds
        threads = {"all": {name: Watch(pid, tid) for name, tid in names.items()}}
        timed.follow(threads)
        timed.until_span(0.5, "all")
        before = timed.timer.seconds
        room.clear()
        timed.follow(threads)
        timed.until_span(0.5, "all")

        assert len(loads) == 2
        assert timed.timer.seconds > before > 0
        assert until(60, lambda: len(timed.collect()["all"].stacks) >= 5)
    finally:
        timed.timer.close()


def test_too_many_threads_are_refused(timed: Timed) -> None:
    with pytest.raises(BpfError, match="2049 threads of 1 processes are too many"):
        timed.timer.follow({0: {number: Watch(1, number) for number in range(MAX_WATCHED_THREADS + 1)}})


def test_without_threads_nobody_looks(timed: Timed) -> None:
    with Puppet() as puppet:
        timed.follow({0: watches(puppet.pid)})
        timed.until_span(0.2, 0)
        timed.follow({})
        time.sleep(2 * LONGEST_PERIOD)
        before = timed.timer.seconds
        time.sleep(2 * LONGEST_PERIOD)
        assert timed.timer.seconds == before

        timed.follow({0: watches(puppet.pid)})
        timed.until_span(0.2, 0)


def test_nothing_stays_in_the_kernel(timed: Timed) -> None:
    with Puppet() as puppet:
        timed.follow({0: watches(puppet.pid)})
        timed.until_span(0.1, 0)
        ids = bpf_ids()
        assert exist(ids)
        timed.timer.close()

        assert until(20, lambda: not exist(ids))


def test_the_procfs_of_another_machine_is_not_this_kernels(machine: Machine) -> None:
    machine.process(10, "fio")
    with pytest.raises(BpfError, match="another kernel's"):
        StackTimer(machine.procfs, lambda raw: False)


def test_a_pid_namespace_of_its_own_has_other_numbers() -> None:
    code = "from pathlib import Path; from pinchpoint.bpf.waits import StackTimer; StackTimer(Path('/proc'), bool)"
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("may not make a PID namespace")
    done = subprocess.run([*inside, sys.executable, "-c", code], capture_output=True, text=True)

    assert "procfs shows a PID namespace of its own" in done.stderr


def test_whoever_has_no_rights_is_told_so() -> None:
    code = "from pathlib import Path; from pinchpoint.bpf.waits import StackTimer; StackTimer(Path('/proc'), bool)"
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups"]
    if subprocess.run([*without, "true"], capture_output=True).returncode:
        pytest.skip("may not give up rights")
    done = subprocess.run([*without, sys.executable, "-c", code], capture_output=True, text=True)

    assert "BpfError" in done.stderr
