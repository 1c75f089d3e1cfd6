"""Workqueue workers, by the work they do: writeback of each backing device, kblockd, file systems, the network."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.activity import Load
from pinchpoint.bpf.choice import UnusableSourceError
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.workqueues import TracedSource
from pinchpoint.choices import AUTO
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.sysfs import block_device_name
from pinchpoint.metrics import KWORKER_SOURCE_INFO
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.role_table import METRICS, RoleTable, RoleTotals
from pinchpoint.threads.roles import KWORKER
from pinchpoint.threads.work_source import CommSource, WorkSource

__all__ = ["Kworkers", "choose_source"]

NO_BDI = "unknown"
"""Owner of writeback that was charged before its worker ever named a backing device."""
MAX_REMEMBERED_WORKERS = 4096
"""Workers whose last work is remembered."""

log = logging.getLogger(__name__)


def choose_source(procfs: Path, processes: Processes, wanted: str = AUTO) -> WorkSource:
    """Return the `wanted` source, or the best that works here. Raises UnusableSourceError if it does not work."""
    if wanted == CommSource.name:
        return CommSource(procfs, processes)
    try:
        return TracedSource(procfs)
    except (BpfError, OSError) as error:
        reason = f"no {TracedSource.name}: {error}"
    if wanted == TracedSource.name:
        raise UnusableSourceError(reason)
    log.info("workers are told apart by their names, %s", reason)
    return CommSource(procfs, processes, reason)


class Kworkers(Probe):
    """CPU time and run-queue wait of workqueue workers by role, and by backing device where it is writeback."""

    name = "kworkers"
    metrics = (*METRICS, KWORKER_SOURCE_INFO)
    capabilities = (Capability.BPF, Capability.PERFMON, Capability.SYS_NICE)
    rest_interval = 1.0
    fast = True

    def __init__(self, host: Host, source: WorkSource | None = None) -> None:
        super().__init__(host)
        self._source = source or choose_source(host.procfs, host.processes, host.kworker_source)
        self.interval = self._source.interval
        self._table = RoleTable()
        self._load = Load(host.activity)
        self._bdi: dict[int, str] = {}
        self._last = float("nan")

    def sample(self, now: float) -> None:
        """Charge what every worker used. Raises NotPresent where none can be seen."""
        uses = self._source.sample(now)
        if self._source.name == CommSource.name and not self.host.processes.kworkers:
            raise NotPresent(f"{self.host.procfs} shows no kernel threads: it is that of another PID namespace")
        used: dict[tuple[RoleTotals, int], tuple[int, int]] = {}
        for worker, work, run, wait in uses:
            use = self._use(worker, work)
            # All workers of a queue are one group: a backing device has one flush work, whichever worker runs it.
            key = use, 0 if use.role.unit == "lock" else worker
            before = used.get(key, (0, 0))
            used[key] = before[0] + run, before[1] + wait
        for (use, group), (run, wait) in used.items():
            self._table.charge(use, group, run, wait)
        if now > self._last:
            self._table.settle(now - self._last)
            self._load.look(now, self._table.resources())
        self._last = now

    def _use(self, worker: int, work: str) -> RoleTotals:
        role, groups = self.host.roles.thread_role(KWORKER, work)
        if role.owner is None:
            return self._table.use(role, "host")
        if groups and groups[0]:
            if len(self._bdi) >= MAX_REMEMBERED_WORKERS:
                self._bdi.clear()
            self._bdi[worker] = block_device_name(self.host.sysfs, groups[0])
        return self._table.use(role, self._bdi.get(worker, NO_BDI))

    def points(self) -> Iterator[Point]:
        """Yield the series of every role of workers."""
        yield from self._table.points()
        yield KWORKER_SOURCE_INFO.point(1, self._source.name, self._source.reason)

    def close(self) -> None:
        """Close what the source keeps open."""
        self._source.close()
