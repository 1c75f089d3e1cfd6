from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.threads.fair_mutex import FairMutex, Tickets, parse_tickets, tickets_before
from pinchpoint.threads.lock_state import FUTEX_CALLS, FutexWait, Threads, parse_futex_wait
from reader_seeds import WAITS_FOR_A_TURN

LOCK = 0x4000
THREADS = Threads({51: "ms_dispatch", 52: "MR_Finisher"}, frozenset())
FUTEX = FUTEX_CALLS[os.uname().machine].decode()


class Daemon:
    """A process with threads that wait for a lock, and memory that holds its tickets."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.lock = FairMutex(machine.procfs, 50)
        machine.process(50, "ceph-mds", threads={51: "ms_dispatch", 52: "MR_Finisher"})
        self.waits(51, LOCK + 48)
        self.waits(52, None)
        self.tickets(0, 0)

    def waits(self, tid: int, address: int | None) -> None:
        text = "running\n" if address is None else f"{FUTEX} {address:#x} 0x189 0x0 0x0 0x0 0xffffffff 0x7f00 0x7f01\n"
        self.machine.write(f"proc/50/task/{tid}/syscall", text)

    def tickets(self, following: int, turn: int, at: int = LOCK) -> None:
        path = self.machine.procfs / "50" / "mem"
        path.touch()
        with path.open("r+b") as memory:
            memory.seek(at)
            memory.write(struct.pack("=II", following % 2**32, turn % 2**32) + bytes(64))

    def sees(self, *seen: tuple[int, int]) -> bool:
        """Search once for each state of the lock; return whether it was found."""
        for following, turn in seen:
            self.tickets(following, turn)
            self.lock.search(THREADS)
        return self.lock.found


@pytest.fixture
def daemon(machine: Machine) -> Daemon:
    return Daemon(machine)


@pytest.mark.parametrize("word", [b"630 ", b"634 "])
def test_tickets_precede_the_condition_variable_that_a_thread_waits_on(word: bytes) -> None:
    wait = parse_futex_wait(WAITS_FOR_A_TURN.replace(b"634 ", word), "x86_64")

    assert wait is not None
    assert tickets_before(wait) == 0x5634BE1E4600


@pytest.mark.parametrize(
    "wait",
    [
        FutexWait(0x5634BE1E4630, 1, 0),  # FUTEX_WAKE
        FutexWait(0x5634BE1E4632, 9, 0),
        FutexWait(0x8, 9, 0),
    ],
)
def test_a_thread_that_does_something_else_waits_for_no_turn(wait: FutexWait) -> None:
    assert tickets_before(wait) is None


@pytest.mark.parametrize(
    ("tickets", "held", "waiting"),
    [((7, 7), False, 0), ((8, 7), True, 0), ((11, 7), True, 3), ((2, 2**32 - 1), True, 2)],
)
def test_a_lock_is_held_as_long_as_tickets_are_out(tickets: tuple[int, int], held: bool, waiting: int) -> None:
    found = Tickets(*tickets)

    assert (found.held, found.waiting) == (held, waiting)


@given(st.binary(max_size=12))
def test_any_memory_holds_few_tickets_or_none(raw: bytes) -> None:
    tickets = parse_tickets(raw)

    assert tickets is None or (len(raw) == 8 and tickets.out <= 64)


def test_a_lock_is_found_when_numbers_behave_like_tickets_three_times(daemon: Daemon) -> None:
    assert not daemon.sees((100, 98), (200, 199))
    assert daemon.sees((300, 300))
    daemon.tickets(412, 410)
    assert daemon.lock.read() == Tickets(412, 410)


def test_it_is_found_across_the_end_of_its_numbers(daemon: Daemon) -> None:
    assert daemon.sees((2**32 - 5, 2**32 - 6), (30, 29), (90, 90))


@pytest.mark.parametrize(
    "seen",
    [
        [(100, 99)] * 5,  # nobody takes turns
        [(100, 99), (101, 100), (102, 101), (103, 102)],  # too slow to be sure
        [(500, 400), (700, 600), (900, 800), (1100, 1000)],  # more waiters than an MDS has threads
        [(100, 101), (200, 201), (300, 301), (400, 401)],  # a turn before its ticket
        [(400, 399), (300, 299), (200, 199), (100, 99)],  # they fall
    ],
)
def test_other_numbers_are_not_taken_for_a_lock(daemon: Daemon, seen: Sequence[tuple[int, int]]) -> None:
    assert not daemon.sees(*seen)
    assert daemon.lock.read() is None


def test_the_lock_of_a_process_that_respawned_while_it_was_searched_for_is_found(daemon: Daemon) -> None:
    assert not daemon.sees((100, 98))
    (daemon.machine.procfs / "50" / "mem").unlink()

    assert daemon.sees((10, 9), (100, 98), (200, 199), (300, 300))


def test_two_places_that_behave_so_are_told_apart_by_nobody(daemon: Daemon) -> None:
    other = LOCK + 0x1000
    daemon.waits(52, other + 52)
    for number in range(100, 600, 100):
        daemon.tickets(number, number - 1, other)
        assert not daemon.sees((number, number - 1))


def test_a_process_that_runs_another_program_loses_its_lock_and_it_is_found_again(daemon: Daemon) -> None:
    assert daemon.sees((100, 98), (200, 199), (300, 300))
    daemon.tickets(3_000_000_000, 5)
    assert daemon.lock.read() is None
    assert not daemon.lock.found
    assert daemon.sees((100, 98), (200, 199), (300, 300))


def test_a_process_that_has_ended_has_no_lock_and_raises_when_it_is_searched(daemon: Daemon) -> None:
    assert daemon.sees((100, 98), (200, 199), (300, 300))
    (daemon.machine.procfs / "50" / "mem").write_bytes(b"")
    assert daemon.lock.read() is None
    daemon.machine.end(50)
    with pytest.raises(FileNotFoundError):
        daemon.lock.search(THREADS)
