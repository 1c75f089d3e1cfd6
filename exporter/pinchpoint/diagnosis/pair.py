"""By how much the counters of a host rose between two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pinchpoint.diagnosis.series import MAX_VALUE, finite, label, series
from pinchpoint.metrics import (
    PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS,
    PROBE_SUCCESS,
    SAMPLER_CLOCK_SET_SECONDS,
    SAMPLER_SAMPLES,
)
from pinchpoint.model import Labels, Metric, Snapshot

__all__ = ["SnapshotPair", "clock_set", "restarted"]

ROUNDING_SECONDS = 1e-3
"""Seconds by which the difference of two timestamps may be wrong: as floats they are multiples of 0.24 us."""


def restarted(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the exporter was started in between, so that all of its integrals began at zero."""
    samples = before.values.get(SAMPLER_SAMPLES.name, {})
    return any(value < samples.get(labels, 0.0) for labels, value in series(after, SAMPLER_SAMPLES))


def clock_set(snapshot: Snapshot) -> float:
    """Return by how many seconds the host's wall clock had been set forward, which its timestamps include."""
    value = snapshot.value(SAMPLER_CLOCK_SET_SECONDS.name)
    return value if value is not None and abs(value) < MAX_VALUE else 0.0


class SnapshotPair:
    """Two snapshots and the time between them."""

    def __init__(self, before: Snapshot, after: Snapshot, seconds: float) -> None:
        self.before = before
        self.after = after
        self.seconds = seconds
        self.restarted = restarted(before, after)
        self.set_forward = 0.0 if self.restarted else clock_set(after) - clock_set(before)
        """By how many seconds the host's wall clock was set forward in between."""
        failed = {probe for probe, ok in self.then(PROBE_SUCCESS) if not ok}
        had_worked = (probe for probe, _ in self.then(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS))
        self._hung = failed.intersection(had_worked) if failed else failed
        """Probes that hung: they have no series, and when they go on, these come back with all of their past."""

    def then(self, metric: Metric) -> Iterator[tuple[str, float]]:
        """Yield the probe and the earlier value of every series of `metric`."""
        for labels, value in series(self.before, metric):
            yield label(labels, "probe"), value

    def now(self, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """Yield the later value of every series of `metric`."""
        return series(self.after, metric)

    def by(self, metric: Metric, by: str) -> Iterator[tuple[str, float]]:
        """Yield one label and the later value of every series of `metric`."""
        for labels, value in self.now(metric):
            yield label(labels, by), value

    def value(self, metric: Metric, **labels: str) -> float | None:
        """Return the later value of one series."""
        return finite(self.after.value(metric.name, **labels))

    def gains(
        self, metric: Metric, most: float, born: Callable[[Labels], str] | None
    ) -> Iterator[tuple[Labels, float]]:
        """Yield by how much each series of the counter `metric` rose, as far as known.

        A smaller value than before comes from an exporter (or a host) that was started in between, and counts from
        zero. `born` marks Pinchpoint's own integrals, which begin at zero when a thread or device is first seen, and
        returns the probe of a new one: it counts from zero too, unless that probe hung earlier. A new counter of the
        kernel ran long before. What counts from zero can't have risen by more than `most`, or it did not begin in this
        interval.
        """
        earlier = {} if born and self.restarted else self.before.values.get(metric.name, {})
        later = self.after.values.get(metric.name, {})
        # The series of two scrapes are mostly the same: looking each of them up takes half of a judge's time.
        same = list(earlier) == list(later)
        for (labels, value), old in zip(
            later.items(), earlier.values() if same else map(earlier.get, later), strict=True
        ):
            if old is not None and 0 <= old <= value < MAX_VALUE:
                yield labels, value - old
            elif 0 <= value <= most and value < MAX_VALUE and (self._begins(labels, born) or finite(old) is not None):
                yield labels, value

    def _begins(self, labels: Labels, born: Callable[[Labels], str] | None) -> bool:
        """Return whether a series that the earlier snapshot does not have began at zero since."""
        return born is not None and (self.restarted or not self._hung or born(labels) not in self._hung)

    def gain(self, metric: Metric) -> float | None:
        """Return by how much the counter `metric` of the kernel, or of the process, rose over all of its series."""
        gains = [gain for _, gain in self.gains(metric, MAX_VALUE, None)]
        return sum(gains) if gains else None

    def sampled(self, probe: str) -> float:
        """Return the seconds between the probe's last samples of the two snapshots; 0 if there is no new one.

        Two snapshots 1 s apart hold zero to two samples of a probe that samples once a second: its counters rose
        for the time between its samples, not for the time between the snapshots.
        """
        old = finite(self.before.value(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS.name, probe=probe))
        new = self.value(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS, probe=probe)
        if not old or not new or (found := new - old - self.set_forward) < -ROUNDING_SECONDS:
            return self.seconds
        return found if found > ROUNDING_SECONDS else 0.0
