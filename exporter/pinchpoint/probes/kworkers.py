"""Workqueue workers, by the work they do: writeback of each backing device, kblockd, file systems, the network.

A worker is no identity: one ran five to seven workqueues and changed its name 60 to 159 times in 20 s. So its time is
charged by its name at the *end* of a short interval (read the times first, then the name). Against the workqueue
tracepoints this is 0 to 8 % off at 50 ms, 3 to 20 % at 200 ms and 8 to 61 % at 1 s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.procfs import FormatError, decode, kworker_work
from pinchpoint.roles import KWORKER
from pinchpoint.sysfs import block_device_name
from pinchpoint.tasksource import KeptFile, Times, born_within, choose_times
from pinchpoint.threads import METRICS, RoleTable, RoleUse

__all__ = ["Kworkers"]

NO_BDI = "unknown"
"""Owner of writeback that was charged before its worker ever named a backing device."""


class _Worker:
    """One worker: its kept files, its totals at the last sample, and what it last worked for."""

    __slots__ = ("bdi", "comm", "name", "raw", "run", "times", "use", "wait")

    def __init__(self, directory: str, times: Times) -> None:
        self.times = KeptFile(f"{directory}/{times.file}")
        try:
            self.comm = KeptFile(f"{directory}/comm")
            self.raw = self.times.read()
            self.run, self.wait = times.parse(self.raw)
        except (OSError, FormatError):
            self.close()
            raise
        self.name = b""
        self.use: RoleUse | None = None
        self.bdi = NO_BDI

    def close(self) -> None:
        self.times.close()
        if hasattr(self, "comm"):
            self.comm.close()


class Kworkers(Probe):
    """CPU time and run-queue wait of workqueue workers by role, and by backing device where it is writeback."""

    name = "kworkers"
    help = "kernel workers by what they do, writeback by backing device (procfs comm and schedstat at 20 Hz)"
    metrics = METRICS
    interval = 0.05
    fast = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._procfs = os.fspath(host.procfs)
        self._table = RoleTable()
        self._workers: dict[int, _Worker] = {}
        self._times: Times | None = None
        self._generation = -1
        self._followed = self._last = float("nan")

    def sample(self, now: float) -> None:
        """Read every worker."""
        self.host.processes.current(now)
        times = self._times = self._times or choose_times(self.host.procfs)
        if self.host.processes.generation != self._generation:
            self._generation = self.host.processes.generation
            self._follow(times, now)
        gone = []
        for pid, worker in self._workers.items():
            try:
                raw = worker.times.read()
                if raw == worker.raw:
                    continue
                run, wait = times.parse(raw)
                name = worker.comm.read()
            except (OSError, FormatError):
                gone.append(pid)
                continue
            if run < worker.run or wait < worker.wait:
                worker.run = worker.wait = 0  # another worker under a reused pid
            if name != worker.name or worker.use is None:
                worker.name = name
                worker.use = self._use(worker, name)
            # All workers of a queue are one group: a backing device has one flush work, whichever worker runs it.
            group = 0 if worker.use.role.unit == "lock" else pid
            self._table.charge(worker.use, group, run - worker.run, wait - worker.wait)
            worker.raw, worker.run, worker.wait = raw, run, wait
        for pid in gone:
            self._workers.pop(pid).close()
        if now > self._last:
            self._table.settle(now - self._last)
        self._last = now

    def _follow(self, times: Times, now: float) -> None:
        pids = self.host.processes.kworkers
        for pid in self._workers.keys() - pids:
            self._workers.pop(pid).close()
        for pid in sorted(pids - self._workers.keys()):
            directory = f"{self._procfs}/{pid}"
            try:
                worker = self._workers[pid] = _Worker(directory, times)
            except (OSError, FormatError):
                continue
            if born_within(self._procfs, directory, now - self._followed):
                worker.raw, worker.run, worker.wait = b"", 0, 0  # all that it used is new
        self._followed = now

    def _use(self, worker: _Worker, name: bytes) -> RoleUse:
        role, groups = self.host.roles.thread_role(KWORKER, kworker_work(decode(name.rstrip(b"\n"))))
        if role.owner is None:
            return self._table.use(role, "host")
        if groups and groups[0]:
            worker.bdi = block_device_name(self.host.sysfs, groups[0])
        return self._table.use(role, worker.bdi)

    def points(self) -> Iterator[Point]:
        """Yield the series of every role of workers."""
        yield from self._table.points()

    def close(self) -> None:
        """Give the kept descriptors back."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
