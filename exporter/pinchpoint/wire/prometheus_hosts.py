"""Hosts and clusters as a Prometheus server knows them now: the same snapshots that exporters themselves give."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pinchpoint.metrics import EXPORTER
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.typedjson import decoder
from pinchpoint.wire.fetch import Fetcher
from pinchpoint.wire.prometheus import Answer, PrometheusError, ask

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["Known", "Sample", "ask_known", "known"]

OWN = "pinchpoint_"
JOB = "pinchpoint"
"""Job of the exporters in compose/prometheus.yml."""
MAX_QUERY_CHARACTERS = 6000
"""Longest query in characters: it is part of the address."""


class Sample(NamedTuple):
    """A series and its newest value."""

    labels: Mapping[str, str]
    time: float
    """Unix time in seconds of the query."""
    value: float


class Known(NamedTuple):
    """The data of a server."""

    hosts: Snapshots
    """By the label ``instance`` of their exporters."""
    down: tuple[str, ...]
    """Exporters it cannot scrape."""
    cluster: Snapshot | None
    """Data of Ceph's managers, for all clusters; None if they report nothing."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


DECODER = decoder(Answer[_Series])


def ask_known(url: str, names: Collection[str], timeout: float = 5.0, access: HttpAccess | None = None) -> Known:
    """Return the server's data on these metrics. Raises PrometheusError."""
    wanted = sorted({*names, "up"})
    samples: list[Sample] = []
    with closing(Fetcher(timeout, access)) as fetcher:
        while wanted:
            some = wanted[:1]
            while len(some) < len(wanted) and len("|".join(wanted[: len(some) + 1])) < MAX_QUERY_CHARACTERS:
                some = wanted[: len(some) + 1]
            wanted = wanted[len(some) :]
            samples += _instant(fetcher, url, f'{{__name__=~"{"|".join(some)}"}}')
    return known(samples)


def known(samples: Iterable[Sample]) -> Known:
    """Return the data in the samples of one moment.

    Labels that Prometheus added (job, group, ...) are dropped from exporters' series, as ``instance`` identifies these;
    series of Ceph's managers keep theirs, since only these distinguish clusters.
    """
    labels_of = {metric.name: frozenset(metric.labels) for metric in EXPORTER}
    hosts: dict[str, dict[str, dict[Labels, float]]] = {}
    cluster: dict[str, dict[Labels, float]] = {}
    down: dict[str, None] = {}
    time = 0.0
    for sample in samples:
        labels = dict(sample.labels)
        name, instance = labels.pop("__name__", ""), labels.get("instance", "")
        time = sample.time
        if name == "up":
            if labels.get("job") == JOB and not sample.value:
                down[instance] = None
        elif name.startswith(OWN):
            kept = labels_of.get(name, frozenset())
            key = tuple(sorted((label, value) for label, value in labels.items() if label in kept))
            hosts.setdefault(instance, {}).setdefault(name, {})[key] = sample.value
        else:
            cluster.setdefault(name, {})[tuple(sorted(labels.items()))] = sample.value
    found = {instance: Snapshot(time, values) for instance, values in hosts.items() if instance not in down}
    return Known(found, tuple(down), Snapshot(time, cluster) if cluster else None)


def _instant(fetcher: Fetcher, url: str, query: str) -> list[Sample]:
    found = ask(fetcher, url, {"query": query}, DECODER)
    try:
        return [Sample(series.metric, series.value[0], float(series.value[1])) for series in found]
    except ValueError as error:
        raise PrometheusError(f"{url}: not a number: {error}") from error
