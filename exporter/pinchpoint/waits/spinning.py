"""Ranks of a parallel program that busy-wait for the others: that is not work.

MPI libraries poll in a barrier. A rank that polls moves no data, and makes hardly any system calls, or none but
sched_yield. Seen with Open MPI 4.1: 100 % user time, or, with mpi_yield_when_idle, sched_yield in 13 of 15 stacks; a
rank that opens, stats and unlinks files on tmpfs, which no counter of I/O shows, had 10 % user time.
"""

from __future__ import annotations

from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes
from pinchpoint.waits.stack_rules import RUNNING, YIELDS

__all__ = ["Spin"]

MIN_SPINNING_SHARE = 0.9
"""CPU and run-queue wait of its main thread from which a rank may be spinning."""
MIN_USER_SHARE = 0.95
"""Share of user time from which a rank makes hardly any system calls."""
IO_COUNTER_LINES = 4
"""Lines of ``/proc/PID/io`` that count all that was read and written: rchar, wchar, syscr, syscw."""


class Spin:
    """Evidence that a rank spins rather than works, gathered in blocks."""

    def __init__(self) -> None:
        self._busy = 0.0
        self._yields = self._running = self._others = 0
        self._io = b""
        self._user = self._system = 0
        self._suspected = False

    def ran(self, seconds: float) -> None:
        """Add CPU time or run-queue wait of its main thread."""
        self._busy += seconds

    def saw(self, wait: str | None, *, empty: bool) -> None:
        """Add the wait of a stack of its main thread by the rules; one without functions means nothing."""
        if wait == YIELDS:
            self._yields += 1
        elif wait != RUNNING:
            self._others += 1
        elif not empty:
            self._running += 1

    def judge(self, directory: str, span: float) -> bool:
        """Return whether the process did nothing but spin in this block, of `span` seconds, and in the last one.

        `directory` is the process' in procfs. One block alone may be a long computation between two requests.
        """
        busy, self._busy = self._busy, 0.0
        polls = not self._others and self._yields > self._running
        self._yields = self._running = self._others = 0
        before, self._suspected = self._suspected, False
        try:
            io = b"".join(read_bytes(f"{directory}/io", 1024).splitlines()[:IO_COUNTER_LINES])
            stat = parse_stat(read_bytes(f"{directory}/stat", 4096))
        except (OSError, FormatError):
            return False
        user, system = stat.utime - self._user, stat.stime - self._system
        still = io == self._io
        self._io, self._user, self._system = io, stat.utime, stat.stime
        calm = user > 0 and user >= MIN_USER_SHARE * (user + system)
        self._suspected = busy >= MIN_SPINNING_SHARE * span and still and (calm or polls)
        return before and self._suspected
