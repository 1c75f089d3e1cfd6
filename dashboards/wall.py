"""One run, large enough for a screen on a wall: what limits it, how far it is, and how fast."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.bottleneck import about_sentence, compared_rate, limit, phase, phases, rate, waits
from dashboards.kit.board import board
from dashboards.kit.present import words
from dashboards.verdict import sentences


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-wall",
        "Pinchpoint / Wall",
        "One run, for a screen that people look at from afar.",
        variables=("run",),
    )
    made.time("now-15m", "now")
    for variable in (*compared_rate(), *sentences()):
        made.with_variable(variable)
    made.with_panel(words("What limits it", about_sentence(), "# $verdict\n\n## $advice", size=(24, 6)))
    for panel in (phases(), phase(size=(9, 6)), limit(size=(15, 6)), rate(), waits()):
        made.with_panel(panel)
    return made
