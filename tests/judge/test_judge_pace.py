from __future__ import annotations

from pinchpoint.judge.pace import MAX_READING_INTERVAL_SECONDS, Pace


class Machine:
    """A judge whose hosts take `cost` CPU seconds each time that all of them are read; it has one core."""

    def __init__(self, asked: float, cost: float) -> None:
        self.now = self.cpu = 0.0
        self.cost = cost
        self.pace = Pace(asked, lambda: self.now, lambda: self.cpu)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.cpu += 0.1 * min(1.0, self.cost / self.pace.interval)
            self.pace.check()


def test_hosts_are_read_as_often_as_asked_while_that_is_cheap() -> None:
    machine = Machine(1.0, 0.65)
    machine.run(60)

    assert machine.pace.interval == 1.0
    assert not machine.pace.slowed


def test_they_are_read_less_often_when_it_would_fill_a_core() -> None:
    machine = Machine(1.0, 3.0)
    machine.run(20)

    assert 4.2 <= machine.pace.interval <= 8.6
    assert machine.pace.slowed


def test_and_as_often_as_asked_again_when_there_are_fewer() -> None:
    machine = Machine(1.0, 3.0)
    machine.run(20)
    machine.cost = 0.2
    machine.run(60)

    assert machine.pace.interval == 1.0


def test_they_are_read_at_least_twice_a_minute_or_as_rarely_as_asked() -> None:
    endless, rare = Machine(1.0, 1e9), Machine(60.0, 1e9)
    endless.run(120)
    rare.run(600)

    assert endless.pace.interval == MAX_READING_INTERVAL_SECONDS
    assert rare.pace.interval == 60.0


def test_the_pace_is_checked_only_after_some_time() -> None:
    """CPU times of less than 2 s say little: a start alone takes half a second."""
    machine = Machine(1.0, 10.0)
    machine.run(1.9)

    assert machine.pace.interval == 1.0
