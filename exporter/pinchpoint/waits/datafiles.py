"""The file system that a process works on, by its open files.

No file system is asked, since one that hangs would block us: the kernel itself knows the path and the mount of an open
file. Only device nodes are looked at, on file systems in memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.mount_tables import MountTables
from pinchpoint.host.procfs import FormatError, Mount, first_names, parse_file_info, read_bytes
from pinchpoint.waits.stack_rules import FUSE, WaitRules

__all__ = ["DataFiles", "DataPlace"]

MAX_DATA_FILES = 64
"""Open files of a process that are looked at, 1 to 5 us each."""
STANDARD = frozenset({0, 1, 2})
"""Standard input, output and error: a benchmark's text goes there, not its data."""
IN_MEMORY = frozenset({"devtmpfs", "tmpfs", "ramfs"})
"""File systems on which device nodes are looked for: these answer from memory."""


class DataPlace(NamedTuple):
    """Where a process has its data."""

    wait: str
    """The wait class of data there: see `WaitRules.filesystem`."""
    fstype: str
    point: str
    """Where it is mounted."""


class DataFiles:
    """Looks at open files; `trusted` says whether a process is a trusted user's."""

    def __init__(self, procfs: Path, rules: WaitRules) -> None:
        self._procfs = procfs
        self._rules = rules
        self._tables = MountTables(procfs)

    def place(self, pid: int, now: float, *, trusted: bool = True) -> DataPlace | None:
        """Return where a process has its data, None if no open file shows it; `now` is a monotonic time in seconds.

        Files that bypass the page cache come first, as aio needs them; then those on network file systems, since a
        benchmark of one keeps its logs on a disk.
        """
        mounts = self._tables.of(pid, now, trusted=trusted).mounts
        best: tuple[tuple[bool, bool], DataPlace] | None = None
        for place, direct in self._open(pid, mounts):
            rank = direct, place.wait != "disk"
            if best is None or rank > best[0]:
                best = rank, place
        return None if best is None else best[1]

    def fuse_mount(self, pid: int, now: float, *, trusted: bool = True) -> DataPlace | None:
        """Return the FUSE mount of Ceph that a process sees; None if it sees none, or other FUSE mounts as well.

        With several of Ceph, the result has no mount point. `now` is a monotonic time.
        """
        mounts = self._tables.of(pid, now, trusted=trusted).mounts.values()
        fuse = [mount for mount in mounts if mount.fstype.partition(".")[0] in ("fuse", "fuseblk")]
        places = [
            DataPlace(FUSE, mount.fstype, mount.point)
            for mount in fuse
            if self._rules.filesystem(mount.fstype, mount.source) == FUSE
        ]
        if not places or len(places) < len(fuse):
            return None
        return places[0] if len(places) == 1 else places[0]._replace(point="")

    def _open(self, pid: int, mounts: dict[int | None, Mount]) -> Iterator[tuple[DataPlace, bool]]:
        directory = f"{self._procfs}/{pid}"
        try:
            numbers = sorted(int(name) for name in first_names(f"{directory}/fd", len(STANDARD) + MAX_DATA_FILES))
        except (OSError, ValueError):
            return
        for number in [number for number in numbers if number not in STANDARD]:
            try:
                path = os.readlink(f"{directory}/fd/{number}")
                if not path.startswith("/"):
                    continue
                info = parse_file_info(read_bytes(f"{directory}/fdinfo/{number}", 4096))
            except (OSError, FormatError):
                continue
            mount = mounts.get(info.mount)
            if mount is None:
                continue
            if mount.fstype in IN_MEMORY:
                wait = self._device(f"{directory}/fd/{number}", path) if path.startswith("/dev/") else None
            else:
                wait = self._rules.filesystem(mount.fstype, mount.source)
            if wait is not None:
                yield DataPlace(wait, mount.fstype, mount.point), bool(info.flags & os.O_DIRECT)

    def _device(self, link: str, path: str) -> str | None:
        try:
            return self._rules.filesystem("bdev", path) if stat.S_ISBLK(os.stat(link).st_mode) else None
        except OSError:
            return None
