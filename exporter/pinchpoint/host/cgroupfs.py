"""Cgroups of both versions: where they are mounted, and pure parsers of their files.

Formats: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/blkio-controller.rst, cgroup-v1/memory.rst,
scheduler/sched-bwc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from pinchpoint.host.procfs import FormatError, Mount, decode, parse_mounts, read_bytes, read_mounts
from pinchpoint.host.sysfs import read_int
from pinchpoint.units import MICROSECONDS_PER_SECOND, NANOSECONDS_PER_SECOND

__all__ = [
    "LIMIT_NAMES",
    "Hierarchy",
    "IoLimit",
    "Throttling",
    "cpu_quota",
    "find_hierarchies",
    "io_limits",
    "io_used",
    "memory_hits",
    "memory_limit",
    "parse_cgroup",
    "parse_cpu_max",
    "parse_cpu_stat",
    "parse_hierarchies",
    "parse_io_max",
    "parse_io_stat",
    "parse_memory_events",
    "parse_memory_limit",
    "parse_service",
    "parse_throttle",
]

MAX_CGROUP_DEPTH = 64
"""Depth of a cgroup below the root from which on it has no limits that are looked at."""
LIMIT_NAMES = {
    "rbps": "read_bytes_per_second",
    "wbps": "write_bytes_per_second",
    "riops": "read_operations_per_second",
    "wiops": "write_operations_per_second",
}
"""Keys of io.max (tg_prfill_limit, block/blk-throttle.c) and the label of each."""
THROTTLE_FILES = {
    "blkio.throttle.read_bps_device": "rbps",
    "blkio.throttle.write_bps_device": "wbps",
    "blkio.throttle.read_iops_device": "riops",
    "blkio.throttle.write_iops_device": "wiops",
}
STAT_KEYS = {b"rbytes": "rbps", b"wbytes": "wbps", b"rios": "riops", b"wios": "wiops"}
"""Keys of io.stat (blkcg_print_one_stat, block/blk-cgroup.c) and the limit that applies to each.

An I/O is counted after the throttle: blk_throtl_bio comes before blk_cgroup_bio_start (submit_bio_noacct,
block/blk-core.c, Linux 5.10 to 6.18).
"""
SERVICE_FILES = {
    "blkio.throttle.io_service_bytes": {b"Read": "rbps", b"Write": "wbps"},
    "blkio.throttle.io_serviced": {b"Read": "riops", b"Write": "wiops"},
}
"""The same in version 1 (throtl_legacy_files, block/blk-throttle.c).

It counts an I/O on arrival (blk_throtl_bio): a burst at once, then as much as the throttle lets through.
"""

UNLIMITED_BYTES = 1 << 62
"""A memory limit of version 1 from which there is none: it shows 2^63 bytes less a page (PAGE_COUNTER_MAX)."""
MEMORY_EVENTS = (b"high", b"max")
"""Events of memory.events in which a charge met a limit (memory_events_show, mm/memcontrol.c)."""

IoUse = dict[tuple[str, str], int]
"""Bytes and operations since the cgroup was made, by MAJOR:MINOR and the key of their limit."""


class Throttling(NamedTuple):
    """What a CPU quota did since the cgroup was made."""

    periods: int
    throttled: int
    seconds: float


class IoLimit(NamedTuple):
    """One limit of block I/O."""

    device: str
    """MAJOR:MINOR."""
    key: str
    """A key of `LIMIT_NAMES`."""
    value: int
    """Bytes or operations per second."""


def parse_cgroup(raw: bytes) -> dict[str, str]:
    """Return a process' cgroup paths by controller, from ``/proc/PID/cgroup``; version 2 has the key "".

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
    if len(fields) == 2 and all(_is_number(field) for field in fields) and int(fields[1]):
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
        if _is_number(number):
            fields[name] = int(number)
    if b"nr_periods" not in fields or b"nr_throttled" not in fields:
        raise FormatError(f"no throttling in cpu.stat: {raw[:80]!r}")
    seconds = fields.get(b"throttled_usec", 0) / MICROSECONDS_PER_SECOND
    seconds += fields.get(b"throttled_time", 0) / NANOSECONDS_PER_SECOND
    return Throttling(fields[b"nr_periods"], fields[b"nr_throttled"], seconds)


def parse_io_max(raw: bytes) -> Iterator[IoLimit]:
    """Yield the limits of an ``io.max``; "max", damaged and unknown ones are left out."""
    for line in raw.splitlines():
        device, *words = line.split() or (b"",)
        for word in words:
            key, _, number = word.partition(b"=")
            if _is_device(device) and key.decode("ascii", "replace") in LIMIT_NAMES and _is_number(number):
                yield IoLimit(device.decode(), key.decode(), int(number))


def parse_throttle(raw: bytes, key: str) -> Iterator[IoLimit]:
    """Yield the limits of a ``blkio.throttle.*_device`` file, whose lines are MAJOR:MINOR VALUE."""
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) == 2 and _is_device(fields[0]) and _is_number(fields[1]):
            yield IoLimit(fields[0].decode(), key, int(fields[1]))


def parse_io_stat(raw: bytes) -> IoUse:
    """Return the counters of ``io.stat`` that can be limited; damaged and unknown ones are left out."""
    found: IoUse = {}
    for line in raw.splitlines():
        device, *words = line.split() or (b"",)
        for word in words if _is_device(device) else ():
            name, _, number = word.partition(b"=")
            if name in STAT_KEYS and _is_number(number):
                found[device.decode(), STAT_KEYS[name]] = int(number)
    return found


def parse_service(raw: bytes, keys: Mapping[bytes, str]) -> IoUse:
    """Return the counts of ``blkio.throttle.io_service_bytes`` or ``io_serviced`` whose words are in `keys`.

    Lines are MAJOR:MINOR WORD VALUE (blkg_rwstat prints them, block/blk-cgroup-rwstat.c); the last one is a total.
    """
    found: IoUse = {}
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) == 3 and _is_device(fields[0]) and fields[1] in keys and _is_number(fields[2]):
            found[fields[0].decode(), keys[fields[1]]] = int(fields[2])
    return found


def parse_memory_limit(raw: bytes) -> int | None:
    """Return the bytes that a ``memory.max``, ``memory.high`` or ``memory.limit_in_bytes`` allows, None where all.

    Raises FormatError.
    """
    word = raw.strip()
    if word == b"max":
        return None
    if not _is_number(word):
        raise FormatError(f"not a memory limit: {raw[:80]!r}")
    return found if (found := int(word)) < UNLIMITED_BYTES else None


def parse_memory_events(raw: bytes) -> int:
    """Return how often charges met a limit, from a ``memory.events`` of version 2. Raises FormatError."""
    fields = dict(line.split(b" ", 1) for line in raw.splitlines() if b" " in line)
    found = [fields[name] for name in MEMORY_EVENTS if name in fields]
    if not found or not all(map(_is_number, found)):
        raise FormatError(f"not a memory.events: {raw[:80]!r}")
    return sum(map(int, found))


def _is_device(raw: bytes) -> bool:
    major, _, minor = raw.partition(b":")
    return major.isdigit() and minor.isdigit() and len(raw) <= 16


def _is_number(raw: bytes) -> bool:
    return raw.isdigit() and len(raw) <= 20


class Hierarchy(msgspec.Struct, frozen=True):
    """One mounted tree of cgroups."""

    controllers: frozenset[str]
    """Its name in ``/proc/PID/cgroup``: the controllers in version 1, "" in version 2."""
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
            return []  # outside our cgroup namespace (cgroup_namespaces(7))
        if path.count("/") > MAX_CGROUP_DEPTH:
            return []  # a user may nest thousands
        try:
            inner = PurePosixPath(path).relative_to(self.root)
        except ValueError:
            return []
        return [self.directory / parent for parent in (inner, *inner.parents)]


def find_hierarchies(procfs: Path, sysfs: Path, rootfs: Path) -> tuple[Hierarchy, ...]:
    """Return the trees that limit CPU, memory or block I/O, each once."""
    return parse_hierarchies(read_mounts(procfs), sysfs, rootfs)


@lru_cache(1)
def parse_hierarchies(table: bytes, sysfs: Path, rootfs: Path) -> tuple[Hierarchy, ...]:
    """Return the trees in a mount table, which hardly ever changes."""
    found: dict[frozenset[str], Hierarchy] = {}
    for mount in parse_mounts(table):
        if mount.fstype == "cgroup2":
            controllers = frozenset({""})
        elif mount.fstype == "cgroup":
            controllers = frozenset({"cpu", "memory", "blkio"} & set(mount.options))
        else:
            continue
        if controllers and controllers not in found:
            directory = _visible(mount, sysfs, rootfs)
            found[controllers] = Hierarchy(controllers, directory, PurePosixPath(mount.root))
    return tuple(found.values())


def _visible(mount: Mount, sysfs: Path, rootfs: Path) -> Path:
    """Return our path to a mount of the host."""
    inner = mount.point.removeprefix("/sys/")
    return rootfs / mount.point.lstrip("/") if inner == mount.point else sysfs / inner


def cpu_quota(directory: Path, hierarchy: Hierarchy) -> float | None:
    """Return how many CPUs a cgroup may use, None where it has no quota."""
    if hierarchy.unified:
        try:
            return parse_cpu_max(read_bytes(directory / "cpu.max"))
        except (OSError, FormatError):
            return None
    quota, period = read_int(directory / "cpu.cfs_quota_us"), read_int(directory / "cpu.cfs_period_us")
    # Without a limit the quota is -1 (tg_get_cfs_quota, kernel/sched/core.c).
    return quota / period if quota is not None and period is not None and quota > 0 and period > 0 else None


def io_limits(directory: Path, hierarchy: Hierarchy) -> list[IoLimit]:
    """Return the limits of block I/O that a cgroup sets, in either version."""
    if hierarchy.unified:
        return list(parse_io_max(_read(directory / "io.max")))
    return [limit for name, key in THROTTLE_FILES.items() for limit in parse_throttle(_read(directory / name), key)]


def io_used(directory: Path) -> IoUse:
    """Return what the processes of a cgroup have read and written, in either version."""
    used = parse_io_stat(_read(directory / "io.stat"))
    for name, keys in SERVICE_FILES.items():
        used |= parse_service(_read(directory / name), keys)
    return used


def memory_limit(directory: Path, hierarchy: Hierarchy) -> int | None:
    """Return the bytes of memory that a cgroup may use, in either version; None where it sets no limit."""
    found = []
    for name in ("memory.max", "memory.high") if hierarchy.unified else ("memory.limit_in_bytes",):
        with suppress(OSError, FormatError):
            found.append(parse_memory_limit(read_bytes(directory / name)))
    return min((limit for limit in found if limit is not None), default=None)


def memory_hits(directory: Path) -> int:
    """Return how often a cgroup's memory met its limits, in either version. Raises OSError, FormatError."""
    try:
        return parse_memory_events(read_bytes(directory / "memory.events"))
    except FileNotFoundError:
        raw = read_bytes(directory / "memory.failcnt").strip()
    if not _is_number(raw):
        raise FormatError(f"not a memory.failcnt: {raw[:80]!r}")
    return int(raw)


def _read(path: Path) -> bytes:
    """Return a cgroup file's content, empty if missing: a controller may be off in any group."""
    try:
        return read_bytes(path)
    except OSError:
        return b""
