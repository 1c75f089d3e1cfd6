"""The run and the benchmark that each process belongs to.

A run that `pinchpoint run` marks is the tree below its command; a run that was found among the processes is the tree
below its leader, and the ranks beside it. Other processes named like a benchmark (ranks whose run is on another host,
another user's ``stress``) belong to no run and have only their benchmark's name: they must never be mixed into our
runs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.benchmarks.mpi import PROXIES, REMOTE
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.wrappers import LAUNCHERS
from pinchpoint.host.procfs import Stat, decode
from pinchpoint.host.users import process_user
from pinchpoint.runs import stray
from pinchpoint.threads.processes import Process, Processes
from pinchpoint.threads.roles import BENCHMARK
from pinchpoint.user_labels import MAX_LABEL_BYTES, split_user, user_of

__all__ = ["FoundRuns", "Leader", "Member", "UserProcess", "Workload", "Workloads", "launcher"]

MAX_RUN_WAIT_SECONDS = 1.0
"""Seconds before a process counts as belonging to no run: runs are searched for every 0.5 s."""
RUN_LOOK_INTERVAL_SECONDS = 0.5
"""Seconds between two looks at the marked runs."""
MAX_PROCESSES = 4096
"""Benchmark processes of trusted users that count ..."""
MAX_USER_PROCESSES = 512
"""... and of each other user."""


UserProcess = tuple[int, int, int]
"""The untrusted user of a process, its pid and its start."""


class Workload(NamedTuple):
    """The work of a run on this host."""

    benchmark: str
    run: str
    """If the run is not known on this host, what `pinchpoint.runs.stray` calls its work."""


class Leader(NamedTuple):
    """The process by which the run was found."""

    pid: int
    start: int
    """Clock ticks from boot to its start; with the pid, this identifies it."""
    comms: Collection[str]
    """Names of processes of its kind of benchmark."""
    workload: Workload


class Member(NamedTuple):
    """A process of a workload."""

    process: Process
    """With its owner label in resources."""
    workload: Workload


class FoundRuns:
    """The runs that were found among the processes, shared between the part that finds them and those that use them."""

    def __init__(self) -> None:
        self.leaders: tuple[Leader, ...] = ()
        self._ranks: Mapping[UserProcess, int] = {}

    def tell(self, leaders: Iterable[Leader], ranks: Mapping[UserProcess, int] | None = None) -> None:
        """Replace what is known; `ranks` are those in MPI of untrusted users' processes."""
        self.leaders = tuple(leaders)
        self._ranks = ranks or {}

    def rank(self, process: Process) -> int | None:
        """Return the rank of an untrusted user's process, None if it has none or it is not known."""
        user = user_of(process.owner)
        return None if user is None else self._ranks.get((user, process.pid, process.start))


def launcher(tree: Tree, pid: int) -> int | None:
    """Return the process that started a rank on this host, behind any wrappers; None if there is none."""
    return next((above for above in tree.ancestors(pid) if tree.comm(above) in LAUNCHERS | REMOTE | PROXIES), None)


class Workloads:
    """The processes of all workloads of a host."""

    def __init__(
        self,
        procfs: Path,
        processes: Processes,
        runs: RunDirectory,
        kinds: Sequence[type[Benchmark]],
        found: FoundRuns,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._procfs = procfs
        self._processes = processes
        self._runs = runs
        self._kinds = kinds
        self._comms = frozenset(comm for kind in kinds for comm in kind.comms)
        self._found = found
        self._wall = wall
        self._marked: tuple[tuple[int, Workload], ...] = ()
        self._looked = float("-inf")
        self._state: object = None
        self._until = float("-inf")
        self._of: dict[int, tuple[int, Workload]] = {}
        """Start and workload by pid of every process ever in a run: it stays there after its parent has gone."""
        self._first: dict[tuple[int, int], float] = {}
        self._members: Mapping[int, Member] = {}

    def current(self, now: float) -> Mapping[int, Member]:
        """Return the processes that work for a benchmark, by pid; `now` is a monotonic time in seconds."""
        classes = self._processes.followed(now)
        if now - self._looked >= RUN_LOOK_INTERVAL_SECONDS:
            self._looked = now
            self._marked = tuple(self._commands())
        state = self._processes.generation, self._marked, self._found.leaders
        if state != self._state or now >= self._until:
            self._state, self._until = state, float("inf")
            self._members = self._assign(Tree(self._procfs, self._processes.everything(now)), classes, now)
        return self._members

    def _commands(self) -> Iterator[tuple[int, Workload]]:
        for marker in self._runs.started(self._wall()):
            yield marker.command_pid, Workload(_label(marker.benchmark or "command"), _label(marker.run))

    def _assign(self, tree: Tree, classes: Mapping[int, Process], now: float) -> Mapping[int, Member]:
        roots = {
            leader.pid: leader.workload
            for leader in self._found.leaders
            if (task := tree.processes.get(leader.pid)) is not None and task.start == leader.start
        }
        roots.update({pid: workload for pid, workload in self._marked if pid in tree.processes})
        known = self._trees(tree, roots)
        known.update(self._beside(tree, known))
        self._of = {pid: (tree.processes[pid].start, workload) for pid, workload in known.items()}
        self._first = {
            (pid, process.start): self._first.get((pid, process.start), now)
            for pid, process in classes.items()
            if process.class_ == BENCHMARK and pid not in known
        }
        found: dict[int, Member] = {}
        for pid, workload in known.items():
            if (process := self._process(tree, pid, classes)) is not None:
                found[pid] = Member(process, workload)
        jobs = self._runs.jobs.by_user() if self._first else {}
        for (pid, _), first in self._first.items():
            if now - first < MAX_RUN_WAIT_SECONDS:
                self._until = min(self._until, first + MAX_RUN_WAIT_SECONDS)
            else:
                process = classes[pid]
                mark = split_user(process.owner)[1]
                job = jobs.get(process_user(self._procfs, pid), "") if jobs else ""
                found[pid] = Member(process, Workload(self._kind(process.comm), stray(mark, job)))
        return _within_limits(found)

    def _trees(self, tree: Tree, roots: Mapping[int, Workload]) -> dict[int, Workload]:
        """Return the processes that are `roots`, below them, or were so when they were first seen."""
        known = dict(roots)
        _descend(tree, known)
        # A marked run learns its benchmark only after a while.
        benchmarks = {workload.run: workload for workload in roots.values()}
        for pid, (start, workload) in self._of.items():
            if (task := tree.processes.get(pid)) is not None and task.start == start:
                known.setdefault(pid, benchmarks.get(workload.run, workload))
        _descend(tree, known)
        return known

    def _beside(self, tree: Tree, known: Mapping[int, Workload]) -> Iterator[tuple[int, Workload]]:
        """Yield the ranks beside rank 0, which leads: of its name, and of the same parent or launcher."""
        for leader in self._found.leaders:
            if known.get(leader.pid) != leader.workload:
                continue
            parent, started_by = tree.processes[leader.pid].ppid, launcher(tree, leader.pid)
            for pid, task in tree.processes.items():
                if task.comm not in leader.comms or pid in known:
                    continue
                # A process whose parent has gone has the first process as its parent, as others do.
                if (task.ppid == parent and parent > 1) or (
                    started_by is not None and launcher(tree, pid) == started_by
                ):
                    yield pid, leader.workload

    def _process(self, tree: Tree, pid: int, classes: Mapping[int, Process]) -> Process | None:
        """Return a process of a run, None where it is not the benchmark's own work: a daemon, a FUSE mount."""
        process = classes.get(pid)
        task = tree.processes[pid]
        if process is None or process.start != task.start:
            if isinstance(task, Stat) and task.kernel_thread:
                return None
            known = self._members.get(pid)
            if known is not None and (known.process.start, known.process.comm) == (task.start, task.comm):
                return known.process
            owner = self._processes.benchmark_owner(pid, task.comm)
            return Process(pid, task.start, task.comm, BENCHMARK, owner)
        return process if process.class_ == BENCHMARK or process.comm in self._comms else None

    def _kind(self, comm: str) -> str:
        """Return the name of the benchmark whose processes have this name, else the name itself."""
        return next((kind.name for kind in self._kinds if comm in kind.comms), comm)


def _within_limits(found: Mapping[int, Member]) -> dict[int, Member]:
    """Return the first processes of trusted users, and of each other user."""
    numbers: Counter[int | None] = Counter()
    members: dict[int, Member] = {}
    for pid, member in found.items():
        user = user_of(member.process.owner)
        numbers[user] += 1
        if numbers[user] <= (MAX_PROCESSES if user is None else MAX_USER_PROCESSES):
            members[pid] = member
    return members


def _label(text: str) -> str:
    """Return a marker in the form in which its run's phases are shown."""
    return decode(text.encode("utf-8", "replace")[:MAX_LABEL_BYTES])


def _descend(tree: Tree, known: dict[int, Workload]) -> None:
    """Add all descendants of the processes of `known`, each to its nearest ancestor."""
    waiting = list(known)
    for pid in waiting:
        for child in tree.children(pid):
            if child not in known:
                known[child] = known[pid]
                waiting.append(child)
