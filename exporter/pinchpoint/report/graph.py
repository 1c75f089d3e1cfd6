"""The picture of who makes a benchmark wait: a bar for each node, and an arrow from whoever wakes to whoever is woken.

The nodes stand below each other, the benchmark first, then the heaviest chain in the order in which its waits go back.
So the arrows of that chain are the short ones along the edge, whatever else wakes whom.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from pinchpoint.diagnosis.chains import Passed, WaitGraph
from pinchpoint.report.drawing import CHART_WIDTH_POINTS, INK, LETTER_WIDTH_POINTS, PAPER, drawing, svg
from pinchpoint.report.palette import PARTS
from pinchpoint.report.words import node_text
from pinchpoint.waits.chain import Kind, Node

__all__ = ["graph_picture", "shown_kinds"]

ROW_HEIGHT_POINTS, BAR_HEIGHT_POINTS = 24.0, 14.0
ARROWS_POINTS, NAMES_POINTS, BARS_POINTS = 120.0, 330.0, 900.0
"""Where the arrows end, the names end, and the longest bar ends, from the left."""
BULGE_POINTS, MAX_BULGE_POINTS = 22.0, 115.0
"""How far an arrow goes to the left per row that it spans, and at most."""
MIN_ARROW_POINTS, MAX_ARROW_POINTS = 0.8, 9.0
"""Widths of arrows of no time, and of all of it."""
SIDE_OPACITY = 0.35
"""Opacity of arrows beside the heaviest chain."""
MAX_NAME_LETTERS = int((NAMES_POINTS - ARROWS_POINTS - 12.0) / LETTER_WIDTH_POINTS)


def shown_kinds(graph: WaitGraph) -> list[Kind]:
    """Return what nodes of a graph did, in the order in which it is stacked."""
    return [kind for kind in PARTS if any(step.kinds.get(kind) for step in graph.steps)]


def graph_picture(graph: WaitGraph) -> str:
    """Return the picture of a graph as SVG."""
    height = ROW_HEIGHT_POINTS * len(graph.steps)
    with drawing():
        figure = Figure(figsize=(CHART_WIDTH_POINTS / 72, height / 72))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, CHART_WIDTH_POINTS)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        rows = {step.node: ROW_HEIGHT_POINTS * (place + 0.5) for place, step in enumerate(graph.steps)}
        chain = [step.node for step in graph.steps[: graph.heaviest + 1]]
        links = set(zip(chain[1:], chain, strict=False))
        for one in reversed(graph.passed):  # the widest last, above the others
            _arrow(axes, one, rows, leads=(one.waker, one.woken) in links)
        longest = max((step.share for step in graph.steps), default=0.0) or 1.0
        for step in graph.steps:
            _bar(axes, rows[step.node], step.kinds, (BARS_POINTS - NAMES_POINTS) / longest)
            end = NAMES_POINTS + step.share * (BARS_POINTS - NAMES_POINTS) / longest
            axes.text(end + 6, rows[step.node], f"{step.share:.0%}", va="center", color=INK)
            name = node_text(step.node)
            short = name if len(name) <= MAX_NAME_LETTERS else f"{name[: MAX_NAME_LETTERS - 1]}…"
            weight = "bold" if step.node in chain else "normal"
            axes.text(ARROWS_POINTS + 8, rows[step.node], short, va="center", color=INK, weight=weight)
        return svg(figure, "Who makes the benchmark wait, and who wakes whom")


def _bar(axes: Axes, row: float, kinds: Mapping[Kind, float], scale: float) -> None:
    left = NAMES_POINTS
    for kind, colour in PARTS.items():
        width = kinds.get(kind, 0.0) * scale
        if width:
            axes.barh(row, width, BAR_HEIGHT_POINTS, left=left, facecolor=colour, edgecolor=PAPER, linewidth=0.4)
            left += width


def _arrow(axes: Axes, one: Passed, rows: Mapping[Node, float], *, leads: bool) -> None:
    """Draw an arrow that bulges to the left, the further the more rows it spans."""
    start, end = rows[one.waker], rows[one.woken]
    bulge = min(MAX_BULGE_POINTS, BULGE_POINTS * abs(end - start) / ROW_HEIGHT_POINTS)
    left = ARROWS_POINTS - bulge * 4 / 3  # a cubic curve reaches three quarters of the way to its control points
    corners = [(ARROWS_POINTS, start), (left, start), (left, end), (ARROWS_POINTS, end)]
    axes.add_patch(
        FancyArrowPatch(
            path=Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]),
            arrowstyle="-|>",
            mutation_scale=9,
            linewidth=MIN_ARROW_POINTS + (MAX_ARROW_POINTS - MIN_ARROW_POINTS) * min(1.0, one.share),
            color=INK,
            alpha=1.0 if leads else SIDE_OPACITY,
            shrinkA=0,
            shrinkB=0,
        )
    )
