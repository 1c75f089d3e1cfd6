from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint.diagnosis.pair as pair_module
import pinchpoint.diagnosis.progress as progress_module
import pinchpoint.diagnosis.usage as usage_module
from pinchpoint.diagnosis.progress import ActivePhase
from pinchpoint.diagnosis.usage import BlindProbe, Fullness, IdleState, ResourceUse, SilentDaemon, Usage, usage
from pinchpoint.metrics import EXPORTER
from pinchpoint.model import Labels, Snapshot
from register import read_by

BUSY = "pinchpoint_resource_busy_seconds_total"
SATURATED = "pinchpoint_resource_saturated_seconds_total"
RUNQUEUE = "pinchpoint_resource_runqueue_seconds_total"
THREAD_CPU = "pinchpoint_thread_cpu_seconds_total"
SUCCESS = "pinchpoint_probe_success"
LAST = "pinchpoint_probe_last_success_timestamp_seconds"
SAMPLES = "pinchpoint_sampler_samples_total"
IDLE = "pinchpoint_cpu_idle_state_seconds_total"

READ = read_by(usage_module, pair_module, progress_module)
"""Every metric that the modules refer to."""

Series = tuple[str, dict[str, str], float]


def about(value: float) -> Any:
    return pytest.approx(value)


def snapshot(time: float, *series: Series) -> Snapshot:
    values: dict[str, dict[Labels, float]] = {}
    for name, labels, value in series:
        values.setdefault(name, {})[tuple(sorted(labels.items()))] = value
    return Snapshot(time, values)


def resource(name: str, busy: float, saturated: float = 0.0, owner: str = "a", serves: str = "mds") -> list[Series]:
    labels = {"resource": name, "owner": owner, "serves": serves}
    return [(BUSY, labels, busy), (SATURATED, labels, saturated)]


def threshold(name: str, value: float) -> Series:
    return ("pinchpoint_resource_threshold_ratio", {"resource": name}, value)


def test_a_resource_is_given_by_its_shares_of_the_time_between() -> None:
    waits = {"resource": "mds_lock", "owner": "a"}
    before = snapshot(100, *resource("mds_lock", 50, 20), (RUNQUEUE, waits, 10))
    after = snapshot(
        110, *resource("mds_lock", 58, 25, serves="mds"), (RUNQUEUE, waits, 12), threshold("mds_lock", 0.8)
    )

    assert usage(before, after).resources == (
        ResourceUse(
            resource="mds_lock", owner="a", serves=("mds",), busy=0.8, saturated=0.5, runqueue=0.25, threshold=0.8
        ),
    )


def test_a_part_that_nobody_measures_is_not_zero() -> None:
    found = usage(snapshot(0, *resource("disk", 0)), snapshot(10, *resource("disk", 5)))

    assert found.resources[0].runqueue is None
    assert found.resources[0].threshold is None


def test_the_fullest_resource_comes_first_whatever_its_threshold() -> None:
    before = snapshot(0, *resource("cpu", 0), *resource("memory", 0), *resource("kv_sync", 0), *resource("disk", 0))
    after = snapshot(
        10,
        *resource("cpu", 7),
        *resource("memory", 2),
        *resource("kv_sync", 3, 3),
        *resource("disk", 9),
        threshold("cpu", 0.8),
        threshold("memory", 0.1),
        threshold("disk", 0.95),
    )

    assert [entry.resource for entry in usage(before, after).resources] == ["kv_sync", "memory", "disk", "cpu"]


@pytest.mark.parametrize(
    ("busy", "saturated", "level"),
    [
        (0.3, 0.0, Fullness.NORMAL),
        (0.62, 0.0, Fullness.NEAR),
        (1.0, 0.0, Fullness.NEAR),  # a busy disk without a queue
        (0.1, 0.1, Fullness.NEAR),  # full for a tenth of the time
        (0.6, 0.5, Fullness.FULL),
    ],
)
def test_fullness_is_judged_by_saturated_time(busy: float, saturated: float, level: Fullness) -> None:
    assert (
        ResourceUse(
            resource="disk", owner="vda", serves=(), busy=busy, saturated=saturated, runqueue=None, threshold=0.8
        ).level
        is level
    )


def test_a_value_smaller_than_before_counts_from_zero() -> None:
    before = snapshot(0, *resource("kswapd", 100, 100), *resource("idle", 5))
    after = snapshot(10, *resource("kswapd", 4, 2), *resource("idle", 5))

    assert usage(before, after).resources[0] == ResourceUse(
        resource="kswapd", owner="a", serves=("mds",), busy=0.4, saturated=0.2, runqueue=None, threshold=None
    )


def test_after_a_restart_of_the_exporter_everything_of_its_own_counts_from_zero() -> None:
    samples = {"probe": "tasks"}
    before = snapshot(0, *resource("kswapd", 3), (SAMPLES, samples, 1000), (IDLE, {"cpu": "0", "state": "C6"}, 50))
    after = snapshot(10, *resource("kswapd", 8), (SAMPLES, samples, 80), (IDLE, {"cpu": "0", "state": "C6"}, 55))

    found = usage(before, after)

    assert found.resources[0].busy == 0.8
    assert found.idle is not None
    assert found.idle.states == (IdleState("C6", 0.5, 0),)  # the kernel's counter continued


def test_a_newborn_resource_or_role_counts_from_zero() -> None:
    role = {"role": "benchmark", "owner": "fio"}
    after = snapshot(10, *resource("benchmark", 6, 4), (THREAD_CPU, role, 30), ("pinchpoint_threads", role, 4))

    found = usage(snapshot(0), after)

    assert (found.resources[0].busy, found.resources[0].saturated) == (0.6, 0.4)
    assert [(role.cpu, role.runqueue, role.threads) for role in found.roles] == [(3.0, None, 4)]


def test_a_probe_that_was_slow_leaves_the_newborns_of_the_others() -> None:
    hangs: list[Series] = [(SUCCESS, {"probe": "path"}, 0), (LAST, {"probe": "path"}, 99)]
    work: Series = ("pinchpoint_workload_seconds_total", {"benchmark": "fio", "run": "r", "wait": "disk"}, 5)
    role = {"role": "benchmark", "owner": "fio"}

    found = usage(snapshot(100, *hangs), snapshot(110, *resource("benchmark", 6), (THREAD_CPU, role, 5), work))

    assert [use.resource for use in found.resources] == ["benchmark"]
    assert [use.cpu for use in found.roles] == [0.5]
    assert [use.waits for use in found.workloads] == [{"disk": 0.5}]


@pytest.mark.parametrize(("probe", "known"), [("cgroups", ["kswapd"]), ("tasks", ["memory_quota"])])
def test_a_resource_comes_back_with_the_past_of_its_own_probe(probe: str, known: list[str]) -> None:
    hangs: list[Series] = [(SUCCESS, {"probe": probe}, 0), (LAST, {"probe": probe}, 99)]

    found = usage(snapshot(100, *hangs), snapshot(110, *resource("kswapd", 6), *resource("memory_quota", 6)))

    assert [use.resource for use in found.resources] == known


def test_a_new_counter_of_the_kernel_is_left_out() -> None:
    found = usage(snapshot(0), snapshot(10, (IDLE, {"cpu": "0", "state": "C6"}, 5)))

    assert found.idle is None


def test_a_slow_probe_is_measured_between_its_own_samples() -> None:
    def at(time: float, sampled: float, busy: float) -> Snapshot:
        return snapshot(time, (LAST, {"probe": "devices"}, sampled), *resource("disk", busy, busy))

    assert usage(at(100, 99.9, 50), at(101, 100.9, 50.5)).resources[0].busy == about(0.5)
    assert usage(at(100, 99.0, 50), at(101, 101.0, 51)).resources[0].busy == about(0.5)
    assert usage(at(100, 99.9, 50), at(100.9, 99.9, 50)).resources == ()


@pytest.mark.parametrize("elapsed", [0.0, -5.0, math.nan, math.inf])
def test_without_time_between_there_is_nothing_to_know(elapsed: float) -> None:
    after = snapshot(100 + elapsed, *resource("kswapd", 5))
    found = usage(snapshot(100, *resource("kswapd", 1)), after)

    assert found.seconds == 0.0
    assert found.resources == ()


def test_roles_are_sorted_by_what_they_want_of_the_cpus() -> None:
    waits = "pinchpoint_thread_runqueue_seconds_total"
    starved, fed = {"role": "osd_op", "owner": "osd.0"}, {"role": "benchmark", "owner": "fio"}
    before = snapshot(0, *((name, role, 0.0) for name in (THREAD_CPU, waits) for role in (starved, fed)))
    after = snapshot(2, (THREAD_CPU, starved, 1), (waits, starved, 3), (THREAD_CPU, fed, 2), (waits, fed, 0))

    assert [(role.owner, role.cpu, role.runqueue) for role in usage(before, after).roles] == [
        ("osd.0", 0.5, 1.5),
        ("fio", 1.0, 0.0),
    ]


def test_phases_are_those_that_go_on_oldest_first() -> None:
    def phase(name: str, active: float, start: float) -> list[Series]:
        labels = {"benchmark": "fio", "run": "r1", "phase": name}
        return [
            ("pinchpoint_phase_active", labels, active),
            ("pinchpoint_phase_start_timestamp_seconds", labels, start),
        ]

    after = snapshot(100, *phase("read", 1, 90), *phase("write", 0, 50), *phase("mixed", 1, 80))

    assert usage(snapshot(99), after).phases == (
        ActivePhase("fio", "r1", "mixed", 80),
        ActivePhase("fio", "r1", "read", 90),
    )


def test_idle_states_are_shares_of_all_cpus_shallowest_first() -> None:
    lost = "pinchpoint_cpu_idle_exit_seconds_total"
    latency = "pinchpoint_cpu_idle_state_exit_latency_seconds"
    disabled = "pinchpoint_cpu_idle_state_disabled_cpus"
    cpus = ({"cpu": "0"}, {"cpu": "1"})
    states = ({"state": "C10"}, {"state": "C1"})
    before = snapshot(
        0, *((IDLE, cpu | state, 1000.0) for cpu in cpus for state in states), *((lost, cpu, 7.0) for cpu in cpus)
    )
    after = snapshot(
        10,
        (IDLE, cpus[0] | states[0], 1008),
        (IDLE, cpus[0] | states[1], 1000),
        (IDLE, cpus[1] | states[0], 1004),
        (IDLE, cpus[1] | states[1], 1002),
        (lost, cpus[0], 7.5),
        (lost, cpus[1], 7.1),
        (latency, states[0], 890e-6),
        (latency, states[1], 2e-6),
        (disabled, states[0], 1),
    )

    idle = usage(before, after).idle

    assert idle is not None
    assert idle.states == (IdleState("C1", about(0.1), 0), IdleState("C10", about(0.6), 1))
    assert (idle.lost, idle.lost_worst) == (about(0.03), about(0.05))


def test_the_clock_is_set_against_its_maximum() -> None:
    after = snapshot(
        1,
        ("pinchpoint_cpu_frequency_hertz", {"cpu": "0"}, 1e9),
        ("pinchpoint_cpu_frequency_hertz", {"cpu": "1"}, 2e9),
        ("pinchpoint_cpu_frequency_max_hertz", {"cpu": "0"}, 3e9),
        ("pinchpoint_cpu_frequency_max_hertz", {"cpu": "1"}, 3e9),
        ("pinchpoint_cpu_clock_ratio", {"cpus": "busy"}, 0.9),
        ("pinchpoint_cpu_governor_info", {"driver": "acpi-cpufreq", "governor": "ondemand", "epp": ""}, 1),
    )

    clock = usage(snapshot(0), after).clock

    assert clock is not None
    assert (clock.mean, clock.max, clock.ratio, clock.busy_ratio) == (1.5e9, 3e9, 0.5, 0.9)
    assert clock.governors == ("ondemand",)


def test_memory_is_given_as_far_as_it_is_known() -> None:
    stalls = "pinchpoint_memory_allocation_stalls_total"
    before, after = (
        snapshot(0, (stalls, {}, 40)),
        snapshot(1, (stalls, {}, 47), ("pinchpoint_memory_dirty_bytes", {}, 5)),
    )

    memory = usage(before, after).memory

    assert (memory.dirty, memory.writeback, memory.stalls) == (5, None, 7)


def test_a_probe_is_blind_when_it_fails_or_has_stopped_and_not_when_it_has_nothing_to_read() -> None:
    interval = "pinchpoint_probe_interval_seconds"

    def probe(name: str, success: float, last: float | None, every: float = 1.0) -> list[Series]:
        labels = {"probe": name}
        found: list[Series] = [(SUCCESS, labels, success), (interval, labels, every)]
        return found if last is None else [*found, (LAST, labels, last)]

    # The exporter's clock is an hour behind ours: ages are computed from its clock alone.
    series = [
        *probe("tasks", 1, 6399.9, 0.1),
        *probe("devices", 0, 6390),
        *probe("cpuidle", 1, 6396),
        *probe("cpufreq", 1, 6390, 10),
        *probe("kworkers", 1, 6398.5, 0.05),
        *probe("memory", 0, None),
        *probe("cgroups", 1, 6399.5),
        ("pinchpoint_probe_present", {"probe": "cgroups"}, 0.0),
        ("pinchpoint_probe_present", {"probe": "tasks"}, 1.0),
    ]

    found = usage(snapshot(9999), snapshot(10000, *series))

    assert found.blind == (
        BlindProbe("cpuidle", False, about(3.9)),
        BlindProbe("devices", True, about(9.9)),
        BlindProbe("memory", True, None),
    )
    assert found.absent == ("cgroups",)


def test_all_probes_are_blind_when_they_all_stand_still() -> None:
    series: list[Series] = [
        (SUCCESS, {"probe": "tasks"}, 1),
        (LAST, {"probe": "tasks"}, 500),
        ("pinchpoint_probe_interval_seconds", {"probe": "tasks"}, 0.1),
    ]

    assert usage(snapshot(1000, *series), snapshot(1004, *series)).blind == (BlindProbe("tasks", False, 4.0),)


@pytest.mark.parametrize("ahead", [30.0, -30.0])
def test_no_probe_is_blind_because_the_clock_of_its_host_was_set(ahead: float) -> None:
    def at(time: float, seconds: float) -> Snapshot:
        series: list[Series] = [("pinchpoint_sampler_clock_set_seconds", {}, seconds)]
        for probe in ("tasks", "devices"):
            series += [(SUCCESS, {"probe": probe}, 1), (LAST, {"probe": probe}, time + seconds)]
        return snapshot(time, *series)

    assert usage(at(1000, 0.0), at(1004, ahead)).blind == ()


def test_ceph_daemons_that_give_no_answers_are_named_with_the_reason() -> None:
    series: list[Series] = [
        ("pinchpoint_ceph_socket_problem_info", {"daemon": "osd.0", "reason": "stopped"}, 1),
        ("pinchpoint_ceph_socket_problem_info", {"daemon": "mds.a", "reason": "silent"}, 1),
        ("pinchpoint_ceph_daemon_stuck", {"daemon": "osd.0"}, 1),
        ("pinchpoint_ceph_daemon_stuck", {"daemon": "mds.a"}, 0),
        ("pinchpoint_ceph_daemon_stuck", {"daemon": "mds.b"}, 0),
    ]

    assert usage(snapshot(0), snapshot(2, *series)).silent == (
        SilentDaemon("mds.a", "silent", False),
        SilentDaemon("osd.0", "stopped", True),
    )


def test_own_cost_and_lost_samples() -> None:
    cost, lost = "pinchpoint_self_cpu_seconds_total", "pinchpoint_sampler_lost_samples_total"
    probes = ({"probe": "tasks"}, {"probe": "memory"})
    before = snapshot(0, (cost, {}, 3), *((name, probe, 50.0) for name in (SAMPLES, lost) for probe in probes))
    after = snapshot(
        10,
        (cost, {}, 3.2),
        (SAMPLES, probes[0], 120),
        (SAMPLES, probes[1], 60),
        (lost, probes[0], 70),
        (lost, probes[1], 50),
    )

    own = usage(before, after).own

    assert own.cpu == about(0.02)
    assert (own.samples, own.lost, own.lost_share) == (80, 20, 0.2)


def test_every_metric_that_is_read_is_one_that_is_exported() -> None:
    assert READ - {metric.name for metric in EXPORTER} == set()


VALUES = st.one_of(
    st.floats(), st.floats(0, 1e4), st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1.7e308, math.nan, math.inf, 2.0**63])
)
LABELS = st.dictionaries(
    st.sampled_from(["resource", "owner", "serves", "role", "probe", "cpu", "cpus", "state", "governor", "phase"]),
    st.sampled_from(["", "a", "b", "disk", "devices", "cpuidle", "self", "busy"]),
    max_size=4,
).map(lambda labels: tuple(sorted(labels.items())))
SNAPSHOTS = st.builds(
    Snapshot,
    st.one_of(st.floats(), st.floats(0, 100)),
    st.dictionaries(st.sampled_from(sorted(READ)), st.dictionaries(LABELS, VALUES, max_size=4), max_size=12),
)


def numbers(value: object) -> list[float]:
    if isinstance(value, int | float):
        return [value]
    if isinstance(value, tuple):
        return [number for entry in value for number in numbers(entry)]
    if isinstance(value, msgspec.Struct):
        return [number for field in msgspec.structs.fields(value) for number in numbers(getattr(value, field.name))]
    return []


@given(SNAPSHOTS, SNAPSHOTS)
def test_any_two_snapshots_give_finite_figures(before: Snapshot, after: Snapshot) -> None:
    found = usage(before, after)

    assert isinstance(found, Usage)
    figures = [
        number
        for field in msgspec.structs.fields(found)
        if field.name != "time"
        for number in numbers(getattr(found, field.name))
    ]
    assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
    assert all(entry.busy <= 1 and entry.saturated <= 1 and (entry.runqueue or 0) <= 1 for entry in found.resources)
    assert all(state.share <= 1 for state in (found.idle.states if found.idle else ()))
    assert 0 <= found.own.lost_share <= 1


@given(SNAPSHOTS)
def test_a_snapshot_against_itself_is_empty(snapshot: Snapshot) -> None:
    assert usage(snapshot, snapshot).seconds == 0
