"""What changed between two groups of runs, figure by figure, and whether that is more than repeats differ by.

A group holds repeats: runs with nothing changed between them. Its *spread* is the largest figure minus the smallest,
over their mean. A difference of two means counts as noise unless it is larger than each of these:

- the spread of either group, as far as it has repeats;
- where both have three runs or more, the half-width of the 95 % confidence interval of the difference of the means
  (Student's t as Welch takes it: the groups may differ in their variance);
- the noise that the user knows of, as a share of the larger mean.

Where none of them is known nothing is claimed. Which group is the base changes the sign and what shares are of, but
never whether there is a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, variance
from typing import NamedTuple

from pinchpoint.benchmarks.output import number as number_in
from pinchpoint.runs import PhaseMark, Result, RunState

__all__ = ["Comparison", "Figure", "Group", "Key", "Row", "Verdict", "compare"]

SHORT = 30.0
"""Seconds under which a phase is called short: it may end before caches are full and clocks have settled."""
FEWEST = 3
"""Runs of each group from which on there is a confidence interval."""
QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""0.975 quantiles of Student's t with 1, 2, ... degrees of freedom; with more the last one is taken, a bit too wide."""
LONGEST = 2.0**53
"""Seconds from which on the length of a phase is none."""
FAILED = "failed"


class Verdict(StrEnum):
    """What can be said of a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    """Of a score."""
    WORSE = "worse"
    MORE = "more"
    """Of an amount or a share, of which neither more nor less is better."""
    LESS = "less"
    NOISE = "inside the noise"
    UNKNOWN = "spread unknown"
    """Each group is one run, and no noise is known."""
    ONE_SIDED = "only one side"


@dataclass(frozen=True, slots=True)
class Group:
    """Runs with nothing changed between them."""

    label: str
    runs: tuple[RunState, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a group: the mean of its runs."""

    values: tuple[float, ...]
    """Of each run that has it, in base units."""
    seconds: float | None = None
    """How long the phase took on average; None for a score, and where it isn't known."""
    invalid: int = 0
    """Runs whose figure the benchmark calls invalid."""
    failed: int = 0
    """Runs that failed in this phase."""

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return fmean(self.values)

    @property
    def range(self) -> float | None:
        """The largest minus the smallest; None of one run."""
        return max(self.values) - min(self.values) if len(self.values) > 1 else None

    @property
    def spread(self) -> float | None:
        """The range over the mean; None of one run, and where the mean is 0."""
        return None if self.range is None else _ratio(self.range, abs(self.mean))

    @property
    def short(self) -> bool:
        """Whether the phase was short."""
        return self.seconds is not None and self.seconds < SHORT


class Key(NamedTuple):
    """What makes figures of different runs the same one."""

    benchmark: str
    phase: str
    """Empty for a score."""
    occurrence: int
    """Counted from 1: a run may have several phases of one name."""
    operation: str
    unit: str

    @property
    def score(self) -> bool:
        """Whether it is a score, and of no phase."""
        return not self.phase

    @property
    def place(self) -> tuple[str, str, int]:
        """The phase that it is of."""
        return self.benchmark, self.phase, self.occurrence


@dataclass(frozen=True, slots=True)
class Row:
    """One figure in both groups."""

    key: Key
    base: Figure | None
    other: Figure | None
    change: float | None = None
    """The difference over the base's mean."""
    noise: float | None = None
    """What the difference has to exceed, over the base's mean."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the difference, over the base's mean."""
    verdict: Verdict = Verdict.ONE_SIDED

    @property
    def doubtful(self) -> bool:
        """Whether a difference is claimed though one of the groups has too few repeats to know its spread well."""
        claimed = self.verdict not in (Verdict.NOISE, Verdict.UNKNOWN, Verdict.ONE_SIDED)
        return claimed and any(figure is not None and len(figure.values) < FEWEST for figure in (self.base, self.other))

    @property
    def marks(self) -> tuple[str, ...]:
        """What a reader should know before he believes it: ``short``, ``base invalid``, ``both failed``."""
        found = []
        for word, holds in MARKS.items():
            base = self.base is not None and holds(self.base)
            other = self.other is not None and holds(self.other)
            if base and other:
                found.append(word if word == "short" else f"both {word}")
            elif base or other:
                found.append(f"base {word}" if base else word)
        return tuple(found)


MARKS: dict[str, Callable[[Figure], bool]] = {
    "short": lambda figure: figure.short,
    "invalid": lambda figure: figure.invalid > 0,
    "failed": lambda figure: figure.failed > 0,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group beside the base."""

    base: Group
    other: Group
    rows: tuple[Row, ...]
    """Phases as the base has them, then those that only the other group has, then scores."""
    noise: float | None = None
    """The spread that the user knows of, as a share."""


def compare(base: Group, other: Group, *, noise: float | None = None, every: bool = False) -> Comparison:
    """Compare a group with the base.

    `noise` is a known spread as a share (0.05). Of each phase its main figure is compared, or `every` one.
    """
    before, after = _figures(base), _figures(other)
    keys = [*before, *(key for key in after if key not in before)]
    if not every:
        mains: dict[tuple[str, str, int], Key] = {}
        for key in keys:
            mains.setdefault(key.place, key)
        keys = [key for key in keys if key.score or mains[key.place] == key]
    rows = [_row(key, before.get(key), after.get(key), noise) for key in keys]
    return Comparison(base, other, tuple(sorted(rows, key=lambda row: row.key.score)), noise)


def _figures(group: Group) -> dict[Key, Figure]:
    """Return the figures of a group, those of each phase together and its main one first."""
    found: dict[Key, list[tuple[Result, PhaseMark | None, bool]]] = {}
    for run in group.runs:
        occurrences: dict[tuple[str, str], int] = {}
        seen: set[Key] = set()
        for mark in run.phases:
            benchmark = mark.benchmark or run.benchmark
            number = occurrences[benchmark, mark.name] = occurrences.get((benchmark, mark.name), 0) + 1
            for result in mark.results:
                key = Key(benchmark, mark.name, number, result.operation, result.unit)
                if key not in seen and number_in(result.value) is not None:
                    seen.add(key)
                    found.setdefault(key, []).append((result, mark, mark.valid))
        for result in run.scores:
            key = Key(run.benchmark, "", 1, result.operation, result.unit)
            if key not in seen and number_in(result.value) is not None:
                seen.add(key)
                found.setdefault(key, []).append((result, None, run.valid))
    return {key: _figure(entries) for key, entries in found.items()}


def _figure(entries: Sequence[tuple[Result, PhaseMark | None, bool]]) -> Figure:
    lengths = [length for _, mark, _ in entries if mark is not None and (length := _length(mark)) is not None]
    return Figure(
        tuple(result.value for result, _, _ in entries),
        fmean(lengths) if lengths else None,
        sum(not valid for _, _, valid in entries),
        sum(mark is not None and mark.state == FAILED for _, mark, _ in entries),
    )


def _length(mark: PhaseMark) -> float | None:
    """Return how many seconds a phase took: as the benchmark says, else as it was seen."""
    seconds = mark.seconds if mark.seconds is not None else (mark.end or mark.start) - mark.start
    return seconds if 0 < seconds < LONGEST else None


def _row(key: Key, base: Figure | None, other: Figure | None, noise: float | None) -> Row:
    if base is None or other is None:
        return Row(key, base, other)
    difference = other.mean - base.mean
    scale = abs(base.mean)
    half = _half_width(base.values, other.values)
    bounds = [found for found in (base.range, other.range, half) if found is not None]
    if noise is not None:
        bounds.append(noise * max(scale, abs(other.mean)))
    interval = None
    if half is not None:
        low, high = _ratio(difference - half, scale), _ratio(difference + half, scale)
        interval = (low, high) if low is not None and high is not None else None
    return Row(
        key,
        base,
        other,
        _ratio(difference, scale),
        _ratio(max(bounds), scale) if bounds else None,
        interval,
        _verdict(key, difference, max(bounds) if bounds else None),
    )


def _verdict(key: Key, difference: float, bound: float | None) -> Verdict:
    if bound is None:
        return Verdict.UNKNOWN
    if abs(difference) <= bound:
        return Verdict.NOISE
    more = difference > 0
    if key.score:
        return Verdict.BETTER if more else Verdict.WORSE
    if key.unit == "seconds":
        return Verdict.SLOWER if more else Verdict.FASTER
    if key.unit.endswith("_per_second"):
        return Verdict.FASTER if more else Verdict.SLOWER
    return Verdict.MORE if more else Verdict.LESS


def _half_width(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return the half-width of the 95 % confidence interval of the difference of two means (Welch, Biometrika 1947)."""
    if min(len(first), len(second)) < FEWEST:
        return None
    a, b = variance(first) / len(first), variance(second) / len(second)
    if a + b == 0:
        return 0.0
    # Shares, so that no square can underflow.
    degrees = 1 / ((a / (a + b)) ** 2 / (len(first) - 1) + (b / (a + b)) ** 2 / (len(second) - 1))
    return QUANTILES[max(0, min(int(degrees), len(QUANTILES)) - 1)] * math.sqrt(a + b)


def _ratio(value: float, scale: float) -> float | None:
    """Return a share; None where it is of nothing."""
    share = value / scale if scale else math.inf
    return share if math.isfinite(share) else None
