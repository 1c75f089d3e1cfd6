"""Limits that cgroups put on processes of interest: CPU quotas and how often they bite, limits of block I/O in use.

The time that a quota takes from a thread is part of its run-queue wait, which blames the host's CPUs. Only the count of
throttled periods tells the two apart. I/O that a limit holds back is in no statistics of the disk, which looks idle:
only the group's use of the limit shows it. A limit binds everything below it, so every ancestor of a process' cgroup
counts.
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


class _Place(NamedTuple):
    """The limits on every process with the same ``/proc/PID/cgroup``."""

    quotas: tuple[Path, ...]
    io: tuple[tuple[Path, tuple[IoLimit, ...]], ...]
    """Limits of block I/O by the cgroup that sets them."""


class _OwnerQuota:
    """The totals of one owner's CPU quota."""

    __slots__ = ("periods", "resource", "seconds", "seen", "throttled")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.periods = self.throttled = 0
        self.seconds = 0.0
        self.seen = 0.0
        """Monotonic time at which it last had a quota."""


class _IoOwner:
    """The totals of one owner's limits of block I/O."""

    __slots__ = ("resource", "seen")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.seen = 0.0
        """Monotonic time at which it last had a limit."""


class Cgroups(Probe):
    """CPU quotas of processes of interest and their throttling, limits of block I/O and how much of them is used."""

    name = "cgroups"
    metrics = (
        CGROUP_CPU_PERIODS,
        CGROUP_CPU_THROTTLED_PERIODS,
        CGROUP_CPU_THROTTLED_SECONDS,
        CGROUP_CPU_QUOTA_CPUS,
        CGROUP_IO_LIMIT,
        RESOURCE_BUSY_SECONDS,
        RESOURCE_SATURATED_SECONDS,
    )
    rest_interval = 10.0

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hierarchies: list[Hierarchy] = []
        self._looked = self._last = float("-inf")
        self._placed: dict[tuple[int, int], tuple[str, _Place]] = {}
        self._places: dict[bytes, _Place] = {}
        self._groups: dict[Path, _LimitedCgroup] = {}
        self._limited: dict[Path, bool] = {}
        self._quotas: dict[str, set[Path]] = {}
        self._owners: dict[str, _OwnerQuota] = {}
        self._io_groups: dict[Path, _IoGroup] = {}
        self._io_limits: dict[str, set[tuple[Path, tuple[IoLimit, ...]]]] = {}
        self._io_shown: dict[tuple[str, str, str], int] = {}
        self._io_owners: dict[str, _IoOwner] = {}

    def sample(self, now: float) -> None:
        """Read the use of every limit above a process of interest. Raises NotPresent without cgroups."""
        look = now - self._looked >= (
            FEW_INTERVAL_SECONDS if len(self._placed) <= MAX_FEW_PROCESSES else CGROUP_LOOK_INTERVAL_SECONDS
        )
        if look:
            self._looked = now
            self._hierarchies = find_hierarchies(self.host.procfs, self.host.sysfs, self.host.rootfs)
            for forgotten in (self._placed, self._places, self._limited):
                forgotten.clear()
        if not self._hierarchies:
            raise NotPresent("no cgroup file system with the cpu, blkio or unified hierarchy is mounted")
        if self._place(now) or look:
            self._gather()
        for directory, group in self._groups.items():
            group.read(directory)
        for directory, io_group in self._io_groups.items():
            io_group.read(directory)
        self._charge_quotas(now)
        self._charge_io(now)
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
        return _Place(tuple(quotas), tuple(io))

    def _has_quota(self, directory: Path, hierarchy: Hierarchy) -> bool:
        known = self._limited.get(directory)
        if known is None:
            cpus = cpu_quota(directory, hierarchy)
            known = self._limited[directory] = cpus is not None
            if cpus is not None:
                self._groups.setdefault(directory, _LimitedCgroup()).cpus = cpus
        return known

    def _gather(self) -> None:
        """Join the limits of each owner's processes, and forget limits that no longer apply."""
        self._quotas = {}
        self._io_limits = {}
        shown: dict[tuple[str, str, str], int] = {}
        for owner, place in set(self._placed.values()):
            self._quotas.setdefault(owner, set()).update(place.quotas)
            self._io_limits.setdefault(owner, set()).update(place.io)
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

    def _charge_quotas(self, now: float) -> None:
        elapsed = now - self._last
        for name, directories in self._quotas.items():
            groups = [self._groups[directory] for directory in directories]
            if not groups:
                continue
            owner = self._owners.get(name)
            if owner is None:
                owner = self._owners[name] = _OwnerQuota(self._resource("cpu_quota", name))
            owner.seen = now
            worst = max(groups, key=lambda group: (group.share, group.new.periods))
            owner.periods += worst.new.periods
            owner.throttled += worst.new.throttled
            owner.seconds += worst.new.seconds
            if worst.new.periods:
                owner.resource.add(elapsed, elapsed * worst.share)
        for name in [name for name, owner in self._owners.items() if now - owner.seen > KEEP_ENDED_SECONDS]:
            del self._owners[name]

    def _charge_io(self, now: float) -> None:
        elapsed = now - self._last
        for name, limits in self._io_limits.items():
            if not limits:
                continue
            owner = self._io_owners.get(name)
            if owner is None:
                # Nothing is known of the time before.
                owner = self._io_owners[name] = _IoOwner(self._resource("io_quota", name))
            elif elapsed > 0:
                busy = max(self._io_groups[directory].share(found, elapsed) for directory, found in limits)
                owner.resource.add(elapsed, elapsed * busy)
            owner.seen = now
        for name in [name for name, owner in self._io_owners.items() if now - owner.seen > KEEP_ENDED_SECONDS]:
            del self._io_owners[name]

    def _resource(self, name: str, owner: str) -> Resource:
        return Resource(name, owner, self.host.roles.serves[name], self.host.roles.thresholds[name])

    def points(self) -> Iterator[Point]:
        """Yield the totals of each owner that has or lately had a limit, and the limits in force."""
        for name, owner in self._owners.items():
            yield CGROUP_CPU_PERIODS.point(owner.periods, name)
            yield CGROUP_CPU_THROTTLED_PERIODS.point(owner.throttled, name)
            yield CGROUP_CPU_THROTTLED_SECONDS.point(owner.seconds, name)
            if directories := self._quotas.get(name):
                yield CGROUP_CPU_QUOTA_CPUS.point(min(self._groups[directory].cpus for directory in directories), name)
        yield from resources.points(owner.resource for owner in self._owners.values())
        yield from resources.points(owner.resource for owner in self._io_owners.values())
        for labels, value in self._io_shown.items():
            yield CGROUP_IO_LIMIT.point(value, *labels)
