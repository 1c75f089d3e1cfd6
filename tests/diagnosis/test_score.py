from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.comparison import Comparison, RunGroup, compare
from pinchpoint.diagnosis.score import score_factors
from pinchpoint.runs import PhaseMark, Result, RunState

BYTES, OPERATIONS = "bytes_per_second", "operations_per_second"
FIGURES = st.lists(st.floats(1e-3, 1e6), min_size=6, max_size=6)


def io500(*figures: float, score: float | None = None) -> RunState:
    """Return a run with two phases of bandwidth and four of operations."""
    units = [BYTES] * 2 + [OPERATIONS] * 4
    phases = [
        PhaseMark(f"p{place}", 0.0, 100.0, [Result("x", unit, value)])
        for place, (unit, value) in enumerate(zip(units, figures, strict=True))
    ]
    total = math.exp(sum(map(math.log, figures[:2])) / 4 + sum(map(math.log, figures[2:])) / 8)
    return RunState("r", "io500", 0.0, 1.0, phases=phases, scores=[Result("total", "score", score or total)])


def compared(base: RunState, *others: RunState) -> Comparison:
    return compare(RunGroup("a", (base,)), RunGroup("b", others))


def test_a_phase_multiplies_the_score_by_its_weight_in_the_mean() -> None:
    base = io500(1, 1, 1, 1, 1, 1)

    found = score_factors(compared(base, io500(16, 1, 1, 1, 1, 256)))

    assert [found[key] for key in found] == pytest.approx([2, 1, 1, 1, 1, 2])


def test_a_score_that_the_phases_do_not_explain_has_no_factors() -> None:
    base = io500(1, 1, 1, 1, 1, 1)

    assert score_factors(compared(base, io500(2, 1, 1, 1, 1, 1, score=9.0))) == {}
    assert score_factors(compared(base, RunState("r", "io500", 0.0, 1.0, scores=base.scores))) == {}
    assert score_factors(compared(base, io500(1, 1, 1, 1, 1, 1, score=-1.0))) == {}


def test_a_phase_that_measured_nothing_has_no_factors() -> None:
    base, none = io500(1, 1, 1, 1, 1, 1), io500(1, 1, 1, 1, 1, 1)
    none.phases[0].results = [Result("x", BYTES, 0.0)]

    assert score_factors(compared(base, none)) == {}


def test_runs_without_a_score_have_no_factors() -> None:
    run = io500(1, 1, 1, 1, 1, 1)
    run.scores = []

    assert score_factors(compared(run, run)) == {}


@given(FIGURES, FIGURES, FIGURES)
def test_the_factors_of_all_phases_are_the_change_of_the_score(
    first: list[float], second: list[float], third: list[float]
) -> None:
    base, others = io500(*first), [io500(*second), io500(*third)]

    found = score_factors(compared(base, *others))

    scores = math.sqrt(others[0].scores[0].value * others[1].scores[0].value)
    assert math.prod(found.values()) == pytest.approx(scores / base.scores[0].value)
