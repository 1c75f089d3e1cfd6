"""A ``ceph::fair_mutex``, such as the lock of an MDS (src/common/fair_mutex.h, Ceph 16.2.15).

It gives tickets: the number of the next ticket, the number whose turn it is, and behind them the condition variable on
which threads wait for their turn. Later releases that keep a list of waiters instead have no tickets there, and none
are found.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from pinchpoint.threads.lock_state import FutexWait, ProcessLock, Threads

__all__ = ["FairMutex", "Tickets", "parse_tickets", "tickets_before"]

CONDITION_WAITS = frozenset({0, 9})
"""FUTEX_WAIT and FUTEX_WAIT_BITSET (include/uapi/linux/futex.h): glibc waits on a condition variable by the latter
(nptl/futex-internal.c, glibc 2.36), older ones without a time-out by the former."""
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


class _Candidate(NamedTuple):
    tickets: Tickets
    good_looks: int


def parse_tickets(raw: bytes) -> Tickets | None:
    """Return the numbers that memory holds; None if it is too short, or more tickets are out than there are threads."""
    if len(raw) != TICKETS.size:
        return None
    tickets = Tickets(*TICKETS.unpack(raw))
    return tickets if tickets.out <= MAX_TICKETS_OUT else None


def tickets_before(wait: FutexWait) -> int | None:
    """Return where tickets precede the condition variable that a thread waits on; None if it waits otherwise."""
    if wait.operation not in CONDITION_WAITS:
        return None
    # The condition variable, like the tickets, begins at a multiple of eight.
    second = wait.word % (2 * WORD_BYTES)
    before = SIGNALS_OFFSET_BYTES + TICKETS.size + second
    return wait.word - before if second in (0, WORD_BYTES) and before <= wait.word else None


class FairMutex(ProcessLock[Tickets]):
    """The fair mutex of one process that takes turns all the time."""

    def __init__(self, procfs: Path, pid: int) -> None:
        super().__init__(procfs, pid, parse_tickets, TICKETS.size)
        self._candidates: dict[int, _Candidate] = {}

    def _look(self, threads: Threads) -> int | None:
        addresses = dict.fromkeys(self._candidates)
        for _, wait in self._waits(threads):
            address = tickets_before(wait) if wait is not None else None
            if address is not None and len(addresses) < MAX_CANDIDATES:
                addresses[address] = None
        seen: dict[int, _Candidate] = {}
        for address in addresses:
            tickets = self._state(address)
            before = self._candidates.get(address)
            if tickets is None:
                continue
            if before is None:
                seen[address] = _Candidate(tickets, 1)
            elif (tickets.turn - before.tickets.turn) % TICKET_NUMBERS in range(MIN_TURNS, TICKET_NUMBERS // 2):
                seen[address] = _Candidate(tickets, before.good_looks + 1)
        self._candidates = seen
        good = [address for address, one in seen.items() if one.good_looks >= MIN_GOOD_LOOKS]
        return good[0] if len(good) == 1 else None

    def _forget(self) -> None:
        self._candidates = {}
