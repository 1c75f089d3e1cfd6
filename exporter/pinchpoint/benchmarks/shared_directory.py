"""A directory that root makes for all users, as /tmp is: what may be written there, and how."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pinchpoint.host.users import ROOT

__all__ = ["EVERYBODYS", "MAX_DIRECTORY_ENTRIES", "RUNS", "SETTLED_NANOSECONDS", "SharedDirectory", "replace_file"]

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
