from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ceph_answers import RELEASES, Answers, encoded, recorded, run_daemon
from daemon_socket import DaemonSocket
from machine import Machine
from patience import patience
from pinchpoint.ceph.asok import LOCK_FREE
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent, daemon
from pinchpoint.probes.osd import MAX_OWED_SECONDS, STEPS, Osd, OsdReader, parse_blocked_ops, throttle_name
from pinchpoint.threads.roles import load_roles

ROLES = load_roles()
RESOURCE = {"resource": "kv_commit", "owner": "osd.0", "serves": "osd"}
NOWHERE = {"pinchpoint_osd_rocksdb_delay_seconds_total", "pinchpoint_osd_slow_store_op_age_seconds"}
"""Series that no release has unless rocksdb_perf is on, or something was slow."""
BEFORE_MCLOCK = NOWHERE | {"pinchpoint_osd_queued_requests", "pinchpoint_osd_slow_store_ops_total"}
LACKS = {
    "14.2.21": BEFORE_MCLOCK | {"pinchpoint_osd_allocation_fallbacks_total"},
    "16.2.15": BEFORE_MCLOCK,
    "18.2.7": NOWHERE,
    "20.2.4": NOWHERE,
}
STATES = {"14.2.21": "load", "16.2.15": "idle", "18.2.7": "load", "20.2.4": "load"}


class Daemon:
    """A reader, and its answers."""

    def __init__(self, release: str = "16.2.15", state: str = "idle") -> None:
        self.reader = OsdReader(ROLES)
        self.answers: Answers = recorded("osd", release, state)

    @property
    def counters(self) -> dict[str, Any]:
        """The loggers of the next perf dump."""
        found: dict[str, Any] = self.answers["perf dump"]
        return found

    def syncs(self, number: int, seconds: float) -> None:
        """Set the number of commits so far, and their total time."""
        self.counters["bluestore"]["kv_sync_lat"] = {"avgcount": number, "sum": seconds, "avgtime": 0.0}

    def look(self, now: float = 1.0) -> Snapshot:
        """Have the reader take the answers, and return every series."""
        self.reader.take(now, encoded(self.answers))
        return Snapshot.of(now, self.reader.points("osd.0"))


def value(snapshot: Snapshot, name: str, **labels: str) -> float | None:
    return snapshot.value(f"pinchpoint_osd_{name}", daemon="osd.0", **labels)


def busy(snapshot: Snapshot) -> float:
    found = snapshot.value("pinchpoint_resource_busy_seconds_total", **RESOURCE)
    assert found is not None
    return found


def full(snapshot: Snapshot) -> float | None:
    return snapshot.value("pinchpoint_resource_saturated_seconds_total", **RESOURCE)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("idle", {"kv_syncs_total": 19, "kv_sync_seconds_total": 0.348299486, "ops_in_flight": 0, "slow_ops": 0}),
        ("cache_oversized", {"kv_syncs_total": 8237, "kv_sync_seconds_total": 31.339152584, "finisher_queue": 0}),
        ("mds_trim", {"kv_flush_seconds_total": 0.134642818, "kv_commit_seconds_total": 40.184873777}),
        (
            "slow_ops_slow_disk",
            {
                "kv_sync_seconds_total": 142.908444745, "ops_in_flight": 21, "slow_ops": 21,
                "op_queue_seconds_total": 14057.643408703,
            },
        ),
    ],
)  # fmt: skip
def test_the_numbers_of_a_recorded_state(state: str, expected: dict[str, float]) -> None:
    found = Daemon(state=state).look()

    assert {name: value(found, name) for name in expected} == expected


def test_operations_throttles_and_placement_groups_of_an_osd_with_a_slow_disk() -> None:
    found = Daemon(state="slow_ops_slow_disk").look()

    assert [value(found, "ops_total", type=type_) for type_ in ("read", "write", "rw")] == [29, 37502, 24]
    assert value(found, "op_seconds_total", type="write") == 25608.588247616
    assert [value(found, "pgs", role=role) for role in ("primary", "replica", "stray")] == [24, 0, 0]
    assert value(found, "throttle_wait_seconds_total", throttle="bluestore_throttle_bytes") == 463.338905193
    assert value(found, "throttle_fill_ratio", throttle="bluestore_throttle_bytes") == 47829476 / (64 << 20)
    assert value(found, "throttle_fill_ratio", throttle="osd_client_messages") == 21 / 256


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_every_series(release: str) -> None:
    daemon = Daemon(release, STATES[release])
    found = daemon.look()

    declared = {metric.name for metric in Osd.metrics if not metric.name.startswith("pinchpoint_ceph_")}
    assert declared - found.values.keys() == LACKS[release]
    assert value(found, "compactions", state="running") == (None if release in ("14.2.21", "16.2.15") else 0)
    assert {labels["step"] for labels, _ in found.series("pinchpoint_osd_steps_total")} == {step.name for step in STEPS}
    assert value(found, "fragmentation_ratio") == (0.621 if release == "20.2.4" else 0)
    assert found.value("pinchpoint_ceph_messages_total", daemon="osd.0", direction="sent")
    options = dict(daemon.reader.options.items())
    assert options["osd_op_num_shards"] == "0"  # depends on the kind of device: _hdd or _ssd
    assert options["osd_op_num_shards_hdd"] in ("5", "1")
    assert ("osd_mclock_profile" in options) == (release != "14.2.21")


@pytest.mark.parametrize("release", RELEASES)
def test_a_counter_that_a_release_lacks_is_left_out_and_never_zero(release: str) -> None:
    daemon = Daemon(release, STATES[release])
    for counters in daemon.counters.values():
        counters.clear()
    del daemon.answers["dump_blocked_ops"]
    found = daemon.look()

    assert found.values == {}


def test_steps_that_follow_each_other_are_one_and_occur_as_often_as_the_last() -> None:
    daemon = Daemon()
    daemon.counters["bluestore"]["state_io_done_lat"] = {"avgcount": 7, "sum": 0.5}
    daemon.counters["bluestore"]["state_kv_queued_lat"] = {"avgcount": 6, "sum": 2.0}
    assert value(daemon.look(), "step_seconds_total", step="kv_queue") == 2.5
    assert value(daemon.look(), "steps_total", step="kv_queue") == 6

    del daemon.counters["bluestore"]["state_io_done_lat"]
    assert value(daemon.look(), "steps_total", step="kv_queue") is None


def test_delays_of_rocksdb_are_known_only_where_it_counts_them() -> None:
    daemon = Daemon()
    daemon.counters["rocksdb"]["rocksdb_write_delay_time"] = {"avgcount": 3, "sum": 0.25}

    assert value(daemon.look(), "rocksdb_delay_seconds_total") == 0.25


def test_requests_in_the_queues_of_all_shards_are_added_up() -> None:
    daemon = Daemon("18.2.7", "load")
    daemon.counters["mclock-shard-queue-1"] = {"mclock_all_type_queue_len": 4}

    assert value(daemon.look(), "queued_requests") == 9


def test_an_osd_without_bluestore_has_no_commits() -> None:
    daemon = Daemon()
    del daemon.counters["bluestore"]
    found = daemon.look()

    assert value(found, "kv_syncs_total") is None
    assert full(found) is None
    assert value(found, "ops_in_flight") == 0


def test_a_throttle_without_a_limit_is_not_shown() -> None:
    found = Daemon("14.2.21", "load").look()

    assert value(found, "throttle_fill_ratio", throttle="osd_client_messages") is None
    assert value(found, "throttle_fill_ratio", throttle="osd_client_bytes") is not None


def test_throttles_of_heartbeats_and_unknown_ones_are_not_shown() -> None:
    daemon = Daemon()
    daemon.counters["throttle-something_new"] = daemon.counters["throttle-osd_client_bytes"]
    throttles = {labels["throttle"] for labels, _ in daemon.look().series("pinchpoint_osd_throttle_fill_ratio")}

    assert throttles == {
        "bluestore_throttle_bytes", "bluestore_throttle_deferred_bytes", "osd_client_bytes", "osd_client_messages",
        "objecter_bytes", "objecter_ops", "msgr_dispatch_throttler-client", "msgr_dispatch_throttler-cluster",
        "msgr_dispatch_throttler-ms_objecter",
    }  # fmt: skip


def test_throttles_that_only_an_address_tells_apart_are_one() -> None:
    daemon = Daemon()
    for suffix, taken in (("", 10), ("-0x7efd8801a0c0", 30), ("-0x55f3d83aaa00", 20)):
        wait = {"avgcount": 1, "sum": 2.0, "avgtime": 2.0}
        daemon.counters[f"throttle-objecter_ops{suffix}"] = {"val": taken, "max": 100, "wait": wait}
    found = daemon.look()

    assert throttle_name("throttle-write_buf_throttle-0x7efd8801a0c0") == "write_buf_throttle"
    assert value(found, "throttle_wait_seconds_total", throttle="objecter_ops") == 6.0
    assert value(found, "throttle_fill_ratio", throttle="objecter_ops") == 0.3


def test_completions_that_wait_for_any_finisher_are_added_up() -> None:
    daemon = Daemon()
    daemon.counters["finisher-commit_finisher"]["queue_len"] = 3
    daemon.counters["finisher-objecter-finisher-0"]["queue_len"] = 4

    assert value(daemon.look(), "finisher_queue") == 7


def test_slow_operations_hold_between_two_answers_and_end_where_there_is_none() -> None:
    daemon = Daemon(state="slow_ops_slow_disk")
    daemon.look(1.0)
    del daemon.answers["dump_blocked_ops"]

    assert value(daemon.look(2.0), "slow_ops") == 21
    assert value(daemon.look(8.0), "slow_ops") is None


def test_the_age_of_the_last_slow_step_is_known_once_the_number_rises() -> None:
    daemon = Daemon("20.2.4", "load")
    daemon.counters["bluestore"]["slow_aio_wait_count"] = 3
    assert value(found := daemon.look(1.0), "slow_store_ops_total") == 3
    assert value(found, "slow_store_op_age_seconds") is None

    daemon.counters["bluestore"]["slow_committed_kv_count"] = 1
    assert value(daemon.look(10.0), "slow_store_op_age_seconds") == 0
    assert value(found := daemon.look(70.0), "slow_store_op_age_seconds") == 60
    assert value(found, "slow_store_ops_total") == 4


def test_the_number_of_blocked_operations_is_read_without_the_operations() -> None:
    assert parse_blocked_ops(b'{"ops":[{"a":[1,{}]}],"complaint_time":3,"num_blocked_ops":21}') == 21
    assert parse_blocked_ops(b"{}") is None


def test_an_osd_that_does_not_track_operations_has_no_number_of_them_and_is_not_blind() -> None:
    raw = b"op_tracker tracking is not enabled now, so no ops are tracked currently, even those get stuck."
    assert parse_blocked_ops(raw) is None


def test_a_commit_thread_is_busy_for_as_long_as_its_commits_took() -> None:
    daemon = Daemon()
    seen = []
    for now, total in ((1.0, 50.0), (2.0, 50.5), (3.0, 50.5), (4.0, 51.5)):
        daemon.syncs(9, total)
        seen.append((busy(found := daemon.look(now)), full(found)))

    assert seen == [(0.0, 0.0), (0.5, 0.0), (0.5, 0.0), (1.5, 1.0)]


def test_a_commit_that_is_longer_than_a_look_is_charged_to_the_looks_after_it() -> None:
    daemon = Daemon()
    seen = []
    for now in range(8):
        daemon.syncs(9, 3.0 if now >= 3 else 0.0)
        seen.append(busy(daemon.look(now)))

    assert seen == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_commits_without_a_pause_make_the_commit_thread_one_of_what_is_full(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the disk then, so that the CPU time of the thread does not tell."""
    monkeypatch.setattr(daemon, "FIRST_ANSWERS_SECONDS", patience(20.0))
    socket = tmp_path / "ceph-osd.0.asok"
    run_daemon(machine, "ceph-osd", "0", socket)
    probe = Osd(machine.host())
    with DaemonSocket(socket, recorded("osd", "16.2.15", "idle")):
        probe.sample(1.0)
        ((_, (follower,)),) = probe._followers
        assert isinstance(follower.reader, OsdReader)
        told = []
        for second, total in enumerate((50.0, 50.9, 51.0)):
            answers = recorded("osd", "16.2.15", "idle")
            answers["perf dump"]["bluestore"]["kv_sync_lat"] = {"avgcount": 9, "sum": total, "avgtime": 0.0}
            with follower.lock:
                follower.reader.take(1e9 + second, encoded(answers))
            probe.sample(10.0 * (second + 1))
            told.append(list(probe.host.full.told(10.0 * (second + 1))))
        probe.close()

    assert told == [[], [("kv_sync", "osd.0")], []]


def test_commits_of_three_seconds_without_a_break_are_busy_all_the_time() -> None:
    daemon = Daemon()
    seen = []
    for now in range(61):
        daemon.syncs(now // 3, now // 3 * 3.0)
        seen.append(busy(daemon.look(now)))

    assert seen[-1] - seen[3] == 57.0


def test_a_reset_of_the_counters_takes_nothing_back() -> None:
    daemon = Daemon()
    seen = []
    for now, total in ((1.0, 50.0), (2.0, 50.5), (3.0, 0.25)):
        daemon.syncs(9, total)
        seen.append(busy(daemon.look(now)))

    assert seen == [0.0, 0.5, 0.75]
    assert value(daemon.look(4.0), "kv_sync_seconds_total") == 0.25


def test_a_leap_of_the_counter_is_charged_for_a_minute_at_most() -> None:
    daemon = Daemon()
    seen = []
    for now in range(100):
        daemon.syncs(9, 1e6 if now else 0.0)
        seen.append(busy(daemon.look(now)))

    assert seen[-1] == MAX_OWED_SECONDS


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 1e6)), min_size=1, max_size=30))
def test_no_look_is_busier_than_it_is_long_and_nothing_is_taken_back(steps: list[tuple[float, float]]) -> None:
    daemon = Daemon()
    now, seen = 0.0, []
    for elapsed, total in steps:
        now += elapsed
        daemon.syncs(1, total)
        seen.append((now, busy(daemon.look(now))))

    for (before, less), (after, more) in pairwise(seen):
        assert 0 <= more - less <= after - before + 1e-6


def test_only_questions_that_wait_for_no_lock_are_asked() -> None:
    assert {question.prefix for question in OsdReader.questions} <= LOCK_FREE


LOGGERS = ["osd", "bluestore", "finisher-commit_finisher", "throttle-osd_client_bytes", "AsyncMessenger::Worker-0"]
COUNTERS = ["op_w", "op_w_latency", "op_wip", "numpg", "kv_sync_lat", "queue_len", "val", "max", "wait"]
KEYS = st.sampled_from([*LOGGERS, *COUNTERS, "avgcount", "sum", "msgr_recv_messages", "num_blocked_ops", "ops"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
ANSWERS = st.dictionaries(
    st.sampled_from([question.key for question in OsdReader.questions[:4]]),
    st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
    max_size=4,
)


@given(st.lists(ANSWERS, max_size=3))
@example([{"perf dump": b'{"throttle-osd_client_bytes":{"val":1e308,"max":1e-308}}'}])
@example([{"dump_blocked_ops": b'{"num_blocked_ops":1%s}' % (b"0" * 400)}])
@example([{"dump_blocked_ops": b'{"ops":' + b"[" * 100_000}])
@example([{"perf dump": b'{"bluestore":{"kv_sync_lat":{"avgcount":1,"sum":1e300}}}'}] * 3)
def test_any_answers_are_a_format_error_or_finite_numbers(rounds: list[dict[str, bytes]]) -> None:
    reader = OsdReader(ROLES)
    for now, answers in enumerate(rounds):
        try:
            reader.take(now, answers)
        except FormatError:
            pass

    for point in reader.points("osd.0"):
        assert point.metric in Osd.metrics
        assert math.isfinite(point.value)


def test_a_host_without_an_osd_has_nothing_to_read(machine: Machine) -> None:
    machine.process(70, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    probe = Osd(machine.host())

    with pytest.raises(NotPresent, match="no ceph-osd"):
        probe.sample(1.0)
    assert list(probe.points()) == []


def test_an_osd_is_found_asked_and_exported_by_the_first_sample(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "FIRST_ANSWERS_SECONDS", patience(20.0))
    socket = tmp_path / "ceph-osd.0.asok"
    answers = recorded("osd", "16.2.15", "slow_ops_slow_disk") | {"version": {"version": "16.2.15"}}
    run_daemon(machine, "ceph-osd", "0", socket)
    probe = Osd(machine.host())
    with DaemonSocket(socket, answers):
        probe.sample(1.0)
        found = Snapshot.of(0, probe.points())
        probe.close()

    assert value(found, "slow_ops") == 21
    assert found.value("pinchpoint_ceph_socket_up", daemon="osd.0") == 1
    assert found.values.keys() <= {metric.name for metric in Osd.metrics}
