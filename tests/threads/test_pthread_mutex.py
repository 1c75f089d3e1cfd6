from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.threads.lock_state import FUTEX_CALLS, FutexWait, Threads
from pinchpoint.threads.pthread_mutex import Mutex, PthreadMutex, mutex_at, parse_mutex
from polling import until

FUTEX = FUTEX_CALLS[os.uname().machine].decode()
LOCK, OTHER = 0x4000, 0x8000
WORKER, DISPATCH, LOG, NEW = 51, 52, 53, 54
THREADS = Threads({WORKER: "ceph-fuse", DISPATCH: "ms_dispatch"}, frozenset({LOG}))
LAYOUT = struct.Struct("=iIiIi")
TAKERS = """
import ctypes, sys, threading, time
libc, mutex = ctypes.CDLL(None), (ctypes.c_char * 40)()
hold, rest = (float(one) for one in sys.argv[1:])
held, began = [0.0], time.monotonic()
def take():
    while True:
        libc.pthread_mutex_lock(mutex)
        taken = time.monotonic()
        time.sleep(hold)
        held[0] += time.monotonic() - taken
        libc.pthread_mutex_unlock(mutex)
        time.sleep(rest)
for _ in range(3):
    threading.Thread(target=take, daemon=True).start()
print("begun", flush=True)
for _ in sys.stdin:
    print(held[0], time.monotonic(), flush=True)
"""
"""Three threads take one mutex; for each line of input, the seconds for which it was held so far, and the time."""


class Client:
    """A process whose threads wait for mutexes in its memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.lock = PthreadMutex(machine.procfs, 50)
        machine.process(50, "ceph-fuse", threads={51: "ceph-fuse", 52: "ms_dispatch"})

    def waits(self, tid: int, address: int | None) -> None:
        text = "running\n" if address is None else f"{FUTEX} {address:#x} 0x80 0x2 0x0 0x0 0x0 0x7f00 0x7f01\n"
        self.machine.write(f"proc/50/task/{tid}/syscall", text)

    def holds(self, owner: int, at: int = LOCK, *, word: int = 2, kind: int = 0) -> None:
        path = self.machine.procfs / "50" / "mem"
        path.touch()
        with path.open("r+b") as memory:
            memory.seek(at)
            memory.write(LAYOUT.pack(word, 0, owner, 1, kind))

    def look(self, waits: Sequence[int | None], owner: int) -> bool:
        """Search while the two threads wait at these addresses and another one holds both mutexes."""
        for tid, address in zip((51, 52), waits, strict=True):
            self.waits(tid, address)
        for address in (LOCK, OTHER):
            self.holds(owner, address)
        self.lock.search(THREADS)
        return self.lock.found


@pytest.fixture
def client(machine: Machine) -> Client:
    return Client(machine)


@pytest.mark.parametrize(
    ("wait", "address"),
    [
        (FutexWait(LOCK, 0, 2), LOCK),
        (FutexWait(LOCK, 9, 2), None),  # a condition variable
        (FutexWait(LOCK, 0, 0), None),
        (FutexWait(LOCK + 4, 0, 2), None),
    ],
)
def test_a_thread_waits_for_a_mutex_at_its_first_word(wait: FutexWait, address: int | None) -> None:
    assert mutex_at(wait) == address


@pytest.mark.parametrize(
    ("fields", "mutex"),
    [
        ((0, 0, 0, 0, 0), Mutex(0, 0)),
        ((2, 0, 1234, 1, 0), Mutex(2, 1234)),
        ((3, 0, 1234, 1, 0), None),
        ((1, 1, 1234, 1, 1), None),  # recursive
        ((1, 0, -1, 1, 0), None),
        ((1, 0, 1234, 1 << 20, 0), None),
    ],
)
def test_memory_is_taken_for_a_mutex_only_if_it_can_be_one(fields: Sequence[int], mutex: Mutex | None) -> None:
    assert parse_mutex(LAYOUT.pack(*fields)) == mutex


@given(st.binary(max_size=24))
def test_any_memory_holds_a_mutex_or_none(raw: bytes) -> None:
    mutex = parse_mutex(raw)

    assert mutex is None or (len(raw) == LAYOUT.size and mutex.word in range(3) and mutex.owner >= 0)


@pytest.mark.parametrize(
    ("waits", "owner"),
    [
        ((LOCK, LOCK), WORKER),
        ((LOCK, None), DISPATCH),  # one waits, another one holds it
    ],
)
def test_the_lock_is_the_mutex_that_different_takers_share(
    client: Client, waits: Sequence[int | None], owner: int
) -> None:
    assert not client.look(waits, owner)
    client.look(waits, owner)
    assert client.look(waits, owner) or client.lock.found
    client.holds(owner, word=1)
    assert client.lock.read() == Mutex(1, owner)


@pytest.mark.parametrize(
    ("waits", "owner"),
    [
        ((LOCK, None), WORKER),  # the workers' own
        ((LOCK, LOCK), LOG),  # a log's
        ((LOCK, LOCK), NEW),  # held by a thread that is not known
        ((LOCK, LOCK), 0),  # without an owner
        ((None, None), WORKER),
    ],
)
def test_other_mutexes_are_not_taken_for_the_lock(client: Client, waits: Sequence[int | None], owner: int) -> None:
    for _ in range(20):
        assert not client.look(waits, owner)
    assert client.lock.read() is None


def test_of_two_mutexes_that_takers_share_alike_neither_is_the_lock(client: Client) -> None:
    for owner in [WORKER, DISPATCH] * 20:
        assert not client.look((LOCK, OTHER), owner)


def test_the_lock_is_found_beside_a_mutex_that_is_waited_for_more_often(client: Client) -> None:
    for waits, owner in [((OTHER, OTHER), LOG)] * 10 + [((LOCK, OTHER), DISPATCH)] * 3:
        assert not client.lock.found
        client.look(waits, owner)

    assert client.lock.found
    client.holds(DISPATCH, word=1)
    assert client.lock.read() == Mutex(1, DISPATCH)


def test_a_thread_that_began_since_the_threads_were_listed_may_hold_the_lock(client: Client) -> None:
    for owner in (WORKER, NEW, 0):
        client.look((LOCK, LOCK), owner)

    assert client.lock.found


def test_what_was_seen_long_ago_is_forgotten(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.threads.pthread_mutex.MAX_WAITS", 16)
    for _ in range(2):
        client.look((LOCK, LOCK), LOG)

    assert [client.look((LOCK, LOCK), WORKER) for _ in range(2)] == [False, True]


def test_a_process_with_many_threads_is_not_looked_at_for_longer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def read(path: str) -> bytes:
        looked.append(path)
        return b"running\n"

    monkeypatch.setattr("pinchpoint.threads.lock_state.read_bytes", read)
    client.holds(WORKER)
    client.lock.search(Threads(dict.fromkeys(range(1000), "ceph-fuse"), frozenset()))

    assert len(set(looked)) == 64


def test_a_process_that_runs_another_program_loses_its_lock_and_it_is_found_again(client: Client) -> None:
    assert [client.look((LOCK, LOCK), WORKER) for _ in range(2)] == [False, True]
    client.holds(WORKER, kind=7)
    assert client.lock.read() is None
    assert not client.lock.found
    assert [client.look((LOCK, LOCK), WORKER) for _ in range(2)] == [False, True]


@contextmanager
def takers(hold: float, rest: float) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", TAKERS, str(hold), str(rest)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Return the seconds for which the mutex of a process was held, and the time, in seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    held, now = process.stdout.readline().split()
    return float(held), float(now)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read the memory of a process")
@pytest.mark.parametrize("rest", [0.02, 0.002], ids=["little", "much"])
def test_a_real_mutex_is_shown_as_held_for_as_long_as_it_is(rest: float) -> None:
    with takers(0.003, rest) as process:
        lock = PthreadMutex(Path("/proc"), process.pid)

        def found() -> bool:
            tids = sorted(int(name) for name in os.listdir(f"/proc/{process.pid}/task"))
            lock.search(Threads({tid: f"taker {tid}" for tid in tids}, frozenset()))
            return lock.found

        assert until(30, found, pause=0.01)
        before, began = told(process)
        looks = []
        for _ in range(300):
            looks.append(lock.read())
            time.sleep(0.004)
        after, ended = told(process)
        lock.close()

    held = sum(look is not None and look.held for look in looks)
    assert None not in looks
    assert held / len(looks) == pytest.approx((after - before) / (ended - began), abs=0.1)
