from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.diagnosis.spread import (
    NOTHING,
    Spread,
    _digamma,
    _inverse_trigamma,
    _trigamma,
    half_width,
    moderated,
    prior,
    spread,
)

SPREADS = st.lists(
    st.builds(Spread, st.floats(0, 1e6), st.integers(0, 20).map(float)), max_size=20
)  # fmt: skip


def test_repeats_vary_around_their_own_groups_mean_whatever_their_size() -> None:
    alone = spread([[10.0, 11.0]])

    assert alone.variance == pytest.approx(math.log(1.1) ** 2 / 2)
    assert alone.degrees == 1
    more = spread([[10.0, 11.0], [1000.0, 1100.0], [5.0]])
    assert more.variance == pytest.approx(alone.variance)
    assert more.degrees == 2


def test_without_repeats_nothing_is_known() -> None:
    assert spread([[10.0], [11.0]]) == NOTHING
    assert half_width(NOTHING, 1, 1) is None
    assert moderated(NOTHING, Spread(1.0, 5.0)) == NOTHING


def test_what_is_not_above_zero_has_no_logarithm_and_varies_without_limit() -> None:
    assert spread([[0.0, 1.0]]).variance == math.inf
    assert spread([[-1.0, 1.0]]).variance == math.inf
    assert spread([[5e-324, 1e300]]).variance == math.inf


def test_of_fewer_than_four_figures_nobody_learns_from_the_others() -> None:
    assert prior([Spread(1.0, 1.0)] * 3) == NOTHING
    assert prior([Spread(1.0, 1.0)] * 4) != NOTHING
    assert prior([Spread(1.0, 1.0)] * 3 + [Spread(0.0, 1.0), Spread(math.inf, 1.0), NOTHING]) == NOTHING


def test_figures_that_vary_alike_count_as_one_sample() -> None:
    found = prior([Spread(2.0, 4.0)] * 10)

    assert found.degrees == 40


def test_the_less_alike_figures_vary_the_less_one_learns_from_the_others() -> None:
    def degrees(step: float) -> float:
        return prior([Spread(math.exp(step * place), 4.0) for place in range(10)]).degrees

    found = [degrees(step) for step in (0.1, 0.5, 1.0, 2.0)]

    assert found == sorted(found, reverse=True)
    assert found[-1] < 2


def test_a_moderated_spread_lies_between_its_own_and_the_others() -> None:
    found = moderated(Spread(1.0, 1.0), Spread(4.0, 2.0))

    assert found == Spread(3.0, 3.0)


# SciPy takes a second to import and only this test needs it, so the import is not at collection time.
@given(st.floats(0.01, 1e6))
@example(1.4616321449683622)  # where digamma is 0
def test_the_derivatives_of_log_gamma_are_exact_to_eight_digits(x: float) -> None:
    from scipy.special import digamma, polygamma

    assert _digamma(x) == pytest.approx(digamma(x), rel=1e-8, abs=1e-8)
    assert _trigamma(x) == pytest.approx(polygamma(1, x), rel=1e-8)
    assert _inverse_trigamma(float(polygamma(1, x))) == pytest.approx(x, rel=1e-7)


def test_the_half_width_is_students() -> None:
    # 0.975 quantiles: 12.706 with one degree of freedom, 2.228 with ten, 1.96 with very many.
    assert half_width(Spread(1.0, 1.0), 1, 1) == pytest.approx(12.7062 * math.sqrt(2))
    assert half_width(Spread(4.0, 10.5), 4, 4) == pytest.approx(2.22814 * 2 * math.sqrt(0.5))
    assert half_width(Spread(1.0, 1e9), 1, 1) == pytest.approx(1.96 * math.sqrt(2), rel=0.05)
    assert half_width(Spread(1.0, 1.0), 1, 1, 0.01) == pytest.approx(63.6567 * math.sqrt(2))
    assert half_width(Spread(1.0, 0.5), 1, 1) == half_width(Spread(1.0, 1.0), 1, 1)


@pytest.mark.parametrize(("first", "second", "reference"), [(2, 1, 0), (1, 1, 2), (2, 2, 0), (3, 2, 0), (3, 3, 0)])
@pytest.mark.parametrize("figures", [1, 4, 15])
@pytest.mark.parametrize("unlike", [0.0, 1.0])
def test_where_nothing_was_changed_one_figure_in_twenty_is_outside_the_interval(
    first: int, second: int, reference: int, figures: int, unlike: float
) -> None:
    chance = random.Random(4)
    sizes = (first, second, reference)
    outside, looked = 0, 0
    while looked < 1200:
        scatters = [0.05 * math.exp(chance.gauss(0, unlike)) for _ in range(figures)]
        groups = [[_repeats(chance, scatter, size) for size in sizes] for scatter in scatters]
        spreads = [spread(found) for found in groups]
        others = prior(spreads)
        for found, own in zip(groups, spreads, strict=True):
            half = half_width(moderated(own, others), first, second)
            assert half is not None
            difference = fmean(map(math.log, found[0])) - fmean(map(math.log, found[1]))
            outside += abs(difference) > half
            looked += 1

    assert outside / looked < 0.075


def _repeats(chance: random.Random, scatter: float, number: int) -> Sequence[float]:
    return [100 * math.exp(chance.gauss(0, scatter)) for _ in range(number)]


@given(SPREADS, SPREADS)
def test_any_spreads_give_a_width_or_nothing(first: list[Spread], second: list[Spread]) -> None:
    others = prior(first)

    assert others.degrees >= 0
    assert 0 <= others.variance < math.inf
    for own in second:
        half = half_width(moderated(own, others), 1, 2)
        assert (half is None) == (own.degrees == 0)
        assert half is None or half >= 0
