"""Points as text that Prometheus reads: its own format (0.0.4) and OpenMetrics (1.0.0), which it asks for first.

Both are written here: prometheus_client's `generate_latest` takes several times the CPU time, which the measured host
pays at each scrape, and 5 MB of memory for the modules that it imports. Tests hold the two to the same series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pinchpoint.model import Metric, Point
from pinchpoint.wire.sampletext import can_be_written, escaped, most_heads, render_head, render_value

__all__ = ["openmetrics", "text"]

_heads: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], str]] = {}
"""The head of each series, by the metric's name and labels and by their values: hardly any changes between scrapes."""


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
    found: dict[str, tuple[list[str], dict[tuple[str, ...], str]]] = {}
    for point in points:
        metric, labels, value = point
        if (known := found.get(metric.name)) is None:
            known = found[metric.name] = [described(metric)], _heads.setdefault((metric.name, metric.labels), {})
        lines, heads = known
        head = heads.get(labels)
        # What has a head could be written before, if its value is a float.
        if (head is None or value.__class__ is not float) and not can_be_written(point):
            continue
        if head is None:
            head = heads[labels] = render_head(metric.name, tuple(sorted(zip(metric.labels, labels, strict=True))))
        lines.append(f"{head} {render_value(value)}\n")
    for _, (lines, _) in sorted(found.items()):
        if len(lines) > 1:
            yield from lines
    if sum(map(len, _heads.values())) > most_heads(sum(len(lines) for lines, _ in found.values())):
        _heads.clear()


def _described(metric: Metric) -> str:
    # A help text has quotes as they are (exposition_formats.md, "Comments, help text, and type information").
    shown = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {shown}\n# TYPE {metric.name} {metric.kind.value}\n"


def _described_in_openmetrics(metric: Metric) -> str:
    # A counter's family has no _total: only its samples do (OpenMetrics 1.0, section 5.1).
    family = metric.name.removesuffix("_total")
    return f"# HELP {family} {escaped(metric.help)}\n# TYPE {family} {metric.kind.value}\n"
