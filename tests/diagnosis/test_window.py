from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.window import Sighting, Sightings, Stream, Window, Windows, needed
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.runs import PhaseMark

WORK = "pinchpoint_workload_seconds_total"
PROCESSES = "pinchpoint_workload_processes"
KEY = (("wait", "cpu"),)
SAMPLES = "pinchpoint_sampler_samples_total"


def host(time: float, **values: float) -> Snapshot:
    return Snapshot(time, {name: {KEY: value} for name, value in values.items()})


def moment(time: float, *hosts: str, **values: float) -> Snapshots:
    return {name: host(time, **values) for name in hosts or ("a",)}


def seconds(first: int, last: int) -> list[Snapshots]:
    return [moment(float(second)) for second in range(first, last)]


def window(start: float, end: float | None, moments: Iterable[Snapshots]) -> Window:
    """Return the window of a phase as cut from a recording."""
    windows = Windows()
    found = windows.open(start, end)
    for taken in moments:
        windows.take(taken)
    windows.finish()
    return found


def times(found: Window) -> tuple[dict[str, float], dict[str, float]]:
    before, after = ({host: taken.time for host, taken in side.items()} for side in (found.before, found.after))
    return before, after


def parts(found: Window) -> list[dict[str, float]]:
    return [{host: taken.time for host, taken in inner.items()} for inner in found.inner]


def test_a_phase_has_parts_of_three_seconds_and_more_and_few_of_them() -> None:
    assert window(10.3, 15.8, seconds(0, 40)).parted == (14.0,)
    assert window(10.3, 25.0, seconds(0, 40)).parted == (14.0, 17.0, 20.0, 23.0)
    assert window(10.3, 26.0, seconds(0, 40)).parted == (17.0, 23.0)
    assert window(10.3, 14.0, seconds(0, 40)).parted == ()
    assert parts(window(10.3, 15.8, seconds(0, 40))) == [{"a": 14.0}]


def test_a_phase_that_lasts_is_parted_live_as_in_its_recording() -> None:
    for end in (25.0, 60.0, 150.2, 900.0):
        found, windows = live(10.3, end, seconds(0, 1000), late=2.5)

        assert found.parted == windows.parted(10.3, end) == window(10.3, end, seconds(0, 1000)).parted
        assert 2 <= len(found.parted) <= 4


def test_a_moment_that_parts_a_phase_has_the_hosts_that_answered_of_late() -> None:
    moments = [moment(float(second), *(("a", "b") if second < 12 else ("a",))) for second in range(30)]

    assert parts(window(10.0, 24.0, moments)) == [
        {"a": 13.0, "b": 11.0},
        {"a": 16.0, "b": 11.0},
        {"a": 19.0},
        {"a": 22.0},
    ]


def test_a_phase_lies_between_the_moments_that_are_nearest_to_its_start_and_end() -> None:
    assert times(window(10.6, 12.3, seconds(9, 20))) == ({"a": 11.0}, {"a": 12.0})
    assert times(window(10.4, 12.7, seconds(9, 20))) == ({"a": 10.0}, {"a": 13.0})
    assert times(window(10.0, 12.0, seconds(9, 20))) == ({"a": 10.0}, {"a": 12.0})


def test_a_phase_that_one_moment_is_nearest_to_lies_between_those_around_it() -> None:
    slow = [moment(0.0), moment(15.0), moment(30.0)]

    assert times(window(16.0, 21.0, slow)) == ({"a": 15.0}, {"a": 30.0})
    assert times(window(10.0, 14.0, slow)) == ({"a": 0.0}, {"a": 15.0})


def test_a_phase_that_the_recording_does_not_cover_has_what_there_is_of_it() -> None:
    assert times(window(10.0, 20.0, seconds(13, 16))) == ({"a": 13.0}, {"a": 15.0})
    assert times(window(10.0, 20.0, seconds(13, 14))) == ({}, {})
    assert times(window(10.0, 20.0, seconds(30, 40))) == ({}, {})
    assert times(window(10.0, 20.0, [])) == ({}, {})


def test_a_phase_without_an_end_ends_with_the_recording() -> None:
    assert times(window(10.0, None, seconds(9, 16))) == ({"a": 10.0}, {"a": 15.0})
    assert times(window(15.4, None, seconds(9, 16))) == ({}, {})


def test_a_host_that_gave_no_answer_stands_as_it_was_for_five_seconds() -> None:
    found = window(10.0, 20.0, [moment(9.0, "a", "b"), moment(10.0), moment(19.0, "a", "b"), moment(20.0)])
    gone = window(10.0, 20.0, [moment(1.0, "b"), moment(10.0), moment(20.0)])

    assert times(found) == ({"a": 10.0, "b": 9.0}, {"a": 20.0, "b": 19.0})
    assert times(gone) == ({"a": 10.0}, {"a": 20.0})


def test_a_host_that_comes_in_the_middle_of_a_phase_counts_from_there() -> None:
    found = window(10.0, 20.0, [moment(10.0), moment(12.0, "a", "b"), moment(15.0, "a", "b"), moment(20.0, "a", "b")])

    assert times(found) == ({"a": 10.0, "b": 12.0}, {"a": 20.0, "b": 20.0})


def test_a_host_that_goes_is_in_the_phase_as_it_was_last_seen() -> None:
    found = window(10.0, 40.0, [moment(10.0, "a", "b"), moment(15.0, "a", "b"), moment(39.0), moment(40.0)])

    assert times(found) == ({"a": 10.0, "b": 10.0}, {"a": 40.0, "b": 15.0})


def test_a_host_that_is_not_seen_again_has_no_end() -> None:
    found = window(10.0, 40.0, [moment(10.0, "a", "b"), moment(40.0)])

    assert times(found) == ({"a": 10.0, "b": 10.0}, {"a": 40.0})


def test_a_moment_in_which_no_host_answered_says_nothing() -> None:
    assert times(window(10.0, 12.0, [moment(10.0), {}, moment(11.0), {}, moment(12.0)])) == ({"a": 10.0}, {"a": 12.0})


def live(start: float, end: float, moments: Iterable[Snapshots], late: float) -> tuple[Window, Windows]:
    """Return the window of a phase whose start and end are reported so many seconds late, as moments come."""
    windows = Windows()
    found: Window | None = None
    for taken in moments:
        windows.take(taken)
        now = next(iter(taken.values())).time
        if found is None and now >= start + late:
            found = windows.open(start)
        if found is not None and found.end is None and now >= end + late:
            windows.close(found, end)
    assert found is not None
    return found, windows


def test_starts_and_ends_that_are_told_late_are_where_they_were() -> None:
    found, windows = live(10.3, 14.8, seconds(0, 30), late=2.5)

    assert found.moments == windows.moments(10.3, 14.8) == (10.0, 15.0)


def test_what_is_told_too_late_is_near_and_known_to_be_off() -> None:
    found, windows = live(10.3, 14.8, seconds(0, 40), late=10.0)

    assert found.moments == (18.0, 22.0)
    assert windows.moments(10.3, 14.8) == (10.0, 15.0)


SECONDS = st.lists(st.integers(0, 400).map(lambda tenths: tenths / 10), min_size=2, max_size=30, unique=True).map(
    sorted
)


@given(SECONDS, st.floats(-2, 42), st.floats(0, 30), st.floats(0, 2), st.data())
def test_a_phase_that_is_seen_live_is_the_same_in_the_recording(
    seconds: list[float], start: float, length: float, late: float, data: st.DataObject
) -> None:
    hosts = [data.draw(st.sampled_from([("a",), ("a", "b"), ("b", "a"), ("b",)])) for _ in seconds]
    moments = [moment(second, *answering) for second, answering in zip(seconds, hosts, strict=True)]
    end = start + length
    if end + late > seconds[-1]:
        return

    seen, windows = live(start, end, moments, late)

    recorded = window(start, end, moments)
    if seen.moments == windows.moments(start, end):
        assert times(seen) == times(recorded)
        if seen.parted == windows.parted(start, end):
            assert parts(seen) == parts(recorded)


@given(SECONDS, st.floats(-5, 45), st.none() | st.floats(0, 30), st.data())
def test_what_is_needed_gives_the_same_window_as_everything(
    seconds: list[float], start: float, length: float | None, data: st.DataObject
) -> None:
    names = [data.draw(st.sampled_from([("a",), ("a", "b"), ("b",), ("b", "c")])) for _ in seconds]
    moments = [moment(second, *answering) for second, answering in zip(seconds, names, strict=True)]
    mark = PhaseMark("p", start, None if length is None else start + length)
    changes = [place for place, answering in enumerate(names) if place == 0 or answering != names[place - 1]]

    wanted = needed(seconds, changes, [mark])

    sparing = (taken for place, taken in enumerate(moments) if place in wanted)
    read, everything = window(mark.start, mark.end, sparing), window(mark.start, mark.end, moments)
    assert times(read) == times(everything)
    assert parts(read) == parts(everything)


def test_of_a_long_recording_only_what_is_needed_is_read() -> None:
    seconds = [float(second) for second in range(10_000)]
    marks = [PhaseMark("p", 1000.5, 5000.0)]

    assert {1000, 1001, 4999, 5000} <= needed(seconds, [0], marks)
    assert {3000, 3001} <= needed(seconds, [0, 3001], marks)
    assert len(needed(seconds, [0], marks)) < 15
    assert len(needed(seconds, [0], marks, step=10.0)) == pytest.approx(1000, abs=15)
    assert needed([], [], marks) == set()


def test_what_a_process_used_stays_when_it_has_gone() -> None:
    stream = Stream()
    stream.take(moment(10.0, **{WORK: 1.0, PROCESSES: 3.0, "pinchpoint_memory": 4.0}))

    found = stream.take(moment(11.0, pinchpoint_memory=5.0))["a"]

    assert found == host(11.0, **{WORK: 1.0, PROCESSES: 3.0, "pinchpoint_memory": 5.0})


def test_what_is_of_no_process_goes_when_it_is_gone() -> None:
    stream = Stream()
    stream.take(moment(10.0, pinchpoint_memory=1.0))

    assert stream.take(moment(11.0))["a"] == host(11.0)


def test_who_took_part_in_a_phase_is_forgotten_and_what_they_used_is_not() -> None:
    stream = Stream()
    stream.take(moment(10.0, **{WORK: 1.0, PROCESSES: 3.0}))
    stream.take(moment(11.0))
    stream.forget()

    assert stream.take(moment(12.0))["a"] == host(12.0, **{WORK: 1.0})


@pytest.mark.parametrize("uptime", [5.0, 1e5])
def test_a_host_whose_exporter_is_started_in_a_phase_counts_from_there_however_long_it_ran(uptime: float) -> None:
    def samples(second: int) -> float:
        return 10 * (second - 12) if second >= 13 else 10 * (second + uptime)

    moments = [
        {**moment(float(second), "b"), "a": host(float(second), **{SAMPLES: samples(second)})} for second in range(40)
    ]

    assert times(window(10.0, 30.0, moments)) == ({"a": 13.0, "b": 10.0}, {"a": 30.0, "b": 30.0})
    assert times(window(14.0, 30.0, moments)) == ({"a": 14.0, "b": 14.0}, {"a": 30.0, "b": 30.0})


def test_an_exporter_that_was_started_anew_has_nothing_of_before() -> None:
    stream = Stream()
    stream.take(moment(10.0, **{WORK: 1.0, SAMPLES: 100.0}))

    assert stream.take(moment(11.0, **{SAMPLES: 3.0}))["a"] == host(11.0, **{SAMPLES: 3.0})


def named(sightings: Iterable[Sighting], start: float, end: float, moments: int = 30) -> dict[str, tuple[str, float]]:
    """Return the hottest thread of each host from `start` to `end`, with one moment per second."""
    known = Sightings()
    for second in range(moments):
        known.times.append(float(second))
        for sighting in sightings:
            if sighting.time == second:
                known.add(*sighting[1:])
    return {host: (thread, round(busy, 6)) for host, ((thread, _, busy), *_) in known.hottest(start, end).items()}


def seen(time: float, thread: str, busy: float, host: str = "a") -> Sighting:
    return Sighting(time, host, thread, "foo", busy)


def test_the_thread_without_a_role_that_was_seen_most_speaks_for_a_phase() -> None:
    sightings = [
        *(seen(time, "before", 1.0) for time in range(8, 14)),
        *(seen(time, "one", 0.8) for time in (14, 15, 16, 17)),
    ]
    sightings += [seen(18, "two", 1.0), seen(20, "end", 0.5), *(seen(time, "after", 1.0) for time in range(21, 29))]

    # A moment describes the 3 s before it: seven describe only the phase, and the thread is in four of them.
    assert named(sightings, 10, 20) == {"a": ("one", round(0.8 * 4 / 7, 6))}


def test_of_a_host_the_hottest_threads_are_known_and_of_a_pool_one() -> None:
    known = Sightings()
    for second in range(20):
        known.times.append(float(second))
        for thread, busy in (("worker-1", 0.9), ("worker-2", 0.8), ("one", 0.7), ("two", 0.6), ("three", 0.5)):
            known.add("a", thread, "foo", busy)

    assert [thread for thread, *_ in known.hottest(5, 15)["a"]] == ["worker-1", "one", "two"]


def test_each_host_has_its_own() -> None:
    sightings = [seen(12, "one", 0.9), seen(12, "two", 0.6, host="b")]

    assert named(sightings, 10, 12) == {"a": ("one", 0.9), "b": ("two", 0.6)}


def test_a_phase_ends_with_the_first_moment_after_it() -> None:
    sightings = [seen(12, "one", 0.9), seen(13, "two", 0.95)]

    assert named(sightings, 10.2, 11.6) == {"a": ("one", 0.45)}


def test_a_phase_without_moments_has_none() -> None:
    assert named([seen(5, "one", 1.0)], 10, 12, moments=6) == {}
    assert named([], 10, 12, moments=0) == {}


def test_a_day_of_sightings_is_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.diagnosis.window.MIN_SIGHTINGS", 10)

    known = Sightings()
    for second in range(100):
        known.take({"a": Snapshot(float(second), {"pinchpoint_unknown_thread_busy_ratio": {(): 1.0}})})

    assert 10 <= len(list(known)) <= 20
    assert list(known)[-1].time == 99.0
