from __future__ import annotations

import math

import pytest

from pinchpoint.diagnosis.pair import SnapshotPair, restarted
from pinchpoint.metrics import RESOURCE_BUSY_SECONDS
from pinchpoint.model import Labels, Snapshot

BUSY = RESOURCE_BUSY_SECONDS
MOST = 20.0


def snapshot(
    time: float, busy: dict[str, float], *, failed: str = "", last: float | None = 1.0, samples: float = 0.0
) -> Snapshot:
    """Return a snapshot with the busy seconds of each owner, and with a probe that worked at `last` and fails now."""
    values: dict[str, dict[Labels, float]] = {
        BUSY.name: {(("owner", owner),): seconds for owner, seconds in busy.items()},
        "pinchpoint_sampler_samples_total": {(("probe", "tasks"),): samples},
    }
    if failed:
        values["pinchpoint_probe_success"] = {(("probe", failed),): 0.0}
        if last is not None:
            values["pinchpoint_probe_last_success_timestamp_seconds"] = {(("probe", failed),): last}
    return Snapshot(time, values)


def by_tasks(labels: Labels) -> str:
    return "tasks"


def gains(before: Snapshot, after: Snapshot, *, ours: bool = True) -> dict[str, float]:
    pair = SnapshotPair(before, after, after.time - before.time)
    return {dict(labels)["owner"]: gain for labels, gain in pair.gains(BUSY, MOST, by_tasks if ours else None)}


def test_a_counter_gains_what_it_rose_by() -> None:
    assert gains(snapshot(0, {"a": 5, "b": 1}), snapshot(10, {"a": 8, "b": 1})) == {"a": 3, "b": 0}
    assert gains(snapshot(0, {"a": 0}), snapshot(10, {"a": MOST + 1})) == {"a": MOST + 1}


def test_the_gain_of_a_metric_is_that_of_all_its_series_and_unknown_without_any() -> None:
    assert SnapshotPair(snapshot(0, {"a": 5, "b": 1}), snapshot(10, {"a": 8, "b": 2}), 10.0).gain(BUSY) == 4
    assert SnapshotPair(snapshot(0, {}), snapshot(10, {"a": 8}), 10.0).gain(BUSY) is None


def test_a_counter_that_fell_began_anew() -> None:
    assert gains(snapshot(0, {"a": 500}), snapshot(10, {"a": 8})) == {"a": 8}
    assert gains(snapshot(0, {"a": 500}), snapshot(10, {"a": 8}), ours=False) == {"a": 8}


def test_a_new_counter_of_ours_began_at_zero_and_one_of_the_kernel_long_before() -> None:
    assert gains(snapshot(0, {}), snapshot(10, {"a": 8})) == {"a": 8}
    assert gains(snapshot(0, {}), snapshot(10, {"a": 8}), ours=False) == {}


def test_a_new_counter_that_is_older_than_the_interval_is_left_out() -> None:
    assert gains(snapshot(0, {}), snapshot(10, {"a": MOST})) == {"a": MOST}
    assert gains(snapshot(0, {}), snapshot(10, {"a": MOST + 1})) == {}


def test_a_counter_that_vanished_is_left_out() -> None:
    assert gains(snapshot(0, {"a": 1}), snapshot(10, {})) == {}


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_what_no_counter_can_be_is_left_out(value: float) -> None:
    assert gains(snapshot(0, {"a": value}), snapshot(10, {"a": 8}), ours=False) == {}
    assert gains(snapshot(0, {"a": 1}), snapshot(10, {"a": value})) == {}


def test_series_of_a_probe_that_hung_come_back_with_their_past_and_those_of_others_are_new() -> None:
    after = snapshot(10, {"a": 8})

    assert gains(snapshot(0, {}, failed="tasks"), after) == {}
    assert gains(snapshot(0, {}, failed="path"), after) == {"a": 8}
    assert gains(snapshot(0, {}, failed="tasks", last=None), after) == {"a": 8}  # it never worked


def test_after_a_restart_of_the_exporter_what_is_its_own_began_at_zero() -> None:
    before, after = snapshot(0, {"a": 3}, failed="tasks", samples=1000), snapshot(10, {"a": 8, "b": 2}, samples=80)

    assert restarted(before, after)
    assert not restarted(after, after)
    assert not restarted(Snapshot(0, {}), after)  # an older exporter did not count them
    assert gains(before, after) == {"a": 8, "b": 2}
    assert gains(before, after, ours=False) == {"a": 5}


def test_the_time_between_the_samples_of_a_probe_is_not_that_between_the_snapshots() -> None:
    def sampled(earlier: float, later: float) -> float:
        before, after = (snapshot(100, {}, failed="cpu", last=last) for last in (earlier, later))
        return SnapshotPair(before, after, 3.0).sampled("cpu")

    assert sampled(99.5, 102.5) == 3.0
    assert sampled(99.5, 101.5) == 2.0
    assert sampled(99.5, 99.5) == 0.0
    assert sampled(99.5, 98.0) == 3.0  # another clock
    assert SnapshotPair(snapshot(100, {}), snapshot(103, {}), 3.0).sampled("cpu") == 3.0


def sampled(first: float, last: float, ahead: float, *, restart: bool = False) -> float:
    """Return the time between samples of a probe; the clock was set forward in between."""

    def at(time: float, success: float, ahead: float, samples: float) -> Snapshot:
        values: dict[str, dict[Labels, float]] = {
            "pinchpoint_probe_last_success_timestamp_seconds": {(("probe", "cpu"),): success},
            "pinchpoint_sampler_clock_set_seconds": {(): ahead},
            "pinchpoint_sampler_samples_total": {(("probe", "cpu"),): samples},
        }
        return Snapshot(time, values)

    before = at(0, first, 5.0, 100)
    after = at(10, last, 0.0, 10) if restart else at(10, last + ahead, 5.0 + ahead, 200)
    return SnapshotPair(before, after, 10.0).sampled("cpu")


@pytest.mark.parametrize("ahead", [0.0, 1.1, 30.0, -30.0, 3600.0])
def test_the_time_between_two_samples_does_not_depend_on_how_the_clock_was_set(ahead: float) -> None:
    assert sampled(1.6e9, 1.6e9 + 9.1, ahead) == pytest.approx(9.1, abs=1e-6)
    assert sampled(1.6e9 + 0.7, 1.6e9 + 0.7, ahead) == 0


def test_an_exporter_that_was_started_anew_has_the_clock_as_it_is() -> None:
    assert sampled(1.6e9, 1.6e9 + 9.0, 0.0, restart=True) == pytest.approx(9.0)
