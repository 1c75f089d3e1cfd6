"""Outliers among peers: ranks, OSDs, links or disks that do the same work.

Median and median absolute deviation are not moved by the outlier itself, unlike mean and standard deviation (F. R.
Hampel, The influence curve and its role in robust estimation, 1974, doi:10.1080/01621459.1974.10482962).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

__all__ = ["MIN_PEERS", "is_above", "is_below", "slower"]

MIN_PEERS = 5
"""Peers from which their deviation says what is usual; of fewer, one is an outlier at twice or half the median."""
MAX_DEVIATIONS = 5.0
"""Standard deviations, estimated from the median absolute deviation, that chance explains: by a normal distribution
one of 3.5 million peers is farther off on one side; real ones have heavier tails."""
NORMAL_RATIO = 1.4826
"""Standard deviation of a normal distribution relative to its median absolute deviation."""


def is_below(value: float, middle: float, deviation: float, number: int) -> bool:
    """Return whether a value is below those of its `number` peers, itself included, by more than chance explains.

    `middle` is their median and `deviation` their median absolute deviation.
    """
    if number < MIN_PEERS:
        return value < middle / 2
    return middle - value > MAX_DEVIATIONS * NORMAL_RATIO * deviation


def is_above(value: float, middle: float, deviation: float, number: int) -> bool:
    """Return whether a value is above those of its peers: see `is_below`."""
    if number < MIN_PEERS:
        return value > 2 * middle
    return value - middle > MAX_DEVIATIONS * NORMAL_RATIO * deviation


def slower(times: Mapping[str, float], least: float) -> dict[str, tuple[float, float]]:
    """Return the peers that need more time than the others, with their times and the median, the slowest first.

    `least` is the time relative to the median from which it matters. Fewer than three peers cannot say who is unusual.
    """
    if len(times) < 3:
        return {}
    middle = median(times.values())
    deviation = median(abs(time - middle) for time in times.values())
    found = {
        name: (time, middle)
        for name, time in times.items()
        if time > least * middle and is_above(time, middle, deviation, len(times))
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0])))
