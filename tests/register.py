"""The metrics that a module of the package reads: those that it imports from the register."""

from __future__ import annotations

from types import ModuleType

from pinchpoint.model import Metric


def read_by(*modules: ModuleType) -> set[str]:
    """Return the names of the metrics that modules import."""
    return {value.name for module in modules for value in vars(module).values() if isinstance(value, Metric)}
