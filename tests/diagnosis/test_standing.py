from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.io500_plan import SHELL_PHASES
from pinchpoint.benchmarks.io500_public import TOTAL, PublicRun
from pinchpoint.diagnosis.standing import Place, Stand, standing

PHASE = "mdtest_hard_stat"


def public(value: float, nodes: int | None = None, figures: Mapping[str, float] | None = None) -> PublicRun:
    return PublicRun("SITE/SYSTEM/CephFS/2025/submission-1", nodes, {PHASE: value, **(figures or {})})


def stand(value: float, nodes: int | None, runs: list[PublicRun], kin: list[PublicRun] | None = None) -> Stand:
    (found,) = standing({PHASE: value}, nodes, runs, runs if kin is None else kin)
    return found


def test_a_place_is_the_share_of_lower_figures_and_half_of_the_equal_ones() -> None:
    found = stand(20.0, None, [public(10.0), public(20.0), public(30.0), public(40.0)])

    assert found.among_all == Place(runs=4, below=0.375, median=25.0)
    assert found.among_all_per_node is None


def test_per_node_only_runs_with_known_nodes_count() -> None:
    found = stand(20.0, 2, [public(30.0, nodes=10), public(30.0, nodes=1), public(5.0)])

    assert found.among_all == Place(3, 1 / 3, 30.0)
    assert found.among_all_per_node == Place(2, 0.5, 16.5)


def test_the_gain_is_the_scores_with_the_median_of_the_same_file_system() -> None:
    kin = [public(value) for value in (30.0, 40.0, 80.0)]

    assert stand(20.0, None, [public(10.0), *kin], kin).gain == pytest.approx(2 ** (1 / 16) - 1)
    assert stand(40.0, None, [public(10.0), *kin], kin).gain is None
    assert stand(20.0, None, kin, []).gain is None


def test_with_nodes_the_gain_is_that_of_the_figures_per_node() -> None:
    kin = [public(40.0, nodes=10), public(400.0, nodes=10)]

    found = stand(11.0, 1, kin)

    assert found.among_kin == Place(2, 0.0, 220.0)
    assert found.gain == pytest.approx(2 ** (1 / 16) - 1)


def test_the_score_has_a_place_and_no_gain() -> None:
    figures, faster = {TOTAL: 2.0, PHASE: 1.0}, public(4.0, figures={TOTAL: 4.0})
    first, second = standing(figures, None, [faster], [faster])

    assert (first.figure, first.gain) == (TOTAL, None)
    assert second.gain == pytest.approx(4 ** (1 / 16) - 1)


def test_the_run_itself_is_not_among_the_others() -> None:
    figures = {name: 10.0 + number for number, name in enumerate(SHELL_PHASES)}
    itself = PublicRun(
        "SITE/SYSTEM/CephFS/2025/submission-2", 10, {name: value * 1.0001 for name, value in figures.items()}
    )
    other = PublicRun("SITE/SYSTEM/CephFS/2025/submission-1", 10, {name: 2 * value for name, value in figures.items()})

    assert {found.among_all and found.among_all.runs for found in standing(figures, 10, [itself, other], [itself])} == {
        1
    }
    assert {found.among_kin for found in standing(figures, 10, [itself, other], [itself])} == {None}


@given(st.lists(st.floats(1e-3, 1e12), min_size=1), st.floats(1e-3, 1e12), st.none() | st.integers(1, 10**6))
def test_a_share_is_between_0_and_1_and_a_gain_above_0(values: list[float], value: float, nodes: int | None) -> None:
    found = stand(value, nodes, [public(one, nodes=7) for one in values])

    for place in (found.among_all, found.among_kin_per_node):
        assert place is None or 0 <= place.below <= 1
    assert found.gain is None or found.gain > 0
