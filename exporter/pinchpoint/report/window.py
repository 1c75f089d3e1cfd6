"""The snapshots around each phase of a recording, and which moments of it have to be read for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinchpoint.diagnosis.facts import Facts, facts, merged
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.runs import PhaseMark

__all__ = ["Reader", "Sighting", "Window", "hottest", "needed", "time_of"]

STALE = 5.0
"""Seconds for which a host that gave no answer stands as it was last seen."""
ENDING = ("pinchpoint_resource_", "pinchpoint_workload_", "pinchpoint_thread_")
"""Begin the names of integrals that go with their process: what it used belongs to the phase all the same."""
COVERED = 3.0
"""Seconds before a moment that the busy share of a thread without a role is a mean over."""
BESIDE = 3
"""Moments that are read before each border: what ends with the phase is seen last there."""


class Sighting(NamedTuple):
    """A thread without a role that was hot at one moment."""

    time: float
    """Of the moment, in Unix seconds."""
    host: str
    thread: str
    process: str
    busy: float


@dataclass(slots=True)
class Window:
    """A phase and the snapshots of each host around it; those are empty as long as there are none.

    The first is the last one at or before the start, or else the earliest; the second is the first one at or after the
    end, or else the latest. Nothing is interpolated.
    """

    start: float
    end: float | None
    """Unix seconds; None of a phase whose end was not seen."""
    before: dict[str, Snapshot] = field(default_factory=dict)
    after: dict[str, Snapshot] = field(default_factory=dict)
    hottest: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """Thread, process and busy share of the thread without a role that was hottest in the phase, by host."""
    complete: bool = False


class Reader:
    """Takes the moments of a recording one after the other, oldest first, and keeps what phases need of them."""

    def __init__(self, marks: Iterable[PhaseMark], *, known: Facts | None = None) -> None:
        """Begin; `known` are the settings of the hosts where they are known already."""
        self.windows = [Window(mark.start, mark.end) for mark in marks]
        self.facts: Facts = known or {}
        self._look = not known
        self._hosts: dict[str, Snapshot] = {}

    def take(self, moment: Snapshots) -> None:
        """Take the next moment; one in which no host answered says nothing."""
        if not moment:
            return
        now = time_of(moment)
        if self._look:
            self.facts = merged(self.facts, facts(moment))
        fresh = {host: snapshot for host, snapshot in self._hosts.items() if now - snapshot.time <= STALE}
        self._hosts = {**fresh, **moment}
        for window in self.windows:
            if now <= window.start:
                window.before = self._hosts
            elif not window.complete:
                # A host that is first seen in the middle of the phase counts from there.
                window.before = {**self._hosts, **window.before}
                window.after = with_ended(window.after or window.before, self._hosts)
                window.complete = window.end is not None and now >= window.end

    def finish(self, end: float | None) -> None:
        """Set the end of phases that have none: of a run that goes on, or that died; `end` in Unix seconds."""
        for window in self.windows:
            if window.end is None:
                window.end = end if end is not None else max((s.time for s in window.after.values()), default=None)


def with_ended(earlier: Snapshots, later: Snapshots) -> dict[str, Snapshot]:
    """Return the later snapshots, with hosts and integrals that ended in between as they were last."""
    found = dict(earlier)
    for host, snapshot in later.items():
        if (old := earlier.get(host)) is None or old is snapshot:
            found[host] = snapshot
            continue
        values = dict(snapshot.values)
        for name, series in old.values.items():
            if name.startswith(ENDING):
                now = snapshot.values.get(name, {})
                if series.keys() - now.keys():
                    values[name] = {**series, **now}
        found[host] = Snapshot(snapshot.time, values)
    return found


def hottest(
    sightings: Sequence[Sighting], times: Sequence[float], start: float, end: float
) -> dict[str, tuple[str, str, float]]:
    """Return thread, process and mean busy share of the thread that was hottest from `start` to `end`, by host.

    Both `sightings` and `times`, those of all moments, are oldest first. The end is the first moment after it.
    """
    start += min(COVERED, (end - start) / 2)  # what is seen before tells of the time before the phase, too
    first, last = bisect_right(times, start), bisect_left(times, end)
    moments = len(times[first : last + 1])
    if not moments:
        return {}
    until = times[min(last, len(times) - 1)]
    sums: dict[str, dict[tuple[str, str], float]] = {}
    for place in range(bisect_right(sightings, start, key=_when), bisect_right(sightings, until, key=_when)):
        _, host, thread, process, busy = sightings[place]
        names = sums.setdefault(host, {})
        names[thread, process] = names.get((thread, process), 0.0) + busy
    best = {host: max(names.items(), key=lambda item: item[1]) for host, names in sums.items()}
    return {host: (*names, busy / moments) for host, (names, busy) in best.items()}


def _when(sighting: Sighting) -> float:
    return sighting.time


def time_of(moment: Snapshots) -> float:
    """Return when a moment was, in Unix seconds: hosts are asked one after the other."""
    return max((snapshot.time for snapshot in moment.values()), default=0.0)


def needed(times: Sequence[float], marks: Iterable[PhaseMark], step: float = float("inf")) -> set[int]:
    """Return which of a recording's moments have to be read, by their place, given their times, oldest first.

    Those around each phase's start and end are; of the rest one in `step` seconds, for pictures.
    """
    found = set(_paced(times, step)) | ({0, len(times) - 1} if times else set())
    for mark in marks:
        first = bisect_right(times, mark.start) - 1
        last = len(times) - 1 if mark.end is None else bisect_left(times, mark.end)
        for place in (first, last):
            found.update(range(place - BESIDE, place + 2))
    return {place for place in found if 0 <= place < len(times)}


def _paced(times: Sequence[float], step: float) -> Iterator[int]:
    last = float("-inf")
    for place, time in enumerate(times):
        if time - last >= step:
            last = time
            yield place
