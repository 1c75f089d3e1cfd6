"""Observes the locks of an MDS and of ceph-fuse, and stops exactly the thread that holds the former.

All other threads run, and the lock stays taken. mds_lock is a ceph::fair_mutex (ceph 16.2.15, src/common/fair_mutex.h):
the next ticket, the ticket whose turn it is, and a condition variable on which the threads wait for their turn. The
address that a thread waits on is in /proc/PID/task/TID/syscall (proc(5)), so under load the lock's address is the one
on which threads of several names wait. The holder is the thread that, while stopped, leaves a waiter waiting.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.cluster import Daemon, LabError
from patience import Deadline

__all__ = ["TAKERS", "client_lock_watch", "freeze_lock_holder", "lock_watch", "stopped"]

TAKERS = {"ms_dispatch", "MR_Finisher", "PQ_Finisher", "safe_timer", "mds_rank_progr"}
"""Names of the threads that take mds_lock."""
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
CONDITION_BYTES = 48
"""sizeof(pthread_cond_t) of glibc: its waiters wait on one of two words inside."""
TICKETS = struct.Struct("=II")
MOST_WAITERS = 32
SEARCH_SECONDS = 90.0
MANY_WAITS = 20
HELD_SECONDS = 0.3
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4206, 0x4207
WALL = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


@contextlib.contextmanager
def freeze_lock_holder(mds: Daemon) -> Iterator[int]:
    """Keep mds_lock taken during the block, by stopping the thread that holds it; give its TID.

    The MDS must be under a load of several clients. The stopped thread resumes after the block, or when the thread that
    entered the block ends; only that thread may leave the block (ptrace(2)).
    """
    deadline = Deadline(SEARCH_SECONDS)
    lock = _find_lock(mds.pid, deadline)
    while not deadline.over:
        # A thread that waits on a futex waits for the lock, or for work.
        takers = [tid for tid, name in _takers(mds.pid) if name != "safe_timer" and _futex(mds.pid, tid) is None]
        if not takers:
            continue
        tid = random.choice(takers)
        with stopped(tid):
            # It may hold another lock at the moment, such as the allocator's, which all threads need.
            if _is_kept_waiting(mds.pid, tid, lock) and _answers(mds):
                yield tid
                return
    raise LabError(f"Found no thread of {mds.name} that holds mds_lock in {SEARCH_SECONDS:.0f} s; is it under load?")


def _answers(mds: Daemon) -> bool:
    try:
        return "mds_log" in mds.ask("perf dump", timeout=2.0)
    except OSError:
        return False


@contextlib.contextmanager
def lock_watch(mds: Daemon) -> Iterator[Callable[[], bool]]:
    """Give a function that returns whether mds_lock is held now, read from the MDS's memory without stopping it.

    The MDS must be under a load of several clients.
    """
    deadline = Deadline(SEARCH_SECONDS)
    condition = _find_lock(mds.pid, deadline)
    with open(f"/proc/{mds.pid}/mem", "rb", buffering=0) as memory:

        def tickets(address: int) -> tuple[int, int]:
            following, turn = TICKETS.unpack(os.pread(memory.fileno(), TICKETS.size, address))
            return following, turn

        def are_tickets(address: int) -> bool:
            """Return whether there are two growing numbers here, the second behind the first by a few waiters."""
            seen = []
            for _ in range(10):
                seen.append(tickets(address))
                time.sleep(0.01)
            few = all((following - turn) % 2**32 <= MOST_WAITERS for following, turn in seen)
            return few and seen[0] < seen[-1]

        # They precede the condition variable; only some address inside that is known.
        near = range(condition - TICKETS.size - CONDITION_BYTES, condition, TICKETS.size // 2)
        while (address := next(filter(are_tickets, near), None)) is None:
            if deadline.over:
                raise LabError(f"Found no tickets of mds_lock in {mds.name}; is it under load?")

        def is_held() -> bool:
            following, turn = tickets(address)
            return following != turn

        yield is_held


@contextlib.contextmanager
def client_lock_watch(pid: int) -> Iterator[Callable[[], bool]]:
    """Give a function that returns whether client_lock of a ceph-fuse is held now, read from its memory.

    Data must be written through it: the lock is the mutex that its flusher waits for (ObjectCacher::flusher_entry).
    """
    deadline = Deadline(SEARCH_SECONDS)
    tasks = Path(f"/proc/{pid}/task")
    (flusher,) = (task for task in tasks.iterdir() if (task / "comm").read_text().strip() == "flusher")
    waits: Counter[int] = Counter()
    while waits.total() < MANY_WAITS:
        if (address := _mutex(flusher)) is not None:
            waits[address] += 1
        if deadline.over:
            raise LabError(f"The flusher of ceph-fuse {pid} waits for no mutex; is data written through it?")
    ((mutex, _),) = waits.most_common(1)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        yield lambda: bool(int.from_bytes(os.pread(memory.fileno(), 4, mutex), "little"))


def _mutex(task: Path) -> int | None:
    """Return the address of the mutex that a thread waits for: one whose first word it expects to be 2 (glibc)."""
    try:
        fields = (task / "syscall").read_text().split()
    except OSError:
        return None
    if fields[0] != str(SYS_FUTEX.get(os.uname().machine)) or fields[2:4] not in (["0x0", "0x2"], ["0x80", "0x2"]):
        return None
    return int(fields[1], 16)


def _find_lock(pid: int, deadline: Deadline) -> int:
    """Return the address at which threads of different names wait: that of the lock's condition variable."""
    names: defaultdict[int, set[str]] = defaultdict(set)
    counts: defaultdict[int, int] = defaultdict(int)
    enough = time.monotonic() + 1.0
    while not deadline.over:
        for tid, name in _takers(pid):
            if (address := _futex(pid, tid)) is not None:
                near = next((known for known in names if abs(known - address) < CONDITION_BYTES), address)
                names[near].add(name)
                counts[near] += 1
        shared = [address for address, found in names.items() if len(found) > 1]
        if shared and time.monotonic() > enough:
            return max(shared, key=lambda address: (len(names[address]), counts[address]))
    raise LabError("No two threads of the MDS waited for one lock; is it under load?")


def _is_kept_waiting(pid: int, holder: int, lock: int) -> bool:
    """Return whether some thread waits for the lock without being woken, for much longer than any holder keeps it."""
    time.sleep(0.01)
    before = _waiters(pid, holder, lock)
    if not before:
        return False
    deadline = Deadline(HELD_SECONDS)
    while not deadline.over:
        time.sleep(0.02)
        if not before.items() <= _waiters(pid, holder, lock).items():
            return False
    return True


def _waiters(pid: int, holder: int, lock: int) -> dict[int, str]:
    """Return the threads that wait for the lock, with the number of context switches of each."""
    found = {}
    for tid, _ in _takers(pid):
        address = _futex(pid, tid) if tid != holder else None
        if address is not None and abs(address - lock) < CONDITION_BYTES:
            with contextlib.suppress(OSError):
                found[tid] = Path(f"/proc/{pid}/task/{tid}/status").read_text().partition("voluntary_ctxt")[2]
    return found


def _takers(pid: int) -> list[tuple[int, str]]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (name := (task / "comm").read_text().strip()) in TAKERS:
                found.append((int(task.name), name))
    return found


def _futex(pid: int, tid: int) -> int | None:
    """Return the address on which a thread waits, or None if it does something else."""
    try:
        fields = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
    except OSError:
        return None
    return int(fields[1], 16) if fields[0] == str(SYS_FUTEX.get(os.uname().machine)) else None


@contextlib.contextmanager
def stopped(tid: int) -> Iterator[None]:
    """Stop one thread; the calling thread becomes its tracer."""
    _ptrace(PTRACE_SEIZE, tid)
    try:
        _ptrace(PTRACE_INTERRUPT, tid)
        while True:
            _, status = os.waitpid(tid, WALL)
            if status >> 16 or not os.WIFSTOPPED(status) or os.WSTOPSIG(status) == signal.SIGTRAP:
                break
            _ptrace(PTRACE_CONT, tid, os.WSTOPSIG(status))  # another signal came first
        yield
    finally:
        with contextlib.suppress(OSError):
            _ptrace(PTRACE_DETACH, tid)


def _ptrace(request: int, tid: int, data: int = 0) -> None:
    if _libc.ptrace(request, tid, None, data or None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
