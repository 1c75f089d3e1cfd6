from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.metrics import KEEP_ENDED_SECONDS, USER_DROPPED_SERIES
from pinchpoint.model import Metric, Point
from pinchpoint.quotas import MAX_USER_SERIES, MAX_USERS, NEW_SERIES_PER_MINUTE, SeriesQuota, shared_out

RUN = Metric("run", "", labels=("run",))
PHASE = Metric("phase", "", labels=("run", "phase"))
OWNER = Metric("owner", "", labels=("owner", "device"))
HOST = Metric("host", "", labels=("device",))
TRUSTED = 7


class Expositions:
    """Expositions under a quota, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.quota = SeriesQuota(lambda uid: uid in (0, TRUSTED), lambda: self.now)

    def __call__(self, *points: Point) -> list[Point]:
        return [point for point in self.quota.admit(points) if point.metric is not USER_DROPPED_SERIES]

    def dropped(self) -> dict[str, float]:
        return {point.labels[0]: point.value for point in self.quota.admit(())}


@pytest.fixture
def shown() -> Expositions:
    return Expositions()


def runs(count: int, user: int | None = 1000, first: int = 0) -> list[Point]:
    mark = "" if user is None else f"@uid{user}"
    return [RUN.point(1, f"run-{number}{mark}") for number in range(first, first + count)]


def test_an_untrusted_user_has_no_more_series_than_the_quota_and_the_others_are_counted(shown: Expositions) -> None:
    assert shown(*runs(MAX_USER_SERIES + 50)) == runs(MAX_USER_SERIES)
    assert shown.dropped() == {"series": 50, "rate": 0, "users": 0}


def test_trusted_users_and_what_is_nobodys_have_no_quota(shown: Expositions) -> None:
    points = [
        *runs(2 * MAX_USER_SERIES, None),
        *runs(2 * MAX_USER_SERIES, TRUSTED),
        *(HOST.point(1, f"{number}@uid1000") for number in range(2 * MAX_USER_SERIES)),
    ]

    assert shown(*points) == points


def test_one_users_series_take_no_room_from_anothers(shown: Expositions) -> None:
    assert shown(*runs(1000, 1000), *runs(10, 1001), *runs(10, None))[MAX_USER_SERIES:] == [
        *runs(10, 1001),
        *runs(10, None),
    ]


def test_series_that_come_and_go_are_limited_to_so_many_new_ones_a_minute(shown: Expositions) -> None:
    begun: set[Point] = set()
    for second in range(600):
        shown.now = float(second)
        begun.update(shown(*runs(50, first=50 * second)))

    assert MAX_USER_SERIES <= len(begun) <= MAX_USER_SERIES + 10 * NEW_SERIES_PER_MINUTE
    assert shown.dropped()["rate"] == 600 * 50 - len(begun)


def test_series_that_go_on_are_shown_for_as_long_as_they_do(shown: Expositions) -> None:
    for minute in range(60):
        shown.now = 60.0 * minute
        assert len(shown(*runs(MAX_USER_SERIES))) == MAX_USER_SERIES


def test_a_series_that_pauses_is_not_a_new_one(shown: Expositions) -> None:
    shown(*runs(MAX_USER_SERIES))
    shown.now = 1.0
    shown()

    assert len(shown(*runs(MAX_USER_SERIES))) == MAX_USER_SERIES


def test_an_owner_has_the_same_quota_as_a_run_and_runs_come_first_then_phases(shown: Expositions) -> None:
    owners = [OWNER.point(1, "fio@uid1000", str(number)) for number in range(MAX_USER_SERIES)]
    phases = [PHASE.point(1, "run@uid1000", str(number)) for number in range(100)]

    assert shown(*owners, *phases, *runs(20)) == [*owners[: MAX_USER_SERIES - 120], *phases, *runs(20)]


def test_users_are_limited_too_and_make_room_when_they_are_gone(shown: Expositions) -> None:
    crowd = [point for user in range(1000, 1000 + MAX_USERS) for point in runs(1, user)]
    assert shown(*crowd, *runs(1, 5000)) == crowd
    assert shown.dropped()["users"] == 1

    shown.now = KEEP_ENDED_SECONDS + 1
    assert shown(*runs(1, 5000)) == runs(1, 5000)


def test_a_users_first_excess_is_logged_and_no_other(shown: Expositions, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shown(*runs(MAX_USER_SERIES + 2))
        shown(*runs(MAX_USER_SERIES + 2))

    assert [record.getMessage() for record in caplog.records] == [
        "uid 1000 exceeds the quota of an untrusted user (series): series are left out"
    ]


def test_trusted_users_get_their_share_first_then_each_user_in_turn() -> None:
    items = [(1, "a"), (1, "b"), (1, "c"), (None, "x"), (2, "d"), (None, "y"), (None, "z")]

    assert shared_out(items, each=2, total=9) == ["x", "y", "a", "d", "b"]
    assert shared_out(items, each=2, total=4) == ["x", "y", "a", "d"]


@given(st.lists(st.tuples(st.none() | st.integers(1, 3), st.integers())), st.integers(0, 5), st.integers(0, 12))
def test_no_user_gets_more_than_a_share_and_nobody_is_left_out_for_one_who_has_more(
    items: list[tuple[int | None, int]], each: int, total: int
) -> None:
    numbered = [(user, (user, place)) for place, (user, _) in enumerate(items)]
    got = shared_out(numbered, each, total)
    number = {user: sum(whose == user for whose, _ in got) for user, _ in items}
    wished = {user: min(each, sum(whose == user for whose, _ in items)) for user, _ in items}

    assert len(got) == min(total, sum(wished.values()))
    others = [user for user in wished if user is not None]
    assert all(number[a] >= min(wished[a], number[b] - 1) for a in others for b in others)
