"""Student's t: how likely a difference is by chance, and how large one has to be.

SciPy has these functions, but would take 143 MB on every host with its libraries. The tests compare the two.
"""

from __future__ import annotations

import math
from functools import cache

__all__ = ["chance", "normal", "power", "quantile"]

PRECISION = 1e-12
"""Relative precision of a quantile."""
MAX_QUANTILE = 2.0**40
"""Largest quantile: with one degree of freedom, this is exceeded by chance once in 10^12 times."""


def chance(t: float, degrees: int) -> float:
    """Return how likely a value of at least `t` in size is by chance: the two-sided p-value, for 1 or more degrees.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    if math.isinf(t):
        return 0.0
    angle = math.atan2(abs(t), math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, cosine if degrees > 1 else 0.0) if odd else (1.0, 1.0)
    for place in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine**2 * (place - 1) / place
        total += term
    inside = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return max(0.0, 1.0 - inside)


@cache
def quantile(level: float, degrees: int) -> float:
    """Return the value that is exceeded in size with probability `level` by chance."""
    low, high = 0.0, 1.0
    while chance(high, degrees) > level:
        low, high = high, high * 2
        if high >= MAX_QUANTILE:
            return MAX_QUANTILE
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle, degrees) > level else (low, middle)
        if middle in (low, high) and math.nextafter(low, high) == high:
            break
    return high


def normal(z: float) -> float:
    """Return the probability that a standard normal value is below `z`."""
    return math.erfc(-z / math.sqrt(2)) / 2


def power(shift: float, level: float, degrees: int) -> float:
    """Return how likely t exceeds its quantile if its mean is shifted by `shift` standard errors.

    The approximation of N. L. Johnson and B. L. Welch, Applications of the non-central t-distribution, Biometrika 31
    (1940) (Abramowitz and Stegun, 26.7.10).
    """
    critical = quantile(level, degrees)
    return normal((shift - critical * (1 - 1 / (4 * degrees))) / math.sqrt(1 + critical**2 / (2 * degrees)))
