from __future__ import annotations

import pytest

from diagnosis.history import MadeHost, snapshots
from pinchpoint.diagnosis.served import served
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


def test_a_host_without_a_window_in_the_interval_is_taken_by_all_that_it_saw() -> None:
    before, after = snapshots(b=serving(MadeHost(), WORKER))
    served_until_now = served(after, after).chains[SERVER]

    assert served_until_now.parts[WORKER, Kind.CPU] == pytest.approx(109.0)
    assert served(before, after).chains[SERVER].parts[WORKER, Kind.CPU] == pytest.approx(9.0)


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

    assert served({}, {}).joined("a", chain) is chain
