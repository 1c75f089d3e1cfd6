from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from msgspec.structs import replace

from diagnosis.history import START, MadeHost
from pinchpoint.diagnosis.recent import Recent, RecentVerdicts
from pinchpoint.diagnosis.verdict import Confidence, Kind
from pinchpoint.model import Labels, Snapshot


def recent(host: MadeHost) -> Recent:
    found = Recent()
    for snapshot in host.pair():
        found.add(snapshot)
    return found


def lock(busy: float) -> MadeHost:
    host = MadeHost(3.0).works({"mds": 1.0}).resource("mds_lock", "mds.a", busy, "mds", runqueue=0.0)
    return host.gauge("pinchpoint_phase_active", 1, benchmark="fio", run="r", phase="create")


def test_each_benchmark_that_runs_is_judged_over_all_hosts_with_its_phase() -> None:
    client = MadeHost(3.0).works({"mds": 1.0})
    server = MadeHost(3.0).resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)

    (found,) = RecentVerdicts().take(START, {"client": recent(client), "server": recent(server)})

    assert (found.benchmark, found.run, found.verdict.kind) == ("fio", "r", Kind.RESOURCE)


def test_what_is_shown_changes_when_another_answer_holds_or_another_phase_begins() -> None:
    verdicts = RecentVerdicts()

    def shown(now: float, host: MadeHost) -> Kind:
        return verdicts.take(START + now, {"a": recent(host)})[0].verdict.kind

    assert shown(0, lock(0.95)) is Kind.RESOURCE
    assert shown(1, lock(0.3)) is Kind.RESOURCE
    assert shown(3, lock(0.3)) is Kind.LATENCY_BOUND
    assert shown(4, lock(0.95).gauge("pinchpoint_phase_active", 0, benchmark="fio", run="r", phase="create")) is (
        Kind.RESOURCE
    )


def test_a_change_is_shown_once_the_newest_second_of_a_window_with_another_answer_surely_has_it() -> None:
    verdicts, picture, shown = RecentVerdicts(), Recent(), []
    busy = [1.0] * 5 + [0.0] * 3
    for now, total in enumerate(accumulate(busy, initial=0.0)):
        host = MadeHost(1.0).works({"mds": now}).resource("mds_lock", "mds.a", total, "mds", saturated=total)
        _, snapshot = host.pair()
        picture.add(replace(snapshot, time=START + now))
        shown += [found.verdict.kind for found in verdicts.take(START + now, {"a": picture})]

    assert shown == [Kind.RESOURCE] * 5 + [Kind.LATENCY_BOUND] * 3


def test_requests_of_which_none_is_answered_are_stuck_however_short_what_is_seen_of_them_at_a_time() -> None:
    verdicts, requests = RecentVerdicts(), {"client": "rados", "target": "osd"}

    def shown(now: float, answered: float = 0.0) -> Kind:
        host = (
            MadeHost(3.0)
            .works({"osd": 4.0}, client="rados")
            .resource("osd_op", "osd.0", 0.01, "osd", runqueue=0.0)
            .counter("pinchpoint_ceph_client_requests_total", answered, **requests, type="write")
            .counter("pinchpoint_ceph_client_inflight_seconds_total", 4.0, **requests)
        )
        return verdicts.take(START + now, {"a": recent(host)})[0].verdict.kind

    assert [shown(now) for now in (3, 6, 9)] == [Kind.LATENCY_BOUND] * 3
    assert shown(10) is Kind.STUCK
    assert shown(12, answered=9.0) is Kind.STUCK
    assert shown(15, answered=9.0) is Kind.LATENCY_BOUND
    assert shown(18) is Kind.LATENCY_BOUND


def test_one_snapshot_is_no_verdict() -> None:
    alone = Recent()
    alone.add(lock(0.95).pair()[0])

    assert RecentVerdicts().take(START, {"a": alone}) == []


def test_a_host_whose_exporter_was_started_anew_is_judged_by_what_it_did_since() -> None:
    """Its counters began at zero somewhere between two answers."""
    verdicts, host, shown = RecentVerdicts(), Recent(), []
    for number in range(12):
        uptime = number - 5.5 if number > 5 else number + 1000.0
        values: dict[str, dict[Labels, float]] = {
            name: {labels: value * uptime if name.endswith("_total") else value for labels, value in series.items()}
            for name, series in second(1, began=0).values.items()
        }
        samples: dict[Labels, float] = {(("probe", "tasks"),): 10 * uptime}
        host.add(Snapshot(START + number, values | {"pinchpoint_sampler_samples_total": samples}))
        shown.append([one.verdict.kind for one in verdicts.take(START + number, {"a": host})])

    assert shown[3:6] == [[Kind.RESOURCE]] * 3
    assert shown[6] == [], "one answer is not enough"
    assert shown[7:] == [[Kind.RESOURCE]] * 5


def second(number: int, began: int, *, full: float = 0.97, before: float = 0.0) -> Snapshot:
    """Return a host after so many seconds; a lock was busy for a share of them, and a run is active from `began` on."""
    after = max(0, number - began)
    busy = before * min(number, began) + full * after
    values: dict[str, dict[Labels, float]] = {
        "pinchpoint_resource_threshold_ratio": {(("resource", "mds_lock"),): 0.8},
    }
    resource = (("owner", "mds.a"), ("resource", "mds_lock"), ("serves", "mds"))
    values["pinchpoint_resource_busy_seconds_total"] = {resource: busy}
    values["pinchpoint_resource_saturated_seconds_total"] = {resource: busy}
    values["pinchpoint_resource_runqueue_seconds_total"] = {resource[:2]: 0.0}
    if number >= began:
        names = (("benchmark", "fio"), ("run", "r"))
        values["pinchpoint_workload_seconds_total"] = {(*names, ("wait", "mds")): after + 0.2}
        values["pinchpoint_phase_active"] = {(names[0], ("phase", "create"), names[1]): 1.0}
    return Snapshot(START + number, values)


def test_a_phase_that_has_just_begun_is_judged_by_what_it_did_alone() -> None:
    """At the first answer, the lock was busy for a third of the last three seconds."""
    verdicts, host, shown = RecentVerdicts(), Recent(), []
    for number in range(9):
        host.add(second(number, began=4))
        shown.append([one.verdict for one in verdicts.take(START + number, {"a": host})])

    assert shown[:5] == [[]] * 5
    assert [(one.kind, one.seconds, one.confidence) for (one,) in shown[5:]] == [
        (Kind.RESOURCE, 1.0, Confidence.LOW),
        (Kind.RESOURCE, 2.0, Confidence.LOW),
        (Kind.RESOURCE, 3.0, Confidence.HIGH),
        (Kind.RESOURCE, 3.0, Confidence.HIGH),
    ]


def test_who_has_not_seen_the_processes_of_a_phase_for_a_second_is_not_blind_yet() -> None:
    """The processes' time is sampled rarely: it stands still in the first seconds of a phase."""
    verdicts, host, shown = RecentVerdicts(), Recent(), []
    for number in range(8):
        snapshot = second(number, began=4)
        time = number if number < 4 or number >= 6 else 3
        names = (("benchmark", "fio"), ("run", "r"), ("wait", "mds"))
        host.add(replace(snapshot, values={**snapshot.values, "pinchpoint_workload_seconds_total": {names: time}}))
        shown += [one.verdict.kind for one in verdicts.take(START + number, {"a": host}) if one.phase]

    assert set(shown) == {Kind.RESOURCE}


def test_a_poor_first_answer_gives_way_to_a_better_one_at_once() -> None:
    verdicts, host, shown = RecentVerdicts(), Recent(), []
    for number in range(8):
        # The lock's first work is not part of its later work.
        host.add(second(number, began=2, full=0.97 if number > 3 else 0.1))
        shown += [one.verdict.kind for one in verdicts.take(START + number, {"a": host})]

    assert shown[0] is Kind.LATENCY_BOUND
    assert shown[2] is Kind.RESOURCE


def test_a_host_that_answers_just_before_the_others_is_judged_with_them() -> None:
    """Hosts are queried at different times: the host that serves a phase may be read just before the phase."""
    verdicts, client, server = RecentVerdicts(), Recent(), Recent()
    shown = []
    for number in range(8):
        whole = second(number, began=4)
        lock = {name: series for name, series in whole.values.items() if name.startswith("pinchpoint_resource_")}
        work = {name: series for name, series in whole.values.items() if name not in lock}
        server.add(Snapshot(START + number - 0.01, lock))
        client.add(Snapshot(START + number, work))
        shown += [one.verdict.kind for one in verdicts.take(START + number, {"client": client, "server": server})]

    assert shown == [Kind.RESOURCE] * 3


def test_the_tail_of_a_phase_is_judged_without_what_came_before_its_stonewall() -> None:
    """A lock was full until the stonewall, 100 s after the phase began; then ranks that were slower go on alone."""
    verdicts, host, shown = RecentVerdicts(), Recent(), []
    phase = (("benchmark", "ior"), ("phase", "write"), ("run", "r"))
    for number in range(8):
        moment = second(min(number, 4), began=0)
        wait: Labels = (("benchmark", "ior"), ("run", "r"), ("wait", "mds"))
        values: dict[str, Mapping[Labels, float]] = {
            **moment.values,
            "pinchpoint_workload_seconds_total": {wait: float(number)},
            "pinchpoint_phase_active": {phase: 1.0},
            "pinchpoint_phase_expected_seconds": {phase: 100.0},
            "pinchpoint_phase_elapsed_seconds": {phase: 96.0 + number},
        }
        host.add(Snapshot(START + number, values))
        judged = verdicts.take(START + number, {"a": host})
        shown += [(one.tail, one.verdict.kind, one.verdict.seconds) for one in judged]

    assert shown[2:4] == [(None, Kind.RESOURCE, 3.0)] * 2
    assert [(tail, seconds) for tail, _, seconds in shown[4:]] == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert shown[-1][1] is Kind.LATENCY_BOUND


def test_a_run_has_the_graph_of_who_makes_it_wait_once_enough_windows_were_seen() -> None:
    verdicts, picture = RecentVerdicts(), Recent()
    found: dict[int, dict[str, float]] = {}
    for now in range(0, 40, 2):
        host = MadeHost(1.0).works({"disk": float(now)})
        # Another node has taken the time since the tenth second.
        for owner, seconds in (("first", min(now, 10)), ("second", max(0, now - 10))):
            labels = {"benchmark": "fio", "run": "r", "owner": owner, "role": "worker", "kind": "cpu"}
            host.counter("pinchpoint_path_seconds_total", float(seconds), **labels)
        picture.add(replace(host.pair()[1], time=START + now))
        for judged in verdicts.take(START + now, {"a": picture}):
            if (graph := judged.verdict.graph) is not None:
                found[now] = {step.node.owner: round(step.share, 2) for step in graph.steps if step.share}

    assert min(found) == 18
    assert found[18] == {"first": 0.56, "second": 0.44}
    assert found[38] == {"second": 1.0}
