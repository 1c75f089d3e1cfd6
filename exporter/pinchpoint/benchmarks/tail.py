"""A file that grows, followed by its end."""

from __future__ import annotations

import os

from pinchpoint.benchmarks.tree import Tree
from pinchpoint.rootfs import read_piece

__all__ = ["Tail"]

PIECE = 1 << 20
"""Bytes that are read at once at most."""
BACKLOG = 16 << 20
"""When more than this is unread, all but the last piece is left out: it would take too long to catch up."""


class Tail:
    """The new bytes of a regular file, again and again.

    The file is kept open: what its writer wrote last is still read when the writer and its /proc are gone.
    """

    def __init__(self, tree: Tree, pid: int, path: str, *, from_end: bool = False) -> None:
        """Open a file by its path as the process `pid` sees it. Raises OSError."""
        with tree.open_path(pid, path) as descriptor:
            self._descriptor = os.dup(descriptor)
        self._offset = os.fstat(self._descriptor).st_size if from_end else 0

    def read(self) -> bytes:
        """Return what came since the last time, a piece at most. A file that became shorter is read anew."""
        try:
            size = os.fstat(self._descriptor).st_size
            if size < self._offset:
                self._offset = 0
            if size - self._offset > BACKLOG:
                self._offset = size - PIECE
            piece = read_piece(self._descriptor, self._offset, PIECE)
        except OSError:
            return b""
        self._offset += len(piece)
        return piece

    def close(self) -> bytes:
        """Return all that is left, and close the file."""
        pieces = []
        while piece := self.read():
            pieces.append(piece)
            if len(pieces) * PIECE > BACKLOG:
                break
        os.close(self._descriptor)
        return b"".join(pieces)
