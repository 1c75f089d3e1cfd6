from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint.diagnosis.latency as latency_module
from diagnosis.history import START, MadeHost, snapshots
from pinchpoint.diagnosis.latency import LatencyBreakdown, ShallowDisk, Sleep, latency
from pinchpoint.diagnosis.usage import usages
from pinchpoint.diagnosis.verdict import Kind, verdict
from pinchpoint.model import Labels, Snapshot
from register import read_by

READ = read_by(latency_module)
CLIENT = "pinchpoint_ceph_client_"
OSD = "pinchpoint_osd_"


def about(value: float) -> Any:
    return pytest.approx(value)


def client(
    host: MadeHost, rate: float, seconds: float, target: str = "osd", name: str = "ceph-fuse", **waits: float
) -> MadeHost:
    """Make one process wait for requests of a client, `rate` per second that take `seconds` each."""
    host.works(waits or {target: 0.9, "cpu": 0.1}, client=name)
    host.counter(f"{CLIENT}requests_total", rate, client=name, target=target)
    return host.counter(f"{CLIENT}inflight_seconds_total", rate * seconds, client=name, target=target)


def osd(
    host: MadeHost,
    rate: float,
    seconds: float,
    *,
    commit: float = 0.0,
    flush: float = 0.0,
    daemon: str = "osd.0",
    type_: str = "write",
) -> MadeHost:
    host.counter(f"{OSD}ops_total", rate, daemon=daemon, type=type_)
    host.counter(f"{OSD}op_seconds_total", rate * seconds, daemon=daemon, type=type_)
    host.counter(f"{OSD}kv_syncs_total", rate, daemon=daemon)
    host.counter(f"{OSD}kv_sync_seconds_total", rate * commit, daemon=daemon)
    return host.counter(f"{OSD}kv_flush_seconds_total", rate * flush, daemon=daemon)


def tcp(host: MadeHost, rtt: float, least: float, owner: str = "ceph-fuse", again: float = 0.0) -> MadeHost:
    host.gauge("pinchpoint_tcp_rtt_seconds", rtt, owner=owner)
    host.gauge("pinchpoint_tcp_rtt_min_seconds", least, owner=owner)
    return host.counter("pinchpoint_tcp_retransmits_total", again, owner=owner)


def idle(host: MadeHost, share: float, lost: float = 0.0, latency: float = 133e-6, state: str = "C6") -> MadeHost:
    for name, value, exit_latency in (("C1", 0.2, 2e-6), (state, share, latency)):
        host.counter("pinchpoint_cpu_idle_state_seconds_total", value, cpu="0", state=name)
        host.gauge("pinchpoint_cpu_idle_state_exit_latency_seconds", exit_latency, state=name)
    return host.counter("pinchpoint_cpu_idle_exit_seconds_total", lost, cpu="0")


def clock(host: MadeHost, ratio: float, governor: str = "powersave") -> MadeHost:
    host.gauge("pinchpoint_cpu_frequency_hertz", 1e9, cpu="0").gauge("pinchpoint_cpu_frequency_max_hertz", 2e9, cpu="0")
    host.gauge("pinchpoint_cpu_governor_info", 1, driver="intel_pstate", governor=governor, epp="")
    return host.gauge("pinchpoint_cpu_clock_ratio", ratio, cpus="busy")


def told(**hosts: MadeHost) -> LatencyBreakdown:
    """Return the breakdown; every host belongs to the run of the benchmark or to none."""
    before, after = snapshots(**hosts)
    waits = {
        dict(labels)["wait"]: value
        for snapshot in after.values()
        for labels, value in snapshot.values.get("pinchpoint_workload_seconds_total", {}).items()
        if value > 100
    }
    total = sum(value - 100 for value in waits.values())
    shares = {wait: (value - 100) / total for wait, value in waits.items()}
    return latency(usages(before, after), before, after, benchmark="fio", run="r", waits=shares)


def said(found: LatencyBreakdown, words: str) -> str:
    """Return the one sentence with these words."""
    sentences = [sentence for sentence in found.sentences if words in sentence]
    assert len(sentences) == 1, found.sentences
    return sentences[0]


def silent(found: LatencyBreakdown, words: str) -> bool:
    return not any(words in sentence for sentence in found.sentences)


def test_a_request_is_divided_into_inside_and_outside_of_the_daemon() -> None:
    found = told(client=tcp(client(MadeHost(), 500, 1.9e-3), 50e-6, 45e-6), server=osd(MadeHost(), 500, 0.6e-3))

    path = found.paths[0]
    assert (path.rate, path.seconds) == (about(500), about(1.9e-3))
    assert path.inside is not None
    assert path.inside.seconds == about(0.6e-3)
    assert path.outside == about(1.3e-3)
    assert path.rest == about(1.25e-3)
    assert said(found, "OSD request takes") == (
        "an OSD request takes 1.9 ms at the client and 600 us inside of the OSD (with its replicas): "
        "1.3 ms (68%) are network (one TCP round trip: 50 us), messengers, wake-ups and the client"
    )


def test_a_client_that_was_seen_for_a_part_of_the_time_is_as_busy_as_it_was_then() -> None:
    def seen(seconds: float) -> LatencyBreakdown:
        return told(client=client(MadeHost(seconds), 500, 1.9e-3), server=osd(MadeHost(30.0), 500, 0.6e-3))

    for found in (seen(30.0), seen(10.0)):
        assert (found.depths[0].requests, found.paths[0].rate) == (about(0.95), about(500))
        assert found.paths[0].outside == about(1.3e-3)


def test_one_request_after_the_other_is_called_so() -> None:
    found = told(a=client(MadeHost(), 500, 2.2e-3))

    assert found.depths[0].requests == about(1.1)
    assert said(found, "in flight") == (
        "1.1 OSD requests in flight on average: the process waits for one request after the other"
    )


def test_each_of_several_processes_may_wait_for_its_own_request() -> None:
    host = client(MadeHost(), 4000, 2e-3, osd=7.5, idle=0.5, cpu=0.5)
    assert said(told(a=host), "in flight").endswith("each of the 8 processes waits for one request after the other")


def test_many_requests_in_flight_are_not_one_after_the_other() -> None:
    found = told(a=client(MadeHost(), 8000, 4e-3))

    assert not found.depths[0].one_by_one
    assert said(found, "in flight") == "32.0 OSD requests in flight on average, 32.0 for each process that works"


def test_a_round_trip_that_takes_as_long_as_all_that_is_outside_is_the_answer() -> None:
    found = told(a=tcp(client(MadeHost(), 400, 2.1e-3), 1.5e-3, 0.04e-3), b=osd(MadeHost(), 400, 0.6e-3))

    assert said(found, "OSD request takes").endswith("are the network: a TCP round trip takes 1.5 ms, at best 40 us")


def test_the_round_trip_of_somebody_else_does_not_count() -> None:
    host = tcp(client(MadeHost(), 400, 2e-3), 0.5, 0.5, owner="ganesha.nfsd")
    assert told(a=host).paths[0].round_trip is None
    assert "TCP round trips" in said(told(a=host), "not known")


@pytest.mark.parametrize("name", ["ceph-3", "krbd", "kernel"])
def test_a_client_of_the_kernel_has_the_kernels_connections(name: str) -> None:
    host = tcp(client(MadeHost(), 400, 2e-3, name=name), 90e-6, 50e-6, owner="kernel")

    path = told(a=host).paths[0]
    assert path.round_trip is not None
    assert path.round_trip.now == 90e-6


def test_a_client_is_known_by_what_the_kernel_calls_its_mounts() -> None:
    host = client(MadeHost(), 400, 2e-3, name="ceph-2")
    host.works({}, client="kernel")
    assert told(a=host).paths[0].seconds == about(2e-3)


def test_commits_are_told_where_they_are_a_part_of_a_write() -> None:
    found = told(a=client(MadeHost(), 500, 2.5e-3), b=osd(MadeHost(), 500, 2e-3, commit=1.2e-3, flush=0.9e-3))

    assert said(found, "commit") == (
        "a commit of BlueStore takes 1.2 ms, 900 us of it to flush the device: a write waits for one at least"
    )


def test_who_reads_waits_for_no_commit() -> None:
    found = told(a=client(MadeHost(), 500, 2e-3), b=osd(MadeHost(), 500, 1e-3, commit=1e-3, type_="read"))

    assert found.paths[0].inside is not None
    assert found.paths[0].inside.commit is None
    assert silent(found, "commit")


def test_requests_to_the_mds_are_divided_by_its_replies() -> None:
    host = client(MadeHost(), 300, 3e-3, target="mds")
    server = MadeHost().counter("pinchpoint_mds_replies_total", 300, daemon="mds.a")
    server.counter("pinchpoint_mds_reply_seconds_total", 300 * 0.5e-3, daemon="mds.a")
    found = told(a=host, b=server)

    assert found.paths[0].outside == about(2.5e-3)
    assert said(found, "MDS request takes").startswith(
        "an MDS request takes 3 ms at the client and 500 us inside of the MDS:"
    )


def test_daemons_that_were_not_seen_leave_no_difference_to_tell() -> None:
    found = told(a=client(MadeHost(), 1000, 2e-3), b=osd(MadeHost(), 250, 1e-3))

    assert found.paths[0].outside is None
    assert "those that were seen had 25% of them" in said(found, "not known")
    assert said(found, "at the client") == "an OSD request takes 2 ms at the client"


def test_a_daemon_that_works_for_others_says_nothing_of_this_client() -> None:
    found = told(a=client(MadeHost(), 100, 2e-3), b=osd(MadeHost(), 5000, 1e-3))

    assert found.paths[0].outside is None
    assert "on average over all clients" in said(found, "inside of the OSD")


def test_a_client_that_says_nothing_is_unknown_and_not_zero() -> None:
    found = told(a=MadeHost().works({"osd": 0.9, "cpu": 0.1}, client="fio"), b=osd(MadeHost(), 500, 1e-3))

    assert found.depths == ()
    assert found.paths[0].seconds is None
    assert "what an OSD request takes at the client" in said(found, "not known")
    assert silent(found, "at the client and")


def test_requests_of_which_none_is_answered_are_held_back_and_not_slow() -> None:
    host = MadeHost().works({"osd": 1.0}, client="ceph-fuse")
    host.counter(f"{CLIENT}requests_total", 0, client="ceph-fuse", target="osd")
    host.counter(f"{CLIENT}inflight_seconds_total", 7.0, client="ceph-fuse", target="osd")

    found = told(client1=host)

    assert found.paths[0].unanswered == about(7.0)
    assert "none was answered" in said(found, "7.0 requests to the OSDs in flight")
    assert not any("does not tell" in sentence for sentence in found.sentences)


def test_idle_states_matter_where_the_way_out_is_a_part_of_a_request() -> None:
    found = told(client=idle(client(MadeHost(), 500, 1e-3), 0.6, lost=0.021), server=osd(MadeHost(), 500, 0.5e-3))

    assert found.sleeps == (
        Sleep(
            host="client", state="C6", share=about(0.6), exit_latency=133e-6, lost=about(0.021), lost_worst=about(0.021)
        ),
    )
    assert said(found, "C6") == (
        "CPUs of client are in C6 for 60% of the time: a wake-up from it takes up to 133 us, "
        "and leaving idle states takes 2.1% of a CPU's time"
    )


def test_idle_states_of_the_osds_hosts_count_too_and_the_worst_host_comes_first() -> None:
    found = told(
        client=idle(client(MadeHost(), 500, 1e-3), 0.2),
        server=idle(osd(MadeHost(), 500, 0.5e-3), 0.7),
        bystander=idle(MadeHost(), 0.9),
    )

    assert [sleep.host for sleep in found.sleeps] == ["server", "client"]
    assert said(found, "C6").endswith("it is alike on client")


@pytest.mark.parametrize(
    ("share", "seconds", "exit_latency"), [(0.6, 0.02, 133e-6), (0.001, 1e-3, 133e-6), (0.6, 1e-3, 0)]
)
def test_idle_states_that_cost_next_to_nothing_are_not_told(share: float, seconds: float, exit_latency: float) -> None:
    host = idle(client(MadeHost(), 50, seconds), share, latency=exit_latency)
    assert told(a=host).sleeps == ()


def test_a_slow_clock_is_told_with_its_governor_and_a_fast_one_is_not() -> None:
    found = told(a=clock(client(MadeHost(), 500, 1e-3), 0.46), b=clock(osd(MadeHost(), 500, 5e-4), 0.95))

    assert [entry.host for entry in found.clocks] == ["a"]
    assert said(found, "clock (") == "CPUs of a work at 46% of their clock (governor powersave)"


def test_segments_that_are_sent_again_are_told() -> None:
    found = told(
        a=tcp(client(MadeHost(), 500, 1e-3), 5e-5, 5e-5), b=tcp(MadeHost(), 5e-5, 5e-5, owner="osd.0", again=3)
    )

    assert found.retransmits == about(3)
    assert "3.0 segments a second" in said(found, "again")
    assert silent(told(a=tcp(client(MadeHost(), 500, 1e-3), 5e-5, 5e-5)), "again")


@pytest.mark.parametrize(("busy", "words"), [(0.55, "waits for the next I/O"), (0.97, "without a queue")])
def test_a_disk_that_never_has_much_to_do_is_told_of(busy: float, words: str) -> None:
    host = MadeHost().works({"disk": 0.6, "cpu": 0.4}, device="vda")
    host.resource("disk", "vda", busy, "disk", saturated=0.0)
    found = told(a=host)

    assert found.disks == (ShallowDisk("a", "vda", about(busy), busy > 0.8),)
    assert words in said(found, "vda on a")


def test_a_disk_with_a_queue_is_not_shallow() -> None:
    host = MadeHost().works({"disk": 0.6, "cpu": 0.4}, device="vda")
    assert told(a=host.resource("disk", "vda", 0.75, "disk", saturated=0.5)).disks == ()


def test_what_is_not_measured_is_said_in_one_sentence() -> None:
    found = told(a=client(MadeHost(), 500, 1e-3))

    assert said(found, "not known") == (
        "not known: what a request takes inside of the OSD (no exporter on its host, or no admin socket); "
        "TCP round trips of the clients; idle states of a; clocks of a"
    )


def test_a_benchmark_that_nobody_saw_has_no_breakdown() -> None:
    before, after = snapshots(a=client(MadeHost(), 500, 1e-3))
    assert (
        latency(usages(before, after), before, after, benchmark="ior", run="other", waits={"osd": 1.0})
        == LatencyBreakdown()
    )
    assert latency({}, {}, {}, benchmark="fio", run="r", waits={}) == LatencyBreakdown()


def test_a_verdict_that_is_bound_by_latency_has_the_sentences() -> None:
    found = verdict(*snapshots(a=client(MadeHost(), 500, 1.9e-3), b=osd(MadeHost(), 500, 0.6e-3)))

    # Without a resource of an OSD it is unknown what serves the requests.
    assert found.kind in (Kind.LATENCY_BOUND, Kind.BLIND)
    host = osd(MadeHost(), 500, 0.6e-3).resource("kv_sync", "osd.0", 0.2, "osd", runqueue=0.0)
    found = verdict(*snapshots(a=client(MadeHost(), 500, 1.9e-3), b=host))
    assert found.kind is Kind.LATENCY_BOUND
    assert any(sentence.startswith("an OSD request takes 1.9 ms") for sentence in found.latency)


VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, 1e-300, 2.0**62])


@given(st.lists(VALUES, min_size=30, max_size=30), st.lists(VALUES, min_size=30, max_size=30), st.floats(0, 1))
def test_no_values_of_any_exporter_make_it_fail(first: list[float], second: list[float], share: float) -> None:
    found: list[Snapshot] = []
    for time, values in ((START, first), (START + 3, second)):
        host = osd(
            tcp(idle(clock(client(MadeHost(), 1, 1), 1), 0.5, 0.5), 1, 1), 1, 1
        ).resource("disk", "vda", 1, "disk")  # fmt: skip
        source = iter(values * 3)
        made: dict[str, dict[Labels, float]] = {
            name: {labels: next(source) for labels in entries} for name, entries in host.pair()[1].values.items()
        }
        made["pinchpoint_workload_owner_info"] = host.pair()[1].values["pinchpoint_workload_owner_info"]  # type: ignore[assignment]
        found.append(Snapshot(time, made))

    before, after = ({"a": snapshot} for snapshot in found)
    hosts = usages(before, after)
    result = latency(hosts, before, after, benchmark="fio", run="r", waits={"osd": share, "disk": share})

    for path in result.paths:
        for value in (path.seconds, path.outside, path.rest, path.rate):
            assert value is None or (value >= 0 and math.isfinite(value))
    assert not any("nan" in sentence or "inf " in sentence for sentence in result.sentences)
