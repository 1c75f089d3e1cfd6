"""Who makes chosen processes wait, in windows of time: the sums of path.bpf.c.

Between two windows nothing is attached, and nothing costs anything.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path

import msgspec

from pinchpoint.bpf.libbpf import BpfError, load
from pinchpoint.bpf.tasks import FIRST_NAMESPACE, pid_namespace
from pinchpoint.units import SECONDS_PER_NANOSECOND

__all__ = ["MAX_CHOSEN", "PROGRAMS", "Responsible", "Share", "Source", "ThreadTime", "Window", "Windows"]

MAX_CHOSEN = 1024
"""CHOSEN of path.bpf.c: how many processes can be chosen."""
MAX_SEEN_THREADS, MAX_THREAD_NAMES, MAX_CHOSEN_THREADS, MAX_SUMS = 8192, 4096, 4096, 8192
"""THREADS, CLASSES, OWN and CELLS: how many threads and names can be seen, chosen threads, and sums."""
FIRST_CLASS = 8
STATE = struct.Struct("=QQQQQQIIIIQQ")
"""``state``: epoch, start, budget, open, end, wakeups, classes, cells, owned, threads, lost, full."""
CLASS = struct.Struct("=I4x16s")
"""``struct class``: tgid, name."""
OWN = struct.Struct("=IIQQQQ")
"""``struct own``: tid, tgid, run, queued, waits, blocked."""
CELL = struct.Struct("=IHHQQ")
"""``struct cell``: own, class, via, time, queued."""
KEY, NUMBER = struct.Struct("=Q"), struct.Struct("=I")
PROGRAMS = (
    *("device_ends", "timer_ends", "softirq_ends", "device_begins", "timer_begins", "softirq_begins", "received"),
    *("switched", "waking", "begun", "renamed"),
)
"""In the order in which they are attached: the end of an interrupt whose beginning was seen must be seen too."""


class Source(Enum):
    """Whatever but a thread is responsible for a time."""

    BEFORE = 1
    """What happened before the window, or more than 32 wake-ups ago."""
    TIMER = 2
    DEVICE = 3
    """The interrupt of a device, or the softirq of block devices: a request that is done."""
    NETWORK = 4
    """A packet of another host."""
    INTERRUPT = 5
    """Any other interrupt."""


class Responsible(msgspec.Struct, frozen=True):
    """All threads of a process that have one name; of the kernel's threads, those whose names are equal up to a "/"."""

    tgid: int
    """0: of the kernel."""
    name: bytes


class Share(msgspec.Struct, frozen=True):
    """A part of what a thread waited for; times are in seconds."""

    by: Responsible | Source
    via: Responsible | None
    """Who was woken by it and went on; None: the waiting thread itself."""
    seconds: float
    queued: float
    """Of these, the time in which it could run and had no CPU."""


class ThreadTime(msgspec.Struct, frozen=True):
    """What a thread of a chosen process did in a window; times are in seconds."""

    tgid: int
    tid: int
    run: float
    queued: float
    waits: int
    shares: list[Share]
    """What it waited for, in waits that have ended."""
    pending: float
    """Its last wait, which had not ended."""


class Window(msgspec.Struct, frozen=True):
    """What was seen in a window."""

    seconds: float
    wakeups: int
    """Of all threads of the host, rounded down to 64 for each CPU."""
    threads: list[ThreadTime]
    lost: float
    """Seconds of waits for which there was no room."""
    full: int
    """How often a thread or a name found no room."""


class Windows:
    """Opens windows. Raises BpfError where it does not work."""

    def __init__(self, procfs: Path) -> None:
        if pid_namespace(procfs) != FIRST_NAMESPACE:
            raise BpfError("procfs shows a PID namespace of its own")
        self._chosen: set[int] = set()
        self._epoch = 0
        self._open()

    def _open(self) -> None:
        self._loaded = load("path")
        self._chosen.clear()
        try:
            self._state = self._loaded.memory(".bss")
            self._classes, self._own, self._cells = (self._loaded.memory(name) for name in ("classes", "own", "cells"))
        except BaseException:
            self._loaded.close()
            raise

    def open(self, processes: Collection[int], budget: int) -> None:
        """Begin a window about these processes, which ends by itself after `budget` wake-ups. Raises BpfError."""
        if len(processes) > MAX_CHOSEN:
            raise BpfError(f"{len(processes)} processes are too many")
        classes, threads = STATE.unpack_from(self._state)[6], STATE.unpack_from(self._state)[9]
        if 4 * threads > 3 * MAX_SEEN_THREADS or 4 * classes > 3 * MAX_THREAD_NAMES:
            self.close()
            self._open()
            classes = threads = 0
        for tgid in self._chosen - {*processes}:
            self._loaded.drop("chosen", NUMBER.pack(tgid))
        for tgid in {*processes} - self._chosen:
            self._loaded.put("chosen", NUMBER.pack(tgid), NUMBER.pack(1))
        self._chosen = {*processes}
        self._epoch += 1
        STATE.pack_into(self._state, 0, self._epoch, time.monotonic_ns(), budget, 1, 0, 0, classes, 0, 0, threads, 0, 0)
        self._loaded.attach(*PROGRAMS)

    @property
    def spent(self) -> bool:
        """Whether the window has ended by itself."""
        return not STATE.unpack_from(self._state)[3]

    def end(self) -> Window:
        """End the window, and return what was seen in it."""
        now = time.monotonic_ns()
        spent = self.spent
        self._state[24:32] = bytes(8)
        self._loaded.detach()
        _, start, _, _, ended, wakeups, _, cells, owned, _, lost, full = STATE.unpack_from(self._state)
        end = ended if spent else now
        found = Window(
            (end - start) * SECONDS_PER_NANOSECOND,
            wakeups,
            list(self._threads(min(owned, MAX_CHOSEN_THREADS), min(cells, MAX_SUMS), end)),
            lost * SECONDS_PER_NANOSECOND,
            full,
        )
        self._forget(min(owned, MAX_CHOSEN_THREADS), min(cells, MAX_SUMS))
        return found

    def _threads(self, owned: int, cells: int, end: int) -> Iterator[ThreadTime]:
        shares: dict[int, list[Share]] = {}
        for own, by, via, spent, queued in CELL.iter_unpack(self._cells[: cells * CELL.size]):
            who = self._responsible(by) if by >= FIRST_CLASS else Source(by)
            after = self._responsible(via) if via >= FIRST_CLASS else None
            share = Share(who, after, spent * SECONDS_PER_NANOSECOND, queued * SECONDS_PER_NANOSECOND)
            shares.setdefault(own, []).append(share)
        for number, one in enumerate(OWN.iter_unpack(self._own[: owned * OWN.size])):
            tid, tgid, run, queued, waits, blocked = one
            yield ThreadTime(
                tgid,
                tid,
                run * SECONDS_PER_NANOSECOND,
                queued * SECONDS_PER_NANOSECOND,
                waits,
                shares.get(number, []),
                max(0, end - blocked) * SECONDS_PER_NANOSECOND if blocked else 0.0,
            )

    def _responsible(self, number: int) -> Responsible:
        tgid, name = CLASS.unpack_from(self._classes, number * CLASS.size)
        return Responsible(tgid, name.partition(b"\0")[0])

    def _forget(self, owned: int, cells: int) -> None:
        for own, by, via, _, _ in CELL.iter_unpack(self._cells[: cells * CELL.size]):
            self._loaded.drop("cell_numbers", KEY.pack(own << 32 | by << 16 | via))
        self._cells[: cells * CELL.size] = bytes(cells * CELL.size)
        self._own[: owned * OWN.size] = bytes(owned * OWN.size)

    def statistics(self, program: str) -> tuple[int, int]:
        """Return the nanoseconds that a program ran and how often, while the kernel counts it (bpf_stats_enabled)."""
        return self._loaded.statistics(program)

    def close(self) -> None:
        """Remove the programs and maps from the kernel."""
        self._loaded.close()
