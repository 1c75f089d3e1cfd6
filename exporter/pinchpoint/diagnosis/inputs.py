"""Which metrics of a host a verdict depends on: a judge asks a Prometheus server for no others."""

from __future__ import annotations

from pinchpoint.diagnosis import (
    chains,
    costs,
    facts,
    innocent,
    latency,
    lock_use,
    pair,
    progress,
    recent,
    served,
    usage,
    waterfall,
    window,
)
from pinchpoint.metrics import THREADS
from pinchpoint.model import Metric

__all__ = ["INPUTS", "STEADY_INPUTS"]

READERS = (chains, costs, facts, innocent, latency, lock_use, pair, progress, recent, served, usage, waterfall, window)
"""The modules that read snapshots; a metric that one of them reads stands in its imports."""

VIEWED = (THREADS,)
"""Metrics of theirs that only `pinchpoint watch` shows; this one has a series for each role of each daemon."""

_METRICS = [one for module in READERS for one in vars(module).values() if isinstance(one, Metric) and one not in VIEWED]
INPUTS = frozenset(metric.name for metric in _METRICS)
"""Names of the metrics ..."""
STEADY_INPUTS = frozenset(metric.name for metric in _METRICS if metric.steady)
"""... and of those that need not be read with every scrape."""
