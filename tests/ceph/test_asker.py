from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from functools import partial
from threading import Event, Thread
from threading import enumerate as threads

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.ceph import asker as module
from pinchpoint.ceph.asker import Asker, Awaited, next_round
from polling import until


class Socket:
    """Something to ask: a pipe in which the answer is one byte, or a round that blocks until it is let go."""

    def __init__(self, *, interval: float = 0.001, patience: float = 60.0) -> None:
        self.reading, self.writing = os.pipe()
        self.interval, self.patience = interval, patience
        self.free = Event()
        self.free.set()
        self.begun = self.answered = self.overdue = 0
        self.hung = self.left = False

    def round(self, now: float) -> Generator[Awaited, None, None]:
        self.begun += 1
        self.free.wait()
        deadline = now + self.patience
        yield Awaited(self.reading, deadline)
        if time.monotonic() >= deadline:
            self.overdue += 1
        else:
            os.read(self.reading, 1)
            self.answered += 1

    def pause(self) -> float:
        return self.interval

    def hang_up(self) -> None:
        self.left = True

    def hangs(self) -> None:
        self.hung = True

    def answer(self) -> None:
        os.write(self.writing, b".")


@pytest.fixture
def asker() -> Asker:
    return Asker()


@pytest.fixture
def sockets(asker: Asker) -> Iterator[list[Socket]]:
    found = [Socket() for _ in range(3)]
    yield found
    for socket in found:
        socket.free.set()
        asker.remove(socket)
    assert until(30, lambda: not running())
    for socket in found:
        os.close(socket.reading)
        os.close(socket.writing)


def answered(sockets: list[Socket], times: list[int]) -> bool:
    return [socket.answered for socket in sockets] == times


def running() -> int:
    return sum(thread.name == "ceph-asker" for thread in threads())


def test_one_that_does_not_answer_holds_up_no_other(asker: Asker, sockets: list[Socket]) -> None:
    silent, *others = sockets
    for socket in sockets:
        asker.add(socket)
    for times in range(1, 4):
        for socket in others:
            socket.answer()
        assert until(30, partial(answered, others, [times, times]))

    assert (silent.begun, silent.answered) == (1, 0)
    assert running() == 1


def test_a_round_goes_on_when_its_time_is_over(asker: Asker, sockets: list[Socket]) -> None:
    sockets[0].patience = 0.01
    asker.add(sockets[0])
    assert until(30, lambda: sockets[0].overdue >= 2)


def test_one_that_is_added_is_asked_at_once_while_the_thread_waits_for_another(
    asker: Asker, sockets: list[Socket]
) -> None:
    waiting, added, _ = sockets
    asker.add(waiting)
    assert until(30, lambda: waiting.begun)
    asker.add(added)
    assert until(30, lambda: added.begun)


def test_what_is_removed_is_hung_up_and_the_thread_ends_with_the_last(asker: Asker, sockets: list[Socket]) -> None:
    first, second, _ = sockets
    asker.add(first)
    asker.add(second)
    assert until(30, lambda: first.begun and second.begun)

    asker.remove(first)
    assert until(30, lambda: first.left)
    assert (second.left, running()) == (False, 1)
    asker.remove(second)
    assert until(30, lambda: not running())

    asker.add(first)
    assert until(30, lambda: first.begun == 2), "a new thread asks what is added later"


def test_one_that_blocks_keeps_its_thread_and_the_others_go_on_in_a_new_one(
    asker: Asker, sockets: list[Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLOCKED_SECONDS", 0.0)
    blocking, other, waiting = sockets
    asker.add(waiting)
    assert until(30, lambda: waiting.begun)
    blocking.free.clear()
    asker.add(blocking)
    assert until(30, lambda: blocking.begun)
    asker.add(other)
    other.answer()
    assert other.begun == 0

    asker.watch()

    assert until(30, lambda: other.answered)
    assert blocking.hung
    assert until(30, lambda: waiting.begun == 2), "a round that was waiting begins anew"
    assert running() == 2

    blocking.answer()
    blocking.free.set()
    assert until(30, lambda: blocking.answered), "it is asked on, by itself"

    monkeypatch.setattr(module, "MAX_BLOCKED_SECONDS", 60.0)
    assert until(30, lambda: blocking.begun == 2)
    asker.watch()
    assert (running(), blocking.begun) == (2, 2), "it blocked a moment ago"

    monkeypatch.setattr(module, "UNBLOCKED_SECONDS", 0.0)

    def alone() -> bool:
        asker.watch()
        return running() == 1

    assert until(30, alone), "it returns to the others"
    assert until(30, lambda: blocking.begun == 3)


def test_a_host_that_has_no_thread_left_says_so(
    asker: Asker, sockets: list[Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("no thread")))
        with pytest.raises(RuntimeError):
            asker.add(sockets[0])
    assert len(os.listdir("/proc/self/fd")) == before

    asker.add(sockets[0])
    assert until(30, lambda: sockets[0].begun)


@given(st.floats(0, 1e9), st.sampled_from([0.2, 0.5, 1.0, 60.0]))
def test_rounds_begin_at_multiples_of_their_interval_at_most_half_a_pause_early_or_late(
    now: float, pause: float
) -> None:
    found = next_round(now, pause)

    assert found / pause == pytest.approx(round(found / pause))
    assert 0.49 * pause < found - now < 1.51 * pause


def test_where_no_thread_is_left_for_the_others_they_are_marked_and_asked_later(
    asker: Asker, sockets: list[Socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BLOCKED_SECONDS", 0.0)
    blocking, other, removed = sockets
    blocking.free.clear()
    asker.add(blocking)
    assert until(30, lambda: blocking.begun)
    asker.add(other)
    asker.add(removed)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("no thread")))
        asker.watch()
    assert other.hung
    asker.remove(removed)

    asker.watch()

    assert until(30, lambda: other.begun)
    assert (removed.left, removed.begun) == (True, 0)
