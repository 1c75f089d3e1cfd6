from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from diagnosis.history import START, MadeHost, snapshots
from pinchpoint.diagnosis.advice import Advice, kind_advice, step_advice
from pinchpoint.diagnosis.verdict import Confidence, Judge, Kind, Verdict, judge_phase, limit_advice, verdict
from pinchpoint.diagnosis.window import Window
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.resources import all_resources
from pinchpoint.threads.roles import load_roles


def judged(**hosts: MadeHost) -> Verdict:
    return verdict(*snapshots(**hosts))


def named(found: Verdict) -> list[tuple[str, str]]:
    return [(limit.resource, limit.owner) for limit in found.limits]


def mds(lock: float, runqueue: float, host_cpu: float = 0.5) -> MadeHost:
    """A host with an MDS, and a benchmark that waits for it for 90 % of its time."""
    return (
        MadeHost()
        .works({"mds": 3.6, "cpu": 0.4})
        .resource("mds_lock", "mds.a", lock, "mds", runqueue=runqueue)
        .threads("mds.a", max(0.0, lock - runqueue), runqueue)
        .cpu(host_cpu)
    )


def test_a_benchmark_that_computes_is_its_own_limit() -> None:
    host = MadeHost().works({"cpu": 1.0}).resource("benchmark", "fio", 0.99, "cpu,runqueue", runqueue=0.0).cpu(0.5)

    found = judged(a=host)

    assert (found.kind, named(found)) == (Kind.RESOURCE, [("benchmark", "fio")])
    assert found.limits[0].blame == pytest.approx(0.99)
    assert found.words == "limited by benchmark of fio"


def test_more_runnable_processes_than_cpus_blame_the_cpus_and_no_process() -> None:
    host = (
        MadeHost()
        .works({"runqueue": 5.9, "cpu": 1.9, "disk": 0.2})
        .resource("benchmark", "fio", 1.0, "cpu,runqueue", runqueue=0.75)
        .cpu(1.0)
    )

    found = judged(a=host)

    assert (found.kind, named(found)) == (Kind.RESOURCE, [("cpu", "host")])
    assert found.limits[0].blame == pytest.approx(5.9 / 8 + 1.9 / 8 * 0.75)


def test_an_mds_whose_lock_is_full_is_the_limit_of_what_waits_for_it() -> None:
    found = judged(a=mds(0.94, 0.05))

    assert (found.kind, named(found)) == (Kind.RESOURCE, [("mds_lock", "mds.a")])
    assert found.limits[0].blame == pytest.approx(0.9 * 0.94)
    assert any("mds_lock of mds.a is busy for 94 %" in line.replace("%", " %") for line in found.evidence)
    assert found.runbook == "MdsLockSaturated"


def test_a_full_lock_that_waits_for_full_cpus_is_not_the_limit() -> None:
    found = judged(a=mds(0.95, 0.75, host_cpu=1.0))

    assert named(found) == [("cpu", "host")]
    assert found.limits[0].blame == pytest.approx(0.9 * 0.75)


def test_threads_outside_of_the_lock_that_wait_for_full_cpus_count_too() -> None:
    found = judged(a=mds(0.9, 0.3, host_cpu=1.0).threads("mds.a", 0.0, 2.4, role="messenger"))

    assert found.limits[0].resource == "cpu"
    assert found.limits[0].blame == pytest.approx(0.9 * (0.3 + 2.4) / (0.9 + 2.4))


def test_a_stage_that_owes_more_to_the_cpus_than_it_keeps_is_not_named_for_them() -> None:
    host = (
        MadeHost()
        .works({"mds": 0.45, "cpu": 0.1, "client": 0.45})
        .resource("mds_lock", "mds.a", 1.0, "mds", runqueue=0.6)
        .cpu(0.9)
    )

    assert named(judged(a=host)) == [("cpu", "host")]


def test_a_quota_takes_what_the_lock_waits_for_a_cpu() -> None:
    host = mds(0.97, 0.8).resource("cpu_quota", "mds.a", 0.99, "cpu,runqueue")

    found = judged(a=host)

    assert named(found) == [("cpu_quota", "mds.a")]


def test_a_full_set_of_cpus_is_to_blame_only_while_the_host_has_others_that_are_free() -> None:
    pinned = mds(0.97, 0.8).resource("cpu_set", "mds.a", 1.0, "cpu,runqueue")
    full = mds(0.97, 0.8, host_cpu=1.0).resource("cpu_set", "mds.a", 1.0, "cpu,runqueue")

    assert named(judged(a=pinned)) == [("cpu_set", "mds.a")]
    assert named(judged(a=full)) == [("cpu", "host")]


def test_a_commit_that_waits_for_a_full_disk_blames_the_disk() -> None:
    def osd(queue: float) -> MadeHost:
        return (
            MadeHost()
            .works({"osd": 1.0})
            .resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.02)
            .resource("kv_commit", "osd.0", 0.96, "osd")
            .resource("disk", "vda", 0.99, "disk,writeback", saturated=queue)
            .device("osd.0", "vda")
            .cpu(0.3)
        )

    assert named(judged(a=osd(queue=1.0))) == [("disk", "vda")]
    found = judged(a=osd(queue=0.0))
    assert named(found) == [("kv_sync", "osd.0")]
    assert found.limits[0].blocked == pytest.approx(0.86)


def test_direct_io_blames_the_disk_under_the_benchmarks_own_files_only() -> None:
    host = (
        MadeHost()
        .works({"disk": 0.95, "cpu": 0.05}, device="loop3")
        .resource("disk", "loop3", 0.99, "disk,writeback")
        .resource("disk", "vda", 1.0, "disk,writeback")
    )

    found = judged(a=host)

    assert named(found) == [("disk", "loop3")]
    assert any(line.startswith("disk of vda on a is busy for 100%") for line in found.innocent)


def test_a_limit_of_a_cgroup_is_seen_where_the_disk_shows_nothing() -> None:
    host = (
        MadeHost()
        .works({"disk": 1.0}, device="vda")
        .resource("disk", "vda", 0.05, "disk,writeback")
        .resource("io_quota", "fio", 0.98, "disk,writeback")
    )

    assert named(judged(a=host)) == [("io_quota", "fio")]


def test_a_benchmark_that_reclaims_the_pages_of_its_own_cgroup_is_limited_by_that_and_not_by_the_hosts_memory() -> None:
    def host(owner: str) -> MadeHost:
        return (
            MadeHost()
            .works({"memory": 0.9, "cpu": 0.1})
            .resource("memory", "host", 0.9, "memory")
            .resource("memory_quota", owner, 1.0, "memory")
        )

    found = judged(a=host("fio"))
    assert named(found) == [("memory_quota", "fio")]
    assert found.innocent == (
        "memory of host on a is busy for 90%: tasks reclaim pages of their own cgroup, which is at its limit",
    )
    assert named(judged(a=host("somebody"))) == [("memory", "host")]


def test_a_full_disk_holds_up_what_reclaims_the_dirty_pages_of_its_own_cgroup() -> None:
    host = (
        MadeHost()
        .works({"memory": 0.8, "disk": 0.2}, device="vda")
        .resource("memory_quota", "fio", 0.9, "memory")
        .resource("disk", "vda", 0.98, "disk,writeback")
    )

    assert named(judged(a=host)) == [("disk", "vda"), ("memory_quota", "fio")]


def test_writeback_is_served_by_the_worker_and_the_disk_of_the_benchmarks_files() -> None:
    def host(worker: float, disk: float) -> MadeHost:
        return (
            MadeHost()
            .works({"writeback": 0.6, "cpu": 0.4}, device="sda", bdi="8:0")
            .resource("writeback_worker", "8:0", worker, "writeback", runqueue=0.0)
            .resource("writeback_worker", "8:16", 1.0, "writeback", runqueue=0.0)
            .resource("disk", "sda", disk, "disk,writeback")
        )

    assert named(judged(a=host(0.99, 0.3))) == [("writeback_worker", "8:0")]
    assert named(judged(a=host(0.01, 0.99))) == [("disk", "sda")]


def test_waiting_with_nothing_full_is_latency_and_names_no_limit() -> None:
    found = judged(a=mds(0.3, 0.05))

    assert (found.kind, found.limits) == (Kind.LATENCY_BOUND, ())
    assert found.ranking[0].resource == "mds_lock"
    assert found.advice


def test_a_cache_that_is_full_and_reads_nothing_again_is_cleared() -> None:
    host = mds(0.2, 0.0).resource("mds_cache", "mds.a", 0.0, "mds")
    host.gauge("pinchpoint_mds_cache_bytes", 67e6, daemon="mds.a")
    host.gauge("pinchpoint_mds_cache_limit_bytes", 8e6, daemon="mds.a")

    found = judged(a=host)

    assert found.kind is Kind.LATENCY_BOUND
    assert "the cache of mds.a on a is at 838% of its limit" in found.innocent[0]


def test_a_full_stage_that_mostly_waits_for_a_full_cpu_is_cleared_by_that() -> None:
    host = MadeHost().works({"osd": 0.8, "cpu": 0.2}).resource("kv_sync", "osd.0", 0.9, "osd", runqueue=0.85).cpu(1.0)

    assert "kv_sync of osd.0 on a is busy for 90%: for 85% it only waits for a CPU, and that is full" in (
        judged(a=host).innocent
    )


def test_a_busy_kswapd_that_keeps_up_is_cleared() -> None:
    host = (
        MadeHost()
        .works({"disk": 1.0}, device="vda")
        .resource("disk", "vda", 0.99, "disk,writeback")
        .resource("kswapd", "node0", 1.0, "memory", runqueue=0.0)
        .counter("pinchpoint_memory_allocation_stalls_total", 0.0)
    )

    found = judged(a=host)

    assert named(found) == [("disk", "vda")]
    assert any("kswapd of node0" in line and "keeps up" in line for line in found.innocent)


def test_a_benchmark_that_does_nothing_is_idle_whatever_its_neighbours_load() -> None:
    host = MadeHost().works({"idle": 0.96, "cpu": 0.04}).resource("mds_lock", "mds.a", 1.0, "mds", runqueue=0.1)

    assert judged(a=host).kind is Kind.IDLE


def test_links_in_another_network_namespace_that_nobody_sees_are_a_doubt() -> None:
    def osd(waits: str) -> MadeHost:
        host = MadeHost().works({waits: 1.0}).resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.0)
        names = {"owner": "osd.0", "reason": "Operation not permitted"}
        return host.gauge("pinchpoint_network_namespace_hidden_info", 1, **names)

    waits, works = judged(a=osd("osd")), judged(a=osd("cpu"))

    words = "links of osd.0 on a are in another network namespace, which is not seen: Operation not permitted"
    assert (waits.kind, waits.confidence) == (Kind.LATENCY_BOUND, Confidence.MEDIUM)
    assert words in waits.doubts
    assert words in waits.blind
    assert words not in works.blind


def test_kernel_workers_that_nobody_sees_are_a_doubt_where_writeback_is_waited_for() -> None:
    def host(waits: str, *, seen: float) -> MadeHost:
        return MadeHost().works({waits: 1.0}).gauge("pinchpoint_probe_present", seen, probe="kworkers")

    hidden, seen = judged(a=host("writeback", seen=0)), judged(a=host("writeback", seen=1))

    words = "kernel workers, which write back, are not seen on a: share the host's PID namespace"
    assert (hidden.kind, hidden.confidence, seen.confidence) == (Kind.LATENCY_BOUND, Confidence.MEDIUM, Confidence.HIGH)
    assert words in hidden.doubts
    assert words in hidden.blind
    assert words not in judged(a=host("disk", seen=0)).blind


def waits_for_osds() -> MadeHost:
    """A host with full CPUs and an OSD that hardly uses them."""
    host = MadeHost().works({"osd": 1.0}).resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.0)
    return host.threads("osd.0", 0.1, 0.0).cpu(1.0)


def test_threads_that_only_have_the_name_of_a_daemon_change_no_verdict() -> None:
    def beside(role: str) -> Verdict:
        return judged(a=waits_for_osds().threads("osd.1@uid1000", 1.0, 9.0, role=role))

    assert beside("unverified_other") == judged(a=waits_for_osds())
    assert named(beside("osd_op")) == [("cpu", "host")], "a daemon that waits for a CPU would"


def test_a_verdict_says_which_processes_by_a_daemons_name_it_leaves_out() -> None:
    def beside(number: float, waits: str) -> Verdict:
        host = waits_for_osds() if waits == "osd" else mds(0.9, 0.1)
        return judged(a=host.gauge("pinchpoint_unverified_processes", number, **{"class": "ceph-osd"}))

    words = "processes named ceph-osd whose user or program is not that of a daemon are left out: 300 on a"
    found = beside(300, "osd")
    assert found.blind == (words,)
    assert found.confidence is judged(a=waits_for_osds()).confidence
    assert beside(0, "osd").blind == beside(300, "mds").blind == ()


def test_kernel_locks_alone_are_unknown() -> None:
    assert judged(a=MadeHost().works({"lock": 1.0})).kind is Kind.UNKNOWN


def test_what_no_exporter_sees_is_blind_and_says_where_one_is_missing() -> None:
    found = judged(client=MadeHost().works({"mds": 0.9, "cpu": 0.1}))

    assert found.kind is Kind.BLIND
    assert "no exporter is on its host" in found.blind[0]


def test_a_library_without_a_socket_is_blind_and_says_how_to_open_one() -> None:
    found = judged(a=MadeHost().works({"ceph": 1.0}).resource("osd_op", "osd.0", 0.9, "osd", runqueue=0.0))

    assert found.kind is Kind.BLIND
    assert "admin_socket" in found.blind[0]


def test_a_frozen_daemon_is_guilty_although_it_is_not_busy() -> None:
    osd = MadeHost().stuck("osd.0").resource("osd_op", "osd.0", 0.0, "osd", runqueue=0.0)

    found = judged(client=MadeHost().works({"osd": 1.0}), server=osd)

    assert (found.kind, named(found)) == (Kind.STUCK, [("stuck", "osd.0")])
    assert found.words == "limited by osd.0, which is stuck"


def test_a_client_of_a_frozen_mds_that_shows_nothing_is_not_taken_for_idle() -> None:
    client = MadeHost().works({"idle": 1.0}, client="python3")

    found = judged(client=client, server=MadeHost().stuck("mds.a"))

    assert named(found) == [("stuck", "mds.a")]
    assert found.evidence[0] == "100% of fio's time passes without an answer to any of its requests"


def test_two_quotas_that_share_the_blame_are_several() -> None:
    host = (
        MadeHost()
        .works({"osd": 0.5, "mds": 0.45, "cpu": 0.05})
        .resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.9)
        .resource("osd_op", "osd.0", 0.95, "osd", runqueue=0.9)
        .resource("cpu_quota", "mds.a", 1.0, "cpu,runqueue")
        .resource("cpu_quota", "osd.0", 1.0, "cpu,runqueue")
    )

    found = judged(a=host)

    assert (found.kind, named(found)) == (Kind.SEVERAL, [("cpu_quota", "osd.0"), ("cpu_quota", "mds.a")])
    assert found.words == "limited by cpu_quota of osd.0 and cpu_quota of mds.a"


def test_a_lock_counts_beside_the_cpus_that_it_waits_for_as_long_as_it_works_itself() -> None:
    def host(runqueue: float) -> MadeHost:
        lock = MadeHost().works({"mds": 0.57, "runqueue": 0.43})
        return lock.resource("mds_lock", "mds.a", 0.98, "mds", runqueue=runqueue).cpu(0.95)

    works, waits = judged(a=host(0.54)), judged(a=host(0.8))

    assert (works.kind, named(works)) == (Kind.SEVERAL, [("cpu", "host"), ("mds_lock", "mds.a")])
    assert works.limits[1].blame < 0.5 * works.limits[0].blame
    assert (waits.kind, named(waits)) == (Kind.RESOURCE, [("cpu", "host")])


def test_limits_that_pass_the_border_only_together_are_several_and_not_latency() -> None:
    host = (
        MadeHost()
        .works({"osd": 0.26, "mds": 0.22, "client": 0.52})
        .resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)
        .resource("kv_sync", "osd.0", 0.95, "osd", runqueue=0.0)
    )

    found = judged(a=host)

    assert (found.kind, named(found)) == (Kind.SEVERAL, [("kv_sync", "osd.0"), ("mds_lock", "mds.a")])
    assert found.margin == "what is full answers for 46% of the time together, none of it for 40%"
    assert found.confidence is Confidence.MEDIUM


def test_a_limit_that_hardly_does_not_count_beside_the_first_is_told() -> None:
    def host(second: float) -> MadeHost:
        return (
            MadeHost()
            .works({"osd": 0.6, "mds": second, "client": 0.4 - second})
            .resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)
            .resource("kv_sync", "osd.0", 0.95, "osd", runqueue=0.0)
        )

    near, clear = judged(a=host(0.28)), judged(a=host(0.1))

    assert (near.kind, near.margin) == (Kind.RESOURCE, "just under: mds_lock of mds.a nearly counts beside it")
    assert (clear.kind, clear.margin) == (Kind.RESOURCE, "")


def held(seconds: float) -> MadeHost:
    """Return a host whose benchmark has unanswered requests in flight."""
    requests = {"client": "rados", "target": "osd"}
    return (
        MadeHost(seconds)
        .works({"osd": 4.0}, client="rados")
        .resource("osd_op", "osd.0", 0.01, "osd", runqueue=0.0)
        .counter("pinchpoint_ceph_client_requests_total", 0.0, **requests, type="write")
        .counter("pinchpoint_ceph_client_inflight_seconds_total", 4.0, **requests)
    )


def test_requests_of_which_none_is_answered_are_stuck_and_not_slow() -> None:
    stuck, early = judged(a=held(20.0)), judged(a=held(5.0))

    assert (stuck.kind, named(stuck), stuck.runbook) == (Kind.STUCK, [], "ClusterDegradedDuringRun")
    assert stuck.latency[0].startswith("of 4.0 requests to the OSDs in flight none was answered")
    assert (early.kind, early.confidence) == (Kind.LATENCY_BOUND, Confidence.LOW)
    assert early.doubts == ("no request was answered in these 5.0 s: from 10 s on something is stuck",)


def test_a_quota_takes_what_a_stage_of_its_daemon_waits_for_below_it() -> None:
    """A commit waits for other threads of its OSD, which the quota also stops."""
    host = (
        MadeHost()
        .works({"osd": 1.0})
        .resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.02)
        .resource("kv_commit", "osd.0", 0.96, "osd")
        .resource("cpu_quota", "osd.0", 0.98, "cpu,runqueue")
        .cpu(0.3)
    )

    assert named(judged(a=host)) == [("cpu_quota", "osd.0")]


def test_the_commit_threads_of_many_osds_are_one_limit() -> None:
    servers = {
        f"osd{number}": MadeHost().resource("kv_sync", f"osd.{number}", 0.9, "osd", runqueue=0.0) for number in range(8)
    }

    found = judged(client=MadeHost().works({"osd": 4.0}), **servers)

    assert found.kind is Kind.RESOURCE
    assert len(found.limits) == 8
    assert found.words == "limited by kv_sync of osd.0, osd.1, osd.2 and 5 more"


def test_ranks_on_hosts_that_do_not_know_the_run_count_for_it() -> None:
    first = MadeHost().works({"mds": 1.0}, benchmark="io500", run="r", owner="io500")
    second = MadeHost().works({"cpu": 3.0}, benchmark="io500", run="", owner="io500")

    found = verdict(*snapshots(first=first, second=second), run="r", benchmark="io500")

    assert dict(found.waits) == pytest.approx({"cpu": 0.75, "mds": 0.25})


def test_ranks_of_an_untrusted_user_count_for_that_users_runs_alone() -> None:
    first = MadeHost().works({"mds": 1.0}, benchmark="io500", run="r@uid1000", owner="io500")
    other = MadeHost().works({"disk": 1.0}, benchmark="io500", run="ours", owner="io500")
    second = MadeHost().works({"cpu": 3.0}, benchmark="io500", run="@uid1000", owner="io500")
    hosts = snapshots(first=first, other=other, second=second)

    theirs = verdict(*hosts, run="r@uid1000", benchmark="io500")
    assert dict(theirs.waits) == pytest.approx({"cpu": 0.75, "mds": 0.25})
    assert dict(verdict(*hosts, run="ours", benchmark="io500").waits) == {"disk": 1.0}


def test_another_run_of_the_same_benchmark_is_not_ours() -> None:
    host = MadeHost().works({"disk": 1.0}, run="ours").works({"cpu": 8.0}, run="theirs")

    assert dict(verdict(*snapshots(a=host), run="ours").waits) == {"disk": 1.0}


def test_an_interval_under_two_seconds_is_too_short() -> None:
    assert judged(a=MadeHost(1.5).works({"cpu": 1.0})).kind is Kind.TOO_SHORT


def test_a_border_that_is_near_is_told() -> None:
    over, under, clear = (judged(a=mds(busy, 0.0)) for busy in (0.82, 0.78, 0.95))

    assert over.margin.startswith("just over: mds_lock of mds.a is 82% busy")
    assert under.margin.startswith("just under: mds_lock of mds.a is 78% busy")
    assert (over.confidence, clear.confidence, clear.margin) == (Confidence.MEDIUM, Confidence.HIGH, "")


def test_it_is_not_sure_to_be_latency_bound_where_something_works_for_most_of_the_time() -> None:
    working, resting = judged(a=mds(0.6, 0.0)), judged(a=mds(0.3, 0.0))

    assert (working.kind, working.confidence) == (Kind.LATENCY_BOUND, Confidence.MEDIUM)
    assert working.margin == "mds_lock of mds.a is 60% busy, and full from 80% on"
    assert (resting.kind, resting.confidence) == (Kind.LATENCY_BOUND, Confidence.HIGH)


def test_it_is_not_sure_to_be_latency_bound_where_the_cpus_that_are_waited_for_are_nearly_full() -> None:
    """Threads that wake each other up on two CPUs wait for them before these are full."""

    def found(cpu: float) -> Verdict:
        return judged(a=MadeHost().works({"runqueue": 0.5, "cpu": 0.4, "mds": 0.1}).cpu(cpu))

    assert (found(0.77).kind, found(0.77).confidence) == (Kind.LATENCY_BOUND, Confidence.MEDIUM)
    assert found(0.77).margin == "just under: cpu of a is 77% busy, and full from 80% on"
    assert "cpu of a serves it as well and is not full: busy for 77% of the time" in found(0.77).evidence
    assert (found(0.3).kind, found(0.3).confidence) == (Kind.LATENCY_BOUND, Confidence.HIGH)


@pytest.mark.parametrize(
    ("share", "confidence", "margin"),
    [
        (0.38, Confidence.MEDIUM, "just under: mds_lock of mds.a is full and answers for 36% of the time"),
        (0.3, Confidence.MEDIUM, "mds_lock of mds.a is full and answers for 28% of the time"),
        (0.15, Confidence.HIGH, ""),
    ],
)
def test_it_is_not_sure_to_be_latency_bound_where_a_full_resource_answers_for_a_fifth_of_the_time(
    share: float, confidence: Confidence, margin: str
) -> None:
    host = (
        MadeHost()
        .works({"mds": share, "osd": 1 - share})
        .resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)
        .resource("kv_sync", "osd.0", 0.1, "osd", runqueue=0.0)
    )

    found = judged(a=host)

    assert (found.kind, found.confidence) == (Kind.LATENCY_BOUND, confidence)
    assert found.margin == (f"{margin}, 40% is the border" if margin else "")


def test_lost_samples_make_a_verdict_doubtful() -> None:
    host = mds(0.95, 0.0)
    host.counter("pinchpoint_sampler_samples_total", 5, probe="tasks")
    host.counter("pinchpoint_sampler_lost_samples_total", 5, probe="tasks")

    found = judged(a=host)

    assert found.confidence is Confidence.LOW
    assert "50% of the samples on a were lost" in found.doubts


@pytest.mark.parametrize(("times", "confidence"), [(0, Confidence.HIGH), (2, Confidence.HIGH), (3, Confidence.MEDIUM)])
def test_a_host_that_is_sampled_much_less_often_makes_a_verdict_doubtful(times: int, confidence: Confidence) -> None:
    host = mds(0.95, 0.0)
    host.gauge("pinchpoint_sampler_degraded", times)

    found = judged(a=host)

    assert found.confidence is confidence
    assert any("a is sampled 3 times less often" in doubt for doubt in found.doubts) is (times == 3)


def test_the_live_verdict_changes_only_when_another_one_holds() -> None:
    lock, latency = judged(a=mds(0.95, 0.0)), judged(a=mds(0.3, 0.0))
    judge = Judge()

    assert judge.take(0, lock).kind is Kind.RESOURCE
    assert judge.take(1, latency).kind is Kind.RESOURCE
    assert judge.take(2, lock).margin == ""
    assert judge.take(3, latency).margin == "changing: latency-bound since 0 s"
    assert judge.take(5, latency).kind is Kind.LATENCY_BOUND


@pytest.mark.parametrize(("confidence", "seconds"), [(Confidence.HIGH, 0), (Confidence.MEDIUM, 1), (Confidence.LOW, 2)])
def test_the_surer_the_newest_part_of_a_window_is_of_another_answer_the_sooner_it_is_shown(
    confidence: Confidence, seconds: int
) -> None:
    lock, latency = judged(a=mds(0.95, 0.0)), judged(a=mds(0.3, 0.0))
    newest = replace(latency, confidence=confidence)
    judge = Judge()
    judge.take(0, lock)
    kinds = [judge.take(10 + second, latency, lambda: newest).kind for second in range(4)]

    assert kinds == [Kind.RESOURCE] * seconds + [Kind.LATENCY_BOUND] * (4 - seconds)


def test_another_answer_has_to_hold_if_the_newest_part_of_its_window_does_not_have_it() -> None:
    lock, latency = judged(a=mds(0.95, 0.0)), judged(a=mds(0.3, 0.0))
    judge = Judge()
    judge.take(0, lock)
    kinds = [judge.take(10 + second, latency, lambda: lock).kind for second in range(3)]

    assert kinds == [Kind.RESOURCE, Kind.RESOURCE, Kind.LATENCY_BOUND]


def test_the_newest_part_of_a_window_is_judged_only_if_the_window_contradicts_what_is_shown() -> None:
    lock = judged(a=mds(0.95, 0.0))
    judge = Judge()
    for second in range(3):
        judge.take(second, lock, lambda: pytest.fail("it need not be judged"))


def test_answers_that_differ_from_each_other_contradict_the_shown_one_together() -> None:
    lock, latency, idle = (
        judged(a=mds(0.95, 0.0)),
        judged(a=mds(0.3, 0.0)),
        judged(a=MadeHost(10.0).works({"idle": 1.0})),
    )
    doubtful = [replace(found, confidence=Confidence.MEDIUM) for found in (latency, idle, latency)]
    judge = Judge()
    judge.take(0, lock)

    assert [judge.take(10 + second, found).kind for second, found in enumerate(doubtful)] == [
        Kind.RESOURCE,
        Kind.RESOURCE,
        Kind.LATENCY_BOUND,
    ]


def test_every_resource_that_can_be_full_has_advice_and_a_runbook() -> None:
    roles = load_roles()
    advised = {name for name, entry in all_resources().items() if entry.do and entry.what and entry.runbook}
    serving = {role.name for role in roles.roles if role.unit is not None} | set(roles.serves)

    assert serving - {"kv_commit"} == advised - {"stuck"}
    assert {kind for kind in Kind if kind not in (Kind.RESOURCE, Kind.SEVERAL, Kind.STUCK)} <= kind_advice().keys()


RESOURCES = st.tuples(
    st.sampled_from(["mds_lock", "kv_sync", "kv_commit", "osd_op", "cpu", "cpu_quota", "disk", "link", "memory", "x"]),
    st.sampled_from(["mds.a", "osd.0", "host", "fio", "vda", ""]),
    st.floats(0, 1),
    st.sampled_from(["mds", "osd", "cpu,runqueue", "disk,writeback", "network,mds,osd", ""]),
    st.none() | st.floats(0, 1),
)
WAITS = ("cpu", "runqueue", "mds", "osd", "client", "writeback", "disk", "network", "memory", "lock", "other", "idle")


@given(
    st.dictionaries(st.sampled_from((*WAITS, "ceph", "new")), st.floats(0, 100)),
    st.lists(RESOURCES, max_size=12),
    st.floats(0, 20),
)
def test_whatever_the_numbers_a_verdict_is_given_and_its_shares_are_shares(
    waits: dict[str, float], resources: list[tuple[str, str, float, str, float | None]], seconds: float
) -> None:
    host = MadeHost(seconds).works(waits)
    for name, owner, busy, serves, runqueue in resources:
        host.resource(name, owner, busy, serves, runqueue=runqueue)

    found = judged(a=host)

    assert all(0 <= share <= 1 for share in found.waits.values())
    assert all(math.isfinite(limit.blame) and 0 <= limit.blame <= 1.01 * len(waits) for limit in found.ranking)
    assert found.words
    assert bool(found.limits) == (found.kind in (Kind.RESOURCE, Kind.SEVERAL, Kind.STUCK))


def test_a_full_daemon_of_another_cluster_is_never_blamed() -> None:
    def full(cluster: str) -> MadeHost:
        host = (
            MadeHost()
            .resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)
            .resource("mds_cache", "mds.a", 0.9, "mds")
        )
        return host.gauge("pinchpoint_ceph_daemon_info", 1, daemon="mds.a", cluster=cluster, version="18")

    def idle(cluster: str) -> MadeHost:
        host = MadeHost().resource("mds_lock", "mds.a", 0.2, "mds", runqueue=0.0)
        return host.gauge("pinchpoint_ceph_daemon_info", 1, daemon="mds.a", cluster=cluster, version="18")

    def client(*clusters: str) -> MadeHost:
        host = MadeHost().works({"mds": 1.0}, client="ceph-fuse")
        for cluster in clusters:
            host.gauge("pinchpoint_ceph_client_cluster_info", 1, client="ceph-fuse", cluster=cluster)
        return host

    def judged(client: MadeHost) -> set[str]:
        """Return the hosts of the limits."""
        return {limit.host for limit in verdict(*snapshots(client=client, here=idle("one"), there=full("two"))).limits}

    assert judged(client("two")) == {"there"}
    assert judged(client("one")) == set()
    assert judged(client("one", "two")) == {"there"}
    assert judged(client()) == {"there"}, "its cluster is unknown, so it may be any"


def test_a_frozen_daemon_of_another_cluster_holds_nobody_up() -> None:
    frozen = (
        MadeHost()
        .resource("mds_lock", "mds.a", 0.0, "mds", runqueue=0.0)
        .stuck("mds.a")
        .gauge("pinchpoint_ceph_daemon_info", 1, daemon="mds.a", cluster="two", version="18")
    )

    def judged(cluster: str) -> str:
        client = MadeHost().works({"mds": 1.0}, client="ceph-fuse")
        client.gauge("pinchpoint_ceph_client_cluster_info", 1, client="ceph-fuse", cluster=cluster)
        return verdict(*snapshots(client=client, there=frozen)).kind

    assert judged("two") == "stuck"
    assert judged("one") == "blind"


def test_a_host_of_another_cluster_makes_no_verdict_doubtful() -> None:
    def host(cluster: str, busy: float) -> MadeHost:
        made = MadeHost().resource("mds_lock", "mds.a", busy, "mds", runqueue=0.0)
        return made.gauge("pinchpoint_ceph_daemon_info", 1, daemon="mds.a", cluster=cluster, version="18")

    def judged(cluster: str) -> Verdict:
        lossy = host(cluster, 0.1).counter("pinchpoint_sampler_samples_total", 5, probe="tasks")
        lossy.counter("pinchpoint_sampler_lost_samples_total", 5, probe="tasks")
        return verdict(*snapshots(client=client, here=host("one", 0.95), there=lossy))

    client = MadeHost().works({"mds": 1.0}, client="ceph-fuse")
    client.gauge("pinchpoint_ceph_client_cluster_info", 1, client="ceph-fuse", cluster="one")

    assert [judged(cluster).words for cluster in ("one", "two")] == ["limited by mds_lock of mds.a"] * 2
    assert judged("one").doubts == ("50% of the samples on there were lost",)
    assert judged("two").doubts == ()


def after(*locks: float) -> Snapshots:
    """Return a host after parts of 10 s; in each, the lock that everything waits for was busy for such a share."""
    busy = 10.0 * sum(locks)
    full = 10.0 * sum(lock >= 0.8 for lock in locks)
    resource = (("owner", "mds.a"), ("resource", "mds_lock"), ("serves", "mds"))
    values: dict[str, dict[Labels, float]] = {
        "pinchpoint_resource_busy_seconds_total": {resource: busy},
        "pinchpoint_resource_saturated_seconds_total": {resource: full},
        "pinchpoint_resource_runqueue_seconds_total": {resource[:2]: 0.0},
        "pinchpoint_resource_threshold_ratio": {(("resource", "mds_lock"),): 0.8},
        "pinchpoint_workload_seconds_total": {
            (("benchmark", "fio"), ("run", "r"), ("wait", "mds")): 1.0 + 10.0 * len(locks)
        },
    }
    return {"a": Snapshot(START + 10.0 * len(locks), values)}


def phase_of(*locks: float) -> Verdict:
    moments = [after(*locks[:count]) for count in range(len(locks) + 1)]
    window = Window(START, START + 10.0 * len(locks), dict(moments[0]), dict(moments[-1]))
    window.inner = [dict(moment) for moment in moments[1:-1]]
    return judge_phase(window, benchmark="fio", run="r")[1]


def test_a_phase_whose_parts_have_other_answers_is_trusted_less() -> None:
    steady, swaying, other = (
        phase_of(0.97, 0.95, 0.96),
        phase_of(0.99, 0.6, 0.99, 0.99),
        phase_of(1.0, 1.0, 0.7, 0.7, 0.7),
    )

    assert [found.kind for found in (steady, swaying, other)] == [Kind.RESOURCE] * 3
    assert [found.confidence for found in (steady, swaying, other)] == [
        Confidence.HIGH,
        Confidence.MEDIUM,
        Confidence.LOW,
    ]
    assert swaying.doubts == ("another answer in 1 of 4 parts of the phase: latency-bound",)


def test_a_phase_that_is_stuck_for_all_of_it_has_no_other_answer_in_its_parts() -> None:
    pairs = [host.pair() for host in (held(5.0), held(10.0), held(15.0), held(20.0))]
    window = Window(START, START + 20.0, {"a": pairs[0][0]}, {"a": pairs[-1][1]})
    window.inner = [{"a": after} for _, after in pairs[:-1]]

    found = judge_phase(window, benchmark="fio", run="r")[1]

    assert (found.kind, found.confidence) == (Kind.STUCK, Confidence.HIGH)


def test_a_link_in_somebodys_own_network_is_no_limit_of_others() -> None:
    """Any user may make a network namespace, and shape its link until it is full."""

    def found(link: str) -> Verdict:
        osd = MadeHost().resource("osd_op", "osd.3", 0.1, "osd", runqueue=0.0)
        full = osd.resource("link", link, 0.99, "network,mds,osd")
        return judged(client=MadeHost().works({"osd": 1.0}), server=full)

    assert found("lo/fio").kind is Kind.LATENCY_BOUND
    assert found("lo/fio").limits == ()
    assert named(found("eth0/osd.3")) == [("link", "eth0/osd.3")]
    own = MadeHost().works({"network": 1.0}).resource("link", "eth0/fio", 0.99, "network,mds,osd")
    assert named(judged(a=own)) == [("link", "eth0/fio")]


def test_a_phase_of_two_parts_says_nothing_of_its_steadiness() -> None:
    assert phase_of(0.99, 0.75).doubts == ()


def commits(host: MadeHost, milliseconds: float) -> MadeHost:
    """Add 100 writes a second to an OSD: 1 ms in the queue, and so long in the commit."""
    host.counter("pinchpoint_osd_ops_total", 100, daemon="osd.0", type="write")
    host.counter("pinchpoint_osd_op_seconds_total", 0.1 + milliseconds / 10, daemon="osd.0", type="write")
    for step in ("write_process", "kv_commit"):
        host.counter("pinchpoint_osd_steps_total", 100, daemon="osd.0", step=step)
        host.counter("pinchpoint_osd_step_seconds_total", milliseconds / 10, daemon="osd.0", step=step)
    return host


def waiting(milliseconds: float, wait: str = "osd") -> MadeHost:
    host = MadeHost().works({wait: 0.9, "cpu": 0.1}, client="fio").resource("kv_sync", "osd.0", 0.3, "osd")
    return commits(host, milliseconds)


def test_a_verdict_that_is_bound_by_latency_names_the_largest_step() -> None:
    found = verdict(*snapshots(a=waiting(3.0)))

    assert found.kind is Kind.LATENCY_BOUND
    assert [fall.operation for fall in found.waterfalls] == ["OSD write"]
    assert "an OSD write takes 4 ms inside the daemon, 75% of it kv commit: 1 queue, 3 kv commit" in found.evidence


def test_what_to_do_about_latency_depends_on_the_step_that_is_waited_for() -> None:
    found = verdict(*snapshots(a=waiting(3.0)))
    advice = step_advice()["kv commit"]

    assert (found.advice, found.runbook) == (advice.do, advice.runbook)
    assert limit_advice(found, None) == Advice(advice.do, advice.runbook)


def test_a_step_that_answers_for_little_of_the_time_is_not_advised_on() -> None:
    general = kind_advice()["latency-bound"].do
    slow_network = waiting(3.0).gauge("pinchpoint_tcp_rtt_seconds", 20e-3, owner="fio")
    own_work = commits(MadeHost().works({"osd": 0.4, "cpu": 0.6}, client="fio"), 3.0)
    long_at_the_client = waiting(3.0).counter("pinchpoint_ceph_client_requests_total", 100, client="fio", target="osd")
    long_at_the_client.counter("pinchpoint_ceph_client_inflight_seconds_total", 2.0, client="fio", target="osd")
    work_for_others = waiting(3.0).counter("pinchpoint_ceph_client_requests_total", 10, client="fio", target="osd")
    work_for_others.counter("pinchpoint_ceph_client_inflight_seconds_total", 0.05, client="fio", target="osd")

    for host in (slow_network, own_work, long_at_the_client, work_for_others):
        found = verdict(*snapshots(a=host))
        assert (found.kind, found.advice) == (Kind.LATENCY_BOUND, general)


@pytest.mark.parametrize(
    ("resource", "throttled", "share"), [("kv_sync", 6.0, "75%"), ("kv_sync", 0.5, ""), ("disk", 6.0, "")]
)
def test_a_commit_thread_behind_a_throttle_that_holds_writes_back_is_doubted(
    resource: str, throttled: float, share: str
) -> None:
    host = MadeHost().works({"osd": 0.9, "cpu": 0.1}, client="fio")
    host.resource(resource, "osd.0", 0.97, "osd", runqueue=0.0)
    host.counter("pinchpoint_osd_ops_total", 100, daemon="osd.0", type="write")
    host.counter("pinchpoint_osd_op_seconds_total", 0.2 + throttled / 10, daemon="osd.0", type="write")
    for step, milliseconds in {"write_process": 2 + throttled, "throttle": throttled, "kv_commit": 1.0}.items():
        host.counter("pinchpoint_osd_steps_total", 100, daemon="osd.0", step=step)
        host.counter("pinchpoint_osd_step_seconds_total", milliseconds / 10, daemon="osd.0", step=step)

    found = verdict(*snapshots(a=host))

    words = f"writes wait for a throttle of the OSDs for {share} of their time: a low one makes commits small"
    assert found.limits
    assert found.doubts == ((words,) if share else ())
    assert found.confidence is (Confidence.MEDIUM if share else Confidence.HIGH)


def test_operations_that_are_much_too_few_for_what_waits_are_not_shown() -> None:
    """A ceph-fuse that answers from its cache writes something to its OSDs now and then."""
    host = MadeHost().works({"client": 40.0, "cpu": 1.0}, client="fio")

    assert verdict(*snapshots(a=commits(host, 3.0))).waterfalls == ()


def test_steps_of_daemons_that_the_benchmark_does_not_wait_for_are_not_shown() -> None:
    assert verdict(*snapshots(a=waiting(3.0, wait="mds"))).waterfalls == ()
    assert verdict(*snapshots(a=waiting(3.0, wait="writeback"))).waterfalls


def test_a_step_that_takes_longer_in_the_second_half_of_a_phase_is_evidence() -> None:
    first, later = snapshots(a=waiting(2.0)), snapshots(a=waiting(6.0))
    middle, end = first[1]["a"], later[1]["a"]
    summed = {
        name: {labels: value + middle.values[name][labels] - 100.0 for labels, value in of.items()}
        if name.endswith("_total")
        else of
        for name, of in end.values.items()
    }
    window = Window(START, START + 20.0, dict(first[0]), {"a": Snapshot(START + 20.0, summed)})
    window.inner = [dict(first[1])]

    found = judge_phase(window, benchmark="fio", run="r")[1]

    assert found.evidence[-1] == "kv commit of an OSD write takes 2 ms in the first half and 6 ms in the second"
