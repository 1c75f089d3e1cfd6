from __future__ import annotations

import pytest

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.served import Served
from pinchpoint.diagnosis.verdict import Verdict, verdict
from pinchpoint.waits.chain import SELF, Chain, Kind, Node, peer_node

RUN = {"benchmark": "fio", "run": "r"}
SERVER = "10.0.0.2:6800"
WORKER = Node("frontend", "worker")


def serving(host: MadeHost, node: Node, kind: str = "cpu", share: float = 0.9) -> MadeHost:
    """Let a thread of a host work for the answers of its server, a hundred of them each second."""
    labels = {"endpoint": SERVER, "owner": node.owner, "role": node.role}
    host.counter("pinchpoint_path_served_seconds_total", share, **labels, kind=kind)
    host.counter("pinchpoint_path_served_passed_seconds_total", share, **labels, to_owner="", to_role="")
    return host.counter("pinchpoint_path_served_answers_total", 100.0, endpoint=SERVER)


def waiting(seconds: float = 20.0, share: float = 0.9, trip: float = 0.009) -> MadeHost:
    """Return a client that waits for that server; a round trip takes so many seconds."""
    made = MadeHost(seconds).works({"network": 1.0})
    labels = {"owner": "network", "role": SERVER}
    made.counter("pinchpoint_path_seconds_total", share, **RUN, **labels, kind="network")
    made.counter("pinchpoint_path_seconds_total", 1 - share, **RUN, owner="", role="", kind="cpu")
    made.counter("pinchpoint_path_passed_seconds_total", share, **RUN, **labels, to_owner="", to_role="")
    made.gauge("pinchpoint_path_ratio", share, **RUN, **labels)
    made.gauge("pinchpoint_path_ratio", 1 - share, **RUN, owner="", role="")
    made.counter("pinchpoint_path_trip_seconds_total", 100 * trip, endpoint=SERVER)
    return made.counter("pinchpoint_path_trips_total", 100.0, endpoint=SERVER)


def hot(host: MadeHost) -> MadeHost:
    """Let the server's thread be full, which no rule knows."""
    host.resource("unknown_thread", "host", 0.98, "", runqueue=0.0, saturated=0.95)
    return host.gauge("pinchpoint_unknown_thread_busy_ratio", 0.98, thread="worker", process="frontend")


def judged(**hosts: MadeHost) -> Verdict:
    return verdict(*snapshots(**hosts), benchmark="fio", run="r")


@pytest.mark.parametrize("seconds", [20.0, 5.0])
def test_a_full_thread_of_another_host_is_blamed_if_a_chain_leads_there(seconds: float) -> None:
    found = judged(a=waiting(seconds), b=hot(serving(MadeHost(seconds), WORKER)))

    assert found.words == "limited by unknown_thread of frontend"
    assert "by who wakes whom, frontend worker answers for 90% of it" in found.evidence


def test_what_the_network_takes_is_not_the_servers() -> None:
    slow = judged(a=waiting(trip=0.09), b=hot(serving(MadeHost(20.0), WORKER)))

    assert slow.limits == ()
    assert f"by who wakes whom, network {SERVER} answers for 81% of it" in slow.evidence


def test_without_the_other_hosts_exporter_a_chain_ends_at_its_end_of_the_connection() -> None:
    found = judged(a=waiting())

    assert f"by who wakes whom, network {SERVER} answers for 90% of it" in found.evidence
    assert found.graph is not None
    assert [step.node for step in found.graph.steps] == [SELF, peer_node(SERVER)]


def reached(end: str) -> Chain:
    """Return a chain that is all in one end of a connection."""
    chain = Chain(1.0)
    chain.parts[peer_node(end), Kind.NETWORK] = chain.passed[peer_node(end), SELF] = 1.0
    return chain


def test_a_host_without_a_window_in_the_interval_is_taken_by_all_that_it_saw() -> None:
    other = Node("frontend", "other")
    before, after = snapshots(b=serving(serving(MadeHost(), WORKER, share=0.3), other, share=0.0))
    parts = Served(before, after).joined("b", reached(SERVER)).parts
    since_ever = Served(after, after).joined("b", reached(SERVER)).parts

    assert (parts[WORKER, Kind.CPU], parts[other, Kind.CPU]) == (1.0, 0.0)
    assert since_ever[WORKER, Kind.CPU] == pytest.approx(103 / 203)
    assert since_ever[other, Kind.CPU] == pytest.approx(100 / 203)


def test_hosts_are_read_when_a_chain_leads_to_them() -> None:
    far = {"endpoint": "10.0.0.3:80", "owner": "store", "role": "store"}
    third = MadeHost().counter("pinchpoint_path_served_seconds_total", 0.5, **far, kind="disk")
    third.counter("pinchpoint_path_served_answers_total", 10.0, endpoint="10.0.0.3:80")
    before, after = snapshots(b=serving(MadeHost(), Node("network", "10.0.0.3:80"), "network"), c=third, d=third)
    remote = Served(before, after)
    assert remote.joined("a", Chain(1.0)).parts == {}
    assert remote._read == set()

    found = remote.joined("b", reached(SERVER))

    assert found.parts[Node("store", "store"), Kind.DISK] == pytest.approx(1.0)


def test_each_host_has_a_kernel() -> None:
    writer, worker = Node("frontend", "worker"), Node("kernel", "kworker")
    server = serving(serving(MadeHost(20.0), writer, share=0.4), worker, "disk", share=0.5)
    found = judged(a=waiting(), b=server)

    assert (
        "by who wakes whom, kernel of b kworker answers for 50%, frontend worker answers for 40% of it"
        in found.evidence
    )


def test_where_nothing_was_served_a_chain_is_what_it_was() -> None:
    chain = Chain(1.0)

    assert Served({}, {}).joined("a", chain) is chain
