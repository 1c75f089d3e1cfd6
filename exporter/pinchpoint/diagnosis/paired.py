"""Did a knob help? A test of pairs of runs, one without and one with it, that may end early.

The figure of a pair is the logarithm of the ratio of its two runs, and the test of their mean is Student's. It is done
after several *looks*, at numbers of pairs that are fixed beforehand, and each look has a share of the permitted error:
K. K. G. Lan and D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983). Early looks get
little of it and the last one most, after J. L. Haybittle (1971) and R. Peto (1976). The shares are added up
(Bonferroni) instead of integrated: that keeps the error rate with a variance estimated from four pairs too, where the
usual boundaries assume a known one. Intervals are those of C. Jennison and B. W. Turnbull, Interim analyses: the
repeated confidence interval approach, J. R. Stat. Soc. B 51 (1989): all looks together miss the truth no more often
than the level says, so an experiment may also end because a gain of the size asked for is excluded.

Several figures are claimed so that at most one claim in twenty is false: `pinchpoint.diagnosis.discovery`. The figures
that the experiment is about have half of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.diagnosis.discovery import FALSE_SHARE, levels
from pinchpoint.diagnosis.spread import NOTHING, Spread
from pinchpoint.diagnosis.student import chance, power, quantile

__all__ = [
    "MAX_PAIRS",
    "MIN_PAIRS",
    "Decision",
    "Finding",
    "Looks",
    "forecast",
    "judge",
    "overall",
    "pooled",
    "primary_level",
    "side_order",
]

Figure = TypeVar("Figure")

MIN_PAIRS = 4
"""Number of pairs of the shortest experiment: the order ABBA BAAB once."""
MAX_PAIRS = 64
"""Largest number of pairs."""
PLANNED = (4, 6, 8, 12, 16, 24, 32, 48)
"""Numbers of pairs after which the test looks, as far as they are below the planned number."""
EARLY_SHARE = 0.25
"""Share of the permitted error for all looks but the last."""
PRIMARY_SHARE = 0.5
"""Weight of the figures that the experiment is about."""
POWER = 0.9
"""Probability with which the forecast number of pairs finds the effect."""
ORDER = "ABBABAAB"
"""Four pairs: drift that is linear in time cancels, and so does that of pairs (Thue and Morse)."""


class Decision(StrEnum):
    """What the pairs say."""

    HELPED = "helped"
    HURT = "hurt"
    NO_GAIN = "did not help"
    """A gain of the size asked for is excluded."""
    MIXED = "helped and hurt"
    """Only of several figures together."""
    UNDECIDED = "undecided"


def side_order(pairs: int) -> str:
    """Return the sides of the runs, A without the knob and B with it, in order."""
    return (ORDER * math.ceil(pairs / MIN_PAIRS))[: 2 * pairs]


class Looks(msgspec.Struct, frozen=True):
    """The numbers of pairs after which the test looks."""

    pairs: int
    """Planned number of pairs, even."""

    @property
    def shares(self) -> Mapping[int, float]:
        """By number of pairs, the share of the permitted error."""
        early = [pairs for pairs in PLANNED if pairs < self.pairs]
        if not early:
            return {self.pairs: 1.0}
        return {**dict.fromkeys(early, EARLY_SHARE / len(early)), self.pairs: 1 - EARLY_SHARE}


class Finding(msgspec.Struct, frozen=True):
    """What the pairs say about one figure."""

    pairs: int
    """Number of pairs at the last look; 0 before the first."""
    change: float
    """By which share the knob changes the figure, as far as all its pairs say: 0.1 is 10 % more."""
    interval: tuple[float, float] | None
    """Interval of the change that all looks together leave."""
    decision: Decision


def judge(
    ratios: Mapping[Figure, Sequence[float]],
    looks: Looks,
    primary: Collection[Figure],
    effect: float,
    less_is_better: Collection[Figure] = (),
) -> dict[Figure, Finding]:
    """Return what the pairs say about each figure.

    `ratios` are the logarithms of B over A, pair by pair; `primary` the figures that the experiment is about; `effect`
    the gain asked for, as a share.
    """
    done = {figure: _results(values, looks) for figure, values in ratios.items()}
    chances = [
        min((min(1.0, chance(result.t, result.pairs - 1) / result.share) for result in results), default=1.0)
        for results in done.values()
    ]
    permitted = levels(chances, _weights(list(ratios), primary))
    found = {}
    for (figure, results), level in zip(done.items(), permitted, strict=True):
        values = ratios[figure]
        sign = -1 if figure in less_is_better else 1
        change = math.expm1(fmean(values)) if values else 0.0
        if not results:
            found[figure] = Finding(0, change, None, Decision.UNDECIDED)
            continue
        bounds = [result.interval(level * result.share) for result in results]
        low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
        if low > high:  # earlier looks exclude what the later ones say: the latest is believed
            low, high = bounds[-1]
        least, most = sorted((sign * low, sign * high))
        if least > 0:
            decision = Decision.HELPED
        elif most < 0:
            decision = Decision.HURT
        else:
            decision = Decision.NO_GAIN if most < math.log1p(effect) else Decision.UNDECIDED
        found[figure] = Finding(results[-1].pairs, change, (math.expm1(low), math.expm1(high)), decision)
    return found


def overall(decisions: Collection[Decision]) -> Decision:
    """Return the decision on the figures that the experiment is about."""
    known = set(decisions)
    if {Decision.HELPED, Decision.HURT} <= known:
        return Decision.MIXED
    for decision in (Decision.UNDECIDED, Decision.HELPED, Decision.HURT):
        if decision in known:
            return decision
    return Decision.NO_GAIN if known else Decision.UNDECIDED


def primary_level(primary: int, figures: int) -> float:
    """Return the level at which each of so many primary figures is tested if nothing else changed."""
    return _primary_weight(primary, figures) * FALSE_SHARE / figures


def forecast(noise: Spread, effect: float, level: float) -> int | None:
    """Return how many pairs find a change of `effect` (a share) in at least `POWER` of the experiments.

    `noise` is that of a pair's logarithm. None if nothing is known about it, or if more than `MAX_PAIRS` are needed.
    """
    if not 0 <= noise.variance < math.inf or not noise.degrees:
        return None
    if noise.variance == 0:
        return MIN_PAIRS  # figures with few digits are often alike
    # A variance from few degrees of freedom is as often too small as too large, and the former costs more power.
    shift = math.log1p(effect) / math.sqrt(noise.variance * (1 + 1 / noise.degrees))
    for pairs in range(MIN_PAIRS, MAX_PAIRS + 1, 2):
        if power(shift * math.sqrt(pairs), level * Looks(pairs).shares[pairs], pairs - 1) >= POWER:
            return pairs
    return None


def pooled(known: Sequence[Spread]) -> Spread:
    """Return what several spreads of the same figure say together."""
    used = [each for each in known if each.degrees and each.variance < math.inf]
    degrees = sum(each.degrees for each in used)
    return Spread(sum(each.variance * each.degrees for each in used) / degrees, degrees) if degrees else NOTHING


class _Result(msgspec.Struct, frozen=True):
    """One look at one figure."""

    pairs: int
    share: float
    mean: float
    error: float
    """Standard error of the mean."""

    @property
    def t(self) -> float:
        if self.error:
            return self.mean / self.error
        return math.inf if self.mean else 0.0

    def interval(self, level: float) -> tuple[float, float]:
        half = quantile(level, self.pairs - 1) * self.error
        return self.mean - half, self.mean + half


def _results(values: Sequence[float], looks: Looks) -> list[_Result]:
    return [
        _Result(pairs, share, fmean(values[:pairs]), _error(values[:pairs]))
        for pairs, share in looks.shares.items()
        if pairs <= len(values)
    ]


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; `statistics.stdev` is exact and ten times slower."""
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def _weights(figures: Sequence[Figure], primary: Collection[Figure]) -> list[float]:
    first = sum(figure in primary for figure in figures)
    if first in (0, len(figures)):
        return [1.0] * len(figures)
    weight = _primary_weight(first, len(figures))
    other = (len(figures) - first * weight) / (len(figures) - first)
    return [weight if figure in primary else other for figure in figures]


def _primary_weight(primary: int, figures: int) -> float:
    return max(1.0, PRIMARY_SHARE * figures / primary) if primary else 1.0
