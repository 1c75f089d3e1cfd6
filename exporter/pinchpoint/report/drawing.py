"""What all pictures share: SVG that takes its colours from the page around it, so that it fits light and dark.

The page's colours are drawn as stand-ins, which are not in the palette, and replaced by CSS variables in the text of
the SVG.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from pinchpoint.expressions import expression

__all__ = ["CHART_WIDTH_POINTS", "FAINT", "INK", "LETTER_WIDTH_POINTS", "PAPER", "drawing", "svg"]

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs its font cache

CHART_WIDTH_POINTS = 960.0
"""In points. At this width a point is a pixel."""
INK, FAINT, PAPER = "#fe0001", "#fe0002", "#fe0003"
"""Stand-ins for the page's colours."""
VARIABLES = {INK: "var(--ink, #1f2328)", FAINT: "var(--faint, #d0d7de)", PAPER: "var(--paper, #ffffff)"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pinchpoint",
    "font.family": "sans-serif",
    "font.size": 11.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
}
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
LETTER_WIDTH_POINTS = 6.4
"""Mean width of a character of 11 points, in points; a label that does not fit is left out."""


@contextmanager
def drawing() -> Iterator[None]:
    """Set the drawing style; the user's own matplotlibrc (text.usetex) could break charts."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def svg(figure: Figure, title: str) -> str:
    """Return the figure as an element of a page."""
    output = StringIO()
    figure.savefig(output, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = output.getvalue()
    text = text[text.index("<svg") :]
    for pattern, by in REWRITES:
        text = pattern.sub(by, text)
    text = PATH.sub(lambda path: DECIMALS.sub("", path[0]), text)
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, variable)
    return text.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1).strip()


PATH = expression(r'(?<= d=")[^"]*')
DECIMALS = expression(r"(?<=\d\.\d)\d+")
"""A tenth of a pixel is exact enough."""
REWRITES: Sequence[tuple[re.Pattern[str], str]] = (
    (expression(r"<metadata>.*?</metadata>", re.DOTALL), ""),
    (expression(r"<!--.*?-->", re.DOTALL), ""),
    (expression(r' id="[A-Za-z0-9.]+_\d+"'), ""),
    (expression(r'^(<svg [^>]*?) width="[^"]*pt" height="[^"]*pt"'), r"\1"),
    (expression(r"\n\s*"), "\n"),
    (expression(r"font-family: [^;\"]*|'DejaVu Sans'[^;\"]*"), f"font-family: {FONTS}"),
    (expression(r"font: ([\d.]+px) [^;\"]*"), rf"font: \1 {FONTS}"),
)
