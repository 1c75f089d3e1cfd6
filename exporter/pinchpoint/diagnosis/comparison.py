"""What changed between two groups of runs, figure by figure, and whether that exceeds the difference between repeats.

A group holds repeats: runs with nothing changed between them. Its *spread* is the largest figure minus the smallest,
over their mean. A third group may be the *reference*: repeats of any configuration, whose spread is taken as that of
the others too. A difference of two means counts as noise unless it is larger than each of these:

- the spread of either group and of the reference, as far as they have repeats;
- the noise known to the user, as a share of the larger mean.

A larger one is still not proved while it lies in the confidence interval around no difference
(`pinchpoint.diagnosis.spread`): few repeats say little about their spread. Many figures are tested at once, so the
interval is as wide as it has to be for at most one claim in twenty to be false (`pinchpoint.diagnosis.discovery`). A
score follows from the phases and is the first thing that a reader looks at, so it is tested for itself. A noise known
to the user replaces the interval unless the repeats refute it.

If no spread is known nothing is claimed. Which group is the base changes the sign and what shares are of, but
never whether there is a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.output import number as number_in
from pinchpoint.compat import StrEnum
from pinchpoint.diagnosis.discovery import levels
from pinchpoint.diagnosis.knobs import Knobs, Settings, knobs
from pinchpoint.diagnosis.marks import Bottleneck, bottleneck
from pinchpoint.diagnosis.spread import LEVEL, Spread, half_width, moderated, prior, ratio_chance, spread
from pinchpoint.diagnosis.waterfall import Shift, has_moved
from pinchpoint.runs import PhaseMark, Result, RunState, VerdictMark

__all__ = [
    "CLAIMS",
    "Assessment",
    "ComparedFigure",
    "Comparison",
    "GroupFigure",
    "Key",
    "Move",
    "PhasePlace",
    "RunGroup",
    "compare",
    "main_figures",
]

SHORT_PHASE_SECONDS = 30.0
"""Seconds under which a phase is called short: it may end before caches are full and clocks have settled."""
MAX_PHASE_SECONDS = 2.0**53
"""Seconds from which a phase's duration is implausible."""
INCOMPLETE = (State.FAILED, State.STOPPED)


class Assessment(StrEnum):
    """The verdicts on a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    BETTER = "better"
    """For a score."""
    WORSE = "worse"
    MORE = "more"
    """For an amount or a share, where neither more nor less is better."""
    LESS = "less"
    NOISE = "inside the noise"
    UNPROVED = "not proved"
    """More than the observed spread, but so few repeats don't exclude chance."""
    UNKNOWN = "spread unknown"
    """There are no repeats, and no noise is known."""
    ONE_SIDED = "only one side"


CLAIMS = frozenset(
    {Assessment.FASTER, Assessment.SLOWER, Assessment.BETTER, Assessment.WORSE, Assessment.MORE, Assessment.LESS}
)
"""Verdicts that say that something changed."""


class RunGroup(msgspec.Struct, frozen=True):
    """Runs with nothing changed between them."""

    label: str
    runs: tuple[RunState, ...]
    settings: tuple[Settings, ...] = ()
    """Of each run, in the same order."""


class GroupFigure(msgspec.Struct, frozen=True):
    """One figure of a group: the mean of its runs."""

    values: tuple[float, ...]
    """Of each run that has it, in base units."""
    seconds: float | None = None
    """Mean duration of the phase in seconds; None for a score, and if not known."""
    invalid: int = 0
    """Number of runs whose figure the benchmark calls invalid."""
    failed: int = 0
    """Number of runs that failed, or were stopped, in this phase."""

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return fmean(self.values)

    @property
    def range(self) -> float | None:
        """The largest minus the smallest; None for one run."""
        return max(self.values) - min(self.values) if len(self.values) > 1 else None

    @property
    def spread(self) -> float | None:
        """The range over the mean; None for one run, and if the mean is 0."""
        return None if self.range is None else _ratio(self.range, abs(self.mean))

    @property
    def short(self) -> bool:
        """Whether the phase was short."""
        return self.seconds is not None and self.seconds < SHORT_PHASE_SECONDS


class PhasePlace(NamedTuple):
    """Identifies the same phase in different runs."""

    benchmark: str
    phase: str
    occurrence: int
    """Counted from 1: a run may have several phases of one name."""


class Key(NamedTuple):
    """Identifies the same figure in different runs."""

    benchmark: str
    phase: str
    """Empty for a score."""
    occurrence: int
    operation: str
    unit: str

    @property
    def score(self) -> bool:
        """Whether it is a score, not a figure of a phase."""
        return not self.phase

    @property
    def place(self) -> PhasePlace:
        """Its phase."""
        return PhasePlace(self.benchmark, self.phase, self.occurrence)


class ComparedFigure(msgspec.Struct, frozen=True):
    """One figure in both groups."""

    key: Key
    base: GroupFigure | None
    other: GroupFigure | None
    change: float | None = None
    """The difference over the base's mean."""
    noise: float | None = None
    """What the difference has to exceed, over the base's mean."""
    interval: tuple[float, float] | None = None
    """Confidence interval of the difference, over the base's mean: 95 % of one figure, wider of several."""
    verdict: Assessment = Assessment.ONE_SIDED

    @property
    def marks(self) -> tuple[str, ...]:
        """Caveats for the reader: ``short``, ``base invalid``, ``both failed``."""
        found = []
        for word, holds in MARKS.items():
            base = self.base is not None and holds(self.base)
            other = self.other is not None and holds(self.other)
            if base and other:
                found.append(word if word == "short" else f"both {word}")
            elif base or other:
                found.append(f"base {word}" if base else word)
        return tuple(found)


MARKS: dict[str, Callable[[GroupFigure], bool]] = {
    "short": lambda figure: figure.short,
    "invalid": lambda figure: figure.invalid > 0,
    "failed": lambda figure: figure.failed > 0,
}


class Move(msgspec.Struct, frozen=True):
    """What limited one phase in both groups; None if it was not judged."""

    place: PhasePlace
    base: Bottleneck | None
    other: Bottleneck | None
    steps: tuple[Shift, ...] = ()
    """Steps of the mean operation that take another time in every run of the other group, the largest difference
    first."""

    @property
    def moved(self) -> bool:
        """Whether it was judged in both, differs, and most repeats of each say so."""
        if self.base is None or self.other is None or self.base.identity == self.other.identity:
            return False
        return all(2 * side.agreeing > side.runs for side in (self.base, self.other))


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A group compared with the base."""

    base: RunGroup
    other: RunGroup
    rows: tuple[ComparedFigure, ...]
    """Phases as the base has them, then those that only the other group has, then scores."""
    noise: float | None = None
    """The spread known to the user, as a share."""
    moves: tuple[Move, ...] = ()
    """For each phase that was judged in at least one group, in the order of the rows."""
    knobs: Knobs = msgspec.field(default_factory=Knobs)

    @property
    def headline(self) -> ComparedFigure | None:
        """The row that stands for the whole: the last score, else the only row; None if there is neither."""
        both = [row for row in self.rows if row.base is not None and row.other is not None]
        scores = [row for row in both if row.key.score]
        if scores:
            return scores[-1]
        return both[0] if len(both) == 1 else None


def compare(
    base: RunGroup,
    other: RunGroup,
    *,
    noise: float | None = None,
    reference: RunGroup | None = None,
    every: bool = False,
) -> Comparison:
    """Compare a group with the base.

    `noise` is a known spread as a share (0.05), `reference` a group of repeats that has it. For each phase the main
    figure is compared, or `every` one.
    """
    before, after = _figures(base), _figures(other)
    known = _figures(_uncounted(reference, base, other)) if reference else {}
    keys = [*before, *(key for key in after if key not in before)]
    mains: dict[PhasePlace, Key] = {}
    for key in keys:
        mains.setdefault(key.place, key)
    spreads = {key: spread(_repeats(before.get(key), after.get(key), known.get(key))) for key in keys}
    # Scores and minor figures follow from the main ones and would count them twice.
    others = prior(spreads[key] for key in keys if not key.score and mains[key.place] == key)
    shown = keys if every else [key for key in keys if key.score or mains[key.place] == key]
    pairs = []
    rows = {}
    for key in shown:
        first, second = before.get(key), after.get(key)
        if first is None or second is None:
            rows[key] = ComparedFigure(key, first, second)
        else:
            pairs.append(_Pair(key, first, second, known.get(key), noise, moderated(spreads[key], others)))
    tested = [pair for pair in pairs if pair.tested and not pair.key.score]
    level = dict(zip((pair.key for pair in tested), levels([pair.chance for pair in tested]), strict=True))
    for pair in pairs:
        rows[pair.key] = _row(pair, level.get(pair.key, LEVEL) if pair.tested else None)
    return Comparison(
        base=base,
        other=other,
        rows=tuple(sorted((rows[key] for key in shown), key=lambda row: row.key.score)),
        noise=noise,
        moves=_moves(base, other),
        knobs=knobs(base.settings, other.settings),
    )


def _uncounted(reference: RunGroup, *groups: RunGroup) -> RunGroup:
    """Return the reference without runs whose spread counts already, since they are repeats in a compared group."""
    counted = {run.run for group in groups if len(group.runs) > 1 for run in group.runs}
    return RunGroup(reference.label, tuple(run for run in reference.runs if run.run not in counted))


def _repeats(*figures: GroupFigure | None) -> list[tuple[float, ...]]:
    return [figure.values for figure in figures if figure is not None]


def _moves(base: RunGroup, other: RunGroup) -> tuple[Move, ...]:
    before, after = _verdicts(base), _verdicts(other)
    places = [*before, *(place for place in after if place not in before)]
    found = ((place, before.get(place, ()), after.get(place, ())) for place in places)
    return tuple(Move(place, bottleneck(first), bottleneck(last), _shifts(first, last)) for place, first, last in found)


def _shifts(before: Sequence[VerdictMark], after: Sequence[VerdictMark]) -> tuple[Shift, ...]:
    """Return the steps whose means moved, unless the runs of one group reach into those of the other."""
    first, last = _steps(before), _steps(after)
    found = []
    for key in first.keys() & last.keys():
        operation, step = key
        whole = max(_whole(operation, first), _whole(operation, last))
        lower, upper = sorted((first[key], last[key]), key=fmean)
        if max(lower) < min(upper) and has_moved(fmean(first[key]), fmean(last[key]), whole):
            found.append(Shift(operation, step, fmean(first[key]), fmean(last[key])))
    return tuple(sorted(found, key=lambda one: (-abs(one.after - one.before), one.operation, one.step)))


def _steps(marks: Sequence[VerdictMark]) -> dict[tuple[str, str], list[float]]:
    """Return the mean time of each step of each operation, by run."""
    found: dict[tuple[str, str], list[float]] = {}
    for mark in marks:
        for step in mark.steps:
            found.setdefault((step.operation, step.step), []).append(step.seconds)
    return found


def _whole(operation: str, steps: Mapping[tuple[str, str], Sequence[float]]) -> float:
    """Return the mean time of an operation: the sum of its steps."""
    return sum(fmean(times) for (one, _), times in steps.items() if one == operation)


def _verdicts(group: RunGroup) -> dict[PhasePlace, list[VerdictMark]]:
    found: dict[PhasePlace, list[VerdictMark]] = {}
    for run in group.runs:
        for place, mark in _places(run):
            if mark.verdict is not None:
                found.setdefault(place, []).append(mark.verdict)
    return found


def _places(run: RunState) -> Iterator[tuple[PhasePlace, PhaseMark]]:
    """Yield the phases of a run with their keys."""
    occurrences: dict[tuple[str, str], int] = {}
    for mark in run.phases:
        benchmark = mark.benchmark or run.benchmark
        number = occurrences[benchmark, mark.name] = occurrences.get((benchmark, mark.name), 0) + 1
        yield PhasePlace(benchmark, mark.name, number), mark


def main_figures(run: RunState) -> dict[Key, float]:
    """Return the main figure of each phase of a run, and its last score."""
    found: dict[Key, float] = {}
    for place, mark in _places(run):
        for result in mark.results:
            if number_in(result.value) is not None:
                found[Key(*place, result.operation, result.unit)] = result.value
                break
    for result in run.scores[-1:]:
        found[Key(run.benchmark, "", 1, result.operation, result.unit)] = result.value
    return found


def _figures(group: RunGroup) -> dict[Key, GroupFigure]:
    """Return the figures of a group, those of each phase together and its main one first."""
    found: dict[Key, list[tuple[Result, PhaseMark | None, bool]]] = {}
    for run in group.runs:
        seen: set[Key] = set()
        for place, mark in _places(run):
            for result in mark.results:
                key = Key(*place, result.operation, result.unit)
                if key not in seen and number_in(result.value) is not None:
                    seen.add(key)
                    found.setdefault(key, []).append((result, mark, mark.valid))
        for result in run.scores:
            key = Key(run.benchmark, "", 1, result.operation, result.unit)
            if key not in seen and number_in(result.value) is not None:
                seen.add(key)
                found.setdefault(key, []).append((result, None, run.valid))
    return {key: _figure(entries) for key, entries in found.items()}


def _figure(entries: Sequence[tuple[Result, PhaseMark | None, bool]]) -> GroupFigure:
    lengths = [length for _, mark, _ in entries if mark is not None and (length := _length(mark)) is not None]
    return GroupFigure(
        tuple(result.value for result, _, _ in entries),
        fmean(lengths) if lengths else None,
        sum(not valid for _, _, valid in entries),
        sum(mark is not None and mark.state in INCOMPLETE for _, mark, _ in entries),
    )


def _length(mark: PhaseMark) -> float | None:
    """Return how many seconds a phase took: as the benchmark reports, else as observed."""
    seconds = mark.seconds if mark.seconds is not None else (mark.end or mark.start) - mark.start
    return seconds if 0 < seconds < MAX_PHASE_SECONDS else None


class _Pair(msgspec.Struct, frozen=True):
    """A figure that both groups have."""

    key: Key
    base: GroupFigure
    other: GroupFigure
    reference: GroupFigure | None
    noise: float | None
    """The spread known to the user, as a share."""
    known: Spread
    """How its repeats differ."""

    @property
    def larger(self) -> float:
        """The larger mean, which shares are of."""
        return max(abs(self.base.mean), abs(self.other.mean))

    @property
    def ranges(self) -> list[float]:
        """The spreads that were seen, in the figure's unit."""
        found = [figure.range for figure in (self.base, self.other) if figure.range is not None]
        if self.reference is not None and self.reference.spread is not None:
            found.append(self.reference.spread * self.larger)
        return found

    @property
    def bounds(self) -> list[float]:
        """What the difference has to exceed, apart from chance."""
        return self.ranges if self.noise is None else [*self.ranges, self.noise * self.larger]

    @property
    def tested(self) -> bool:
        """Whether chance has to be excluded: a noise known from elsewhere need not be learned from these repeats."""
        return bool(self.ranges) and (self.noise is None or self.noise * self.larger < max(self.ranges))

    @property
    def log_ratio(self) -> float | None:
        """The logarithm of the ratio of the means; None if it has none."""
        if self.base.mean > 0 and self.other.mean > 0 and 0 < self.other.mean / self.base.mean < math.inf:
            return math.log(self.other.mean / self.base.mean)
        return None

    @property
    def chance(self) -> float:
        """How likely the means differ this much by chance."""
        if self.log_ratio is None:
            return 1.0
        return ratio_chance(self.known, self.log_ratio, len(self.base.values), len(self.other.values))


def _row(pair: _Pair, level: float | None) -> ComparedFigure:
    """Return a figure that both groups have; `level` is how likely a claim may be by chance, if it is tested."""
    base, other = pair.base, pair.other
    difference = other.mean - base.mean
    scale = abs(base.mean)
    if not pair.bounds:
        return ComparedFigure(pair.key, base, other, _ratio(difference, scale), verdict=Assessment.UNKNOWN)
    half = None if level is None else half_width(pair.known, len(base.values), len(other.values), level)
    ratio = pair.log_ratio
    if half is not None and ratio is not None and math.isinf(_expm1(abs(ratio) + half)):
        half = math.inf
    noises = [_ratio(max(pair.bounds), scale)]
    interval = None
    if half is None:
        chance = False
    elif ratio is None or half == math.inf:
        chance = True
        noises.append(None)
    else:
        chance = abs(ratio) <= half
        interval = _expm1(ratio - half), _expm1(ratio + half)
        noises.append(_expm1(half) if ratio > 0 else -_expm1(-half))
    return ComparedFigure(
        key=pair.key,
        base=base,
        other=other,
        change=_ratio(difference, scale),
        noise=None if None in noises else max(found for found in noises if found is not None),
        interval=interval,
        verdict=_verdict(pair.key, difference, max(pair.bounds), chance=chance),
    )


def _verdict(key: Key, difference: float, bound: float, *, chance: bool) -> Assessment:
    """Return what a difference means; `bound` is the spread that is known, `chance` whether few repeats leave doubt."""
    if abs(difference) <= bound:
        return Assessment.NOISE
    if chance:
        return Assessment.UNPROVED
    more = difference > 0
    if key.score:
        return Assessment.BETTER if more else Assessment.WORSE
    if key.unit == "seconds":
        return Assessment.SLOWER if more else Assessment.FASTER
    if key.unit.endswith("_per_second"):
        return Assessment.FASTER if more else Assessment.SLOWER
    return Assessment.MORE if more else Assessment.LESS


def _ratio(value: float, scale: float) -> float | None:
    """Return a share; None if the whole is 0."""
    share = value / scale if scale else math.inf
    return share if math.isfinite(share) else None


def _expm1(value: float) -> float:
    """Return exp(value) - 1, infinite where a float cannot hold it."""
    try:
        return math.expm1(value)
    except OverflowError:
        return math.inf
