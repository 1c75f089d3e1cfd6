"""Which threads belong to resources that are full: noted by what reads threads, read by what profiles them.

Some stages of a daemon are full by what the daemon itself counts, while their threads wait for a device for a part of
the time and use less of a CPU than a full thread does. What reads these counters tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pinchpoint.threads.role_table import RoleTotals
from pinchpoint.threads.task_source import Task

__all__ = ["FullResource", "FullThread", "FullThreads"]

MIN_FULL_SECONDS = 2.0
"""Seconds of fullness, less those without it, from which a resource counts."""
MAX_FULL_SECONDS = 4.0
"""... and at which it stops to add up: two seconds without fullness end it."""

MAX_FULL_RESOURCES = 256
"""Maximum number of resources that are followed: any user may give names to many."""
MIN_REMEMBERED_NANOSECONDS = 100_000
"""A thread that has run for less, by a sum that is halved at each sample, is forgotten."""


class FullThread(NamedTuple):
    """A thread of a full resource."""

    pid: int
    tid: int


class FullResource(NamedTuple):
    """A resource that has been full, with its threads, the busiest first."""

    resource: str
    owner: str
    threads: tuple[FullThread, ...]


class _Entry:
    __slots__ = ("ran", "score", "seen")

    def __init__(self, now: float) -> None:
        self.score = 0.0
        self.seen = now
        self.ran: dict[Task, int] = {}


class FullThreads:
    """What is full on this host. One thread notes, and others may tell and read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Entry] = {}
        self._told: dict[tuple[str, str], float] = {}

    def tell(self, resource: str, owner: str, until: float) -> None:
        """Say that a resource is full up to a monotonic time, whatever its threads use."""
        self._told[resource, owner] = until

    def told(self, now: float) -> Collection[tuple[str, str]]:
        """Return the resources and owners that were told to be full."""
        if not self._told:
            return ()
        for key, until in list(self._told.items()):
            if until <= now:
                self._told.pop(key, None)
        return tuple(self._told)

    def note(self, now: float, elapsed: float, full: Iterable[RoleTotals]) -> None:
        """Note what was full in the last `elapsed` seconds, up to `now` in monotonic seconds."""
        for use in full:
            if use.resource is None:
                continue
            key = use.resource.name, use.resource.owner
            entry = self._known.get(key)
            if entry is None:
                if len(self._known) >= MAX_FULL_RESOURCES:
                    self.resources(now)  # forgets what is no longer full
                if len(self._known) >= MAX_FULL_RESOURCES:
                    continue
                entry = self._known[key] = _Entry(now - elapsed)
            gap = max(0.0, now - elapsed - entry.seen)
            entry.score = min(MAX_FULL_SECONDS, max(0.0, entry.score - gap) + elapsed)
            entry.seen = now
            # What ran long ago counts less, so that threads that have ended are forgotten.
            ran = {task: run // 2 for task, run in entry.ran.items() if run >= MIN_REMEMBERED_NANOSECONDS}
            for task, run in use.ran.items():
                ran[task] = ran.get(task, 0) + run
            entry.ran = ran
            use.ran = {}

    def resources(self, now: float) -> list[FullResource]:
        """Return what has been full for `MIN_FULL_SECONDS`, in the order in which it became full."""
        found = []
        for key, entry in list(self._known.items()):
            score = entry.score - (now - entry.seen)
            if score <= 0:
                self._known.pop(key, None)
            elif entry.score >= MIN_FULL_SECONDS:
                tasks = sorted(dict(entry.ran).items(), key=lambda item: -item[1])
                threads = tuple(FullThread(task.tgid, task.tid) for task, _ in tasks)
                found.append(FullResource(*key, threads))
        return found
