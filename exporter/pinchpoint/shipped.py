"""The files that come with the package: rules, advice, dashboards, pages."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped"]


def shipped(name: str) -> Path:
    """Return a file or folder of the package, by its path in it.

    `importlib.resources` would also find one in an archive, for which it imports more than the exporter needs.
    """
    return Path(__file__).parent / name
