from __future__ import annotations

from pinchpoint.wire.token_bucket import TokenBucket


def test_a_burst_is_permitted_and_then_the_rate() -> None:
    now = 0.0
    bucket = TokenBucket(2.0, 3.0, lambda: now)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]

    now = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_a_rest_fills_no_more_than_the_burst() -> None:
    now = 0.0
    bucket = TokenBucket(2.0, 3.0, lambda: now)
    now = 1000.0

    assert bucket.level == 3.0


def test_a_debit_may_exceed_what_is_there_and_is_paid_back_at_the_rate() -> None:
    now = 0.0
    bucket = TokenBucket(0.5, 1.0, lambda: now)
    bucket.debit(3.0)
    assert bucket.level == -2.0

    now = 4.0
    assert bucket.level == 0.0


def test_without_a_burst_nothing_is_permitted() -> None:
    now = 0.0
    bucket = TokenBucket(1.0, 0.0, lambda: now)
    now = 100.0

    assert not bucket.take()
