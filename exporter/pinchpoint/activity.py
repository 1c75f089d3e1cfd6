"""Whether anything happens on this host: while nothing does, probes sample at their rest intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from threading import Condition

from pinchpoint.resources import Resource

__all__ = ["ASKED_SECONDS", "Activity", "Load"]

HOLD_SECONDS = 10.0
"""Seconds after the last sign of activity at which a host comes to rest: a benchmark's phases have pauses."""
ASKED_SECONDS = 60.0
"""Seconds for which somebody who asks for the full rate gets it."""
MIN_LOAD_SHARE = 0.1
"""Share of a second in which a resource is busy, from which a host does not rest; none is full below 0.6."""
LOAD_INTERVAL_SECONDS = 1.0
"""Seconds over which that share is taken: a single write keeps a disk busy for 10 ms."""


class Activity:
    """The latest sign that something happens: a benchmark, a busy resource, or somebody who asks for the full rate.

    Any thread may note a sign. It wakes those that `wait`, so that they sample at the full rate at once.
    """

    def __init__(self) -> None:
        self._until = self._asked_until = -math.inf
        self._sign = Condition()

    def note(self, now: float, seconds: float = HOLD_SECONDS) -> None:
        """Something happens; the host does not rest for `seconds`. `now` is a monotonic time in seconds."""
        until = now + seconds
        if until <= self._until:
            return
        with self._sign:
            rested, self._until = self.rests(now), max(self._until, until)
            if rested:
                self._sign.notify_all()

    def ask(self, now: float, seconds: float) -> None:
        """Somebody asks for the full rate for the next `seconds`: a benchmark may run on another host."""
        self._asked_until = max(self._asked_until, now + seconds)
        self.note(now, seconds)

    def asked(self, now: float) -> bool:
        """Return whether somebody asked for the full rate; `now` is a monotonic time in seconds."""
        return now < self._asked_until

    def rests(self, now: float) -> bool:
        """Return whether nothing has happened for a while; `now` is a monotonic time in seconds."""
        return now >= self._until

    def wait(self, seconds: float, unless: Callable[[], bool]) -> None:
        """Wait for `seconds`, until a host at rest has something to do, or until `wake`.

        If `unless` is true, it does not wait at all.
        """
        with self._sign:
            if not unless():
                self._sign.wait(seconds)

    def wake(self) -> None:
        """Wake all who wait."""
        with self._sign:
            self._sign.notify_all()


class Load:
    """Notes activity while a resource of a probe is busy."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._looked = math.inf
        self._busy: dict[tuple[str, str], float] = {}

    def look(self, now: float, resources: Iterable[Resource]) -> None:
        """Look at resources once a second; `now` is a monotonic time in seconds."""
        elapsed = now - self._looked
        if 0 <= elapsed < LOAD_INTERVAL_SECONDS:
            return
        before, self._busy, self._looked = self._busy, {(one.name, one.owner): one.busy for one in resources}, now
        limit = MIN_LOAD_SHARE * elapsed
        if elapsed > 0 and any(busy - before.get(key, busy) >= limit for key, busy in self._busy.items()):
            self._activity.note(now)
