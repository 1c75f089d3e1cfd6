"""The busiest thread without a role: how to find a limit that no rule foresees.

It may be any thread of any process: memory is bounded by the hottest threads of the last seconds, the export by one
name at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from pinchpoint import resources
from pinchpoint.metrics import UNKNOWN_THREAD_BUSY_RATIO
from pinchpoint.model import Point
from pinchpoint.resources import Resource
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.units import SECONDS_PER_NANOSECOND

__all__ = ["METRICS", "MIN_THREAD_SHARE", "RESOURCE", "Hot", "Name", "UnknownThreads", "hottest"]

METRICS = (UNKNOWN_THREAD_BUSY_RATIO,)

RESOURCE = "unknown_thread"
MIN_THREAD_SHARE = 0.05
"""Share of a sample's time from which a thread is looked at, as for unfollowed threads in sources."""
ROLELESS_WINDOW_SECONDS = 3.0
"""Seconds of averaging the named thread's share; a verdict covers as many."""
MIN_SEEN_SECONDS = 0.95
"""No thread is named in these first seconds: too short a window to mean anything."""
MIN_NAMED_SHARE = 0.1
"""Share under which no thread is named: 300 ms in every 3 s are just enough."""
MIN_LEAD_SHARE = 0.2
"""Share by which another thread has to be busier to be named instead: threads of a pool are about equally busy."""
MIN_RENAME_INTERVAL_SECONDS = 5.0
"""Minimum seconds between two changes of the name: each is a series."""
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


def hottest(uses: Sequence[TaskUse]) -> Sequence[TaskUse]:
    """Return the `MAX_THREADS_PER_SAMPLE` threads of a sample that used most."""
    return uses if len(uses) <= MAX_THREADS_PER_SAMPLE else nlargest(MAX_THREADS_PER_SAMPLE, uses, key=_used)


def _used(use: TaskUse) -> int:
    return use.run + use.wait


class UnknownThreads:
    """Threads without a role, sample by sample, from `hottest`.

    `name` returns a thread's name, or None if it turns out to have a role; it is called for the busiest only.
    """

    def __init__(self, threshold: float, name: Callable[[Hot], Name | None]) -> None:
        self.resource = Resource(RESOURCE, "host", (), threshold, ("runqueue",))
        self._ask = name
        self._used: dict[Hot, tuple[int, int]] = {}
        self._samples: deque[tuple[float, dict[Hot, int]]] = deque()
        self._span = self._seen = 0.0
        self._totals: dict[Hot, int] = {}
        """Nanoseconds by thread, over `_samples`."""
        self._names: dict[Hot, tuple[str, Name]] = {}
        """Names found so far, each with the thread's own name at that time: a young one may change it."""
        self._shown: Hot | None = None
        self._name: Name | None = None
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
        if not used and not self._samples:
            return
        least = MIN_THREAD_SHARE * elapsed / SECONDS_PER_NANOSECOND
        sums = {thread: run + wait for thread, (run, wait) in used.items() if run + wait >= least}
        self._remember(elapsed, sums)
        if (busiest := self._busiest(sums)) is not None:
            run, wait = used[busiest]
            self.resource.add(elapsed, (run + wait) * SECONDS_PER_NANOSECOND, runqueue=wait * SECONDS_PER_NANOSECOND)
        self._choose(now)
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

    def _busiest(self, used: Mapping[Hot, int]) -> Hot | None:
        """Return the busiest thread without a role; threads that have one are forgotten."""
        left = dict(used)
        while left:
            thread = max(left, key=left.__getitem__)
            if self._named(thread) is not None:
                return thread
            del left[thread]
            self._forget(thread)
            for _, sums in self._samples:
                sums.pop(thread, None)
        return None

    def _named(self, thread: Hot) -> Name | None:
        known = self._names.get(thread)
        if known is not None and known[0] == thread.task.comm:
            return known[1]
        name = self._ask(thread)
        if name is not None:
            self._names[thread] = thread.task.comm, name
        return name

    def _choose(self, now: float) -> None:
        """Choose the thread whose name is shown."""
        best = self._busiest(self._totals)
        if best is None or self._share(best) < MIN_NAMED_SHARE or self._seen < MIN_SEEN_SECONDS:
            return
        name = self._named(best)
        if name == self._name:
            self._shown = best  # of two with one name the busier one counts
        elif now - self._changed >= MIN_RENAME_INTERVAL_SECONDS:
            mine = self._share(self._shown)
            if mine < MIN_NAMED_SHARE or self._share(best) >= mine + MIN_LEAD_SHARE:
                self._shown, self._name, self._changed = best, name, now

    def _share(self, thread: Hot | None) -> float:
        used = self._totals.get(thread, 0) if thread is not None else 0
        # The time before the first sample is unknown, not idle.
        covered = max(self._span, min(ROLELESS_WINDOW_SECONDS, self._seen))
        return min(1.0, used * SECONDS_PER_NANOSECOND / covered) if covered else 0.0

    def points(self) -> Iterator[Point]:
        """Yield the integrals of the busiest thread, and the name of the one that was busiest over the last seconds."""
        yield from resources.points((self.resource,))
        if self._name is not None and (share := self._share(self._shown)) >= MIN_NAMED_SHARE:
            yield UNKNOWN_THREAD_BUSY_RATIO.point(share, *self._name)
