"""Ranks that a test makes up, second by second, and the series that an exporter has of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pinchpoint.metrics import WORKLOAD_OWNER_INFO, WORKLOAD_SECONDS
from pinchpoint.model import Point, Snapshot
from pinchpoint.waits.ranks import RankSample, RankSpread

__all__ = ["Crew", "Rank"]

Names = tuple[str, str]


@dataclass
class Rank:
    """One rank: it does `work` at `rate`, then waits in the barrier."""

    rate: float
    work: float
    waits: Mapping[str, float] = field(default_factory=lambda: {"osd": 0.9, "cpu": 0.1})
    """What its time passes with while it works, as shares."""
    barrier: str = "idle"
    """The wait class of its time in the barrier: a library that polls there uses a CPU."""
    done: float = 0.0

    def second(self) -> dict[str, float]:
        """Let a second pass; return what it passed with."""
        if self.done >= self.work:
            return {self.barrier: 1.0}
        self.done = min(self.work, self.done + self.rate)
        return dict(self.waits)


class Crew:
    """The ranks of one host."""

    def __init__(
        self,
        ranks: Sequence[Rank],
        *,
        first: int = 0,
        mpi: bool = True,
        threads: bool = False,
        names: Names = ("ior", "r"),
    ) -> None:
        self.ranks = [*ranks]
        self.spread = RankSpread()
        self.now = 0.0
        self._first = first
        self._mpi = mpi and not threads
        self._threads = threads
        self._names = names
        self._base = [0.0] * len(ranks)
        self._seconds: dict[str, float] = {}
        self._take([{} for _ in ranks])

    @property
    def finished(self) -> bool:
        """Whether all have done their work."""
        return all(rank.done >= rank.work for rank in self.ranks)

    def pass_second(self, work: Callable[[int], tuple[int, int, int]] | None = None) -> None:
        """Let all work for a second; `work` returns other counters of a rank than its bytes."""
        self.now += 1.0
        times = [rank.second() for rank in self.ranks]
        self._take(times, work)
        # As the waits probe counts: processes that do nothing are left out beside those that work.
        works = [time for rank, time in zip(self.ranks, times, strict=True) if time.get(rank.barrier, 0.0) < 1.0]
        for time in works or times:
            for wait, seconds in time.items():
                self._seconds[wait] = self._seconds.get(wait, 0.0) + seconds

    def _take(
        self, times: Sequence[Mapping[str, float]], work: Callable[[int], tuple[int, int, int]] | None = None
    ) -> None:
        samples = []
        for place, (rank, time) in enumerate(zip(self.ranks, times, strict=True)):
            counters = (int(self._base[place] + rank.done), 0, 0) if work is None else work(place)
            number = self._first + place if self._mpi else None
            samples.append(RankSample(100 + place, 5, "ior", 1, number, counters, time, thread=self._threads))
        self.spread.take(samples, 1.0)

    def run(self, seconds: int | None = None) -> Crew:
        """Let them work for so long, or until all are done."""
        until = self.now + (10_000 if seconds is None else seconds)
        while self.now < until and not (seconds is None and self.finished):
            self.pass_second()
        return self

    def begin(self, work: Sequence[float]) -> None:
        """Give all of them more to do."""
        for place, (rank, more) in enumerate(zip(self.ranks, work, strict=True)):
            self._base[place] += rank.done
            rank.done, rank.work = 0.0, more

    def points(self) -> list[Point]:
        """Return the series of the workload."""
        waits = [WORKLOAD_SECONDS.point(seconds, *self._names, wait) for wait, seconds in self._seconds.items()]
        return [*waits, WORKLOAD_OWNER_INFO.point(1, *self._names, "ior"), *self.spread.points(*self._names)]

    def snapshot(self, start: float = 1_800_000_000.0) -> Snapshot:
        """Return what an exporter exports now."""
        return Snapshot.of(start + self.now, self.points())
