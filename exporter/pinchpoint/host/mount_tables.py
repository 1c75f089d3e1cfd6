"""The mounts that processes see, read once for each mount namespace.

Any user may make namespaces with thousands of mounts, one for each process (``unshare --map-root-user --mount``): what
is read of them is bounded. The namespace of the host's first process is the administrator's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pinchpoint.host.procfs import MAX_READ_BYTES, Mount, parse_mounts, read_bytes

__all__ = ["MOUNTS_INTERVAL_SECONDS", "MountTable", "MountTables"]

MOUNTS_INTERVAL_SECONDS = 5.0
"""Seconds for which a mount table is kept."""
MAX_USER_MOUNT_BYTES = 1 << 18
"""Bytes of the tables of untrusted users' own namespaces that are kept at a time; what does not fit is left out."""


class MountTable:
    """The mounts of one mount namespace."""

    def __init__(self, mounts: Iterable[Mount], read: float, user_bytes: int) -> None:
        self.mounts: dict[int | None, Mount] = {mount.number: mount for mount in mounts}
        """By their ids."""
        self.read = read
        """When it was read, in monotonic seconds."""
        self.user_bytes = user_bytes
        """Its length, if it is an untrusted user's."""

    def holder(self, path: str) -> Mount | None:
        """Return the mount that `path` is on: of those above it the deepest, and of several there the last."""
        found = None
        for mount in self.mounts.values():
            point = mount.point.rstrip("/")
            if (path == point or path.startswith(f"{point}/")) and (
                found is None or len(point) >= len(found.point.rstrip("/"))
            ):
                found = mount
        return found


class MountTables:
    """Mount tables of processes in a procfs."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._tables: dict[str, MountTable] = {}

    def of(self, pid: int, now: float, *, trusted: bool = True) -> MountTable:
        """Return the mounts that a process sees, of a trusted user or not; `now` is in monotonic seconds.

        The table is empty if it cannot be read, and cut where those of untrusted users are too long together.
        """
        namespace = self._namespace(pid)
        self._tables = {
            name: table for name, table in self._tables.items() if now - table.read < MOUNTS_INTERVAL_SECONDS
        }
        known = self._tables.get(namespace)
        if known is None:
            trusted = trusted or namespace == self._namespace(1)
            limit = MAX_READ_BYTES
            if not trusted:
                limit = MAX_USER_MOUNT_BYTES - sum(table.user_bytes for table in self._tables.values())
            try:
                raw = read_bytes(f"{self._procfs}/{pid}/mountinfo", limit)
            except OSError:
                raw = b""
            known = MountTable(parse_mounts(raw), now, 0 if trusted else len(raw))
            if limit > 0:
                self._tables[namespace] = known
        return known

    def _namespace(self, pid: int) -> str:
        try:
            return os.readlink(f"{self._procfs}/{pid}/ns/mnt")
        except OSError:
            return str(pid)
