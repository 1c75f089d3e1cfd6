"""Small files that are read again when they change: configuration, certificates, keys, passwords."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["MAX_WATCHED_FILE_BYTES", "WatchedFiles", "read_small", "why_unread"]

MAX_WATCHED_FILE_BYTES = 1 << 20
"""Longest file in bytes: a system's bundle of all certificate authorities has 0.2 MB."""
RACY_SECONDS = 1.0
"""Age in seconds below which a file may change again without a change of its times: their clock ticks (4 to 10 ms, and
whole seconds in some file systems)."""

Signature = tuple[int, int, int, int, int] | None
"""Device, inode, size, and times of its data and of its inode in nanoseconds; None for a file that cannot be seen."""


def read_small(path: Path) -> bytes:
    """Return the content of a file. Raises OSError, or ValueError if it is too long or not a regular file."""
    # A fifo would block until someone writes to it.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        raw = file.read(MAX_WATCHED_FILE_BYTES + 1)
    if len(raw) > MAX_WATCHED_FILE_BYTES:
        raise ValueError(f"longer than {MAX_WATCHED_FILE_BYTES >> 20} MiB")
    return raw


def why_unread(error: OSError | ValueError) -> str:
    """Return why `read_small` failed."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class WatchedFiles:
    """The files that were read through it, and whether one of them has changed since.

    A look costs a stat(2) for each file, 1 to 2 microseconds, so it can be taken for each connection. `clock` gives
    Unix time in seconds, as the file system's times are.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._signatures: dict[Path, Signature] = {}
        self._racy = False
        """Whether one of them had just changed when it was read."""

    def read(self, path: Path) -> bytes:
        """Return a file's content, and watch it from now on. Raises OSError and ValueError as `read_small` does."""
        # Before the content: a change in between shows at the next look.
        self._signatures[path] = signature = _signature(path)
        if signature is not None:
            self._racy |= 0 <= self._clock() - max(signature[3:]) / 1e9 < RACY_SECONDS
        return read_small(path)

    @property
    def changed(self) -> bool:
        """Whether one of the files may have changed since it was read."""
        return self._racy or any(_signature(path) != known for path, known in self._signatures.items())


def _signature(path: Path) -> Signature:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
