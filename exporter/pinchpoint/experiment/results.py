"""What an experiment's runs say: the ratio of each pair, the decision, and the noise for the forecast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pinchpoint.diagnosis.comparison import Key, main_figures
from pinchpoint.diagnosis.paired import (
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
from pinchpoint.experiment.ledger import Experiment, Trial, TrialFigure
from pinchpoint.runs import OWN_TAGS, RunState
from pinchpoint.session.store import RunRecord

__all__ = ["DEFAULT_PAIRS", "Forecast", "Outcome", "figures_of", "forecast_of", "outcome", "primary_of", "ratios_of"]

DEFAULT_PAIRS = 8
"""Number of pairs if no noise is known."""
EXPERIMENT_TAG = "experiment"


class Outcome(msgspec.Struct, frozen=True):
    """What an experiment has found so far."""

    decision: Decision
    findings: Mapping[Key, Finding]
    primary: frozenset[Key]
    pairs: int
    """Number of complete pairs."""
    ratios: Mapping[Key, Sequence[float]]
    """Logarithms of B over A, pair by pair."""


class Forecast(msgspec.Struct, frozen=True):
    """How many pairs an effect will need."""

    noise: Spread
    """Of the logarithm of a pair's ratio, of the figure that needs most."""
    pairs: int | None
    """None if no noise is known, or if more than `pinchpoint.diagnosis.paired.MAX_PAIRS` are needed."""


def figures_of(run: RunState) -> list[TrialFigure]:
    """Return the figures of a run: the main one of each phase, and the score."""
    return [TrialFigure(*key, value) for key, value in main_figures(run).items()]


def pairs_of(trials: Sequence[Trial]) -> list[tuple[Trial, Trial]]:
    """Return the complete pairs, A first, in their order."""
    done = [trial for trial in trials if trial.state == "done"]
    found = []
    for first, second in zip(done[::2], done[1::2], strict=False):
        found.append((first, second) if first.side == "A" else (second, first))
    return found


def ratios_of(trials: Sequence[Trial]) -> dict[Key, list[float]]:
    """Return the logarithms of B over A of each figure that all complete pairs have, above 0."""
    found: dict[Key, list[float]] = {}
    pairs = pairs_of(trials)
    for without, with_ in pairs:
        before = {figure.key: figure.value for figure in without.figures}
        for figure in with_.figures:
            value = before.get(figure.key, 0.0)
            if value > 0 and figure.value > 0 and 0 < figure.value / value < math.inf:
                found.setdefault(figure.key, []).append(math.log(figure.value / value))
    return {key: values for key, values in found.items() if len(values) == len(pairs)}


def primary_of(keys: Iterable[Key], expected: Sequence[str]) -> frozenset[Key]:
    """Return the figures that an experiment is about: of the expected phases, or else the score, or else all."""
    known = list(keys)
    if expected:
        return frozenset(key for key in known if key.phase in expected)
    return frozenset(key for key in known if key.score) or frozenset(known)


def outcome(experiment: Experiment) -> Outcome:
    """Return what an experiment has found so far."""
    ratios = ratios_of(experiment.trials)
    primary = primary_of(ratios, experiment.expected)
    seconds = [key for key in ratios if key.unit == "seconds"]
    findings = judge(ratios, Looks(experiment.pairs), primary, experiment.effect, seconds)
    decisions = [findings[key].decision for key in primary]
    # What is not above 0 in each pair cannot be compared, and no other figure stands in for it.
    lacking = set(experiment.expected) - {key.phase for key in primary}
    decision = overall([*decisions, Decision.UNDECIDED] if lacking else decisions)
    return Outcome(decision, findings, primary, len(pairs_of(experiment.trials)), ratios)


def forecast_of(
    command: Sequence[str],
    expected: Sequence[str],
    effect: float,
    experiments: Sequence[Experiment],
    runs: Sequence[RunRecord],
) -> Forecast:
    """Return how many pairs an effect will need, by the noise of earlier experiments and repeats of this command."""
    noises = _noises(command, experiments, runs)
    primary = primary_of(noises, expected)
    if not primary:
        return Forecast(NOTHING, None)
    level = primary_level(len(primary), len(noises))
    needed = {key: forecast(noises[key], effect, level) for key in primary}
    most = max(primary, key=lambda key: noises[key].variance)
    return Forecast(noises[most], needed[most])


def _noises(command: Sequence[str], experiments: Sequence[Experiment], runs: Sequence[RunRecord]) -> dict[Key, Spread]:
    """Return what is known about the noise of a pair's ratio, for each figure of a command."""
    known: dict[Key, list[Spread]] = {}
    for experiment in experiments:
        if list(experiment.command) == list(command):
            for key, ratios in ratios_of(experiment.trials).items():
                known.setdefault(key, []).append(spread([[math.exp(ratio) for ratio in ratios]]))
    repeats: dict[tuple[tuple[str, str], ...], dict[Key, list[float]]] = {}
    for record in runs:
        tags = record.marker.tags
        if record.command == list(command) and EXPERIMENT_TAG not in tags and record.marker.state == "finished":
            own = {name: value for name, value in tags.items() if name not in OWN_TAGS}
            alike = repeats.setdefault(tuple(sorted(own.items())), {})
            for key, value in main_figures(record.marker).items():
                alike.setdefault(key, []).append(value)
    for figures in repeats.values():
        for key, values in figures.items():
            one = spread([values])
            known.setdefault(key, []).append(Spread(2 * one.variance, one.degrees))
    return {key: pooled(spreads) for key, spreads in known.items()}


def next_side(trials: Sequence[Trial], pairs: int) -> str:
    """Return the side of the next run; empty after the last."""
    return side_order(pairs)[len(trials) : len(trials) + 1]
