from __future__ import annotations

from diagnosis.history import START, MadeHost
from pinchpoint.diagnosis.recent import Recent, RecentVerdicts
from pinchpoint.diagnosis.verdict import Kind


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


def test_one_snapshot_is_no_verdict() -> None:
    alone = Recent()
    alone.add(lock(0.95).pair()[0])

    assert RecentVerdicts().take(START, {"a": alone}) == []
