"""How much repeats of a figure differ, estimated from few of them.

Two repeats say little about their spread: alone they would have to differ from a third run by 11 times their distance
to exclude chance. The other figures of the same runs say more. The variance of each figure is therefore moderated by
those of all: G. K. Smyth, Linear models and empirical Bayes methods (2004), doi:10.2202/1544-6115.1027. The more
similar their spreads, the more one figure learns from the others.

All of this is about logarithms: figures of different units and sizes have a common scale there, and a ratio is a
difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from pinchpoint.diagnosis.student import chance, quantile

__all__ = ["LEVEL", "NOTHING", "Spread", "half_width", "moderated", "prior", "ratio_chance", "spread"]

LEVEL = 0.05
"""Probability with which an interval misses the truth, if nothing else is said."""
MAX_DEGREES = 30
"""Degrees of freedom from which more are not counted: an interval is then a bit too wide."""
# SciPy has the two functions of gamma below; the tests compare them with its. See `pinchpoint.diagnosis.student`.
MIN_FIGURES = 4
"""Number of figures from which each learns from the others: fewer do not show how similar their spreads are."""
MIN_ASYMPTOTIC = 6.0
"""From here the asymptotic series below are exact to eight digits."""


class Spread(NamedTuple):
    """What is known about a figure's variation between repeats."""

    variance: float
    """Variance of its logarithm; infinite if a figure is not above 0."""
    degrees: float
    """Degrees of freedom of the variance; 0: nothing is known."""


NOTHING = Spread(0.0, 0.0)


def spread(groups: Iterable[Sequence[float]]) -> Spread:
    """Return how the figures of each group vary around the group's own mean, over all groups."""
    squares, degrees = 0.0, 0
    for values in groups:
        if len(values) > 1:
            mean = fmean(values)
            # Ratios, so that the unit has no effect, not even on the last digit.
            known = min(values) > 0 and min(values) / mean > 0
            own = variance([math.log(value / mean) for value in values]) if known else math.inf
            squares += own * (len(values) - 1)
            degrees += len(values) - 1
    return Spread(squares / degrees, float(degrees)) if degrees else NOTHING


def prior(spreads: Iterable[Spread]) -> Spread:
    """Return what the spreads of a run's figures say about any one of them (section 6.2 of the paper)."""
    used = [found for found in spreads if found.degrees > 0 and 0 < found.variance < math.inf]
    if len(used) < MIN_FIGURES:
        return NOTHING
    logs = [math.log(found.variance) - _digamma(found.degrees / 2) + math.log(found.degrees / 2) for found in used]
    excess = variance(logs) - fmean(_trigamma(found.degrees / 2) for found in used)
    most = sum(found.degrees for found in used)
    if excess <= _trigamma(most / 2):  # they differ no more than if all had the same variance
        return Spread(math.exp(fmean(logs)), most)
    half = _inverse_trigamma(excess)
    return Spread(math.exp(fmean(logs) + _digamma(half) - math.log(half)), 2 * half)


def moderated(own: Spread, others: Spread) -> Spread:
    """Return a figure's spread, given what the figures of the same runs say about it."""
    degrees = own.degrees + others.degrees
    if not own.degrees:
        return NOTHING
    return Spread((own.degrees * own.variance + others.degrees * others.variance) / degrees, degrees)


def half_width(found: Spread, first: int, second: int, level: float = LEVEL) -> float | None:
    """Return the half-width of the interval of the logarithm of a ratio of two means, of so many runs each.

    The interval misses the truth with probability `level`. None if nothing is known about the spread.
    """
    if not found.degrees:
        return None
    return quantile(level, _whole_degrees(found)) * _error(found, first, second)


def ratio_chance(found: Spread, log_ratio: float, first: int, second: int) -> float:
    """Return how likely two means of so many runs each differ by at least this by chance; 1 if nothing is known."""
    if not found.degrees:
        return 1.0
    if error := _error(found, first, second):
        return chance(log_ratio / error, _whole_degrees(found))
    return 0.0 if log_ratio else 1.0


def _whole_degrees(found: Spread) -> int:
    return max(1, min(int(found.degrees), MAX_DEGREES))


def _error(found: Spread, first: int, second: int) -> float:
    """Return the standard error of the logarithm of the ratio."""
    return math.sqrt(found.variance * (1 / first + 1 / second))


def _digamma(x: float) -> float:
    """Return the derivative of log gamma (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    shift = 0.0
    while x < MIN_ASYMPTOTIC:
        shift -= 1 / x
        x += 1
    square = 1 / x**2
    return shift + math.log(x) - 1 / (2 * x) - square * (1 / 12 - square * (1 / 120 - square / 252))


def _trigamma(x: float) -> float:
    """Return the derivative of `_digamma` (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    shift = 0.0
    while x < MIN_ASYMPTOTIC:
        shift += 1 / x**2
        x += 1
    square = 1 / x**2
    return shift + 1 / x + square / 2 + square / x * (1 / 6 - square * (1 / 30 - square / 42))


def _inverse_trigamma(value: float) -> float:
    """Return where `_trigamma`, which is decreasing, has a given value above 0."""
    low, high = 1e-3, 1e6
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return high
