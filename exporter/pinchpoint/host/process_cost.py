"""What another process costs: CPU time, and the memory that it has for itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes, shows_own_pids
from pinchpoint.units import NANOSECONDS_PER_SECOND, TICKS_PER_SECOND

__all__ = ["CpuClocks", "cpu_seconds", "parse_private", "private_bytes"]

CPUCLOCK_SCHED = 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process with that of its threads that have ended, without children. Raises OSError.

    The id of a process' CPU clock is made as in include/linux/posix-timers.h; it counts nanoseconds, stat only ticks.
    """
    return _cpu_nanoseconds(pid) / NANOSECONDS_PER_SECOND


def _cpu_nanoseconds(pid: int) -> int:
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


class CpuClocks:
    """The CPU times of the processes that a procfs shows, with those of their threads that have ended.

    A process' clock counts nanoseconds and is read in 1 us; to read its stat, which counts ticks, takes 20. The clocks
    are found by the numbers of our own PID namespace: for another one, stat is read.
    """

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        try:
            self._own = shows_own_pids(procfs)
        except OSError:
            self._own = False

    def nanoseconds(self, pid: int) -> int:
        """Return the nanoseconds that a process has used. Raises OSError or FormatError."""
        if self._own:
            return _cpu_nanoseconds(pid)
        stat = parse_stat(read_bytes(f"{self._procfs}/{pid}/stat"))
        return (stat.utime + stat.stime) * (NANOSECONDS_PER_SECOND // TICKS_PER_SECOND)


def private_bytes(pid: int) -> int:
    """Return the memory that a process does not share, such as with the one that forked it. Raises OSError.

    Without the right to see that, it is all that it has but files.
    """
    try:
        return parse_private(read_bytes(f"/proc/{pid}/smaps_rollup"))
    except PermissionError:
        resident, shared = read_bytes(f"/proc/{pid}/statm").split()[1:3]
        return (int(resident) - int(shared)) * PAGE_BYTES


def parse_private(raw: bytes) -> int:
    """Return the private bytes in ``/proc/PID/smaps_rollup`` (__show_smap, fs/proc/task_mmu.c). Raises FormatError."""
    fields = dict(line.split(b":", 1) for line in raw.splitlines()[1:] if b":" in line)
    try:
        return sum(int(fields[name].split()[0]) << 10 for name in (b"Private_Clean", b"Private_Dirty"))
    except (KeyError, ValueError, IndexError) as error:
        raise FormatError("smaps_rollup without private memory") from error
