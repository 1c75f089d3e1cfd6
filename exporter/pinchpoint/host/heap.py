"""How the C library's allocator uses memory. Only glibc's is known; with another one nothing happens."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["give_back", "map_large_blocks", "share_one_heap"]

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
"""malloc.h of glibc 2.10 and later."""
MMAP_THRESHOLD_BYTES = 128 << 10
"""Bytes from which an allocation is a mapping of its own, unmapped when freed: glibc's initial value."""


def share_one_heap() -> None:
    """Let all threads allocate from one heap; to be called before the first thread is started (man 3 mallopt).

    By default each of the first threads gets a heap of its own, up to eight for each CPU, and what is free in one of
    them is of no use to the others. Threads of Python hardly ever allocate at the same moment.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def map_large_blocks() -> None:
    """Unmap large blocks when they are freed.

    By default glibc would put the second block of a size where it can't give it back: on a heap (man 3 mallopt,
    "Note: Nowadays ...").
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


def give_back() -> None:
    """Return free memory to the kernel (man 3 malloc_trim)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
