"""The phases of the runs on this host, as `pinchpoint run` marks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from pinchpoint.model import Kind, Metric, Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.procfs import decode
from pinchpoint.runs import Marker

__all__ = ["Benchmark"]

ACTIVE = Metric(
    "pinchpoint_phase_active",
    "1 while the phase of a benchmark run goes on.",
    Kind.GAUGE,
    ("benchmark", "run", "phase"),
)
START = Metric(
    "pinchpoint_phase_start_timestamp_seconds",
    "When the phase began, in Unix time.",
    Kind.GAUGE,
    ("benchmark", "run", "phase"),
)
RESULT = Metric(
    "pinchpoint_phase_result",
    "What the benchmark gave as the phase's result, in base units.",
    Kind.GAUGE,
    ("benchmark", "run", "phase", "operation", "unit"),
)
PHASE_LIMIT = 64
"""Phases of one run that are exported: the newest ones."""
RESULT_LIMIT = 32
"""Results of one phase that are exported."""
LABEL_LIMIT = 255
"""Bytes of a name that are exported."""


class Benchmark(Probe):
    """Phases and results from the markers in the run directory."""

    name = "benchmark"
    help = "phases and results of benchmark runs (markers that `pinchpoint run` writes)"
    metrics = (ACTIVE, START, RESULT)
    interval = 0.2

    def __init__(self, host: Host, wall: Callable[[], float] = time.time) -> None:
        super().__init__(host)
        self._wall = wall
        self._markers: list[tuple[Marker, bool]] = []

    def sample(self, now: float) -> None:
        """Read the run directory."""
        runs = self.host.runs
        self._markers = [(marker, runs.alive(marker)) for marker in runs.markers(self._wall())]

    def points(self) -> Iterable[Point]:
        """Return the phases of each run; a phase that is repeated shows its last time."""
        # Two names may become one label.
        return {point[:2]: point for point in self._points()}.values()

    def _points(self) -> Iterator[Point]:
        for marker, alive in self._markers:
            phases = {_label(phase.name): phase for phase in marker.phases}
            for phase in list(phases.values())[-PHASE_LIMIT:]:
                labels = (_label(marker.benchmark), _label(marker.run), _label(phase.name))
                yield ACTIVE.point(float(alive and phase.end is None), *labels)
                yield START.point(phase.start, *labels)
                results = {(_label(found.operation), _label(found.unit)): found.value for found in phase.results}
                for result, value in list(results.items())[:RESULT_LIMIT]:
                    yield RESULT.point(value, *labels, *result)


def _label(text: str) -> str:
    """Return what a marker says in the form of a label: anybody may have written it."""
    return decode(text.encode()[:LABEL_LIMIT])
