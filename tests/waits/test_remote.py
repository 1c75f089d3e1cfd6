from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.waits.chain import SELF, Chain, Kind, Node, peer_node
from pinchpoint.waits.remote import Answered, joined

CLIENT, MESSENGER, SYNC = Node("ceph-fuse", "messenger"), Node("osd.0", "messenger"), Node("osd.0", "kv_sync")
NEAR, FAR = "10.0.0.2:6800", "10.0.0.3:6804"


def chain(parts: dict[tuple[Node, Kind], float], passed: dict[tuple[Node, Node], float]) -> Chain:
    found = Chain(sum(parts.values()))
    found.parts.update(parts)
    found.passed.update(passed)
    return found


WAITING = chain(
    {(SELF, Kind.CPU): 0.2, (CLIENT, Kind.CPU): 0.2, (peer_node(NEAR), Kind.NETWORK): 0.6},
    {(CLIENT, SELF): 0.2, (peer_node(NEAR), CLIENT): 0.6},
)
SERVED = chain(
    {(MESSENGER, Kind.CPU): 1.0, (SYNC, Kind.DISK): 2.0, (SYNC, Kind.CPU): 1.0},
    {(MESSENGER, SELF): 1.0, (SYNC, MESSENGER): 1.0},
)


def parts(found: Chain) -> dict[tuple[Node, Kind], float]:
    return {key: round(value, 9) for key, value in found.parts.items() if value}


def test_what_a_host_did_until_it_answered_takes_the_place_of_its_end_of_the_connection() -> None:
    found = joined(WAITING, {}, {}, {NEAR: SERVED})

    assert parts(found) == {
        (SELF, Kind.CPU): 0.2,
        (CLIENT, Kind.CPU): 0.2,
        (MESSENGER, Kind.CPU): 0.15,
        (SYNC, Kind.DISK): 0.3,
        (SYNC, Kind.CPU): 0.15,
    }
    assert found.passed[MESSENGER, CLIENT] == pytest.approx(0.15)
    assert found.passed[SYNC, MESSENGER] == pytest.approx(0.15)
    assert found.heaviest() == [CLIENT, MESSENGER, SYNC]


def test_who_sent_the_requests_comes_before_what_they_led_to() -> None:
    waiting = chain(
        {(CLIENT, Kind.CPU): 0.2, (peer_node(NEAR), Kind.NETWORK): 0.8},
        {(CLIENT, peer_node(NEAR)): 0.2, (peer_node(NEAR), SELF): 0.8},
    )
    found = joined(waiting, {}, {}, {NEAR: SERVED})

    assert found.passed[CLIENT, SELF] == pytest.approx(0.2)
    assert found.passed[CLIENT, peer_node(NEAR)] == pytest.approx(0)
    assert found.heaviest() == [MESSENGER, SYNC]


def test_what_an_answer_takes_longer_on_its_way_is_the_networks() -> None:
    found = joined(WAITING, {NEAR: Answered(10, 0.1)}, {NEAR: Answered(1000, 2.5)}, {NEAR: SERVED})

    assert found.parts[peer_node(NEAR), Kind.NETWORK] == pytest.approx(0.45)
    assert found.passed[peer_node(NEAR), CLIENT] == pytest.approx(0.45)
    assert found.parts[SYNC, Kind.DISK] == pytest.approx(0.075)


def test_while_the_rest_of_a_request_is_under_way_the_network_has_it() -> None:
    there = chain({(MESSENGER, Kind.CPU): 1.0, (MESSENGER, Kind.NETWORK): 3.0}, {(MESSENGER, SELF): 1.0})
    found = joined(WAITING, {}, {}, {NEAR: there})

    assert found.parts[peer_node(NEAR), Kind.NETWORK] == pytest.approx(0.45)
    assert found.passed[peer_node(NEAR), CLIENT] == pytest.approx(0.45)
    assert found.parts[MESSENGER, Kind.NETWORK] == 0


def test_a_host_that_says_it_took_longer_than_the_answer_has_all_of_it() -> None:
    found = joined(WAITING, {NEAR: Answered(10, 0.1)}, {NEAR: Answered(10, 0.2)}, {NEAR: SERVED})

    assert found.parts[peer_node(NEAR), Kind.NETWORK] == 0


def test_a_chain_goes_on_over_a_third_host_and_ends_where_it_meets_one_again() -> None:
    asks = chain(
        {(MESSENGER, Kind.CPU): 1.0, (peer_node(FAR), Kind.NETWORK): 3.0},
        {(MESSENGER, SELF): 1.0, (peer_node(FAR), MESSENGER): 3.0},
    )
    other = Node("osd.1", "osd_op")
    answers = chain(
        {(other, Kind.CPU): 1.0, (peer_node(NEAR), Kind.NETWORK): 1.0},
        {(other, SELF): 1.0, (peer_node(NEAR), other): 1.0},
    )
    found = joined(WAITING, {}, {}, {NEAR: asks, FAR: answers})

    assert found.parts[other, Kind.CPU] == pytest.approx(0.225)
    assert found.parts[peer_node(NEAR), Kind.NETWORK] == pytest.approx(0.225)
    assert found.passed[other, MESSENGER] == pytest.approx(0.225)


def test_an_end_that_no_host_knows_stays_what_it_is() -> None:
    found = joined(WAITING, {}, {NEAR: Answered(1, 1)}, {FAR: SERVED, NEAR: Chain()})

    assert (found.parts, found.passed) == (WAITING.parts, WAITING.passed)


def test_the_chain_that_is_given_is_not_changed() -> None:
    before = dict(WAITING.parts), dict(WAITING.passed)
    joined(WAITING, {}, {}, {NEAR: SERVED})

    assert (WAITING.parts, WAITING.passed) == before


ends = st.sampled_from([NEAR, FAR, "10.0.0.4:80"])
nodes = st.one_of(st.just(SELF), st.just(CLIENT), st.just(SYNC), ends.map(peer_node))
seconds = st.floats(0, 1e6)
chains = st.builds(
    chain,
    st.dictionaries(st.tuples(nodes, st.just(Kind.NETWORK)), seconds, max_size=6),
    st.dictionaries(st.tuples(nodes, nodes), seconds, max_size=6),
)
answers = st.dictionaries(ends, st.builds(Answered, seconds, seconds))


@given(chains, answers, answers, st.dictionaries(ends, chains))
def test_whatever_hosts_say_it_ends_and_nothing_is_less_than_nothing(
    whole: Chain, trips: dict[str, Answered], answered: dict[str, Answered], served: dict[str, Chain]
) -> None:
    found = joined(whole, trips, answered, served)

    assert all(value >= 0 for value in found.parts.values())
    assert all(value > -1e-3 for value in found.passed.values())
