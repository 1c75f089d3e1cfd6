"""The state of a lock of Ceph's: whether it is held, and how many threads wait for it, read from a daemon's memory.

A ``ceph::fair_mutex`` (src/common/fair_mutex.h, Ceph 16.2.15) gives tickets: the number of the next ticket, the number
whose turn it is, and behind them the condition variable on which threads wait for their turn. The address that a thread
waits at is in ``/proc/PID/task/TID/syscall`` (proc(5)), so the lock is found while somebody waits for it. Later
releases that keep a list of waiters instead have no tickets there, and none are found.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.procfs import read_bytes

__all__ = ["FairMutex", "Tickets", "parse_condition_wait", "parse_tickets"]

FUTEX_CALLS = {"x86_64": b"202", "aarch64": b"98"}
"""Number of futex(2) by machine (asm/unistd_64.h, asm-generic/unistd.h)."""
FUTEX_WAITS = frozenset({0, 9})
"""FUTEX_WAIT and FUTEX_WAIT_BITSET (include/uapi/linux/futex.h): glibc waits on a condition variable by the latter
(nptl/futex-internal.c, glibc 2.36), older ones without a time-out by the former."""
FUTEX_FLAGS = 0x180
"""FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME."""
TICKETS = struct.Struct("=II")
SIGNALS_OFFSET_BYTES = 40
"""Offset of ``__g_signals`` in pthread_cond_t: its waiters wait at one of these two words
(sysdeps/nptl/bits/thread-shared-types.h, glibc 2.36); where it is elsewhere, no lock is found."""
WORD_BYTES = 4
TICKET_NUMBERS = 1 << 32
MAX_TICKETS_OUT = 64
"""Tickets that may be out at a time: an MDS has fewer threads that take its lock."""
MIN_TURNS = 10
"""Turns that have to pass between two looks at numbers before they are taken for tickets."""
MIN_GOOD_LOOKS = 3
"""Looks in a row at which numbers have to behave like tickets."""
MAX_CANDIDATES = 64
"""Places that are looked at in one search: a thread without work waits at one of its own."""
WAIT_LOOKS = 4
"""Looks at what each thread waits for in one search: a wait for the lock is short, one for work is long."""


class Tickets(NamedTuple):
    """The state of a lock."""

    following: int
    """Number of the next ticket."""
    turn: int
    """Number of the ticket whose turn it is."""

    @property
    def out(self) -> int:
        """How many threads hold the lock or wait for it."""
        return (self.following - self.turn) % TICKET_NUMBERS

    @property
    def held(self) -> bool:
        """Whether a thread holds the lock, or has its turn and was not yet woken."""
        return self.out > 0

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return max(0, self.out - 1)

    @property
    def plausible(self) -> bool:
        """Whether so many threads may take one lock."""
        return self.out <= MAX_TICKETS_OUT


class _Candidate(NamedTuple):
    tickets: Tickets
    good_looks: int


def parse_tickets(raw: bytes) -> Tickets | None:
    """Return the numbers that memory holds; None if it is too short, as that of a process that has ended is."""
    return Tickets(*TICKETS.unpack(raw)) if len(raw) == TICKETS.size else None


def parse_condition_wait(raw: bytes, machine: str) -> int | None:
    """Return where tickets precede the condition variable that a thread waits on; None if it does something else.

    `raw` is the content of its ``syscall`` (``202 0x5634be1e4630 0x189 0x0 ...``).
    """
    fields = raw.split(maxsplit=3)
    if len(fields) < 4 or fields[0] != FUTEX_CALLS.get(machine):
        return None
    try:
        word, operation = (int(field, 16) for field in fields[1:3])
    except ValueError:
        return None
    if operation & ~FUTEX_FLAGS not in FUTEX_WAITS:
        return None
    # The condition variable, like the tickets, begins at a multiple of eight.
    second = word % (2 * WORD_BYTES)
    before = SIGNALS_OFFSET_BYTES + TICKETS.size + second
    return word - before if second in (0, WORD_BYTES) and before <= word < 1 << 63 else None


class FairMutex:
    """The lock of one process: searched for while threads wait for it, then read."""

    def __init__(self, procfs: Path, pid: int) -> None:
        self._process = procfs / str(pid)
        self._machine = os.uname().machine
        self._memory: int | None = None
        self._address: int | None = None
        self._candidates: dict[int, _Candidate] = {}

    @property
    def found(self) -> bool:
        """Whether it is known where the lock is."""
        return self._address is not None

    def search(self, takers: Iterable[int]) -> None:
        """Look at what the threads that take the lock wait for; the lock is found after a few looks under contention.

        Raises OSError if the memory of the process may not be read.
        """
        self._open()
        addresses = dict.fromkeys(self._candidates)
        for tid in [*takers] * WAIT_LOOKS:
            with suppress(OSError):
                address = parse_condition_wait(read_bytes(f"{self._process}/task/{tid}/syscall"), self._machine)
                if address is not None and len(addresses) < MAX_CANDIDATES:
                    addresses[address] = None
        seen: dict[int, _Candidate] = {}
        for address in addresses:
            tickets = self._read(address)
            before = self._candidates.get(address)
            if tickets is None or not tickets.plausible:
                continue
            if before is None:
                seen[address] = _Candidate(tickets, 1)
            elif (tickets.turn - before.tickets.turn) % TICKET_NUMBERS in range(MIN_TURNS, TICKET_NUMBERS // 2):
                seen[address] = _Candidate(tickets, before.good_looks + 1)
        self._candidates = seen
        good = [address for address, one in seen.items() if one.good_looks >= MIN_GOOD_LOOKS]
        if len(good) == 1:
            self._address = good[0]

    def _open(self) -> None:
        """Open the memory of what the process runs now.

        It stays that of the program which ran when it was opened, and is empty once the process has replaced it
        (mem_open, fs/proc/base.c, Linux 6.1): an MDS that respawns keeps its pid.
        """
        memory = os.open(self._process / "mem", os.O_RDONLY | os.O_CLOEXEC)
        if self._memory is not None:
            os.close(self._memory)
        self._memory = memory

    def read(self) -> Tickets | None:
        """Return the state of the lock that was found; None, and it is lost, if there is none any more."""
        if self._address is None:
            return None
        tickets = self._read(self._address)
        if tickets is None or not tickets.plausible:
            self.close()  # it ended, or runs another program: an MDS that respawns keeps its pid
            return None
        return tickets

    def _read(self, address: int) -> Tickets | None:
        if self._memory is None:
            return None
        try:
            return parse_tickets(os.pread(self._memory, TICKETS.size, address))
        except OSError:
            return None

    def close(self) -> None:
        """Forget the lock, and close the memory of the process."""
        if self._memory is not None:
            os.close(self._memory)
        self._memory = self._address = None
        self._candidates = {}
