"""A mutex of glibc, such as the lock of a CephFS client (``Client::client_lock``, a std::mutex).

A thread that waits for one is in FUTEX_WAIT at its first word, which it expects to be 2: locked, with waiters
(nptl/lowlevellock.h, glibc 2.36). A process has many; the lock is the one that its takers wait for most of the time.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from pinchpoint.threads.lock_state import FutexWait, ProcessLock

__all__ = ["Mutex", "PthreadMutex", "mutex_at", "parse_mutex"]

FUTEX_WAIT = 0
LOCKED_WITH_WAITERS = 2
LAYOUT = struct.Struct("=iIiIi")
"""``__lock``, ``__count``, ``__owner``, ``__nusers``, ``__kind`` (sysdeps/nptl/bits/struct_mutex.h, glibc 2.36)."""
ALIGNMENT_BYTES = 8
TIMED = 0
"""PTHREAD_MUTEX_TIMED_NP, the kind of a std::mutex."""
MAX_USERS = 1 << 16
"""More threads than that do not use one mutex."""
MIN_WAITS = 12
"""Waits that have to be seen before the lock is told from other mutexes ..."""
MIN_WAITS_SHARE = 2 / 3
"""... and the share of them that has to be for it ..."""
MIN_DIFFERENT = 2
"""... by so many threads, while so many others hold it: an arena of malloc has no owner."""
MAX_WAITS = 10 * MIN_WAITS
"""Waits after which the count begins anew: the process may have done something else before."""


class Mutex(NamedTuple):
    """The state of a mutex."""

    word: int
    """0 if it is free, 1 if it is locked, 2 if threads may wait besides."""
    owner: int
    """TID of the thread that holds it, in the process' own PID namespace; 0 if it is free."""

    @property
    def held(self) -> bool:
        """Whether a thread holds it."""
        return self.word != 0

    @property
    def waiting(self) -> None:
        """It does not show how many threads wait."""
        return


class _Waits:
    """The waits for one mutex that were seen."""

    def __init__(self) -> None:
        self.number = 0
        self.waiters: set[int] = set()
        self.owners: set[int] = set()


def parse_mutex(raw: bytes) -> Mutex | None:
    """Return the state of a mutex that memory holds; None if it is too short, or holds something else."""
    if len(raw) != LAYOUT.size:
        return None
    word, count, owner, users, kind = LAYOUT.unpack(raw)
    plausible = 0 <= word <= LOCKED_WITH_WAITERS and owner >= 0 and users <= MAX_USERS
    return Mutex(word, owner) if plausible and (count, kind) == (0, TIMED) else None


def mutex_at(wait: FutexWait) -> int | None:
    """Return the address of the mutex that a thread waits for, None if it waits for something else."""
    waits = (wait.operation, wait.value) == (FUTEX_WAIT, LOCKED_WITH_WAITERS)
    return wait.word if waits and wait.word % ALIGNMENT_BYTES == 0 else None


class PthreadMutex(ProcessLock[Mutex]):
    """The mutex of one process that its takers wait for most."""

    SIZE_BYTES = LAYOUT.size

    def __init__(self, procfs: Path, pid: int) -> None:
        super().__init__(procfs, pid)
        self._seen: dict[int, _Waits] = {}

    def _parse(self, raw: bytes) -> Mutex | None:
        return parse_mutex(raw)

    def _look(self, takers: list[int]) -> int | None:
        for tid, wait in self._waits(takers):
            address = mutex_at(wait)
            if address is None or (state := self._state(address)) is None:
                continue
            seen = self._seen.setdefault(address, _Waits())
            seen.number += 1
            seen.waiters.add(tid)
            if state.owner:
                seen.owners.add(state.owner)
        total = sum(seen.number for seen in self._seen.values())
        if total < MIN_WAITS:
            return None
        address, most = max(self._seen.items(), key=lambda item: item[1].number)
        if most.number >= MIN_WAITS_SHARE * total and min(len(most.waiters), len(most.owners)) >= MIN_DIFFERENT:
            return address
        if total >= MAX_WAITS:
            self._forget()
        return None

    def _forget(self) -> None:
        self._seen = {}
