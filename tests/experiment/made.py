"""Experiments made up for tests."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.experiment.knob import KnobCommands
from pinchpoint.experiment.ledger import Experiment, Trial, TrialFigure
from pinchpoint.runs import LimitMark, VerdictMark

__all__ = ["LOCK", "START", "experiment", "trial"]

START = 1_700_000_000.0
LOCK = VerdictMark("resource", (LimitMark("mds_lock", "mds.a", 0.82),))


def trial(side: str, score: float, verdict: VerdictMark | None = LOCK, **phases: float) -> Trial:
    """Return a run with a score and phases."""
    figures = [TrialFigure("io500", "", 1, "total", "score", score)]
    figures += [TrialFigure("io500", name, 1, "op", "operations_per_second", value) for name, value in phases.items()]
    verdicts = {} if verdict is None else dict.fromkeys(phases, verdict)
    return Trial(side, START, f"run-{side}", figures=figures, verdicts=verdicts)


def experiment(ratios: Sequence[float], name: str = "demo", **changes: object) -> Experiment:
    """Return an experiment whose pairs have these ratios of the score, and of one phase."""
    trials: list[Trial] = []
    for place, ratio in enumerate(ratios):
        pair = [trial("A", 10.0, find=5.0), trial("B", 10.0 * ratio, find=5.0 * ratio)]
        trials += pair if place % 4 in (0, 3) else pair[::-1]
    made = Experiment(
        id=f"20231114T221320Z-{name}", start=START, command=["io500", "config.ini"],
        knob=KnobCommands("echo on", "echo off", "cat knob"), pairs=max(4, len(ratios)), effect=0.05, old="off",
        value="on", restored=True, state="finished", trials=trials,
    )  # fmt: skip
    for key, change in changes.items():
        setattr(made, key, change)
    return made
