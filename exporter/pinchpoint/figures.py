"""How figures are written for people."""

from __future__ import annotations

from collections.abc import Sequence

from pinchpoint.runs import Result

__all__ = ["bare_figure", "format_figure", "format_result"]

UNITLESS = frozenset({"", "ratio", "score"})
SCALES: dict[str, tuple[float, Sequence[str]]] = {
    "bytes_per_second": (1024, ("B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s")),
    "operations_per_second": (1000, ("IOPS", "kIOPS", "MIOPS")),
    "bytes": (1024, ("B", "KiB", "MiB", "GiB", "TiB")),
}
SHORT_TIMES = (("s", 1.0), ("ms", 1e3), ("us", 1e6))


def format_figure(value: float, unit: str) -> str:
    """Return a figure in base units as a person reads it: ``1.21 GiB/s``, ``12.3 kIOPS``, ``0.178 ms``."""
    if unit == "seconds":
        name, factor = next((entry for entry in SHORT_TIMES if abs(value) * entry[1] >= 1), SHORT_TIMES[-1])
        return f"{value * factor:.3g} {name}" if value else "0 s"
    step, units = SCALES.get(unit, (1.0, (unit,)))
    index = 0
    while index < len(units) - 1 and abs(value) >= step:
        value /= step
        index += 1
    return f"{value:.3g} {units[index]}" if abs(value) < 1000 else f"{value:.0f} {units[index]}"


def bare_figure(value: float, unit: str) -> str:
    """Return a figure without its operation: ``1.21 GiB/s``, ``10.7`` for a score."""
    return f"{value:.4g}" if unit in UNITLESS else format_figure(value, unit)


def format_result(result: Result) -> str:
    """Return a result as a person reads it: ``write 1.21 GiB/s``, ``read 12.3 kIOPS``."""
    return f"{result.operation} {format_figure(result.value, result.unit)}"
