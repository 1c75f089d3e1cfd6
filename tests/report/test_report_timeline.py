from __future__ import annotations

from itertools import pairwise
from math import isnan

import pytest

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.report.timeline import ResourceLine, RunLines, Tracer, step_of
from report.made import CLIENT, MDS, RUN, START, moments

GIB = 2.0**30


def traced(step: float = 2.0, run: str = RUN, skip: range = range(0), until: int = 1000) -> RunLines:
    tracer = Tracer(run, ["io500"], step)
    for second, moment in enumerate(moments()):
        if second not in skip and second < until:
            tracer.take(moment)
    tracer.finish()
    return tracer.timeline


def at(timeline: RunLines, second: float) -> int:
    return next(n for n, (start, end) in enumerate(timeline.steps) if start - START <= second < end - START)


def test_a_step_has_the_means_of_what_happened_in_it() -> None:
    timeline = traced()
    place = at(timeline, 70)  # mdtest_easy_write

    assert {wait: round(line.values[place], 3) for wait, line in timeline.waits.items() if line.values[place] > 0} == {
        "mds": 0.875,
        "cpu": 0.075,
        "runqueue": 0.025,
        "lock": 0.025,
    }
    assert timeline.busy[ResourceLine("mds_lock", "mds.a", MDS)].values[place] == pytest.approx(0.95, abs=0.05)
    assert timeline.serves[ResourceLine("mds_lock", "mds.a", MDS)] == ("mds",)
    assert timeline.thresholds["writeback_worker"] == 0.7
    assert timeline.clocks[CLIENT].values[place] == pytest.approx(3.1e9, rel=0.1)
    assert timeline.top_clocks[CLIENT] == 3.7e9
    assert list(timeline.idle[MDS]) == ["POLL", "C1", "C1E", "C6"]
    assert timeline.cache_limits[MDS, "mds.a"].values[place] == 4 * GIB


def test_a_commit_thread_is_drawn_as_busy_as_the_verdict_calls_it() -> None:
    host = MadeHost().works({"osd": 1.0}, benchmark="io500", run=RUN)
    host.resource("kv_sync", "osd.0", 0.4, "osd", runqueue=0.1).resource("kv_commit", "osd.0", 0.97, "osd")
    tracer = Tracer(RUN, ["io500"], 2.0)
    for moment in snapshots(a=host):
        tracer.take(moment)
    (limit,) = verdict(*snapshots(a=host)).limits

    drawn = tracer.timeline.busy[ResourceLine("kv_sync", "osd.0", "a")].values
    assert drawn == [pytest.approx(limit.busy)] == [pytest.approx(0.97)]


def test_steps_follow_each_other_without_a_gap() -> None:
    steps = traced().steps

    assert all(end - start == pytest.approx(2.0) for start, end in steps)
    assert all(end == start for (_, end), (start, _) in pairwise(steps))


def test_the_last_step_is_as_long_as_there_are_samples() -> None:
    def lengths(until: int) -> list[float]:
        return [end - start for start, end in traced(step=5.0, until=until).steps]

    assert lengths(until=14) == [5.0, 5.0, 3.0]
    assert lengths(until=12) == [5.0, 5.0]


def test_where_nothing_was_recorded_there_is_no_step() -> None:
    timeline = traced(skip=range(60, 90))

    assert not [step for step in timeline.steps if step[0] - START < 75 < step[1] - START]


def test_another_runs_waits_are_not_this_ones() -> None:
    assert traced(run="another").waits == {}


def test_what_begins_late_and_ends_early_has_no_value_before_and_after() -> None:
    tracer = Tracer(RUN, ["io500"], 2.0)
    for second, moment in enumerate(moments()):
        tracer.take(moment if 20 <= second < 100 else {CLIENT: moment[CLIENT]})
    timeline = tracer.timeline

    values = timeline.busy[ResourceLine("cpu", "host", MDS)].padded(len(timeline.steps))

    assert [isnan(values[at(timeline, second)]) for second in (10, 60, 150)] == [True, False, True]


def test_a_run_of_any_length_has_a_thousand_steps_at_most() -> None:
    for hours in (0.01, 1, 100):
        assert hours * 3600 / step_of(hours * 3600) <= 1000
