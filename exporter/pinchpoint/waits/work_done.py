"""What all processes of a benchmark have done on this host: the rate that people watch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pinchpoint.metrics import WORKLOAD_DONE
from pinchpoint.model import Point
from pinchpoint.waits.ranks import UNITS, Measure, RankSample

__all__ = ["WorkDone"]


class WorkDone:
    """Adds up the work of the processes of one workload, by unit."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._done = dict.fromkeys(UNITS.values(), 0)

    def take(self, samples: Iterable[RankSample]) -> None:
        """Take what was read of the processes. The first sample of each only sets where it begins."""
        last, self._last = self._last, {}
        for sample in samples:
            key = sample.pid, sample.start
            self._last[key] = sample.work
            asked, stored, sleeps = (
                max(0, now - then) for now, then in zip(sample.work, last.get(key, sample.work), strict=True)
            )
            # Asynchronous requests do not count as calls, and what the page cache absorbs does not reach storage.
            self._done[UNITS[Measure.ASKED]] += max(asked, stored)
            self._done[UNITS[Measure.SLEEPS]] += sleeps

    def points(self, *names: str) -> Iterator[Point]:
        """Yield the totals that are not zero; `names` are benchmark and run."""
        for unit, amount in self._done.items():
            if amount:
                yield WORKLOAD_DONE.point(amount, *names, unit)
