"""How often the judge reads hosts: as often as asked, or less often if reading them would fill a core."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

__all__ = ["MAX_READING_INTERVAL_SECONDS", "Pace"]

CHECK_INTERVAL_SECONDS = 2.0
"""Minimum seconds over which the CPU time is measured."""
MIN_CORES, AIM_CORES, MAX_CORES = 0.35, 0.5, 0.7
"""CPUs that the judge uses: below the first it reads hosts more often again, above the last less often.

Python runs one thread at a time, and judging and serving need their share of it.
"""
MAX_READING_INTERVAL_SECONDS = 30.0
"""Maximum seconds between two readings."""


class Pace:
    """The interval at which hosts are read.

    What a reading costs is not known in advance (the host's CPU, the number of series), so the interval follows the CPU
    time of this process. Threads may share a pace.
    """

    def __init__(
        self,
        asked: float,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        """Begin with an interval of `asked` seconds, the shortest one; both functions return seconds."""
        self.interval = asked
        """Seconds between two readings of a host."""
        self.asked = asked
        """The same if that costs little enough."""
        self._clock = clock
        self._cpu = cpu
        self._began = clock(), cpu()
        self._lock = Lock()

    @property
    def slowed(self) -> bool:
        """Whether hosts are read less often than asked."""
        return self.interval > self.asked

    def check(self) -> bool:
        """Adapt the interval if it is time to; return whether it has changed. Every reader calls this."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            now = self._clock()
            (time_before, cpu_before), before = self._began, self.interval
            if now - time_before < max(CHECK_INTERVAL_SECONDS, self.interval):
                return False
            cpu = self._cpu()
            self._began = now, cpu
            cores = (cpu - cpu_before) / (now - time_before)
            if cores > MAX_CORES or (cores < MIN_CORES and self.slowed):
                longest = max(self.asked, MAX_READING_INTERVAL_SECONDS)
                self.interval = min(longest, max(self.asked, before * cores / AIM_CORES))
            return self.interval != before
        finally:
            self._lock.release()
