"""What the processes of benchmarks do with their time, by the kernel stacks of their threads.

A source says what threads did and in which stacks they waited (`pinchpoint.waits.choice`): a timer in the kernel, or
files of procfs that are read ten times a second. The probe makes wait classes of it, by where the data is and what Ceph
clients say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from pinchpoint.benchmarks.mpi import rank
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.workloads import Member, Workload, Workloads, launcher
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.ceph.waiting import BLIND_AFTER_SECONDS, ClientWaits, LibraryReader, Looked
from pinchpoint.host.capabilities import Capability
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    WAITS_KERNEL_SECONDS,
    WAITS_SOURCE_INFO,
    WORKLOAD_CLIENT_INFO,
    WORKLOAD_DONE,
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
from pinchpoint.quotas import MAX_USER_THREADS, ThreadQuota
from pinchpoint.threads.task_source import ProcfsSource, Task, TaskUse, choose_times
from pinchpoint.user_labels import split_user
from pinchpoint.waits import division as worktime
from pinchpoint.waits.choice import choose_source, files_for
from pinchpoint.waits.datafiles import DataFiles
from pinchpoint.waits.fuse import CEPH_FUSE, FuseMounts
from pinchpoint.waits.ranks import RankSample, RankSpread, interval
from pinchpoint.waits.stack_rules import FLUSH, FUSE, WAITS, Stacks
from pinchpoint.waits.thread_ranks import thread_ranks
from pinchpoint.waits.watched import WatchedProcess, WatchedThread
from pinchpoint.waits.work_done import WorkDone

__all__ = ["Waits"]

RUN = ("benchmark", "run")

BLOCK_SECONDS = 0.45
"""Seconds after which times are settled: by then more is known than at a single look. A little less than half a second,
since samples may be a little early."""
NO_WORKLOAD_INTERVAL_SECONDS = 0.5
"""Seconds between two looks whether a benchmark runs."""
RECOUNT_INTERVAL_SECONDS = 5.0
"""Seconds after which threads are listed even if nothing seems to have been forked."""
FILES_INTERVAL_SECONDS = 3.0
"""Seconds between two looks at the open files of a process that waits for data."""
MAX_COMPARED_GAP_SECONDS = 150.0
"""Seconds between two looks at the ranks from which the time between them is not counted: that of `MAX_PROCESSES` is
less."""
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


class _Work:
    """A workload's totals."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(WAITS, 0.0)
        self.seen = 0.0
        self.processes = 0
        self.owners: frozenset[str] = frozenset()
        self.clients: frozenset[str] = frozenset()
        self.ranks = RankSpread()
        self.done = WorkDone()


class Waits(Probe):
    """Wait classes of benchmarks."""

    name = "waits"
    metrics = (
        WORKLOAD_SECONDS,
        WORKLOAD_PROCESSES,
        WORKLOAD_OWNER_INFO,
        WORKLOAD_CLIENT_INFO,
        WORKLOAD_DONE,
        WORKLOAD_RANKS,
        WORKLOAD_RANK_SECONDS,
        WORKLOAD_RANK_RATE,
        WORKLOAD_RANK_WORK,
        WORKLOAD_RANKS_WAITED_RATIO,
        WORKLOAD_SLOWEST_RANK,
        WORKLOAD_SLOWEST_RANK_SECONDS,
        WAITS_SOURCE_INFO,
        WAITS_KERNEL_SECONDS,
        WORKLOAD_UNKNOWN_STACKS,
    )
    capabilities = (
        Capability.BPF,
        Capability.PERFMON,
        Capability.DAC_OVERRIDE,
        Capability.SYS_PTRACE,
        Capability.SYS_ADMIN,
        Capability.SYS_NICE,
    )
    interval: float | None = NO_WORKLOAD_INTERVAL_SECONDS
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
        self._workers: dict[int, WatchedProcess] = {}
        self._quota = ThreadQuota()
        self._work: dict[Workload, _Work] = {}
        self._state: tuple[object, int] = (None, -1)
        self._listed = self._settled = self._compared = float("-inf")
        self._compared_ranks = 0
        """How many processes and threads were compared last."""
        self._fallen = False
        """Whether a source has failed that worked at the start."""
        self._failed_seconds = 0.0
        """Seconds of CPU that those used in the kernel."""
        self._looks = choose_source(host.procfs, self.stacks, self._by_place, host.wait_source)

    def sample(self, now: float) -> None:
        """Look at every thread of every benchmark."""
        members = self._workloads.current(now)
        generation = self.host.processes.generation
        if self._state != (members, generation) or now - self._listed >= RECOUNT_INTERVAL_SECONDS:
            self._state, self._listed = (members, generation), now
            self._follow(members, now)
        self.interval = self._looks.interval if self._workers else NO_WORKLOAD_INTERVAL_SECONDS
        self._look(now)
        if now - self._settled >= BLOCK_SECONDS:
            self._settled = now
            self._settle(now)

    @property
    def kernel_seconds(self) -> float:
        """Seconds of CPU that looking used in the kernel, outside of this process."""
        return self._failed_seconds + self._looks.kernel_seconds

    def _follow(self, members: Mapping[int, Member], now: float) -> None:
        for pid in [pid for pid, worker in self._workers.items() if members.get(pid) != worker.member]:
            self._workers.pop(pid).close()
        tree = Tree(self.host.procfs, self.host.processes.everything(now))
        for pid, member in members.items():
            worker = self._workers.get(pid)
            if worker is None:
                parent = 0 if (stat := tree.processes.get(pid)) is None else stat.ppid
                worker = self._workers[pid] = WatchedProcess(member, parent=parent)
                worker.number = rank(tree, pid) if worker.trusted else None
                worker.rank = launcher(tree, pid) is not None or worker.number is not None
            if not worker.trusted and (number := self.host.found.rank(member.process)) is not None:
                worker.number, worker.rank = number, True  # reading its environment may hang
        if self._source is None:
            if not self._workers:
                return
            self._source = ProcfsSource(
                self.host.procfs, choose_times(self.host.procfs), most=self._most, settled=CEPH_NAME_SETTLED_SECONDS
            )
        self._quota.share(worker.process.owner for worker in self._workers.values())
        mounts = {worker.mount for worker in self._workers.values() if worker.mount is not None}
        self._source.follow({*self._workers, *mounts}, now)
        threads: dict[int, dict[Task, WatchedThread]] = {pid: {} for pid in self._workers}
        for task in self._source.tasks():
            if (worker := self._workers.get(task.tgid)) is not None:
                directory = f"{self.host.procfs}/{task.tgid}/task/{task.tid}"
                thread = worker.threads.pop(task, None) or WatchedThread(directory, main=task.tid == task.tgid)
                threads[task.tgid][task] = thread
                worker.library = worker.library or task.comm.startswith(LIBRARY)
        for pid, worker in self._workers.items():
            worker.close()
            worker.threads = threads[pid]
        if self._fallen and not self._workers:
            self._fallen = False
            self._looks = choose_source(self.host.procfs, self.stacks, self._by_place)
        try:
            self._looks.follow(self._workers.values(), now)
        except BpfError as error:
            self._fall_back(error)

    def _most(self, pid: int) -> int:
        """Return how many threads of a process are read; any that is not a worker is a FUSE server of any user."""
        worker = self._workers.get(pid)
        return MAX_USER_THREADS if worker is None else self._quota.threads(worker.process.owner)

    def _look(self, now: float) -> None:
        """Divide the time since the last look."""
        tasks: Iterable[Task] = ()
        used: dict[Task, TaskUse] = {}
        if self._source is not None:
            used = {use.task: use for use in self._source.sample(now)}
            tasks = self._source.tasks()
        for task, use in used.items():
            if (worker := self._workers.get(task.tgid)) is None:
                self._mounts.ran(use)
            elif (thread := worker.threads.get(task)) is not None:
                thread.ran(use)
        try:
            self._looks.look(self._workers, tasks, used, now)
        except BpfError as error:
            self._fall_back(error)

    def _fall_back(self, error: BpfError) -> None:
        """Find out in the way that works everywhere what the present benchmarks wait for."""
        self._failed_seconds += self._looks.kernel_seconds
        self._looks.close()
        self._looks = files_for(self.stacks, self._by_place, error)
        self._fallen = True

    def _by_place(self, worker: WatchedProcess, wait: str, now: float) -> str:
        """Return the class of a wait for data, by the file system that the process works on."""
        if now - worker.looked >= FILES_INTERVAL_SECONDS:
            worker.looked = now
            # Files of a metadata benchmark are open only briefly: the last one that was seen counts.
            worker.place = self._files.place(worker.process.pid, now, trusted=worker.trusted) or worker.place
            if wait == FUSE and (worker.place is None or worker.place.wait != FUSE):
                seen = self._files.fuse_mount(worker.process.pid, now, trusted=worker.trusted)
                worker.place = seen or worker.place
            self._find_mount(worker, now)
        found = worker.place.wait if worker.place is not None else "client" if wait == FUSE else "disk"
        if wait == FUSE:
            return found if found == FUSE else "client"
        return "writeback" if wait == FLUSH and found in ("osd", "network") else found

    def _find_mount(self, worker: WatchedProcess, now: float) -> None:
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
        groups: dict[Workload, list[WatchedProcess]] = {}
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
        if now - self._compared >= interval(max(self._compared_ranks, len(workers))):
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

    def _resolve(self, worker: WatchedProcess, looked: Looked | None, mount: Mapping[str, float] | None) -> None:
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
        elapsed = elapsed if elapsed < MAX_COMPARED_GAP_SECONDS else 0.0
        samples: dict[Workload, list[RankSample]] = {}
        alone: dict[Workload, WatchedProcess] = {}
        for worker in self._workers.values():
            sample = worker.progress(f"{self.host.procfs}/{worker.process.pid}")
            if sample is not None:
                alone[worker.member.workload] = worker
                samples.setdefault(worker.member.workload, []).append(sample)
        self._compared_ranks = 0
        for workload, work in self._work.items():
            found = samples.get(workload, [])
            work.done.take(found)
            if len(found) == 1 and found[0].number is None:
                found += thread_ranks(alone[workload], found[0].times, self.stacks, elapsed, now)
            work.ranks.take(found, elapsed)
            self._compared_ranks += len(found)

    def _charge(self, workload: Workload, workers: list[WatchedProcess], span: float, now: float) -> None:
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

    def _clients(self, worker: WatchedProcess) -> Iterator[str]:
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
            yield from work.done.points(*workload)
        if self._looks.how[0]:
            yield WAITS_SOURCE_INFO.point(1, *self._looks.how)
        if seconds := self.kernel_seconds:
            yield WAITS_KERNEL_SECONDS.point(seconds)
        yield WORKLOAD_UNKNOWN_STACKS.point(self.stacks.unknown)

    def close(self) -> None:
        """Close the kept descriptors, and end the threads that ask."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._looks.close()
        if self._source is not None:
            self._source.close()
            self._source = None
        self._libraries.close()
        self._mounts.close()
