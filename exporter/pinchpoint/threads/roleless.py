"""The busiest threads without a role: how to find a limit that no rule foresees.

They may be any threads of any process: memory is bounded by the hottest threads of the last seconds, the export by a
few names at a time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

import msgspec

from pinchpoint import resources
from pinchpoint.metrics import UNKNOWN_THREAD_BUSY_RATIO
from pinchpoint.model import Point
from pinchpoint.resources import Resource
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.units import SECONDS_PER_NANOSECOND

__all__ = [
    "MAX_UNKNOWN_NAMES",
    "METRICS",
    "MIN_THREAD_SHARE",
    "RESOURCE",
    "Hot",
    "Name",
    "UnknownThreads",
    "bare",
    "hottest",
]

METRICS = (UNKNOWN_THREAD_BUSY_RATIO,)

RESOURCE = "unknown_thread"
MIN_THREAD_SHARE = 0.05
"""Share of a sample's time from which a thread is looked at, as for unfollowed threads in sources."""
ROLELESS_WINDOW_SECONDS = 3.0
"""Seconds of averaging a named thread's share; a verdict covers as many."""
MIN_SEEN_SECONDS = 0.95
"""No thread is named in these first seconds: too short a window to mean anything."""
MIN_NAMED_SHARE = 0.1
"""Share under which no thread is named: 300 ms in every 3 s are just enough."""
MIN_LEAD_SHARE = 0.2
"""Share by which another thread has to be busier to be named instead: threads of a pool are about equally busy."""
MAX_UNKNOWN_NAMES = 3
"""Threads named at a time: a busy neighbour must not hide the one that is the limit."""
MAX_ASKED_NAMES = 16
"""Threads whose names are asked for at a time, the busiest first."""
MIN_RENAME_INTERVAL_SECONDS = 5.0
"""Minimum seconds between two changes of a name: each is a series."""
MAX_THREADS_PER_SAMPLE = 64
"""Threads looked at per sample: if ten thousand wait for a CPU, all are hot."""


class Hot(NamedTuple):
    """A thread that is charged."""

    task: Task
    work: str = ""
    """A workqueue worker's work: it changes, and the role with it."""


class Name(NamedTuple):
    """The name of a thread, and its process."""

    thread: str
    process: str

    @property
    def pool(self) -> tuple[str, str]:
        """What it has in common with others of its pool."""
        return bare(self.thread), self.process


class _Shown(msgspec.Struct):
    """A thread that is named."""

    name: Name
    thread: Hot


def bare(name: str) -> str:
    """Return a thread's name without the digits that tell it from others of its kind."""
    return re.sub(r"\d+", "", name).strip("-_:/") or name


def hottest(uses: Sequence[TaskUse]) -> Sequence[TaskUse]:
    """Return the `MAX_THREADS_PER_SAMPLE` threads of a sample that used most."""
    return uses if len(uses) <= MAX_THREADS_PER_SAMPLE else nlargest(MAX_THREADS_PER_SAMPLE, uses, key=_used)


def _used(use: TaskUse) -> int:
    return use.run + use.wait


class UnknownThreads:
    """Threads without a role, sample by sample, from `hottest`.

    `name` returns a thread's name, or None if it turns out to have a role; it is called for the busiest only. Of a pool
    one thread is named.
    """

    def __init__(self, threshold: float, name: Callable[[Hot], Name | None]) -> None:
        self.resource = Resource(RESOURCE, "host", (), threshold, ("runqueue",))
        self._ask = name
        self._used: dict[Hot, tuple[int, int]] = {}
        self._samples: deque[tuple[float, dict[Hot, int]]] = deque()
        self._span = self._seen = self._now = 0.0
        self._totals: dict[Hot, int] = {}
        """Nanoseconds by thread, over `_samples`."""
        self._names: dict[Hot, tuple[str, Name]] = {}
        """Names found so far, each with the thread's own name at that time: a young one may change it."""
        self._shown: dict[tuple[str, str], _Shown] = {}
        """By their pools."""
        self._changed = float("-inf")

    def charge(self, thread: Hot, run: int, wait: int) -> None:
        """Charge nanoseconds that a thread used in the sample that is being taken."""
        self._used[thread] = run, wait

    def recent(self, thread: Hot) -> bool:
        """Return whether a thread was charged in the last seconds."""
        return thread in self._totals

    def settle(self, now: float, elapsed: float) -> None:
        """End the sample at `now`, `elapsed` seconds after the last one."""
        used, self._used = self._used, {}
        self._seen += elapsed
        self._now = now
        if not used and not self._samples:
            return
        least = MIN_THREAD_SHARE * elapsed / SECONDS_PER_NANOSECOND
        sums = {thread: run + wait for thread, (run, wait) in used.items() if run + wait >= least}
        self._remember(elapsed, sums)
        for busiest in self._busiest(sums, 1):
            run, wait = used[busiest]
            self.resource.add(elapsed, (run + wait) * SECONDS_PER_NANOSECOND, runqueue=wait * SECONDS_PER_NANOSECOND)
        if not self._totals:
            self._samples.clear()
            self._span = 0.0

    def _remember(self, elapsed: float, sums: dict[Hot, int]) -> None:
        """Add a sample to the window, and drop what is older."""
        self._samples.append((elapsed, sums))
        self._span += elapsed
        for thread, used in sums.items():
            self._totals[thread] = self._totals.get(thread, 0) + used
        while self._span - self._samples[0][0] >= ROLELESS_WINDOW_SECONDS:
            length, old = self._samples.popleft()
            self._span -= length
            for thread, used in old.items():
                self._totals[thread] -= used
                if not self._totals[thread]:
                    self._forget(thread)

    def _forget(self, thread: Hot) -> None:
        del self._totals[thread]
        self._names.pop(thread, None)

    def _busiest(self, used: Mapping[Hot, int], most: int) -> Iterator[Hot]:
        """Yield so many threads without a role, the busiest first; those that have one are forgotten."""
        for thread in sorted(used, key=used.__getitem__, reverse=True):
            if not most:
                return
            if self._named(thread) is not None:
                most -= 1
                yield thread
                continue
            self._forget(thread)
            for _, sums in self._samples:
                sums.pop(thread, None)

    def _named(self, thread: Hot) -> Name | None:
        known = self._names.get(thread)
        if known is not None and known[0] == thread.task.comm:
            return known[1]
        name = self._ask(thread)
        if name is not None:
            self._names[thread] = thread.task.comm, name
        return name

    def _choose(self) -> None:
        """Choose the threads whose names are shown now."""
        hot = {thread: used for thread, used in self._totals.items() if self._share(thread) >= MIN_NAMED_SHARE}
        pools = set()
        for thread in [*self._busiest(hot, MAX_ASKED_NAMES)] if self._seen >= MIN_SEEN_SECONDS else ():
            name = self._names[thread][1]
            if name.pool not in pools:
                pools.add(name.pool)
                self._offer(name, thread)

    def _offer(self, name: Name, thread: Hot) -> None:
        """Show the busiest thread of a pool, if there is room for it or it is clearly busier than one that is shown."""
        shown = self._shown.get(name.pool)
        if shown is None and len(self._shown) < MAX_UNKNOWN_NAMES:
            self._shown[name.pool] = _Shown(name, thread)
            return
        rival = shown or min(self._shown.values(), key=lambda one: self._share(one.thread))
        mine = self._share(rival.thread)
        if name == rival.name:
            rival.thread = thread  # of two with one name the busier one counts
        elif self._now - self._changed >= MIN_RENAME_INTERVAL_SECONDS and (
            mine < MIN_NAMED_SHARE or self._share(thread) >= mine + MIN_LEAD_SHARE
        ):
            del self._shown[rival.name.pool]
            self._shown[name.pool] = _Shown(name, thread)
            self._changed = self._now

    def _share(self, thread: Hot) -> float:
        # The time before the first sample is unknown, not idle.
        covered = max(self._span, min(ROLELESS_WINDOW_SECONDS, self._seen))
        return min(1.0, self._totals.get(thread, 0) * SECONDS_PER_NANOSECOND / covered) if covered else 0.0

    def points(self) -> Iterator[Point]:
        """Yield the integrals of the busiest thread, and the names of those that were busiest over the last seconds."""
        yield from resources.points((self.resource,))
        self._choose()
        for one in self._shown.values():
            if (share := self._share(one.thread)) >= MIN_NAMED_SHARE:
                yield UNKNOWN_THREAD_BUSY_RATIO.point(share, *one.name)
