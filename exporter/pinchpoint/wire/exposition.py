"""Points as Prometheus' text, and as a registry that prometheus_client serves in either format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from pinchpoint.model import Metric, Point
from pinchpoint.wire.sampletext import can_be_written

__all__ = ["PointsCollector", "families", "registry", "text"]


def families(points: Iterable[Point]) -> Iterator[Family]:
    """Yield one family a metric, sorted by name.

    A series that cannot be written is omitted: otherwise all others would be lost. `Sampler.points` counts it.
    """
    found: dict[str, Family] = {}
    for metric, labels, value in filter(can_be_written, points):
        family = found.get(metric.name)
        if family is None:
            # A counter's family has no _total: only its samples do (OpenMetrics 1.0, section 5.1).
            family = found[metric.name] = Family(metric.name.removesuffix("_total"), metric.help, metric.kind.value)
        family.add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), value)
    for name in sorted(found):
        yield found[name]


class PointsCollector(Collector):
    """A collector for a registry of prometheus_client that asks for the points at each scrape."""

    def __init__(self, points: Callable[[], Iterable[Point]], metrics: Iterable[Metric]) -> None:
        self._points = points
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        """Yield the families now."""
        return families(self._points())

    def describe(self) -> Iterator[Family]:
        """Yield all possible metrics: the registry uses them to answer ``name[]``."""
        for metric in self._metrics:
            yield Family(metric.name.removesuffix("_total"), metric.help, metric.kind.value)


def registry(points: Callable[[], Iterable[Point]], metrics: Iterable[Metric] = ()) -> CollectorRegistry:
    """Return a registry that contains only the points, which belong to `metrics`."""
    found = CollectorRegistry()
    found.register(PointsCollector(points, metrics))
    return found


def text(points: Iterable[Point]) -> str:
    """Return the exposition in Prometheus' text format."""
    return generate_latest(registry(lambda: points)).decode()
