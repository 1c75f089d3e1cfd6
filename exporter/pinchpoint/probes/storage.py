"""The disks under the files that benchmarks and OSDs have open: which of a host's disks a benchmark waits for.

No file system is asked, since one that hangs would block us: the kernel itself knows the path of an open file, its
mount and the mount's device (``/proc/PID/fd``, ``fdinfo``, ``mountinfo``). Only device nodes are looked at, on file
systems in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pinchpoint.host.capabilities import Capability, without_rights
from pinchpoint.host.mount_tables import MountTable, MountTables
from pinchpoint.host.procfs import FormatError, Mount, first_names, parse_file_info, read_bytes
from pinchpoint.host.sysfs import block_device_name, read_int
from pinchpoint.metrics import STORAGE_DEVICE_INFO, STORAGE_ROTATIONAL
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.processes import Process
from pinchpoint.threads.roles import BENCHMARK
from pinchpoint.user_labels import user_of

__all__ = ["Backing", "Storage", "whole_disk"]

OSD = "ceph-osd"
LONGEST_FILES_INTERVAL_SECONDS = 10.0
"""Seconds between two looks at an OSD's files: it keeps its devices, and may have thousands of sockets."""
LOOKS_PER_SECOND = 4.0
"""Looks at the processes of a user's benchmarks: with more than so many each is looked at more rarely, down to an OSD's
interval. They work on the same file systems, and one that is new is looked at at once."""
MAX_FILES_PER_SAMPLE = 2048
"""Open files that are looked at in one sample, 1 to 5 us each, of trusted users' processes, and of others; the rest
follows in the next ones."""
KEEP_DISK_SECONDS = 20.0
"""Seconds for which a disk counts after the last look that saw it: a process may open files only briefly."""
MAX_DEVICES = 256
"""Disks by owner that are shown, apart from those of daemons: of trusted users ..."""
MAX_USER_DEVICES = 32
"""... and of each other user."""
IN_MEMORY = frozenset({"devtmpfs", "tmpfs", "ramfs"})
"""File systems on which device nodes are looked for: these answer from memory."""
MAX_OVERLAYS = 3
"""Nested overlays that are followed."""
ANONYMOUS = "0:"
"""How the device number of a file system without a block device begins (``get_anon_bdev``, fs/super.c)."""


class Backing(NamedTuple):
    """What is under a file."""

    device: str
    """Name of a whole disk, as in ``/proc/diskstats``; empty where there is none."""
    bdi: str
    """The backing device as `writeback_worker` names it; empty if that is not known."""


def whole_disk(sysfs: Path, number: str) -> str:
    """Return the name of the disk that the block device MAJOR:MINOR is or is a partition of, or the number."""
    link = sysfs / "dev" / "block" / number
    try:
        # A partition is a directory in that of its disk (add_partition, block/partitions/core.c).
        if (link / "partition").exists():
            # A slash in a device's name is an exclamation mark in sysfs (kobject_set_name_vargs, lib/kobject.c).
            return os.path.basename(os.path.dirname(os.readlink(link))).replace("!", "/")
    except OSError:
        pass
    return block_device_name(sysfs, number)


class Storage(Probe):
    """Whole disks, and backing devices, under the open files of benchmarks and OSDs.

    Loop, device mapper and md devices stand for themselves. Files opened to append, and the standard error, are logs
    and do not count. `stat_file` is ``os.stat``.
    """

    name = "storage"
    metrics = (STORAGE_DEVICE_INFO, STORAGE_ROTATIONAL)
    capabilities = (Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE)
    rest_interval = 10.0

    def __init__(self, host: Host, stat_file: Callable[[str], os.stat_result] = os.stat) -> None:
        super().__init__(host)
        self._stat_file = stat_file
        self._looked: dict[tuple[int, int], float] = {}
        self._tables = MountTables(host.procfs)
        self._backings: WeakKeyDictionary[MountTable, dict[int, frozenset[Backing]]] = WeakKeyDictionary()
        """What is under each mount that was asked for."""
        self._seen: dict[tuple[str, Backing], float] = {}
        self._rotational: dict[str, int | None] = {}
        """Whether each disk rotates, as the kernel says it."""

    def sample(self, now: float) -> None:
        """Look at the files of every process that is due.

        Raises PermissionError if it may look at none; for a user who has no rights, NotPresent: they belong to others.
        """
        processes = {
            (process.pid, process.start): process
            for process in self.host.processes.current(now).values()
            if process.class_ in (BENCHMARK, OSD)
        }
        self._looked = {key: at for key, at in self._looked.items() if key in processes}
        numbers = Counter(user_of(process.owner) for process in processes.values() if process.class_ == BENCHMARK)
        left = dict.fromkeys((True, False), MAX_FILES_PER_SAMPLE)
        refused: PermissionError | None = None
        allowed = False
        for key, process in sorted(processes.items(), key=lambda item: self._looked.get(item[0], float("-inf"))):
            user = user_of(process.owner)
            every = float("inf") if process.class_ == OSD else numbers[user] / LOOKS_PER_SECOND
            every = min(every, LONGEST_FILES_INTERVAL_SECONDS) - (self.interval or 0.0) / 2
            if now - self._looked.get(key, float("-inf")) < every:
                continue
            trusted = user is None
            if left[trusted] <= 0:
                continue
            try:
                left[trusted] -= self._look(process, now, left[trusted])
                allowed = True
            except PermissionError as error:
                refused = error
            self._looked[key] = now
        self._seen = {key: at for key, at in self._seen.items() if now - at < KEEP_DISK_SECONDS}
        known = self._rotational
        self._rotational = {disk: known[disk] if disk in known else self._rotates(disk) for disk in self._disks()}
        if refused is not None and not allowed and not self._seen:
            if without_rights():
                raise NotPresent("all benchmarks and OSDs belong to other users") from refused
            raise refused

    def _look(self, process: Process, now: float, limit: int) -> int:
        """Look at no more than `limit` of a process' files; return how many. Raises PermissionError."""
        directory = f"{self.host.procfs}/{process.pid}"
        try:
            names = sorted(filter(str.isdigit, first_names(f"{directory}/fd", limit)), key=int)
        except PermissionError:
            raise
        except OSError:
            return 0  # it is gone
        log = _link(f"{directory}/fd/2")
        table = None
        for name in names:
            path = _link(f"{directory}/fd/{name}")
            # Sockets and pipes have no path. The file of standard error is not data; dd has its data at 0 and 1.
            if not path.startswith("/") or name == "2" or (path == log and name in ("0", "1")):
                continue
            try:
                info = parse_file_info(read_bytes(f"{directory}/fdinfo/{name}"))
            except (OSError, FormatError):
                continue
            if info.flags & os.O_APPEND:
                continue
            table = table or self._tables.of(process.pid, now, trusted=user_of(process.owner) is None)
            for backing in self._under_mount(table, info.mount, f"{directory}/fd/{name}"):
                key = process.owner, backing
                if key in self._seen or process.daemon or self._has_room(user_of(process.owner)):
                    self._seen[key] = now
        return len(names)

    def _has_room(self, user: int | None) -> bool:
        """Return whether another disk of a user may be shown; None stands for the trusted ones."""
        shown = sum(user_of(owner) == user for owner, _ in self._seen)
        return shown < (MAX_DEVICES if user is None else MAX_USER_DEVICES)

    def _under_mount(self, table: MountTable, number: int, file: str) -> frozenset[Backing]:
        mount = table.mounts.get(number)
        if mount is None:
            return frozenset()  # it was opened in another namespace, or its file system was unmounted
        if mount.fstype in IN_MEMORY:
            return frozenset(self._of_node(file))
        known = self._backings.setdefault(table, {})
        if number not in known:
            known[number] = frozenset(self._under(mount, table))
        return known[number]

    def _under(self, mount: Mount, table: MountTable, overlays: int = MAX_OVERLAYS) -> Iterator[Backing]:
        """Yield what is under a file system."""
        if mount.device and not mount.device.startswith(ANONYMOUS):
            yield self._of_disk(mount.device)
        elif mount.fstype == "overlay":
            below = self._upper(mount, table)
            if below is not None and overlays:
                yield from self._under(below, table, overlays - 1)
        else:
            bdis = self._bdis(mount)
            devices = {backing.device for backing in self._of_source(mount)}
            for device in devices or ({""} if bdis else ()):
                for bdi in bdis or ("",):
                    yield Backing(device, bdi)

    def _upper(self, overlay: Mount, table: MountTable) -> Mount | None:
        """Return the mount that an overlay writes to (show_options of overlayfs gives the path)."""
        upper = next((text.removeprefix("upperdir=") for text in overlay.options if text.startswith("upperdir=")), "")
        if not upper:
            return None
        below = table.holder(upper)
        if below is None or below is overlay:
            # In a container the overlay is the root, and its paths are those of the host.
            below = self._tables.of(1, table.read).holder(upper)
        return below

    def _of_source(self, mount: Mount) -> Iterator[Backing]:
        """Yield the disk that a file system names as its source; btrfs names one of several.

        A FUSE server's source is any text that its user chose.
        """
        if re.fullmatch(r"/dev/(mapper/)?[^/]+", mount.source) and not mount.fstype.startswith("fuse"):
            yield from self._of_node(f"{self.host.rootfs}{mount.source}")

    def _of_node(self, path: str) -> Iterator[Backing]:
        """Yield the disk whose device node this is; nothing if it isn't one."""
        try:
            found = self._stat_file(path)
        except OSError:
            return
        if stat.S_ISBLK(found.st_mode):
            yield self._of_disk(f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}")

    def _of_disk(self, number: str) -> Backing:
        # All partitions of a disk share its backing device, which has the disk's number (device_add_disk,
        # block/genhd.c); `writeback_worker` calls it by the disk's name.
        disk = whole_disk(self.host.sysfs, number)
        return Backing(disk, disk)

    def _bdis(self, mount: Mount) -> list[str]:
        """Return the backing devices that a file system without a disk may have.

        NFS and FUSE call theirs by its device number (nfs_fill_super in fs/nfs/super.c, fuse_bdi_init in
        fs/fuse/inode.c), CephFS ceph-N (ceph_setup_bdi, fs/ceph/super.c), btrfs and others TYPE-N (super_setup_bdi,
        fs/super.c). No file shows which N a mount has: so all of the type.
        """
        try:
            names = os.listdir(self.host.sysfs / "class" / "bdi")
        except OSError:
            return []
        if mount.device in names:
            return [mount.device]
        return sorted(name for name in names if re.fullmatch(rf"{re.escape(mount.fstype)}-\d+", name))

    def _disks(self) -> set[str]:
        """Return the disks of OSDs."""
        return {backing.device for owner, backing in self._seen if _is_osd(owner) and backing.device}

    def _rotates(self, disk: str) -> int | None:
        return read_int(self.host.sysfs / "class" / "block" / disk.replace("/", "!") / "queue" / "rotational")

    def points(self) -> Iterator[Point]:
        """Yield the disks of each owner."""
        rotational: dict[str, int] = {}
        for owner, backing in sorted(self._seen):
            yield STORAGE_DEVICE_INFO.point(1, owner, *backing)
            if _is_osd(owner) and (rotates := self._rotational.get(backing.device)) is not None:
                rotational[owner] = max(rotates, rotational.get(owner, 0))
        for owner, rotates in rotational.items():
            yield STORAGE_ROTATIONAL.point(rotates, owner)


def _is_osd(owner: str) -> bool:
    """Return whether an owner is an OSD, and not a process that is only called like one."""
    return owner.startswith("osd.") and user_of(owner) is None


def _link(path: str) -> str:
    """Return where a symbolic link leads; empty where there is none. Raises PermissionError."""
    try:
        return os.readlink(path)
    except PermissionError:
        raise  # without CAP_SYS_PTRACE the names of others' descriptors may be listed, and nothing else
    except OSError:
        return ""
