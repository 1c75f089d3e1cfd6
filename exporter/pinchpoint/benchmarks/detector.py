"""Finds the benchmarks among the processes, and follows each from its first sight to its end."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import Completed, Ended, Event, PhaseSource, Rate, RunBegan, State, ended_as
from pinchpoint.benchmarks.jobs import VARIABLES, job_of
from pinchpoint.benchmarks.mpi import beside_launcher, rank
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tail import FileId, Tail
from pinchpoint.benchmarks.timeline import Timeline
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.workloads import UserProcess
from pinchpoint.benchmarks.wrappers import LAUNCHERS
from pinchpoint.host.exitstatus import ExitWatch
from pinchpoint.host.procfs import read_bytes
from pinchpoint.host.users import ROOT
from pinchpoint.model import Point
from pinchpoint.runs import RunState
from pinchpoint.threads.slurm import SRUN
from pinchpoint.units import TICKS_PER_SECOND

__all__ = ["Detector", "Followed", "began", "merged"]

MAX_EARLY_BYTES = 1 << 20
"""Bytes of a command's output that are kept for benchmarks that have not been seen yet."""
MAX_UNDECIDED_SECONDS = 10.0
"""Seconds for which a process that leads no run is checked again: rank 0 is recognised by the files it opens."""
MAX_FOLLOWED = 64
"""Maximum number of benchmarks followed at once that are not root's."""
MAX_FOLLOWED_PER_USER = 24
"""The same per user, so that one user's many processes with a benchmark's name cannot hide other users' runs."""
MAX_FOLLOWED_EVERYDAY = 16
"""The same for everyday programs (ping, dd); root's have as much room of their own."""
MAX_LOOK_CPU_SECONDS = 0.1
"""Seconds of CPU that one look spends on benchmarks; those that it leaves out come first at the next one."""
MAX_LOGGED_FAILURES = 64
"""Maximum number of failures that are logged."""
MAX_OUTPUT_FILES = 64
"""Maximum number of output files that are remembered."""
MAX_UNREAPED_SECONDS = 2.0
"""Seconds after which a leader that has ended but was not reaped by its parent counts as gone."""
MAX_ENDED = 64
"""Maximum number of ended benchmarks that are remembered: the last ones."""

OUTPUT = "output"
"""What is blind in a run whose launcher is on another host."""

Watch = Callable[[int], ExitWatch]

log = logging.getLogger(__name__)


@contextmanager
def _guarded(kind: type[Benchmark], told: set[str]) -> Iterator[None]:
    """Keep one benchmark's failure from affecting the others; each failure is logged once."""
    try:
        yield
    except Exception as error:
        message = f"benchmark {kind.name}: {type(error).__name__}: {error}"
        if message not in told and len(told) < MAX_LOGGED_FAILURES:
            told.add(message)
            log.warning("%s", message)


class Followed:
    """One benchmark: its leader, and what is known about its run. Times are Unix seconds."""

    def __init__(self, kind: type[Benchmark], began: float) -> None:
        self.kind = kind
        self.began = began
        self.seen = began
        """When its leader was first seen."""
        self.ended: float | None = None
        self.timeline = Timeline(kind.name)
        self.benchmark: Benchmark | None = None
        """None while only its output was seen."""
        self.pid = self.parent = self.start = self.owner = 0
        self.unreaped: float | None = None
        """When the leader became a zombie, in monotonic seconds."""
        self._tail: Tail | None = None
        self._ends: dict[FileId, int] = {}
        self._reader: OutputReader | None = None
        self._watch: ExitWatch | None = None
        self.job = ""
        """The id of the batch system's job that it is part of."""
        self._is_rank = self._remote = False
        self._work: float | None = None
        """What the phase had done at the last look."""

    def lead(self, tree: Tree, pid: int, watch: Watch | None) -> None:
        """Follow this process from now on."""
        task = tree.processes[pid]
        self.pid, self.parent, self.start = pid, task.ppid, task.start
        self.owner = tree.owner(pid)
        self._is_rank = rank(tree, pid) is not None or any(
            tree.comm(above) in LAUNCHERS for above in tree.ancestors(pid)
        )
        self.job = job_of({name: tree.variable(pid, name) for name in VARIABLES})
        self._remote = not beside_launcher(tree, pid)
        self.benchmark = self.kind(tree, pid)
        if watch is not None:
            self._watch = watch(pid)

    def read_output(self, tree: Tree, ends: dict[FileId, int]) -> None:
        """Also follow the output if it goes into a file; `ends` says how far each file was read for others."""
        self._ends = ends
        # A launcher passes on what its ranks print into pipes or terminals of its own (Open MPI 4).
        launchers = [pid for pid in tree.ancestors(self.pid) if tree.comm(pid) in LAUNCHERS]
        for pid, descriptor in ((self.pid, 1), *((pid, _printed_to(tree, pid)) for pid in launchers)):
            path, position = tree.link(pid, descriptor), tree.position(pid, descriptor)
            if not path.startswith("/") or path.startswith("/dev/") or position is None:
                continue
            with suppress(OSError):
                # With >> the file holds what others wrote before; > has emptied it for this command, or for the script
                # that it is a part of, whose earlier commands we have read.
                self._tail = Tail(tree, pid, path, from_end=bool(position.flags & os.O_APPEND))
                self._tail.skip(ends)
                self._reader = self.kind.reader()
            return

    def _finish(self, reader: OutputReader, rest: bytes, wall: float) -> bytes:
        """Take in the rest of its output, and return what the next command has written to the same file."""
        events: list[Event] = []
        complete = self.timeline.complete is True
        at = 0
        for line in rest.splitlines(keepends=True):
            for event in reader.feed(line):
                if complete and isinstance(event, RunBegan):
                    self.hear(events, wall)
                    return rest[at:]
                complete |= isinstance(event, Completed)
                events.append(event)
            at += len(line)
        self.hear([*events, *reader.close()], wall)
        return b""

    def hear(self, events: Iterable[Event], wall: float) -> None:
        """Take in the events of its output."""
        self.timeline.hear([self.claim(event) or event for event in events], wall, PhaseSource.STDOUT)

    def claim(self, event: Event) -> Event | None:
        """Return an event as it applies to this run, None where it belongs to another run of the kind."""
        if self.benchmark is None or not isinstance(event, Ended | Rate):
            return event
        return self.benchmark.claim(event)

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """Take a look; `now` is in monotonic seconds."""
        if self._remote and beside_launcher(tree, self.pid):
            # Slurm's srun is known as the launcher a moment after its step has begun.
            self._remote = False
            if self._tail is None:
                self.read_output(tree, self._ends)
        if self._tail is not None and self._reader is not None:
            self.hear(self._reader.feed(self._tail.read()), wall)
        if self.benchmark is not None:
            sight = self.benchmark.look(tree, self.pid, now)
            if sight.state is State.RUNNING and sight.work is not None and sight.work == self._work:
                # What stands still because it waits for its own fsync does not hang.
                sight = msgspec.structs.replace(sight, state=State.SYNCING) if tree.syncs(self.pid) else sight
            self._work = sight.work
            self.timeline.see(sight, wall)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What cannot be read about it: its output goes to a launcher on another host, and it has no other results."""
        elsewhere = self._remote and self._reader is None and self.pid
        return (OUTPUT,) if elsewhere and not any(mark.results for mark in self.timeline.phases) else ()

    def state(self, run: str) -> RunState:
        """Return what is known about the run under this name."""
        return merged([self], run, self.began)

    def end(self, wall: float, ended: State = State.FINISHED) -> None:
        """Record that the leader has gone; `ended` is how it ended according to another source."""
        self.ended = wall
        status = self._watch.close() if self._watch is not None else None
        self._watch = None
        tail, self._tail = self._tail, None
        try:
            if tail is not None and self._reader is not None:
                identity = tail.identity
                rest = tail.close()
                self._ends[identity] = tail.offset - len(self._finish(self._reader, rest, wall))
        finally:
            try:
                if self.benchmark is not None:
                    self.timeline.hear(self.benchmark.last_words(), wall, PhaseSource.RESULT_FILE)
            finally:
                if status is not None and ended is State.FINISHED:
                    ended = self.ended_as(status)
                self.timeline.end(wall, ended)

    def ended_as(self, status: int) -> State:
        """Return how the leader ended, given its wait status."""
        code = os.waitstatus_to_exitcode(status)
        if self._is_rank and code < 0:
            return State.FAILED  # a launcher ends all ranks by SIGTERM where one has crashed
        return State.STOPPED if code in self.kind.stopped_codes else ended_as(code)


class Detector:
    """The benchmarks among some processes: those of a command, or all on a host.

    What they print is read where it goes into files; what a command under ``pinchpoint run`` prints comes by `hear`.
    `watch` learns how a process ended; None where pids aren't of this host. `about` is called with a process before
    anything of it is read, which may hang.
    """

    def __init__(
        self,
        kinds: Iterable[type[Benchmark]],
        *,
        watch: Watch | None = ExitWatch,
        about: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._kinds = tuple(kinds)
        self._by_comm: dict[str, list[type[Benchmark]]] = {}
        for kind in self._kinds:
            for comm in kind.comms:
                self._by_comm.setdefault(comm, []).append(kind)
        self._watch = watch
        self._about = about
        self._followed: list[Followed] = []
        self._others: dict[tuple[int, int, str], float] = {}
        self._readers: dict[type[Benchmark], OutputReader] = {}
        self._early = bytearray()
        self._ends: dict[FileId, int] = {}
        """How far output files were read for benchmarks that have ended."""
        self._told: set[str] = set()
        self._left: list[int] = []
        """Leaders left out by the last look."""

    @property
    def followed(self) -> Sequence[Followed]:
        """The benchmarks, including those that have ended, by their start."""
        return self._followed

    @property
    def ranks(self) -> Mapping[UserProcess, int]:
        """Without helpers, no rank of an untrusted user's process is read."""
        return {}

    def points(self) -> Iterable[Point]:
        """Without helpers, nothing is counted."""
        return ()

    def kinds(self, names: Iterable[str]) -> list[type[Benchmark]]:
        """Return the kinds of benchmark whose processes may have one of these names."""
        return [kind for name in names for kind in self._by_comm.get(name[:15], ())]

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """Take a look; `now` is in monotonic seconds, `wall` in Unix seconds."""
        codes = {followed: self._gone(followed, tree, now) for followed in self._alive()}
        gone = {followed: code for followed, code in codes.items() if code is not None}
        until = time.thread_time() + MAX_LOOK_CPU_SECONDS
        for followed, code in gone.items():
            # What is left in the files of many that end at once is read one after another, at the next looks.
            if time.thread_time() <= until:
                with self._reading(followed.kind, followed.pid):
                    followed.end(wall, followed.ended_as(code))
        self._find(tree, now, wall)
        self._look(tree, now, wall, gone)
        self._followed = [*self._ended()[-MAX_ENDED:], *self._alive()]
        self._followed.sort(key=lambda followed: followed.began)

    def _look(self, tree: Tree, now: float, wall: float, gone: Container[Followed]) -> None:
        until = time.thread_time() + MAX_LOOK_CPU_SECONDS
        left: list[int] = []
        places = {pid: place for place, pid in enumerate(self._left)}
        for followed in sorted(self._alive(), key=lambda followed: places.get(followed.pid, len(places))):
            if followed in gone:
                continue
            if time.thread_time() > until:
                left.append(followed.pid)
                continue
            with self._reading(followed.kind, followed.pid):
                followed.look(tree, now, wall)
        self._left = left

    def _gone(self, followed: Followed, tree: Tree, now: float) -> int | None:
        """Return None if the leader is alive, else its exit code if its process table entry still holds it."""
        task = tree.processes.get(followed.pid)
        if task is None or task.start != followed.start or task.comm not in followed.kind.comms:
            return 0
        # A leader whose main thread alone has ended looks the same.
        if task.state != "Z" or len(tree.threads(followed.pid)) > 1:
            followed.unreaped = None
            return None
        if followed.unreaped is None:
            followed.unreaped = now
        return tree.exit_code(followed.pid) if now - followed.unreaped >= MAX_UNREAPED_SECONDS else None

    def forget(self, before: float) -> None:
        """Forget the benchmarks that ended before this time, in Unix seconds."""
        self._followed = [found for found in self._followed if found.ended is None or found.ended >= before]

    def disown(self, pids: Container[int]) -> None:
        """Forget the benchmarks that these processes lead: they are followed elsewhere."""
        for followed in [found for found in self._alive() if found.pid in pids]:
            with self._reading(followed.kind, followed.pid):
                followed.end(followed.began)
            self._followed.remove(followed)

    def _alive(self) -> list[Followed]:
        return [followed for followed in self._followed if followed.ended is None and followed.pid]

    def _ended(self) -> list[Followed]:
        return [followed for followed in self._followed if followed.ended is not None or not followed.pid]

    def _find(self, tree: Tree, now: float, wall: float) -> None:
        leaders = {followed.pid for followed in self._alive()}
        owners = Counter(followed.owner for followed in self._alive())
        everyday = Counter(followed.owner == ROOT for followed in self._alive() if followed.kind.everyday)
        others: dict[tuple[int, int, str], float] = {}
        by_comm = self._by_comm
        for pid in sorted(pid for pid, task in tree.processes.items() if task.comm in by_comm):
            if pid in leaders or not tree.readable(pid):
                continue
            task = tree.processes[pid]
            key = (pid, task.start, task.comm)
            if task.state == "Z":
                continue
            owner = tree.owner(pid)
            enough = everyday[owner == ROOT] >= MAX_FOLLOWED_EVERYDAY
            kinds = [kind for kind in by_comm[task.comm] if not (kind.everyday and enough)]
            # One for which there is no room now is asked when there is.
            full = owner != ROOT and owners.total() - owners[ROOT] >= MAX_FOLLOWED
            if full or owners[owner] >= MAX_FOLLOWED_PER_USER or not kinds:
                continue
            first = others[key] = self._others.get(key, now)
            if now - first > MAX_UNDECIDED_SECONDS:
                continue
            if any(ancestor in leaders for ancestor in tree.ancestors(pid)):
                continue
            kind = next((kind for kind in kinds if self._leads(kind, tree, pid)), None)
            if kind is not None:
                del others[key]
                leaders.add(pid)
                owners[owner] += 1
                everyday[owner == ROOT] += kind.everyday
                with self._reading(kind, pid):
                    self._follow(kind, tree, pid, wall)
            elif any(tree.comm(pid) in found.kind.comms and found.parent == task.ppid for found in self._alive()):
                others[key] = float("-inf")  # another rank of that run: it doesn't lead when rank 0 has ended
        self._others = others

    def _leads(self, kind: type[Benchmark], tree: Tree, pid: int) -> bool:
        with self._reading(kind, pid):
            return kind.leads(tree, pid)
        return False

    @contextmanager
    def _reading(self, kind: type[Benchmark], pid: int) -> Iterator[None]:
        self._about(pid)
        with _guarded(kind, self._told):
            yield

    def _follow(self, kind: type[Benchmark], tree: Tree, pid: int, wall: float) -> None:
        heard = next((found for found in self._followed if found.kind is kind and not found.pid), None)
        followed = heard or Followed(kind, min(wall, began(tree, pid, wall)))
        followed.lead(tree, pid, self._watch)
        followed.seen = wall
        if heard is None:
            self._followed.append(followed)
        while len(self._ends) > MAX_OUTPUT_FILES:
            del self._ends[next(iter(self._ends))]
        followed.read_output(tree, self._ends)

    def hear(self, data: bytes, wall: float, *, named: Iterable[type[Benchmark]] = ()) -> None:
        """Take in what the command printed; `named` are kinds of benchmark that it names, seen or not."""
        for kind in {*named, *(followed.kind for followed in self._followed)} - self._readers.keys():
            reader = self._readers[kind] = kind.reader()
            with _guarded(kind, self._told):
                self._tell(kind, reader.feed(bytes(self._early)), wall)
        self._early += data[: MAX_EARLY_BYTES - len(self._early)]
        for kind, reader in self._readers.items():
            with _guarded(kind, self._told):
                self._tell(kind, reader.feed(data), wall)

    def end(self, wall: float, ended: State) -> None:
        """The command has ended, and all its processes with it as far as they concern us."""
        for followed in self._alive():
            with _guarded(followed.kind, self._told):
                followed.end(wall, ended)
        for kind, reader in self._readers.items():
            with _guarded(kind, self._told):
                self._tell(kind, reader.close(), wall)
        for followed in self._followed:
            if followed.ended is None:
                with _guarded(followed.kind, self._told):
                    followed.end(wall, ended)
        states = {found.timeline.state for found in self._followed}
        if ended is not State.FINISHED and states and not states & {State.FAILED, State.STOPPED}:
            self._followed[-1].timeline.end(wall, ended)

    def _tell(self, kind: type[Benchmark], events: Sequence[Event], wall: float) -> None:
        if not events:
            return
        own = [followed for followed in self._followed if followed.kind is kind]
        if not own:
            own = [Followed(kind, wall)]
            self._followed += own
        # All events of one run in a piece are passed on together: see `Timeline.hear`.
        shares: dict[int, list[Event]] = {}
        alone = not _side_by_side(own)
        for event in events:
            # Of runs that print into each other's output only figures can be told apart.
            if alone or isinstance(event, Ended | Rate):
                whose = None if alone else _known(own, event)
                shares.setdefault(_whose(own, event, shares) if whose is None else whose, []).append(event)
        for index, share in shares.items():
            own[index].hear(share, wall)


def _side_by_side(own: Sequence[Followed]) -> bool:
    """Return whether any of these ran while the newest did."""
    seen = [followed for followed in own if followed.pid]
    return any(other.ended is None or other.ended > seen[-1].seen for other in seen[:-1])


def _known(own: Sequence[Followed], event: Event) -> int | None:
    """Return which of several benchmarks already has this very result from its result file."""
    if not isinstance(event, Ended) or not event.results:
        return None
    return next((index for index, followed in enumerate(own) if followed.timeline.knows(event)), None)


def _whose(own: Sequence[Followed], event: Event, shares: Mapping[int, Sequence[Event]]) -> int:
    """Return which of several benchmarks of a kind an event of their common output belongs to.

    `shares` are the events that are about to be passed to each.
    """
    newest = len(own) - 1
    claims = []
    for index, followed in enumerate(own):
        claimed = followed.claim(event)
        if claimed is not None:
            claims.append(index)
            if isinstance(claimed, Ended):
                told = sum(isinstance(other, Ended) and other.phase == claimed.phase for other in shares.get(index, ()))
                if followed.timeline.awaits(claimed.phase) > told:
                    return index
    return claims[-1] if claims else newest


def _printed_to(tree: Tree, launcher: int) -> int:
    """Return the descriptor of what a launcher prints of its ranks' output: of srun's -o, a file that it has open."""
    if tree.comm(launcher) == SRUN:
        with suppress(OSError):
            for descriptor, path in tree.open_files(launcher):
                position = tree.position(launcher, descriptor)
                if descriptor > 2 and path.startswith("/") and position is not None and position.writes:
                    return descriptor
    return 1


def began(tree: Tree, pid: int, wall: float) -> float:
    """Return when a process began, in Unix seconds; the time of the look where /proc/uptime can't be read."""
    try:
        uptime = float(read_bytes(Path(tree.procfs) / "uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return wall
    return wall - max(0.0, uptime - tree.processes[pid].start / TICKS_PER_SECOND)


def merged(followed: Sequence[Followed], run: str, start: float) -> RunState:
    """Return what is known about a run that consists of these benchmarks, by their start."""
    phases = [mark for found in followed for mark in found.timeline.phases]
    state = RunState(run, "", start, phases=sorted(phases, key=lambda mark: mark.start))
    for found in followed:
        timeline = found.timeline
        state.benchmark = state.benchmark or found.kind.name
        state.state = timeline.state
        state.total = timeline.total if len(followed) == 1 else None
        state.scores = list(timeline.scores) or state.scores
        state.valid = state.valid and timeline.valid
        state.reason = state.reason or timeline.reason
        state.blind = sorted({*state.blind, *timeline.blind, *found.unseen})
    return state
