"""Finds the benchmarks among the processes, and follows each from its first sight to its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import Ended, Event, Rate, Source, State
from pinchpoint.benchmarks.output import Reader
from pinchpoint.benchmarks.tail import Tail
from pinchpoint.benchmarks.timeline import Timeline
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.exitstatus import ExitWatch
from pinchpoint.procfs import read_bytes
from pinchpoint.runs import RunState

__all__ = ["Detector", "Followed", "merged"]

EARLY_LIMIT = 1 << 20
"""Bytes of a command's output that are kept for benchmarks that have not been seen yet."""
UNDECIDED = 10.0
"""Seconds for which a process that leads no run is asked again: rank 0 shows itself by the files that it opens."""
FOLLOWED_LIMIT = 64
"""Benchmarks that are followed at once."""
ENDED_LIMIT = 64
"""Benchmarks that are remembered after their end: the last ones."""
TICKS = os.sysconf("SC_CLK_TCK")

Watch = Callable[[int], ExitWatch]


class Followed:
    """One benchmark: its leader, and what is known of its run. Times are Unix seconds."""

    def __init__(self, kind: type[Benchmark], began: float) -> None:
        self.kind = kind
        self.began = began
        self.ended: float | None = None
        self.timeline = Timeline(kind.name)
        self.benchmark: Benchmark | None = None
        """None as long as only its output was seen."""
        self.pid = self.parent = self.start = 0
        self._tail: Tail | None = None
        self._reader: Reader | None = None
        self._watch: ExitWatch | None = None
        self._work: float | None = None
        """What the phase had done at the last look."""

    def lead(self, tree: Tree, pid: int, watch: Watch | None) -> None:
        """Follow this process from now on."""
        task = tree.processes[pid]
        self.pid, self.parent, self.start = pid, task.ppid, task.start
        self.benchmark = self.kind(tree, pid)
        if watch is not None:
            self._watch = watch(pid)

    def read_output(self, tree: Tree) -> None:
        """Follow the output too, where it goes into a file."""
        for pid in (self.pid, *tree.ancestors(self.pid)):
            path = tree.link(pid, 1)
            if not path.startswith("/"):
                continue
            position = tree.position(pid, 1)
            if path.startswith("/dev/") or position is None:
                return
            # With >> the file holds what others wrote before; > has emptied it for this command, or for the script
            # that it is a part of: then what is there by now is of the script's earlier commands.
            from_end = bool(position.flags & os.O_APPEND) or pid != self.pid
            with suppress(OSError):
                self._tail = Tail(tree, pid, path, from_end=from_end)
                self._reader = self.kind.reader()
            return

    def hear(self, events: Iterable[Event], wall: float) -> None:
        """Take in what its output told."""
        self.timeline.hear([self.claim(event) or event for event in events], wall, Source.STDOUT)

    def claim(self, event: Event) -> Event | None:
        """Return an event as it concerns this run, None where it is another's of the same kind."""
        if self.benchmark is None or not isinstance(event, Ended | Rate):
            return event
        return self.benchmark.claim(event)

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """See what goes on; `now` is in monotonic seconds."""
        if self._tail is not None and self._reader is not None:
            self.hear(self._reader.feed(self._tail.read()), wall)
        if self.benchmark is not None:
            sight = self.benchmark.look(tree, self.pid, now)
            if sight.state is State.RUNNING and sight.work is not None and sight.work == self._work:
                # What stands still because it waits for its own fsync does not hang.
                sight = replace(sight, state=State.SYNCING) if tree.syncs(self.pid) else sight
            self._work = sight.work
            self.timeline.see(sight, wall)

    def end(self, wall: float, *, failed: bool = False) -> None:
        """The leader has gone; `failed` says whether something else knows that it failed."""
        if self._tail is not None and self._reader is not None:
            self.hear(self._reader.feed(self._tail.close()), wall)
            self.hear(self._reader.close(), wall)
            self._tail = None
        if self.benchmark is not None:
            self.timeline.hear(self.benchmark.last_words(), wall, Source.RESULT_FILE)
        status = self._watch.close() if self._watch is not None else None
        self._watch = None
        self.ended = wall
        self.timeline.end(wall, failed=failed or bool(status))


class Detector:
    """The benchmarks among some processes: those of a command, or all of a host.

    `output` says whether what they print comes by `hear` (a command under ``pinchpoint run``); else it is read where it
    goes into files. `watch` learns how a process ended; None where pids aren't of this host.
    """

    def __init__(
        self, kinds: Iterable[type[Benchmark]], *, output: bool = False, watch: Watch | None = ExitWatch
    ) -> None:
        self._kinds = tuple(kinds)
        self._by_comm: dict[str, list[type[Benchmark]]] = {}
        for kind in self._kinds:
            for comm in kind.comms:
                self._by_comm.setdefault(comm, []).append(kind)
        self._output = output
        self._watch = watch
        self._followed: list[Followed] = []
        self._others: dict[tuple[int, int, str], float] = {}
        self._readers: dict[type[Benchmark], Reader] = {}
        self._early = bytearray()

    @property
    def followed(self) -> Sequence[Followed]:
        """The benchmarks, those that have ended too, by their start."""
        return self._followed

    def kinds(self, names: Iterable[str]) -> list[type[Benchmark]]:
        """Return the kinds of benchmark whose processes may have one of these names."""
        return [kind for name in names for kind in self._by_comm.get(name[:15], ())]

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """See what goes on; `now` is in monotonic seconds, `wall` in Unix seconds."""
        for followed in self._alive():
            task = tree.processes.get(followed.pid)
            if task is None or task.start != followed.start or task.comm not in followed.kind.comms:
                followed.end(wall)
        self._find(tree, now, wall)
        for followed in self._alive():
            followed.look(tree, now, wall)
        self._followed = [*self._ended()[-ENDED_LIMIT:], *self._alive()]
        self._followed.sort(key=lambda followed: followed.began)

    def forget(self, before: float) -> None:
        """Forget the benchmarks that ended before this time, in Unix seconds."""
        self._followed = [found for found in self._followed if found.ended is None or found.ended >= before]

    def _alive(self) -> list[Followed]:
        return [followed for followed in self._followed if followed.ended is None and followed.pid]

    def _ended(self) -> list[Followed]:
        return [followed for followed in self._followed if followed.ended is not None or not followed.pid]

    def _find(self, tree: Tree, now: float, wall: float) -> None:
        leaders = {followed.pid for followed in self._alive()}
        others: dict[tuple[int, int, str], float] = {}
        by_comm = self._by_comm
        for pid in sorted(pid for pid, task in tree.processes.items() if task.comm in by_comm):
            if pid in leaders:
                continue
            task = tree.processes[pid]
            key = (pid, task.start, task.comm)
            first = others[key] = self._others.get(key, now)
            if now - first > UNDECIDED or len(leaders) >= FOLLOWED_LIMIT:
                continue
            if any(ancestor in leaders for ancestor in tree.ancestors(pid)):
                continue
            kind = next((kind for kind in by_comm[task.comm] if kind.leads(tree, pid)), None)
            if kind is not None:
                del others[key]
                leaders.add(pid)
                self._follow(kind, tree, pid, wall)
            elif any(tree.comm(pid) in found.kind.comms and found.parent == task.ppid for found in self._alive()):
                others[key] = float("-inf")  # another rank of that run: it doesn't lead when rank 0 has ended
        self._others = others

    def _follow(self, kind: type[Benchmark], tree: Tree, pid: int, wall: float) -> None:
        heard = next((found for found in self._followed if found.kind is kind and not found.pid), None)
        followed = heard or Followed(kind, min(wall, _began(tree, pid, wall)))
        followed.lead(tree, pid, self._watch)
        if heard is None:
            self._followed.append(followed)
        if not self._output:
            followed.read_output(tree)

    def hear(self, data: bytes, wall: float, *, named: Iterable[type[Benchmark]] = ()) -> None:
        """Take in what the command printed; `named` are kinds of benchmark that it names, seen or not."""
        for kind in {*named, *(followed.kind for followed in self._followed)} - self._readers.keys():
            reader = self._readers[kind] = kind.reader()
            self._tell(kind, reader.feed(bytes(self._early)), wall)
        self._early += data[: EARLY_LIMIT - len(self._early)]
        for kind, reader in self._readers.items():
            self._tell(kind, reader.feed(data), wall)

    def end(self, wall: float, *, failed: bool) -> None:
        """The command has ended, and all its processes with it as far as they concern us."""
        for followed in self._alive():
            followed.end(wall, failed=failed)
        for kind, reader in self._readers.items():
            self._tell(kind, reader.close(), wall)
        for followed in self._followed:
            if followed.ended is None:
                followed.end(wall, failed=failed)
        if failed and self._followed and all(found.timeline.state is not State.FAILED for found in self._followed):
            self._followed[-1].timeline.end(wall, failed=True)

    def _tell(self, kind: type[Benchmark], events: Sequence[Event], wall: float) -> None:
        if not events:
            return
        own = [followed for followed in self._followed if followed.kind is kind]
        if not own:
            own = [Followed(kind, wall)]
            self._followed += own
        # All events of one piece that are of one run are told together: see `Timeline.hear`.
        shares: dict[int, list[Event]] = {}
        for event in events:
            shares.setdefault(_whose(own, event), []).append(event)
        for index, share in shares.items():
            own[index].hear(share, wall)


def _whose(own: Sequence[Followed], event: Event) -> int:
    """Return which of several benchmarks of a kind an event of their common output is of."""
    newest = len(own) - 1
    claims = []
    for index, followed in enumerate(own):
        claimed = followed.claim(event)
        if claimed is not None:
            claims.append(index)
            if isinstance(claimed, Ended) and followed.timeline.awaits(claimed.phase):
                return index
    return claims[-1] if claims else newest


def _began(tree: Tree, pid: int, wall: float) -> float:
    """Return when a process began, in Unix seconds; the time of the look where /proc/uptime can't be read."""
    try:
        uptime = float(read_bytes(Path(tree.procfs) / "uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return wall
    return wall - max(0.0, uptime - tree.processes[pid].start / TICKS)


def merged(followed: Sequence[Followed], run: str, start: float) -> RunState:
    """Return what is known of a run that consists of these benchmarks, by their start."""
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
        state.blind = sorted({*state.blind, *timeline.blind})
    return state
