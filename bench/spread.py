"""Medians with their spread, of measurements taken in turns."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Spread", "difference", "spread"]

DRAWS = 2000
"""Samples of a bootstrap."""


class Spread(NamedTuple):
    """A median and the range in which it, or its measurements, may lie."""

    median: float
    low: float
    high: float

    def text(self, form: str = ".2f") -> str:
        """Return it as a cell of a table."""
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def spread(values: Sequence[float]) -> Spread:
    """Return the median of measurements and their interquartile range; with fewer than four, their range."""
    if len(values) < 4:
        return Spread(statistics.median(values), min(values), max(values))
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def difference(without: Sequence[float], with_: Sequence[float]) -> Spread:
    """Return by what per cent the second of each pair is less than the first: the median, and its 95 % interval.

    The interval is a bootstrap over the pairs, since the differences are not normally distributed: one in ten runs
    meets a commit of the journal. The generator's seed is fixed, so that the same measurements give the same page.
    """
    losses = [100 * (1 - after / before) for before, after in zip(without, with_, strict=True)]
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(losses, k=len(losses))) for _ in range(DRAWS))
    return Spread(statistics.median(losses), medians[DRAWS // 40], medians[-DRAWS // 40])
