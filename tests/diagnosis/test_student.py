from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.student import chance, normal, power, quantile

DEGREES = st.integers(1, 60)


# SciPy takes a second to import, so the import is not at collection time.
def test_chance_and_quantile_are_scipys() -> None:
    from scipy.stats import norm, t

    for degrees in (1, 2, 3, 4, 5, 8, 15, 30, 61):
        for value in (0.0, 0.1, 1.0, 2.5, 7.0, 40.0):
            assert chance(value, degrees) == pytest.approx(2 * t.sf(value, degrees), rel=1e-6, abs=1e-14)
        for level in (0.5, 0.05, 0.0125, 1e-3, 1e-5):
            assert quantile(level, degrees) == pytest.approx(t.isf(level / 2, degrees), rel=1e-6)
    for value in (-3.0, 0.0, 1.5):
        assert normal(value) == pytest.approx(norm.cdf(value))


def test_the_power_is_within_two_points_of_scipys() -> None:
    from scipy.stats import nct, t

    for degrees in (3, 7, 15, 31):
        for level in (0.05, 0.0375):
            for shift in (1.0, 2.5, 4.0, 6.0):
                exact = nct.sf(t.isf(level / 2, degrees), degrees, shift)
                assert power(shift, level, degrees) == pytest.approx(exact, abs=0.02)


@given(st.floats(0, 1e300), DEGREES)
def test_a_chance_is_a_probability_and_falls_with_the_difference(value: float, degrees: int) -> None:
    found = chance(value, degrees)

    assert 0 <= found <= 1
    assert chance(-value, degrees) == found
    assert chance(value * 1.5 + 0.1, degrees) <= found + 1e-12


@given(st.floats(1e-9, 1), DEGREES)
def test_a_quantile_is_exceeded_as_often_as_it_says(level: float, degrees: int) -> None:
    assert chance(quantile(level, degrees), degrees) == pytest.approx(level, rel=1e-6, abs=1e-12)


def test_what_is_infinite_is_no_chance_and_no_level_is_not_searched_forever() -> None:
    assert chance(math.inf, 3) == 0
    assert quantile(0.0, 1) == quantile(0.0, 1) < math.inf
