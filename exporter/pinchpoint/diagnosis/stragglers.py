"""Stragglers: the rank or the host that the other ranks of a benchmark wait for.

A parallel phase ends with its slowest rank, so one that is slower, or has more to do, holds all others. That costs
their time from when they are done: a rank that is merely slower while all others work costs nothing yet, and is only
mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from pinchpoint.diagnosis.blame import BenchmarkWork
from pinchpoint.diagnosis.peers import MIN_PEERS, is_below
from pinchpoint.diagnosis.usage import RankUse, Usage
from pinchpoint.figures import format_figure

__all__ = ["MIN_HELD_SHARE", "RankSpread", "rank_spread", "rank_waits", "sentences"]

MIN_HELD_SHARE = 0.15
"""Share of the ranks' time in which they waited for others from which a straggler holds the phase: one of 8 ranks that
needs a fifth more time costs them 15 %."""
MAX_EVEN_RATIO = 0.8
"""Rate of the slowest rank relative to the median from which it is not slower than others by chance."""
MIN_UNEVEN_RATIO = 1.25
"""Work of a rank relative to the median from which it had more to do."""
MIN_HELD_RANKS = 3
"""Ranks from which one can hold the others: of two that differ, such as two jobs of fio, neither is the usual one."""
WORDS = {"mpi": "rank", "thread": "thread"}
"""What ranks are called, by what gives their number; the others are processes."""
MIN_WAIT_SHARE = 0.1
"""Share of the slowest rank's time from which a wait is mentioned."""


class RankSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of one run on all hosts, in one interval."""

    working: int
    done: int
    waited: float
    """Share of the ranks' time in which they waited for others, in the interval."""
    since: float
    """The same since they last began together."""
    host: str
    """Where the slowest one is; empty if none works."""
    slowest: str
    """``rank 5``, ``process 3``, ``thread 3``."""
    rate: float
    median: float
    """Rates of the slowest and of the median rank, in units per second."""
    unit: str
    outlier: bool
    """Whether the slowest is slower than chance explains."""
    uneven: float
    """Its work relative to the median."""
    left: float | None
    """Seconds until it has done as much as the furthest one; None if it already has, or nothing measures that."""
    waits: Mapping[str, float]
    """Seconds per second of the slowest rank, by wait class."""
    alone: bool
    """Whether all ranks that still work are on that host, and others are on others."""

    @property
    def ratio(self) -> float:
        """Rate of the slowest rank relative to the median."""
        return self.rate / self.median if self.median > 0 else 1.0

    @property
    def slow(self) -> bool:
        """Whether the slowest rank is slower than the others, not by chance."""
        return self.outlier and self.ratio < MAX_EVEN_RATIO

    @property
    def holds(self) -> bool:
        """Whether the slowest rank holds the time of the others."""
        costly = min(self.waited, self.since) >= MIN_HELD_SHARE and self.working + self.done >= MIN_HELD_RANKS
        return costly and (self.slow or self.uneven >= MIN_UNEVEN_RATIO)

    @property
    def name(self) -> str:
        """The straggler: ``rank 5 on client2``, or the host if several of its ranks hold the others of other hosts."""
        several = self.alone and self.working > 1
        return f"the {self.working} ranks on {self.host}" if several else f"{self.slowest} on {self.host}"


def rank_spread(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> RankSpread | None:
    """Return how the ranks of a run got on; None unless there are several."""
    found = {name: ranks for name, host in hosts.items() if (ranks := _ranks(host, workload)) is not None}
    number = sum(ranks.working + ranks.done for ranks in found.values())
    time = sum(ranks.worked + ranks.waited for ranks in found.values())
    if number < 2 or time <= 0 or not any(ranks.worked for ranks in found.values()):
        return None
    working = sum(ranks.working for ranks in found.values())
    # Where hosts measure their ranks differently, those of most hosts are compared.
    units = [ranks.unit for ranks in found.values() if ranks.unit]
    unit = max(units, key=units.count, default="")
    seen = {name: ranks for name, ranks in found.items() if ranks.unit == unit}
    slow = {name: ranks for name, ranks in seen.items() if ranks.slowest is not None and "slowest" in ranks.rates}
    # What is over on a host is as it was last; it counts if it is over everywhere.
    slow = {name: ranks for name, ranks in slow.items() if ranks.working} or slow
    host = min(slow, key=lambda name: (slow[name].rates["slowest"], name), default="")
    slowest = slow.get(host)
    rates = [ranks.rates.get("median", 0.0) for ranks in seen.values()]
    middle = median(
        [rate for rate, ranks in zip(rates, seen.values(), strict=True) for _ in range(_number(ranks))] or [0.0]
    )
    rate = slowest.rates["slowest"] if slowest is not None else 0.0
    # The deviation of a handful is too small by chance: hosts with few ranks have none.
    many = [ranks.rates.get("deviation", 0.0) for ranks in seen.values() if _number(ranks) >= MIN_PEERS]
    if len(rates) >= MIN_PEERS:
        many.append(median(abs(one - median(rates)) for one in rates))
    work = [ranks.work.get("median", 0.0) for ranks in seen.values() for _ in range(_number(ranks))]
    furthest = max((ranks.work.get("furthest", 0.0) for ranks in seen.values()), default=0.0)
    own = slowest.work.get("slowest", 0.0) if slowest is not None else 0.0
    usual = median(work or [0.0])
    return RankSpread(
        working=working,
        done=number - working,
        waited=sum(ranks.waited for ranks in found.values()) / time,
        since=sum(ranks.since * _number(ranks) for ranks in found.values()) / number,
        host=host,
        slowest="" if slowest is None else f"{WORDS.get(slowest.numbered, 'process')} {slowest.slowest}",
        rate=rate,
        median=middle,
        unit=unit,
        outlier=slowest is not None and is_below(rate, middle, max(many, default=0.0), number if many else 0),
        uneven=own / usual if usual > 0 else 1.0,
        left=(furthest - own) / rate if number > working and rate > 0 and furthest > own else None,
        waits={} if slowest is None else slowest.waits,
        alone=slowest is not None and len(found) > 1 and slowest.working == working,
    )


def _number(ranks: RankUse) -> int:
    return ranks.working + ranks.done


def _ranks(host: Usage, workload: BenchmarkWork) -> RankUse | None:
    """Return the ranks of a run on a host."""
    for use in host.workloads:
        if use.benchmark == workload.benchmark and workload.includes(use.run) and use.ranks is not None:
            return use.ranks
    return None


def rank_waits(spread: RankSpread, workload: BenchmarkWork) -> BenchmarkWork:
    """Return the slowest rank as a workload of its own, so that what it waits for can be blamed."""
    owners = {spread.host: workload.owners.get(spread.host, ())}
    return workload._replace(seconds=spread.waits, owners=owners)


def sentences(spread: RankSpread, wait_words: Mapping[str, str]) -> Iterator[str]:
    """Yield what is worth knowing of the ranks; `wait_words` says each wait class in words."""
    total = spread.working + spread.done
    if spread.host and spread.slow:
        yield (
            f"{spread.slowest} on {spread.host} has {spread.ratio:.0%} of the median rate of {total} ranks "
            f"({_rate(spread.rate, spread.unit)} of {_rate(spread.median, spread.unit)}){_why(spread, wait_words)}"
        )
    elif spread.host and spread.done and spread.uneven >= MIN_UNEVEN_RATIO:
        yield (
            f"{spread.slowest} on {spread.host} has done {spread.uneven:.2g} times the work of the median rank, at "
            f"{spread.ratio:.0%} of its rate{_why(spread, wait_words)}"
        )
    if spread.waited >= MIN_HELD_SHARE:
        yield f"the {total} ranks spent {spread.waited:.0%} of their time waiting for the last ones"
    if spread.done and spread.working:
        left = f": it needs about {spread.left:.0f} s more" if spread.left is not None else ""
        slowest = f", {spread.slowest} on {spread.host} is the slowest{left}" if spread.host else ""
        yield f"{spread.done} of {total} ranks are done{slowest}"


def _why(spread: RankSpread, wait_words: Mapping[str, str]) -> str:
    total = sum(spread.waits.values())
    shares: Sequence[tuple[str, float]] = (
        sorted(
            ((wait, seconds / total) for wait, seconds in spread.waits.items()), key=lambda item: (-item[1], item[0])
        )
        if total > 0
        else ()
    )
    told = [f"{wait_words.get(wait, wait)} {share:.0%}" for wait, share in shares[:2] if share >= MIN_WAIT_SHARE]
    return f": {', '.join(told)}" if told else ""


def _rate(rate: float, unit: str) -> str:
    return f"{rate:.3g} waits/s" if unit == "waits" else format_figure(rate, "bytes_per_second")
