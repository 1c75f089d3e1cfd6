"""The exporter's own limit of CPU time: above it, it samples less often."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

__all__ = ["CostLimit"]

FACTORS = (1, 2, 3)
"""By how much longer the intervals between samples are, step by step."""
COST_WINDOW_SECONDS = 10.0
"""Seconds over which the cost is measured before a step."""
PATIENCE_SECONDS = 30.0
"""Seconds between a step and one back."""
BACK_SHARE = 0.8
"""Share of the limit that the cost must be below before a step back, given what that step will add."""

log = logging.getLogger(__name__)


class CostLimit:
    """By what factor intervals between samples are longer than configured, given what the exporter costs.

    `share` is the limit, in CPUs. `used` returns the CPU seconds that this process has used.
    """

    def __init__(self, share: float, used: Callable[[], float] = time.process_time) -> None:
        self._share = share
        self._used = used
        self._level = 0
        self._measured: deque[tuple[float, float]] = deque()
        self._next = self._changed = float("-inf")

    @property
    def factor(self) -> int:
        """1 while the cost is within the limit."""
        return FACTORS[self._level]

    def look(self, now: float) -> None:
        """Measure the cost, once a second, and take a step if it is due; `now` is a monotonic time in seconds."""
        if now < self._next:
            return
        self._next = now + 1.0
        self._measured.append((now, self._used()))
        while len(self._measured) > 1 and now - self._measured[1][0] >= COST_WINDOW_SECONDS:
            self._measured.popleft()
        (then, before), (_, used) = self._measured[0], self._measured[-1]
        if now - then < COST_WINDOW_SECONDS:
            return
        cost = (used - before) / (now - then)
        if cost > self._share and self._level + 1 < len(FACTORS):
            self._step(now, self._level + 1, cost)
        elif self._level and now - self._changed >= PATIENCE_SECONDS:
            back = self._level - 1
            if cost * self.factor / FACTORS[back] < BACK_SHARE * self._share:
                self._step(now, back, cost)

    def reset(self) -> None:
        """Return to the configured intervals: what cost so much is over."""
        self._level = 0
        self._measured.clear()

    def _step(self, now: float, level: int, cost: float) -> None:
        self._level, self._changed = level, now
        self._measured.clear()
        log.warning(
            "the exporter uses %.1f %% of a CPU, its limit is %.1f %%: intervals between samples are %d times as long",
            100 * cost, 100 * self._share, self.factor,
        )  # fmt: skip
