"""Limits that cgroups put on processes of interest: of CPU and memory, how often they bite; of block I/O, their use.

The time that a quota takes from a thread is part of its run-queue wait, which blames the host's CPUs. Only the count of
throttled periods tells the two apart. I/O that a limit holds back is in no statistics of the disk, which looks idle:
only the group's use of the limit shows it. The host's memory pressure also counts tasks that reclaim pages of their own
group: only how often the group met its limit tells that apart from a host that is short of memory. A limit binds
everything below it, so every ancestor of a process' cgroup counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pinchpoint import resources
from pinchpoint.host.cgroupfs import (
    LIMIT_NAMES,
    Hierarchy,
    IoLimit,
    IoUse,
    Throttling,
    cpu_quota,
    find_hierarchies,
    io_limits,
    io_used,
    memory_hits,
    memory_limit,
    parse_cgroup,
    parse_cpu_stat,
)
from pinchpoint.host.procfs import FormatError, read_bytes
from pinchpoint.host.sysfs import block_device_name
from pinchpoint.metrics import (
    CGROUP_CPU_PERIODS,
    CGROUP_CPU_QUOTA_CPUS,
    CGROUP_CPU_THROTTLED_PERIODS,
    CGROUP_CPU_THROTTLED_SECONDS,
    CGROUP_IO_LIMIT,
    CGROUP_MEMORY_LIMIT_BYTES,
    KEEP_ENDED_SECONDS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.quotas import shared_out
from pinchpoint.resources import Resource
from pinchpoint.user_labels import user_of

__all__ = ["Cgroups"]

CGROUP_LOOK_INTERVAL_SECONDS = 5.0
"""Seconds between two looks at the cgroups of processes and at limits; a new process is checked at once."""
MAX_FEW_PROCESSES, FEW_INTERVAL_SECONDS = 64, 1.0
"""The same with at most so many processes, which take a millisecond to look at."""
RECLAIM_SECONDS = 5.0
"""Seconds for which a memory limit counts as met: a task that reclaims for as long is counted once, when it begins."""
WHOLE = PurePosixPath("/")
MAX_IO_LIMITS = 256
"""Block I/O limits that are shown, of trusted users' processes and of each other user's ..."""
MAX_ALL_IO_LIMITS = 512
"""... and of all users together."""

NOTHING = Throttling(0, 0, 0.0)


class _LimitedCgroup:
    """A cgroup with a CPU quota."""

    __slots__ = ("_last", "cpus", "new")

    def __init__(self) -> None:
        self.cpus = 0.0
        self.new = NOTHING
        """The throttling since the last sample."""
        self._last: Throttling | None = None

    def read(self, directory: Path) -> None:
        """Read its throttling; nothing is new in one that is gone or that is read for the first time."""
        try:
            found = parse_cpu_stat(read_bytes(directory / "cpu.stat"))
        except (OSError, FormatError):
            self.new, self._last = NOTHING, None
            return
        before = self._last or found
        self.new = Throttling(
            max(0, found.periods - before.periods),
            max(0, found.throttled - before.throttled),
            max(0.0, found.seconds - before.seconds),
        )
        self._last = found

    @property
    def share(self) -> float:
        """The share of its periods that were throttled."""
        return min(1.0, self.new.throttled / self.new.periods) if self.new.periods else 0.0

    def tightness(self) -> tuple[float, int]:
        """Return what is greater the tighter its quota was."""
        return self.share, self.new.periods


class _IoGroup:
    """A cgroup with limits of block I/O."""

    __slots__ = ("_last", "new")

    def __init__(self) -> None:
        self.new: IoUse = {}
        """What was read and written since the last sample."""
        self._last: IoUse = {}

    def read(self, directory: Path) -> None:
        """Read what it used; nothing is new in one that is gone or that is read for the first time."""
        found = io_used(directory)
        # A device has no count before its first I/O.
        before = dict.fromkeys(found, 0) | self._last if self._last else found
        self.new = {key: max(0, value - before[key]) for key, value in found.items()}
        self._last = found

    def share(self, limits: Iterable[IoLimit], elapsed: float) -> float:
        """Return how much of the tightest limit was used in the last `elapsed` seconds."""
        used = (self.new.get((device, key), 0) / (limit * elapsed) for device, key, limit in limits if limit)
        return min(1.0, max(used, default=0.0))


class _MemoryGroup:
    """A cgroup with a memory limit."""

    __slots__ = ("_hits", "_met")

    def __init__(self) -> None:
        self._hits: int | None = None
        self._met = float("-inf")

    def read(self, directory: Path, now: float) -> None:
        """Read how often it met its limit; that is unknown of one that is gone or that is read for the first time."""
        try:
            found: int | None = memory_hits(directory)
        except (OSError, FormatError):
            found = None
        if found is not None and self._hits is not None and found > self._hits:
            self._met = now
        self._hits = found

    def held_back(self, now: float) -> bool:
        """Return whether its memory met the limit lately."""
        return now - self._met < RECLAIM_SECONDS


class _Place(NamedTuple):
    """The limits on every process with the same ``/proc/PID/cgroup``."""

    quotas: tuple[Path, ...]
    io: tuple[tuple[Path, tuple[IoLimit, ...]], ...]
    """Limits of block I/O by the cgroup that sets them."""
    memory: tuple[tuple[Path, int], ...]
    """Limits of memory, in bytes."""


class _LimitedOwner:
    """The totals of one owner's limits of CPU, of block I/O, or of memory."""

    __slots__ = ("resource", "seen")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.seen = 0.0
        """Monotonic time at which it last had a limit."""


class Cgroups(Probe):
    """Limits of CPU, memory and block I/O on processes of interest, and how full they were."""

    name = "cgroups"
    metrics = (
        CGROUP_CPU_PERIODS,
        CGROUP_CPU_THROTTLED_PERIODS,
        CGROUP_CPU_THROTTLED_SECONDS,
        CGROUP_CPU_QUOTA_CPUS,
        CGROUP_IO_LIMIT,
        CGROUP_MEMORY_LIMIT_BYTES,
        RESOURCE_BUSY_SECONDS,
        RESOURCE_SATURATED_SECONDS,
    )
    rest_interval = 10.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hierarchies: tuple[Hierarchy, ...] = ()
        self._looked = self._last = float("-inf")
        self._placed: dict[tuple[int, int], tuple[str, _Place]] = {}
        self._places: dict[bytes, _Place] = {}
        self._groups: dict[Path, _LimitedCgroup] = {}
        self._limited: dict[Path, bool] = {}
        self._quotas: dict[str, set[Path]] = {}
        self._throttled: dict[str, Throttling] = {}
        self._cpu_owners: dict[str, _LimitedOwner] = {}
        self._io_groups: dict[Path, _IoGroup] = {}
        self._io_limits: dict[str, set[tuple[Path, tuple[IoLimit, ...]]]] = {}
        self._io_shown: dict[tuple[str, str, str], int] = {}
        self._io_owners: dict[str, _LimitedOwner] = {}
        self._memory_groups: dict[Path, _MemoryGroup] = {}
        self._memory_limits: dict[str, dict[Path, int]] = {}
        self._memory_known: dict[Path, int | None] = {}
        self._memory_owners: dict[str, _LimitedOwner] = {}

    def sample(self, now: float) -> None:
        """Read the use of every limit above a process of interest. Raises NotPresent without cgroups."""
        look = now - self._looked >= (
            FEW_INTERVAL_SECONDS if len(self._placed) <= MAX_FEW_PROCESSES else CGROUP_LOOK_INTERVAL_SECONDS
        )
        if look:
            self._looked = now
            self._hierarchies = find_hierarchies(self.host.procfs, self.host.sysfs, self.host.rootfs)
            for forgotten in (self._placed, self._places, self._limited, self._memory_known):
                forgotten.clear()
        if not self._hierarchies:
            raise NotPresent("no cgroup file system with the cpu, memory, blkio or unified hierarchy is mounted")
        if self._place(now) or look:
            self._gather()
        for directory, group in self._groups.items():
            group.read(directory)
        for directory, io_group in self._io_groups.items():
            io_group.read(directory)
        for directory, memory_group in self._memory_groups.items():
            memory_group.read(directory, now)
        self._charge("cpu_quota", self._cpu_owners, self._cpu_shares(), now)
        self._charge("io_quota", self._io_owners, self._io_shares(now - self._last), now)
        self._charge("memory_quota", self._memory_owners, self._memory_shares(now), now)
        for name in self._throttled.keys() - self._cpu_owners.keys():
            del self._throttled[name]
        self._last = now

    def _place(self, now: float) -> bool:
        """Find the cgroups of processes that were not seen yet; return whether there were any."""
        new = False
        for pid, process in self.host.processes.current(now).items():
            if (pid, process.start) in self._placed:
                continue
            try:
                raw = read_bytes(f"{self.host.procfs}/{pid}/cgroup")
            except OSError:
                continue
            place = self._places.get(raw)
            if place is None:
                place = self._places[raw] = self._limits(parse_cgroup(raw))
            self._placed[pid, process.start] = process.owner, place
            new = True
        return new

    def _limits(self, paths: Mapping[str, str]) -> _Place:
        quotas: list[Path] = []
        io: list[tuple[Path, tuple[IoLimit, ...]]] = []
        memory: list[tuple[Path, int]] = []
        for hierarchy in self._hierarchies:
            chain = hierarchy.chain(paths)
            if hierarchy.unified or "cpu" in hierarchy.controllers:
                quotas += [directory for directory in chain if self._has_quota(directory, hierarchy)]
            if hierarchy.unified or "blkio" in hierarchy.controllers:
                # Version 1 has no tree of limits: only the group itself counts (throtl_pd_init, block/blk-throttle.c).
                # A limit of its root holds for processes in no group: it is the speed of the device, not a quota.
                own = chain[:1] if len(chain) > 1 or hierarchy.root != WHOLE else []
                for directory in chain if hierarchy.unified else own:
                    if limits := io_limits(directory, hierarchy):
                        io.append((directory, tuple(limits)))
            if hierarchy.unified or "memory" in hierarchy.controllers:
                for directory in chain:
                    if (limit := self._memory_limit(directory, hierarchy)) is not None:
                        memory.append((directory, limit))
        return _Place(tuple(quotas), tuple(io), tuple(memory))

    def _has_quota(self, directory: Path, hierarchy: Hierarchy) -> bool:
        known = self._limited.get(directory)
        if known is None:
            cpus = cpu_quota(directory, hierarchy)
            known = self._limited[directory] = cpus is not None
            if cpus is not None:
                self._groups.setdefault(directory, _LimitedCgroup()).cpus = cpus
        return known

    def _memory_limit(self, directory: Path, hierarchy: Hierarchy) -> int | None:
        """Return a cgroup's memory limit in bytes, read once a look: most groups have the same ones above them."""
        if directory not in self._memory_known:
            self._memory_known[directory] = memory_limit(directory, hierarchy)
        return self._memory_known[directory]

    def _gather(self) -> None:
        """Join the limits of each owner's processes, and forget limits that no longer apply."""
        self._quotas = {}
        self._io_limits = {}
        self._memory_limits = {}
        shown: dict[tuple[str, str, str], int] = {}
        for owner, place in set(self._placed.values()):
            self._quotas.setdefault(owner, set()).update(place.quotas)
            self._io_limits.setdefault(owner, set()).update(place.io)
            self._memory_limits.setdefault(owner, {}).update(place.memory)
            for device, key, value in (limit for _, limits in place.io for limit in limits):
                label = owner, device, key
                shown[label] = min(value, shown.get(label, value))
        self._io_shown = {
            (owner, block_device_name(self.host.sysfs, device), LIMIT_NAMES[key]): value
            for (owner, device, key), value in shared_out(
                ((user_of(label[0]), (label, value)) for label, value in sorted(shown.items())),
                MAX_IO_LIMITS,
                MAX_ALL_IO_LIMITS,
            )
        }
        used = set().union(*self._quotas.values())
        self._groups = {directory: group for directory, group in self._groups.items() if directory in used}
        limited = {directory for limits in self._io_limits.values() for directory, _ in limits}
        self._io_groups = {directory: self._io_groups.get(directory) or _IoGroup() for directory in limited}
        used = set().union(*self._memory_limits.values())
        self._memory_groups = {directory: self._memory_groups.get(directory) or _MemoryGroup() for directory in used}

    def _cpu_shares(self) -> Iterator[tuple[str, float]]:
        """Yield the share of its periods in which the tightest CPU quota of each owner was used up, and count them."""
        for name, directories in self._quotas.items():
            if not directories:
                continue
            worst = max((self._groups[directory] for directory in directories), key=_LimitedCgroup.tightness)
            total, new = self._throttled.get(name, NOTHING), worst.new
            self._throttled[name] = Throttling(
                total.periods + new.periods, total.throttled + new.throttled, total.seconds + new.seconds
            )
            yield name, worst.share

    def _io_shares(self, elapsed: float) -> Iterator[tuple[str, float]]:
        """Yield how much of its tightest limit of block I/O each owner used."""
        for name, limits in self._io_limits.items():
            if limits and elapsed > 0:
                yield name, max(self._io_groups[directory].share(found, elapsed) for directory, found in limits)

    def _memory_shares(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield 1 for each owner whose memory met a limit lately, and 0 for all others who have one."""
        for name, limits in self._memory_limits.items():
            if limits:
                yield name, float(any(self._memory_groups[directory].held_back(now) for directory in limits))

    def _charge(
        self, resource: str, owners: dict[str, _LimitedOwner], shares: Iterable[tuple[str, float]], now: float
    ) -> None:
        """Charge the time since the last sample with the share of it in which each owner's limit was full."""
        elapsed = now - self._last
        for name, share in shares:
            owner = owners.get(name)
            if owner is None:
                # Nothing is known of the time before.
                owner = owners[name] = _LimitedOwner(self._resource(resource, name))
            else:
                owner.resource.add(elapsed, elapsed * share)
            owner.seen = now
        for name in [name for name, owner in owners.items() if now - owner.seen > KEEP_ENDED_SECONDS]:
            del owners[name]

    def _resource(self, name: str, owner: str) -> Resource:
        return Resource(name, owner, self.host.roles.serves[name], self.host.roles.thresholds[name])

    def points(self) -> Iterator[Point]:
        """Yield the totals of each owner that has or lately had a limit, and the limits in force."""
        for name, totals in self._throttled.items():
            yield CGROUP_CPU_PERIODS.point(totals.periods, name)
            yield CGROUP_CPU_THROTTLED_PERIODS.point(totals.throttled, name)
            yield CGROUP_CPU_THROTTLED_SECONDS.point(totals.seconds, name)
            if directories := self._quotas.get(name):
                yield CGROUP_CPU_QUOTA_CPUS.point(min(self._groups[directory].cpus for directory in directories), name)
        for owners in (self._cpu_owners, self._io_owners, self._memory_owners):
            yield from resources.points(owner.resource for owner in owners.values())
        for name, limits in self._memory_limits.items():
            if limits:
                yield CGROUP_MEMORY_LIMIT_BYTES.point(min(limits.values()), name)
        for labels, value in self._io_shown.items():
            yield CGROUP_IO_LIMIT.point(value, *labels)
