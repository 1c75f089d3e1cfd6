"""The pace of a phase: when it last did anything, and whether it slows down."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["Pace"]

MAX_POINTS = 256
"""Maximum number of points per phase; beyond that, every other one is dropped, and new ones come half as often."""
MIN_POINTS = 8
"""Number of points from which two halves are compared."""


class Pace:
    """The work done over time. Times are in seconds, work is in any unit that only grows."""

    def __init__(self) -> None:
        self.moved: float | None = None
        """When the work last grew; None before the first value."""
        self._times: list[float] = []
        self._done: list[float] = []
        self._spacing = 0.0
        """Seconds from one point to the next, so that the first half is known as finely as the second."""

    def reaches(self, now: float, work: float) -> None:
        """Record that `work` was done by `now`."""
        if self._times:
            # A clock may be set back.
            now = max(now, self._times[-1])
        if not self._done or work > self._done[-1]:
            self.moved = now
        work = max(work, self._done[-1]) if self._done else work
        if len(self._times) > 1 and now - self._times[-2] < self._spacing:
            self._times[-1], self._done[-1] = now, work
            return
        self._times.append(now)
        self._done.append(work)
        if len(self._times) > MAX_POINTS:
            del self._times[1:-1:2], self._done[1:-1:2]
            self._spacing = 2 * (now - self._times[0]) / MAX_POINTS

    def flows(self, now: float, rate: float) -> None:
        """Record that work has been done at this rate since the last call."""
        since = now - self._times[-1] if self._times else 0.0
        if self.moved is None:
            self.moved = now
        self.reaches(now, (self._done[-1] if self._done else 0.0) + max(rate, 0.0) * since)

    @property
    def second_half(self) -> float | None:
        """Throughput of the second half of the time so far over that of the first; None if not known."""
        if len(self._times) < MIN_POINTS:
            return None
        start, end = self._times[0], self._times[-1]
        if end <= start:
            return None
        middle = (start + end) / 2
        index = bisect_left(self._times, middle)
        before, after = self._times[index - 1], self._times[index]
        share = (middle - before) / (after - before) if after > before else 0.0
        half = self._done[index - 1] + share * (self._done[index] - self._done[index - 1])
        first, second = half - self._done[0], self._done[-1] - half
        return second / first if first > 0 else None
