from __future__ import annotations

from threading import Lock, Thread

import pytest

from blocked import all_wait
from pinchpoint.wire.single_flight import SingleFlight
from polling import until


def test_callers_that_ask_at_the_same_moment_share_one_computation() -> None:
    callers: list[Thread] = []
    computed: list[str] = []
    results: list[str] = []

    def compute(key: str) -> str:
        computed.append(key)
        assert until(10, lambda: callers and all_wait(callers), 0.001)
        return f"result of {key}"

    shared = SingleFlight(compute)

    def call() -> None:
        results.append(shared("a"))

    first = Thread(target=call)
    first.start()
    assert until(10, lambda: computed, 0.001)
    later = [Thread(target=call) for _ in range(20)]
    for caller in later:
        caller.start()
    callers += later
    for caller in (first, *callers):
        caller.join()

    assert computed == ["a"]
    assert results == ["result of a"] * 21


def test_who_asks_later_gets_a_new_result() -> None:
    numbers = iter(range(9))
    shared: SingleFlight[str, int] = SingleFlight(lambda key: next(numbers))

    assert [shared("a"), shared("a"), shared("b")] == [0, 1, 2]


def test_an_error_is_raised_for_the_callers_and_not_kept() -> None:
    answers = iter([ZeroDivisionError("first"), None])

    def compute(key: str) -> str:
        if error := next(answers):
            raise error
        return "second"

    shared = SingleFlight(compute)
    with pytest.raises(ZeroDivisionError, match="first"):
        shared("a")

    assert shared("a") == "second"


def test_different_keys_are_computed_one_after_the_other() -> None:
    running = Lock()
    together: list[bool] = []

    def compute(key: int) -> int:
        together.append(not running.acquire(blocking=False))
        running.release()
        return key

    shared = SingleFlight(compute)
    threads = [Thread(target=shared, args=(key,)) for key in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert together == [False] * 20
