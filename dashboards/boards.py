"""The dashboards, and their JSON for Grafana."""

from __future__ import annotations

from pathlib import Path

from dashboards import bottleneck, clients, mds, osd, power, runs, threads, wall
from dashboards.kit.board import encoded

BOARDS = (bottleneck, threads, power, mds, osd, clients, runs, wall)
"""One module per dashboard, in the order of a reader's questions."""
JSON = Path(__file__).parent / "json"


def generated() -> dict[str, str]:
    """Return the JSON text of each dashboard by file name."""
    return {f"{module.__name__.rpartition('.')[2]}.json": encoded(module.dashboard()) for module in BOARDS}
