"""What Pinchpoint itself costs on this host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

from pinchpoint import __version__
from pinchpoint.host.procfs import read_bytes
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
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._points: tuple[Point, ...] = ()

    def sample(self, now: float) -> None:
        """Read this process."""
        # Never the observed host's procfs: in a container that is another one, where this process has another pid.
        resident = int(read_bytes("/proc/self/statm").split()[1]) * self._page
        self._points = (
            CPU.point(time.process_time()),
            RESIDENT.point(resident),
            FILES.point(_open_files()),
            BUILD.point(1, __version__, platform.python_version()),
        )

    def points(self) -> Iterator[Point]:
        """Yield the cost at the last sample."""
        yield from self._points


def _open_files() -> int:
    """Return how many descriptors this process has: since Linux 6.2 that is the size of the folder of them."""
    # proc_fd_getattr (fs/proc/fd.c); to list hundreds takes a millisecond, and one more.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
