from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.waits.ranks import RankSample
from pinchpoint.waits.work_done import WorkDone


def sample(pid: int, *work: int, start: int = 5) -> RankSample:
    asked, stored, sleeps = work
    return RankSample(pid, start, "ior", 1, None, (asked, stored, sleeps), {})


def done(*moments: Sequence[RankSample]) -> dict[str, float]:
    work = WorkDone()
    for moment in moments:
        work.take(moment)
    return {str(point.labels[-1]): point.value for point in work.points("ior", "r")}


def test_all_processes_count_from_where_they_were_seen_first() -> None:
    found = done(
        [sample(1, 1000, 0, 7)],
        [sample(1, 1500, 0, 9), sample(2, 90_000, 0, 50)],
        [sample(1, 1600, 0, 9), sample(2, 90_200, 0, 53)],
    )

    assert found == {"bytes": 800, "waits": 5}


def test_asynchronous_requests_count_at_storage_and_buffered_ones_by_their_calls() -> None:
    assert done([sample(1, 0, 0, 0)], [sample(1, 64, 1 << 20, 0)]) == {"bytes": 1 << 20}
    assert done([sample(1, 0, 0, 0)], [sample(1, 1 << 20, 4096, 0)]) == {"bytes": 1 << 20}


def test_a_new_process_under_an_old_number_begins_anew() -> None:
    assert done([sample(1, 10_000, 0, 9)], [sample(1, 30_000, 0, 90, start=6)]) == {}


def test_nothing_is_said_before_anything_was_done() -> None:
    assert done([], [sample(1, 5, 5, 5)], [sample(1, 5, 5, 5)]) == {}


@given(st.lists(st.tuples(*[st.integers(0, 1 << 62)] * 3), max_size=8))
def test_totals_never_fall(counters: list[tuple[int, int, int]]) -> None:
    work, before = WorkDone(), {"bytes": 0.0, "waits": 0.0}
    for moved in counters:
        work.take([sample(1, *moved)])
        now = {str(point.labels[-1]): point.value for point in work.points("ior", "r")}
        assert all(now.get(unit, 0) >= amount for unit, amount in before.items())
        before |= now
