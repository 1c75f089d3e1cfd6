from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pinchpoint.metrics import HTTP_REFUSED_CONNECTIONS
from pinchpoint.wire import connections as module
from pinchpoint.wire.connections import (
    MAX_CONNECTION_SECONDS,
    MAX_CONNECTIONS,
    MAX_PEER_CONNECTIONS,
    Connections,
    Reason,
    Refusals,
    peer_of,
)

Client = tuple[socket.socket, socket.socket]
"""The two ends of a connection, the server's first."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connections(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Connections:
    monkeypatch.setattr(module, "MAX_EVICTION_SECONDS", 0.0)
    return Connections(Refusals(HTTP_REFUSED_CONNECTIONS), clock)


@pytest.fixture
def client() -> Iterator[Callable[[], Client]]:
    with ExitStack() as stack:

        def new() -> Client:
            ends = socket.socketpair()
            for end in ends:
                stack.enter_context(end)
            ends[1].setblocking(False)
            return ends

        yield new


def is_shut(client: Client) -> bool:
    try:
        return client[1].recv(1) == b""
    except BlockingIOError:
        return False


def refused(connections: Connections) -> dict[str, float]:
    return {labels[0]: value for _, labels, value in connections.refusals.points() if value}


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "loopback"),
        ("127.9.8.7", "loopback"),
        ("::ffff:127.0.0.2", "loopback"),
        ("::1", "loopback"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%lo", "fe80::/64"),
        ("::2", "::/64"),
    ],
)
def test_addresses_of_one_host_are_one_peer(host: str, peer: str) -> None:
    assert peer_of(host) == peer


def test_as_many_connections_as_allowed_are_open_side_by_side(
    connections: Connections, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(MAX_CONNECTIONS)]
    reasons = [
        connections.admit(ours, f"192.0.2.{number // MAX_PEER_CONNECTIONS}") for number, (ours, _) in enumerate(clients)
    ]

    assert set(reasons) == {None}
    assert not any(map(is_shut, clients))
    assert refused(connections) == {}


def test_the_longest_waiting_connection_of_a_peer_gives_way_to_its_next(
    connections: Connections, client: Callable[[], Client]
) -> None:
    other, *clients = [client() for _ in range(1 + MAX_PEER_CONNECTIONS)]
    connections.admit(other[0], "192.0.2.2")
    for ours, _ in clients:
        connections.admit(ours, "192.0.2.1")
    connections.admit(client()[0], "192.0.2.1")

    assert [is_shut(each) for each in (other, *clients)] == [False, True, *[False] * (MAX_PEER_CONNECTIONS - 1)]


def test_the_longest_waiting_connection_of_all_gives_way_when_every_place_is_taken(
    connections: Connections, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(MAX_CONNECTIONS)]
    for number, (ours, _) in enumerate(clients):
        connections.admit(ours, f"192.0.2.{number}")
    connections.admit(client()[0], "198.51.100.1")

    assert list(map(is_shut, clients)) == [True, *[False] * (MAX_CONNECTIONS - 1)]


def test_a_new_connection_takes_the_place_once_the_thread_of_the_other_has_left(
    connections: Connections, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(MAX_PEER_CONNECTIONS)]
    for ours, _ in clients:
        connections.admit(ours, "192.0.2.1")

    assert connections.admit(client()[0], "192.0.2.1") is Reason.PEER
    connections.leave(clients[0][0])
    assert connections.admit(client()[0], "192.0.2.1") is None
    assert refused(connections) == {"peer": 2}


def test_one_connection_gives_way_at_a_time_however_many_come(
    connections: Connections, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(MAX_PEER_CONNECTIONS)]
    for ours, _ in clients:
        connections.admit(ours, "192.0.2.1")
    for _ in range(9):
        connections.admit(client()[0], "192.0.2.1")

    assert sum(map(is_shut, clients)) == 1


def test_a_connection_whose_answer_is_being_computed_stays(
    connections: Connections, client: Callable[[], Client]
) -> None:
    clients = [client() for _ in range(MAX_PEER_CONNECTIONS)]
    for ours, _ in clients:
        connections.admit(ours, "192.0.2.1")
    with ExitStack() as stack:
        for ours, _ in clients:
            stack.enter_context(connections.computing(ours))
        assert connections.admit(client()[0], "192.0.2.1") is Reason.PEER
        assert not any(map(is_shut, clients))
    connections.admit(client()[0], "192.0.2.1")

    assert is_shut(clients[0])


def test_a_connection_is_shut_down_once_it_has_lasted_too_long(
    connections: Connections, client: Callable[[], Client], clock: Clock
) -> None:
    first, second = client(), client()
    connections.admit(first[0], "192.0.2.1")
    clock.now = MAX_CONNECTION_SECONDS - 1
    connections.admit(second[0], "192.0.2.1")
    connections.expire()
    assert not is_shut(first)
    clock.now += 1
    connections.expire()
    connections.expire()

    assert is_shut(first)
    assert not is_shut(second)
    assert refused(connections) == {"timeout": 1}


def test_a_connection_that_lasts_too_long_while_its_answer_is_computed_does_not_protect_the_others(
    connections: Connections, client: Callable[[], Client], clock: Clock
) -> None:
    clients = [client() for _ in range(MAX_PEER_CONNECTIONS)]
    connections.admit(clients[0][0], "192.0.2.1")
    with connections.computing(clients[0][0]):
        clock.now = MAX_CONNECTION_SECONDS
        connections.expire()
        for ours, _ in clients[1:]:
            connections.admit(ours, "192.0.2.1")
        connections.admit(client()[0], "192.0.2.1")

    assert [is_shut(each) for each in clients] == [True, True, *[False] * (MAX_PEER_CONNECTIONS - 2)]


def test_every_reason_has_a_series_before_anything_is_refused(connections: Connections) -> None:
    found = {labels: value for _, labels, value in connections.refusals.points()}

    assert found == {(reason.value,): 0 for reason in Reason}
