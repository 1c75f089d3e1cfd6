"""Limits that cgroups put on processes of interest: CPU quotas and how often they bite, limits of block I/O.

The time that a quota takes from a thread is part of its run-queue wait, which blames the host's CPUs. Only the count of
throttled periods tells the two apart. A limit binds everything below it, so every ancestor of a process' cgroup counts.
Formats: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/blkio-controller.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pinchpoint import resources
from pinchpoint.model import Kind, Metric, Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.procfs import FormatError, Mount, decode, read_bytes, read_mounts
from pinchpoint.resources import Resource
from pinchpoint.sysfs import block_device_name, read_int

__all__ = [
    "Cgroups",
    "IoLimit",
    "Throttling",
    "parse_cgroup",
    "parse_cpu_max",
    "parse_cpu_stat",
    "parse_io_max",
    "parse_throttle",
]

PERIODS = Metric(
    "pinchpoint_cgroup_cpu_periods_total",
    "Periods of the CPU quota in which there was work, of the owner's most throttled cgroup.",
    Kind.COUNTER,
    ("owner",),
)
THROTTLED_PERIODS = Metric(
    "pinchpoint_cgroup_cpu_throttled_periods_total",
    "Periods in which the CPU quota was used up, of the owner's most throttled cgroup.",
    Kind.COUNTER,
    ("owner",),
)
THROTTLED_SECONDS = Metric(
    "pinchpoint_cgroup_cpu_throttled_seconds_total",
    "Time for which the CPU quota held CPUs back, summed over CPUs, of the owner's most throttled cgroup.",
    Kind.COUNTER,
    ("owner",),
)
QUOTA = Metric(
    "pinchpoint_cgroup_cpu_quota_cpus", "CPUs that the owner's tightest CPU quota allows.", labels=("owner",)
)
IO_LIMIT = Metric(
    "pinchpoint_cgroup_io_limit",
    "Tightest limit of block I/O on the owner's cgroups, in the unit that the limit label names.",
    labels=("owner", "device", "limit"),
)

LOOK_INTERVAL = 5.0
"""Seconds between two looks at where processes are and at what is limited; a new process is looked at at once."""
KEEP = 900.0
"""Seconds for which an owner is shown after its last process with a quota has gone, so that a scrape still sees it."""
IO_LIMITS = 256
"""Limits of block I/O that are shown at most."""
MICROSECONDS_PER_SECOND = 1_000_000
NANOSECONDS_PER_SECOND = 1_000_000_000

LIMIT_NAMES = {
    "rbps": "read_bytes_per_second",
    "wbps": "write_bytes_per_second",
    "riops": "read_operations_per_second",
    "wiops": "write_operations_per_second",
}
"""Keys of io.max (tg_prfill_limit, block/blk-throttle.c) and the label that stands for each."""
THROTTLE_FILES = {
    "blkio.throttle.read_bps_device": "rbps",
    "blkio.throttle.write_bps_device": "wbps",
    "blkio.throttle.read_iops_device": "riops",
    "blkio.throttle.write_iops_device": "wiops",
}


class Throttling(NamedTuple):
    """What a CPU quota did since the cgroup was made."""

    periods: int
    throttled: int
    seconds: float


NOTHING = Throttling(0, 0, 0.0)


class IoLimit(NamedTuple):
    """One limit of block I/O."""

    device: str
    """MAJOR:MINOR."""
    key: str
    """A key of `LIMIT_NAMES`."""
    value: int


def parse_cgroup(raw: bytes) -> dict[str, str]:
    """Return the path of a process' cgroup by controller, from ``/proc/PID/cgroup``; that of version 2 is under "".

    Lines are ID:CONTROLLERS:PATH (proc_cgroup_show, kernel/cgroup/cgroup.c); a path may hold colons.
    """
    found: dict[str, str] = {}
    for line in raw.splitlines():
        fields = line.split(b":", 2)
        if len(fields) == 3 and fields[2].startswith(b"/"):
            for controller in fields[1].split(b","):
                found[decode(controller)] = decode(fields[2])
    return found


def parse_cpu_max(raw: bytes) -> float | None:
    """Return how many CPUs a ``cpu.max`` allows, None where it sets no limit. Raises FormatError."""
    fields = raw.split()
    if len(fields) == 2 and fields[0] == b"max":
        return None
    if len(fields) == 2 and all(field.isdigit() and len(field) <= 20 for field in fields) and int(fields[1]):
        return int(fields[0]) / int(fields[1])
    raise FormatError(f"not a cpu.max: {raw[:80]!r}")


def parse_cpu_stat(raw: bytes) -> Throttling:
    """Return the throttling of a ``cpu.stat`` of either version. Raises FormatError.

    Version 1 counts throttled_time in nanoseconds, version 2 throttled_usec (cpu_cfs_stat_show and
    cpu_extra_stat_show, kernel/sched/core.c).
    """
    fields: dict[bytes, int] = {}
    for line in raw.splitlines():
        name, _, number = line.partition(b" ")
        if number.isdigit() and len(number) <= 20:
            fields[name] = int(number)
    if b"nr_periods" not in fields or b"nr_throttled" not in fields:
        raise FormatError(f"no throttling in cpu.stat: {raw[:80]!r}")
    seconds = fields.get(b"throttled_usec", 0) / MICROSECONDS_PER_SECOND
    seconds += fields.get(b"throttled_time", 0) / NANOSECONDS_PER_SECOND
    return Throttling(fields[b"nr_periods"], fields[b"nr_throttled"], seconds)


def parse_io_max(raw: bytes) -> Iterator[IoLimit]:
    """Yield the limits of an ``io.max``; what is "max", damaged or unknown is left out."""
    for line in raw.splitlines():
        device, *words = line.split() or (b"",)
        for word in words:
            key, _, number = word.partition(b"=")
            if _is_device(device) and key.decode("ascii", "replace") in LIMIT_NAMES and _is_limit(number):
                yield IoLimit(device.decode(), key.decode(), int(number))


def parse_throttle(raw: bytes, key: str) -> Iterator[IoLimit]:
    """Yield the limits of a ``blkio.throttle.*_device`` file, whose lines are MAJOR:MINOR VALUE."""
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) == 2 and _is_device(fields[0]) and _is_limit(fields[1]):
            yield IoLimit(fields[0].decode(), key, int(fields[1]))


def _is_device(raw: bytes) -> bool:
    major, _, minor = raw.partition(b":")
    return major.isdigit() and minor.isdigit() and len(raw) <= 16


def _is_limit(raw: bytes) -> bool:
    return raw.isdigit() and len(raw) <= 20


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One mounted tree of cgroups."""

    controllers: frozenset[str]
    """What a line of ``/proc/PID/cgroup`` calls it: controllers of version 1, "" for version 2."""
    directory: Path
    root: PurePosixPath
    """The cgroup that is mounted there; inside a container it is the container's."""

    @property
    def unified(self) -> bool:
        """Whether it is of version 2."""
        return "" in self.controllers

    def chain(self, paths: Mapping[str, str]) -> list[Path]:
        """Return the directories of a process' cgroup and of all above it, the nearest first."""
        path = next((paths[name] for name in self.controllers if name in paths), None)
        if path is None or ".." in PurePosixPath(path).parts:
            return []  # outside of what our cgroup namespace shows (cgroup_namespaces(7))
        try:
            inner = PurePosixPath(path).relative_to(self.root)
        except ValueError:
            return []
        return [self.directory / parent for parent in (inner, *inner.parents)]


class _Group:
    """A cgroup with a CPU quota."""

    __slots__ = ("_last", "cpus", "new")

    def __init__(self) -> None:
        self.cpus = 0.0
        self.new = NOTHING
        """The throttling since the sample before."""
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


class _Place(NamedTuple):
    """The limits on every process with the same ``/proc/PID/cgroup``."""

    quotas: tuple[Path, ...]
    io: tuple[IoLimit, ...]


class _Owner:
    """The totals of one owner."""

    __slots__ = ("periods", "resource", "seconds", "seen", "throttled")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.periods = self.throttled = 0
        self.seconds = 0.0
        self.seen = 0.0
        """Monotonic time at which it last had a quota."""


class Cgroups(Probe):
    """CPU quotas of processes of interest and their throttling, and the limits of block I/O in force."""

    name = "cgroups"
    help = "CPU quotas, throttled periods, I/O limits of processes of interest (cgroup v1 and v2)"
    metrics = (
        PERIODS,
        THROTTLED_PERIODS,
        THROTTLED_SECONDS,
        QUOTA,
        IO_LIMIT,
        resources.BUSY,
        resources.SATURATED,
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hierarchies: list[_Hierarchy] = []
        self._looked = self._last = float("-inf")
        self._placed: dict[tuple[int, int], tuple[str, _Place]] = {}
        self._places: dict[bytes, _Place] = {}
        self._groups: dict[Path, _Group] = {}
        self._limited: dict[Path, bool] = {}
        self._quotas: dict[str, set[Path]] = {}
        self._io: dict[tuple[str, str, str], int] = {}
        self._owners: dict[str, _Owner] = {}

    def sample(self, now: float) -> None:
        """Read the throttling of every quota above a process of interest. Raises NotPresent without cgroups."""
        look = now - self._looked >= LOOK_INTERVAL
        if look:
            self._looked = now
            self._hierarchies = _hierarchies(self.host)
            for forgotten in (self._placed, self._places, self._limited):
                forgotten.clear()
        if not self._hierarchies:
            raise NotPresent("no cgroup file system with the cpu, blkio or unified hierarchy is mounted")
        if self._place(now) or look:
            self._gather()
        for directory, group in self._groups.items():
            group.read(directory)
        self._charge(now)
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
        io: list[IoLimit] = []
        for hierarchy in self._hierarchies:
            chain = hierarchy.chain(paths)
            if hierarchy.unified or "cpu" in hierarchy.controllers:
                quotas += [directory for directory in chain if self._has_quota(directory, hierarchy)]
            if hierarchy.unified:
                for directory in chain:
                    io += parse_io_max(_read(directory / "io.max"))
            elif "blkio" in hierarchy.controllers:
                # Version 1 has no tree of limits: only the group itself counts (throtl_pd_init, block/blk-throttle.c).
                for directory in chain[:1]:
                    for name, key in THROTTLE_FILES.items():
                        io += parse_throttle(_read(directory / name), key)
        return _Place(tuple(quotas), tuple(io))

    def _has_quota(self, directory: Path, hierarchy: _Hierarchy) -> bool:
        known = self._limited.get(directory)
        if known is None:
            cpus = _quota(directory, hierarchy)
            known = self._limited[directory] = cpus is not None
            if cpus is not None:
                self._groups.setdefault(directory, _Group()).cpus = cpus
        return known

    def _gather(self) -> None:
        """Join the limits of each owner's processes, and forget what limits nobody any more."""
        self._quotas = {}
        limits: dict[tuple[str, str, str], int] = {}
        for owner, place in set(self._placed.values()):
            self._quotas.setdefault(owner, set()).update(place.quotas)
            for device, key, value in place.io:
                label = owner, device, key
                limits[label] = min(value, limits.get(label, value))
        self._io = {
            (owner, block_device_name(self.host.sysfs, device), LIMIT_NAMES[key]): value
            for (owner, device, key), value in sorted(limits.items())[:IO_LIMITS]
        }
        used = set().union(*self._quotas.values())
        self._groups = {directory: group for directory, group in self._groups.items() if directory in used}

    def _charge(self, now: float) -> None:
        elapsed = now - self._last
        for name, directories in self._quotas.items():
            groups = [self._groups[directory] for directory in directories]
            if not groups:
                continue
            owner = self._owners.get(name)
            if owner is None:
                roles = self.host.roles
                resource = Resource("cpu_quota", name, roles.serves["cpu_quota"], roles.thresholds["cpu_quota"])
                owner = self._owners[name] = _Owner(resource)
            owner.seen = now
            worst = max(groups, key=lambda group: (group.share, group.new.periods))
            owner.periods += worst.new.periods
            owner.throttled += worst.new.throttled
            owner.seconds += worst.new.seconds
            if worst.new.periods:
                owner.resource.add(elapsed, elapsed * worst.share)
        for name in [name for name, owner in self._owners.items() if now - owner.seen > KEEP]:
            del self._owners[name]

    def points(self) -> Iterator[Point]:
        """Yield the throttling of each owner that has or lately had a quota, and the limits in force."""
        for name, owner in self._owners.items():
            yield PERIODS.point(owner.periods, name)
            yield THROTTLED_PERIODS.point(owner.throttled, name)
            yield THROTTLED_SECONDS.point(owner.seconds, name)
            if directories := self._quotas.get(name):
                yield QUOTA.point(min(self._groups[directory].cpus for directory in directories), name)
        yield from resources.points(owner.resource for owner in self._owners.values())
        for labels, value in self._io.items():
            yield IO_LIMIT.point(value, *labels)


def _hierarchies(host: Host) -> list[_Hierarchy]:
    """Return the trees that limit CPU or block I/O, each once."""
    found: dict[frozenset[str], _Hierarchy] = {}
    for mount in read_mounts(host.procfs):
        if mount.fstype == "cgroup2":
            controllers = frozenset({""})
        elif mount.fstype == "cgroup":
            controllers = frozenset({"cpu", "blkio"} & set(mount.options))
        else:
            continue
        if controllers and controllers not in found:
            found[controllers] = _Hierarchy(controllers, _visible(host, mount), PurePosixPath(mount.root))
    return list(found.values())


def _visible(host: Host, mount: Mount) -> Path:
    """Return where we see what the host has mounted."""
    inner = mount.point.removeprefix("/sys/")
    return host.rootfs / mount.point.lstrip("/") if inner == mount.point else host.sysfs / inner


def _quota(directory: Path, hierarchy: _Hierarchy) -> float | None:
    """Return how many CPUs a cgroup may use, None where it has no quota."""
    if hierarchy.unified:
        try:
            return parse_cpu_max(read_bytes(directory / "cpu.max"))
        except (OSError, FormatError):
            return None
    quota, period = read_int(directory / "cpu.cfs_quota_us"), read_int(directory / "cpu.cfs_period_us")
    # Without a limit the quota is -1 (tg_get_cfs_quota, kernel/sched/core.c).
    return quota / period if quota is not None and period is not None and quota > 0 and period > 0 else None


def _read(path: Path) -> bytes:
    """Return a file of a cgroup, empty where there is none: a controller may be off in any group."""
    try:
        return read_bytes(path)
    except OSError:
        return b""
