"""A mutex of glibc, such as the lock of a CephFS client (``Client::client_lock``, a std::mutex).

A thread that waits for one is in FUTEX_WAIT at its first word, which it expects to be 2: locked, with waiters
(nptl/lowlevellock.h, glibc 2.36). A process has many mutexes: which one is the lock follows from who holds it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from pinchpoint.threads.lock_state import FutexWait, ProcessLock, Threads

__all__ = ["Mutex", "PthreadMutex", "mutex_at", "parse_mutex"]

FUTEX_WAIT = 0
LOCKED_WITH_WAITERS = 2
LAYOUT = struct.Struct("=iIiIi")
"""``__lock``, ``__count``, ``__owner``, ``__nusers``, ``__kind`` (sysdeps/nptl/bits/struct_mutex.h, glibc 2.36)."""
ALIGNMENT_BYTES = 8
TIMED = 0
"""PTHREAD_MUTEX_TIMED_NP, the kind of a std::mutex."""
MAX_MUTEX_USERS = 1 << 16
"""More threads than that do not use one mutex."""
MIN_WAITS = 12
"""Waits for a mutex that have to be seen before it is taken for the lock ..."""
MIN_NAMES = 2
"""... by threads of so many names that wait for it or hold it: most mutexes belong to one kind of work ..."""
MIN_WAITS_SHARE = 2 / 3
"""... and its share of the waits for all such mutexes."""
HOLDER_LOOKS = 5
"""Looks at who holds each mutex for one look at what a thread waits for: some takers seldom hold the lock."""
MAX_WAITS = 2000
"""Waits after which the count begins anew: the process may have done something else before."""
MAX_MUTEXES = 8
"""Mutexes whose waits are counted."""


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


class _Seen:
    """What was seen of a mutex."""

    def __init__(self) -> None:
        self.waits = 0
        self.names: set[str] = set()
        """Of threads that waited for it or held it."""
        self.held = False
        """Whether a taker was seen to hold it: what looks like a mutex and is none has no owner."""


def parse_mutex(raw: bytes) -> Mutex | None:
    """Return the state of a mutex that memory holds; None if it is too short, or holds something else."""
    if len(raw) != LAYOUT.size:
        return None
    word, count, owner, users, kind = LAYOUT.unpack(raw)
    plausible = 0 <= word <= LOCKED_WITH_WAITERS and owner >= 0 and users <= MAX_MUTEX_USERS
    return Mutex(word, owner) if plausible and (count, kind) == (0, TIMED) else None


def mutex_at(wait: FutexWait) -> int | None:
    """Return the address of the mutex that a thread waits for, None if it waits for something else."""
    waits = (wait.operation, wait.value) == (FUTEX_WAIT, LOCKED_WITH_WAITERS)
    return wait.word if waits and wait.word % ALIGNMENT_BYTES == 0 else None


class PthreadMutex(ProcessLock[Mutex]):
    """The mutex of one process that its takers hold and wait for, and that no other thread holds.

    A log has a mutex of its own, a queue of completions one that the network's threads take, a pool of workers one that
    only they take: in ceph-fuse 16.2.15 these are more than half of all waits.
    """

    def __init__(self, procfs: Path, pid: int) -> None:
        super().__init__(procfs, pid, parse_mutex, LAYOUT.size)
        self._seen: dict[int, _Seen] = {}
        self._not_the_lock: set[int] = set()

    def _look(self, threads: Threads) -> int | None:
        for tid, wait in self._waits(threads):
            address = mutex_at(wait) if wait is not None else None
            if address is not None and (address in self._seen or len(self._seen) < MAX_MUTEXES):
                seen = self._seen.setdefault(address, _Seen())
                seen.waits += 1
                seen.names.add(threads.takers[tid])
            for _ in range(HOLDER_LOOKS):
                self._see_holders(threads)
        shared = {
            address: seen.waits
            for address, seen in self._seen.items()
            if seen.held and len(seen.names) >= MIN_NAMES and address not in self._not_the_lock
        }
        most = max(shared, key=shared.__getitem__, default=0)
        if most and shared[most] >= max(MIN_WAITS, MIN_WAITS_SHARE * sum(shared.values())):
            return most
        if sum(seen.waits for seen in self._seen.values()) >= MAX_WAITS:
            self._forget()
        return None

    def _see_holders(self, threads: Threads) -> None:
        """Look once at who holds each mutex. A thread that began since the threads were listed is unknown."""
        for address, seen in self._seen.items():
            mutex = self._state(address)
            if mutex is None or mutex.owner in threads.others:
                self._not_the_lock.add(address)
            elif name := threads.takers.get(mutex.owner):
                seen.names.add(name)
                seen.held = True

    def _forget(self) -> None:
        self._seen = {}
        self._not_the_lock = set()
