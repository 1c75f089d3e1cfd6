from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks import timeline as timelines
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    PhaseSource,
    Rate,
    RunBegan,
    Scored,
    State,
)
from pinchpoint.benchmarks.timeline import Timeline
from pinchpoint.runs import PhaseMark, Result, RunState
from toy import rate


def seen(phase: str | None, state: State = State.RUNNING, **more: object) -> Sight:
    return Sight(state, phase, **more)  # type: ignore[arg-type]


def shown(timeline: Timeline) -> list[tuple[str, float, float | None, str]]:
    return [(mark.name, mark.start, mark.end, mark.state) for mark in timeline.phases]


def test_looks_alone_give_phases_with_start_and_end() -> None:
    timeline = Timeline("toy")
    for now, phase in ((0.0, None), (1.0, "write"), (2.0, "write"), (3.0, None), (4.0, "read")):
        timeline.see(seen(phase, State.RUNNING if phase else State.BETWEEN), now)
    timeline.end(6.0)

    assert shown(timeline) == [("write", 1.0, 3.0, "finished"), ("read", 4.0, 6.0, "finished")]
    assert timeline.state is State.FINISHED


def test_a_result_meets_the_phase_that_was_seen() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.hear([Ended("write", (rate(5.0),), seconds=1.9)], 3.0, PhaseSource.STDOUT)
    timeline.see(seen("write"), 3.1)

    assert shown(timeline) == [("write", 1.0, 3.0, "finished")]
    assert timeline.phases[0].results == [rate(5.0)]
    assert timeline.phases[0].seconds == 1.9
    assert timeline.state is State.BETWEEN


def test_a_result_that_comes_long_after_its_phase_still_meets_it() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("read"), 3.0)
    timeline.end(5.0)
    timeline.hear([Ended("write", (rate(5.0),)), Ended("read", (rate(6.0),))], 5.5, PhaseSource.STDOUT)

    assert [(mark.name, mark.results[0].value) for mark in timeline.phases] == [("write", 5.0), ("read", 6.0)]
    assert timeline.state is State.FINISHED


def test_a_phase_too_short_to_be_seen_is_known_by_its_result() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("read"), 4.0)
    timeline.hear([Ended("find", (rate(1.0),), seconds=0.5)], 3.9, PhaseSource.RESULT_FILE)

    assert [(mark.name, mark.start, mark.end) for mark in timeline.phases] == [
        ("write", 1.0, 4.0),
        ("find", 3.4, 3.9),
        ("read", 4.0, None),
    ]
    assert timeline.phases[1].source == "result_file"


def test_results_that_come_all_at_once_lie_one_after_the_other() -> None:
    timeline = Timeline("toy")
    timeline.hear([Ended("write", (rate(1.0),), 2.0), Ended("read", (rate(1.0),), 3.0)], 10.0, PhaseSource.STDOUT)

    assert [(mark.name, mark.start, mark.end) for mark in timeline.phases] == [("write", 5.0, 7.0), ("read", 7.0, 10.0)]


def test_a_phase_that_stands_for_the_whole_run_goes_when_real_ones_are_known() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("toy", vague=True), 0.0)
    timeline.see(seen("toy", vague=True), 5.0)
    timeline.hear([Ended("write", (rate(1.0),), 2.0), Ended("read", (rate(1.0),), 3.0)], 6.0, PhaseSource.STDOUT)
    timeline.see(seen("toy", vague=True), 6.2)
    timeline.end(6.4)

    assert [mark.name for mark in timeline.phases] == ["write", "read"]


def test_a_phase_that_output_began_is_not_ended_by_looks_that_cannot_see_it() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("toy", vague=True), 0.0)
    timeline.hear([Began("write")], 1.0, PhaseSource.STDOUT)
    timeline.see(seen("toy", vague=True), 2.0)
    timeline.hear([Began("read")], 3.0, PhaseSource.STDOUT)
    timeline.end(4.0)

    assert shown(timeline) == [("write", 1.0, 3.0, "finished"), ("read", 3.0, 4.0, "finished")]


def test_a_repeated_phase_is_there_as_often_as_it_ran() -> None:
    timeline = Timeline("toy")
    for start in (0.0, 10.0):
        timeline.see(seen("write"), start)
        timeline.hear([Ended("write", (rate(start),))], start + 4, PhaseSource.STDOUT)
        timeline.see(seen("read"), start + 5)
        timeline.hear([Ended("read", (rate(start),))], start + 9, PhaseSource.STDOUT)

    assert [mark.name for mark in timeline.phases] == ["write", "read", "write", "read"]


def test_a_phase_that_was_left_out_is_none() -> None:
    timeline = Timeline("toy")
    timeline.hear([Ended("write", (rate(0.0),), 0.0, ran=False)], 1.0, PhaseSource.STDOUT)

    assert timeline.phases == []


def test_a_run_that_is_killed_fails_in_the_phase_that_went_on() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 0.0)
    timeline.see(seen("read"), 2.0)
    timeline.end(3.0, State.FAILED)

    assert [mark.state for mark in timeline.phases] == ["finished", "failed"]
    assert timeline.state is State.FAILED


def test_a_run_that_somebody_stops_has_not_failed() -> None:
    by_signal, by_words = Timeline("toy"), Timeline("toy")
    for timeline in (by_signal, by_words):
        timeline.see(seen("write"), 0.0)
    by_signal.end(3.0, State.STOPPED)
    by_words.end(3.0, State.FAILED)
    by_words.hear([Failed("terminating on signal 15", stopped=True)], 3.2, PhaseSource.STDOUT)

    for timeline in (by_signal, by_words):
        assert (timeline.state, [mark.state for mark in timeline.phases]) == (State.STOPPED, ["stopped"])


def test_a_run_that_comes_to_its_regular_end_after_another_was_stopped_is_finished() -> None:
    timeline = Timeline("toy")
    timeline.hear([Failed("terminating on signal 2", stopped=True), RunBegan(), Completed()], 1.0, PhaseSource.STDOUT)
    timeline.end(3.0)

    assert timeline.state is State.FINISHED


def test_what_the_output_says_of_the_end_counts_also_when_it_comes_late() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 0.0)
    timeline.end(3.0)
    timeline.hear([Failed("no space left")], 3.2, PhaseSource.STDOUT)

    assert timeline.state is State.FAILED
    assert timeline.reason == "no space left"


def test_a_failure_is_not_undone_by_a_regular_end() -> None:
    timeline = Timeline("toy")
    timeline.hear([RunBegan(), Completed()], 1.0, PhaseSource.STDOUT)
    timeline.end(3.0, State.FAILED)

    assert timeline.state is State.FAILED


def test_live_figures_are_those_of_the_phase_that_goes_on() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write", expected=60.0, number=2, total=3), 0.0)
    timeline.hear([Rate("", (rate(7.0),), progress=0.25, work=100.0)], 1.0, PhaseSource.STDOUT)
    timeline.hear([Rate("read", (rate(8.0),))], 2.0, PhaseSource.STDOUT)
    mark = timeline.phases[0]

    assert (mark.rates, mark.progress, mark.moved, mark.expected, mark.number) == ([rate(7.0)], 0.25, 1.0, 60.0, 2)
    assert timeline.total == 3

    timeline.see(seen(None, State.BETWEEN), 3.0)

    assert mark.rates == []


def test_work_that_stands_still_moves_nothing() -> None:
    timeline = Timeline("toy")
    for now, work in ((0.0, 0.0), (1.0, 10.0), (2.0, 10.0), (3.0, 10.0)):
        timeline.see(seen("write", work=work), now)

    assert timeline.phases[0].moved == 1.0


def test_score_and_validity_are_kept() -> None:
    timeline = Timeline("toy")
    timeline.hear([Scored((Result("total", "score", 3.2),), valid=False)], 1.0, PhaseSource.STDOUT)

    assert (timeline.scores[-1].value, timeline.valid) == (3.2, False)


@pytest.mark.parametrize(
    "impossible",
    [
        Ended("write", (rate(-5.0),)),
        Ended("write", (rate(5.0),), seconds=-1.0),
        Ended("write", (rate(5.0),), seconds=float("nan")),
    ],
)
def test_a_result_with_an_impossible_number_is_invalid(impossible: Ended) -> None:
    timeline = Timeline("toy")
    timeline.hear([impossible], 3.0, PhaseSource.STDOUT)

    (mark,) = timeline.phases

    assert not mark.valid
    assert mark.seconds is None
    assert all(result.value >= 0 for result in mark.results)


def test_no_other_score_is_taken_for_an_impossible_total() -> None:
    timeline = Timeline("toy")
    total = Result("total", "score", -4.9)
    timeline.hear([Scored((Result("iops", "operations_per_second", 12.0), total))], 3.0, PhaseSource.STDOUT)

    assert timeline.scores == ()
    assert not timeline.valid


def test_a_paused_run_has_no_phase_and_says_so() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 0.0)
    timeline.see(seen(None, State.PAUSED), 1.0)

    assert timeline.state is State.PAUSED
    assert timeline.phases[-1].end == 1.0


def test_two_sources_may_tell_of_the_same_end() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.hear([Ended("write", (rate(5.0),), 2.0)], 3.0, PhaseSource.RESULT_FILE)
    timeline.hear([Ended("find", (rate(1.0),), 0.1)], 3.2, PhaseSource.RESULT_FILE)
    late: list[Event] = [Ended("write", (rate(5.0),), 2.0, valid=False), Ended("find", (rate(1.0),), 0.1)]
    timeline.hear(late, 9.0, PhaseSource.STDOUT)

    assert [(mark.name, mark.valid) for mark in timeline.phases] == [("write", False), ("find", True)]
    assert timeline.phases[0].end == 3.0


def test_what_begins_and_ends_in_one_piece_of_output_lies_before_it() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("toy", vague=True), 0.0)
    piece: list[Event] = [
        Began("write"),
        Ended("write", (rate(1.0),), 0.25),
        Began("read"),
        Ended("read", (rate(1.0),), 0.5),
    ]
    timeline.hear(piece, 8.0, PhaseSource.STDOUT)
    timeline.end(9.0)

    assert shown(timeline) == [("write", 7.25, 7.5, "finished"), ("read", 7.5, 8.0, "finished")]


def test_a_phase_that_was_seen_late_is_as_long_as_its_benchmark_says() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 0.0)
    timeline.see(seen("read"), 5.0)
    timeline.hear([Ended("read", (rate(1.0),), 2.0)], 6.0, PhaseSource.STDOUT)

    assert shown(timeline)[1] == ("read", 5.0, 6.0, "finished")  # the one before had not ended earlier

    timeline = Timeline("toy")
    timeline.see(seen(None, State.SETUP), 0.0)
    timeline.see(seen("write"), 5.0)
    timeline.hear([Ended("write", (rate(1.0),), 2.0)], 6.0, PhaseSource.STDOUT)

    assert shown(timeline) == [("write", 4.0, 6.0, "finished")]


def test_a_phase_that_was_lost_from_sight_early_is_as_long_as_its_benchmark_says() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen(None, State.BETWEEN), 2.0)
    timeline.hear([Ended("write", (rate(1.0),), 3.0)], 4.5, PhaseSource.STDOUT)

    assert shown(timeline) == [("write", 1.0, 4.0, "finished")]


def test_a_phase_that_was_lost_from_sight_in_between_is_one() -> None:
    timeline = Timeline("toy")
    for now, phase in ((0.0, "write"), (3.0, None), (6.0, "write"), (9.0, None), (12.0, "write"), (15.0, "read")):
        timeline.see(seen(phase), now)
    timeline.hear([Ended("write", (rate(5.0),), seconds=14.5)], 20.0, PhaseSource.STDOUT)

    assert [mark[:3] for mark in shown(timeline)] == [("write", 0.0, 15.0), ("read", 15.0, None)]
    assert [len(mark.results) for mark in timeline.phases] == [1, 0]


def test_repetitions_of_a_phase_stay_apart_where_each_is_as_long_as_its_benchmark_says() -> None:
    timeline = Timeline("toy")
    for now, phase in ((0.0, "write"), (3.0, None), (6.0, "write"), (9.0, None)):
        timeline.see(seen(phase), now)
    timeline.hear([Ended("write", (rate(5.0),), seconds=3.0)], 20.0, PhaseSource.STDOUT)

    assert [mark[:3] for mark in shown(timeline)] == [("write", 0.0, 3.0), ("write", 6.0, 9.0)]


def test_a_result_is_not_of_the_repetition_that_has_just_begun() -> None:
    timeline = Timeline("toy")
    for now, phase in ((0.0, "write"), (0.2, None), (10.0, None), (10.2, "write")):
        timeline.see(seen(phase, State.RUNNING if phase else State.BETWEEN), now)
    timeline.hear([Ended("write", (rate(5.0),), 9.0)], 10.2, PhaseSource.STDOUT)

    assert [len(mark.results) for mark in timeline.phases] == [1, 0]


def test_a_file_of_results_does_not_tell_of_a_phase_of_long_ago() -> None:
    """It belongs to the previous run, as in a script that runs a benchmark twice."""
    timeline = Timeline("toy")
    for now, phase in ((0.0, "find"), (5.0, "write"), (10.0, "write"), (15.0, "read")):
        timeline.see(seen(phase), now)
    timeline.hear([Ended("find", (rate(5.0),), 0.1)], 15.2, PhaseSource.RESULT_FILE)

    assert [len(mark.results) for mark in timeline.phases if mark.name == "find"] == [0, 1]


def test_a_command_line_does_not_end_a_phase_that_the_output_named() -> None:
    timeline = Timeline("toy")
    by_argv = Sight(State.RUNNING, "write", PhaseSource.ARGV)
    timeline.see(by_argv, 0.0)
    timeline.hear([Ended("write", (rate(1.0),), 4.0), Began("cleanup")], 4.0, PhaseSource.STDOUT)
    timeline.see(by_argv, 4.2)
    timeline.see(by_argv, 7.0)
    timeline.end(8.0)

    assert shown(timeline) == [("write", 0.0, 4.0, "finished"), ("cleanup", 4.0, 8.0, "finished")]


def test_a_phase_that_is_seen_long_after_its_end_goes_on_anew() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write", source=PhaseSource.FD), 0.0)
    timeline.hear([Ended("write", (rate(1.0),), 4.0)], 4.0, PhaseSource.STDOUT)
    timeline.see(seen("write", source=PhaseSource.FD), 4.2)

    assert timeline.phases[-1].end == 4.0

    timeline.see(seen("write", source=PhaseSource.FD), 7.0)

    assert timeline.phases[-1].end is None
    assert len(timeline.phases) == 2


PHASES = st.sampled_from(["a", "b", "c"])
EVENTS = st.one_of(
    st.builds(RunBegan),
    st.builds(Began, PHASES, st.none() | st.floats(0, 1e6)),
    st.builds(Rate, PHASES | st.just(""), st.just((rate(1.0),)), st.none(), st.none() | st.floats(0, 1e9)),
    st.builds(Ended, PHASES, st.just((rate(1.0),)), st.none() | st.floats(0, 10), st.booleans(), st.booleans()),
    st.builds(Completed),
    st.builds(Failed, st.text(max_size=3)),
)
STEPS = st.lists(
    st.one_of(
        st.lists(EVENTS, max_size=4),
        st.builds(Sight, st.sampled_from(State), st.none() | PHASES, st.just(PhaseSource.FD), st.booleans()),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_comes_phases_are_in_order_of_start_and_at_most_one_goes_on(steps: list[object]) -> None:
    timeline = Timeline("toy")
    for now, step in enumerate(steps):
        if isinstance(step, Sight):
            timeline.see(step, float(now))
        else:
            timeline.hear(step, float(now), PhaseSource.STDOUT)  # type: ignore[arg-type]
        active = [mark for mark in timeline.phases if mark.end is None]
        assert len(active) <= 1
        assert [mark.start for mark in timeline.phases] == sorted(mark.start for mark in timeline.phases)
    timeline.end(float(len(steps)))

    assert all(mark.end is not None and mark.end >= mark.start for mark in timeline.phases)
    assert timeline.state in (State.FINISHED, State.FAILED)


def test_the_number_of_phases_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MAX_PHASES", 100)
    timeline = Timeline("toy")
    for number in range(110):
        timeline.hear([Ended(f"p{number}", (rate(1.0),))], float(number), PhaseSource.STDOUT)

    assert len(timeline.phases) == 100


def test_a_run_that_turns_out_to_have_failed_failed_in_the_phase_that_went_on_last() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("read"), 2.0)
    timeline.end(3.0)
    timeline.end(3.5, State.FAILED)

    assert shown(timeline) == [("write", 1.0, 2.0, "finished"), ("read", 2.0, 3.0, "failed")]


def test_a_process_that_ends_long_after_its_last_word_has_no_second_phase() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("read", source=PhaseSource.THREAD), 1.0)
    timeline.hear([Ended("read", (rate(1.0),))], 5.0, PhaseSource.STDOUT)
    for now in (5.5, 9.0, 9.5):
        timeline.see(seen("read", source=PhaseSource.THREAD), now)
    timeline.end(10.0)

    assert shown(timeline) == [("read", 1.0, 5.0, "finished")]


def test_not_even_when_it_was_lost_from_sight_before_the_end() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("read", source=PhaseSource.THREAD), 1.0)
    timeline.hear([Ended("read", (rate(1.0),))], 5.0, PhaseSource.STDOUT)
    for now, phase in ((5.5, "read"), (9.0, "read"), (9.5, None)):
        timeline.see(seen(phase, source=PhaseSource.THREAD), now)
    timeline.end(10.0)

    assert shown(timeline) == [("read", 1.0, 5.0, "finished")]


def test_a_phase_that_was_seen_again_in_a_run_that_failed_is_one_that_failed() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("read", source=PhaseSource.THREAD), 1.0)
    timeline.hear([Ended("read", (rate(1.0),))], 5.0, PhaseSource.STDOUT)
    timeline.see(seen("read", source=PhaseSource.THREAD), 9.0)
    timeline.end(10.0, State.FAILED)

    assert shown(timeline) == [("read", 1.0, 5.0, "finished"), ("read", 9.0, 10.0, "failed")]


def test_a_regular_end_takes_back_what_seemed_to_be_a_failure() -> None:
    timeline = Timeline("toy")
    timeline.hear([Failed("the output ends early"), RunBegan(), Completed()], 1.0, PhaseSource.STDOUT)
    timeline.end(2.0)

    assert (timeline.state, timeline.reason) == (State.FINISHED, "")


def test_a_phase_that_looks_saw_end_ended_before_those_that_the_same_output_tells_of() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("write"), 2.0)
    timeline.see(seen(None, State.BETWEEN), 3.0)
    timeline.hear([Ended("write", (rate(1.0),), 1.2), Ended("find", (rate(2.0),), 0.5)], 3.0, PhaseSource.STDOUT)

    assert shown(timeline) == [("write", 1.0, 2.5, "finished"), ("find", 2.5, 3.0, "finished")]


def test_a_phase_that_was_held_for_going_on_too_long_gives_way_to_those_that_nobody_saw() -> None:
    timeline = Timeline("toy")
    for now, phase in ((1.0, "create"), (2.0, "create"), (4.0, None), (5.0, None), (9.0, None)):
        timeline.see(seen(phase, State.RUNNING if phase else State.BETWEEN), now)
    timeline.hear([Ended("create", (rate(1.0),), 1.5), Ended("remove", (rate(2.0),), 7.0)], 9.0, PhaseSource.STDOUT)

    assert shown(timeline) == [("create", 0.5, 2.0, "finished"), ("remove", 2.0, 9.0, "finished")]


def test_phases_stay_in_the_order_in_which_files_and_output_tell_of_them() -> None:
    """The output is read right after the file of results: both report the same moments."""
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("write"), 2.0)
    timeline.hear([Ended("write", (rate(1.0),), 1.2), Ended("find", (rate(2.0),), 0.1)], 3.0, PhaseSource.RESULT_FILE)
    timeline.see(seen("read"), 3.0)
    timeline.hear([Ended("read", (rate(3.0),), 0.6), Ended("stat", (rate(4.0),), 0.2)], 3.0, PhaseSource.STDOUT)

    assert [mark.name for mark in timeline.phases] == ["write", "find", "read", "stat"]
    assert all(a.end is not None and a.end <= b.start for a, b in pairwise(timeline.phases))


def test_a_phase_known_by_the_command_line_begins_when_the_one_before_it_has_ended() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("create", source=PhaseSource.ARGV), 0.0)
    timeline.hear([Ended("tree", (rate(1.0),), 0.1), Ended("create", (rate(2.0),), 3.0)], 5.0, PhaseSource.STDOUT)

    assert shown(timeline) == [("tree", 1.9, 2.0, "finished"), ("create", 2.0, 5.0, "finished")]


def test_a_file_of_results_that_is_written_at_the_end_tells_of_phases_of_long_ago() -> None:
    timeline = Timeline("toy")
    timeline.see(seen("write"), 1.0)
    timeline.see(seen("read"), 11.0)
    timeline.see(seen("read"), 20.8)
    timeline.hear([Ended("write", (rate(1.0),), 9.9), Ended("read", (rate(2.0),), 9.9)], 21.0, PhaseSource.RESULT_FILE)

    assert shown(timeline) == [("write", 1.0, 11.0, "finished"), ("read", 11.0, 21.0, "finished")]


def test_a_phase_that_began_and_ended_in_one_piece_of_output_does_not_end_the_one_that_is_seen() -> None:
    timeline = Timeline("toy")
    timeline.see(seen(None, State.SETUP), 1.0)
    timeline.see(seen("read", source=PhaseSource.DATA_FD), 2.0)
    told: list[Event] = [
        Began("write"),
        Ended("write", (rate(1.0),), 0.5),
        Began("read"),
        Ended("read", (rate(2.0),), 0.2),
    ]
    timeline.hear(told, 2.1, PhaseSource.STDOUT)

    assert [(mark.name, bool(mark.results)) for mark in timeline.phases] == [("write", True), ("read", True)]


FIGURES = st.floats() | st.integers(-(10**400), 10**400)
TOLD = st.tuples(st.sampled_from(["write", "read"]), st.lists(FIGURES.map(rate), max_size=2).map(tuple), FIGURES)
SEEN = st.builds(
    lambda phase, number, work: seen(phase, expected=number, progress=number, work=work),
    st.sampled_from(["write", "read"]),
    FIGURES,
    st.floats(allow_nan=False),
)


@given(
    st.lists(
        TOLD.map(lambda told: Ended(*told))
        | TOLD.map(lambda told: Rate(*told, work=told[2]))
        | TOLD.map(lambda told: Began(told[0], told[2]))
        | TOLD.map(lambda told: Scored(told[1]))
        | SEEN,
        max_size=20,
    )
)
def test_whatever_numbers_are_printed_a_marker_can_hold_the_run(told: list[Event | Sight]) -> None:
    timeline = Timeline("toy")
    for now, one in enumerate(told, 1_000_000_000):
        if isinstance(one, Sight):
            timeline.see(one, now)
        else:
            timeline.hear([one], now, PhaseSource.STDOUT)
    state = RunState("r", "toy", 1e9, phases=timeline.phases, scores=list(timeline.scores))

    assert msgspec.json.decode(msgspec.json.encode(state), type=RunState) == state


def test_a_figure_that_cannot_be_one_is_left_out_and_the_phase_kept() -> None:
    timeline = Timeline("toy")
    results = (rate(float("inf")), rate(-1.0), rate(10**400), rate(5.0, "read"))
    timeline.hear([Ended("write", results, seconds=-1.0)], 10.0, PhaseSource.STDOUT)

    assert timeline.phases == [
        PhaseMark(
            name="write",
            start=10.0,
            end=10.0,
            results=[rate(5.0, "read")],
            benchmark="toy",
            state=State.FINISHED,
            source=PhaseSource.STDOUT,
            valid=False,
        )
    ]


def test_a_phase_that_took_longer_than_there_has_been_time_began_when_time_did() -> None:
    timeline = Timeline("toy")
    timeline.hear([Ended("write", seconds=20.0), Ended("read", seconds=1e10)], 15.0, PhaseSource.STDOUT)

    assert [(mark.name, mark.start) for mark in timeline.phases] == [("write", 0.0), ("read", 0.0)]
