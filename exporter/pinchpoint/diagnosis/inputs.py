"""Which metrics of a host a verdict depends on: a judge asks a Prometheus server for no others."""

from __future__ import annotations

from pinchpoint.diagnosis import chains, costs, facts, innocent, latency, progress, recent, usage, waterfall, window
from pinchpoint.model import Metric

__all__ = ["INPUTS"]

READERS = (chains, costs, facts, innocent, latency, progress, recent, usage, waterfall, window)
"""The modules that read snapshots; a metric that one of them reads stands in its imports."""

INPUTS = frozenset(one.name for module in READERS for one in vars(module).values() if isinstance(one, Metric))
"""Names of the metrics."""
