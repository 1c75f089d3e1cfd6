"""What a helper reads at the moment: a word in memory that it shares with the exporter.

The exporter looks at it if the helper hangs. Messages would wake it a hundred times for one look at a benchmark with
many processes.
"""

from __future__ import annotations

import mmap
import os
import struct

__all__ = ["Progress", "new_progress", "read_progress"]

WORD = struct.Struct("=I")


def new_progress() -> int:
    """Return the descriptor of such memory. Raises OSError."""
    descriptor = os.memfd_create("pinchpoint-progress")
    os.ftruncate(descriptor, WORD.size)
    return descriptor


def read_progress(descriptor: int) -> int:
    """Return the process that is being read; 0 for none, and where the helper has put something else."""
    raw = os.pread(descriptor, WORD.size, 0)
    return int(WORD.unpack(raw)[0]) if len(raw) == WORD.size else 0


class Progress:
    """The helper's end."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, WORD.size)

    def read(self, pid: int) -> None:
        """Say that a process is read from now on; 0: none."""
        WORD.pack_into(self._memory, 0, pid)
