"""The kernel's table of TCP sockets, ``/proc/PID/net/tcp`` and ``tcp6``, of a process' network namespace."""

from __future__ import annotations

from typing import NamedTuple

from pinchpoint.expressions import expression

__all__ = ["TcpSocket", "parse_tcp_table"]

ESTABLISHED, LISTEN = 1, 10
"""TCP_ESTABLISHED and TCP_LISTEN (include/net/tcp_states.h)."""
LINE = expression(
    # get_tcp4_sock (net/ipv4/tcp_ipv4.c), get_tcp6_sock (net/ipv6/tcp_ipv6.c): number, both addresses, state, queues,
    # timer, retransmissions, user, probes, inode
    rb"\s*\d+: [0-9A-F]{8,32}:([0-9A-F]{4}) [0-9A-F]{8,32}:([0-9A-F]{4}) ([0-9A-F]{2})"
    rb" \S+ \S+ \S+ +\d+ +\d+ (\d{1,20})(?!\d)"
)


class TcpSocket(NamedTuple):
    """One socket. Of the others (closing, of a process that has gone) nothing is known."""

    inode: int
    port: int
    """Its own port."""
    remote_port: int
    """0 if it listens."""
    listens: bool


def parse_tcp_table(raw: bytes) -> list[TcpSocket]:
    """Return the sockets that listen or are connected; lines of another form are left out, as one that is cut off."""
    found = []
    for line in raw.splitlines():
        if (match := LINE.match(line)) is None:
            continue
        port, remote_port, state = (int(word, 16) for word in match.groups()[:3])
        if state in (ESTABLISHED, LISTEN):
            found.append(TcpSocket(int(match[4]), port, 0 if state == LISTEN else remote_port, state == LISTEN))
    return found
