"""Points as text that Prometheus reads: its own format (0.0.4) and OpenMetrics (1.0.0), which it asks for first.

Both are written here: prometheus_client's `generate_latest` takes several times the CPU time, which the measured host
pays at each scrape, and 5 MB of memory for the modules that it imports. Tests hold the two to the same series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from pinchpoint.model import Metric, Point
from pinchpoint.wire.sampletext import MAX_HEADS, can_be_written, escaped, most_heads, render_head, render_value

__all__ = ["openmetrics", "text"]


def text(points: Iterable[Point]) -> str:
    """Return the exposition in Prometheus' text format, version 0.0.4.

    A series that cannot be written is omitted: otherwise all others would be lost. `Sampler.points` counts it.
    """
    return "".join(_lines(points, _described))


def openmetrics(points: Iterable[Point]) -> str:
    """Return the exposition in the text format of OpenMetrics 1.0.0, without the same series as `text`."""
    return "".join(_lines(points, _described_in_openmetrics)) + "# EOF\n"


def _lines(points: Iterable[Point], described: Callable[[Metric], str]) -> Iterator[str]:
    """Yield the lines of each metric, sorted by its name, after the lines that describe it."""
    series: dict[str, list[str]] = {}
    for metric, labels, value in filter(can_be_written, points):
        lines = series.get(metric.name)
        if lines is None:
            lines = series[metric.name] = [described(metric)]
        lines.append(f"{_head(metric.name, metric.labels, labels)} {render_value(value)}\n")
    for name in sorted(series):
        yield from series[name]
    if _head.cache_info().currsize > most_heads(sum(map(len, series.values()))):
        _head.cache_clear()


def _described(metric: Metric) -> str:
    # A help text has quotes as they are (exposition_formats.md, "Comments, help text, and type information").
    shown = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {shown}\n# TYPE {metric.name} {metric.kind.value}\n"


def _described_in_openmetrics(metric: Metric) -> str:
    # A counter's family has no _total: only its samples do (OpenMetrics 1.0, section 5.1).
    family = metric.name.removesuffix("_total")
    return f"# HELP {family} {escaped(metric.help)}\n# TYPE {family} {metric.kind.value}\n"


@lru_cache(MAX_HEADS)
def _head(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return the head of a series: it hardly changes from scrape to scrape."""
    return render_head(name, tuple(sorted(zip(labels, values, strict=True))))
