"""A directory that root makes for all users, as /tmp is: what may be written there, and how."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from pinchpoint.host.users import ROOT

__all__ = ["EVERYBODYS", "MAX_DIRECTORY_ENTRIES", "RUNS", "Listing", "SharedDirectory", "replace_file"]

Found = TypeVar("Found")

RUNS = Path("/run/pinchpoint")
"""Where it is, unless it is configured."""
MAX_DIRECTORY_ENTRIES = 1 << 14
"""Names in the directory that are looked at."""
SETTLED_NANOSECONDS = 100_000_000
"""Age from which a directory's last change is told apart from a later one."""
EVERYBODYS = 0o1777
"""Mode of a directory in which every user may write, and nobody else may remove it: that of /tmp."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class SharedDirectory:
    """One such directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Make the directory, open to every user as /tmp is. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.path.mkdir(0o700)
            with self.opened() as directory:
                os.fchmod(directory, EVERYBODYS)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the directory. Raises OSError where another user could have made it."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            ours = (ROOT, os.geteuid())
            if os.fstat(directory).st_uid not in ours:
                above = os.stat("..", dir_fd=directory)
                if above.st_uid not in ours or above.st_mode & OTHERS_WRITE:
                    raise PermissionError(errno.EPERM, "is another user's directory", os.fspath(self.path))
            yield directory
        finally:
            os.close(directory)


class Listing(Generic[Found]):
    """What `read` finds in a directory, given its descriptor: found again only after a file was made or removed."""

    def __init__(self, read: Callable[[int], Found]) -> None:
        self._read = read
        self._known: tuple[int, Found] | None = None
        """When the directory was changed, in nanoseconds, and what it holds since; None if that may have changed."""

    def of(self, directory: int) -> Found:
        """Return what the directory holds. Raises OSError."""
        changed = os.fstat(directory).st_mtime_ns
        if self._known is not None and self._known[0] == changed:
            return self._known[1]
        # A later change within the same tick of the kernel's clock would have the same time.
        settled = time.time_ns() - changed > SETTLED_NANOSECONDS
        found = self._read(directory)
        self._known = (changed, found) if settled else None
        return found

    def known(self, path: Path) -> Found | None:
        """Return what a directory held if it has not changed since, without opening it; else None."""
        try:
            return self._known[1] if self._known and self._known[0] == os.stat(path).st_mtime_ns else None
        except OSError:
            return None

    def forget(self) -> None:
        """Read it again the next time."""
        self._known = None


def replace_file(directory: int, name: str, raw: bytes) -> None:
    """Write a file that every user may read, in the place of an older one. Raises OSError."""
    new = f".marker-{os.urandom(8).hex()}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            os.fchmod(handle, 0o644)
        os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise
