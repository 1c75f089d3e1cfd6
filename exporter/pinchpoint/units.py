"""Factors between units, and the unit of the kernel's clocks."""

from __future__ import annotations

import os

__all__ = [
    "BYTES_PER_GIBIBYTE",
    "BYTES_PER_KIBIBYTE",
    "BYTES_PER_MEBIBYTE",
    "MICROSECONDS_PER_SECOND",
    "MILLISECONDS_PER_SECOND",
    "NANOSECONDS_PER_SECOND",
    "SECONDS_PER_NANOSECOND",
    "TICKS_PER_SECOND",
]

MILLISECONDS_PER_SECOND = 1000
MICROSECONDS_PER_SECOND = 1_000_000
NANOSECONDS_PER_SECOND = 1_000_000_000
SECONDS_PER_NANOSECOND = 1e-9
BYTES_PER_GIBIBYTE = 1 << 30
BYTES_PER_MEBIBYTE = 1 << 20
BYTES_PER_KIBIBYTE = 1 << 10
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
"""Ticks per second of the times in ``/proc/PID/stat``: USER_HZ, 100 on nearly all machines."""
