"""The course of a run, as lines to draw: means over equal time steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan
from typing import NamedTuple

import msgspec

from pinchpoint.diagnosis.blame import jobs_of_runs, workloads
from pinchpoint.diagnosis.series import label, series
from pinchpoint.diagnosis.usage import Usage, usages, whole_use
from pinchpoint.diagnosis.window import with_ended
from pinchpoint.metrics import MDS_CACHE_BYTES, MDS_CACHE_LIMIT_BYTES
from pinchpoint.model import Snapshot, Snapshots, time_of
from pinchpoint.runs import belongs

__all__ = ["Line", "ResourceLine", "RunLines", "Tracer", "step_of"]

MAX_STEPS = 1000
"""Maximum number of steps in a run of any length."""
MIN_STEP_SECONDS = 1.5
"""Minimum length of a step in seconds: some probes sample only once a second."""
MIN_STEP_SHARE = 0.99
"""Share of a step after which it may end: moments come slightly early or late."""
MIN_GAP_SECONDS = 10.0
"""Seconds without samples (or three steps, if that is more) that make a gap instead of a long step."""


class ResourceLine(NamedTuple):
    """One resource of one host."""

    resource: str
    owner: str
    host: str


class Line:
    """One value for each step; nan if there is none."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def put(self, place: int, value: float) -> None:
        """Set the value of a step."""
        self.values += [nan] * (place + 1 - len(self.values))
        self.values[place] = value

    def padded(self, length: int) -> list[float]:
        """Return the values of all steps."""
        return self.values + [nan] * (length - len(self.values))


class RunLines(msgspec.Struct):
    """Lines over a run. The value of a step is a mean; for sizes and clocks it is the value at its end."""

    steps: list[tuple[float, float]] = msgspec.field(default_factory=list)
    """Start and end of each, in Unix seconds."""
    waits: dict[str, Line] = msgspec.field(default_factory=dict)
    """Share of the time of the run's processes, by wait class."""
    busy: dict[ResourceLine, Line] = msgspec.field(default_factory=dict)
    serves: dict[ResourceLine, tuple[str, ...]] = msgspec.field(default_factory=dict)
    thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    """Threshold of a resource, if its exporter reports one."""
    clocks: dict[str, Line] = msgspec.field(default_factory=dict)
    """Hertz, by host: the clock that work saw, or else the mean over the CPUs."""
    top_clocks: dict[str, float] = msgspec.field(default_factory=dict)
    """The hardware's maximum in hertz, by host."""
    idle: dict[str, dict[str, Line]] = msgspec.field(default_factory=dict)
    """Share of the CPUs' time in each idle state, by host; shallowest state first."""
    caches: dict[tuple[str, str], Line] = msgspec.field(default_factory=dict)
    """Bytes in the cache of an MDS, by host and daemon."""
    cache_limits: dict[tuple[str, str], Line] = msgspec.field(default_factory=dict)


def step_of(seconds: float) -> float:
    """Return the length of a step in a run of so many seconds."""
    return max(MIN_STEP_SECONDS, seconds / MAX_STEPS)


class Tracer:
    """Takes the moments of a recording one after the other, oldest first, and makes the timeline of one run."""

    def __init__(self, run: str, benchmarks: Iterable[str], step: float) -> None:
        self.timeline = RunLines()
        self._run = run
        self._benchmarks = frozenset(benchmarks)
        self._step = step
        self._last: Snapshots = {}
        self._newest: Snapshots = {}
        """The last snapshots, with what ended since the step began."""

    def take(self, moment: Snapshots) -> None:
        """Take the next moment; one within the step adds to the next one."""
        if not moment or not self._last:
            self._last = self._newest = self._last or moment
            return
        ended = {host: with_ended(self._newest.get(host), snapshot) for host, snapshot in moment.items()}
        self._newest = {**self._newest, **ended}
        if time_of(moment) - time_of(self._last) >= self._step * MIN_STEP_SHARE:
            self._end_step()
            self._last = self._newest = moment

    def finish(self) -> None:
        """End the last step, which is shorter, unless it is too short to say anything."""
        if time_of(self._newest) - time_of(self._last) >= MIN_STEP_SECONDS * MIN_STEP_SHARE:
            self._end_step()

    def _end_step(self) -> None:
        start, end = time_of(self._last), time_of(self._newest)
        if end - start > max(MIN_GAP_SECONDS, 3 * self._step):
            return
        place = len(self.timeline.steps)
        self.timeline.steps.append((start, end))
        hosts = usages(self._last, self._newest)
        self._waits(place, hosts)
        for host, use in hosts.items():
            self._host(place, host, use)
            self._caches(place, host, self._newest[host])

    def _waits(self, place: int, hosts: Mapping[str, Usage]) -> None:
        found = workloads(hosts)
        job = jobs_of_runs(hosts).get(self._run, "")
        own = [work for work in found if work.run == self._run] or [
            work for work in found if belongs(work.run, self._run, job) and work.benchmark in self._benchmarks
        ]
        seconds: dict[str, float] = {}
        for work in own:
            for wait, value in work.seconds.items():
                seconds[wait] = seconds.get(wait, 0.0) + value
        total = sum(seconds.values())
        for wait, value in seconds.items():
            if total > 0:
                self.timeline.waits.setdefault(wait, Line()).put(place, value / total)

    def _host(self, place: int, host: str, use: Usage) -> None:
        line = self.timeline
        uses = {(found.resource, found.owner): found for found in use.resources}
        for found in (whole_use(each, uses) for each in use.resources):
            key = ResourceLine(found.resource, found.owner, host)
            line.busy.setdefault(key, Line()).put(place, found.busy)
            line.serves[key] = found.serves
            if found.threshold is not None:
                line.thresholds[found.resource] = found.threshold
        if use.clock is not None:
            seen = use.clock.mean
            if use.clock.busy_ratio is not None and use.clock.max:
                seen = use.clock.busy_ratio * use.clock.max
            line.clocks.setdefault(host, Line()).put(place, seen)
            if use.clock.max:
                line.top_clocks[host] = use.clock.max
        if use.idle is not None:
            for state in use.idle.states:
                line.idle.setdefault(host, {}).setdefault(state.state, Line()).put(place, state.share)

    def _caches(self, place: int, host: str, snapshot: Snapshot) -> None:
        for metric, lines in (
            (MDS_CACHE_BYTES, self.timeline.caches),
            (MDS_CACHE_LIMIT_BYTES, self.timeline.cache_limits),
        ):
            for labels, size in series(snapshot, metric):
                lines.setdefault((host, label(labels, "daemon")), Line()).put(place, size)
