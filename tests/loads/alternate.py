"""Computes, or writes a file to the disk in blocks of 4 KiB, each until SIGUSR1 comes: a limit that changes on demand.

Usage: python3 alternate.py FILE
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

BLOCK = os.urandom(4096)
BLOCKS = 4096


def main() -> None:
    """Alternate for ever."""
    writes = False

    def change(*_: object) -> None:
        nonlocal writes
        writes = not writes

    signal.signal(signal.SIGUSR1, change)
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
    for number in itertools.count():
        if writes:
            os.pwrite(file, BLOCK, number % BLOCKS * len(BLOCK))
            os.fsync(file)


if __name__ == "__main__":
    main()
