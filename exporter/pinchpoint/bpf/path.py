"""Who makes chosen processes wait, in windows of time: the sums of path.bpf.c.

Between two windows nothing is attached, and nothing costs anything.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection
from enum import Enum
from ipaddress import IPv6Address
from pathlib import Path

import msgspec

from pinchpoint.bpf.libbpf import BpfError, load
from pinchpoint.bpf.tasks import FIRST_NAMESPACE, pid_namespace
from pinchpoint.units import SECONDS_PER_NANOSECOND

__all__ = [
    *("MAX_CHOSEN", "OUTSIDE", "PROGRAMS"),
    *("Answers", "Endpoint", "Responsible", "Share", "Source", "ThreadTime", "Window", "Windows"),
]

MAX_CHOSEN = 1024
"""CHOSEN of path.bpf.c: how many processes can be chosen."""
MAX_SEEN_THREADS, MAX_THREAD_NAMES, MAX_OWN, MAX_SUMS = 8192, 4096, 4096, 8192
"""THREADS, CLASSES, OWN and CELLS: how many threads and names can be seen, chosen threads with ends of connections, and
sums."""
MAX_USED_SHARE = 0.75
"""Share of the names from which the next window begins with empty maps."""
MAX_LISTENING = 4096
"""LISTENING: how many ports of servers."""
OUTSIDE = 0xFFFFFFFD
"""`tgid` of processes that are not in the PID namespace of the procfs."""
FIRST_CLASS = 8
PEER, HERE = 0xFFFFFFFF, 0xFFFFFFFE
"""``tgid`` of classes that are the end of a connection."""
STATE = struct.Struct("=QQQQQQIIIIQQIIQI")
"""``state``: epoch, start, budget, open, end, wakeups, classes, cells, owned, threads, lost, full, endpoints,
namespace, spent, network."""
CLASS = struct.Struct("=II16s")
"""``struct class``: tgid, port, name."""
OWN = struct.Struct("=IIQQQQ")
"""``struct own``: tid, tgid, run, queued, waits, blocked; tid 0 is the end of a connection, then tgid is its class."""
CELL = struct.Struct("=IHHQQ")
"""``struct cell``: own, class, via, time, queued."""
KEY, NUMBER = struct.Struct("=Q"), struct.Struct("=I")
PROGRAMS = (
    *("device_ends", "timer_ends", "softirq_ends", "device_begins", "timer_begins", "softirq_begins", "received"),
    *("arrived", "sent", "switched", "waking", "begun", "renamed"),
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
    """A packet of a client on another host, or one that belongs to no established TCP connection."""
    INTERRUPT = 5
    """Any other interrupt."""


class Responsible(msgspec.Struct, frozen=True):
    """All threads of a process that have one name; of the kernel's threads, those whose names are equal up to a "/"."""

    tgid: int
    """0: of the kernel; OUTSIDE: not in the PID namespace."""
    name: bytes


class Endpoint(msgspec.Struct, frozen=True):
    """The end of TCP connections that is a server's: somebody listens at its port, which both hosts can tell."""

    address: bytes
    """16 bytes: an IPv6 address, or an IPv4 address that is mapped into one (RFC 4291, 2.5.5.2)."""
    port: int

    def __str__(self) -> str:
        address = IPv6Address(self.address)
        mapped = address.ipv4_mapped
        shown = str(address if mapped is None else mapped)
        return f"{shown}:{self.port}" if mapped is not None else f"[{shown}]:{self.port}"


class Share(msgspec.Struct, frozen=True):
    """A part of what a thread waited for, or of what went before an answer; times are in seconds."""

    by: Responsible | Source | Endpoint
    """An endpoint is that of another host, which was to answer."""
    via: Responsible | Endpoint | None
    """Who was woken by it and went on; None: the waiting thread itself, or who got the answer."""
    seconds: float
    queued: float
    """Of these, the time in which it could run and did not."""


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


class Answers(msgspec.Struct, frozen=True):
    """Answers to requests that came over TCP connections from another host, or that went there.

    Of what a peer answers, there are no shares: it is not seen here what it does.
    """

    end: Endpoint
    """Of whom the answers are."""
    here: bool
    """Whether that is this host."""
    number: int
    seconds: float
    """From the arrival of each request to its answer; of a peer, from the sending of a request to its answer."""
    shares: list[Share]


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
    answers: list[Answers] = []
    """Of each end of connections."""
    spent: int = 0
    """Of the budget: wake-ups, and packets as the wake-ups that cost as much; rounded down as they are."""


class Windows:
    """Opens windows. Raises BpfError where it does not work."""

    def __init__(self, procfs: Path) -> None:
        namespace = pid_namespace(procfs)
        self._namespace = 0 if namespace == FIRST_NAMESPACE else namespace
        self._chosen: set[int] = set()
        self._listening: set[int] = set()
        self._epoch = 0
        self._open()

    def _open(self) -> None:
        self._loaded = load("path")
        self._chosen, self._listening = set(), set()
        try:
            self._state = self._loaded.memory(".bss")
            self._classes, self._own, self._cells = (self._loaded.memory(name) for name in ("classes", "own", "cells"))
        except BaseException:
            self._loaded.close()
            raise

    def open(self, processes: Collection[int], budget: int, listening: Collection[int] = ()) -> None:
        """Begin a window about these processes. Raises BpfError.

        `listening` are the TCP ports at which somebody listens in this process' network namespace. The window ends by
        itself after `budget` wake-ups, or as many times eight packets of other hosts, or some of both.
        """
        if len(processes) > MAX_CHOSEN:
            raise BpfError(f"{len(processes)} processes are too many")
        classes, threads, endpoints = (STATE.unpack_from(self._state)[at] for at in (6, 9, 12))
        if max(threads / MAX_SEEN_THREADS, classes / MAX_THREAD_NAMES) > MAX_USED_SHARE:
            self.close()
            self._open()
            classes = threads = endpoints = 0
        self._chosen = self._put("chosen", self._chosen, {*processes})
        self._listening = self._put("listening", self._listening, {*sorted(listening)[:MAX_LISTENING]})
        self._epoch += 1
        begun = self._epoch, time.monotonic_ns(), budget, 1, 0, 0, classes, 0, 0, threads, 0, 0
        STATE.pack_into(self._state, 0, *begun, endpoints, self._namespace, 0, os.stat("/proc/self/ns/net").st_ino)
        self._loaded.attach(*PROGRAMS)

    def _put(self, name: str, before: set[int], now: set[int]) -> set[int]:
        """Let a map have these numbers instead of those before; return them."""
        for number in before - now:
            self._loaded.drop(name, NUMBER.pack(number))
        for number in now - before:
            self._loaded.put(name, NUMBER.pack(number), NUMBER.pack(1))
        return now

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
        state = STATE.unpack_from(self._state)
        _, start, _, _, ended, wakeups, _, cells, owned, _, lost, full, _, _, used, _ = state
        end = ended if spent else now
        cells, owned = min(cells, MAX_SUMS), min(owned, MAX_OWN)
        shares = self._shares(cells)
        threads: list[ThreadTime] = []
        answers: dict[tuple[Endpoint, bool], Answers] = {}
        for number, one in enumerate(OWN.iter_unpack(self._own[: owned * OWN.size])):
            tid, tgid, run, queued, waits, blocked = one
            parts = shares.get(number, [])
            if tid:
                pending = max(0, end - blocked) if blocked else 0
                threads.append(ThreadTime(tgid, tid, _seconds(run), _seconds(queued), waits, parts, _seconds(pending)))
            elif waits and isinstance(at := self._class(tgid), Endpoint):
                here = CLASS.unpack_from(self._classes, tgid * CLASS.size)[0] == HERE
                known = answers.get((at, here), Answers(at, here, 0, 0.0, []))
                took = sum(part.seconds for part in parts) if here else _seconds(run)
                answers[at, here] = Answers(at, here, known.number + waits, known.seconds + took, known.shares + parts)
        self._forget(owned, cells)
        return Window(_seconds(end - start), wakeups, threads, _seconds(lost), full, list(answers.values()), used)

    def _shares(self, cells: int) -> dict[int, list[Share]]:
        """Return the shares by the number of whom they belong to."""
        found: dict[int, list[Share]] = {}
        for own, by, via, spent, queued in CELL.iter_unpack(self._cells[: cells * CELL.size]):
            who = self._class(by) if by >= FIRST_CLASS else Source(by)
            after = self._class(via) if via >= FIRST_CLASS else None
            found.setdefault(own, []).append(Share(who, after, _seconds(spent), _seconds(queued)))
        return found

    def _class(self, number: int) -> Responsible | Endpoint:
        tgid, port, name = CLASS.unpack_from(self._classes, number * CLASS.size)
        return Endpoint(name, port) if tgid in (PEER, HERE) else Responsible(tgid, name.partition(b"\0")[0])

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


def _seconds(nanoseconds: int) -> float:
    return nanoseconds * SECONDS_PER_NANOSECOND
