"""Points as Prometheus' text, and as a registry that prometheus_client serves as OpenMetrics.

The text is what most scrapes ask for, and is written here: prometheus_client's `generate_latest` gives the same bytes
for several times the CPU time, which the measured host pays every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from pinchpoint.model import Metric, Point
from pinchpoint.wire.sampletext import can_be_written, render_head

__all__ = ["PointsCollector", "families", "registry", "text"]

MAX_KEPT_HEADS = 1 << 13
"""Series whose heads are remembered: they hardly change from scrape to scrape."""


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
    """Return the exposition in Prometheus' text format, version 0.0.4.

    A series that cannot be written is omitted, as in `families`.
    """
    series: dict[str, list[str]] = {}
    for metric, labels, value in filter(can_be_written, points):
        lines = series.get(metric.name)
        if lines is None:
            shown = metric.help.replace("\\", r"\\").replace("\n", r"\n")
            lines = series[metric.name] = [f"# HELP {metric.name} {shown}\n# TYPE {metric.name} {metric.kind.value}\n"]
        lines.append(f"{_head(metric.name, metric.labels, labels)} {floatToGoString(value)}\n")  # type: ignore[no-untyped-call]
    return "".join(line for name in sorted(series) for line in series[name])


@lru_cache(MAX_KEPT_HEADS)
def _head(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    return render_head(name, tuple(sorted(zip(labels, values, strict=True))))
