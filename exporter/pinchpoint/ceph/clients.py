"""Metrics of Ceph clients, wherever they are read: at admin sockets of processes, or in debugfs for the kernel's own.

An instance is one connection to a cluster: a mount, a CephContext of a process. Instances come and go with the work, so
a client's counters are sums of what its instances have *added* since they were first seen: they never go back, and what
an instance did before that is not counted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pinchpoint.metrics import (
    CEPH_CLIENT_BLIND_INSTANCES,
    CEPH_CLIENT_CLUSTER_INFO,
    CEPH_CLIENT_INFLIGHT_REQUESTS,
    CEPH_CLIENT_INFLIGHT_SECONDS,
    CEPH_CLIENT_INSTANCES,
    CEPH_CLIENT_IO_SECONDS,
    CEPH_CLIENT_IOS,
    CEPH_CLIENT_REQUESTS,
    KEEP_ENDED_SECONDS,
)
from pinchpoint.model import Metric, Point

__all__ = ["MAX_ANSWER_GAP_SECONDS", "METRICS", "ClientReading", "Clients", "Instance", "Integral", "Series"]

METRICS = (
    CEPH_CLIENT_INSTANCES,
    CEPH_CLIENT_BLIND_INSTANCES,
    CEPH_CLIENT_INFLIGHT_REQUESTS,
    CEPH_CLIENT_INFLIGHT_SECONDS,
    CEPH_CLIENT_REQUESTS,
    CEPH_CLIENT_IO_SECONDS,
    CEPH_CLIENT_IOS,
    CEPH_CLIENT_CLUSTER_INFO,
)

MAX_CLUSTERS = 8
"""Clusters of one client that are shown."""
MAX_ANSWER_GAP_SECONDS = 5.0
"""Seconds between two looks from which the time between them is not counted."""

Series = tuple[Metric, str, str]
"""A counter of an instance: its metric, the value of its second label, and which part of the instance counts it."""


class ClientReading(NamedTuple):
    """What one instance says."""

    inflight: Mapping[str, float]
    """Requests in flight by target."""
    counters: Mapping[Series, float]


class Instance(NamedTuple):
    """One instance of a client at one time."""

    key: Hashable
    """Identifies it among all instances that are there."""
    client: str
    reading: ClientReading | None
    """None where it is blind."""
    cluster: str = ""
    """Its fsid; empty where it is not known."""


class Integral:
    """The integral over time of a number that is sampled now and then, by the trapezoidal rule.

    The mean of n looks is off by about the number's standard deviation / sqrt(n): 15 looks at a number that is 1 half
    of the time and else 0 give 0.5 to within 0.13.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: tuple[float, float] | None = None

    def look(self, now: float, number: float) -> None:
        """Add the time since the last look, unless that was long ago; `now` is a monotonic time in seconds."""
        if self._last is not None:
            before, last = self._last
            if now - before <= MAX_ANSWER_GAP_SECONDS:
                self.seconds += (now - before) * (number + last) / 2
        self._last = now, number


class _ClientTotals:
    """The totals of one client, and its instances at the last look."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.totals: dict[tuple[Metric, str], float] = {}
        self.clear()

    def clear(self) -> None:
        self.instances = self.blind = 0
        self.inflight: dict[str, float] = {}
        self.clusters: set[str] = set()


class Clients:
    """The sums over instances, by client."""

    def __init__(self) -> None:
        self._clients: dict[str, _ClientTotals] = {}
        self._last: dict[Hashable, Mapping[Series, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def __contains__(self, client: str) -> bool:
        return client in self._clients

    def update(self, now: float, instances: Iterable[Instance]) -> None:
        """Add what the present instances did since the last update; `now` is a monotonic time in seconds."""
        for client in self._clients.values():
            client.clear()
        last: dict[Hashable, Mapping[Series, float]] = {}
        for instance in instances:
            client = self._clients.setdefault(instance.client, _ClientTotals())
            client.seen = now
            client.instances += 1
            if instance.cluster and len(client.clusters) < MAX_CLUSTERS:
                client.clusters.add(instance.cluster)
            before = self._last.get(instance.key)
            if instance.reading is None:
                client.blind += 1
                if before is not None:
                    last[instance.key] = before
                continue
            last[instance.key] = instance.reading.counters
            for target, number in instance.reading.inflight.items():
                client.inflight[target] = client.inflight.get(target, 0.0) + number
            for series, value in instance.reading.counters.items():
                label = series[:2]
                client.totals[label] = client.totals.get(label, 0.0) + _added(before, series, value)
        self._last = last
        for name in [name for name, client in self._clients.items() if now - client.seen > KEEP_ENDED_SECONDS]:
            del self._clients[name]

    def points(self) -> Iterator[Point]:
        """Yield the present value of every series."""
        for name, client in self._clients.items():
            yield CEPH_CLIENT_INSTANCES.point(client.instances, name)
            yield CEPH_CLIENT_BLIND_INSTANCES.point(client.blind, name)
            for target, number in client.inflight.items():
                yield CEPH_CLIENT_INFLIGHT_REQUESTS.point(number, name, target)
            for (metric, label), total in client.totals.items():
                yield metric.point(total, name, label)
            for cluster in sorted(client.clusters):
                yield CEPH_CLIENT_CLUSTER_INFO.point(1, name, cluster)


def _added(before: Mapping[Series, float] | None, series: Series, value: float) -> float:
    """Return the increase of an instance's counter, all of it after a reset; nothing at the first look."""
    if before is None:
        return 0.0
    last = before.get(series, 0.0)
    return value - last if value >= last else value
