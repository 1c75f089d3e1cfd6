from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.discovery import FALSE_SHARE, levels

CHANCES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def claimed(chances: list[float], weights: list[float] | None = None) -> int:
    return sum(chance <= level for chance, level in zip(chances, levels(chances, weights), strict=True))


def test_one_figure_alone_is_tested_at_its_own_level() -> None:
    assert levels([0.04]) == [FALSE_SHARE]
    assert levels([]) == []


def test_the_claims_are_those_of_benjamini_and_hochberg() -> None:
    """The example of their paper: 15 comparisons, and 4 of them are claimed."""
    chances = [
        *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344),
        *(0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.000),
    ]

    assert claimed(chances) == 4
    assert levels(chances)[0] == pytest.approx(4 * FALSE_SHARE / 15)


def test_a_weight_makes_a_figure_easier_to_claim_and_the_others_harder() -> None:
    assert claimed([0.02, 0.9, 0.9, 0.9]) == 0
    assert claimed([0.02, 0.9, 0.9, 0.9], [2.5, 0.5, 0.5, 0.5]) == 1
    assert claimed([0.9, 0.01, 0.9, 0.9], [2.5, 0.5, 0.5, 0.5]) == 0


@given(CHANCES)
def test_scipy_adjusts_to_the_same_claims(chances: list[float]) -> None:
    from scipy.stats import false_discovery_control

    assert claimed(chances) == sum(false_discovery_control(chances) <= FALSE_SHARE)


def test_of_twelve_phases_in_which_nothing_changed_one_experiment_in_twenty_claims_one() -> None:
    draw = random.Random(1)

    false = sum(claimed([draw.random() for _ in range(12)]) > 0 for _ in range(4000))

    assert 0.04 < false / 4000 < 0.06
