"""A file that grows, followed by its end."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.rootfs import read_piece

__all__ = ["FileId", "Tail"]

FileId = tuple[int, int]
"""Device and inode."""

MAX_PIECE_BYTES = 128 << 10
"""Maximum bytes read at once: a reader takes up to 0.1 s of CPU for them."""
MAX_BACKLOG_BYTES = 16 << 20
"""If more bytes than this are unread, all but the last piece is skipped: catching up would take too long."""
MAX_LAST_BYTES = 4 << 20
"""Bytes that are read at the end: the last ones written."""
MAX_LAST_LINES = 200_000
"""Lines among them (fio's JSON: 300 a job): a reader takes 1 to 2 us for each."""


class Tail:
    """The new bytes of a regular file, again and again.

    The file is kept open: the writer's last bytes can still be read after the writer and its /proc are gone.
    """

    def __init__(self, tree: Tree, pid: int, path: str, *, from_end: bool = False) -> None:
        """Open a file by its path as the process `pid` sees it. Raises OSError."""
        with tree.open_path(pid, path) as descriptor:
            self._descriptor = os.dup(descriptor)
        self.offset = os.fstat(self._descriptor).st_size if from_end else 0
        """The position up to which it has been read, in bytes."""

    @property
    def identity(self) -> FileId:
        """Which file it is."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def skip(self, ends: Mapping[FileId, int]) -> None:
        """Continue where the file was read before, unless it has been emptied since."""
        end = ends.get(self.identity, 0)
        if 0 < end <= self.stamp[1]:
            self.offset = end

    @property
    def stamp(self) -> tuple[int, int]:
        """When the file was last changed, in nanoseconds, and its size."""
        status = os.fstat(self._descriptor)
        return status.st_mtime_ns, status.st_size

    def read(self) -> bytes:
        """Return new bytes, at most one piece. A file that became shorter is read from the start."""
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self.offset:
                self.offset = 0
            skipped = size - self.offset > MAX_BACKLOG_BYTES
            if skipped:
                self.offset = size - MAX_PIECE_BYTES
            piece = read_piece(self._descriptor, self.offset, MAX_PIECE_BYTES)
        except OSError:
            return b""
        self.offset += len(piece)
        # Two halves of lines must not be joined.
        return b"\n" + piece if skipped else piece

    def close(self) -> bytes:
        """Return the rest, or its end if there is much, and close the file."""
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self.offset:
                self.offset = 0
            begin = max(self.offset, size - MAX_LAST_BYTES)
            rest = read_piece(self._descriptor, begin, MAX_LAST_BYTES)
        except OSError:
            return b""
        finally:
            os.close(self._descriptor)
        skipped = begin > self.offset
        self.offset = begin + len(rest)
        lines = rest.rsplit(b"\n", MAX_LAST_LINES)
        if len(lines) > MAX_LAST_LINES:
            rest = b"\n".join(lines[1:])
        return b"\n" + rest if skipped or len(lines) > MAX_LAST_LINES else rest
