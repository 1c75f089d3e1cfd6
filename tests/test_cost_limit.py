from __future__ import annotations

import pytest

from pinchpoint.cost_limit import FACTORS, CostLimit


class Spender:
    """A process whose cost a test sets, in CPUs at the full rate; it falls with the factor."""

    def __init__(self, limit: float) -> None:
        self.cost = self.used = self.now = 0.0
        self.limit = CostLimit(limit, lambda: self.used)

    def run(self, seconds: int) -> None:
        for _ in range(10 * seconds):
            self.now += 0.1
            self.used += 0.1 * self.cost / self.limit.factor
            self.limit.look(self.now)


def test_within_its_limit_the_exporter_keeps_its_rate() -> None:
    spender = Spender(0.02)
    spender.cost = 0.019
    spender.run(300)

    assert spender.limit.factor == 1


@pytest.mark.parametrize(("cost", "factor"), [(0.03, 2), (0.05, 3), (0.9, 3)])
def test_above_it_for_ten_seconds_intervals_grow_step_by_step_until_the_cost_is_within_it(
    cost: float, factor: int
) -> None:
    spender = Spender(0.02)
    spender.cost = cost
    spender.run(9)
    assert spender.limit.factor == 1

    spender.run(50)
    assert spender.limit.factor == factor


def test_when_the_load_is_over_it_comes_back() -> None:
    spender = Spender(0.02)
    spender.cost = 0.5
    spender.run(60)
    assert spender.limit.factor == FACTORS[-1]

    spender.cost = 0.01
    spender.run(30 * len(FACTORS))
    assert spender.limit.factor == 1


def test_a_reset_brings_the_full_rate_at_once() -> None:
    spender = Spender(0.02)
    spender.cost = 0.5
    spender.run(60)
    spender.limit.reset()
    assert spender.limit.factor == 1

    spender.run(15)
    assert spender.limit.factor > 1


def test_it_does_not_come_back_only_to_exceed_its_limit_again() -> None:
    spender = Spender(0.02)
    spender.cost = 0.03
    spender.run(20)
    factors = set()
    for _ in range(600):
        spender.run(1)
        factors.add(spender.limit.factor)

    assert factors == {2}


def test_a_short_peak_changes_nothing() -> None:
    spender = Spender(0.02)
    spender.cost = 0.005
    for _ in range(10):
        spender.run(30)
        spender.used += 0.1

    assert spender.limit.factor == 1


def test_without_a_limit_no_cost_is_too_high() -> None:
    spender = Spender(float("inf"))
    spender.cost = 50.0
    spender.run(100)

    assert spender.limit.factor == 1
