from __future__ import annotations

import os
import socket
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.tcptable import TcpSocket, parse_tcp_table

TABLE = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 0100007F:8E01 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 212938 1 0 100 0
   1: 0100007F:B2D0 0100007F:8E01 01 00000000:00000000 02:0000076E 00000000     0        0 212962 2 0 20 4
   2: 0100007F:8E01 0100007F:B2CE 06 00000000:00000000 03:00000C70 00000000     0        0 0 3 0000000000000000
"""


def inode(end: socket.socket) -> int:
    return os.fstat(end.fileno()).st_ino


def test_sockets_that_listen_and_that_are_connected_are_told_apart_and_the_others_left_out() -> None:
    assert parse_tcp_table(TABLE) == [
        TcpSocket(212938, 0x8E01, 0, listens=True),
        TcpSocket(212962, 0xB2D0, 0x8E01, listens=False),
    ]


def test_a_line_that_is_cut_off_is_left_out() -> None:
    assert parse_tcp_table(TABLE[: TABLE.index(b"  1001        0")]) == []


def test_this_kernel_shows_both_ends_of_a_connection() -> None:
    for family, host, name in ((socket.AF_INET, "127.0.0.1", "tcp"), (socket.AF_INET6, "::1", "tcp6")):
        with socket.create_server((host, 0), family=family) as server, socket.socket(family) as client:
            client.connect(server.getsockname())
            port = server.getsockname()[1]
            found = parse_tcp_table(Path("/proc/self/net", name).read_bytes())

            assert TcpSocket(inode(server), port, 0, listens=True) in found
            assert TcpSocket(inode(client), client.getsockname()[1], port, listens=False) in found


@given(st.binary())
def test_whatever_the_bytes_a_port_is_one(raw: bytes) -> None:
    assert all(0 <= found.port < 1 << 16 and 0 <= found.remote_port < 1 << 16 for found in parse_tcp_table(raw))
