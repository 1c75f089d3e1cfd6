from __future__ import annotations

import pytest

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.blame import BenchmarkWork, workloads
from pinchpoint.diagnosis.chains import NodeShare, WaitGraph, counted_chains, node_shares, sentence, wait_graph
from pinchpoint.diagnosis.served import Served
from pinchpoint.diagnosis.usage import usages
from pinchpoint.diagnosis.verdict import Confidence, Kind, Verdict, verdict
from pinchpoint.waits import chain
from pinchpoint.waits.chain import SELF, Node

RUN = {"benchmark": "fio", "run": "r"}
PROXY, SERVICE = Node("proxy", "worker"), Node("service", "reader")
LONG = 20.0


def client(seconds: float = 10.0) -> MadeHost:
    return MadeHost(seconds).works({"network": 1.0})


def shown(host: MadeHost, shares: dict[Node, float]) -> MadeHost:
    """Let the exporter of a host show shares of its last windows."""
    for node, share in shares.items():
        host.gauge("pinchpoint_path_ratio", share, **RUN, owner=node.owner, role=node.role)
    return host


def counted(host: MadeHost, seconds: dict[tuple[Node, str], float]) -> MadeHost:
    """Let the windows of an interval have so much of each part, per second of the interval."""
    for (node, kind), value in seconds.items():
        host.counter("pinchpoint_path_seconds_total", value, **RUN, owner=node.owner, role=node.role, kind=kind)
    return host


def unknown(busy: float = 0.98, saturated: float = 0.95) -> MadeHost:
    """Return a client whose host has a hot thread without a role."""
    made = client().resource("unknown_thread", "host", busy, "", runqueue=0.0, saturated=saturated)
    return made.gauge("pinchpoint_unknown_thread_busy_ratio", busy, thread="worker-3", process="proxy")


def shares(**hosts: MadeHost) -> list[tuple[Node, float]]:
    before, after = snapshots(**hosts)
    workload = next(work for work in workloads(usages(before, after)) if work.run == "r")
    remote = Served(before, after)
    found = node_shares(counted_chains(before, after, workload, remote), after, workload, remote)
    return [(one.node, round(one.share, 3)) for one in found]


def judged(**hosts: MadeHost) -> Verdict:
    return verdict(*snapshots(**hosts), benchmark="fio", run="r")


def test_a_long_interval_has_its_own_shares_and_a_short_one_those_of_the_last_windows() -> None:
    seconds = {(PROXY, "cpu"): 0.3, (PROXY, "runqueue"): 0.3, (SELF, "cpu"): 0.4}

    long = shares(a=shown(counted(client(LONG), seconds), {SERVICE: 1.0}))
    short = shares(a=shown(counted(client(3.0), seconds), {SERVICE: 0.7, SELF: 0.3}))

    assert long == [(PROXY, 0.6), (SELF, 0.4)]
    assert short == [(SERVICE, 0.7), (SELF, 0.3)]


def test_hosts_count_alike_and_other_runs_do_not() -> None:
    other = client().gauge("pinchpoint_path_ratio", 1.0, benchmark="fio", run="another", owner="x", role="y")

    found = shares(a=shown(client(), {PROXY: 0.8, SELF: 0.2}), b=shown(client(), {SELF: 1.0}), c=other)

    assert found == [(SELF, 0.6), (PROXY, 0.4)]


def test_without_windows_there_are_no_shares() -> None:
    assert shares(a=client()) == []
    assert sentence(()) == ""
    assert node_shares({}, {}, BenchmarkWork("fio", "r", {"disk": 1.0}, {}, ()), Served({}, {})) == ()


def test_a_sentence_names_the_largest_shares_but_not_the_benchmark_itself() -> None:
    found = [
        NodeShare(SELF, 0.5), NodeShare(PROXY, 0.25), NodeShare(SERVICE, 0.2), NodeShare(Node("osd.0", "osd_op"), 0.05)
    ]  # fmt: skip

    assert sentence(found) == "by who wakes whom, proxy worker answers for 25%, service reader answers for 20% of it"
    assert sentence([NodeShare(SELF, 0.95), NodeShare(PROXY, 0.05)]) == ""


def test_it_is_evidence_of_a_verdict() -> None:
    found = judged(a=shown(client(), {PROXY: 0.6, SELF: 0.4}))

    assert "by who wakes whom, proxy worker answers for 60% of it" in found.evidence


def test_a_full_thread_without_a_role_is_blamed_when_the_chain_leads_to_it() -> None:
    found = judged(a=shown(unknown(), {PROXY: 0.6, SELF: 0.4}))

    assert (found.kind, found.words) == (Kind.RESOURCE, "limited by unknown_thread of proxy")
    assert found.confidence is Confidence.MEDIUM
    assert any("blamed by who wakes whom alone" in doubt for doubt in found.doubts)
    assert found.limits[0].blame == pytest.approx(0.6)
    assert found.advice.startswith("Find out what the thread is for")
    assert not any("add a role" in words for words in found.no_role)


@pytest.mark.parametrize(
    "host",
    [
        shown(unknown(), {PROXY: 0.2, SELF: 0.8}),
        shown(unknown(), {Node("proxy", "other"): 0.9, SELF: 0.1}),
        shown(unknown(), {Node("other", "worker"): 0.9, SELF: 0.1}),
        shown(unknown(busy=0.6, saturated=0.0), {PROXY: 0.9, SELF: 0.1}),
        unknown(),
    ],
    ids=["small share", "another thread", "another process", "not full", "no windows"],
)
def test_it_is_not_blamed_if_it_is_not_full_or_another_answers_for_the_time(host: MadeHost) -> None:
    found = judged(a=host)

    assert (found.kind, found.limits) == (Kind.LATENCY_BOUND, ())


def test_a_busier_neighbour_does_not_hide_the_thread_that_the_chain_leads_to() -> None:
    made = unknown(busy=0.95).gauge("pinchpoint_unknown_thread_busy_ratio", 1.0, thread="loop", process="sh")
    found = judged(a=shown(made, {PROXY: 0.6, SELF: 0.4}))

    assert found.words == "limited by unknown_thread of proxy"


def test_a_full_resource_that_serves_nothing_by_the_rules_is_blamed_when_the_chain_leads_to_it() -> None:
    server = MadeHost().resource("ganesha", "nfs.a", 0.95, "", runqueue=0.1, saturated=0.9)
    found = judged(a=shown(client(), {Node("nfs.a", "ganesha"): 0.7, SELF: 0.3}), b=server)
    idle = judged(a=shown(client(), {Node("nfs.a", "ganesha"): 0.7, SELF: 0.3}))

    assert found.words == "limited by ganesha of nfs.a"
    assert found.confidence is Confidence.MEDIUM
    assert "no rule says whom ganesha of nfs.a serves: it is blamed by who wakes whom alone" in found.doubts
    assert idle.kind is Kind.LATENCY_BOUND


def test_what_the_chain_leads_to_is_not_blamed_for_waiting_for_its_cpu_quota() -> None:
    server = MadeHost().resource("messenger", "mds.a", 0.9, "mds", runqueue=0.8, saturated=0.9)
    server.resource("mds_lock", "mds.a", 0.5, "mds", runqueue=0.4, saturated=0.1)
    server.resource("cpu_quota", "mds.a", 0.98, "", saturated=0.95).threads("mds.a", 0.2, 1.2)
    waits = {Node("mds.a", "messenger"): 0.4, Node("mds.a", "mds_lock"): 0.3, SELF: 0.3}

    found = judged(a=shown(client(), waits), b=server)

    assert found.words == "limited by cpu_quota of mds.a"
    assert found.limits[0].blame == pytest.approx((0.4 * 0.8 / 0.9 + 0.3 * 0.4 / 0.5) * 0.98, abs=0.01)


def test_two_that_answer_for_much_of_the_time_are_several() -> None:
    made = unknown().resource("ganesha", "nfs.a", 0.95, "", runqueue=0.1, saturated=0.9)

    found = judged(a=shown(made, {PROXY: 0.5, Node("nfs.a", "ganesha"): 0.45, SELF: 0.05}))

    assert found.kind is Kind.SEVERAL
    assert [limit.owner for limit in found.limits] == ["proxy", "nfs.a"]


def test_a_limit_that_has_a_role_comes_before_a_thread_without_one() -> None:
    made = unknown().resource("link", "eth0", 0.99, "network", runqueue=0.0)
    found = judged(a=shown(made, {PROXY: 0.6, SELF: 0.4}))

    assert "link of eth0" in found.words
    assert "unknown_thread" not in found.words


def test_where_the_rules_and_the_chain_disagree_the_verdict_is_that_of_the_rules_and_says_so() -> None:
    linked = client().resource("link", "eth0", 0.99, "network", runqueue=0.0)
    busy = unknown().resource("link", "eth0", 0.99, "network", runqueue=0.0)
    agreed, denied = judged(a=linked), judged(a=shown(busy, {PROXY: 0.6, SELF: 0.4}))

    assert agreed.words == denied.words == "limited by link of eth0"
    assert (agreed.confidence, denied.confidence) == (Confidence.HIGH, Confidence.MEDIUM)
    assert denied.doubts == (
        "by who wakes whom, unknown_thread of proxy is full instead, and answers for 60% of the time",
    )
    assert [limit.owner for limit in denied.woken] == ["proxy"]


def test_another_daemon_or_another_host_is_a_disagreement() -> None:
    server = MadeHost().resource("kv_sync", "osd.3", 0.97, "osd", runqueue=0.0, saturated=0.95)
    other = MadeHost().resource("osd_op", "osd.7", 0.9, "", runqueue=0.0, saturated=0.9)
    same = MadeHost().resource("kv_sync", "osd.7", 0.9, "", runqueue=0.0, saturated=0.9)
    writer = MadeHost().works({"osd": 1.0})

    denied = judged(a=shown(writer, {Node("osd.7", "osd_op"): 0.7, SELF: 0.3}), b=server, c=other)
    agreed = judged(a=shown(writer, {Node("osd.7", "kv_sync"): 0.7, SELF: 0.3}), b=server, c=same)

    assert denied.words == agreed.words == "limited by kv_sync of osd.3"
    assert "osd_op of osd.7 is full instead" in denied.doubts[0]
    assert agreed.doubts == ()


def polling(busy: float = 0.98, saturated: float = 0.95, awake: float = 1.0) -> MadeHost:
    """Return a client that waits for its server in epoll, where rules only see that it does nothing.

    So many of its threads are awake in windows, which are open for an eighth of the time.
    """
    made = MadeHost().works({"idle": 0.9, "cpu": 0.1})
    made.counter("pinchpoint_path_thread_seconds_total", awake / 8, **RUN)
    made.counter("pinchpoint_path_window_seconds_total", 1 / 8)
    made.resource("unknown_thread", "host", busy, "", runqueue=0.0, saturated=saturated)
    return made.gauge("pinchpoint_unknown_thread_busy_ratio", busy, thread="worker-3", process="proxy")


def test_who_waits_in_epoll_for_a_full_thread_is_not_idle() -> None:
    found = judged(a=shown(polling(), {PROXY: 0.6, SELF: 0.4}))

    assert found.words == "limited by unknown_thread of proxy"
    assert found.confidence is Confidence.MEDIUM


def test_who_waits_in_epoll_for_what_is_not_full_is_idle_with_a_doubt() -> None:
    found = judged(a=shown(polling(0.3, 0.0), {PROXY: 0.6, SELF: 0.4}))

    assert found.kind is Kind.IDLE
    assert "by who wakes whom, it is not idle: proxy worker answers for 60% of the time" in found.doubts
    assert found.confidence is Confidence.MEDIUM


def test_who_sleeps_for_most_of_the_time_is_idle_whatever_it_waits_for_in_between() -> None:
    found = judged(a=shown(polling(awake=0.3), {PROXY: 0.6, SELF: 0.4}))

    assert found.kind is Kind.IDLE
    assert found.doubts == ("a thread without a role was full, and may be the limit",)


def test_who_waits_for_nobody_is_idle_without_a_doubt() -> None:
    found = judged(a=shown(MadeHost().works({"idle": 0.9, "cpu": 0.1}), {PROXY: 0.2, SELF: 0.8}))

    assert (found.kind, found.doubts) == (Kind.IDLE, ())


def test_another_thread_of_the_same_daemon_is_no_disagreement() -> None:
    server = MadeHost().resource("kv_sync", "osd.0", 0.97, "osd", runqueue=0.0, saturated=0.95)
    server.resource("osd_op", "osd.0", 0.9, "", runqueue=0.0, saturated=0.9)
    writer = MadeHost().works({"osd": 1.0})

    found = judged(a=shown(writer, {Node("osd.0", "osd_op"): 0.7, SELF: 0.3}), b=server)

    assert found.words == "limited by kv_sync of osd.0"
    assert (found.woken[0].resource, found.doubts) == ("osd_op", ())


def graph(*hosts: MadeHost) -> WaitGraph:
    before, after = snapshots(**{f"h{number}": host for number, host in enumerate(hosts)})
    workload = next(work for work in workloads(usages(before, after)) if work.run == "r")
    found = wait_graph(counted_chains(before, after, workload, Served(before, after)))
    assert found is not None
    return found


def passing(host: MadeHost, shares: dict[tuple[Node, Node], float]) -> MadeHost:
    """Let nodes of a host wake others, per second of the interval."""
    for (waker, woken), value in shares.items():
        to = {"to_owner": woken.owner, "to_role": woken.role}
        host.counter("pinchpoint_path_passed_seconds_total", value, **RUN, owner=waker.owner, role=waker.role, **to)
    return host


def test_a_graph_begins_with_the_benchmark_and_its_heaviest_chain() -> None:
    other = Node("mds.a", "messenger")
    seconds = {
        (SELF, "cpu"): 0.2,
        (PROXY, "cpu"): 0.1,
        (SERVICE, "cpu"): 0.2,
        (SERVICE, "disk"): 0.2,
        (other, "cpu"): 0.3,
    }
    ways = {(PROXY, SELF): 0.1, (SERVICE, PROXY): 0.2, (other, SELF): 0.3}

    found = graph(passing(counted(client(LONG), seconds), ways))

    assert [step.node for step in found.steps] == [SELF, PROXY, SERVICE, other]
    assert found.heaviest == 2
    assert found.steps[2].kinds == {chain.Kind.CPU: pytest.approx(0.2), chain.Kind.DISK: pytest.approx(0.2)}
    assert [(one.waker, one.woken, round(one.share, 6)) for one in found.passed] == [
        (SERVICE, PROXY, 0.4), (other, SELF, 0.3), (PROXY, SELF, 0.1)
    ]  # fmt: skip


def test_a_waker_passes_on_what_it_waited_for_like_its_own_time() -> None:
    worker, other = Node("kernel", "kworker"), Node("osd.0", "kv_sync")
    seconds = {(worker, "cpu"): 0.1, (worker, "disk"): 0.5, (SELF, "cpu"): 0.4}

    found = graph(passing(counted(client(LONG), seconds), {(worker, other): 0.075, (worker, SELF): 0.025}))

    assert [(one.woken, round(one.share, 6)) for one in found.passed] == [(SELF, 0.15)]


def test_hosts_count_alike_in_a_graph_whatever_their_number_of_threads() -> None:
    one = passing(counted(client(LONG), {(PROXY, "cpu"): 8.0, (SELF, "cpu"): 2.0}), {(PROXY, SELF): 8.0})
    two = counted(client(LONG), {(SELF, "cpu"): 0.1})

    found = graph(one, two)

    assert {step.node: round(step.share, 6) for step in found.steps} == {SELF: 0.6, PROXY: 0.4}
    (one_way,) = found.passed
    assert one_way[:2] == (PROXY, SELF)
    assert one_way.share == pytest.approx(0.4)


def test_a_short_interval_has_no_graph() -> None:
    before, after = snapshots(a=shown(counted(client(3.0), {(PROXY, "cpu"): 1.0}), {PROXY: 1.0}))

    workload = BenchmarkWork("fio", "r", {"disk": 1.0}, {}, ())
    assert wait_graph(counted_chains(before, after, workload, Served(before, after))) is None


def test_what_another_version_says_of_a_node_is_not_lost() -> None:
    found = graph(counted(client(LONG), {(SELF, "cpu"): 0.5, (PROXY, "teleported"): 0.5}))

    assert found.steps[1].kinds == {chain.Kind.EARLIER: pytest.approx(0.5)}


def test_a_graph_can_be_read_however_many_wake_each_other() -> None:
    nodes = [Node(f"osd.{number}", "osd_op") for number in range(200)]
    made = counted(client(LONG), {(node, "cpu"): 1.0 / len(nodes) for node in nodes} | {(SELF, "cpu"): 0.2})
    ways = {(a, b): 1.0 / len(nodes) for place, a in enumerate(nodes) for b in [SELF, *nodes[place % 7 :: 20]]}

    found = graph(passing(made, ways))

    assert len(found.steps) <= 12
    assert {node for one in found.passed for node in (one.waker, one.woken)} <= {step.node for step in found.steps}
