from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.model import Snapshot
from pinchpoint.probes import PROBES
from pinchpoint.resources import METRICS, Resource, all_resources, points

BUSY, SATURATED, RUNQUEUE, BLOCKED = (metric.name for metric in METRICS)


def disk(**keywords: object) -> Resource:
    return Resource("disk", "vda", ("disk", "writeback"), 0.8, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(("busy", "saturated"), [(0.0, 0.0), (1.59, 0.0), (1.6, 2.0), (2.0, 2.0), (2.1, 2.0)])
def test_a_sample_at_the_threshold_or_above_is_saturated_for_all_of_its_time(busy: float, saturated: float) -> None:
    resource = disk()
    resource.add(2.0, busy)

    assert (resource.busy, resource.saturated) == (busy, saturated)


def test_saturation_is_judged_by_each_sample_and_not_by_the_mean() -> None:
    resource = disk()
    for second in range(3):
        for tenth in range(10):
            resource.add(0.1, 0.1 if second == 1 and tenth < 3 else 0.0)

    assert resource.busy == pytest.approx(0.3)
    assert resource.saturated == pytest.approx(0.3)


def test_a_second_condition_of_fullness_must_hold_too() -> None:
    resource = disk()
    resource.add(1.0, 1.0, full=False)
    resource.add(1.0, 1.0, full=True)

    assert (resource.busy, resource.saturated) == (2.0, 1.0)


@pytest.mark.parametrize("elapsed", [0.0, -1.0])
def test_no_time_is_never_saturated(elapsed: float) -> None:
    resource = disk()
    resource.add(elapsed, 0.5)

    assert resource.saturated == 0.0


def test_labels_name_the_resource_its_owner_and_what_it_serves() -> None:
    resource = disk()
    resource.add(1.0, 0.5)
    snapshot = Snapshot.of(0, points([resource]))

    assert snapshot.value(BUSY, resource="disk", owner="vda", serves="disk,writeback") == 0.5
    assert snapshot.value(SATURATED, resource="disk", owner="vda", serves="disk,writeback") == 0.0


def test_only_parts_that_the_source_can_measure_are_exported() -> None:
    resource = disk(parts=("runqueue",))
    resource.add(1.0, 0.5, runqueue=0.2)
    snapshot = Snapshot.of(0, points([resource, Resource("cpu", "host", (), 0.8)]))

    assert snapshot.value(RUNQUEUE, resource="disk", owner="vda") == 0.2
    assert len(snapshot.values[RUNQUEUE]) == 1
    assert BLOCKED not in snapshot.values


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=20))
def test_integrals_never_fall_and_no_more_is_saturated_than_has_passed(samples: list[tuple[float, float]]) -> None:
    resource = disk()
    before = (0.0, 0.0)
    for elapsed, busy in samples:
        resource.add(elapsed, busy)
        assert (resource.busy, resource.saturated) >= before
        before = resource.busy, resource.saturated

    assert resource.saturated <= sum(elapsed for elapsed, _ in samples)


def test_the_probe_of_an_entry_measures_resources() -> None:
    measuring = {probe.name for probe in PROBES if METRICS[0] in probe.metrics}

    assert {entry.probe for entry in all_resources().values()} - {""} <= measuring
