"""Dirty pages on their way to disk, and stalls for lack of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pinchpoint import resources
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import FormatError, read_bytes
from pinchpoint.metrics import (
    MEMORY_ALLOCATION_STALLS,
    MEMORY_DIRTY_BYTES,
    MEMORY_DIRTY_THRESHOLD_BYTES,
    MEMORY_WRITEBACK_BYTES,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.resources import Resource
from pinchpoint.units import MICROSECONDS_PER_SECOND

__all__ = ["MemoryProbe", "parse_pressure", "parse_vmstat"]

PAGES = {
    "nr_dirty": MEMORY_DIRTY_BYTES,
    "nr_writeback": MEMORY_WRITEBACK_BYTES,
    "nr_dirty_threshold": MEMORY_DIRTY_THRESHOLD_BYTES,
}
"""Fields of vmstat in pages (mm/vmstat.c; nr_dirty_threshold since Linux 2.6.37)."""
STALLS = "allocstall"
FIELDS = expression(rf"(?m)^({'|'.join(PAGES)}|{STALLS}\w*) (\d{{1,20}})$".encode())


def parse_vmstat(raw: bytes) -> dict[str, int]:
    """Return the fields of ``/proc/vmstat`` that Pinchpoint uses; damaged lines are left out.

    Stalls are counted by zone as ``allocstall_ZONE`` since Linux 4.10 and as one ``allocstall`` before: they are added
    up under that name. Raises FormatError if the file has no known field.
    """
    found: dict[str, int] = {}
    for field, number in FIELDS.findall(raw):
        name = field.decode()
        if name.startswith(STALLS):
            found[STALLS] = found.get(STALLS, 0) + int(number)
        else:
            found[name] = int(number)
    if not found:
        raise FormatError(f"not a vmstat: {raw[:80]!r}")
    return found


def parse_pressure(raw: bytes) -> int:
    """Return the microseconds in which some task stalled, from ``/proc/pressure/*`` (psi_show, kernel/sched/psi.c).

    Raises FormatError.
    """
    for line in raw.splitlines():
        words = line.split()
        if words[:1] == [b"some"] and words[-1].startswith(b"total="):
            total = words[-1].removeprefix(b"total=")
            if total.isdigit() and len(total) <= 20:
                return int(total)
    raise FormatError(f"not a pressure file: {raw[:80]!r}")


class MemoryProbe(Probe):
    """Dirty and writeback memory, allocation stalls, and the time in which a task stalled for memory (PSI)."""

    name = "memory"
    metrics = (
        MEMORY_DIRTY_BYTES,
        MEMORY_WRITEBACK_BYTES,
        MEMORY_DIRTY_THRESHOLD_BYTES,
        MEMORY_ALLOCATION_STALLS,
        RESOURCE_BUSY_SECONDS,
        RESOURCE_SATURATED_SECONDS,
    )
    rest_interval = 5.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._page_size = os.sysconf("SC_PAGE_SIZE")
        self._fields: dict[str, int] = {}
        self._stalls = 0
        self._resource: Resource | None = None
        self._stalled: tuple[float, int] | None = None

    def sample(self, now: float) -> None:
        """Read vmstat, and the pressure where the kernel has it."""
        try:
            self._fields = parse_vmstat(read_bytes(f"{self.host.procfs}/vmstat"))
        except FileNotFoundError as error:
            raise NotPresent(f"no {error.filename}") from error
        self._stalls = max(self._stalls, self._fields.get("allocstall", 0))
        self._press(now)

    def _press(self, now: float) -> None:
        try:
            total = parse_pressure(read_bytes(f"{self.host.procfs}/pressure/memory"))
        except (OSError, FormatError):
            # No PSI before Linux 4.20 or without CONFIG_PSI; with psi=0 a read gives EOPNOTSUPP.
            self._stalled = None
            return
        if self._resource is None:
            roles = self.host.roles
            self._resource = Resource("memory", "host", roles.serves["memory"], roles.thresholds["memory"])
        if self._stalled is not None:
            then, before = self._stalled
            elapsed = now - then
            self._resource.add(elapsed, min(elapsed, max(0, total - before) / MICROSECONDS_PER_SECOND))
        self._stalled = now, total

    def points(self) -> Iterator[Point]:
        """Yield what this kernel reports."""
        for name, metric in PAGES.items():
            if name in self._fields:
                yield metric.point(self._fields[name] * self._page_size)
        if "allocstall" in self._fields:
            yield MEMORY_ALLOCATION_STALLS.point(self._stalls)
        if self._resource is not None:
            yield from resources.points((self._resource,))
