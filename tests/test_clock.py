from __future__ import annotations

import pytest

from pinchpoint.clock import STEADY, Clock

HOUR_SECONDS = 3600.0


class Hands:
    """A wall clock and a monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.monotonic = 500.0
        self.clock = Clock(lambda: self.wall, lambda: self.monotonic)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_it_shows_the_time_of_the_wall_clock() -> None:
    hands = Hands()
    hands.wait(10.0)

    assert hands.clock.now() == hands.wall
    assert hands.clock.ahead() == 0.0
    assert hands.clock.now() - hands.clock.offset == hands.monotonic


@pytest.mark.parametrize("step", [-HOUR_SECONDS, 24 * HOUR_SECONDS])
def test_a_wall_clock_that_is_set_changes_no_duration(step: float) -> None:
    hands = Hands()
    before = hands.clock.now()
    hands.wait(10.0)
    hands.wall += step
    hands.wait(4.0)

    assert hands.clock.now() - before == 14.0
    assert hands.clock.ahead() == step


def test_steps_add_up_and_each_is_the_same_at_every_look() -> None:
    hands = Hands()
    hands.wall += 60.0
    assert hands.clock.ahead() == 60.0

    hands.wall += 0.001
    assert hands.clock.ahead() == 60.0

    hands.wall -= 60.001
    assert hands.clock.ahead() == 0.0


def test_a_slewed_clock_is_not_one_that_was_set() -> None:
    hands = Hands()
    hands.wait(86_400.0)
    hands.wall += 0.9

    assert hands.clock.ahead() == 0.0


def test_the_clock_of_this_process_never_goes_back() -> None:
    times = [STEADY.now() for _ in range(1000)]

    assert times == sorted(times)
