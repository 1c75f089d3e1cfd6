"""Disks and network links: how busy, and whether work waits in front of them.

Their counters do not rise smoothly, so busy time is added at each sample but fullness is judged over a window.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinchpoint import resources
from pinchpoint.activity import Load
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import FormatError, decode
from pinchpoint.host.qdisc import QdiscReader
from pinchpoint.host.sysfs import read_int, read_text
from pinchpoint.host.threads import NamedThread
from pinchpoint.metrics import RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.resources import Resource
from pinchpoint.threads.roles import Roles
from pinchpoint.units import MILLISECONDS_PER_SECOND

__all__ = [
    "Devices",
    "Disk",
    "Link",
    "LinkCounts",
    "Lookout",
    "Queues",
    "Seen",
    "ThreadedLookout",
    "find_links",
    "parse_disk",
    "parse_link",
]

DISK_WINDOW_SECONDS = 0.5
"""Seconds over which a disk is judged: io_ticks moves in jiffies, and on some kernels only when an I/O ends."""
FULL_QUEUE = 1.5
"""Mean I/Os in a disk from which a busy one counts as full: a busy disk without a queue limits nothing."""
LINK_WINDOW_SECONDS = 1.0
"""Seconds over which a link is judged: some cards update their counters once a second (BNXT_DEF_STATS_COAL_TICKS,
drivers/net/ethernet/broadcom/bnxt/bnxt.h)."""
MAX_CARRY_SECONDS = 1.0
"""Seconds of busy time that a counter may show late, all at once; more is ignored."""
LINK_LOOK_INTERVAL_SECONDS = 10.0
"""Seconds between two looks at which links there are, and how fast."""
QUEUE_INTERVAL_SECONDS = 0.2
"""Seconds between two looks at queues: each wakes a thread, which costs as much as a sample of all disks."""
IDLE_QUEUE_INTERVAL_SECONDS = 0.8
"""... while nothing waited there and nothing has moved since: the first packets end that."""
FRESH_QUEUE_SECONDS = 1.0
"""Seconds for which a look at queues counts."""
MAX_DEVICE_OWNERS = 64
"""Disks, and links, with an owner each; the rest have one, "more", as busy as the busiest of them."""
MORE = "more"
COUNTER_WRAP = 1 << 32
"""The millisecond counters of diskstats are 32 bits wide: a queue of 100 wraps the weighted time in 12 hours."""
BITS_PER_MEGABIT = 1_000_000

log = logging.getLogger(__name__)
CHUNK_BYTES = 1 << 16
IFF_UP = 0x1  # linux/if.h

T = TypeVar("T")


class Disk(NamedTuple):
    """Counters of one block device (``diskstats_show``, block/genhd.c; Documentation/admin-guide/iostats.rst)."""

    name: str
    ios: int
    """I/Os that have ended."""
    in_flight: int
    io_ticks: int
    """Milliseconds with I/Os in flight."""
    weighted: int
    """Milliseconds in flight, summed over I/Os; since Linux 5.0 an I/O is added when it ends (blk_account_io_done)."""


class LinkCounts(NamedTuple):
    """Bytes that an interface has received and sent."""

    name: str
    received: int
    sent: int


def parse_disk(line: bytes) -> Disk:
    """Return the counters of one line of ``/proc/diskstats``. Raises FormatError."""
    fields = line.split()
    # 14 fields at least; Linux 4.18 added four for discards and 5.5 two for flushes.
    if len(fields) < 14 or not all(field.isdigit() and len(field) <= 20 for field in fields[3:]):
        raise FormatError(f"not a line of diskstats: {line[:80]!r}")
    ended = int(fields[3]) + int(fields[7])
    if len(fields) >= 18:
        ended += int(fields[14])
    if len(fields) >= 20:
        ended += int(fields[18])
    return Disk(decode(fields[2]), ended, int(fields[11]), int(fields[12]), int(fields[13]))


def parse_link(line: bytes) -> LinkCounts:
    """Return the counters of one line of ``/proc/net/dev`` (``dev_seq_printf_stats``, net/core/net-procfs.c).

    Raises FormatError.
    """
    name, _, rest = line.rpartition(b":")
    fields = rest.split()
    if not name or len(fields) != 16 or not all(field.isdigit() and len(field) <= 20 for field in fields):
        raise FormatError(f"not a line of net/dev: {line[:80]!r}")
    return LinkCounts(decode(name.strip()), int(fields[0]), int(fields[8]))


class _DeviceFile(Generic[T]):
    """A procfs file with one line per device, read through a kept descriptor; an unchanged line is parsed once.

    One read gives a page of it (seq_read_iter, fs/seq_file.c). Lines without a device are left out.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._fd = -1
        self._parsed: dict[bytes, T] = {}

    def read(self) -> list[T]:
        """Return what the file says of each device now. Raises OSError."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        raw = b""
        while chunk := os.pread(self._fd, CHUNK_BYTES, len(raw)):
            raw += chunk
        parsed: dict[bytes, T] = {}
        for line in raw.splitlines():
            known = self._parsed.get(line)
            if known is None:
                try:
                    known = self._parse(line)
                except FormatError:
                    continue
            parsed[line] = known
        self._parsed = parsed
        return list(parsed.values())

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Link(NamedTuple):
    """What seldom changes in an interface that is up."""

    ifindex: int
    speed: float | None
    """Bytes per second in each direction; None if unknown."""


def find_links(sysfs: Path) -> dict[str, Link]:
    """Return the interfaces that are up, by name. Reading a speed may wait for the rtnl mutex (speed_show).

    Only hardware and bonds have a speed: veth, tun and bridges show a constant that limits nothing.
    """
    found: dict[str, Link] = {}
    for path in (sysfs / "class" / "net").glob("*"):
        ifindex, flags = read_int(path / "ifindex"), read_text(path / "flags")
        try:
            up = int(flags or "0", 16) & IFF_UP
        except ValueError:
            continue
        # Loopback and other virtual interfaces do not know their state.
        if ifindex is None or not up or read_text(path / "operstate") not in ("up", "unknown"):
            continue
        real = (path / "device").exists() or (path / "bonding").exists()
        megabits = read_int(path / "speed") if real else None
        speed = megabits * BITS_PER_MEGABIT / 8 if megabits is not None and megabits > 0 else None
        found[path.name] = Link(ifindex, speed)
    return found


class Seen(NamedTuple):
    """What a lookout saw."""

    time: float
    links: Mapping[str, Link]
    waiting: Mapping[int, int] | None
    """Bytes that wait in front of a link, by interface index; None if the kernel does not say."""


class Queues(Protocol):
    """A source of what waits in front of links."""

    def read(self) -> Mapping[int, int] | None:
        """Return the bytes that wait, by interface index; None if unknown."""

    def close(self) -> None:
        """Release what is kept open."""


class Lookout:
    """Looks at what may block while an interface is reconfigured: speeds and queues."""

    def __init__(self, sysfs: Path, queues: Queues | None = None) -> None:
        self.seen = Seen(float("-inf"), {}, None)
        self._sysfs = sysfs
        self._queues = queues
        self._next_links = float("-inf")

    def ask(self, now: float, *, idle: bool = False) -> None:
        """Request an update of `seen`; with `idle`, nothing has moved through the links since the last sample."""
        if self.due(now, idle=idle):
            self.look(now)

    def due(self, now: float, *, idle: bool = False) -> bool:
        """Return whether there is anything to look at."""
        # Samples are as far apart, but for some milliseconds.
        idle = idle and not any((self.seen.waiting or {}).values())
        pause = IDLE_QUEUE_INTERVAL_SECONDS if idle else QUEUE_INTERVAL_SECONDS
        queues = self._queues is not None and now - self.seen.time >= pause - 0.25 * QUEUE_INTERVAL_SECONDS
        return queues or now >= self._next_links

    def look(self, now: float) -> None:
        """Look, and wait for it."""
        links = self.seen.links
        if now >= self._next_links:
            links = find_links(self._sysfs)
            self._next_links = now + LINK_LOOK_INTERVAL_SECONDS
        self.seen = Seen(now, links, None if self._queues is None else self._queues.read())

    def close(self) -> None:
        """Stop looking."""
        if self._queues is not None:
            self._queues.close()


class ThreadedLookout(Lookout):
    """A lookout that does not block: it looks on a thread of its own, so its answer is a sample old.

    Only the first look is waited for, when nothing is late yet.
    """

    def __init__(self, sysfs: Path, queues: Queues | None = None) -> None:
        super().__init__(sysfs, queues)
        self._asked: SimpleQueue[float | None] = SimpleQueue()
        self._thread: NamedThread | None = None

    def ask(self, now: float, *, idle: bool = False) -> None:
        """Ask the thread to look, unless it still waits for the kernel."""
        if self._thread is None:
            self.look(now)
            thread = NamedThread(target=self._run, name="probe-links", daemon=True)
            thread.start()
            self._thread = thread  # only now: starting it may fail, and is tried again
        elif self.due(now, idle=idle) and self._asked.empty():
            self._asked.put(now)

    def _run(self) -> None:
        reported = ""
        while (now := self._asked.get()) is not None:
            try:
                self.look(now)
            except OSError as error:  # no descriptor is left, for example: the next look may find one
                if str(error) != reported:
                    log.warning("links and their queues cannot be looked at: %s", error)
                reported = str(error)
            else:
                reported = ""
        super().close()

    def close(self) -> None:
        """Let the thread end, and release what it uses."""
        if self._thread is None:
            super().close()
        else:
            self._asked.put(None)


class _SlidingSums:
    """Sums over the last seconds: at least `length` of them once it is filled."""

    __slots__ = ("_entries", "_length", "sums")

    def __init__(self, length: float) -> None:
        self._length = length
        self._entries: deque[tuple[float, float, float, float]] = deque()
        self.sums = (0.0, 0.0, 0.0, 0.0)

    def add(self, elapsed: float, busy: float, weighted: float = 0.0, ended: float = 0.0) -> bool:
        """Add a sample: its length, its busy seconds, and what I/Os did; return whether the window is filled."""
        a, b, c, d = self.sums
        self._entries.append((elapsed, busy, weighted, ended))
        a, b, c, d = a + elapsed, b + busy, c + weighted, d + ended
        while a - self._entries[0][0] >= self._length:
            old = self._entries.popleft()
            a, b, c, d = a - old[0], b - old[1], c - old[2], d - old[3]
        self.sums = a, b, c, d
        return a >= self._length * (1 - 1e-9)


class _Device:
    """A disk or a link that is followed."""

    __slots__ = ("_owed", "window")

    def __init__(self, window: float) -> None:
        self.window = _SlidingSums(window)
        self._owed = 0.0

    def spread(self, elapsed: float, shown: float) -> float:
        """Return the busy seconds of the last `elapsed`, given the `shown` ones of the counter.

        What exceeds the elapsed time belongs to earlier time, and is added to the samples that follow: so no interval
        is busier than it is long, and nothing is lost.
        """
        self._owed = min(self._owed + shown, elapsed + MAX_CARRY_SECONDS)
        busy = min(self._owed, elapsed)
        self._owed -= busy
        return busy


class _Kind:
    """All disks, or all links: their integrals by owner."""

    def __init__(self, name: str, roles: Roles) -> None:
        self.name = name
        self.threshold = roles.thresholds[name]
        self._serves = roles.serves[name]
        self.devices: dict[str, _Device] = {}
        self.resources: dict[str, Resource] = {}
        self._rest: tuple[float, bool] | None = None

    def forget(self, present: Iterable[str]) -> None:
        """Follow only the devices that are still `present`; the sums of the others stay."""
        for name in self.devices.keys() - present:
            del self.devices[name]

    def follow(self, name: str, device: _Device) -> None:
        """Follow a device, under its own name while there is room."""
        self.devices[name] = device
        if name in self.resources:
            return
        owners = self.resources.keys() - {MORE}
        if len(owners) >= MAX_DEVICE_OWNERS:
            gone = next(iter(owners - self.devices.keys()), None)
            if gone is None:
                return
            del self.resources[gone]
        self.resources[name] = Resource(self.name, name, self._serves, self.threshold)

    def add(self, name: str, elapsed: float, busy: float, full: bool) -> None:
        """Add a sample of one device."""
        resource = self.resources.get(name)
        if resource is not None:
            _add(resource, elapsed, busy, full)
        else:
            most, any_full = self._rest or (0.0, False)
            self._rest = max(most, busy), any_full or full

    def settle(self, elapsed: float) -> None:
        """End a sample."""
        if self._rest is not None:
            more = self.resources.get(MORE)
            if more is None:
                more = self.resources[MORE] = Resource(self.name, MORE, self._serves, self.threshold)
            _add(more, elapsed, *self._rest)
            self._rest = None


def _add(resource: Resource, elapsed: float, busy: float, full: bool) -> None:
    """Add a sample whose fullness was judged over a window, not by its own busy share."""
    resource.busy += busy
    if full:
        resource.saturated += elapsed


class Devices(Probe):
    """Busy and saturated time of whole disks, and of links that have a speed or a queue."""

    name = "devices"
    metrics = (RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS)
    capabilities = (Capability.SYS_NICE,)
    interval = None
    min_interval = 0.2  # busy times are sums, and are judged over half a second or more
    rest_interval = 1.0
    fast = True

    def __init__(self, host: Host, lookout: Lookout | None = None) -> None:
        super().__init__(host)
        self._disk_table = _DeviceFile(host.procfs / "diskstats", parse_disk)
        self._link_table = _DeviceFile(host.procfs / "net" / "dev", parse_link)
        self._disks = _Kind("disk", host.roles)
        self._links = _Kind("link", host.roles)
        self._last_disks: dict[str, Disk] = {}
        self._last_links: dict[str, LinkCounts] = {}
        self._whole: dict[str, bool] = {}
        self._whole_until = float("-inf")
        self._last: float | None = None
        self._load = Load(host.activity)
        queues = QdiscReader() if QdiscReader.sees(host.procfs) else None
        self._lookout = lookout or ThreadedLookout(host.sysfs, queues)

    def sample(self, now: float) -> None:
        """Read both tables. Raises NotPresent where neither is there, OSError where one is there and can't be read."""
        elapsed = 0.0 if self._last is None else now - self._last
        if self._last is None:
            self._lookout.ask(now)
        errors: list[OSError] = []
        try:
            self._sample_disks(now, elapsed, self._disk_table.read())
        except OSError as error:
            self._disk_table.close()
            errors.append(error)
        idle = False
        try:
            idle = self._sample_links(now, elapsed, self._link_table.read())
        except OSError as error:
            self._link_table.close()
            errors.append(error)
        if self._last is not None:
            self._lookout.ask(now, idle=idle)  # last, since the lookout needs the interpreter too
        unread = [error for error in errors if not isinstance(error, FileNotFoundError)]
        if len(errors) == 2 and not unread:
            raise NotPresent(f"neither diskstats nor net/dev in {self.host.procfs}")
        self._last = now
        self._load.look(now, (*self._disks.resources.values(), *self._links.resources.values()))
        if unread:
            raise unread[0]

    def _sample_disks(self, now: float, elapsed: float, found: list[Disk]) -> None:
        if now >= self._whole_until:
            self._whole.clear()
            self._whole_until = now + LINK_LOOK_INTERVAL_SECONDS
        disks = {disk.name: disk for disk in found if self._is_whole(disk.name)}
        active = [disk for disk in disks.values() if disk.ios or disk.io_ticks or disk.in_flight]
        kind = self._disks
        kind.forget(disks)
        new = [disk for disk in active if disk.name not in kind.devices]
        for disk in sorted(new, key=lambda disk: -disk.ios):
            kind.follow(disk.name, _Device(DISK_WINDOW_SECONDS))
        for disk in active if elapsed > 0 else ():
            device, before = kind.devices[disk.name], self._last_disks.get(disk.name)
            if before is None or disk.ios < before.ios:
                before = disk  # it is new, or another one under the same name
            ticks, weighted = ((new - old) % COUNTER_WRAP for new, old in zip(disk[3:], before[3:], strict=True))
            busy = device.spread(elapsed, ticks / MILLISECONDS_PER_SECOND)
            filled = device.window.add(elapsed, busy, weighted / MILLISECONDS_PER_SECOND, disk.ios - before.ios)
            full = filled and _disk_is_full(*device.window.sums, disk.in_flight, kind.threshold)
            kind.add(disk.name, elapsed, busy, full)
        kind.settle(elapsed)
        self._last_disks = disks

    def _is_whole(self, name: str) -> bool:
        """Return whether it is a whole device, not a partition and not a RAM disk."""
        known = self._whole.get(name)
        if known is None:
            # A slash in a device's name is an exclamation mark in sysfs (kobject_set_name_vargs, lib/kobject.c).
            path = self.host.sysfs / "block" / name.replace("/", "!")
            known = self._whole[name] = not name.startswith("ram") and path.exists()
        return known

    def _sample_links(self, now: float, elapsed: float, found: list[LinkCounts]) -> bool:
        """Add a sample of each link; return whether nothing has moved through those that have a queue."""
        seen = self._lookout.seen
        waiting = (seen.waiting if now - seen.time <= FRESH_QUEUE_SECONDS else None) or {}
        links = {counts.name: counts for counts in found if counts.name in seen.links}
        kind = self._links
        kind.forget(links)
        new = [counts for counts in links.values() if counts.name not in kind.devices]
        for counts in sorted(new, key=lambda counts: -max(counts.received, counts.sent)):
            link = seen.links[counts.name]
            # Without a speed and a queue nothing is known, and a constant 0 would say "never busy".
            if link.speed is not None or link.ifindex in waiting:
                kind.follow(counts.name, _Device(LINK_WINDOW_SECONDS))
        for counts in links.values() if elapsed > 0 else ():
            device, before = kind.devices.get(counts.name), self._last_links.get(counts.name)
            if device is None:
                continue
            link, shown = seen.links[counts.name], 0.0
            if link.speed is not None and before is not None:
                shown = max(0, counts.received - before.received, counts.sent - before.sent) / link.speed
            busy = device.spread(elapsed, shown)
            if waiting.get(link.ifindex):
                busy = elapsed
            filled = device.window.add(elapsed, busy)
            span, total, _, _ = device.window.sums
            kind.add(counts.name, elapsed, busy, filled and total >= kind.threshold * span)
        kind.settle(elapsed)
        earlier, self._last_links = self._last_links, links
        return all(earlier.get(name) == counts for name, counts in links.items() if seen.links[name].ifindex in waiting)

    def points(self) -> Iterator[Point]:
        """Yield the integrals of every disk and link."""
        yield from resources.points(self._disks.resources.values())
        yield from resources.points(self._links.resources.values())

    def close(self) -> None:
        """Close the kept descriptors."""
        self._disk_table.close()
        self._link_table.close()
        self._lookout.close()


def _disk_is_full(span: float, busy: float, weighted: float, ended: float, in_flight: int, threshold: float) -> bool:
    """Return whether a disk that was busy for `busy` of `span` seconds had a queue too.

    An I/O that ended counts at most for the time that it spent in the window. While none ends, only the number in
    flight is known.
    """
    queue = min(weighted, round(ended) * span) / span if round(ended) else in_flight
    return busy >= threshold * span and queue >= FULL_QUEUE
