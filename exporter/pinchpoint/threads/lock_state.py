"""The state of a lock of another process, read from its memory: whether it is held, and how many threads wait for it.

Where it is follows from the address at which threads wait: that is in ``/proc/PID/task/TID/syscall`` (proc(5)). So a
lock is found while somebody waits for it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinchpoint.host.procfs import read_bytes

__all__ = ["FutexWait", "LockState", "ProcessLock", "Threads", "parse_futex_wait"]

FUTEX_CALLS = {"x86_64": b"202", "aarch64": b"98"}
"""Number of futex(2) by machine (asm/unistd_64.h, asm-generic/unistd.h)."""
FUTEX_FLAGS = 0x180
"""FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME (include/uapi/linux/futex.h)."""
WAIT_LOOKS = 4
"""Looks at what each thread waits for in one search: a wait for the lock is short, one for work is long."""


MAX_LOOKED_AT = 64
"""Threads that are looked at in one search: the oldest ones, to which the different kinds of work belong."""


class LockState(Protocol):
    """What a lock shows at one moment."""

    @property
    def held(self) -> bool:
        """Whether a thread holds it."""

    @property
    def waiting(self) -> int | None:
        """How many threads wait for it; None if it does not show that."""


State = TypeVar("State", bound=LockState)


class FutexWait(NamedTuple):
    """A thread's call of futex(2), in which it may wait."""

    word: int
    """Address of the word."""
    operation: int
    """Without flags."""
    value: int
    """What it expects the word to be."""


def parse_futex_wait(raw: bytes, machine: str) -> FutexWait | None:
    """Return the futex call in which a thread is, None if it does something else.

    `raw` is the content of its ``syscall`` (``202 0x5634be1e4630 0x189 0x0 ...``).
    """
    fields = raw.split(maxsplit=4)
    if len(fields) < 4 or fields[0] != FUTEX_CALLS.get(machine):
        return None
    try:
        word, operation, value = (int(field, 16) for field in fields[1:4])
    except ValueError:
        return None
    return FutexWait(word, operation & ~FUTEX_FLAGS, value) if 0 <= word < 1 << 63 else None


class Threads(NamedTuple):
    """The threads of a process."""

    takers: Mapping[int, str]
    """Names of those that take its lock, by TID."""
    others: frozenset[int]
    """TIDs of those that never do."""


class ProcessLock(ABC, Generic[State]):
    """The lock of one process: searched for while threads wait for it, then read."""

    def __init__(self, procfs: Path, pid: int, parse: Callable[[bytes], State | None], size: int) -> None:
        """Read the state from `size` bytes; `parse` returns None if no such lock can be there."""
        self._process = procfs / str(pid)
        self._machine = os.uname().machine
        self._memory: int | None = None
        self._address: int | None = None
        self._parse = parse
        self._size = size

    @abstractmethod
    def _look(self, threads: Threads) -> int | None:
        """Look once at what threads wait for; return where the lock is, once it is certain."""

    @abstractmethod
    def _forget(self) -> None:
        """Forget what earlier looks have seen."""

    @property
    def found(self) -> bool:
        """Whether it is known where the lock is."""
        return self._address is not None

    def search(self, threads: Threads) -> None:
        """Look at what the threads that take the lock wait for; the lock is found after a few looks under contention.

        Raises OSError if the memory of the process may not be read.
        """
        self._open()
        self._address = self._look(threads)

    def read(self) -> State | None:
        """Return the state of the lock that was found; None, and it is lost, if there is none any more."""
        if self._address is None:
            return None
        state = self._state(self._address)
        if state is None:
            self.close()  # it ended, or runs another program: an MDS that respawns keeps its pid
        return state

    def close(self) -> None:
        """Forget the lock, and close the memory of the process."""
        if self._memory is not None:
            os.close(self._memory)
        self._memory = self._address = None
        self._forget()

    def _waits(self, threads: Threads) -> Iterator[tuple[int, FutexWait | None]]:
        """Look a few times at threads that take the lock; yield the TID of each, and its wait if it is in futex(2)."""
        for tid in [*threads.takers][:MAX_LOOKED_AT] * WAIT_LOOKS:
            with suppress(OSError):
                yield tid, parse_futex_wait(read_bytes(f"{self._process}/task/{tid}/syscall"), self._machine)

    def _state(self, address: int) -> State | None:
        if self._memory is None:
            return None
        try:
            raw = os.pread(self._memory, self._size, address)
        except OSError:
            return None
        return self._parse(raw)

    def _open(self) -> None:
        """Open the memory of what the process runs now.

        It stays that of the program which ran when it was opened, and is empty once the process has replaced it
        (mem_open, fs/proc/base.c, Linux 6.1): an MDS that respawns keeps its pid.
        """
        memory = os.open(self._process / "mem", os.O_RDONLY | os.O_CLOEXEC)
        if self._memory is not None:
            os.close(self._memory)
        self._memory = memory
