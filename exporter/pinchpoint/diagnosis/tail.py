"""What a phase loses after its stonewall, or while the last ranks are still at work, and what that costs the score.

A write phase of IO500 stops counting at its stonewall, and goes on until every rank has written as much as the fastest
one (``stoneWallingWearOut``, ``-x``). The other phases have no stonewall: they end with the slowest rank. Rates until
the stonewall are printed with few digits, so the cost is a range where that matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import msgspec

from pinchpoint.benchmarks.io500_detail import PhaseDetail, RankTimes, WallRate
from pinchpoint.benchmarks.io500_folder import last_digit
from pinchpoint.benchmarks.io500_plan import SHELL_PHASES
from pinchpoint.diagnosis.progress import WALLED
from pinchpoint.runs import PhaseMark
from pinchpoint.units import BYTES_PER_GIBIBYTE

__all__ = [
    "Tail",
    "contradictions",
    "gain",
    "planned_tail",
    "score_without_tails",
    "slow_words",
    "tail_of",
    "tail_words",
    "tails",
    "weight",
]

MAX_PLAUSIBLE_RATIO = 10.0
"""By how much the rates until the stonewall and of the whole phase may differ: beyond it, one is in another unit."""
MIN_PLANNED_SECONDS = 2.0
"""Seconds after the stonewall from which a phase has a tail, where its start and end come from two looks a second."""
MIN_SHOWN_COST = 0.0005
MIN_SLOWEST_COST = 0.005
"""Costs below these are not shown."""
MIN_WIDE = 0.005
"""Width of a cost from which both its ends are shown."""
MIN_OUTLIER_DEVIATIONS = 5.0
MIN_OUTLIER_SHARE = 0.1
"""A rank or node is called slow if it needs a tenth more than the median, and that is 5 deviations more."""
DEVIATION_SCALE = 1.4826
"""The median of absolute distances times this is the standard deviation of a normal distribution."""
MIN_PEERS = 5
MIN_FEW_PEERS_RATIO = 2.0
"""With fewer peers, twice the median."""


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a phase in which not all ranks are at work."""

    kind: str
    """``stonewall`` (the phase goes on after it) or ``slowest`` (it ends with its slowest rank)."""
    until: float | None
    """Seconds from the start of the phase until the tail: the stonewall, or the median rank's end."""
    seconds: float | None
    """Length of the tail in seconds."""
    rate: float | None
    """Rate without the tail, in base units: until the stonewall, or had all ranks ended together."""
    cost: float | None
    """Share of that rate that the tail took; None if it is not known."""
    low: float | None
    """The cost lies between `low` and `high`: the rates are rounded."""
    high: float | None
    source: str
    """Where the rate stands."""


def tail_of(detail: PhaseDetail, mark: PhaseMark) -> Tail | None:
    """Return the tail of a phase, None if the files say nothing of it."""
    if not mark.results:
        return None
    length = mark.seconds if mark.seconds is not None else detail.seconds
    value = mark.results[0].value
    if mark.name.endswith("_write"):
        until = detail.wall_hit or detail.wall
        wall = wall_rate(detail, value)
        if wall is None and (until is None or not detail.wall_most):
            return None
        seconds = None if until is None or length is None else max(0.0, length - until)
        if wall is None:
            return Tail(
                kind="stonewall", until=until, seconds=seconds, rate=None, cost=None, low=None, high=None, source=""
            )
        low, cost, high = (max(0.0, 1 - value / rate) if rate else 0.0 for rate in (wall.low, wall.middle, wall.high))
        return Tail(
            kind="stonewall",
            until=until,
            seconds=seconds,
            rate=wall.middle,
            cost=cost,
            low=low,
            high=high,
            source=wall.source,
        )
    ranks = detail.ranks
    if ranks is None or not ranks.slowest:
        return None
    cost = 1 - ranks.mean / ranks.slowest
    return Tail(
        kind="slowest",
        until=ranks.median,
        seconds=ranks.slowest - ranks.median,
        rate=value / (1 - cost) if cost < 1 else None,
        cost=cost,
        low=cost,
        high=cost,
        source="mean and slowest time of the ranks",
    )


def planned_tail(mark: PhaseMark, benchmark: str) -> Tail | None:
    """Return the tail of a phase by its stonewall on the command line, and by the rate until then that was printed.

    For runs without a result folder. None if the phase has no stonewall, or ended soon after it.
    """
    if benchmark not in WALLED or mark.expected is None or mark.end is None:
        return None
    length = mark.end - mark.start if mark.seconds is None else mark.seconds
    if length - mark.expected < MIN_PLANNED_SECONDS:
        return None
    wall = next((result for result in mark.results if result.operation == "stonewall"), None)
    value = next((result.value for result in mark.results if wall is not None and result.unit == wall.unit), 0.0)
    rate = cost = low = high = None
    if wall is not None and wall.value >= value > 0:
        rate, half = wall.value, min(last_digit(wall), wall.value) / 2
        low, cost, high = (max(0.0, 1 - value / one) for one in (rate - half, rate, rate + half))
    return Tail(
        kind="stonewall",
        until=mark.expected,
        seconds=length - mark.expected,
        rate=rate,
        cost=cost,
        low=low,
        high=high,
        source="" if cost is None else f"{benchmark}: stonewall",
    )


def wall_rate(detail: PhaseDetail, value: float) -> WallRate | None:
    """Return the most exact rate until the stonewall; None if there is none, or none is plausible beside the result."""
    plausible = [rate for rate in detail.wall_rates if _plausible(rate, value)]
    if detail.phase.startswith("ior"):
        # ior measured it; IO500 copies it, isc20 and sc20 in another unit.
        own = [rate for rate in plausible if not rate.source.startswith("result.txt")]
        plausible = [rate for rate in plausible if all(rate.agrees(other) for other in own)] or own
    return min(plausible, key=lambda rate: rate.error, default=None)


def contradictions(details: Iterable[PhaseDetail], marks: Mapping[str, PhaseMark]) -> Iterator[str]:
    """Yield figures of a phase that contradict each other, beyond their rounding."""
    for detail in details:
        mark = marks.get(detail.phase)
        value = mark.results[0].value if mark is not None and mark.results else None
        rates = detail.wall_rates
        apart = next(((rate, other) for rate, other in combinations(rates, 2) if not rate.agrees(other)), None)
        if apart is not None:
            one, other = (f"{_rate(detail.phase, rate.middle)} ({rate.source})" for rate in apart)
            yield f"{detail.phase}: the rates until the stonewall contradict each other: {one}, {other}"
        elif value and rates and not any(_plausible(rate, value) for rate in rates):
            wall, result = (_rate(detail.phase, rate) for rate in (rates[0].middle, value))
            yield (
                f"{detail.phase}: the rate until the stonewall is {wall} ({rates[0].source}), the result {result}: "
                "one is wrong or in another unit, so the cost of the tail is not known"
            )
        if mark is None or not value or not detail.rate:
            continue
        if abs(detail.rate - value) > detail.rate * detail.rate_error + last_digit(mark.results[0]):
            result, printed = (_rate(detail.phase, rate) for rate in (value, detail.rate))
            yield f"{detail.phase}: its result is {result}, and ior printed {printed}"


def _rate(phase: str, value: float) -> str:
    """Return a rate in words: of bytes in ior's phases, in IO500 or alone, else of operations."""
    moves_bytes = phase.startswith("ior") or phase == "write"
    return f"{value / BYTES_PER_GIBIBYTE:.6g} GiB/s" if moves_bytes else f"{value / 1000:.6g} kIOPS"


def _plausible(rate: WallRate, value: float) -> bool:
    return value > 0 and rate.high * MAX_PLAUSIBLE_RATIO >= value and rate.low <= value * MAX_PLAUSIBLE_RATIO


def tails(details: Iterable[PhaseDetail], marks: Iterable[PhaseMark]) -> dict[str, Tail]:
    """Return the tail of each phase that has one."""
    known = {detail.phase: detail for detail in details}
    found = ((mark.name, tail_of(known[mark.name], mark)) for mark in marks if mark.name in known)
    return {name: tail for name, tail in found if tail is not None}


def weight(phase: str) -> float:
    """Return the exponent of a phase in IO500's score: twice as fast is 2**weight as many points.

    It is 0 for a phase that is not scored.
    The score is the geometric mean of two geometric means: of 4 bandwidths and of 8 rates (src/main.c).
    """
    if phase not in SHELL_PHASES:
        return 0.0
    return 1 / 8 if phase.startswith("ior") else 1 / 16


def gain(phase: str, tail: Tail) -> float:
    """Return by how much, as a share, the score would be higher without a phase's tail; 0 if that is not known."""
    return (1 - (tail.cost or 0.0)) ** -weight(phase) - 1 if tail.cost is None or tail.cost < 1 else 0.0


def score_without_tails(score: float, found: Mapping[str, Tail]) -> tuple[float, float, float] | None:
    """Return the score had the write phases kept their rate until the stonewall, and the lowest and highest it can be.

    None if no such rate is known.
    """
    known = [
        (weight(phase), tail) for phase, tail in found.items() if tail.kind == "stonewall" and tail.cost is not None
    ]
    if not known:
        return None
    lower, middle, upper = score, score, score
    for share, tail in known:
        lower *= (1 - (tail.low or 0.0)) ** -share
        middle *= (1 - (tail.cost or 0.0)) ** -share
        upper *= (1 - (tail.high or 0.0)) ** -share
    return middle, lower, upper


def share_words(cost: float, low: float, high: float) -> str:
    """Return a cost in words: ``18.9%``, or with its range ``8% (7.3 to 8.7%)``."""
    if high - low < MIN_WIDE:
        return f"{cost:.1%}"
    return f"about {cost:.0%} ({low * 100:.1f} to {high:.1%})"


def tail_words(phase: str, tail: Tail, detail: PhaseDetail) -> list[str]:
    """Return what a phase's tail is, in sentences; empty if there is nothing worth saying."""
    said = []
    if tail.kind == "stonewall":
        length = (
            ""
            if tail.until is None or tail.seconds is None
            else (f"stonewall after {tail.until:.1f} s, then a tail of {tail.seconds:.1f} s")
        )
        fewest, most = detail.wall_fewest, detail.wall_most
        spread = (
            ""
            if fewest is None or not most
            else f"at the stonewall the slowest rank had done {fewest / most:.0%} of the fastest"
        )
        said += [", ".join(part for part in (length, spread) if part)]
        if tail.cost is not None and tail.rate is not None:
            low, high = tail.low or 0.0, tail.high or 0.0
            if tail.cost < MIN_SHOWN_COST:
                before = _rate(phase, tail.rate)
                said.append(f"the tail costs nothing that these digits show: {before} before it ({tail.source})")
            else:
                said.append(
                    f"the tail costs {share_words(tail.cost, low, high)} of {_rate(phase, tail.rate)} ({tail.source})"
                )
    elif (
        tail.cost is not None
        and tail.cost >= MIN_SLOWEST_COST
        and tail.until is not None
        and tail.seconds is not None
        and tail.rate is not None
    ):
        said.append(
            f"half of the ranks are done after {tail.until:.1f} s, the last one {tail.seconds:.1f} s later: "
            f"ranks that ended together would reach {_rate(phase, tail.rate)}, this is {tail.cost:.1%} less"
        )
    stages = [
        f"{name} {seconds:.2f} s"
        for name, seconds in (("open", detail.opening), ("transfer", detail.moving), ("close", detail.closing))
        if seconds is not None
    ]
    if stages:
        said.append(f"{', '.join(stages)}, each from the first rank's start to the last one's end")
    if detail.searching is not None:
        said.append(f"ranks of pfind looked for work of other ranks for {detail.searching:.0%} of the time")
    return [words for words in said if words]


def slow_words(ranks: RankTimes) -> list[str]:
    """Return which ranks and nodes are slow, in sentences; empty if none is."""
    said = []
    slow = [one for one in ranks.ranks if outlier(one.seconds, ranks.median, ranks.deviation, ranks.count)]
    if slow:
        names = ", ".join(f"{one.rank}{f' on {one.host}' if one.host else ''} ({one.seconds:.1f} s)" for one in slow)
        said.append(f"slow: rank {names}; the median of {ranks.count} ranks is {ranks.median:.1f} s")
    nodes = [
        one for one in ranks.nodes if outlier(one.seconds, ranks.node_median, ranks.node_deviation, ranks.node_count)
    ]
    if nodes:
        names = ", ".join(
            f"{one.host or f'node {one.node} (from rank {one.first} on)'} ({one.seconds:.1f} s)" for one in nodes
        )
        said.append(f"slow: {names}; the median of {ranks.node_count} nodes is {ranks.node_median:.1f} s")
    return said


def outlier(seconds: float, median: float, deviation: float, peers: int) -> bool:
    """Return whether one of several peers needs much longer than the others."""
    if peers - 1 < MIN_PEERS:
        return seconds >= MIN_FEW_PEERS_RATIO * median > 0
    return seconds - median > max(MIN_OUTLIER_SHARE * median, MIN_OUTLIER_DEVIATIONS * DEVIATION_SCALE * deviation)
