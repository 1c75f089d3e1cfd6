from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crew import Crew, Rank
from pinchpoint.model import Snapshot
from pinchpoint.waits.ranks import RankSample, RankSpread


def figures(crew: Crew, name: str, label: str) -> dict[str, float]:
    return {found[label]: value for found, value in crew.snapshot().series(f"pinchpoint_workload_{name}")}


def number(crew: Crew) -> dict[str, float]:
    return figures(crew, "slowest_rank", "numbered")


def even(count: int, rate: float = 1e6, seconds: float = 20.0) -> list[Rank]:
    return [Rank(rate, rate * seconds) for _ in range(count)]


def test_one_process_alone_has_no_ranks() -> None:
    assert list(Crew(even(1), mpi=False).run(5).spread.points("ior", "r")) == []


def test_a_rank_of_mpi_that_is_alone_on_its_host_is_compared_with_those_of_others() -> None:
    crew = Crew(even(1), first=7).run(5)

    assert number(crew) == {"mpi": 7}
    assert figures(crew, "ranks", "state") == {"working": 1, "done": 0}


def test_the_slowest_rank_is_known_by_its_number_rate_and_waits() -> None:
    ranks = even(8)
    ranks[5] = Rank(6e5, 2e7, {"disk": 0.7, "runqueue": 0.3})

    crew = Crew(ranks, first=8).run(10)

    assert number(crew) == {"mpi": 13}
    rates = figures(crew, "rank_rate", "which")
    assert rates == pytest.approx({"slowest": 6e5, "median": 1e6, "fastest": 1e6, "deviation": 0.0}, rel=0.15)
    waits = figures(crew, "slowest_rank_seconds_total", "wait")
    assert waits["disk"] / sum(waits.values()) == pytest.approx(0.7, abs=0.1)
    assert figures(crew, "ranks", "state") == {"working": 8, "done": 0}


def test_ranks_without_a_number_are_known_by_their_place() -> None:
    ranks = even(4)
    ranks[2].rate = 5e5

    assert number(Crew(ranks, mpi=False).run(6)) == {"start": 2}


@pytest.mark.parametrize("barrier", ["idle", "cpu"])
def test_ranks_that_wait_in_a_barrier_are_done_whether_they_sleep_or_poll(barrier: str) -> None:
    ranks = [Rank(1e6, 1e7, barrier=barrier) for _ in range(3)] + [Rank(2.5e5, 1e7)]

    crew = Crew(ranks).run(40)

    assert figures(crew, "ranks", "state") == {"working": 1, "done": 3}
    assert number(crew) == {"mpi": 3}
    seconds = figures(crew, "rank_seconds_total", "state")
    assert seconds["done"] == pytest.approx(3 * 30, abs=3)
    assert sum(seconds.values()) == pytest.approx(4 * 40, abs=4)
    (waited,) = crew.snapshot().series("pinchpoint_workload_ranks_waited_ratio")
    assert waited[1] == pytest.approx(90 / 160, abs=0.03)


def test_a_rank_that_waits_for_storage_without_progress_is_not_done() -> None:
    ranks = even(4)
    ranks[1] = Rank(0.0, 1e7, {"osd": 1.0})

    crew = Crew(ranks).run(6)

    assert figures(crew, "ranks", "state") == {"working": 4, "done": 0}
    assert number(crew) == {"mpi": 1}


def test_when_a_rank_that_was_done_goes_on_all_have_begun_again() -> None:
    ranks = even(4, seconds=5)
    ranks[0].rate /= 4
    crew = Crew(ranks).run()
    crew.pass_second()

    for rank in ranks:
        rank.rate = 1e6
    crew.begin([1e7] * 4)
    crew.run(5)

    rates = figures(crew, "rank_rate", "which")
    assert rates["slowest"] == pytest.approx(rates["fastest"])
    assert figures(crew, "rank_work", "which")["furthest"] <= 5e6


def test_a_pause_of_one_sample_is_no_end() -> None:
    crew = Crew(even(4)).run(3)
    for place in (0, 1):
        crew.ranks[place].waits = {"idle": 1.0}
        crew.ranks[place].rate = 0.0
    crew.run(1)
    for place in (0, 1):
        crew.ranks[place].waits = {"osd": 1.0}
        crew.ranks[place].rate = 1e6
    crew.run(3)

    assert figures(crew, "ranks", "state") == {"working": 4, "done": 0}
    assert figures(crew, "rank_work", "which")["slowest"] > 3e6


def test_jobs_that_have_ended_are_done_while_others_of_them_work() -> None:
    spread = RankSpread()

    def job(pid: int, moved: int) -> RankSample:
        return RankSample(pid, 5, "fio", 10, None, (moved, 0, 0), {"disk": 1.0})

    leader = RankSample(10, 4, "fio", 1, None, (500, 0, 0), {"idle": 1.0})
    for second in range(5):
        spread.take([leader, job(11, second << 20), job(12, second << 21)], 1.0)
    spread.take([leader, job(11, 5 << 20)], 1.0)

    states = {found["state"]: value for found, value in _snapshot(spread).series("pinchpoint_workload_ranks")}
    assert states == {"working": 1, "done": 1}
    spread.take([leader], 1.0)
    assert not list(_snapshot(spread).series("pinchpoint_workload_ranks"))


def test_ranks_of_a_command_that_has_ended_are_not_those_of_the_next() -> None:
    spread = RankSpread()
    for parent in (10, 20):  # as of `fio a; fio b` in a script
        for second in range(5):
            spread.take(
                [RankSample(parent + n, 5, "fio", parent, None, (second << 20, 0, 0), {"disk": 1.0}) for n in (1, 2)],
                1.0,
            )

    found = _snapshot(spread)
    assert {labels["state"]: value for labels, value in found.series("pinchpoint_workload_ranks")} == {
        "working": 2,
        "done": 0,
    }
    assert [value for _, value in found.series("pinchpoint_workload_ranks_waited_ratio")] == [0.0]


def test_what_a_rank_starts_inherits_its_number_and_is_no_rank() -> None:
    spread = RankSpread()
    for second in range(4):
        ranks = [RankSample(20 + n, 5, "ior", 1, n, (second << 20, 0, 0), {"osd": 1.0}) for n in range(2)]
        shells = [RankSample(40, 6, "sh", 20, 0, (second << 30, 0, 0), {"idle": 1.0})]
        spread.take([*shells, *ranks], 1.0)

    states = {found["state"]: value for found, value in _snapshot(spread).series("pinchpoint_workload_ranks")}
    assert states == {"working": 2, "done": 0}


def test_work_on_metadata_is_measured_by_what_was_waited_for() -> None:
    crew = Crew([Rank(1.0, 100.0, {"mds": 1.0}) for _ in range(4)])
    for second in range(5):
        crew.pass_second(lambda place, second=second: (0, 0, second * (100 if place else 30)))  # type: ignore[misc]

    rates = {
        found["which"]: (value, found["unit"])
        for found, value in crew.snapshot().series("pinchpoint_workload_rank_rate")
    }
    assert {unit for _, unit in rates.values()} == {"waits"}
    assert [rates[which][0] for which in ("slowest", "median")] == pytest.approx([30 * 4 / 5, 100 * 4 / 5])


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(1, 6),
                st.sampled_from(["ior", "sh"]),
                st.integers(0, 2),
                st.none() | st.integers(0, 3),
                st.tuples(*[st.integers(0, 2**64)] * 3),
                st.dictionaries(st.sampled_from(["idle", "cpu", "osd"]), st.floats(0, 10)),
            ),
            max_size=6,
        ),
        max_size=8,
    )
)
def test_whatever_processes_come_go_and_count_their_series_are_bounded_and_sane(looks: list[list[tuple]]) -> None:  # type: ignore[type-arg]
    spread = RankSpread()
    waited = 0.0
    for look in looks:
        unique = {pid: RankSample(pid, 1, *rest) for pid, *rest in look}
        spread.take(unique.values(), 1.0)
        points = list(spread.points("ior", "r"))
        assert len(points) == len({point[:2] for point in points}) <= 24
        assert all(point.value >= 0 for point in points)
        total = sum(point.value for point in points if point.metric.name.endswith("rank_seconds_total"))
        assert total >= waited
        waited = total


def _snapshot(spread: RankSpread) -> Snapshot:
    return Snapshot.of(0.0, spread.points("ior", "r"))
