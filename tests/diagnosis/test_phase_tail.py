from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.io500_detail import Nodes, PhaseDetail, WallRate, rank_times
from pinchpoint.benchmarks.io500_folder import FolderRun, folder_runs
from pinchpoint.diagnosis.tail import (
    MIN_PLANNED_SECONDS,
    Tail,
    contradictions,
    gain,
    planned_tail,
    score_without_tails,
    slow_words,
    tail_of,
    tail_words,
    tails,
)
from pinchpoint.runs import PhaseMark, Result

FOLDERS = Path(__file__).parents[1] / "fixtures" / "io500"
GIB = 1 << 30


def folder(name: str) -> FolderRun:
    (run,) = folder_runs(FOLDERS / name, 0.0, lambda line: None)
    return run


def mark(phase: str, value: float, seconds: float = 400.0) -> PhaseMark:
    unit, printed = ("bytes_per_second", f"{value / GIB:.6f} GiB/s")
    return PhaseMark(phase, 0.0, seconds, [Result("x", unit, value, printed)], seconds=seconds)


def wall(low: float, high: float, source: str = "result.txt: throughput-stonewall") -> WallRate:
    return WallRate(low * GIB, high * GIB, source)


def detail(phase: str, *rates: WallRate) -> PhaseDetail:
    return PhaseDetail(phase, wall=300.0, wall_rates=[*rates])


def test_the_tail_of_a_public_cephfs_run_cost_what_the_list_shows() -> None:
    run = folder("cephfs-2025")

    found = tails(run.details, run.run.state.phases)

    costs = {phase: round(tail.cost, 3) for phase, tail in found.items() if tail.cost is not None}
    assert costs["ior_easy_write"] == 0.229
    assert costs["ior_hard_write"] == 0.141
    assert costs["mdtest_easy_write"] == 0.066
    easy = found["ior_easy_write"]
    assert (easy.kind, easy.until) == ("stonewall", 300.0)
    assert easy.seconds == pytest.approx(109.2, abs=0.05)


def test_the_score_without_tails_replaces_the_four_write_phases() -> None:
    run = folder("cephfs-2025")

    without = score_without_tails(run.run.state.scores[-1].value, tails(run.details, run.run.state.phases))

    assert without is not None
    middle, low, high = without
    # 4 bandwidths and 8 rates: each bandwidth counts with an eighth, each rate with a sixteenth.
    expected = 8.125945 * ((35.05 / 27.030023) * (1.68 / 1.443928)) ** (1 / 8)
    expected *= ((5.074948 / 4.739587) * (4.567755 / 4.517657)) ** (1 / 16)
    assert middle == pytest.approx(expected, rel=1e-5)
    assert low < middle < high


def test_the_slow_node_of_a_public_run_is_named() -> None:
    ranks = folder("cephfs-2025").details[0].ranks

    assert ranks is not None
    assert slow_words(ranks) == [
        "slow: rank 135 (408.9 s), 140 (408.9 s), 143 (408.9 s), 139 (408.9 s), 136 (408.8 s); the median of 160 ranks "
        "is 312.6 s",
        "slow: node 8 (from rank 128 on) (408.7 s); the median of 10 nodes is 312.8 s",
    ]


def test_a_rate_with_few_digits_gives_a_cost_as_a_range() -> None:
    tail = tail_of(detail("ior_hard_write", wall(0.645, 0.655)), mark("ior_hard_write", 0.598 * GIB))

    assert tail is not None
    assert tail.low == pytest.approx(0.0729, abs=1e-4)
    assert tail.high == pytest.approx(0.087, abs=1e-4)
    assert "about 8% (7.3 to 8.7%)" in tail_words("ior_hard_write", tail, PhaseDetail("ior_hard_write"))[1]


def test_a_phase_that_was_faster_after_its_stonewall_lost_nothing() -> None:
    tail = tail_of(detail("ior_easy_write", wall(0.99, 1.01)), mark("ior_easy_write", 2 * GIB))

    assert tail is not None
    assert (tail.cost, gain("ior_easy_write", tail)) == (0, 0)
    assert "costs nothing" in tail_words("ior_easy_write", tail, PhaseDetail("ior_easy_write"))[1]


def test_a_rate_in_another_unit_is_reported_and_ior_is_believed() -> None:
    rates = [wall(51000.0, 51000.1), wall(158.4, 158.5, "ior-easy-write.txt: Stonewall(MiB)")]
    known = detail("ior_easy_write", *rates)
    result = mark("ior_easy_write", 136.3 * GIB)

    tail = tail_of(known, result)

    assert tail is not None
    assert tail.source == "ior-easy-write.txt: Stonewall(MiB)"
    (words,) = contradictions([known], {"ior_easy_write": result})
    assert "contradict each other: 51000.1 GiB/s (result.txt: throughput-stonewall), 158.45 GiB/s" in words


def test_without_another_figure_a_rate_in_another_unit_gives_no_cost() -> None:
    known = detail("ior_easy_write", wall(51000.0, 51000.1))
    result = mark("ior_easy_write", 136.3 * GIB)

    tail = tail_of(known, result)

    assert tail is None or tail.cost is None
    (words,) = contradictions([known], {"ior_easy_write": result})
    assert words.endswith("the cost of the tail is not known")


def test_a_result_that_is_not_what_ior_printed_is_reported() -> None:
    known = PhaseDetail("ior_easy_read", rate=2 * GIB, rate_error=1e-4)

    assert [*contradictions([known], {"ior_easy_read": mark("ior_easy_read", 2 * GIB)})] == []
    (words,) = contradictions([known], {"ior_easy_read": mark("ior_easy_read", 3 * GIB)})
    assert words == "ior_easy_read: its result is 3 GiB/s, and ior printed 2 GiB/s"


def test_a_phase_without_stonewall_ends_with_its_slowest_rank() -> None:
    known = PhaseDetail("mdtest_hard_stat", ranks=rank_times(dict(enumerate([60.0, 60.0, 60.0, 100.0])), None, {}))

    tail = tail_of(known, mark("mdtest_hard_stat", 7000.0))

    assert tail is not None
    assert (tail.kind, tail.until, tail.seconds) == ("slowest", 60, 40)
    assert tail.cost == pytest.approx(0.3)
    assert tail.rate == pytest.approx(10000.0)


def test_files_without_ranks_and_stonewall_have_no_tail() -> None:
    assert tail_of(PhaseDetail("ior_easy_read"), mark("ior_easy_read", GIB)) is None
    assert tail_of(PhaseDetail("ior_easy_write"), mark("ior_easy_write", GIB)) is None
    assert tail_of(detail("ior_easy_write", wall(1, 2)), PhaseMark("ior_easy_write", 0.0)) is None


def test_without_known_tails_there_is_no_other_score() -> None:
    slowest = Tail(kind="slowest", until=1, seconds=1, rate=1, cost=0.5, low=0.5, high=0.5, source="")

    assert score_without_tails(10.0, {"mdtest_easy_stat": slowest}) is None


@pytest.mark.parametrize(
    ("seconds", "named"),
    [
        ([100.0, 101, 99, 100, 102, 98, 100, 100], False),  # noise
        ([100.0, 101, 99, 100, 102, 98, 100, 150], True),
        ([100.0, 100, 100, 100, 100, 100, 100, 105], False),  # below a tenth
        ([100.0, 50, 150, 80, 120, 60, 140, 160], False),  # all of them differ
        ([100.0, 100, 150], False),  # few peers: twice the median
        ([100.0, 100, 200], True),
    ],
)
def test_a_rank_is_slow_by_a_robust_test(seconds: list[float], named: bool) -> None:
    ranks = rank_times(dict(enumerate(seconds)), None, {})

    assert ranks is not None
    assert bool(slow_words(ranks)) == named


@given(st.integers(2, 40), st.randoms())
def test_even_ranks_name_nobody(count: int, random: object) -> None:
    noise = [100 + 2 * (random.random() - 0.5) for _ in range(count)]  # type: ignore[attr-defined]
    ranks = rank_times(dict(enumerate(noise)), Nodes(2, max(1, count // 2)), {})

    assert ranks is not None
    assert slow_words(ranks) == []


def test_without_files_the_tail_begins_at_the_stonewall_of_the_command_line() -> None:
    rates = [
        Result("creation", "operations_per_second", 900.0, "900 ops/sec"),
        Result("stonewall", "operations_per_second", 1000.0, "1000.000 ops/sec"),
    ]
    phase = PhaseMark("file_creation", 0.0, 40.0, rates, expected=30.0)

    found = planned_tail(phase, "mdtest")

    assert found is not None
    assert (found.kind, found.until, found.seconds, found.rate) == ("stonewall", 30.0, 10.0, 1000.0)
    assert (found.low, found.cost, found.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-6)
    assert tail_words("file_creation", found, PhaseDetail("file_creation")) == [
        "stonewall after 30.0 s, then a tail of 10.0 s",
        "the tail costs 10.0% of 1 kIOPS (mdtest: stonewall)",
    ]


def test_the_cost_of_iors_own_tail_has_a_range_since_what_it_prints_is_rounded() -> None:
    printed = "4.0 GiB of 2 ranks each in 6.0 s"
    rates = [
        Result("write", "bytes_per_second", 0.4 * GIB, "409.60 MiB/s"),
        Result("stonewall", "bytes_per_second", 4.0 * 2 / 6.0 * GIB, printed),
    ]

    found = planned_tail(PhaseMark("write", 0.0, 29.6, rates, expected=6.0, seconds=29.6), "ior")

    assert found is not None
    assert (found.low, found.cost, found.high) == pytest.approx((0.6962, 0.7, 0.7037), abs=1e-4)
    assert tail_words("write", found, PhaseDetail("write")) == [
        "stonewall after 6.0 s, then a tail of 23.6 s",
        "the tail costs about 70% (69.6 to 70.4%) of 1.33333 GiB/s (ior: stonewall)",
    ]


@pytest.mark.parametrize("printed", ["", "fast", "-"])
def test_a_rate_that_does_not_say_how_it_was_printed_has_no_range(printed: str) -> None:
    rates = [Result("write", "bytes_per_second", 1.0), Result("stonewall", "bytes_per_second", 2.0, printed)]

    found = planned_tail(PhaseMark("write", 0.0, 40.0, rates, expected=30.0), "ior")

    assert found is not None
    assert found.low == found.cost == found.high


@pytest.mark.parametrize(
    ("phase", "benchmark"),
    [
        (PhaseMark("write", 0.0, 31.0, expected=30.0), "ior"),
        (PhaseMark("write", 0.0, 40.0), "ior"),
        (PhaseMark("write", 0.0, None, expected=30.0), "ior"),
        (PhaseMark("write", 0.0, 40.0, expected=30.0), "fio"),
    ],
)
def test_a_phase_that_ends_at_its_stonewall_or_has_none_has_no_tail(phase: PhaseMark, benchmark: str) -> None:
    assert planned_tail(phase, benchmark) is None


def test_a_rate_until_the_stonewall_below_the_result_says_nothing_of_the_cost() -> None:
    rates = [Result("creation", "operations_per_second", 900.0), Result("stonewall", "operations_per_second", 800.0)]

    found = planned_tail(PhaseMark("file_creation", 0.0, 40.0, rates, expected=30.0), "mdtest")

    assert found is not None
    assert (found.seconds, found.cost) == (10.0, None)


def test_the_words_of_a_tail_have_its_length_the_spread_at_the_stonewall_and_the_stages() -> None:
    known = PhaseDetail("ior_easy_write", wall_fewest=60, wall_most=80, opening=0.5, moving=39.25, closing=0.0)
    tail = Tail(
        kind="stonewall", until=30.0, seconds=10.0, rate=2.0 * GIB, cost=0.25, low=0.25, high=0.25, source="a.txt"
    )

    assert tail_words("ior_easy_write", tail, known) == [
        "stonewall after 30.0 s, then a tail of 10.0 s, at the stonewall the slowest rank had done 75% of the fastest",
        "the tail costs 25.0% of 2 GiB/s (a.txt)",
        "open 0.50 s, transfer 39.25 s, close 0.00 s, each from the first rank's start to the last one's end",
    ]


def test_a_tail_that_is_partly_known_says_what_is() -> None:
    known = PhaseDetail("ior_easy_write", wall_fewest=0, wall_most=80)
    tail = Tail(kind="stonewall", until=30.0, seconds=None, rate=None, cost=None, low=None, high=None, source="")

    assert tail_words("ior_easy_write", tail, known) == ["at the stonewall the slowest rank had done 0% of the fastest"]
    assert tail_words("ior_easy_write", tail, PhaseDetail("ior_easy_write")) == []
    for rate, cost in ((GIB, None), (None, 0.5)):
        partly = Tail(kind="stonewall", until=None, seconds=3.0, rate=rate, cost=cost, low=None, high=None, source="")
        assert tail_words("ior_easy_write", partly, PhaseDetail("ior_easy_write")) == []


def test_the_words_of_the_slowest_rank_have_the_rate_of_ranks_that_end_together() -> None:
    known = PhaseDetail("mdtest_hard_stat", searching=0.25)
    tail = Tail(kind="slowest", until=60.0, seconds=40.0, rate=1e4, cost=0.3, low=0.3, high=0.3, source="")

    assert tail_words("mdtest_hard_stat", tail, known) == [
        "half of the ranks are done after 60.0 s, the last one 40.0 s later: "
        "ranks that ended together would reach 10 kIOPS, this is 30.0% less",
        "ranks of pfind looked for work of other ranks for 25% of the time",
    ]
    for field in ("until", "seconds", "rate", "cost"):
        assert tail_words("mdtest_hard_stat", msgspec.structs.replace(tail, **{field: None}), PhaseDetail("a")) == []


def test_where_only_the_length_of_a_write_is_known_its_tail_has_no_cost() -> None:
    known = PhaseDetail("mdtest_easy_write", wall=300.0, wall_most=5)

    found = tail_of(known, mark("mdtest_easy_write", 1000.0, seconds=310.0))

    assert found == Tail(
        kind="stonewall", until=300.0, seconds=10.0, rate=None, cost=None, low=None, high=None, source=""
    )
    unfinished = PhaseMark("mdtest_easy_write", 0.0, None, mark("mdtest_easy_write", 1000.0).results)
    open_end = tail_of(known, unfinished)
    assert open_end is not None
    assert open_end.seconds is None


def test_the_range_of_a_score_without_tails_is_that_of_the_costs() -> None:
    tail = Tail(kind="stonewall", until=1.0, seconds=1.0, rate=GIB, cost=0.3, low=0.2, high=0.4, source="")

    assert score_without_tails(10.0, {"ior_easy_write": tail}) == pytest.approx(
        tuple(10.0 * (1 - cost) ** -(1 / 8) for cost in (0.3, 0.2, 0.4))
    )


def test_a_slow_rank_and_node_with_a_name_have_it_in_words() -> None:
    ranks = rank_times(dict(enumerate([100.0] * 12 + [200.0] * 4)), Nodes(4, 4), {0: "a", 4: "b", 8: "c", 12: "d"})

    assert ranks is not None
    assert slow_words(ranks)[-1] == "slow: d (200.0 s); the median of 4 nodes is 100.0 s"


@pytest.mark.parametrize(("seconds", "has_one"), [(34.9, False), (35.0, True)])
def test_a_planned_tail_is_at_least_as_long_as_a_stonewall_is_inexact(seconds: float, has_one: bool) -> None:
    found = planned_tail(PhaseMark("write", 0.0, seconds, expected=35.0 - MIN_PLANNED_SECONDS), "ior")

    assert (found is not None) is has_one
