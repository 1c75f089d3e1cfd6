"""Every metric that Pinchpoint can export, in one list: for the documentation, and for tests of rules and pages."""

from __future__ import annotations

from collections.abc import Iterator

from pinchpoint import sampler
from pinchpoint.judge import metrics as judge
from pinchpoint.model import Metric
from pinchpoint.probes import PROBES
from pinchpoint.threads import thresholds

__all__ = ["all_metrics", "judge_metrics"]


def all_metrics() -> Iterator[Metric]:
    """Yield each metric of the exporter once, in the order of the probes."""
    seen: set[str] = set()
    sources = [probe.metrics for probe in PROBES] + [thresholds.METRICS, sampler.METRICS]
    for metrics in sources:
        for metric in metrics:
            if metric.name not in seen:
                seen.add(metric.name)
                yield metric


def judge_metrics() -> Iterator[Metric]:
    """Yield each metric of the judge."""
    yield from judge.METRICS
