"""Plain data that all other parts exchange: metrics, points, snapshots.

Nothing here reads a clock or a file, or imports another part of Pinchpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pinchpoint.compat import StrEnum

__all__ = ["STALE_SECONDS", "THIS_HOST", "Labels", "Metric", "MetricKind", "Point", "Snapshot", "Snapshots", "time_of"]

Labels = tuple[tuple[str, str], ...]
"""Label pairs sorted by name: the identity of a series among those of one metric."""


class MetricKind(StrEnum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(msgspec.Struct, frozen=True):
    """One exported metric: its full name (with ``_total`` for a counter), help text, kind and label names."""

    name: str
    help: str
    kind: MetricKind = MetricKind.GAUGE
    labels: tuple[str, ...] = ()
    unitless: bool = False
    """Whether its name ends without a unit."""
    steady: bool = False
    """Whether it only changes with the host's or the exporter's configuration, so that it may be read less often."""

    def point(self, value: float, *labels: str) -> Point:
        """Return a point of this metric; `labels` are the values, in the order of the metric's label names."""
        return Point(self, labels, value)


class Point(NamedTuple):
    """The value of one series now."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


STALE_SECONDS = 5.0
"""Seconds for which the last snapshot of a silent host remains valid: several scrapes at the usual interval."""


class Snapshot(msgspec.Struct, frozen=True):
    """Every series of one exporter at one time.

    It is the same whether it was taken from a sampler in this process, scraped from a target or read from a
    recording, so that whatever derives from it (the live view, a run's table) is independent of its origin.
    """

    time: float
    """Unix time in seconds; one source's times are of one clock, that of `pinchpoint.clock` except for a server's."""
    values: Mapping[str, Mapping[Labels, float]] = msgspec.field(default_factory=dict)
    lasts: float = STALE_SECONDS
    """Seconds for which it is valid if no newer one comes; longer if they are rare."""

    @classmethod
    def of(cls, time: float, points: Iterable[Point]) -> Snapshot:
        """Return the snapshot that consists of `points`, taken at `time`."""
        values: dict[str, dict[Labels, float]] = {}
        for metric, labels, value in points:
            values.setdefault(metric.name, {})[tuple(sorted(zip(metric.labels, labels, strict=True)))] = value
        return cls(time, values)

    def series(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the labels and the value of every series of the metric `name`."""
        for labels, value in self.values.get(name, {}).items():
            yield dict(labels), value

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of one series, or None where there is none."""
        return self.values.get(name, {}).get(tuple(sorted(labels.items())))


Snapshots = Mapping[str, Snapshot]
"""Hosts at one time, by the name their source gives them: ``this host``, ``HOST:PORT``."""
THIS_HOST = "this host"
"""Name of the host that the process itself samples, or that a recording does not name."""


def time_of(moment: Snapshots) -> float:
    """Return the time of a moment, in Unix seconds, by the clock of its first host, which recorded it."""
    return next((snapshot.time for snapshot in moment.values()), 0.0)
