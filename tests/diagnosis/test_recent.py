from __future__ import annotations

from pinchpoint.diagnosis.recent import Recent
from pinchpoint.model import Snapshot

BUSY = "pinchpoint_resource_busy_seconds_total"
LABELS = (("owner", "vda"), ("resource", "link"), ("serves", "disk"))


def snapshot(time: float, busy: float = 0.0, **more: float) -> Snapshot:
    return Snapshot(time, {BUSY: {LABELS: busy}, **{name: {(): value} for name, value in more.items()}})


def test_one_snapshot_says_nothing() -> None:
    recent = Recent()
    recent.add(snapshot(100.0))

    assert recent.usage() is None
    assert recent.span is None


def test_the_picture_is_of_the_last_seconds() -> None:
    recent = Recent(2.0)
    for second in range(10):
        recent.add(snapshot(100.0 + second))

    assert recent.span is not None
    assert [one.time for one in recent.span] == [107.0, 109.0]


def test_snapshots_that_are_far_apart_are_a_picture_all_the_same() -> None:
    recent = Recent(2.0)
    for second in (0.0, 5.0, 10.0):
        recent.add(snapshot(100.0 + second))

    assert recent.span is not None
    assert [one.time for one in recent.span] == [105.0, 110.0]


def test_the_same_sample_again_changes_nothing() -> None:
    recent = Recent()
    for time in (100.0, 102.0, 102.0):
        recent.add(snapshot(time))

    assert recent.span is not None
    assert [one.time for one in recent.span] == [100.0, 102.0]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    recent = Recent()
    for time in (100.0, 102.0, 50.0):
        recent.add(snapshot(time))

    assert recent.usage() is None


def test_the_exporters_own_cost_stays_in_sight_where_it_is_not_read_each_time() -> None:
    recent = Recent(1.0)
    own, sampled = "pinchpoint_self_cpu_seconds_total", "pinchpoint_probe_last_success_timestamp_seconds"
    probe = (("probe", "self"),)
    for time, cpu, last in ((100.0, 1.0, 100.0), (101.0, 1.5, 101.0), (102.0, 1.5, 101.0)):
        recent.add(Snapshot(time, {own: {(): cpu}, sampled: {probe: last}}))
        found = recent.usage()

    assert found is not None
    assert found.own.cpu == 0.5
