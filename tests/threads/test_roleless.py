from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.model import Snapshot
from pinchpoint.threads.roleless import (
    MAX_ASKED_NAMES,
    MAX_THREADS_PER_SAMPLE,
    MAX_UNKNOWN_NAMES,
    MIN_NAMED_SHARE,
    MIN_RENAME_INTERVAL_SECONDS,
    ROLELESS_WINDOW_SECONDS,
    Hot,
    Name,
    UnknownThreads,
    hottest,
)
from pinchpoint.threads.task_source import Task, TaskUse

TICK = 0.1


def task(tid: int, comm: str) -> Task:
    return Task(1, tid, comm, 0.0)


class Sampled:
    """Takes samples of threads by their names; those whose name begins with "known" have a role."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads = UnknownThreads(0.8, self._name)
        self.now = 100.0
        self._known: dict[str, Hot] = {}

    def _name(self, thread: Hot) -> Name | None:
        self.asked.append(thread.task.comm)
        return None if thread.task.comm.startswith("known") else Name(thread.task.comm, "foo")

    def hot(self, name: str) -> Hot:
        return self._known.setdefault(name, Hot(task(len(self._known) + 10, name)))

    def take(self, shares: Mapping[str, float], samples: int = 1, waits: float = 0.0) -> None:
        """Take samples in which threads ran for these shares of the time, and each waited for `waits` of it."""
        for _ in range(samples):
            wait = round(waits * TICK * 1e9)
            uses = [TaskUse(self.hot(name).task, round(share * TICK * 1e9), wait) for name, share in shares.items()]
            for use in hottest(uses):
                self.threads.charge(Hot(use.task), use.run, use.wait)
            self.now += TICK
            self.threads.settle(self.now, TICK)

    @property
    def named(self) -> dict[str, float]:
        return {
            labels["thread"]: value
            for labels, value in Snapshot.of(0, self.threads.points()).series("pinchpoint_unknown_thread_busy_ratio")
        }


@pytest.fixture
def sampled() -> Sampled:
    return Sampled()


def test_the_hottest_thread_is_named_with_its_share_of_the_last_seconds(sampled: Sampled) -> None:
    sampled.take({"my_thread": 1.0, "other": 0.3}, samples=40)

    assert [*sampled.named] == ["my_thread", "other"]
    assert sampled.named["my_thread"] == pytest.approx(1.0)


def test_each_sample_counts_by_its_busiest_thread(sampled: Sampled) -> None:
    sampled.take({"one": 0.9, "two": 0.2}, samples=10)
    sampled.take({"one": 0.1, "two": 0.5}, samples=10)

    assert sampled.threads.resource.busy == pytest.approx(10 * TICK * 0.9 + 10 * TICK * 0.5)
    assert sampled.threads.resource.saturated == pytest.approx(10 * TICK)


def test_what_it_waited_for_a_cpu_is_busy_too_and_told_apart(sampled: Sampled) -> None:
    sampled.take({"my_thread": 0.5}, samples=10, waits=0.4)

    assert sampled.threads.resource.busy == pytest.approx(10 * TICK * 0.9)
    assert sampled.threads.resource.runqueue == pytest.approx(10 * TICK * 0.4)
    assert sampled.threads.resource.saturated == pytest.approx(10 * TICK)


def test_what_was_before_the_first_sample_is_not_taken_for_idle(sampled: Sampled) -> None:
    sampled.take({"my_thread": 1.0}, samples=5)
    assert sampled.named == {}  # it is too early to name a thread

    sampled.take({"my_thread": 1.0}, samples=5)
    assert sampled.named == {"my_thread": pytest.approx(1.0)}


def test_three_hundred_milliseconds_in_three_seconds_are_enough_and_less_is_nobody(sampled: Sampled) -> None:
    sampled.take({}, samples=40)
    sampled.take({"my_thread": 1.0}, samples=3)
    assert sampled.named == {"my_thread": pytest.approx(MIN_NAMED_SHARE)}

    sampled.take({}, samples=40)
    assert sampled.named == {}

    sampled.take({"my_thread": 1.0}, samples=2)
    assert sampled.named == {}


def test_threads_of_a_pool_that_are_about_equally_busy_do_not_take_turns(sampled: Sampled) -> None:
    names: set[str] = set()
    for turn in range(400):
        sampled.take({f"worker-{n}": 0.5 + 0.15 * ((turn // 40 + n) % 2) for n in range(8)})
        names |= sampled.named.keys()

    assert len(names) == 1


def test_a_busy_neighbour_does_not_hide_another_thread(sampled: Sampled) -> None:
    sampled.take({"neighbour": 1.0, **{f"worker-{n}": 0.9 for n in range(8)}, "my_thread": 0.8}, samples=40)

    assert {*sampled.named} == {"neighbour", "worker-0", "my_thread"}


def test_a_thread_that_is_clearly_hotter_is_named_instead_of_the_coolest(sampled: Sampled) -> None:
    busy = {"one": 0.5, "two": 0.6, "three": 0.7}
    sampled.take(busy, samples=60)
    assert sampled.named.keys() == busy.keys()

    sampled.take(busy | {"four": 0.65}, samples=60)
    assert sampled.named.keys() == busy.keys()

    sampled.take(busy | {"four": 0.9}, samples=60)
    assert sampled.named.keys() == {"two", "three", "four"}
    assert sampled.named["four"] == pytest.approx(0.9)


def test_a_thread_that_has_cooled_gives_way_to_any_other(sampled: Sampled) -> None:
    sampled.take(dict.fromkeys(("one", "two", "three"), 0.5), samples=60)
    sampled.take({"four": 0.2}, samples=60)

    assert sampled.named == {"four": pytest.approx(0.2)}


def test_names_that_change_all_the_time_make_one_series_in_five_seconds(sampled: Sampled) -> None:
    seen: list[str] = []
    for turn in range(100):
        sampled.take({"short" + "abcdefghij"[turn % 10] * (turn // 10 + 1): 1.0}, samples=5)
        seen += sampled.named.keys()

    assert MAX_UNKNOWN_NAMES < len(set(seen)) <= 100 * 5 * TICK / MIN_RENAME_INTERVAL_SECONDS + MAX_UNKNOWN_NAMES


def test_two_threads_of_one_name_are_one_series_with_the_busier_ones_share(sampled: Sampled) -> None:
    one, two = Hot(task(1, "worker")), Hot(task(2, "worker"))
    for _ in range(40):
        sampled.threads.charge(one, 30_000_000, 0)
        sampled.threads.charge(two, 60_000_000, 0)
        sampled.take({})

    assert sampled.named == {"worker": pytest.approx(0.6)}


def test_a_thread_that_gives_itself_a_name_is_called_by_it(sampled: Sampled) -> None:
    hot = sampled.hot("creator")
    sampled.take({"creator": 1.0})
    hot.task.comm = "my_thread"
    sampled.take({"creator": 1.0}, samples=40)

    assert sampled.named.keys() == {"my_thread"}


def test_what_turns_out_to_have_a_role_counts_for_nothing(sampled: Sampled) -> None:
    sampled.take({"known": 1.0, "my_thread": 0.4}, samples=40)

    assert sampled.named == {"my_thread": pytest.approx(0.4)}
    assert sampled.threads.resource.busy == pytest.approx(40 * TICK * 0.4)
    assert sampled.threads.resource.saturated == 0


def test_nobody_is_asked_for_the_names_of_threads_that_are_not_the_hottest(sampled: Sampled) -> None:
    sampled.take({"my_thread": 1.0, **{f"warm-{n}": 0.3 for n in range(50)}}, samples=40)

    assert sampled.asked[0] == "my_thread"
    assert len(sampled.asked) <= MAX_ASKED_NAMES


def test_what_is_kept_is_bounded_however_many_threads_come_and_go(sampled: Sampled) -> None:
    for turn in range(100):
        sampled.take({f"short-{turn}-{n}": 0.06 for n in range(3 * MAX_THREADS_PER_SAMPLE)})

    assert len(sampled.threads._totals) <= MAX_THREADS_PER_SAMPLE * (ROLELESS_WINDOW_SECONDS / TICK + 2)
    sampled.take({}, samples=40)
    assert not any((sampled.threads._totals, sampled.threads._names, sampled.threads._samples))


NAMES = ["one", "two", "three", "four", "five", "known"]


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1.2), max_size=6), max_size=120))
def test_at_most_three_are_named_with_a_share_that_can_be(shares: list[dict[str, float]]) -> None:
    sampled = Sampled()
    for sample in shares:
        sampled.take(sample)

        assert len(sampled.named) <= MAX_UNKNOWN_NAMES
        assert all(
            MIN_NAMED_SHARE <= value <= 1 and not name.startswith("known") for name, value in sampled.named.items()
        )
    sampled.take({}, samples=40)
    assert sampled.named == {}
    assert not sampled.threads._totals
