"""What Pinchpoint itself costs on this host."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pinchpoint import __version__
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.process_cost import cpu_seconds, private_bytes
from pinchpoint.host.procfs import read_bytes
from pinchpoint.metrics import BUILD_INFO, SELF_CPU_SECONDS, SELF_OPEN_FILES, SELF_RESIDENT_BYTES
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe

__all__ = ["SelfCost"]


MEMORY_INTERVAL_SECONDS = 10.0
"""Seconds between two readings of the helpers' memory: the kernel goes through all their pages."""


class SelfCost(Probe):
    """CPU, memory and descriptors of this process; CPU and memory of its helper processes."""

    name = "self"
    metrics = (SELF_CPU_SECONDS, SELF_RESIDENT_BYTES, SELF_OPEN_FILES, BUILD_INFO)
    interval = 5.0
    rest_interval = 10.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._helpers = None if host.nursery is None else _Helpers(host.nursery)

    def sample(self, now: float) -> None:
        """Read the processes that work for this one."""
        if self._helpers is not None:
            self._helpers.read(now)

    def points(self) -> Iterator[Point]:
        """Yield the cost of this process now, with that of its helpers at the last sample."""
        # Never the observed host's procfs: in a container that is another one, where this process has another pid.
        resident = int(read_bytes("/proc/self/statm").split()[1]) * self._page
        used = time.process_time()
        if self._helpers is not None:
            used += self._helpers.cpu
            resident += self._helpers.memory
        yield SELF_CPU_SECONDS.point(used)
        yield SELF_RESIDENT_BYTES.point(resident)
        yield SELF_OPEN_FILES.point(_open_files())
        yield BUILD_INFO.point(1, __version__, platform.python_version())


class _Helpers:
    """The nursery and the helpers that it has started."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery.pid
        self._seconds: dict[tuple[int, int], float] = {}
        """CPU time by pid and start; of those that have ended, what they had used when they were last seen."""
        self._ended = 0.0
        self._due = float("-inf")
        self.memory = 0
        """Bytes that none of them shares."""

    @property
    def cpu(self) -> float:
        """Seconds that all have used."""
        return self._ended + sum(self._seconds.values())

    def read(self, now: float) -> None:
        """Read all of them."""
        found = Tree.below(Path("/proc"), self._nursery).processes
        seconds = {}
        for pid, task in found.items():
            with suppress(OSError):
                seconds[pid, task.start] = cpu_seconds(pid)
        self._ended += sum(used for key, used in self._seconds.items() if key not in seconds)
        self._seconds = seconds
        if now >= self._due:
            self._due = now + MEMORY_INTERVAL_SECONDS
            self.memory = sum(map(_private, found))


def _private(pid: int) -> int:
    try:
        return private_bytes(pid)
    except (OSError, ValueError):  # it has ended
        return 0


def _open_files() -> int:
    """Return how many descriptors this process has: since Linux 6.2 that is the size of their directory."""
    # proc_fd_getattr (fs/proc/fd.c); listing hundreds takes a millisecond, and one more.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
