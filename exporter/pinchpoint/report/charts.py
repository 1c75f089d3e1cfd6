"""Charts of a timeline: SVG that takes its colours from the page around it, so that it fits light and dark.

All charts have the same width and margins: below each other they share one time axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from math import ceil, isnan, nan

import msgspec
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pinchpoint.diagnosis.evidence import owner
from pinchpoint.report.drawing import CHART_WIDTH_POINTS, FAINT, INK, LETTER_WIDTH_POINTS, PAPER, drawing, svg
from pinchpoint.report.palette import IDLE_STATES, KINDS, SERIES, WAITS, wait_colour
from pinchpoint.report.timeline import Line, ResourceLine, RunLines
from pinchpoint.text import printable

__all__ = [
    "MAX_CHARTED",
    "Bar",
    "Span",
    "busy_chart",
    "cache_chart",
    "clock_chart",
    "idle_chart",
    "idle_colour",
    "phase_ribbon",
    "stacked_waits",
    "waits_chart",
]

LEFT_POINTS, RIGHT_POINTS = 48.0, 12.0
TOP_POINTS, BOTTOM_POINTS = 8.0, 24.0
TITLE_HEIGHT_POINTS = 18.0
"""Height of a title above a small chart, in points."""
MARK_STEPS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Seconds between two marks of the time axis."""
MAX_MARKS = 9
"""Maximum number of marks on the time axis."""
FULL_OPACITY, BUSY_OPACITY = 0.75, 0.35
"""Opacity of an area where a resource is at its threshold, and below."""
MIN_VISIBLE_SHARE = 0.005
"""Share below which a layer is invisible."""
MAX_CHARTED = 8
"""Maximum number of hosts, daemons and resources in one chart."""


class Span(msgspec.Struct, frozen=True):
    """The time range of charts, in Unix seconds, and where phases begin and end in it."""

    start: float
    end: float
    borders: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(1.0, self.end - self.start)


class Bar(msgspec.Struct, frozen=True):
    """One phase in the ribbon."""

    number: int
    name: str
    start: float
    end: float
    """Unix seconds."""
    kind: str
    """Kind of its verdict; empty if there is none."""


def phase_ribbon(bars: Sequence[Bar], span: Span) -> str:
    """Return the phases of the run, one after the other; phases that overlap are drawn in rows."""
    rows = _rows(bars)
    with drawing():
        figure, (axes,) = _figure([24.0 * (max(rows, default=0) + 1)], span)
        axes.set_ylim(max(rows, default=0) + 1, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        for bar, row in zip(bars, rows, strict=True):
            start, length = bar.start - span.start, bar.end - bar.start
            colour = KINDS.get(bar.kind, FAINT)
            axes.broken_barh([(start, length)], (row + 0.08, 0.84), facecolor=colour, alpha=0.25, linewidth=0)
            axes.broken_barh([(start, length)], (row + 0.08, 0.84), facecolor="none", edgecolor=colour, linewidth=1.0)
            room = length / span.seconds * (CHART_WIDTH_POINTS - LEFT_POINTS - RIGHT_POINTS) - 6
            for text in (printable(f"{bar.number} {bar.name}"), str(bar.number)):
                if len(text) * LETTER_WIDTH_POINTS <= room:
                    axes.text(start + length / 2, row + 0.52, text, ha="center", va="center", color=INK)
                    break
        return svg(figure, "Phases of the run over time")


def _rows(bars: Sequence[Bar]) -> list[int]:
    ends: list[float] = []
    found = []
    for bar in bars:
        # Successive phases may overlap by the resolution with which they are seen.
        free = (row for row, end in enumerate(ends) if bar.start >= end - 0.3)
        row = next(free, len(ends))
        ends[row:] = [bar.end, *ends[row + 1 :]]
        found.append(row)
    return found


def stacked_waits(timeline: RunLines) -> list[str]:
    """Return the wait classes that are visible in a chart, from the bottom."""
    seen = {wait for wait, line in timeline.waits.items() if any(value >= MIN_VISIBLE_SHARE for value in line.values)}
    return [wait for wait in WAITS if wait in seen] + sorted(seen - WAITS.keys())


def waits_chart(timeline: RunLines, span: Span) -> str:
    """Return the shares of the benchmark's time by wait class, stacked."""
    layers = [(wait_colour(wait), timeline.waits[wait]) for wait in stacked_waits(timeline)]
    with drawing():
        figure, (axes,) = _figure([170.0], span)
        _share_axis(axes)
        _stack(axes, timeline, layers, span)
        return svg(figure, "What the benchmark's processes spend their time on")


def busy_chart(timeline: RunLines, resources: Sequence[ResourceLine], span: Span) -> str:
    """Return how busy each of these resources was, one small chart each."""
    shown = [resource for resource in resources if resource in timeline.busy][:MAX_CHARTED]
    with drawing():
        figure, frames = _figure([46.0] * len(shown), span, titles=True)
        for axes, resource in zip(frames, shown, strict=True):
            threshold = timeline.thresholds.get(resource.resource, 0.8)
            serves = timeline.serves.get(resource, ())
            colour = wait_colour(serves[0] if serves else "other")
            _share_axis(axes, ticks=(0, 1))
            whose = owner(resource.owner, resource.host or resource.owner)
            where = f" on {resource.host}" if resource.host not in ("", whose) else ""
            _title(axes, f"{resource.resource} of {whose}{where}")
            axes.axhline(threshold, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            times, values = _steps(timeline, timeline.busy[resource], span)
            axes.fill_between(times, 0, values, color=colour, alpha=BUSY_OPACITY, linewidth=0)
            over = [value if value >= threshold else nan for value in values]
            axes.fill_between(times, 0, over, color=colour, alpha=FULL_OPACITY, linewidth=0)
            axes.plot(times, values, color=colour, linewidth=1.0)
        return svg(figure, "How busy the resources are that the verdicts name")


def clock_chart(timeline: RunLines, span: Span) -> str:
    """Return the clock of each host."""
    hosts = sorted(timeline.clocks)[:MAX_CHARTED]
    with drawing():
        figure, (axes,) = _figure([90.0], span)
        top = 0.0
        for host, colour in zip(hosts, cycle(SERIES), strict=False):
            times, values = _steps(timeline, timeline.clocks[host], span)
            giga = [value / 1e9 for value in values]
            axes.plot(times, giga, color=colour, linewidth=1.4)
            top = max([top, *(value for value in giga if not isnan(value))])
        for limit in {timeline.top_clocks[host] / 1e9 for host in hosts if host in timeline.top_clocks}:
            axes.axhline(limit, color=INK, linewidth=0.7, linestyle=(0, (4, 3)))
            top = max(top, limit)
        axes.set_ylim(0, (top or 1.0) * 1.08)
        axes.locator_params(axis="y", nbins=4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(axis="y")
        return svg(figure, "Clock of the CPUs")


def idle_chart(timeline: RunLines, span: Span) -> str:
    """Return the share of the CPUs' time in each idle state, one small chart per host."""
    hosts = sorted(timeline.idle)[:MAX_CHARTED]
    with drawing():
        figure, frames = _figure([56.0] * len(hosts), span, titles=True)
        for axes, host in zip(frames, hosts, strict=True):
            _share_axis(axes, ticks=(0, 0.5, 1))
            _title(axes, host)
            states = list(timeline.idle[host].values())
            _stack(axes, timeline, [(idle_colour(n, len(states)), line) for n, line in enumerate(states)], span)
        return svg(figure, "Idle states of the CPUs")


def idle_colour(place: int, count: int) -> str:
    """Return the colour of an idle state, given its index from the shallowest."""
    return IDLE_STATES[place * (len(IDLE_STATES) - 1) // max(1, count - 1) if count > 1 else -1]


def cache_chart(timeline: RunLines, span: Span) -> str:
    """Return the size of each MDS's cache beside its limit."""
    caches = sorted(timeline.caches)[:MAX_CHARTED]
    with drawing():
        figure, (axes,) = _figure([90.0], span)
        lines = {key: _steps(timeline, timeline.caches[key], span) for key in caches}
        limits = {
            key: _steps(timeline, timeline.cache_limits[key], span) for key in caches if key in timeline.cache_limits
        }
        sizes = [size for _, values in (*lines.values(), *limits.values()) for size in values if not isnan(size)]
        unit, name = next((entry for entry in BINARY if max(sizes, default=0.0) >= entry[0]), BINARY[-1])
        for (key, (times, values)), colour in zip(lines.items(), cycle(SERIES), strict=False):
            axes.plot(times, [value / unit for value in values], color=colour, linewidth=1.4)
            if key in limits:
                bounds = [value / unit for value in limits[key][1]]
                axes.plot(limits[key][0], bounds, color=colour, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.set_ylim(0, max(sizes, default=1.0) / unit * 1.08 or 1.0)
        axes.locator_params(axis="y", nbins=4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_ylabel(name)
        axes.grid(axis="y")
        return svg(figure, "Cache of the MDSs, and its limit")


BINARY = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def _figure(heights: Sequence[float], span: Span, *, titles: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with stacked axes of these heights in points; only the last time axis is labelled."""
    above = TITLE_HEIGHT_POINTS if titles else 0.0
    total = TOP_POINTS + BOTTOM_POINTS + sum(heights) + above * len(heights) + 8 * max(0, len(heights) - 1)
    figure = Figure(figsize=(CHART_WIDTH_POINTS / 72, total / 72))
    FigureCanvasSVG(figure)
    marks = _marks(span.seconds)
    found = []
    top = total - TOP_POINTS
    for number, height in enumerate(heights):
        top -= above
        axes = figure.add_axes(
            (
                LEFT_POINTS / CHART_WIDTH_POINTS,
                (top - height) / total,
                (CHART_WIDTH_POINTS - LEFT_POINTS - RIGHT_POINTS) / CHART_WIDTH_POINTS,
                height / total,
            )
        )
        top -= height + 8
        axes.set_xlim(0, span.seconds)
        axes.set_xticks(marks, [_clock(mark) for mark in marks])
        axes.tick_params(axis="x", labelbottom=number == len(heights) - 1)
        for border in span.borders:
            axes.axvline(border - span.start, color=FAINT, linewidth=0.8)
        found.append(axes)
    return figure, found


def _marks(seconds: float) -> list[float]:
    """Return the seconds at which the time axis of a run of any length is marked."""
    longest = MARK_STEPS_SECONDS[-1]
    fitting = (step for step in MARK_STEPS_SECONDS if seconds / step <= MAX_MARKS)
    step = next(fitting, longest * ceil(seconds / longest / MAX_MARKS))
    return [step * mark for mark in range(int(seconds / step) + 1)]


def _clock(seconds: float) -> str:
    """Return a time within the run as a clock shows it: ``0:05``, ``1:02:03``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{rest:02.0f}" if hours else f"{minutes}:{rest:02.0f}"


def _title(axes: Axes, text: str) -> None:
    axes.annotate(
        printable(text), (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", va="bottom", color=INK
    )


def _share_axis(axes: Axes, ticks: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)) -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(axis="y")


def _steps(timeline: RunLines, line: Line, span: Span) -> tuple[list[float], list[float]]:
    """Return the corners of a step line, broken where there are no samples."""
    times: list[float] = []
    values: list[float] = []
    steps = timeline.steps
    for (start, end), value in zip(steps, line.padded(len(steps)), strict=True):
        if times and start - span.start > times[-1] + 1e-3:
            times.append(times[-1])
            values.append(nan)
        times += [start - span.start, end - span.start]
        values += [value, value]
    return times, values


def _stack(axes: Axes, timeline: RunLines, layers: Sequence[tuple[str, Line]], span: Span) -> None:
    floor: list[float] = []
    drawn = [_steps(timeline, line, span) for _, line in layers]
    # Without any data there is a gap; a layer that is missing beside others is 0.
    known = [any(not isnan(value) for value in column) for column in zip(*(values for _, values in drawn), strict=True)]
    floor = [0.0 if there else nan for there in known]
    for (colour, _), (times, values) in zip(layers, drawn, strict=True):
        top = [base + (0.0 if isnan(value) else value) for base, value in zip(floor, values, strict=True)]
        axes.fill_between(times, floor, top, facecolor=colour, edgecolor=PAPER, linewidth=0.4)
        floor = top
