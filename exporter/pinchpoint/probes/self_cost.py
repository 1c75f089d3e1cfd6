"""What Pinchpoint itself costs on this host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

from pinchpoint import __version__
from pinchpoint.host.procfs import read_bytes
from pinchpoint.metrics import BUILD_INFO, SELF_CPU_SECONDS, SELF_OPEN_FILES, SELF_RESIDENT_BYTES
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe

__all__ = ["SelfCost"]


class SelfCost(Probe):
    """CPU, memory and descriptors of this process."""

    name = "self"
    help = "Pinchpoint's own cost"
    metrics = (SELF_CPU_SECONDS, SELF_RESIDENT_BYTES, SELF_OPEN_FILES, BUILD_INFO)

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._points: tuple[Point, ...] = ()

    def sample(self, now: float) -> None:
        """Read this process."""
        # Never the observed host's procfs: in a container that is another one, where this process has another pid.
        resident = int(read_bytes("/proc/self/statm").split()[1]) * self._page
        self._points = (
            SELF_CPU_SECONDS.point(time.process_time()),
            SELF_RESIDENT_BYTES.point(resident),
            SELF_OPEN_FILES.point(_open_files()),
            BUILD_INFO.point(1, __version__, platform.python_version()),
        )

    def points(self) -> Iterator[Point]:
        """Yield the cost at the last sample."""
        yield from self._points


def _open_files() -> int:
    """Return how many descriptors this process has: since Linux 6.2 that is the size of their directory."""
    # proc_fd_getattr (fs/proc/fd.c); listing hundreds takes a millisecond, and one more.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
