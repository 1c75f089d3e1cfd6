from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pinchpoint.threads.lock_state import FutexWait, parse_futex_wait
from reader_seeds import WAITS_FOR_A_MUTEX, WAITS_FOR_A_TURN


@pytest.mark.parametrize(
    ("raw", "wait"),
    [(WAITS_FOR_A_TURN, FutexWait(0x5634BE1E4634, 9, 0)), (WAITS_FOR_A_MUTEX, FutexWait(0x55E4AC22A120, 0, 2))],
)
def test_a_wait_has_the_address_of_its_word_and_what_it_should_be(raw: bytes, wait: FutexWait) -> None:
    assert parse_futex_wait(raw, "x86_64") == wait


@pytest.mark.parametrize(
    "raw",
    [
        b"running\n",
        b"-1 0x7ffc 0x7f\n",
        b"7 0x5634be1e4630 0x189 0x0\n",  # poll(2)
        b"202 0xffffffffffffffff0 0x189 0x0 0x0 0x0 0x0 0x7f 0x7f\n",
        b"202 x y z\n",
        b"202 0x5634be1e4630 0x189",
        b"",
    ],
)
def test_a_thread_that_does_something_else_is_in_no_futex_call(raw: bytes) -> None:
    assert parse_futex_wait(raw, "x86_64") is None


def test_on_a_machine_whose_futex_call_is_not_known_nobody_waits() -> None:
    assert parse_futex_wait(WAITS_FOR_A_TURN, "riscv64") is None


@given(
    st.binary(max_size=80) | st.builds(bytes.replace, st.just(WAITS_FOR_A_TURN), st.just(b"0"), st.binary(max_size=3))
)
@example(WAITS_FOR_A_TURN)
def test_any_line_gives_an_address_of_user_space_or_none(raw: bytes) -> None:
    wait = parse_futex_wait(raw, "x86_64")

    assert wait is None or 0 <= wait.word < 1 << 63
