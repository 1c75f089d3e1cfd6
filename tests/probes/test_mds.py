from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ceph_answers import RELEASES, Answers, encoded, recorded, run_daemon
from daemon_socket import DaemonSocket
from machine import Machine
from pinchpoint.ceph.asok import LOCK_FREE
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent
from pinchpoint.probes.mds import Mds, MdsReader, parse_cache_bytes
from pinchpoint.threads.roles import load_roles
from polling import until

ROLES = load_roles()
RESOURCE = {"resource": "mds_cache", "owner": "mds.a", "serves": "mds"}
STATES = {"14.2.21": "load", "16.2.15": "idle", "18.2.7": "load", "20.2.4": "load"}
MIB = 1 << 20


class Daemon:
    """A reader, and its answers."""

    def __init__(self, release: str = "16.2.15", state: str = "idle") -> None:
        self.reader = MdsReader(ROLES)
        self.answers: Answers = recorded("mds", release, state)

    @property
    def counters(self) -> dict[str, Any]:
        """The loggers of the next perf dump."""
        found: dict[str, Any] = self.answers["perf dump"]
        return found

    def option(self, name: str, value: str) -> None:
        self.answers[f"config get {name}"] = {name: value}

    def cache(self, size: int) -> None:
        self.answers["dump_mempools"]["mempool"]["by_pool"]["mds_co"]["bytes"] = size

    def look(self, now: float = 1.0) -> Snapshot:
        """Have the reader take the answers, and return every series."""
        self.reader.take(now, encoded(self.answers))
        return Snapshot.of(now, self.reader.points("mds.a"))


def value(snapshot: Snapshot, name: str) -> float | None:
    return snapshot.value(f"pinchpoint_mds_{name}", daemon="mds.a")


def busy(snapshot: Snapshot) -> float | None:
    return snapshot.value("pinchpoint_resource_busy_seconds_total", **RESOURCE)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (
            "idle",
            {
                "cache_bytes": 51568, "cache_limit_bytes": 4096 * MIB, "cache_warn_bytes": 6144 * MIB,
                "log_segments": 1, "log_segments_limit": 128, "log_segments_warn": 256, "caps": 3, "sessions": 3,
                "requests_total": 3,
            },
        ),
        (
            "cache_oversized",
            {
                "cache_bytes": 58_444_200, "cache_limit_bytes": 8 * MIB, "cache_warn_bytes": 12 * MIB, "inodes": 15030,
                "inodes_with_caps": 15003, "inodes_pinned": 15030, "caps": 15004, "sessions": 2, "replies_total": 47600,
                "reply_seconds_total": 21.747923113, "caps_revoked_total": 15853, "evictions_total": 0,
            },
        ),
        (
            "mds_trim",
            {
                "log_segments": 492, "log_segments_limit": 8, "log_segments_warn": 16, "log_segments_added_total": 616,
                "log_segments_trimmed_total": 124, "log_events_total": 94470, "journal_writes_total": 144,
                "journal_write_seconds_total": 32.989540293, "queue_requests": 1, "requests_total": 56717,
            },
        ),
        (
            "slow_ops_slow_disk",
            {"osd_ops_in_flight": 5, "cache_bytes": 110_336_856, "dir_fetches_total": 0, "replies_total": 70130},
        ),
    ],
)  # fmt: skip
def test_the_numbers_of_a_recorded_state(state: str, expected: dict[str, float]) -> None:
    found = Daemon(state=state).look()

    assert {name: value(found, name) for name in expected} == expected


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_has_every_series_but_those_that_it_lacks(release: str) -> None:
    found = Daemon(release, STATES[release]).look()

    lacks = {"pinchpoint_mds_queue_requests"}
    if release == "14.2.21":
        lacks |= {"pinchpoint_mds_caps_revoked_total", "pinchpoint_mds_purges_queued"}
    declared = {metric.name for metric in Mds.metrics if not metric.name.startswith("pinchpoint_ceph_")}
    assert declared - found.values.keys() == lacks
    assert value(found, "rank_held") == 1


@pytest.mark.parametrize("release", RELEASES)
def test_a_counter_that_a_release_lacks_is_left_out_and_never_zero(release: str) -> None:
    daemon = Daemon(release, STATES[release])
    for logger in ("mds", "mds_log", "mds_server", "mds_sessions", "objecter", "purge_queue"):
        daemon.counters[logger].clear()
    del daemon.answers["config get mds_log_warn_factor"], daemon.answers["dump_mempools"]
    found = daemon.look()

    assert {name for name in found.values if name.startswith("pinchpoint_mds_")} == {
        "pinchpoint_mds_rank_held",
        "pinchpoint_mds_cache_limit_bytes",
        "pinchpoint_mds_cache_warn_bytes",
        "pinchpoint_mds_log_segments_limit",
    }


def test_a_standby_holds_no_rank_and_says_nothing_else_of_its_own() -> None:
    found = Daemon("20.2.4", "standby").look()

    assert {name for name in found.values if name.startswith("pinchpoint_mds_")} == {"pinchpoint_mds_rank_held"}
    assert value(found, "rank_held") == 0
    assert found.value("pinchpoint_ceph_messages_total", daemon="mds.a", direction="received")


def test_a_daemon_that_loses_its_rank_ends_its_series() -> None:
    daemon = Daemon()
    daemon.look(1.0)
    daemon.answers = recorded("mds", "20.2.4", "standby")
    found = daemon.look(2.0)

    assert value(found, "rank_held") == 0
    assert value(found, "cache_bytes") is None
    assert busy(found) is None


def test_fetches_of_directories_are_one_counter_before_reef_and_two_from_then_on() -> None:
    old, new = Daemon("16.2.15", "idle"), Daemon("20.2.4", "load")
    old.counters["mds"]["dir_fetch"] = 7
    new.counters["mds"] |= {"dir_fetch_complete": 3, "dir_fetch_keys": 4}

    assert value(old.look(), "dir_fetches_total") == 7
    assert value(new.look(), "dir_fetches_total") == 7
    assert value(Daemon("18.2.7", "small_cache").look(), "dir_fetches_total") == 282


def test_evictions_are_those_for_kept_capabilities_and_those_for_too_much_state() -> None:
    daemon = Daemon()
    daemon.counters["mds_server"]["cap_revoke_eviction"] = 2
    daemon.counters["mds_sessions"]["mdthresh_evicted"] = 1

    assert value(daemon.look(), "evictions_total") == 3


def test_the_queue_is_shown_once_somebody_is_seen_to_set_it() -> None:
    daemon = Daemon()
    seen = []
    for queue in (0, 5, 0):
        daemon.counters["mds"]["q"] = queue
        seen.append(value(daemon.look(), "queue_requests"))

    assert seen == [None, 5, 0]


def test_messages_of_all_network_threads_are_added_up() -> None:
    daemon = Daemon()
    for worker in range(3):
        daemon.counters[f"AsyncMessenger::Worker-{worker}"] |= {"msgr_recv_messages": 10, "msgr_send_messages": worker}
    found = daemon.look()

    assert found.value("pinchpoint_ceph_messages_total", daemon="mds.a", direction="received") == 30
    assert found.value("pinchpoint_ceph_messages_total", daemon="mds.a", direction="sent") == 3


def test_a_changed_option_shows_with_the_next_answer_and_holds_until_then() -> None:
    daemon = Daemon()
    daemon.look(1.0)
    daemon.option("mds_cache_memory_limit", str(8 * MIB))
    found = daemon.look(6.0)

    assert value(found, "cache_limit_bytes") == 8 * MIB
    assert value(found, "cache_warn_bytes") == 12 * MIB
    assert dict(daemon.reader.options.items())["mds_cache_memory_limit"] == str(8 * MIB)

    del daemon.answers["config get mds_cache_memory_limit"]
    assert value(daemon.look(7.0), "cache_limit_bytes") == 8 * MIB


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "", "8M"])
def test_what_limits_nothing_is_no_limit(limit: str) -> None:
    daemon = Daemon()
    daemon.option("mds_cache_memory_limit", limit)
    found = daemon.look()

    assert value(found, "cache_limit_bytes") is None
    assert value(found, "cache_warn_bytes") is None


def test_the_peak_of_the_cache_stays_when_it_shrinks() -> None:
    daemon = Daemon()
    found = None
    for now, size in enumerate((5 * MIB, 9 * MIB, 2 * MIB)):
        daemon.cache(size)
        found = daemon.look(now)

    assert found is not None
    assert value(found, "cache_bytes") == 2 * MIB
    assert value(found, "cache_peak_bytes") == 9 * MIB


def test_counters_are_those_of_the_daemon_also_after_a_reset() -> None:
    daemon = Daemon(state="cache_oversized")
    daemon.look(1.0)
    daemon.counters["mds"]["request"] = 12

    assert value(daemon.look(2.0), "requests_total") == 12


class FullCache(Daemon):
    """A cache at 95 % of its limit that reads a directory before every look, with an operation in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.option("mds_cache_memory_limit", str(100 * MIB))
        self.cache(95 * MIB)
        self.counters["objecter"]["op_active"] = 1

    def look(self, now: float = 1.0) -> Snapshot:
        self.counters["mds"]["dir_fetch"] += self.fetched
        return super().look(now)

    fetched = 1


def less_full(daemon: FullCache) -> None:
    daemon.cache(90 * MIB)


def no_fetches(daemon: FullCache) -> None:
    daemon.fetched = 0


def nothing_in_flight(daemon: FullCache) -> None:
    daemon.counters["objecter"]["op_active"] = 0


def no_limit(daemon: FullCache) -> None:
    daemon.option("mds_cache_memory_limit", "0")


def test_the_cache_is_busy_while_it_is_full_and_directories_are_read_for_it() -> None:
    daemon = FullCache()
    found = [busy(daemon.look(now)) for now in (1.0, 2.0, 3.5)]

    assert found == [0.0, 1.0, 2.5]
    assert daemon.look(4.0).value("pinchpoint_resource_saturated_seconds_total", **RESOURCE) == 3.0


@pytest.mark.parametrize("change", [less_full, no_fetches, nothing_in_flight, no_limit])
def test_the_cache_is_not_busy_where_one_of_the_conditions_is_missing(change: Callable[[FullCache], None]) -> None:
    daemon = FullCache()
    daemon.look(1.0)
    change(daemon)

    assert busy(daemon.look(2.0)) == 0.0


def test_a_cache_that_is_far_too_large_and_reads_nothing_limits_nothing() -> None:
    daemon = Daemon(state="cache_oversized")
    daemon.look(1.0)

    assert busy(daemon.look(2.0)) == 0.0


def test_nothing_is_said_of_a_time_in_which_nobody_looked() -> None:
    daemon = FullCache()
    daemon.look(1.0)

    assert busy(daemon.look(100.0)) == 0.0
    assert busy(daemon.look(101.0)) == 1.0


def test_only_questions_that_wait_for_no_lock_are_asked_and_limits_often() -> None:
    assert {question.prefix for question in MdsReader.questions} <= LOCK_FREE
    often = {question.var for question in MdsReader.questions if question.every == 5.0}
    assert often == {
        "mds_cache_memory_limit", "mds_health_cache_threshold", "mds_log_max_segments", "mds_log_warn_factor",
    }  # fmt: skip


def test_the_cache_is_the_pool_of_cached_objects() -> None:
    raw = b'{"mempool":{"by_pool":{"osd":{"items":1,"bytes":2},"mds_co":{"items":3,"bytes":4}},"total":{"bytes":6}}}'

    assert parse_cache_bytes(raw) == 4
    assert parse_cache_bytes(b'{"mempool":{"by_pool":{}}}') is None
    assert parse_cache_bytes(b"{}") is None


LOGGERS = ["mds", "mds_log", "objecter", "AsyncMessenger::Worker-0"]
COUNTERS = ["seg", "q", "request", "dir_fetch", "jlat", "reply_latency", "op_active", "msgr_recv_messages"]
KEYS = st.sampled_from([*LOGGERS, *COUNTERS, "avgcount", "sum", "mempool", "by_pool", "mds_co", "bytes"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
ANSWERS = st.dictionaries(
    st.sampled_from([question.key for question in MdsReader.questions]),
    st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()),
    max_size=4,
)


@given(st.lists(ANSWERS, max_size=3))
@example([{"perf dump": b'{"mds":{"inodes":1e400,"caps":-1}}'}])
@example(
    [{"perf dump": b'{"mds":{}}', "dump_mempools": b'{"mempool":{"by_pool":{"mds_co":{"bytes":1%s}}}}' % (b"0" * 400)}]
)
@example([{"perf dump": b'{"mds":{}}', "dump_mempools": b"[" * 100_000}])
@example([{"config get mds_cache_memory_limit": b'{"mds_cache_memory_limit":"1e999"}'}])
def test_any_answers_are_a_format_error_or_finite_numbers(rounds: list[dict[str, bytes]]) -> None:
    reader = MdsReader(ROLES)
    for now, answers in enumerate(rounds):
        try:
            reader.take(now, answers)
        except FormatError:
            pass

    for point in reader.points("mds.a"):
        assert point.metric in Mds.metrics
        assert math.isfinite(point.value)


def test_a_host_without_an_mds_has_nothing_to_read(machine: Machine) -> None:
    machine.process(70, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    probe = Mds(machine.host())

    with pytest.raises(NotPresent, match="no ceph-mds"):
        probe.sample(1.0)
    assert list(probe.points()) == []


def test_an_mds_is_found_asked_and_exported(machine: Machine, tmp_path: Path) -> None:
    socket = tmp_path / "ceph-mds.a.asok"
    answers = recorded("mds", "16.2.15", "cache_oversized") | {"version": {"version": "16.2.15"}}
    run_daemon(machine, "ceph-mds", "a", socket)
    probe = Mds(machine.host())
    with DaemonSocket(socket, answers):
        probe.sample(1.0)
        until(20, lambda: value(Snapshot.of(0, probe.points()), "caps"))
        found = Snapshot.of(0, probe.points())
        probe.close()

    assert value(found, "caps") == 15004
    assert found.value("pinchpoint_ceph_socket_up", daemon="mds.a") == 1
    assert found.values.keys() <= {metric.name for metric in Mds.metrics}
