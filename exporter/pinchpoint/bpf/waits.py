"""What threads wait for, from a timer in the kernel that looks at their stacks (waits.bpf.c).

The kernel sums up; user space reads the sums when it likes. Each process has its CPU time, run-queue wait, the time in
which none of its threads did anything, and the time by stack. User space says which stacks are those of parked threads,
once for each.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from pinchpoint.bpf.libbpf import BpfError, load
from pinchpoint.bpf.names import KernelNames
from pinchpoint.bpf.tasks import FIRST_NAMESPACE, LISTING_SLACK_NANOSECONDS, pid_namespace
from pinchpoint.units import SECONDS_PER_NANOSECOND

__all__ = ["MAX_WATCHED_PROCESSES", "MAX_WATCHED_THREADS", "Spent", "StackTime", "StackTimer", "Watch"]

MAX_WATCHED_THREADS, MAX_WATCHED_PROCESSES = 2048, 2048
"""THREADS and PROCESSES of waits.bpf.c: how many can be looked at."""
MIN_PERIOD_NANOSECONDS, MAX_PERIOD_NANOSECONDS = 50_000_000, 100_000_000
"""Between two looks: the first up to `FEW_THREADS`, and in proportion up to the second."""
FEW_THREADS = 64
THREAD = struct.Struct("=IIIIQQQQIIII")
"""``struct thread``: tid, tgid, process, flags, task, start, run, wait, stack, cell, unsure, queued."""
PROCESS = struct.Struct("=QQQQQQQII")
"""``struct process``: span, run, wait, parked, busy, active, unseen, doubt, unused."""
CELL = struct.Struct("=IHHQQ")
"""``struct cell``: process, stack, kind, time, looks."""
FRAMES = struct.Struct("=64Q")
TID, KIND = struct.Struct("=I"), struct.Struct("=Q")
ASKED = struct.Struct("=IIQQ")
"""The beginning of ``state``: threads, processes, period, since."""
COUNTS = struct.Struct("=QQIII")
"""Part of it: looks, took, stacks, cells, full."""
COUNTS_AT = ASKED.size + 16
PARKED, WAITS = 1, 2
"""Kinds of stacks."""
DOUBT, LOOKS = 1, 2
"""Kinds of cells."""
RANK, UNTRUSTED = 1, 2
"""Flags of threads."""
MANY_CELLS = 512
"""Cells from which all is forgotten when nothing is looked at any more."""


class Watch(NamedTuple):
    """A thread to look at."""

    tgid: int
    tid: int
    rank: bool = False
    """Whether it is the main thread of an MPI rank, whose stacks are counted also while it could run."""
    trusted: bool = True


class StackTime(NamedTuple):
    """What the threads of a process spent blocked in one stack."""

    stack: bytes
    """As ``/proc/PID/stack`` shows it; empty where it could not be read."""
    seconds: float
    looks: int
    rank_looks: int
    """Looks at the main thread of a rank in this stack, also while it could run."""


class Spent(NamedTuple):
    """What a process did since the last call; times are in seconds."""

    process: object
    """The key by which it is followed."""
    span: float
    """Time in which it is known what it did: less than the time passed while threads were never seen waiting."""
    run: float
    wait: float
    parked: float
    """Time in which none of its threads did anything."""
    busy: float
    """CPU time and run-queue wait of the main thread of a rank."""
    stacks: list[StackTime]


class StackTimer:
    """Looks at threads while there are any. Raises BpfError where it does not work.

    `parked` returns whether a stack is one of a parked thread: time in it is not that of its process.
    """

    def __init__(self, procfs: Path, parked: Callable[[bytes], bool]) -> None:
        if pid_namespace(procfs) != FIRST_NAMESPACE:
            raise BpfError("procfs shows a PID namespace of its own")
        self._parked = parked
        self._took = 0.0
        self._listed = 0
        self._names = KernelNames()
        try:
            self._open()
        except BaseException:
            self._names.close()
            raise

    def _open(self) -> None:
        self._loaded = loaded = load("waits")
        self._threads: dict[object, int] = {}
        self._processes: dict[object, int] = {}
        self._free = list(range(MAX_WATCHED_THREADS))
        self._free_processes = list(range(MAX_WATCHED_PROCESSES))
        self._before: dict[object, tuple[int, ...]] = {}
        self._cells: list[tuple[int, int]] = []
        self._stacks: list[tuple[bytes, bool]] = [(b"", True), (b"", False)]
        """Text of each stack, and whether it is one of parked threads."""
        self._running = self._closed = False
        try:
            self._state = loaded.memory(".bss")
            self._maps = {name: loaded.memory(name) for name in ("threads", "processes", "stacks", "kinds", "cells")}
            for number, (_, parked) in enumerate(self._stacks):
                self._mean(number, parked=parked)
        except BaseException:
            self._closed = True
            loaded.close()
            raise

    @property
    def seconds(self) -> float:
        """Seconds that all looks took so far."""
        if self._closed:
            return self._took
        _, took, *_ = COUNTS.unpack_from(self._state, COUNTS_AT)
        return self._took + int(took) * SECONDS_PER_NANOSECOND

    @property
    def full(self) -> bool:
        """Whether there was no room for a stack or a sum: since then some time is missing, until the next `follow`."""
        *_, full = COUNTS.unpack_from(self._state, COUNTS_AT)
        return bool(full)

    def follow(self, processes: Mapping[object, Mapping[object, Watch]]) -> None:
        """Look at these threads of these processes, and at no others; what is no longer followed is forgotten.

        A key stands for the same thread or process in each call. Call `collect` before. Raises BpfError for too many.
        """
        wanted = sum(map(len, processes.values()))
        if wanted > MAX_WATCHED_THREADS or len(processes) > MAX_WATCHED_PROCESSES:
            raise BpfError(f"{wanted} threads of {len(processes)} processes are too many")
        _, _, _, cells, _ = COUNTS.unpack_from(self._state, COUNTS_AT)
        if self.full or (not wanted and cells >= MANY_CELLS):
            self._end()
            self._open()
        there = {thread for threads in processes.values() for thread in threads}
        for thread in self._threads.keys() - there:
            number = self._threads.pop(thread)
            TID.pack_into(self._maps["threads"], number * THREAD.size, 0)
            heappush(self._free, number)
        for process in self._processes.keys() - processes.keys():
            heappush(self._free_processes, self._processes.pop(process))
            del self._before[process]
        for process, threads in processes.items():
            if process not in self._processes:
                self._processes[process] = heappop(self._free_processes)
                self._before[process] = self._totals(process)
            for thread, watch in threads.items():
                if thread not in self._threads:
                    self._threads[thread] = self._add(self._processes[process], watch)
        self._ask(wanted)

    def _ask(self, wanted: int) -> None:
        period = min(
            MAX_PERIOD_NANOSECONDS, max(MIN_PERIOD_NANOSECONDS, MIN_PERIOD_NANOSECONDS * wanted // FEW_THREADS)
        )
        highest = (max(numbers.values(), default=-1) for numbers in (self._threads, self._processes))
        ASKED.pack_into(self._state, 0, *(number + 1 for number in highest), period if wanted else 0, self._listed)
        self._listed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - LISTING_SLACK_NANOSECONDS
        if wanted and not self._running and self._loaded.run("begin"):
            raise BpfError("the timer does not start")
        self._running = wanted > 0

    def _add(self, process: int, watch: Watch) -> int:
        number = heappop(self._free)
        flags = watch.rank * RANK | (not watch.trusted) * UNTRUSTED
        memory, at = self._maps["threads"], number * THREAD.size
        THREAD.pack_into(memory, at, 0, watch.tgid, process, flags, *(0,) * 8)
        TID.pack_into(memory, at, watch.tid)  # from now on it is looked at
        return number

    def _totals(self, process: object) -> tuple[int, ...]:
        return PROCESS.unpack_from(self._maps["processes"], self._processes[process] * PROCESS.size)[:5]

    def collect(self) -> list[Spent]:
        """Return what each process did since the last call."""
        _, _, stacks, cells, _ = COUNTS.unpack_from(self._state, COUNTS_AT)
        for number in range(len(self._stacks), stacks):
            text = self._text(number)
            self._stacks.append((text, self._parked(text)))
            self._mean(number, parked=self._stacks[-1][1])
        # First the processes: time that is charged meanwhile is in the next call.
        after = {process: self._totals(process) for process in self._processes}
        spent, doubts = self._by_stack(cells)
        found = []
        for process, number in self._processes.items():
            span, run, wait, parked, busy = (
                (now - then) * SECONDS_PER_NANOSECOND
                for now, then in zip(after[process], self._before[process], strict=True)
            )
            parked += doubts.get(number, 0) * SECONDS_PER_NANOSECOND
            found.append(Spent(process, span, run, wait, parked, busy, spent.get(number, [])))
        self._before = after
        return found

    def _by_stack(self, cells: int) -> tuple[dict[int, list[StackTime]], dict[int, int]]:
        """Return by number of a process what was spent in each stack, and nanoseconds that turned out to be parked."""
        found: dict[int, list[StackTime]] = {}
        doubts: dict[int, int] = {}
        raw = bytes(memoryview(self._maps["cells"])[: cells * CELL.size])
        self._cells.extend([(0, 0)] * (cells - len(self._cells)))
        for number, (process, stack, kind, spent, looks) in enumerate(CELL.iter_unpack(raw)):
            before = self._cells[number]
            if before == (spent, looks) or stack >= len(self._stacks):
                continue  # a stack that has come meanwhile is in the next call
            self._cells[number] = spent, looks
            text, parked = self._stacks[stack]
            spent, looks = spent - before[0], looks - before[1]
            if kind == DOUBT:
                doubts[process] = doubts.get(process, 0) + spent * parked
            else:
                seconds, rank = spent * SECONDS_PER_NANOSECOND, kind == LOOKS
                one = StackTime(text, seconds, looks * (not rank), looks * rank)
                found.setdefault(process, []).append(one)
        return found, doubts

    def _mean(self, stack: int, *, parked: bool) -> None:
        KIND.pack_into(self._maps["kinds"], stack * KIND.size, PARKED if parked else WAITS)

    def _text(self, stack: int) -> bytes:
        addresses = FRAMES.unpack_from(self._maps["stacks"], stack * FRAMES.size)
        return b"".join(b"[<0>] %b\n" % self._names.called_from(address) for address in addresses if address)

    def _end(self) -> None:
        self._took, self._closed = self.seconds, True
        self._loaded.close()

    def close(self) -> None:
        """Remove the programs and maps from the kernel."""
        self._end()
        self._names.close()
