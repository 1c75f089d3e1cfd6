from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.pace import MAX_POINTS, MIN_POINTS, Pace


def paced(*work: float, every: float = 1.0) -> Pace:
    pace = Pace()
    for step, done in enumerate(work):
        pace.reaches(step * every, done)
    return pace


def test_nothing_is_known_before_anything_was_told() -> None:
    assert Pace().moved is None
    assert Pace().second_half is None


def test_work_that_grows_moves() -> None:
    assert paced(0, 1, 2, 2, 2).moved == 2


def test_work_that_is_told_for_the_first_time_moves() -> None:
    assert paced(7, 7, 7).moved == 0


def test_work_that_shrinks_counts_as_what_it_was() -> None:
    pace = paced(0, 10, 4, 8, 10)

    assert pace.moved == 1
    pace.reaches(5, 11)
    assert pace.moved == 5


def test_an_even_phase_has_equal_halves() -> None:
    assert paced(*range(0, 100, 5)).second_half == pytest.approx(1.0)


def test_a_phase_that_slows_down_to_half_shows_it() -> None:
    assert paced(*range(0, 100, 10), *range(100, 155, 5)).second_half == pytest.approx(0.5, rel=0.1)


def test_a_phase_that_stopped_in_the_middle_shows_it() -> None:
    assert paced(*range(11), *[10] * 10).second_half == pytest.approx(0.0)


def test_few_points_say_nothing_of_halves() -> None:
    assert paced(*range(MIN_POINTS - 1)).second_half is None
    assert paced(*range(MIN_POINTS)).second_half is not None


def test_what_is_told_all_at_once_says_nothing_of_halves() -> None:
    assert paced(*range(100), every=0.0).second_half is None


def test_a_phase_that_did_nothing_in_its_first_half_can_not_be_compared() -> None:
    assert paced(*[0] * 20, 1).second_half is None


def test_a_clock_that_is_set_back_stands_still() -> None:
    pace = paced(*range(20))
    for work in range(20, 40):
        pace.reaches(3.0, work)

    assert pace.moved == 19
    assert pace.second_half is not None


def test_rates_are_work() -> None:
    pace = Pace()
    for second in range(20):
        pace.flows(second, 100.0 if second < 10 else 25.0)

    assert pace.second_half == pytest.approx(0.25, rel=0.1)
    assert pace.moved == 19


def test_a_rate_of_zero_does_not_move() -> None:
    pace = Pace()
    for second, rate in enumerate([5.0, 5.0, 0.0, 0.0, -1.0]):
        pace.flows(second, rate)

    assert pace.moved == 1


def test_a_long_phase_is_kept_in_few_points_and_seen_as_well() -> None:
    pace = Pace()
    for second in range(20_000):
        pace.reaches(second, min(second, 10_000) + max(second - 10_000, 0) * 0.3)

    assert pace.second_half == pytest.approx(0.3, rel=0.02)
    assert len(pace._times) == len(pace._done) <= MAX_POINTS


@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(-1e6, 1e12), st.floats(allow_nan=False, min_value=-1e300, max_value=1e300)),
        max_size=600,
    )
)
def test_any_times_and_figures_are_taken_in(told: list[tuple[bool, float, float]]) -> None:
    pace = Pace()
    for rate, now, figure in told:
        (pace.flows if rate else pace.reaches)(now, figure)
        assert pace.moved is not None
        half = pace.second_half
        assert half is None or half >= 0 or math.isnan(half)
    assert len(pace._times) <= MAX_POINTS
