"""How often something may happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

__all__ = ["TokenBucket"]


class TokenBucket:
    """Holds at most `burst` tokens, and gets `rate` of them a second; full at the start. `clock` is in seconds.

    The same as Go's rate.Limiter, which exporter-toolkit uses: nothing ever fits a bucket of less than one token.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._lock = Lock()
        self._level = burst
        self._filled = clock()

    @property
    def level(self) -> float:
        """The tokens that are there now; below zero after a debit of more than there were."""
        with self._lock:
            return self._refilled()

    def take(self) -> bool:
        """Take one token, if there is one."""
        with self._lock:
            if self._refilled() < 1:
                return False
            self._level -= 1
            return True

    def debit(self, tokens: float) -> None:
        """Take tokens whether they are there or not."""
        with self._lock:
            self._level = self._refilled() - tokens

    def _refilled(self) -> float:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._filled) * self.rate)
        self._filled = now
        return self._level
