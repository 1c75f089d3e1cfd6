from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint.diagnosis.waterfall as module
from ceph_answers import RELEASES, encoded, recorded
from diagnosis.history import START, MadeHost, snapshots
from pinchpoint.diagnosis.advice import step_advice
from pinchpoint.diagnosis.waterfall import Shift, Step, Waterfall, shift, shift_words, waterfall_words, waterfalls
from pinchpoint.model import Labels, Snapshot
from pinchpoint.probes.osd import OsdReader
from pinchpoint.threads.roles import load_roles
from register import read_by

OSD = "pinchpoint_osd_"
STORE = {"throttle": 0.1, "store_prepare": 0.3, "data_write": 0.2, "kv_queue": 0.4, "kv_commit": 2.0}
"""Milliseconds of steps in BlueStore; the throttle is part of the preparation."""


def step(host: MadeHost, name: str, rate: float, milliseconds: float, daemon: str = "osd.0") -> MadeHost:
    host.counter(f"{OSD}step_seconds_total", rate * milliseconds / 1e3, daemon=daemon, step=name)
    return host.counter(f"{OSD}steps_total", rate, daemon=daemon, step=name)


def writes(
    host: MadeHost, rate: float, milliseconds: float, process: float, daemon: str = "osd.0", kind: str = "write"
) -> MadeHost:
    host.counter(f"{OSD}ops_total", rate, daemon=daemon, type=kind)
    host.counter(f"{OSD}op_seconds_total", rate * milliseconds / 1e3, daemon=daemon, type=kind)
    return step(host, f"{kind}_process", rate, process, daemon)


def store(host: MadeHost, rate: float, daemon: str = "osd.0", factor: float = 1.0) -> MadeHost:
    for name, milliseconds in STORE.items():
        step(host, name, rate, milliseconds * factor, daemon)
    return host


def requests() -> MadeHost:
    """Return a host whose MDS answers 1000 requests a second."""
    host = MadeHost().resource("mds_lock", "mds.a", 0.6, "mds", runqueue=0.2)
    host.counter("pinchpoint_mds_replies_total", 1000, daemon="mds.a")
    return host.counter("pinchpoint_mds_reply_seconds_total", 0.9, daemon="mds.a")


def found(*hosts: MadeHost) -> tuple[Waterfall, ...]:
    return waterfalls(*snapshots(**{f"h{place}": host for place, host in enumerate(hosts)}))


def times(fall: Waterfall) -> dict[str, float]:
    """Return the steps in milliseconds."""
    return {one.name: round(1e3 * one.seconds, 6) for one in fall.steps}


def test_a_daemon_whose_host_was_seen_for_a_part_of_the_time_is_as_busy_as_it_was_then() -> None:
    def rates(seconds: float) -> list[float]:
        hosts = store(writes(MadeHost(seconds), 100, 4.5, process=4.0), 100), MadeHost(30.0).cpu(0.1)
        return [one.rate for one in found(*hosts)]

    assert rates(10.0) == rates(30.0) == [pytest.approx(100)]


def test_a_write_is_divided_from_its_first_byte_to_its_reply() -> None:
    host = store(writes(MadeHost(), 100, 4.5, process=4.0), 100)
    step(step(host, "receive", 100, 0.2), "write_prepare", 100, 0.9)
    (fall,) = found(host)

    assert (fall.operation, fall.daemon) == ("OSD write", "")
    assert (fall.rate, fall.seconds) == pytest.approx((100, 4.5e-3))
    assert times(fall) == {
        "receive": 0.2, "queue": 0.3, "prepare": 0.6, "throttle": 0.1, "store prepare": 0.2, "data write": 0.2,
        "kv queue": 0.4, "kv commit": 2.0, "replicas and reply": 0.5,
    }  # fmt: skip
    assert waterfall_words(fall) == (
        "an OSD write takes 4.5 ms inside the daemon, 44% of it kv commit: 0.3 queue, 0.6 prepare, 0.4 kv queue, "
        "2 kv commit, 0.5 replicas and reply"
    )


def test_lookups_in_rocksdb_are_a_part_of_the_preparation_of_every_operation_that_arrived() -> None:
    host = step(writes(MadeHost(), 100, 4.5, process=4.0), "write_prepare", 100, 0.9)
    step(host, "receive", 200, 0.1)
    (fall,) = found(step(host, "rocksdb_get", 400, 0.25))

    assert times(fall)["metadata"] == 0.5
    assert times(fall)["prepare"] == 0.4


def test_a_read_is_divided_into_queue_metadata_and_data() -> None:
    host = step(writes(MadeHost(), 200, 3.0, process=2.0, kind="read"), "rocksdb_get", 400, 0.25)
    step(host, "receive", 200, 0.1)
    (fall,) = found(step(host, "read_data", 200, 1.2))

    assert times(fall) == {"receive": 0.1, "queue": 0.9, "metadata": 0.5, "data read": 1.2, "process and reply": 0.3}


def test_a_queue_for_workers_is_caused_by_the_longest_step_that_holds_them() -> None:
    steps = (Step("queue", 5.0), Step("metadata", 0.5), Step("throttle", 1.0), Step("kv commit", 3.0))

    def cause(*steps: Step) -> Step:
        return Waterfall("OSD write", "", 100.0, 9.5, steps).cause

    assert cause(*steps) == Step("throttle", 6.0)
    assert cause(Step("queue", 1.0), *steps[1:]) == Step("kv commit", 3.0)
    assert cause(Step("queue", 5.0), Step("kv commit", 3.0)) == Step("queue", 5.0)


def test_advice_is_given_on_steps_that_occur(pytestconfig: pytest.Config) -> None:
    host = step(store(writes(writes(MadeHost(), 100, 9.0, 8.0), 100, 9.0, 8.0, kind="read"), 100), "read_data", 100, 1)
    step(step(host, "receive", 200, 0.1), "rocksdb_get", 200, 0.1)

    assert step_advice().keys() <= {name for fall in found(host, requests()) for name in times(fall)}
    for advice in step_advice().values():
        assert (pytestconfig.rootpath / advice.page).is_file()


def test_what_an_osd_does_not_count_has_no_step() -> None:
    (fall,) = found(writes(MadeHost(), 100, 4.5, process=4.0))

    assert times(fall) == {"queue": 0.5, "replicas and reply": 4.0}
    assert found(MadeHost().counter(f"{OSD}ops_total", 100, daemon="osd.0", type="write")) == ()


def test_steps_of_other_transactions_that_are_longer_than_the_write_are_scaled_to_fit() -> None:
    host = store(writes(MadeHost(), 100, 2.4, process=1.4), 500)
    (fall,) = found(host)

    assert times(fall)["kv commit"] == pytest.approx(1.4 * 2.0 / 2.9, abs=1e-6)
    assert sum(times(fall).values()) == pytest.approx(2.4)


def test_few_operations_and_a_rare_kind_of_them_have_no_mean() -> None:
    assert found(writes(MadeHost(), 0.5, 4.0, process=3.0)) == ()
    host = writes(writes(MadeHost(), 1000, 4.0, process=3.0), 20, 4.0, process=3.0, kind="read")
    assert [fall.operation for fall in found(host)] == ["OSD write"]


def test_the_slowest_osd_is_shown_by_itself_if_it_takes_twice_as_long() -> None:
    host = writes(writes(MadeHost(), 300, 1.0, process=1.0), 20, 9.0, process=1.0, daemon="osd.1")

    falls = found(host)

    assert [(fall.daemon, round(1e3 * fall.seconds, 3)) for fall in falls] == [("", 1.5), ("osd.1", 9.0)]
    assert "an OSD write in osd.1 takes 9 ms" in waterfall_words(falls[1])
    assert len(found(writes(MadeHost(), 300, 1.0, process=1.0))) == 1


def test_osds_of_several_hosts_are_one_mean() -> None:
    one, other = writes(MadeHost(), 300, 1.0, process=1.0), writes(MadeHost(), 100, 3.0, process=1.0, daemon="osd.1")

    assert found(one, other)[0].seconds == pytest.approx(1.5e-3)


def test_a_request_to_the_mds_is_work_under_its_lock_and_waiting_for_a_cpu() -> None:
    (fall,) = found(requests())

    assert times(fall) == {"work under mds_lock": 0.4, "without a CPU": 0.2, "queue, caps and OSDs": 0.3}


def test_an_osd_that_was_restarted_has_no_waterfall_of_that_window() -> None:
    before, after = snapshots(a=writes(MadeHost(), 100, 4.0, process=3.0))

    assert waterfalls(after, before) == ()
    assert waterfalls({"a": Snapshot(START, after["a"].values)}, {"a": Snapshot(START + 9, before["a"].values)}) == ()


def fall(*steps: tuple[str, float], operation: str = "OSD write") -> Waterfall:
    return Waterfall(operation, "", 1.0, sum(took for _, took in steps), tuple(Step(*one) for one in steps))


def test_a_step_has_moved_if_it_changed_by_half_and_by_a_tenth_of_the_operation() -> None:
    before = fall(("queue", 1e-3), ("prepare", 1e-4), ("kv commit", 1e-3))
    after = fall(("queue", 1.2e-3), ("prepare", 3e-4), ("kv commit", 4.1e-3))

    assert shift([before], [after]) == (Shift("OSD write", "kv commit", 1e-3, 4.1e-3),)
    assert shift([after], [before]) == (Shift("OSD write", "kv commit", 4.1e-3, 1e-3),)
    assert shift([before], [fall(("queue", 9.0), operation="OSD read")]) == ()
    assert shift_words(shift([before], [after])[0], "in the first half", "in the second") == (
        "kv commit of an OSD write takes 1 ms in the first half and 4.1 ms in the second"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_osds_have_every_step_of_a_write_and_their_sum_is_what_the_osd_says(release: str) -> None:
    state = "slow_ops_slow_disk" if release == "16.2.15" else "load"
    reader = OsdReader(load_roles())
    reader.take(1.0, encoded(recorded("osd", release, state)))
    after = Snapshot.of(START + 10, reader.points("osd.0"))
    before = Snapshot(START, {name: dict.fromkeys(values, 0.0) for name, values in after.values.items()})
    (fall,) = waterfalls({"h": before}, {"h": after})

    assert [one.name for one in fall.steps] == [
        "receive", "queue", "metadata", "prepare", "throttle", "store prepare", "data write", "kv queue", "kv commit",
        "replicas and reply",
    ]  # fmt: skip
    number, seconds = (
        after.value(f"{OSD}{name}_total", daemon="osd.0", type="write") for name in ("ops", "op_seconds")
    )
    assert number is not None
    assert seconds is not None
    assert fall.seconds == pytest.approx(seconds / number)
    assert sum(one.seconds for one in fall.steps) == pytest.approx(fall.seconds)


def test_an_osd_with_a_throttled_disk_spends_its_time_in_queues_before_the_commit() -> None:
    reader = OsdReader(load_roles())
    reader.take(1.0, encoded(recorded("osd", "16.2.15", "slow_ops_slow_disk")))
    after = Snapshot.of(START + 10, reader.points("osd.0"))
    before = Snapshot(START, {name: dict.fromkeys(values, 0.0) for name, values in after.values.items()})
    (fall,) = waterfalls({"h": before}, {"h": after})

    assert {one.name for one in sorted(fall.steps, key=lambda one: -one.seconds)[:2]} == {"queue", "kv queue"}


VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, 1e-300, 2.0**62])


@given(st.lists(VALUES, min_size=40, max_size=40), st.lists(VALUES, min_size=40, max_size=40))
def test_no_values_of_any_exporter_make_it_fail(first: list[float], last: list[float]) -> None:
    host = store(writes(writes(MadeHost(), 1, 1, process=1), 1, 1, process=1, kind="read"), 1)
    for name in ("receive", "write_prepare", "rocksdb_get", "read_data"):
        step(host, name, 1, 1)
    host.resource("mds_lock", "mds.a", 0.6, "mds", runqueue=0.2)
    host.counter("pinchpoint_mds_replies_total", 1, daemon="mds.a")
    host.counter("pinchpoint_mds_reply_seconds_total", 1, daemon="mds.a")
    assert read_by(module) <= host.pair()[1].values.keys()
    moments = []
    for time, values in ((START, first), (START + 3, last)):
        source = iter(values * 3)
        made: dict[str, dict[Labels, float]] = {
            name: {labels: next(source) for labels in entries} for name, entries in host.pair()[1].values.items()
        }
        moments.append({"a": Snapshot(time, made)})

    for one in waterfalls(*moments):
        assert all(math.isfinite(part.seconds) and part.seconds >= 0 for part in one.steps)
        assert sum(part.seconds for part in one.steps) == pytest.approx(one.seconds, rel=1e-6)
        assert "nan" not in waterfall_words(one)
