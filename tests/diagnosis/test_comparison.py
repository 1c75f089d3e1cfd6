from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pinchpoint.diagnosis.comparison import CLAIMS, Assessment, ComparedFigure, Comparison, RunGroup, compare
from pinchpoint.diagnosis.marks import bottleneck
from pinchpoint.diagnosis.waterfall import Shift
from pinchpoint.runs import LimitMark, PhaseMark, Result, RunState, StepMark, VerdictMark

BYTES = "bytes_per_second"
OPPOSITE = {Assessment.FASTER: Assessment.SLOWER, Assessment.SLOWER: Assessment.FASTER}
VALUES = st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=6)


def phase(name: str, value: float, unit: str = BYTES, **changes: object) -> PhaseMark:
    mark = PhaseMark(name, 0.0, 100.0, [Result(name, unit, value)], seconds=100.0)
    for key, change in changes.items():
        setattr(mark, key, change)
    return mark


def run(*phases: PhaseMark, name: str = "r", scores: Sequence[Result] = (), **changes: object) -> RunState:
    state = RunState(
        run=name, benchmark="io500", start=0.0, end=1.0, state="finished", phases=list(phases), scores=list(scores)
    )
    for key, change in changes.items():
        setattr(state, key, change)
    return state


def group(*runs: RunState) -> RunGroup:
    return RunGroup("group", runs)


def repeats(values: Sequence[float], unit: str = BYTES) -> RunGroup:
    return group(*(run(phase("write", value, unit)) for value in values))


def row(comparison: Comparison) -> ComparedFigure:
    (found,) = comparison.rows
    return found


def compared(
    first: Sequence[float], second: Sequence[float], noise: float | None = None, unit: str = BYTES
) -> ComparedFigure:
    return row(compare(repeats(first, unit), repeats(second, unit), noise=noise))


def test_of_one_run_each_nothing_is_claimed_however_large_the_difference_is() -> None:
    found = compared([1.0], [100.0])

    assert (found.change, found.noise, found.verdict) == (99.0, None, Assessment.UNKNOWN)


def test_a_difference_that_is_not_larger_than_the_spread_is_noise() -> None:
    assert compared([10.0, 11.0], [11.5]).verdict is Assessment.NOISE
    assert compared([10.0, 11.0], [11.75]).verdict is not Assessment.NOISE
    assert compared([10.0, 11.0], [9.5]).verdict is Assessment.NOISE
    assert compared([10.0, 11.0], [9.25]).verdict is not Assessment.NOISE


def test_two_repeats_prove_next_to_nothing_of_a_figure_that_stands_alone() -> None:
    assert compared([10.0, 11.0], [11.75]).verdict is Assessment.UNPROVED
    assert compared([10.0, 11.0], [20.0]).verdict is Assessment.UNPROVED
    assert compared([10.0, 11.0], [40.0]).verdict is Assessment.FASTER
    assert compared([10.0, 11.0], [20.0, 22.0]).verdict is Assessment.FASTER


def test_the_other_figures_of_the_same_runs_tell_what_two_repeats_of_one_do_not() -> None:
    spreads = [0.02, 0.03, 0.05, 0.02, 0.04, 0.03]

    def runs(*factors: float) -> RunGroup:
        return group(
            *(
                run(*(phase(f"p{place}", 10 + factor * share) for place, share in enumerate(spreads)))
                for factor in factors
            )
        )

    base, other = runs(-1.0, 1.0), group(run(*(phase(f"p{place}", 10.5) for place in range(len(spreads)))))

    assert compared([9.95, 10.05], [10.5]).verdict is Assessment.UNPROVED
    assert {found.verdict for found in compare(base, other).rows} == {Assessment.FASTER}


def test_the_spread_of_either_group_counts() -> None:
    assert compared([10.0], [10.0, 13.0]).verdict is Assessment.NOISE
    assert compared([10.0, 10.1], [11.0, 14.0]).verdict is Assessment.NOISE


def test_repeats_of_another_configuration_serve_single_runs() -> None:
    def found(first: float, second: float, *reference: float) -> ComparedFigure:
        return row(compare(repeats([first]), repeats([second]), reference=repeats(reference)))

    assert found(10.0, 10.9, 100.0, 110.0).verdict is Assessment.NOISE
    assert found(10.0, 15.0, 100.0, 110.0).verdict is Assessment.UNPROVED
    assert found(10.0, 15.0, 100.0, 110.0, 105.0, 103.0, 107.0, 108.0).verdict is Assessment.FASTER
    assert found(10.0, 15.0, 100.0).verdict is Assessment.UNKNOWN


def test_repeats_that_are_a_compared_group_themselves_count_once() -> None:
    base = group(run(phase("write", 100.0), name="a"), run(phase("write", 101.0), name="b"))
    other = group(run(phase("write", 106.0), name="c"))

    assert row(compare(base, other, reference=base)) == row(compare(base, other))
    assert row(compare(base, other)).verdict is Assessment.UNPROVED


def test_an_interval_that_no_float_can_hold_is_unknown() -> None:
    twelve = [f"p{number}" for number in range(12)]
    base = [run(*(phase(name, 100.0 + number) for name in twelve), name=f"a{number}") for number in range(2)]
    base[1] = run(phase("p0", 1e-3), *(phase(name, 101.0) for name in twelve[1:]), name="a1")
    other = run(*(phase(name, 100.0) for name in twelve), name="b")

    first = compare(group(*base), group(other)).rows[0]

    assert (first.interval, first.noise, first.verdict) == (None, None, Assessment.NOISE)


def test_the_spread_is_largest_minus_smallest_over_the_mean() -> None:
    found = compared([11.28, 10.69], [1.0])

    assert found.base is not None
    assert found.base.spread == pytest.approx(0.59 / 10.985)
    assert found.other is not None
    assert found.other.spread is None


def test_a_known_noise_serves_where_there_are_no_repeats_and_where_theirs_is_smaller() -> None:
    assert compared([11.28], [10.69], noise=0.06).verdict is Assessment.NOISE
    assert compared([11.28], [10.69], noise=0.05).verdict is Assessment.SLOWER
    assert compared([10.0, 10.1], [10.4, 10.5], noise=0.06).verdict is Assessment.NOISE
    assert compared([10.0, 12.0], [11.9], noise=0.001).verdict is Assessment.NOISE


def test_the_confidence_interval_is_students_of_the_logarithms() -> None:
    found = compared([10.0, 10.8, 11.0], [20.0, 21.0, 22.0])

    # Four degrees of freedom: t = 2.77645.
    squares = sum(
        (math.log(value) - fmean(map(math.log, values))) ** 2
        for values in ([10.0, 10.8, 11.0], [20.0, 21.0, 22.0])
        for value in values
    )
    half = 2.77645 * math.sqrt(squares / 4 * (1 / 3 + 1 / 3))
    ratio = math.log(21 / 10.6)
    assert found.interval == pytest.approx((math.expm1(ratio - half), math.expm1(ratio + half)))
    assert found.noise == pytest.approx(2 / 10.6)
    assert found.verdict is Assessment.FASTER
    assert compared([10.0], [20.0], noise=0.1).interval is None


def test_a_difference_has_to_exceed_both_the_spread_and_the_interval() -> None:
    # Spread 2, interval 2.1: the difference of 2.05 exceeds the first alone.
    assert compared([10.0, 11.0, 12.0], [12.05, 13.05, 14.05]).verdict is Assessment.UNPROVED
    # Ten runs: the interval is 1, the spread 2.
    many = [10.0, 12.0] * 5
    assert compared(many, [value + 1.5 for value in many]).verdict is Assessment.NOISE
    assert compared(many, [value + 2.5 for value in many]).verdict is Assessment.FASTER


def test_a_noise_that_the_repeats_refute_proves_nothing() -> None:
    assert compared([10.0, 11.0], [12.0], noise=0.1).verdict is Assessment.FASTER
    assert compared([10.0, 11.0], [12.0], noise=0.05).verdict is Assessment.UNPROVED


def test_of_figures_that_have_no_logarithm_nothing_is_proved() -> None:
    assert compared([0.0, 1.0], [50.0]).verdict is Assessment.UNPROVED
    assert compared([0.0, 0.0], [5.0]).verdict is Assessment.UNPROVED
    assert compared([0.0, 1.0], [0.5]).verdict is Assessment.NOISE


def test_repeats_that_never_differ_have_no_noise() -> None:
    assert compared([5.0] * 3, [5.0] * 3).verdict is Assessment.NOISE
    assert compared([5.0] * 3, [5.1] * 3).verdict is Assessment.FASTER


@pytest.mark.parametrize(
    ("unit", "more", "less"),
    [
        (BYTES, Assessment.FASTER, Assessment.SLOWER),
        ("operations_per_second", Assessment.FASTER, Assessment.SLOWER),
        ("seconds", Assessment.SLOWER, Assessment.FASTER),
        ("packets", Assessment.MORE, Assessment.LESS),
        ("ratio", Assessment.MORE, Assessment.LESS),
    ],
)
def test_the_unit_says_which_way_is_faster(unit: str, more: Assessment, less: Assessment) -> None:
    assert compared([1.0, 1.0], [2.0], unit=unit).verdict is more
    assert compared([2.0, 2.0], [1.0], unit=unit).verdict is less


def test_scores_are_compared_too_and_come_last() -> None:
    score = Result("total", "score", 10.0)
    base = group(*(run(phase("write", 1.0), scores=[score]) for _ in range(2)))
    other = group(run(phase("write", 1.0), phase("read", 2.0), scores=[Result("total", "score", 12.0)]))

    comparison = compare(base, other)

    assert [found.key.phase for found in comparison.rows] == ["write", "read", ""]
    assert comparison.rows[-1].verdict is Assessment.BETTER


def test_a_phase_that_one_side_alone_has_is_shown_and_not_judged() -> None:
    comparison = compare(group(run(phase("a", 1.0), phase("b", 1.0))), group(run(phase("b", 1.0), phase("c", 1.0))))

    assert [(found.key.phase, found.base is None, found.other is None) for found in comparison.rows] == [
        ("a", False, True),
        ("b", False, False),
        ("c", True, False),
    ]
    assert {found.verdict for found in comparison.rows if not (found.base and found.other)} == {Assessment.ONE_SIDED}


def test_phases_of_one_name_are_matched_by_their_place() -> None:
    base = group(run(phase("write", 1.0), phase("read", 5.0), phase("write", 2.0)))

    comparison = compare(base, group(run(phase("write", 3.0), phase("write", 4.0))))

    assert [(found.key.phase, found.key.occurrence, found.other and found.other.mean) for found in comparison.rows] == [
        ("write", 1, 3.0),
        ("read", 1, None),
        ("write", 2, 4.0),
    ]


def test_phases_of_different_benchmarks_are_different_ones() -> None:
    comparison = compare(group(run(phase("write", 1.0))), group(run(phase("write", 1.0, benchmark="fio"))))

    assert len(comparison.rows) == 2


def test_the_main_figure_is_compared_or_every_one() -> None:
    results = [Result("write", BYTES, 1.0), Result("write", "operations_per_second", 2.0), Result("write", BYTES, 9.0)]
    base = group(run(phase("write", 0.0, results=results)))
    other = group(run(phase("write", 0.0, results=results[1::-1])))

    assert [found.key.unit for found in compare(base, other).rows] == [BYTES]
    assert [found.key.unit for found in compare(base, other, every=True).rows] == [BYTES, "operations_per_second"]
    assert row(compare(base, other)).change == 0.0


def test_the_mean_is_over_the_runs_that_have_the_figure() -> None:
    base = group(run(phase("write", 1.0)), run(), run(phase("write", 3.0)))

    found = compare(base, base).rows[0]

    assert found.base is not None
    assert (found.base.values, found.base.mean) == ((1.0, 3.0), 2.0)


def test_a_phase_under_thirty_seconds_is_marked_as_short() -> None:
    def marks(seconds: float | None, end: float = 100.0) -> tuple[str, ...]:
        short = group(run(phase("write", 1.0, seconds=seconds, end=end)))
        return row(compare(group(run(phase("write", 1.0))), short)).marks

    assert marks(29.9) == ("short",)
    assert marks(30.0) == ()
    assert marks(None, end=5.0) == ("short",)
    assert marks(None, end=500.0) == ()


def test_invalid_and_failed_figures_are_marked_with_their_side() -> None:
    good = group(run(phase("write", 1.0)))
    bad = group(run(phase("write", 1.0)), run(phase("write", 1.0, valid=False, state="failed")))

    assert row(compare(good, bad)).marks == ("invalid", "failed")
    assert row(compare(bad, good)).marks == ("base invalid", "base failed")
    assert row(compare(bad, bad)).marks == ("both invalid", "both failed")


def test_an_invalid_run_has_an_invalid_score() -> None:
    invalid = group(run(scores=[Result("total", "score", 1.0)], valid=False))

    assert row(compare(invalid, invalid)).marks == ("both invalid",)


def test_what_is_no_figure_is_left_out() -> None:
    odd = group(run(phase("a", math.inf), phase("b", math.nan), phase("c", 1e300), phase("d", 1.0)))

    assert [found.key.phase for found in compare(odd, odd).rows] == ["d"]


@pytest.mark.parametrize(("first", "second"), [([0.0], [0.0]), ([0.0, 0.0], [5.0]), ([5.0, 5.0], [0.0])])
def test_nothing_is_a_share_of_zero(first: list[float], second: list[float]) -> None:
    found = compared(first, second)

    assert (found.change is None) == (first[0] == 0)


@given(VALUES, VALUES, st.none() | st.floats(0, 1))
def test_the_base_changes_the_sign_and_not_whether_there_is_a_difference(
    first: list[float], second: list[float], noise: float | None
) -> None:
    one, other = compared(first, second, noise), compared(second, first, noise)

    assert other.verdict == OPPOSITE.get(one.verdict, one.verdict)
    assert one.change is not None
    assert other.change is not None
    assert one.change == 0 or (one.change > 0) == (other.change < 0)


@given(VALUES, VALUES, st.none() | st.floats(0, 1), st.integers(-20, 20))
def test_the_unit_in_which_figures_are_counted_changes_nothing(
    first: list[float], second: list[float], noise: float | None, power: int
) -> None:
    scaled = compared([value * 2.0**power for value in first], [value * 2.0**power for value in second], noise)
    plain = compared(first, second, noise)

    assert scaled.verdict is plain.verdict
    assert (scaled.change, scaled.noise, scaled.interval) == (plain.change, plain.noise, plain.interval)


@given(VALUES, VALUES, st.randoms())
def test_the_order_of_repeats_changes_nothing(first: list[float], second: list[float], random: object) -> None:
    shuffled = sorted(first, key=lambda _: random.random())  # type: ignore[attr-defined]
    one, other = compared(first, second), compared(shuffled, second)

    assert replace(one, base=None) == replace(other, base=None)


@given(VALUES)
def test_a_group_never_differs_from_itself(values: list[float]) -> None:
    found = compared(values, values)

    assert found.change == 0
    assert found.verdict is (Assessment.UNKNOWN if len(values) == 1 else Assessment.NOISE)


@given(VALUES, VALUES, st.none() | st.floats(0, 1))
def test_a_claim_is_made_only_of_what_exceeds_every_spread(
    first: list[float], second: list[float], noise: float | None
) -> None:
    found = compared(first, second, noise)
    assert found.base is not None
    assert found.other is not None

    difference = abs(found.base.mean - found.other.mean)
    exceeded = difference > max(found.base.range or 0, found.other.range or 0)
    if noise is not None:
        exceeded &= difference > noise * max(found.base.mean, found.other.mean)
    if found.interval is not None:
        exceeded &= not found.interval[0] <= 0 <= found.interval[1]
    known = len(first) > 1 or len(second) > 1 or noise is not None
    assert (found.verdict in OPPOSITE) == (exceeded and known)


@given(VALUES, VALUES)
def test_of_noises_that_the_repeats_do_not_refute_more_never_makes_a_claim(
    first: list[float], second: list[float]
) -> None:
    least = max(max(values) - min(values) for values in (first, second)) / max(fmean(first), fmean(second))
    verdicts = [compared(first, second, least * 1.001 + noise).verdict for noise in (0.0, 0.1, 0.5, 1.0)]

    claims = [verdict in OPPOSITE for verdict in verdicts]
    assert claims == sorted(claims, reverse=True)


def judged(kind: str, *limits: tuple[str, str, float]) -> VerdictMark:
    return VerdictMark(kind, tuple(LimitMark(*limit) for limit in limits))


def test_what_limited_a_phase_is_set_side_by_side_and_said_to_have_moved() -> None:
    lock = judged("resource", ("mds_lock", "mds.a", 0.8))
    base = group(run(phase("find", 1.0, verdict=lock), phase("write", 1.0, verdict=lock), phase("read", 1.0)))
    elsewhere = judged("resource", ("mds_lock", "mds.b", 0.5))
    other = group(run(phase("find", 2.0, verdict=judged("latency-bound")), phase("write", 1.0, verdict=elsewhere)))

    moves = compare(base, other).moves

    assert [(move.place.phase, move.moved) for move in moves] == [("find", True), ("write", False)]
    assert moves[0].base == bottleneck([lock])
    assert moves[1].other is not None
    assert moves[1].other.limits == elsewhere.limits


def test_a_bottleneck_has_not_moved_where_half_of_the_repeats_say_otherwise() -> None:
    lock, idle = judged("resource", ("mds_lock", "mds.a", 0.8)), judged("idle")
    base = group(run(phase("find", 1.0, verdict=lock)))

    def moved(*verdicts: VerdictMark) -> bool:
        other = group(*(run(phase("find", 1.0, verdict=verdict)) for verdict in verdicts))
        return compare(base, other).moves[0].moved

    assert not moved(idle, lock)
    assert moved(idle, lock, idle)


def commits(*milliseconds: float) -> RunGroup:
    """Return repeats whose writes take 1 ms in the queue and so long in the commit."""
    marks = [
        VerdictMark(
            "latency-bound", steps=(StepMark("OSD write", "queue", 1e-3), StepMark("OSD write", "kv commit", one / 1e3))
        )
        for one in milliseconds
    ]
    return group(*(run(phase("write", 1.0, verdict=mark)) for mark in marks))


def test_a_step_of_an_operation_has_moved_if_every_repeat_says_so() -> None:
    (move,) = compare(commits(2.0, 2.4), commits(4.0, 4.8)).moves

    (step,) = move.steps
    assert step == Shift("OSD write", "kv commit", step.before, step.after)
    assert (step.before, step.after) == pytest.approx((2.2e-3, 4.4e-3))
    assert not move.moved
    assert compare(commits(2.0, 4.5), commits(4.0, 9.0)).moves[0].steps == ()
    assert compare(commits(2.0), commits(2.9)).moves[0].steps == ()
    assert compare(commits(0.02), commits(0.1)).moves[0].steps == ()


def test_the_score_stands_for_the_whole_or_else_the_only_figure() -> None:
    scores = [Result("bandwidth", BYTES, 1.0), Result("total", "score", 2.0)]
    scored, one = group(run(phase("a", 1.0), scores=scores)), group(run(phase("a", 1.0)))
    two = group(run(phase("a", 1.0), phase("b", 1.0)))

    found = compare(scored, scored).headline
    assert found is not None
    assert found.key.operation == "total"
    found = compare(one, one).headline
    assert found is not None
    assert found.key.phase == "a"
    assert compare(two, two).headline is None


@pytest.mark.parametrize("repeats", [(2, 2), (3, 3), (4, 2)])
def test_of_equal_runs_of_twelve_phases_one_comparison_in_twenty_claims_a_difference(repeats: tuple[int, int]) -> None:
    draw = random.Random(5)

    def runs(count: int) -> RunGroup:
        names = [f"p{number}" for number in range(12)]
        return group(
            *(run(*(phase(name, 100 * math.exp(draw.gauss(0, 0.05))) for name in names)) for _ in range(count))
        )

    comparisons = [compare(runs(repeats[0]), runs(repeats[1])) for _ in range(300)]

    assert sum(any(found.verdict in CLAIMS for found in each.rows) for each in comparisons) < 0.075 * 300


def test_what_changed_in_every_phase_is_claimed_more_easily_than_what_changed_in_one() -> None:
    def runs(*factors: float) -> RunGroup:
        return group(
            *(
                run(*(phase(f"p{number}", 100 * factor * scatter) for number, factor in enumerate(factors)))
                for scatter in (0.96, 1.0, 1.04)
            )
        )

    one, all_ = compare(runs(1, 1, 1), runs(1.13, 1, 1)), compare(runs(1, 1, 1), runs(1.13, 1.13, 1.13))

    assert [found.verdict for found in one.rows].count(Assessment.FASTER) == 0
    assert [found.verdict for found in all_.rows].count(Assessment.FASTER) == 3
    assert (one.rows[0].noise or 0) > (all_.rows[0].noise or 0)
