"""The files that processes execute, opened once each, and what an address in a process belongs to.

A file is opened through ``/proc/PID/map_files``: that is the file that is mapped, whatever mount namespace the process
is in, also after it was deleted or replaced (man 5 proc; CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN). Without that right
the path is opened in the process' root, and used only if it is the same file. Only files of local file systems are
read: a FUSE server of any user, or a cluster that hangs, would block the reader.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.procfs import parse_mounts, read_bytes
from pinchpoint.profile.cfi import Budget, FrameTable, Row
from pinchpoint.profile.elf import X86_64, Elf, ElfError, Read, file_reader
from pinchpoint.profile.maps import MAX_MAPS_BYTES, Mapping, Mappings, parse_maps
from pinchpoint.profile.symbols import Symbols

__all__ = ["Binaries", "Binary", "Image", "Place"]

MAX_BINARIES = 32
MAX_TABLES_BYTES = 64 << 20
"""Memory for the tables of all files: those of ceph-osd 16.2.15 with its libraries take 1.4 MB."""
LOCAL_FILE_SYSTEMS = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs"),
        *("tmpfs", "ramfs", "rootfs", "devtmpfs", "overlay", "aufs", "squashfs", "erofs", "iso9660", "vfat"),
    )
)
VDSO = "[vdso]"
DEBUG_FILES = "usr/lib/debug/.build-id"


class Place(NamedTuple):
    """What an address belongs to."""

    file: str
    """Name of the file, ``[vdso]``, or ``[anon]`` for code that was made at run time."""
    binary: Binary | None
    address: int
    """The address as the file counts it."""


class Binary:
    """One open file."""

    def __init__(self, read: Read, fd: int, debug_file: Callable[[str], int | None]) -> None:
        self._fds = [fd] if fd >= 0 else []
        self.elf = Elf(read)
        if self.elf.machine != X86_64:
            raise ElfError("for another machine")
        try:
            self.frames: FrameTable | None = FrameTable(self.elf)
        except ElfError:
            self.frames = None
        self._debug_file = debug_file
        self._symbols: Symbols | None = None

    @property
    def symbols(self) -> Symbols:
        """Its names, which are read when they are needed first. Raises OSError."""
        if self._symbols is None:
            self._symbols = Symbols(self.elf, self._read_debug)
        return self._symbols

    def _read_debug(self, build_id: str) -> Read | None:
        if (fd := self._debug_file(build_id)) is None:
            return None
        self._fds.append(fd)
        return file_reader(fd)

    @property
    def named(self) -> bool:
        """Whether its names have been needed."""
        return self._symbols is not None

    @property
    def size(self) -> int:
        """About how much memory its tables take, in bytes."""
        return sum(table.size for table in (self.frames, self._symbols) if table is not None)

    def close(self) -> None:
        """Close the file, and the one with its names."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


class Binaries:
    """The files that are known, as many as the limits allow: those used longest ago go first."""

    def __init__(self, procfs: Path, rootfs: Path) -> None:
        self._procfs = procfs
        self._rootfs = rootfs
        self._known: OrderedDict[tuple[str, int], Binary | None] = OrderedDict()

    def of(self, pid: int, mapping: Mapping) -> Binary | None:
        """Return the file of a mapping, None if it can't be read or is not an ELF file of this machine."""
        key = mapping.device, mapping.inode
        if mapping.path == VDSO:
            key = VDSO, 0
        elif not mapping.inode:
            return None
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            found = self._vdso() if mapping.path == VDSO else self._open(pid, mapping)
        except (OSError, ElfError):
            found = None
        self._known[key] = found
        self._make_room(found)
        return found

    def name(self, place: Place) -> str | None:
        """Return the name of the function at a place, None if it has none. Raises OSError."""
        binary = place.binary
        if binary is None:
            return None
        named, symbols = binary.named, binary.symbols
        if not named:
            self._make_room(binary)  # its symbols were read just now
        return symbols.name(place.address)

    def _make_room(self, used: Binary | None) -> None:
        """Forget the files that were used longest ago, until the others are within the limits; keep the one in use."""
        size = sum(binary.size for binary in self._known.values() if binary is not None)
        for key, binary in list(self._known.items()):
            if len(self._known) <= MAX_BINARIES and size <= MAX_TABLES_BYTES:
                return
            if binary is used and used is not None:
                continue
            del self._known[key]
            if binary is not None:
                size -= binary.size
                binary.close()

    def _open(self, pid: int, mapping: Mapping) -> Binary | None:
        process = self._procfs / str(pid)
        if not self._is_local(process, mapping.device):
            return None
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            fd = os.open(process / "map_files" / f"{mapping.start:x}-{mapping.end:x}", flags)
        except OSError:
            fd = os.open(f"{process}/root{mapping.path}", flags | os.O_NOFOLLOW)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_ino != mapping.inode:
                raise ElfError("another file")
            return Binary(file_reader(fd), fd, self._debug_file)
        except BaseException:
            os.close(fd)
            raise

    def _is_local(self, process: Path, device: str) -> bool:
        for table in (process / "mountinfo", self._procfs / "1" / "mountinfo", self._procfs / "self" / "mountinfo"):
            try:
                mounts = parse_mounts(read_bytes(table))
            except OSError:
                continue
            types = {mount.fstype for mount in mounts if mount.device == device}
            if types:
                return types <= LOCAL_FILE_SYSTEMS
        return False

    def _debug_file(self, build_id: str) -> int | None:
        path = self._rootfs / DEBUG_FILES / build_id[:2] / f"{build_id[2:]}.debug"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            return None
        return fd

    def _vdso(self) -> Binary | None:
        """Return the kernel's code in each process: this process has the same."""
        own = parse_maps(read_bytes("/proc/self/maps", MAX_MAPS_BYTES)).mappings
        mapping = next((one for one in own if one.path == VDSO), None)
        if mapping is None:
            return None
        raw = ctypes.string_at(mapping.start, mapping.end - mapping.start)
        return Binary(lambda offset, size: raw[offset : offset + size], -1, lambda build_id: None)

    def close(self) -> None:
        """Close all files, and forget their names."""
        for binary in self._known.values():
            if binary is not None:
                binary.close()
        self._known.clear()


class Image:
    """What a process executes now. Raises OSError if its mappings can't be read."""

    def __init__(self, procfs: Path, pid: int, binaries: Binaries) -> None:
        self.pid = pid
        self._procfs = procfs
        self._binaries = binaries
        self.mappings = Mappings(())
        self.incomplete = True
        """Whether an address was not found since the mappings were read: something was mapped, or the stack is odd."""
        self.look()

    def look(self) -> None:
        """Read the mappings again, if they seem to be incomplete."""
        if not self.incomplete:
            return
        self.incomplete = False
        self.mappings = parse_maps(read_bytes(self._procfs / str(self.pid) / "maps", MAX_MAPS_BYTES))

    def place(self, address: int) -> Place | None:
        """Return what an address belongs to; None if nothing executable is there."""
        mapping = self.mappings.find(address)
        if mapping is None:
            return None
        binary = self._binaries.of(self.pid, mapping)
        if binary is None:
            return Place(mapping.name or "[anon]", None, 0)
        into = mapping.offset if mapping.path != VDSO else 0
        found = binary.elf.address_of(address - mapping.start + into)
        return Place(mapping.name, binary if found is not None else None, found or 0)

    def is_code(self, address: int) -> bool:
        """Return whether an address can be executed."""
        if self.mappings.find(address) is not None:
            return True
        self.incomplete = True
        return False

    def row(self, address: int, budget: Budget) -> Row | None:
        """Return how to find the caller from an address; None in code without a row. Raises CfiError."""
        place = self.place(address)
        if place is None or place.binary is None or place.binary.frames is None:
            return None
        return place.binary.frames.row(place.address, budget)
