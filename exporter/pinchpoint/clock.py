"""Times whose differences are durations, whatever happens to the wall clock.

An administrator or a time service may set the wall clock at any time, but not CLOCK_MONOTONIC. adjtimex(2) slews
both alike, so their difference changes only if the wall clock is set, or if the host was suspended (clock_gettime(2)).
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["STEADY", "Clock"]

MAX_DRIFT_SECONDS = 1.0
"""Difference from the wall clock, in seconds, up to which it was not set: reading two clocks takes time."""


class Clock:
    """Unix time as the wall clock had it when this clock was made, which then advances with the monotonic clock.

    `wall` gives Unix time and `monotonic` monotonic time, both in seconds.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._ahead = 0.0
        self.offset = wall() - monotonic()
        """Its times minus monotonic ones, in seconds."""

    def now(self) -> float:
        """Return the time in Unix seconds."""
        return self._monotonic() + self.offset

    def ahead(self) -> float:
        """Return by how many seconds the wall clock was set forward in all since this clock was made."""
        ahead = self._wall() - self.now()
        if abs(ahead - self._ahead) > MAX_DRIFT_SECONDS:
            self._ahead = ahead
        return self._ahead


STEADY = Clock()
"""The clock of this process: all times that it compares with each other come from here."""
