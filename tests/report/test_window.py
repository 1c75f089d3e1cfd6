from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.report.window import Reader, Sighting, Window, hottest, needed
from pinchpoint.runs import PhaseMark

WORK = "pinchpoint_workload_seconds_total"
KEY = (("wait", "cpu"),)


def moment(time: float, *hosts: str, **values: float) -> Snapshots:
    return {host: Snapshot(time, {name: {KEY: value} for name, value in values.items()}) for host in hosts or ("a",)}


def window(start: float, end: float | None, *moments: Snapshots) -> Window:
    reader = Reader([PhaseMark("p", start, end)])
    for taken in moments:
        reader.take(taken)
    reader.finish(None)
    return reader.windows[0]


def times(found: Window) -> tuple[dict[str, float], dict[str, float]]:
    before, after = ({host: taken.time for host, taken in side.items()} for side in (found.before, found.after))
    return before, after


def test_a_phase_lies_between_the_last_moment_before_it_and_the_first_one_after_it() -> None:
    found = window(10.5, 12.5, *(moment(float(second)) for second in range(9, 20)))

    assert times(found) == ({"a": 10.0}, {"a": 13.0})


def test_moments_at_its_very_start_and_end_are_the_ones() -> None:
    found = window(10.0, 12.0, *(moment(float(second)) for second in range(9, 20)))

    assert times(found) == ({"a": 10.0}, {"a": 12.0})


def test_a_phase_that_the_recording_does_not_cover_has_what_there_is_of_it() -> None:
    assert times(window(10.0, 20.0, moment(13.0), moment(14.0), moment(15.0))) == ({"a": 13.0}, {"a": 15.0})
    assert times(window(10.0, 20.0)) == ({}, {})


def test_a_phase_without_an_end_ends_with_the_recording() -> None:
    found = window(10.0, None, moment(9.0), moment(14.0), moment(15.0))

    assert times(found) == ({"a": 9.0}, {"a": 15.0})
    assert found.end == 15.0


def test_a_host_that_gave_no_answer_stands_as_it_was_for_five_seconds() -> None:
    found = window(10.0, 20.0, moment(9.0, "a", "b"), moment(10.0, "a"), moment(19.0, "a", "b"), moment(20.0, "a"))
    gone = window(10.0, 20.0, moment(1.0, "b"), moment(10.0, "a"), moment(20.0, "a"))

    assert times(found) == ({"a": 10.0, "b": 9.0}, {"a": 20.0, "b": 19.0})
    assert times(gone) == ({"a": 10.0}, {"a": 20.0})


def test_a_moment_in_which_no_host_answered_says_nothing() -> None:
    found = window(10.0, 12.0, moment(9.0), {}, moment(11.0), {}, moment(13.0))

    assert times(found) == ({"a": 9.0}, {"a": 13.0})


def test_what_a_process_used_that_ended_before_the_phase_counts() -> None:
    found = window(
        10.0, 12.0, moment(10.0, **{WORK: 1.0}), moment(11.0, **{WORK: 2.0}), moment(12.0, pinchpoint_memory=5.0)
    )

    assert found.after["a"].value(WORK, wait="cpu") == 2.0
    assert found.after["a"].value("pinchpoint_memory", wait="cpu") == 5.0
    assert found.after["a"].time == 12.0


def test_what_is_no_integral_of_a_process_is_not_kept_when_it_is_gone() -> None:
    found = window(10.0, 12.0, moment(10.0, pinchpoint_memory=1.0), moment(12.0))

    assert found.after["a"].values == {}


def test_settings_are_gathered_unless_they_are_known() -> None:
    labels: Labels = (("fact", "kernel"), ("value", "6.1"))
    fact = {"pinchpoint_host_fact_info": {labels: 1.0}}
    reader, knowing = Reader([]), Reader([], known={"a": {"kernel": ["5.10"]}})
    for taken in (reader, knowing):
        taken.take({"a": Snapshot(1.0, fact)})

    assert reader.facts == {"a": {"kernel": ["6.1"]}}
    assert knowing.facts == {"a": {"kernel": ["5.10"]}}


def test_of_a_long_recording_only_what_is_needed_is_read() -> None:
    seconds = [float(second) for second in range(10_000)]
    marks = [PhaseMark("p", 1000.5, 5000.0)]

    assert {1000, 1001, 4999, 5000} <= needed(seconds, marks)
    assert len(needed(seconds, marks)) < 15
    assert len(needed(seconds, marks, step=10.0)) == pytest.approx(1000, abs=15)
    assert needed([], marks) == set()


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=40).map(sorted),
    st.floats(-5, 105),
    st.floats(0, 50),
)
def test_what_is_needed_gives_the_same_window_as_everything(seconds: list[float], start: float, length: float) -> None:
    mark = PhaseMark("p", start, start + length)
    wanted = needed(seconds, [mark])
    every = [moment(second) for second in seconds]

    sparing = window(mark.start, mark.end, *(taken for place, taken in enumerate(every) if place in wanted))

    assert times(sparing) == times(window(mark.start, mark.end, *every))


def named(sightings: list[Sighting], start: float, end: float) -> dict[str, tuple[str, float]]:
    """Return the thread that speaks for each host from `start` to `end`, of 30 moments, one a second."""
    found = hottest(sightings, range(30), start, end)
    return {host: (thread, round(busy, 6)) for host, (thread, _, busy) in found.items()}


def seen(time: float, thread: str, busy: float, host: str = "a") -> Sighting:
    return Sighting(time, host, thread, "foo", busy)


def test_the_thread_without_a_role_that_was_seen_most_speaks_for_a_phase() -> None:
    sightings = [
        *(seen(time, "before", 1.0) for time in range(8, 14)),
        *(seen(time, "one", 0.8) for time in (14, 15, 16, 17)),
    ]
    sightings += [seen(18, "two", 1.0), seen(20, "end", 0.5), *(seen(time, "after", 1.0) for time in range(21, 29))]

    # A moment tells of the 3 s before it: of the seven that tell of nothing but the phase it was there at four.
    assert named(sightings, 10, 20) == {"a": ("one", round(0.8 * 4 / 7, 6))}


def test_each_host_has_its_own() -> None:
    sightings = [seen(12, "one", 0.9), seen(12, "two", 0.6, host="b")]

    assert named(sightings, 10, 12) == {
        "a": ("one", 0.9),
        "b": ("two", 0.6),
    }


def test_a_phase_ends_with_the_first_moment_after_it() -> None:
    sightings = [seen(12, "one", 0.9), seen(13, "two", 0.95)]

    assert named(sightings, 10.2, 11.6) == {"a": ("one", 0.45)}


def test_a_phase_without_moments_has_none() -> None:
    assert hottest([seen(5, "one", 1.0)], [5.0], 10, 12) == {}
    assert hottest([], [], 10, 12) == {}
