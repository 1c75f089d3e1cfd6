"""The programs of scripts/packages, by set, and the Debian packages that have them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["packages", "sets"]

LIST = Path(__file__).resolve().parents[2] / "scripts" / "packages"


def _rows() -> list[list[str]]:
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return [[field.strip() for field in line.split("|")] for line in lines]


def sets() -> set[str]:
    """Return the names of the sets."""
    return {name for name, *_ in _rows()}


def packages(*wanted: str) -> dict[str, str]:
    """Return the programs, or the patterns of other files, of these sets, each with its Debian package."""
    return {program: package for name, program, package, _ in _rows() if name in wanted}
