from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations, product
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.trend import MIN_LEVEL_RUNS, MIN_TREND_RUNS, _cut, change_points, trends
from pinchpoint.runs import PhaseMark, Result, RunState


def run(number: int, score: float, **phases: float) -> RunState:
    marks = [
        PhaseMark(name, 0.0, 300.0, [Result("write", "bytes_per_second", value)]) for name, value in phases.items()
    ]
    return RunState(f"r{number}", "io500", 86400.0 * number, phases=marks, scores=[Result("total", "score", score)])


def noise(chance: random.Random, count: int, *, level: float = 0.0, deviation: float = 0.03) -> list[float]:
    return [chance.gauss(level, deviation) for _ in range(count)]


def test_of_equal_series_no_more_than_one_in_twenty_is_divided() -> None:
    chance = random.Random(1)
    divided = sum(bool(change_points(noise(chance, chance.choice([8, 12, 20, 40])), 0.05)) for _ in range(300))

    assert divided <= 24  # more would be seen once in 100 tries if the rate were 5 %


def test_a_gain_of_ten_percent_after_ten_runs_is_found_where_it_began() -> None:
    found = 0
    for seed in range(100):
        chance = random.Random(seed)
        cuts = change_points([*noise(chance, 10), *noise(chance, 10, level=0.095)], 0.05)
        found += any(abs(cut - 10) <= 1 for cut in cuts)
    assert found >= 95


def test_several_changes_are_found() -> None:
    chance = random.Random(3)
    values = [*noise(chance, 10), *noise(chance, 12, level=0.5), *noise(chance, 9, level=0.2)]

    assert change_points(values, 0.05) == [10, 22]


@pytest.mark.parametrize("values", [[], [1.0], [0.0] * 3 + [9.0] * 3, [5.0] * 20])
def test_few_runs_and_equal_runs_have_no_change(values: list[float]) -> None:
    assert len(values) < MIN_TREND_RUNS or len(set(values)) == 1
    assert change_points(values, 0.05) == []


def test_a_phase_changes_at_a_run_that_may_lack_others() -> None:
    chance = random.Random(2)
    runs = []
    for number in range(24):
        phases = {
            "find": (2.0 if number >= 12 else 1.0) * chance.gauss(1, 0.02),
            "ior_easy_write": chance.gauss(9, 0.2),
        }
        if number == 5:
            del phases["find"]
        runs.append(run(number, chance.gauss(8, 0.2), **phases))

    score, find, write = trends(runs)

    assert (score.key.score, score.changes) == (True, [])
    assert find.key.phase == "find"
    ((place, change),) = find.changes
    assert place == 12
    assert change == pytest.approx(1.0, abs=0.05)
    assert [len(level.values) for level in find.levels] == [11, 12]
    assert write.changes == []


def test_the_same_runs_have_the_same_trend() -> None:
    chance = random.Random(4)
    runs = [run(number, chance.gauss(8, 1), find=chance.gauss(5, 1)) for number in range(30)]

    assert trends(runs) == trends(runs)


@given(st.lists(st.floats(1e-9, 1e15), max_size=16))
def test_levels_hold_every_figure_once_and_in_order(values: list[float]) -> None:
    found = trends([run(number, value) for number, value in enumerate(values)])

    assert [value for trend in found for level in trend.levels for value in level.values] == values
    for trend in found:
        assert len(trend.levels) == 1 or min(len(level.values) for level in trend.levels) >= MIN_LEVEL_RUNS


def energy_distance(first: list[float], second: list[float]) -> float:
    """Return the scaled distance by its definition (Matteson and James 2014, equations 3 to 5)."""

    def mean(pairs: Iterable[tuple[float, float]]) -> float:
        return fmean([abs(one - other) for one, other in pairs])

    between = 2 * mean(product(first, second))
    within = mean(combinations(first, 2)) + mean(combinations(second, 2))
    return len(first) * len(second) / (len(first) + len(second)) * (between - within)


@given(st.lists(st.integers(0, 50).map(float), min_size=2 * MIN_LEVEL_RUNS, max_size=14))
def test_a_series_is_divided_where_both_parts_differ_most(values: list[float]) -> None:
    places = range(MIN_LEVEL_RUNS, len(values) - MIN_LEVEL_RUNS + 1)
    distances = {place: energy_distance(values[:place], values[place:]) for place in places}

    cut, distance = _cut(values)

    most = max(distances.values())
    assert distance == pytest.approx(max(0.0, most), abs=1e-9)
    assert cut == 0 or distances[cut] == pytest.approx(most, abs=1e-9)


def test_eight_runs_are_enough_and_seven_are_not() -> None:
    assert change_points([0.0] * 3 + [9.0] * 5, 0.05) == [3]
    assert change_points([0.0] * 3 + [9.0] * 4, 0.05) == []


def test_a_figure_of_zero_is_no_figure() -> None:
    assert trends([run(number, 0.0, find=float(number)) for number in range(3)])[0].levels[0].values == (1.0, 2.0)
