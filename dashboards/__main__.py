"""Writes the dashboards to ``json/``: ``python -m dashboards``, behind `make dashboards`."""

from __future__ import annotations

from pathlib import Path

from dashboards import bottleneck, clients, mds, osd, power, runs, threads
from dashboards.kit import encoded

BOARDS = (bottleneck, threads, power, mds, osd, clients, runs)
"""One module a dashboard, in the order in which a reader asks."""
JSON = Path(__file__).parent / "json"


def generated() -> dict[str, str]:
    """Return the text of each dashboard by its file's name."""
    return {f"{module.__name__.rpartition('.')[2]}.json": encoded(module.dashboard()) for module in BOARDS}


def main() -> None:
    """Write all dashboards, and remove what no module makes any more."""
    JSON.mkdir(exist_ok=True)
    found = generated()
    for path in JSON.glob("*.json"):
        if path.name not in found:
            path.unlink()
    for name, text in found.items():
        (JSON / name).write_text(text)


if __name__ == "__main__":
    main()
