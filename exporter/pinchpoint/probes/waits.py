"""What the processes of benchmarks do with their time: ten times a second, by the kernel stacks of their threads.

A thread's time on CPUs and its run-queue wait are exact (schedstat); what is left of an interval is what its stack
waits for. A thread that did not run in between has the same stack as before, so only those that ran are looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from heapq import nsmallest

from pinchpoint.benchmarks.mpi import rank
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.workloads import Member, Workload, Workloads, launcher
from pinchpoint.ceph.waiting import BLIND_AFTER_SECONDS, ClientWaits, LibraryReader, Looked
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import FormatError, parse_process_io, parse_sleeps, read_bytes
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    WAITS_SOURCE_INFO,
    WORKLOAD_CLIENT_INFO,
    WORKLOAD_OWNER_INFO,
    WORKLOAD_PROCESSES,
    WORKLOAD_RANK_RATE,
    WORKLOAD_RANK_SECONDS,
    WORKLOAD_RANK_WORK,
    WORKLOAD_RANKS,
    WORKLOAD_RANKS_WAITED_RATIO,
    WORKLOAD_SECONDS,
    WORKLOAD_SLOWEST_RANK,
    WORKLOAD_SLOWEST_RANK_SECONDS,
    WORKLOAD_UNKNOWN_STACKS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.threads.kernel_stacks import StackFile, state
from pinchpoint.threads.task_source import ProcfsSource, Task, TaskUse, choose_times
from pinchpoint.units import SECONDS_PER_NANOSECOND
from pinchpoint.user_labels import split_user, user_of
from pinchpoint.waits import division as worktime
from pinchpoint.waits.datafiles import DataFiles, DataPlace
from pinchpoint.waits.division import ProcessTime, ThreadTime
from pinchpoint.waits.fuse import CEPH_FUSE, FuseMounts
from pinchpoint.waits.ranks import RankSample, RankSpread
from pinchpoint.waits.spinning import Spin
from pinchpoint.waits.stack_rules import DATA, FLUSH, FUSE, PARKED, RUNNING, WAITS, YIELDS, Stack, Stacks

__all__ = ["Waits"]

RUN = ("benchmark", "run")

BLOCK_SECONDS = 0.5
"""Seconds after which times are settled: by then more is known than at a single look."""
MAX_LOOK_GAP_SECONDS = 2.0
"""Seconds between two looks from which the time between them is not counted."""
RECOUNT_INTERVAL_SECONDS = 5.0
"""Seconds after which threads are listed even if nothing seems to have been forked."""
MIN_WAITED_SHARE = 0.1
"""Share of a look below which the wait of a thread that ran doesn't matter."""
ASLEEP_LOOKS = 20
"""Looks in which a thread did not run, from which it is read once in `ASLEEP_EVERY_LOOKS`: most threads of a library
sleep for the whole run. What it did in between is known when it is read again."""
ASLEEP_EVERY_LOOKS = 5
MAX_STACKS_PER_LOOK = 6
"""Stacks that one look reads of trusted users' threads, and of all others'. Of more threads, those that were seen
longest ago are read. The others' run-queue wait and CPU time are exact all the same, and shares of what they wait for
come from as many stacks a second as those of six threads do."""
FILES_INTERVAL_SECONDS = 3.0
"""Seconds between two looks at the open files of a process that waits for data."""
MAX_COMPARED_GAP_SECONDS = 100.0
"""Seconds between two looks at the ranks from which the time between them is not counted."""
RANKS_INTERVAL_SECONDS = 1.0
"""Seconds between two looks at how far each rank has come ..."""
MAX_RANKS_PER_SECOND = 64
"""... and longer where more would be read in a second, 30 us each."""
KEEP_STACK_SECONDS = 300.0
"""Seconds for which a stack is remembered."""
MAX_WORKLOADS = 24
"""Workloads of trusted users that are shown; the processes of further ones are charged to the benchmark ``more``."""
MAX_USER_WORKLOADS = 6
"""The same of each other user."""
CEPH_NAME_SETTLED_SECONDS = 0.25
"""Seconds after which a thread has its final name: only those of Ceph's libraries matter here, and such a thread begins
by setting it (Thread::entry_wrapper, src/common/Thread.cc)."""
LIBRARY = "msgr-worker-"
"""How the names of a Ceph library's network threads begin (src/msg/async/Stack.h)."""


class _Thread(ThreadTime):
    """A thread of a benchmark."""

    __slots__ = ("directory", "main", "seen", "slept", "stack")

    def __init__(self, directory: str, *, main: bool) -> None:
        super().__init__()
        self.directory = directory
        self.main = main
        self.seen = float("-inf")
        """When its stack was read, in monotonic seconds."""
        self.slept = 0
        """Looks since it last ran."""
        self.stack = StackFile(directory)


class _BenchmarkProcess:
    """A process of a benchmark."""

    def __init__(self, member: Member, *, parent: int, number: int | None, is_rank: bool) -> None:
        self.member = member
        self.process = member.process
        self.parent = parent
        self.number = number
        """Its rank in MPI, if known."""
        self.rank = is_rank
        """Whether it is an MPI rank."""
        self.time = ProcessTime()
        self.history = worktime.History()
        self.block: dict[str, float] = {}
        """Times of the last block."""
        self.since: dict[str, float] = {}
        """Times since its progress was read."""
        self.threads: dict[Task, _Thread] = {}
        self.library = False
        """Whether it has the threads of a Ceph library."""
        self.place: DataPlace | None = None
        self.mount: int | None = None
        """The ceph-fuse that it waits for, by pid."""
        self.looked = float("-inf")
        """When its files were read."""
        self.spin = Spin()

    def settle(self, block: dict[str, float]) -> None:
        """Take the times of a block."""
        self.block = block
        self.history.add(block)
        self.since = worktime.total((self.since, block))

    def progress(self, directory: str) -> RankSample | None:
        """Read how far it has come, None if it has gone or may not be read; `directory` is its own in procfs."""
        times, self.since = self.since, {}
        try:
            moved = parse_process_io(read_bytes(f"{directory}/io", 1024))
            sleeps = parse_sleeps(read_bytes(f"{directory}/status", 8192))
        except (OSError, FormatError):
            return None
        process = self.process
        return RankSample(process.pid, process.start, process.comm, self.parent, self.number, (*moved, sleeps), times)

    def close(self) -> None:
        """Close the descriptors."""
        for thread in self.threads.values():
            thread.stack.close()


class _Work:
    """A workload's totals."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(WAITS, 0.0)
        self.seen = 0.0
        self.processes = 0
        self.owners: frozenset[str] = frozenset()
        self.clients: frozenset[str] = frozenset()
        self.ranks = RankSpread()


class Waits(Probe):
    """Wait classes of benchmarks."""

    name = "waits"
    help = "what benchmarks spend their time on, from the kernel stacks of their threads (procfs stack or wchan)"
    metrics = (
        WORKLOAD_SECONDS,
        WORKLOAD_PROCESSES,
        WORKLOAD_OWNER_INFO,
        WORKLOAD_CLIENT_INFO,
        WORKLOAD_RANKS,
        WORKLOAD_RANK_SECONDS,
        WORKLOAD_RANK_RATE,
        WORKLOAD_RANK_WORK,
        WORKLOAD_RANKS_WAITED_RATIO,
        WORKLOAD_SLOWEST_RANK,
        WORKLOAD_SLOWEST_RANK_SECONDS,
        WAITS_SOURCE_INFO,
        WORKLOAD_UNKNOWN_STACKS,
    )
    capabilities = (Capability.DAC_OVERRIDE, Capability.SYS_PTRACE, Capability.SYS_ADMIN, Capability.SYS_NICE)
    interval = None
    rest_interval = 5.0
    # Not fast: reading a stack waits for a process that closes files in execve (exec_update_lock, fs/exec.c).
    urgent = True

    def __init__(self, host: Host, workloads: Workloads | None = None) -> None:
        super().__init__(host)
        self.stacks = Stacks(host.waits)
        """The stacks that were seen, for writers of rules."""
        self._workloads = workloads or Workloads(host.procfs, host.processes, host.runs, host.benchmarks, host.found)
        self._files = DataFiles(host.procfs, host.waits)
        self._libraries = ClientWaits(host.procfs, host.rootfs, LibraryReader, host.clients)
        self._mounts = FuseMounts(host.procfs, host.rootfs, host.processes, host.clients)
        self._source: ProcfsSource | None = None
        self._workers: dict[int, _BenchmarkProcess] = {}
        self._work: dict[Workload, _Work] = {}
        self._state: tuple[object, int] = (None, -1)
        self._listed = self._settled = self._compared = float("-inf")
        self._last: float | None = None
        self._how = ("", "")

    def sample(self, now: float) -> None:
        """Look at every thread of every benchmark."""
        members = self._workloads.current(now)
        generation = self.host.processes.generation
        if self._state != (members, generation) or now - self._listed >= RECOUNT_INTERVAL_SECONDS:
            self._state, self._listed = (members, generation), now
            self._follow(members, now)
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        self._look(now, elapsed if elapsed < MAX_LOOK_GAP_SECONDS else 0.0)
        if now - self._settled >= BLOCK_SECONDS:
            self._settled = now
            self._settle(now)

    def _follow(self, members: Mapping[int, Member], now: float) -> None:
        for pid in [pid for pid, worker in self._workers.items() if members.get(pid) != worker.member]:
            self._workers.pop(pid).close()
        tree = Tree(self.host.procfs, self.host.processes.everything(now))
        for pid, member in members.items():
            if pid not in self._workers:
                number, stat = rank(tree, pid), tree.processes.get(pid)
                is_rank = launcher(tree, pid) is not None or number is not None
                parent = 0 if stat is None else stat.ppid
                self._workers[pid] = _BenchmarkProcess(member, parent=parent, number=number, is_rank=is_rank)
        if self._source is None:
            if not self._workers:
                return
            self._source = ProcfsSource(
                self.host.procfs, choose_times(self.host.procfs), settled=CEPH_NAME_SETTLED_SECONDS
            )
        mounts = {worker.mount for worker in self._workers.values() if worker.mount is not None}
        self._source.follow({*self._workers, *mounts}, now)
        threads: dict[int, dict[Task, _Thread]] = {pid: {} for pid in self._workers}
        for task in self._source.tasks():
            if (worker := self._workers.get(task.tgid)) is not None:
                directory = f"{self.host.procfs}/{task.tgid}/task/{task.tid}"
                thread = worker.threads.pop(task, None) or _Thread(directory, main=task.tid == task.tgid)
                threads[task.tgid][task] = thread
                worker.library = worker.library or task.comm.startswith(LIBRARY)
        for pid, worker in self._workers.items():
            worker.close()
            worker.threads = threads[pid]

    def _look(self, now: float, elapsed: float) -> None:
        """Divide the time since the last look."""
        if self._source is None:
            return
        used = {use.task: use for use in self._source.sample(now)}
        seen = self._choose(used, elapsed)
        active: dict[int, _BenchmarkProcess] = {}
        for task in self._source.tasks():
            use = used.get(task)
            worker = self._workers.get(task.tgid)
            if worker is None:
                if use is not None:
                    self._mounts.ran(use)
            elif elapsed > 0 and (thread := worker.threads.get(task)) is not None:
                active[task.tgid] = worker
                if use is None:
                    if task in seen:
                        self._see(worker, thread, now)
                    worker.time.still(thread, elapsed)
                    thread.slept += 1
                    if thread.slept == ASLEEP_LOOKS:
                        task.sampled_every = ASLEEP_EVERY_LOOKS
                else:
                    thread.slept, task.sampled_every = 0, 1
                    self._ran(worker, thread, use, elapsed, now, see=task in seen)
        for worker in active.values():
            worker.time.end_look(elapsed)

    def _choose(self, used: Mapping[Task, TaskUse], elapsed: float) -> set[Task]:
        """Return the threads whose stacks are read now, of those whose wait is not known or may have changed."""
        worth: dict[bool, list[tuple[float, int, Task]]] = {True: [], False: []}
        enough = (1.0 - MIN_WAITED_SHARE) * elapsed / SECONDS_PER_NANOSECOND
        for worker in self._workers.values():
            found = worth[user_of(worker.process.owner) is None]
            for task, thread in worker.threads.items():
                use = used.get(task)
                polls = thread.main and worker.rank
                if thread.unsure if use is None else polls or use.run + use.wait <= enough:
                    found.append((thread.seen, task.tid, task))
        return {task for found in worth.values() for _, _, task in nsmallest(MAX_STACKS_PER_LOOK, found)}

    def _ran(
        self, worker: _BenchmarkProcess, thread: _Thread, use: TaskUse, elapsed: float, now: float, *, see: bool
    ) -> None:
        run, late = use.run * SECONDS_PER_NANOSECOND, use.wait * SECONDS_PER_NANOSECOND
        rest = worker.time.ran(thread, elapsed, run, late)
        if thread.main and worker.rank:
            worker.spin.ran(run + late)
        if see:
            self._see(worker, thread, now)
        else:
            thread.unsure = True
        worker.time.rests(thread, rest)

    def _see(self, worker: _BenchmarkProcess, thread: _Thread, now: float) -> None:
        """Read a thread's stack: what it waits for now, and what it waited for last."""
        raw = thread.stack.read()
        thread.unsure, thread.seen = False, now
        if thread.stack.source != self._how[0]:
            self._how = thread.stack.source, thread.stack.reason
        if raw is None:
            thread.wait = thread.last = "other" if thread.stack.source == "none" else PARKED
            return
        stack = self.stacks.look(raw, now)
        if thread.main and worker.rank:
            worker.spin.saw(stack.wait, empty=not stack.frames)
        wait = self._wait(worker, thread, stack, now)
        # A thread that could run and does not waits for a CPU; before, it waited for the same as last time.
        thread.wait = "runqueue" if wait is None else wait
        thread.last = thread.last if wait is None else wait

    def _wait(self, worker: _BenchmarkProcess, thread: _Thread, stack: Stack, now: float) -> str | None:
        """Return what a thread waits for; None where it runs or could."""
        if stack.wait in (DATA, FLUSH, FUSE):
            return self._by_place(worker, stack.wait, now)
        if stack.frames and stack.wait is not None:
            return None if stack.wait in (RUNNING, YIELDS) else stack.wait
        # It waits only if it sleeps. Without any functions it runs, has ended, or has been woken meanwhile.
        now_is = state(thread.directory)
        if now_is in "RZX":
            return None if now_is == "R" else PARKED
        stack.slept |= bool(stack.frames)
        return "other" if stack.frames or thread.stack.source != "stack" else thread.last

    def _by_place(self, worker: _BenchmarkProcess, wait: str, now: float) -> str:
        """Return the class of a wait for data, by the file system that the process works on."""
        if now - worker.looked >= FILES_INTERVAL_SECONDS:
            worker.looked = now
            # Files of a metadata benchmark are open only briefly: the last one that was seen counts.
            worker.place = self._files.place(worker.process.pid, now) or worker.place
            if wait == FUSE and (worker.place is None or worker.place.wait != FUSE):
                worker.place = self._files.fuse_mount(worker.process.pid, now) or worker.place
            self._find_mount(worker, now)
        found = worker.place.wait if worker.place is not None else "client" if wait == FUSE else "disk"
        if wait == FUSE:
            return found if found == FUSE else "client"
        return "writeback" if wait == FLUSH and found in ("osd", "network") else found

    def _find_mount(self, worker: _BenchmarkProcess, now: float) -> None:
        place = worker.place
        mount = self._mounts.serving(place, now) if place is not None and place.wait == FUSE else None
        if mount != worker.mount:
            worker.mount = mount
            self._listed = float("-inf")  # its threads are followed too

    def _settle(self, now: float) -> None:
        """Put the times of the last block into wait classes, and add them to the workloads."""
        workers = self._workers.values()
        self._libraries.follow([worker.process for worker in workers if worker.library], now)
        self._mounts.follow([worker.mount for worker in workers if worker.mount is not None], now)
        waited: dict[int, float] = {}
        for worker in workers:
            if worker.mount is not None:
                waited[worker.mount] = waited.get(worker.mount, 0.0) + worker.time.times.get(FUSE, 0.0)
        mounts = self._mounts.shares(waited, max((worker.time.span for worker in workers), default=0.0), now)
        libraries = self._libraries.looked(now)
        groups: dict[Workload, list[_BenchmarkProcess]] = {}
        spans: dict[Workload, float] = {}
        for worker in workers:
            new_mount = worker.mount is not None and worker.mount not in mounts and FUSE in worker.time.times
            if new_mount or (worker.library and worker.process.pid not in libraries):
                worker.time.take()  # its waits were not seen; from the next block on they are
                continue
            if worker.library and self._is_unseen(libraries[worker.process.pid], worker.time.span):
                continue  # the next look says what it waited for
            if (span := worker.time.span) > 0:
                self._resolve(worker, libraries.get(worker.process.pid), mounts.get(worker.mount or 0))
                groups.setdefault(worker.member.workload, []).append(worker)
                spans[worker.member.workload] = max(span, spans.get(worker.member.workload, 0.0))
        for workload, members in groups.items():
            self._charge(workload, members, spans[workload], now)
        if now - self._compared >= max(RANKS_INTERVAL_SECONDS, len(workers) / MAX_RANKS_PER_SECOND):
            self._compare(now)
        there = {worker.member.workload for worker in workers}
        for workload, work in list(self._work.items()):
            if workload not in there and work.seen < now:
                work.processes, work.owners, work.clients = 0, frozenset(), frozenset()
                if now - work.seen > KEEP_ENDED_SECONDS:
                    del self._work[workload]
        self.stacks.forget(now - KEEP_STACK_SECONDS)

    def _is_unseen(self, looked: Looked | None, span: float) -> bool:
        """Return whether nobody has looked at a Ceph client in its block, and somebody still will."""
        if looked is None or looked.stuck or looked.looks or looked.requests:
            return False
        return span < self._libraries.interval + BLIND_AFTER_SECONDS

    def _resolve(self, worker: _BenchmarkProcess, looked: Looked | None, mount: Mapping[str, float] | None) -> None:
        """Put all times of a process' block into wait classes."""
        span = worker.time.span
        times, parked = worker.time.take()
        if worker.rank and worker.spin.judge(f"{self.host.procfs}/{worker.process.pid}", span):
            worker.settle({"idle": span})
        else:
            if FUSE in times:
                times = worktime.divide(times, mount or {"ceph": 1.0})
            shares, rest = {}, self.host.waits.parked(worker.process.comm)
            if worker.library:
                if looked is None or looked.stuck:
                    rest = "ceph"
                else:
                    shares = worktime.parked_shares(span, looked.requests, looked.looks, looked.active)
            worker.settle(worktime.resolve(times, parked, shares, rest))

    def _compare(self, now: float) -> None:
        """Read how far the ranks of each workload have come."""
        elapsed, self._compared = now - self._compared, now
        samples: dict[Workload, list[RankSample]] = {}
        for worker in self._workers.values():
            sample = worker.progress(f"{self.host.procfs}/{worker.process.pid}")
            if sample is not None:
                samples.setdefault(worker.member.workload, []).append(sample)
        for workload, work in self._work.items():
            work.ranks.take(samples.get(workload, ()), elapsed if elapsed < MAX_COMPARED_GAP_SECONDS else 0.0)

    def _charge(self, workload: Workload, workers: list[_BenchmarkProcess], span: float, now: float) -> None:
        counts = worktime.counting([worker.history.idle for worker in workers])
        counted = [worker for worker, count in zip(workers, counts, strict=True) if count]
        work = self._totals(workload)
        work.seen = now
        times = worktime.share_out_locks(worktime.total(worker.block for worker in counted), span)
        for wait, seconds in times.items():
            work.totals[wait] += seconds
        work.processes = len(counted)
        work.owners = frozenset(worker.process.owner for worker in counted)
        work.clients = frozenset(client for worker in counted for client in self._clients(worker))

    def _totals(self, workload: Workload) -> _Work:
        if (work := self._work.get(workload)) is None:
            mark = split_user(workload.run)[1]
            alike = {key: work for key, work in self._work.items() if split_user(key.run)[1] == mark}
            if len(alike) >= (MAX_USER_WORKLOADS if mark else MAX_WORKLOADS):
                ended = [(work.seen, key) for key, work in alike.items() if not work.processes]
                if not ended:
                    return self._work.setdefault(Workload("more", mark), _Work())
                del self._work[min(ended)[1]]
            work = self._work[workload] = _Work()
        return work

    def _clients(self, worker: _BenchmarkProcess) -> Iterator[str]:
        """Yield the Ceph clients that serve a process, by the owners of their resources."""
        if worker.library:
            yield worker.process.owner
        if worker.place is not None and worker.place.wait == FUSE:
            yield CEPH_FUSE
        elif worker.place is not None and worker.place.wait == "osd":
            yield "kernel"
            # No file shows which backing device a mount has (ceph_setup_bdi, fs/ceph/super.c).
            try:
                yield from (name for name in os.listdir(self.host.sysfs / "class" / "bdi") if name.startswith("ceph-"))
            except OSError:
                pass

    def points(self) -> Iterator[Point]:
        """Yield the series of every workload."""
        for workload, work in self._work.items():
            for wait, seconds in work.totals.items():
                yield WORKLOAD_SECONDS.point(seconds, *workload, wait)
            yield WORKLOAD_PROCESSES.point(work.processes, *workload)
            for owner in sorted(work.owners):
                yield WORKLOAD_OWNER_INFO.point(1, *workload, owner)
            for client in sorted(work.clients):
                yield WORKLOAD_CLIENT_INFO.point(1, *workload, client)
            yield from work.ranks.points(*workload)
        if self._how[0]:
            yield WAITS_SOURCE_INFO.point(1, *self._how)
        yield WORKLOAD_UNKNOWN_STACKS.point(self.stacks.unknown)

    def close(self) -> None:
        """Close the kept descriptors, and end the threads that ask."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        if self._source is not None:
            self._source.close()
            self._source = None
        self._libraries.close()
        self._mounts.close()
