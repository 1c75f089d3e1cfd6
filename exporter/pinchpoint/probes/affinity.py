"""CPU sets: the CPUs that processes of interest may use, if fewer than all, and how busy these are.

An MPI library pins ranks, an operator pins a daemon to a NUMA node, a cpuset holds a container: such a set can be full
while the host is not. An owner whose threads are pinned one by one (ranks to a core each) has several sets, and the
busiest of them counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from pinchpoint import resources
from pinchpoint.host.procfs import (
    CpuTimes,
    FormatError,
    parse_cpu_times,
    parse_cpus_allowed,
    read_bytes,
    shows_own_pids,
)
from pinchpoint.metrics import KEEP_ENDED_SECONDS, RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.resources import Resource
from pinchpoint.threads.processes import Process

__all__ = ["Affinity"]

SETS_AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds between two looks at where a process may run; the last one repeats. A launcher pins ranks when they start."""
MAX_THREADS_PER_LOOK = 256
"""Threads that are read at one look, each about 15 us: the processes whose threads were read longest ago come first."""

Set = frozenset[int]


class _Held:
    """One process, and where it and its threads may run."""

    __slots__ = ("due", "looks", "owner", "sets")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.due = float("-inf")
        """Monotonic time in seconds at which it is looked at again."""
        self.looks = 0
        self.sets: dict[int, Set] = {}
        """CPUs by thread."""


class _BusiestSet:
    """The integral of one owner's busiest set."""

    __slots__ = ("resource", "seen")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.seen = 0.0
        """Monotonic time in seconds at which it was last held to a set."""


class Affinity(Probe):
    """The mean busy share of the CPUs that an owner is held to.

    Kernel threads are left out: most of them belong to one CPU.
    """

    name = "affinity"
    metrics = (RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS)
    rest_interval = 5.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._held: dict[tuple[int, int], _Held] = {}
        self._sets: dict[str, set[Set]] = {}
        self._owners: dict[str, _BusiestSet] = {}
        self._times: dict[int, CpuTimes] = {}
        self._last = 0.0
        try:
            self._own = shows_own_pids(host.procfs)
        except OSError:
            self._own = False

    def sample(self, now: float) -> None:
        """Read the times of every CPU, and who may run where. Raises NotPresent, FormatError."""
        try:
            times = parse_cpu_times(read_bytes(f"{self.host.procfs}/stat"))
        except FileNotFoundError as error:
            raise NotPresent(f"no {error.filename}") from error
        if self._look(now):
            self._gather(frozenset(times))
        self._charge(now, _busy_shares(self._times, times))
        self._times, self._last = times, now

    def _look(self, now: float) -> bool:
        """Read where processes may run, those that are due; return whether that may have changed."""
        processes = self._processes(now)
        gone = self._held.keys() - processes.keys()
        for key in gone:
            del self._held[key]
        due: list[tuple[float, int, _Held]] = []
        for key, process in processes.items():
            held = self._held.get(key)
            if held is None or held.owner != process.owner:
                held = self._held[key] = _Held(process.owner)
            if now >= held.due:
                due.append((held.due, process.pid, held))
        left = MAX_THREADS_PER_LOOK
        for _, pid, held in sorted(due, key=lambda found: found[:2]):
            self._read(held, pid, pid)
            if left > 0:  # else its threads are read at the next sample
                left -= self._read_threads(held, pid, left)
                held.due = now + SETS_AGAIN_SECONDS[min(held.looks, len(SETS_AGAIN_SECONDS) - 1)]
                held.looks += 1
        return bool(gone or due)

    def _processes(self, now: float) -> Mapping[tuple[int, int], Process]:
        current = self.host.processes.current(now)
        everything = self.host.processes.everything(now)
        return {
            (pid, process.start): process
            for pid, process in current.items()
            if pid in everything and not everything[pid].kernel_thread
        }

    def _read_threads(self, held: _Held, pid: int, limit: int) -> int:
        """Read where the threads of a process may run, at most `limit` of them; return how many were read."""
        try:
            tids = {int(name) for name in os.listdir(f"{self.host.procfs}/{pid}/task")}
        except (OSError, ValueError):
            tids = set()
        held.sets = {tid: cpus for tid, cpus in held.sets.items() if tid in tids or tid == pid}
        read = sorted(tids - {pid})[:limit]
        for tid in read:
            self._read(held, pid, tid)
        return len(read)

    def _read(self, held: _Held, pid: int, tid: int) -> None:
        try:
            if self._own:  # costs less than the file, and lacks only CPUs that are offline
                held.sets[tid] = frozenset(os.sched_getaffinity(tid))
            else:
                held.sets[tid] = parse_cpus_allowed(read_bytes(f"{self.host.procfs}/{pid}/task/{tid}/status"))
        except (OSError, FormatError):
            held.sets.pop(tid, None)

    def _gather(self, online: Set) -> None:
        """Join the sets of each owner's processes: those that are not all CPUs."""
        self._sets = {}
        for held in self._held.values():
            for allowed in set(held.sets.values()):
                cpus = allowed & online
                if cpus and cpus != online:
                    self._sets.setdefault(held.owner, set()).add(cpus)

    def _charge(self, now: float, busy: Mapping[int, float]) -> None:
        elapsed = now - self._last
        for name, sets in self._sets.items():
            owner = self._owners.get(name)
            if owner is None:
                roles = self.host.roles
                resource = Resource("cpu_set", name, roles.serves["cpu_set"], roles.thresholds["cpu_set"])
                owner = self._owners[name] = _BusiestSet(resource)
            owner.seen = now
            shares = [[busy[cpu] for cpu in cpus if cpu in busy] for cpus in sets]
            means = [sum(share) / len(share) for share in shares if share]
            if means:
                owner.resource.add(elapsed, elapsed * max(means))
        for name in [name for name, owner in self._owners.items() if now - owner.seen > KEEP_ENDED_SECONDS]:
            del self._owners[name]

    def points(self) -> Iterator[Point]:
        """Yield the integral of each owner that is or lately was held to a set."""
        return resources.points(owner.resource for owner in self._owners.values())


def _busy_shares(before: Mapping[int, CpuTimes], now: Mapping[int, CpuTimes]) -> dict[int, float]:
    """Return the busy share of each CPU that was there before and passed any time since."""
    shares = {}
    for cpu in before.keys() & now.keys():
        spent = now[cpu].since(before[cpu])
        if total := sum(spent):
            shares[cpu] = spent.busy / total
    return shares
