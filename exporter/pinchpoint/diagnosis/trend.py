"""When the results of repeated runs changed to another level: change points in a series of figures.

The method is E-divisive (Matteson and James, 2014, doi:10.1080/01621459.2013.849605), which MongoDB uses for the
results of its performance tests (Daly et al., 2020, doi:10.1145/3358960.3375791): the series is divided where the
energy distance between both parts is largest, a permutation test says whether that is chance, and each part is divided
again. Its libraries need NumPy, which this package does not have on every host.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from pinchpoint.diagnosis.comparison import Key, main_figures
from pinchpoint.runs import RunState

__all__ = ["MAX_TREND_RUNS", "MIN_TREND_RUNS", "Level", "Trend", "change_points", "trends"]

MIN_TREND_RUNS = 8
"""Fewest runs in which a change can be found: four before and four after differ by chance in 3 of 100 series."""
MAX_TREND_RUNS = 100
"""Runs that are looked at: the last ones; the time grows with the square of their number."""
MIN_LEVEL_RUNS = 3
"""Runs of a level at least."""
ERROR = 0.05
"""Chance that a series of equal runs is divided: of a score, and of all phases together."""


class Level(NamedTuple):
    """Runs of the same level."""

    first: int
    """The place of its first run among the runs."""
    values: tuple[float, ...]
    """In base units."""

    @property
    def mean(self) -> float:
        """The mean of its runs."""
        return fmean(self.values)


class Trend(NamedTuple):
    """One figure over the runs."""

    key: Key
    levels: tuple[Level, ...]
    """One if it did not change, or if there are too few runs."""

    @property
    def changes(self) -> list[tuple[int, float]]:
        """The place of the first run of each later level, and the change as a share of the level before."""
        return [(after.first, after.mean / before.mean - 1) for before, after in pairwise(self.levels)]


def trends(runs: Sequence[RunState]) -> list[Trend]:
    """Return the trend of the main figure of each phase, and of the scores first; runs are in order of time."""
    series: dict[Key, dict[int, float]] = {}
    for place, run in enumerate(runs):
        for key, value in main_figures(run).items():
            if value > 0:
                series.setdefault(key, {})[place] = value
    phases = sum(not key.score for key in series)
    found = [
        Trend(key, _levels(values, ERROR if key.score else ERROR / max(1, phases))) for key, values in series.items()
    ]
    return sorted(found, key=lambda trend: not trend.key.score)


def _levels(values: dict[int, float], error: float) -> tuple[Level, ...]:
    places = list(values)
    # By logarithms: a level that is 10 % higher has 10 % more noise.
    cuts = change_points([math.log(value) for value in values.values()], error)
    bounds = [0, *cuts, len(places)]
    return tuple(
        Level(places[first], tuple(values[place] for place in places[first:last])) for first, last in pairwise(bounds)
    )


def change_points(values: Sequence[float], error: float) -> list[int]:
    """Return the places at which another level begins; `error` is the chance that equal values have one."""
    if len(values) < MIN_TREND_RUNS:
        return []
    found: list[int] = []
    todo = [(0, len(values))]
    while todo:
        first, last = todo.pop()
        if last - first < 2 * MIN_LEVEL_RUNS:
            continue
        part = values[first:last]
        cut, distance = _cut(part)
        if cut and _is_change(part, distance, error):
            found.append(first + cut)
            todo += [(first, first + cut), (first + cut, last)]
    return sorted(found)


def _is_change(values: Sequence[float], distance: float, error: float) -> bool:
    """Return whether so large a distance is rare among random orders of the values, which are always the same ones."""
    orders = math.ceil(2 / error) - 1
    allowed = error * (orders + 1) - 1
    chance = random.Random(len(values))
    shuffled, larger = list(values), 0
    for _ in range(orders):
        chance.shuffle(shuffled)
        larger += _cut(shuffled)[1] >= distance * (1 - 1e-12)
        if larger > allowed:
            return False
    return True


def _cut(values: Sequence[float]) -> tuple[int, float]:
    """Return where both parts differ most, and their scaled energy distance (Matteson and James, equation 5)."""
    count = len(values)
    rows = [[abs(one - other) for other in values] for one in values]
    total = sum(map(sum, rows)) / 2
    best, cut = 0.0, 0
    inside, across = 0.0, 0.0
    for place in range(count - MIN_LEVEL_RUNS):
        # The value at `place` goes over to the first part.
        to_first = sum(rows[place][:place])
        inside += to_first
        across += sum(rows[place][place + 1 :]) - to_first
        first, second = place + 1, count - place - 1
        if first < MIN_LEVEL_RUNS:
            continue
        between = 2 * across / (first * second)
        within = 2 * inside / (first * (first - 1)) + 2 * (total - inside - across) / (second * (second - 1))
        distance = first * second / count * (between - within)
        if distance > best:
            best, cut = distance, first
    return cut, best
