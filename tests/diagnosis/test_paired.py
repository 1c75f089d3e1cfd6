"""The decisions on pairs of runs, and how often they are right when the truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.discovery import FALSE_SHARE
from pinchpoint.diagnosis.paired import (
    MAX_PAIRS,
    MIN_PAIRS,
    Decision,
    Finding,
    Looks,
    forecast,
    judge,
    overall,
    pooled,
    primary_level,
    side_order,
)
from pinchpoint.diagnosis.spread import NOTHING, Spread, spread

EXPERIMENTS = 1000
CLAIMS = (Decision.HELPED, Decision.HURT)
IO500 = tuple(f"phase {number}" for number in range(12))
SCORE = "score"
RATIOS = st.lists(st.floats(-3, 3), max_size=12)


def conducted(
    draw: random.Random, gain: float, noise: float, pairs: int, figures: tuple[str, ...] = (), effect: float = 0.05
) -> tuple[Mapping[str, Finding], int]:
    """Return what an experiment finds that ends as soon as its score is decided, and after how many pairs.

    `gain` is that of the score; `noise` the standard deviation of a run's logarithm, half of whose variance all of its
    figures share.
    """
    looks = Looks(pairs)
    ratios: dict[str, list[float]] = {SCORE: [], **{figure: [] for figure in figures}}
    for done in range(1, pairs + 1):
        shared = draw.gauss(0, noise)
        for figure, values in ratios.items():
            values.append(shared + draw.gauss(0, noise) + (math.log1p(gain) if figure == SCORE else 0))
        if done in looks.shares:
            found = judge(ratios, looks, {SCORE}, effect)
            if found[SCORE].decision is not Decision.UNDECIDED:
                break
    return found, done


@pytest.mark.parametrize("figures", [(), IO500], ids=["one figure", "score and twelve phases"])
@pytest.mark.parametrize("pairs", [4, 8, 16])
def test_of_experiments_in_which_nothing_changes_at_most_one_in_twenty_claims_anything(
    pairs: int, figures: tuple[str, ...]
) -> None:
    draw = random.Random(22)

    false = sum(
        any(finding.decision in CLAIMS for finding in conducted(draw, 0.0, 0.05, pairs, figures)[0].values())
        for _ in range(EXPERIMENTS)
    )

    # With a single look the rate is 5 % exactly: what is drawn may exceed it by two standard errors.
    exact = 2 * math.sqrt(FALSE_SHARE * (1 - FALSE_SHARE) / EXPERIMENTS) if pairs == 4 else 0
    assert false / EXPERIMENTS <= FALSE_SHARE + exact


@pytest.mark.parametrize("figures", [(), IO500], ids=["one figure", "score and twelve phases"])
@pytest.mark.parametrize("noise", [0.02, 0.05])
def test_a_gain_of_ten_percent_is_found_with_the_pairs_forecast_for_five(
    noise: float, figures: tuple[str, ...]
) -> None:
    draw = random.Random(22)
    pairs = forecast(Spread(2 * noise**2, 15.0), 0.05, primary_level(1, 1 + len(figures)))

    assert pairs is not None
    found = [conducted(draw, 0.10, noise, pairs, figures) for _ in range(EXPERIMENTS)]

    assert sum(findings[SCORE].decision is Decision.HELPED for findings, _ in found) >= 0.95 * EXPERIMENTS
    assert sum(done for _, done in found) < 0.75 * pairs * EXPERIMENTS  # it need not wait for all of them


@pytest.mark.parametrize("figures", [(), IO500], ids=["one figure", "score and twelve phases"])
@pytest.mark.parametrize("earlier", [4, 8, 24])
def test_a_gain_of_three_percent_is_found_with_the_pairs_forecast_from_earlier_pairs(
    earlier: int, figures: tuple[str, ...]
) -> None:
    draw = random.Random(22)
    noise, effect, found = 0.02, 0.03, 0

    for _ in range(EXPERIMENTS):
        known = spread([[math.exp(draw.gauss(0, noise * math.sqrt(2))) for _ in range(earlier)]])
        pairs = forecast(known, effect, primary_level(1, 1 + len(figures))) or MAX_PAIRS
        findings, _ = conducted(draw, effect, noise, pairs, figures, effect)
        found += findings[SCORE].decision is Decision.HELPED

    assert found >= 0.80 * EXPERIMENTS


@pytest.mark.parametrize(("gain", "most"), [(0.05, 0.05), (0.0, 1.0), (-0.02, 1.0)])
def test_a_gain_of_the_size_asked_for_is_wrongly_excluded_in_at_most_one_of_twenty(gain: float, most: float) -> None:
    draw = random.Random(22)

    excluded = sum(conducted(draw, gain, 0.02, 12)[0][SCORE].decision is Decision.NO_GAIN for _ in range(EXPERIMENTS))

    assert excluded <= most * EXPERIMENTS
    assert gain == 0.05 or excluded > EXPERIMENTS / 2


def test_intervals_contain_the_truth_in_nineteen_of_twenty_experiments() -> None:
    draw = random.Random(22)

    outside = 0
    for _ in range(EXPERIMENTS):
        interval = conducted(draw, 0.04, 0.03, 12)[0][SCORE].interval
        assert interval is not None
        outside += not interval[0] <= 0.04 <= interval[1]

    assert outside <= 0.05 * EXPERIMENTS


def test_the_order_balances_a_drift() -> None:
    assert side_order(4) == "ABBABAAB"
    assert side_order(6) == "ABBABAABABBA"
    for pairs in (4, 8, 16):
        order = side_order(pairs)
        drift = [place for place, side in enumerate(order) if side == "B"]
        assert sum(drift) == sum(range(2 * pairs)) - sum(drift)
        assert {order[place : place + 2] for place in range(0, 2 * pairs, 2)} == {"AB", "BA"}


@given(st.integers(2, 32).map(lambda half: 2 * half))
def test_the_looks_share_the_whole_error_and_end_with_the_last_pair(pairs: int) -> None:
    shares = Looks(pairs).shares

    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares) == pairs
    assert all(place % 2 == 0 for place in shares)


@given(st.dictionaries(st.sampled_from([SCORE, "a", "b"]), RATIOS))
def test_any_pairs_give_a_decision_that_agrees_with_the_interval(ratios: dict[str, list[float]]) -> None:
    for figure, finding in judge(ratios, Looks(8), {SCORE}, 0.05).items():
        assert (finding.interval is None) == (len(ratios[figure]) < 4)
        if finding.interval is None:
            assert finding.decision is Decision.UNDECIDED
        else:
            low, high = finding.interval
            assert low <= high
            assert (finding.decision is Decision.HELPED) == (low > 0)
            assert (finding.decision is Decision.HURT) == (high < 0)


def test_a_figure_of_which_less_is_better_is_helped_by_less() -> None:
    ratios = {"seconds": [-0.2, -0.21, -0.19, -0.2]}

    assert judge(ratios, Looks(4), {"seconds"}, 0.05)["seconds"].decision is Decision.HURT
    assert judge(ratios, Looks(4), {"seconds"}, 0.05, ["seconds"])["seconds"].decision is Decision.HELPED


def test_equal_figures_have_an_interval_without_width() -> None:
    assert judge({"a": [0.0] * 4}, Looks(4), {"a"}, 0.05)["a"] == Finding(4, 0.0, (0.0, 0.0), Decision.NO_GAIN)


@pytest.mark.parametrize(
    ("decisions", "together"),
    [
        ([], Decision.UNDECIDED),
        ([Decision.NO_GAIN, Decision.NO_GAIN], Decision.NO_GAIN),
        ([Decision.NO_GAIN, Decision.UNDECIDED], Decision.UNDECIDED),
        ([Decision.NO_GAIN, Decision.HELPED], Decision.HELPED),
        ([Decision.NO_GAIN, Decision.HURT], Decision.HURT),
        ([Decision.HELPED, Decision.HURT], Decision.MIXED),
    ],
)
def test_several_figures_are_decided_together(decisions: list[Decision], together: Decision) -> None:
    assert overall(decisions) is together


def test_the_forecast_grows_with_the_noise_and_knows_its_limits() -> None:
    pairs = partial(forecast, level=0.05)

    assert pairs(Spread(2 * 0.005**2, 20.0), 0.05) == 4
    assert pairs(Spread(2 * 0.02**2, 20.0), 0.05) == 8
    assert pairs(Spread(2 * 0.05**2, 20.0), 0.05) == 28
    assert pairs(Spread(2 * 0.2**2, 20.0), 0.05) is None
    assert pairs(NOTHING, 0.05) is None
    assert pairs(Spread(0.0, 3.0), 0.05) == MIN_PAIRS, "repeats that were alike"
    assert pairs(Spread(math.inf, 3.0), 0.05) is None


def test_spreads_are_pooled_by_their_degrees_of_freedom() -> None:
    assert pooled([Spread(1.0, 1.0), Spread(4.0, 2.0), NOTHING, Spread(math.inf, 1.0)]) == Spread(3.0, 3.0)
    assert pooled([]) == NOTHING
