"""How the ranks of a benchmark get on beside each other: the slowest, the median, the fastest, and how many are done.

A rank is an MPI rank, a job of fio, or any of several processes that one process started under one name; if there is
one process alone, a thread of it (`pinchpoint.waits.thread_ranks`). All of a host are reduced to a few numbers, so that
64 ranks have no more series than two.

The ranks of a parallel program begin together, and who is done waits for the others: in a barrier, or by its end. When
one that waited goes on, all have begun again. That needs no knowledge of phases, which only one host may have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from statistics import median
from typing import NamedTuple

from pinchpoint.host.procfs import ProcessIo, parse_process_io, parse_sleeps, read_bytes
from pinchpoint.metrics import (
    WORKLOAD_RANK_RATE,
    WORKLOAD_RANK_SECONDS,
    WORKLOAD_RANK_WORK,
    WORKLOAD_RANKS,
    WORKLOAD_RANKS_WAITED_RATIO,
    WORKLOAD_SLOWEST_RANK,
    WORKLOAD_SLOWEST_RANK_SECONDS,
)
from pinchpoint.model import Point

__all__ = ["UNITS", "Measure", "RankSample", "RankSpread", "interval", "read_moved", "read_work"]

MIN_RANKS_INTERVAL_SECONDS = 1.0
"""Seconds between two looks at how far each rank has come ..."""
MAX_RANKS_PER_SECOND = 32
"""... and longer where more ranks than this would be read in a second, 50 us each."""
MIN_RANKS = 2
MIN_WAITING_SHARE = 0.8
"""Share of a sample in which a rank does nothing from which it waits for the others."""
DONE_SAMPLES = 2
"""Samples in a row in which a rank waits, from which it is done; so many without end that."""
MIN_BYTES_PER_SECOND = 1024.0
"""Bytes that the ranks move in a second, each on average, from which these measure their work: MPI itself moves some in
pipes and sockets."""


class Measure(IntEnum):
    """What measures the work of a rank: the first of these that grows."""

    ASKED = 0
    """Bytes of its read and write calls."""
    STORED = 1
    """Bytes read from and written to storage."""
    SLEEPS = 2
    """Times that its main thread slept: a request that is waited for is one. For metadata, which moves no bytes."""


UNITS = {Measure.ASKED: "bytes", Measure.STORED: "bytes", Measure.SLEEPS: "waits"}


class RankSample(NamedTuple):
    """What was read of one process, or of one thread: its `pid` is its own id then, and `parent` its process'."""

    pid: int
    start: int
    """Clock ticks from boot to its start; of a thread, to when it was found."""
    comm: str
    parent: int
    number: int | None
    """Its rank in MPI, None if it has none."""
    work: tuple[int, int, int]
    """Its counters so far, by `Measure`."""
    times: Mapping[str, float]
    """Its time since the last sample by wait class, in seconds."""
    thread: bool = False


def read_moved(directory: str) -> ProcessIo:
    """Read what a process or a thread, whose directory in procfs this is, has moved so far.

    Raises OSError if it has gone or may not be read, and FormatError.
    """
    return parse_process_io(read_bytes(f"{directory}/io", 1024))


def read_work(directory: str) -> tuple[int, int, int]:
    """Read what a process has done so far, by `Measure`; `directory` is its own in procfs.

    Raises OSError if it has gone or may not be read, and FormatError.
    """
    moved = read_moved(directory)
    return moved.asked, moved.stored, parse_sleeps(read_bytes(f"{directory}/status", 8192))


def interval(ranks: int) -> float:
    """Return the seconds between two looks at so many processes."""
    return max(MIN_RANKS_INTERVAL_SECONDS, ranks / MAX_RANKS_PER_SECOND)


class _Rank:
    """What one process has done since all began together."""

    def __init__(self, sample: RankSample) -> None:
        self.number, self.parent, self.thread = sample.number, sample.parent, sample.thread
        self.last = self.base = sample.work
        self.worked = 0.0
        """Seconds in which it worked."""
        self.streak = 0
        """Samples in a row in which it waited for the others or, once it is done, did not."""
        self.gone = self.waited = False

    @property
    def done(self) -> bool:
        return self.gone or self.waited

    def work(self, measure: Measure) -> int:
        return max(0, self.last[measure] - self.base[measure])

    def rate(self, measure: Measure) -> float | None:
        """Return what it does in a second while it works; None if that was not seen."""
        return self.work(measure) / self.worked if self.worked > 0 else None

    def restart(self) -> None:
        """Begin again."""
        self.base, self.worked, self.streak, self.waited = self.last, 0.0, 0, False

    def take(self, sample: RankSample, elapsed: float, *, waits: bool) -> bool:
        """Take the next sample; return whether it goes on after it was done: all have begun again."""
        moved = max(now - before for now, before in zip(sample.work[:2], self.last[:2], strict=True))
        if waits is self.waited:
            self.streak = 0
        else:
            self.streak += 1
        goes_on = self.waited and (self.streak >= DONE_SAMPLES or moved > MIN_BYTES_PER_SECOND * elapsed)
        self.waited = self.waited or self.streak >= DONE_SAMPLES
        if goes_on:
            self.restart()
        self.last, self.number = sample.work, sample.number
        if not waits and not self.waited:
            self.worked += elapsed
        return goes_on


class RankSpread:
    """The ranks of one workload on this host."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[int, int], _Rank] = {}
        self._seconds = {"working": 0.0, "done": 0.0}
        self._began = (0.0, 0.0)
        """The same when all began together."""
        self._slowest: dict[str, float] = {}
        """Time of the slowest rank by wait class, in seconds."""
        self._measure = Measure.ASKED

    def take(self, samples: Iterable[RankSample], elapsed: float) -> None:
        """Take what was read of the workload's processes, `elapsed` seconds after the last time."""
        alive = {(sample.pid, sample.start): sample for sample in samples}
        # A process that has started ranks is none: fio's remains when its jobs have ended.
        parents = {rank.parent for rank in self._ranks.values()}
        group = {(one.pid, one.start): one for one in _peers([one for one in alive.values() if one.pid not in parents])}
        self._ranks = {key: rank for key, rank in self._ranks.items() if key in group or key not in alive}
        known = self._ranks.keys() & group.keys()
        if group and not known:
            self._forget()  # nobody waits for them: these are of the next job or command
        for key in group.keys() - known:
            self._ranks[key] = _Rank(group[key])
        for key, rank in self._ranks.items():
            rank.gone = key not in group
        if all(rank.gone for rank in self._ranks.values()):
            self._forget()
            return
        waiting = {key: self._waits(self._ranks[key], sample) for key, sample in group.items()}
        goes_on = [
            self._ranks[key].take(sample, elapsed if key in known else 0.0, waits=waiting[key])
            for key, sample in group.items()
        ]
        if any(goes_on):
            self._ranks = {key: self._ranks[key] for key in group}
            for rank in self._ranks.values():
                rank.restart()
            self._began = self._seconds["working"], self._seconds["done"]
        self._measure = self._chosen()
        if self._several:
            done = sum(rank.done or waiting.get(key, True) for key, rank in self._ranks.items())
            self._seconds["done"] += done * elapsed
            self._seconds["working"] += (len(self._ranks) - done) * elapsed
            if (slowest := self._slowest_key()) is not None:
                for wait, seconds in group[slowest].times.items():
                    self._slowest[wait] = self._slowest.get(wait, 0.0) + max(0.0, seconds)

    @property
    def _several(self) -> bool:
        """Whether there is something to compare: a rank of MPI that is alone here has others on other hosts."""
        return len(self._ranks) >= MIN_RANKS or any(rank.number is not None for rank in self._ranks.values())

    def _forget(self) -> None:
        """Forget ranks that have all ended."""
        self._ranks.clear()
        self._began = self._seconds["working"], self._seconds["done"]

    def _waits(self, rank: _Rank, sample: RankSample) -> bool:
        """Return whether a rank waits for the others: it does nothing, and what it polls with moves no data."""
        total = sum(sample.times.values())
        still = all(sample.work[way] <= rank.last[way] for way in (Measure.ASKED, Measure.STORED))
        nothing = sample.times.get("idle", 0.0) + (sample.times.get("cpu", 0.0) if still else 0.0)
        return still and total > 0 and nothing >= MIN_WAITING_SHARE * total

    def _chosen(self) -> Measure:
        """Return what measures the work of these ranks."""
        worked = sum(rank.worked for rank in self._ranks.values())
        for measure in (Measure.ASKED, Measure.STORED):
            if sum(rank.work(measure) for rank in self._ranks.values()) > MIN_BYTES_PER_SECOND * worked:
                return measure
        return Measure.SLEEPS

    def _slowest_key(self) -> tuple[int, int] | None:
        """Return the slowest rank of those that still work; None if nobody has worked."""
        rates = {
            key: rate
            for key, rank in self._ranks.items()
            if not rank.done and (rate := rank.rate(self._measure)) is not None
        }
        return min(rates, key=lambda key: (rates[key], key), default=None)

    def points(self, *names: str) -> Iterator[Point]:
        """Yield the series of the ranks, if there may be several; `names` are benchmark and run."""
        for state, seconds in self._seconds.items():
            if any(self._seconds.values()):
                yield WORKLOAD_RANK_SECONDS.point(seconds, *names, state)
        for wait, seconds in self._slowest.items():
            yield WORKLOAD_SLOWEST_RANK_SECONDS.point(seconds, *names, wait)
        ranks = dict(self._ranks)
        if not self._several:
            return
        done = sum(rank.done for rank in ranks.values())
        yield WORKLOAD_RANKS.point(len(ranks) - done, *names, "working")
        yield WORKLOAD_RANKS.point(done, *names, "done")
        worked, waited = (now - then for now, then in zip(self._seconds.values(), self._began, strict=True))
        if worked + waited > 0:
            yield WORKLOAD_RANKS_WAITED_RATIO.point(waited / (worked + waited), *names)
        measure = self._measure
        rates = [rate for rank in ranks.values() if (rate := rank.rate(measure)) is not None]
        if not rates:
            return
        middle, unit = median(rates), UNITS[measure]
        spread = median(abs(rate - middle) for rate in rates)
        for which, rate in (("median", middle), ("fastest", max(rates)), ("deviation", spread)):
            yield WORKLOAD_RANK_RATE.point(rate, *names, which, unit)
        work = [rank.work(measure) for rank in ranks.values()]
        for which, amount in (("median", median(work)), ("furthest", max(work))):
            yield WORKLOAD_RANK_WORK.point(amount, *names, which, unit)
        slowest = self._slowest_key()
        if slowest is None or slowest not in ranks:
            return
        yield WORKLOAD_RANK_RATE.point(ranks[slowest].rate(measure) or 0.0, *names, "slowest", unit)
        yield WORKLOAD_RANK_WORK.point(ranks[slowest].work(measure), *names, "slowest", unit)
        if (number := ranks[slowest].number) is not None:
            yield WORKLOAD_SLOWEST_RANK.point(number, *names, "mpi")
        else:
            place = sorted(ranks, key=lambda key: (key[1], key[0])).index(slowest)
            yield WORKLOAD_SLOWEST_RANK.point(place, *names, "thread" if ranks[slowest].thread else "start")


def _peers(samples: Sequence[RankSample]) -> Iterator[RankSample]:
    """Yield the processes that share the work: MPI ranks of one name, else those of one name and parent.

    What a rank starts inherits its number, so the name counts too: that of most of them, and of those the one that has
    done most.
    """
    numbered = [sample for sample in samples if sample.number is not None]
    kinds: Counter[tuple[str, int]] = Counter()
    work: Counter[tuple[str, int]] = Counter()
    chosen = numbered or samples
    for sample in chosen:
        kinds[_kind(sample)] += 1
        work[_kind(sample)] += sample.work[Measure.ASKED]
    best = max(kinds, key=lambda kind: (kinds[kind], work[kind], kind), default=None)
    return (sample for sample in chosen if _kind(sample) == best)


def _kind(sample: RankSample) -> tuple[str, int]:
    return sample.comm, sample.parent if sample.number is None else 0
