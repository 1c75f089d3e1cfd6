from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.wire import backfill
from pinchpoint.wire.backfill import Backfill

CPU = "pinchpoint_thread_cpu_seconds_total"
THREADS = "pinchpoint_threads"
ONE: Labels = (("owner", "a"), ("role", "x"))
TWO: Labels = (("owner", "b"), ("role", "x"))


def moment(time: float, **hosts: dict[Labels, float]) -> Snapshots:
    return {host: Snapshot(time, {CPU: values, THREADS: dict.fromkeys(values, 1.0)}) for host, values in hosts.items()}


def text(*moments: Snapshots) -> str:
    with Backfill() as turned:
        for taken in moments:
            turned.add(taken)
        return "".join(turned.text())


def test_each_series_has_its_samples_together_in_their_order() -> None:
    found = text(moment(1.5, h={ONE: 1.0, TWO: 10.0}), moment(2.5, h={ONE: 2.0}), moment(3.5, h={ONE: 3.0, TWO: 30.0}))

    assert [line for line in found.splitlines() if line.startswith(f"{CPU}{{")] == [
        f'{CPU}{{owner="a",role="x",instance="h"}} 1.0 1.500',
        f'{CPU}{{owner="a",role="x",instance="h"}} 2.0 2.500',
        f'{CPU}{{owner="a",role="x",instance="h"}} 3.0 3.500',
        f'{CPU}{{owner="b",role="x",instance="h"}} 10.0 1.500',
        f'{CPU}{{owner="b",role="x",instance="h"}} 30.0 3.500',
    ]


def test_help_and_type_stand_once_and_the_end_is_marked_once() -> None:
    found = text(moment(1.0, g={ONE: 1.0}, h={ONE: 1.0}), moment(2.0, g={ONE: 2.0}, h={ONE: 2.0}))

    assert found.count("# TYPE pinchpoint_thread_cpu_seconds counter\n") == 1
    assert found.count("# HELP pinchpoint_thread_cpu_seconds ") == 1
    assert found.count("# TYPE pinchpoint_threads gauge\n") == 1
    assert found.endswith("\n# EOF\n")
    assert found.count("# EOF") == 1


def test_a_metric_that_is_not_known_here_keeps_its_kind() -> None:
    found = text({"h": Snapshot(1.0, {"pinchpoint_new_total": {(): 1.0}, "pinchpoint_newer": {(): 2.0}})})

    assert "# TYPE pinchpoint_new counter\n" in found
    assert "# TYPE pinchpoint_newer gauge\n" in found


def test_a_sample_that_came_twice_stands_once_and_one_that_is_older_is_left_out() -> None:
    with Backfill() as turned:
        for time in (5.0, 5.0, 4.0, 6.0):
            turned.add(moment(time, h={ONE: time}))

        assert [line.rpartition(" ")[2] for line in "".join(turned.text()).splitlines() if line.startswith(CPU)] == [
            "5.000",
            "6.000",
        ]
        assert (turned.samples, turned.dropped) == (4, 2)


VALUES = st.dictionaries(st.sampled_from([ONE, TWO, ()]), st.floats(0, allow_nan=False), max_size=3)
MOMENTS = st.lists(st.dictionaries(st.sampled_from(["g", "h"]), VALUES), max_size=6)


@given(MOMENTS, st.integers(1, 9))
def test_it_is_openmetrics_with_every_sample_however_little_is_held_in_memory(
    moments: list[dict[str, dict[Labels, float]]], held: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill, "MAX_HELD_SAMPLES", held)
        found = text(*(moment(float(second), **hosts) for second, hosts in enumerate(moments, 1)))

    # Its parser refuses series and families in pieces, and decreasing times.
    families = list(text_string_to_metric_families(found))  # type: ignore[no-untyped-call]
    samples = {
        (sample.name, sample.labels["instance"], float(sample.timestamp), sample.labels.get("owner")): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples == {
        (name, host, float(second), dict(labels).get("owner")): (value if name == CPU else 1.0)
        for second, hosts in enumerate(moments, 1)
        for host, values in hosts.items()
        for labels, value in values.items()
        for name in (CPU, THREADS)
    }


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_values_that_openmetrics_refuses_are_left_out_and_counted(value: float) -> None:
    with Backfill() as backfill:
        for time, number in ((1.0, 1.0), (2.0, value), (3.0, 3.0)):
            backfill.add({"h": Snapshot(time, {"pinchpoint_resource_busy_seconds_total": {(): number}})})
        text = "".join(backfill.text())

    assert backfill.impossible == 1
    assert [sample.value for family in text_string_to_metric_families(text) for sample in family.samples] == [1.0, 3.0]  # type: ignore[no-untyped-call]


def test_of_names_that_clash_the_first_counts() -> None:
    with Backfill() as backfill:
        for name in ("pinchpoint_a_total", "pinchpoint_a"):
            backfill.add({"h": Snapshot(1.0, {name: {(): 1.0}})})
        text = "".join(backfill.text())

    assert backfill.impossible == 1
    assert [family.name for family in text_string_to_metric_families(text)] == ["pinchpoint_a"]  # type: ignore[no-untyped-call]
