from __future__ import annotations

import math

import pytest

from experiment.made import experiment, trial
from pinchpoint.benchmarks.markers import Marker
from pinchpoint.diagnosis.comparison import Key
from pinchpoint.diagnosis.paired import Decision
from pinchpoint.experiment.results import forecast_of, next_side, outcome, primary_of, ratios_of
from pinchpoint.runs import Result
from pinchpoint.session.store import RunRecord

SCORE = Key("io500", "", 1, "total", "score")
FIND = Key("io500", "find", 1, "op", "operations_per_second")


def test_a_ratio_is_with_the_knob_over_without_whichever_came_first() -> None:
    found = ratios_of(experiment((1.1, 1.2)).trials)

    assert found[SCORE] == pytest.approx([math.log(1.1), math.log(1.2)])
    assert found[FIND] == pytest.approx(found[SCORE])


def test_a_figure_that_a_pair_lacks_or_that_is_zero_is_left_out() -> None:
    pairs = [trial("A", 1.0, find=1.0), trial("B", 1.0), trial("B", 1.0, find=1.0), trial("A", 1.0, find=1.0)]

    assert ratios_of(pairs).keys() == {SCORE}
    assert ratios_of([trial("A", 0.0), trial("B", 1.0)]) == {}


def test_only_complete_pairs_count() -> None:
    made = experiment((1.1, 1.1))
    made.trials[-1].state = "failed"

    assert outcome(made).pairs == 1


@pytest.mark.parametrize(("expected", "primary"), [([], {SCORE}), (["find"], {FIND}), (["none"], set())])
def test_an_experiment_is_about_the_expected_phases_or_else_the_score(expected: list[str], primary: set[Key]) -> None:
    assert primary_of([SCORE, FIND], expected) == primary
    assert primary_of([FIND], []) == {FIND}


def test_the_decision_is_on_what_it_is_about() -> None:
    assert outcome(experiment((1.2, 1.21, 1.2, 1.19))).decision is Decision.HELPED
    assert outcome(experiment((0.8, 0.81, 0.8, 0.79))).decision is Decision.HURT
    assert outcome(experiment((1.0, 1.001, 0.999, 1.0))).decision is Decision.NO_GAIN
    assert outcome(experiment((1.0, 1.5, 0.7, 1.1))).decision is Decision.UNDECIDED
    assert outcome(experiment(())).decision is Decision.UNDECIDED


def test_nothing_stands_in_for_an_expected_figure_that_cannot_be_compared() -> None:
    made = experiment((1.2, 1.21, 1.2, 1.19))
    made.expected = ["find", "missing"]
    assert outcome(made).decision is Decision.UNDECIDED

    made = experiment(())
    made.trials = [trial(side, 1.0 if side == "A" else 1.5, find=0.0 if side == "B" else 100.0) for side in "ABBA" * 2]
    assert outcome(made).decision is not Decision.UNDECIDED, "about the score"
    made.expected = ["find"]
    assert outcome(made).decision is Decision.UNDECIDED


def test_repeats_in_jobs_of_a_batch_system_are_repeats() -> None:
    def record(score: float, job: str) -> RunRecord:
        scores = [Result("total", "score", score)]
        tags = {"job": job}
        marker = Marker(
            "r", "io500", 0.0, 1.0, state="finished", scores=scores, pid=0, pid_start=0, command_pid=0, tags=tags
        )
        return RunRecord(marker, ["io500"])

    repeats = [record(value, str(job)) for job, value in enumerate((10.0, 10.2, 9.9))]
    assert forecast_of(["io500"], [], 0.05, [], repeats).noise.degrees == 2


def test_the_runs_alternate_until_the_last_pair() -> None:
    made = experiment((1.0, 1.0, 1.0))

    assert next_side(made.trials, 4) == "A"
    assert next_side(experiment((1.0,) * 4).trials, 4) == ""


def test_the_forecast_learns_from_earlier_pairs_and_from_repeats_of_the_same_command() -> None:
    def record(score: float, *, command: str = "config.ini", **tags: str) -> RunRecord:
        scores = [Result("total", "score", score)]
        marker = Marker(
            "r", "io500", 0.0, 1.0, state="finished", scores=scores, pid=0, pid_start=0, command_pid=0, tags=tags
        )
        return RunRecord(marker, ["io500", command])

    command = ["io500", "config.ini"]
    repeats = [record(value) for value in (10.0, 10.2, 9.9, 10.1)]
    others = [record(20.0, command="other.ini"), record(30.0, experiment="x"), record(5.0, c6="off")]

    assert forecast_of(command, [], 0.05, [], []).pairs is None
    from_pairs = forecast_of(command, [], 0.05, [experiment((1.0, 1.02, 0.99, 1.01))], [])
    assert from_pairs.noise.degrees == 3
    assert from_pairs.pairs is not None
    from_runs = forecast_of(command, [], 0.05, [], [*repeats, *others])
    assert from_runs.noise.degrees == 3
    assert from_runs.noise.variance == pytest.approx(2 * 1.6e-4, rel=0.1)
    assert forecast_of(["io500", "new.ini"], [], 0.05, [experiment((1.0, 1.02))], repeats).noise.degrees == 0
