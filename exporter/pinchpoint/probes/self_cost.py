"""What Pinchpoint itself costs on this host."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import psutil

from pinchpoint import __version__
from pinchpoint.model import Kind, Metric, Point
from pinchpoint.probes.base import Host, Probe

__all__ = ["SelfCost"]

CPU = Metric("pinchpoint_self_cpu_seconds_total", "CPU time of the exporter's own process.", Kind.COUNTER)
RESIDENT = Metric("pinchpoint_self_resident_bytes", "Resident memory of the exporter's own process.")
FILES = Metric("pinchpoint_self_open_files", "File descriptors that the exporter keeps open.")
BUILD = Metric("pinchpoint_build_info", "The version of Pinchpoint and of Python.", Kind.GAUGE, ("version", "python"))


class SelfCost(Probe):
    """CPU, memory and descriptors of this process."""

    name = "self"
    help = "what Pinchpoint itself costs"
    metrics = (CPU, RESIDENT, FILES, BUILD)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._process = psutil.Process()
        self._points: tuple[Point, ...] = ()

    def sample(self, now: float) -> None:
        """Read this process."""
        with self._process.oneshot():
            times = self._process.cpu_times()
            self._points = (
                CPU.point(times.user + times.system),
                RESIDENT.point(self._process.memory_info().rss),
                FILES.point(self._process.num_fds()),
                BUILD.point(1, __version__, platform.python_version()),
            )

    def points(self) -> Iterator[Point]:
        """Yield the cost at the last sample."""
        yield from self._points
