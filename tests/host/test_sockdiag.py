from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.procfs import FormatError
from pinchpoint.host.sockdiag import (
    Connection,
    parse_connections,
    parse_listening,
    read_connections,
    read_listening,
)

DIAG, DONE, ERROR = 18, 3, 2
INFO = 2
HERE, THERE = b"\x0a\x00\x00\x01" + bytes(12), b"\x0a\x00\x00\x02" + bytes(12)


def attribute(type_: int, value: bytes) -> bytes:
    raw = struct.pack("=HH", 4 + len(value), type_) + value
    return raw + bytes(-len(raw) % 4)


def message(type_: int, body: bytes = b"") -> bytes:
    raw = struct.pack("=IHHII", 16 + len(body), type_, 2, 1, 0) + body
    return raw + bytes(-len(raw) % 4)


def tcp_info(
    *, rtt: int = 90, min_rtt: int = 50, sent: int = 7, again: int = 0, idle: int = 40, unsent: int = 900
) -> bytes:
    """Return a struct tcp_info as in Linux 4.6; times in microseconds, `idle` in milliseconds."""
    numbers = [0] * 24
    numbers[9], numbers[15], numbers[23] = idle, rtt, again
    return bytes(8) + struct.pack("=24I4Q6I", *numbers, 0, 0, 5000, 0, 0, 0, unsent, min_rtt, 0, sent)


def answer(info: bytes, *, cookie: int = 77, inode: int = 4711, port: int = 6800, remote: bytes = THERE) -> bytes:
    """Return an answer as ``inet_sk_diag_fill`` (net/ipv4/inet_diag.c) builds it."""
    ports = struct.pack("!HH", 40000, port)
    body = struct.pack("=4B4s16s16sIQ5I", 2, 1, 0, 0, ports, HERE, remote, 0, cookie, 0, 0, 0, 0, inode)
    return message(DIAG, body + attribute(8, b"\0") + attribute(INFO, info) + attribute(15, bytes(4)))


def inode_of(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def decoded(inode: int) -> Any:
    """Return a connection as pyroute2 decodes it."""
    from pyroute2.netlink.diag import DiagSocket  # type: ignore[import-untyped]

    with DiagSocket() as diag:
        diag.bind()
        found = diag.get_sock_stats(family=socket.AF_INET, states=1 << 1, extensions=1 << 1)
    return next(entry for entry in found if entry["idiag_inode"] == inode)


def test_an_answer_gives_each_connection_in_seconds() -> None:
    raw = answer(tcp_info(again=3)) + answer(tcp_info(), remote=HERE, cookie=78)

    found, last = parse_connections(raw)

    assert found[0] == Connection(
        cookie=77,
        inode=4711,
        remote_port=6800,
        inside=False,
        rtt=90e-6,
        min_rtt=50e-6,
        since_sent=0.04,
        sent=7,
        retransmits=3,
        unsent=900,
        arrived=5000,
    )
    assert (found[1].cookie, found[1].inside) == (78, True)
    assert not last
    assert parse_connections(raw + message(DONE, bytes(4))) == (found, True)


def test_an_answer_about_listening_sockets_gives_their_ports() -> None:
    raw = answer(b"") + message(DIAG, bytes(10)) + message(DONE, bytes(4))

    assert parse_listening(raw) == ([40000], True)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_is_found_while_somebody_listens_there(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"{address}: {error}")
    port = server.getsockname()[1]
    with server, socket.create_connection((address, port)) as client:
        found = read_listening()

        assert port in found
        assert client.getsockname()[1] not in found
    assert port not in read_listening()


def test_a_kernel_before_4_6_has_no_shortest_round_trip() -> None:
    found, _ = parse_connections(answer(tcp_info()[:104]))

    assert (found[0].rtt, found[0].min_rtt, found[0].sent, found[0].unsent, found[0].arrived) == (
        *(90e-6, None, None, None, None),
    )


def test_what_was_never_measured_is_not_zero() -> None:
    found, _ = parse_connections(answer(tcp_info(rtt=0, min_rtt=0xFFFFFFFF)))

    assert (found[0].rtt, found[0].min_rtt) == (None, None)


def test_a_damaged_message_costs_no_other_one() -> None:
    broken = bytearray(answer(tcp_info()))
    struct.pack_into("=H", broken, 16 + 72, 2)  # an attribute that is shorter than its own head
    short = message(DIAG, bytes(10))

    found, _ = parse_connections(bytes(broken) + short + answer(b"cut") + answer(tcp_info(), cookie=9))

    assert [connection.cookie for connection in found] == [9]


def test_an_answer_that_is_cut_is_no_list_of_fewer_connections() -> None:
    """Those that came back afterwards would be new ones, with everything that they ever sent again."""
    with pytest.raises(FormatError, match="truncated"):
        parse_connections(answer(tcp_info()) + answer(tcp_info())[:-8])


@pytest.mark.parametrize("type_", [DONE, ERROR])
def test_a_refusal_is_an_error_with_the_kernels_number(type_: int) -> None:
    with pytest.raises(FileNotFoundError):
        parse_connections(message(type_, struct.pack("=i", -errno.ENOENT)))


@given(
    st.binary(max_size=400)
    | st.builds(lambda n, b: answer(tcp_info())[:n] + b, st.integers(0, 300), st.binary())
    | st.builds(
        lambda at, b: answer(tcp_info())[:at] + b + answer(tcp_info())[at + len(b) :],
        st.integers(16, 290),
        st.binary(max_size=8),
    )
)
def test_any_bytes_give_connections_a_refusal_or_a_format_error(raw: bytes) -> None:
    try:
        found, _ = parse_connections(raw)
    except FormatError:
        return
    except OSError as error:
        assert error.errno  # noqa: PT017 - either way is fine
        return
    for connection in found:
        assert connection.rtt is None or connection.rtt > 0
        assert connection.min_rtt is None or connection.min_rtt > 0
        assert 0 <= connection.remote_port < 1 << 16


def test_this_machines_connections_are_read_as_pyroute2_itself_decodes_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            here.sendall(b"x")
            there.recv(1)
            inode, port = inode_of(here), server.getsockname()[1]
            try:
                found = {connection.inode: connection for connection in read_connections()}
            except OSError as error:
                pytest.skip(f"this kernel does not report connections: {error}")
            oracle = decoded(inode)

    ours = found[inode]
    assert ours.remote_port == oracle["idiag_dport"] == port
    assert ours.cookie == oracle["idiag_cookie"]
    assert ours.inside
    info = oracle.get_attr("INET_DIAG_INFO")
    assert ours.min_rtt == pytest.approx(info["tcpi_min_rtt"] / 1e6)
    assert ours.sent == info["tcpi_data_segs_out"] == 1
    assert ours.retransmits == info["tcpi_total_retrans"]
    assert ours.arrived == info["tcpi_bytes_acked"]
    assert ours.rtt == pytest.approx(info["tcpi_rtt"] / 1e6) if info["tcpi_rtt"] else ours.rtt is None


def test_what_a_peer_does_not_read_waits_unsent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            here.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    here.send(bytes(1 << 16))
            try:
                found = {connection.inode: connection for connection in read_connections()}
            except OSError as error:
                pytest.skip(f"this kernel does not report connections: {error}")
            oracle = decoded(inode_of(here)).get_attr("INET_DIAG_INFO")

            assert found[inode_of(here)].unsent == oracle["tcpi_notsent_bytes"]
            assert oracle["tcpi_notsent_bytes"] > 1 << 16
            assert found[inode_of(there)].unsent == 0


def test_connections_of_ipv6_are_told_too() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server, socket.create_connection(server.getsockname()[:2]) as here:
        try:
            found = read_connections()
        except OSError as error:
            pytest.skip(f"this kernel does not report connections: {error}")
        assert inode_of(here) in {connection.inode for connection in found}
