from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spread import Spread, difference, spread

RATES = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=30)


def test_few_measurements_have_their_range() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_many_have_their_quartiles_so_that_an_outlier_says_nothing() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 1000.0]) == Spread(3.0, 2.0, 4.0)


def test_a_spread_is_shown_with_its_median_first() -> None:
    assert Spread(2.0, 1.5, 2.25).text() == "2.00 (1.50 to 2.25)"


@given(RATES)
def test_the_median_lies_in_the_spread(values: list[float]) -> None:
    found = spread(values)

    assert found.low <= found.median <= found.high


def test_a_loss_is_by_how_much_the_second_of_each_pair_is_less() -> None:
    assert difference([100.0, 200.0, 50.0], [98.0, 196.0, 49.0]) == pytest.approx((2.0, 2.0, 2.0))


def test_what_both_of_a_pair_share_is_no_loss() -> None:
    # The machine gets slower and slower; both values of a pair have the same time.
    found = difference([100.0, 80.0, 60.0, 40.0], [100.0, 80.0, 60.0, 40.0])

    assert found == Spread(0.0, 0.0, 0.0)


def test_a_gain_is_a_negative_loss() -> None:
    assert difference([100.0], [101.0]).median == pytest.approx(-1.0)


def test_pairs_that_disagree_have_a_wide_interval() -> None:
    close = difference([100.0] * 10, [99.0, 98.9] * 5)
    wide = difference([100.0] * 10, [90.0, 108.0] * 5)

    assert wide.high - wide.low > 10 * (close.high - close.low)
    assert wide.low < 0 < wide.high


@given(RATES)
def test_the_same_measurements_give_the_same_interval(values: list[float]) -> None:
    halves = [value / 2 for value in values]

    assert difference(values, halves) == difference(values, halves) == pytest.approx((50.0, 50.0, 50.0))


def test_a_pair_needs_both() -> None:
    with pytest.raises(ValueError, match="shorter"):
        difference([1.0, 2.0], [1.0])
