"""Connections of an HTTP server: how many there may be, for how long, and which one gives way to a new one."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Network, ip_address
from threading import Condition, Lock

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.model import Metric, Point

__all__ = ["LOOPBACK", "Connections", "Reason", "Refusals", "peer_of"]

MAX_CONNECTIONS = 64
MAX_PEER_CONNECTIONS = 16
MAX_CONNECTION_SECONDS = 10.0
"""Seconds from the start of a connection to the end of its answer, however its bytes are spread over them."""
MAX_EVICTION_SECONDS = 0.25
"""Seconds that a new connection waits for the end of the one that gives way to it."""
LOOPBACK = "loopback"
"""The peer that is this host."""
RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: `close` resets the connection instead of leaving unsent data to the kernel (socket(7))."""


class Reason(StrEnum):
    """Why a connection is refused or closed early, as in the label ``reason``."""

    FULL = "full"
    """The server has as many connections as it may have."""
    PEER = "peer"
    """Its peer has as many connections as one peer may have."""
    HEADERS = "headers"
    """Its request line and headers are too large."""
    TIMEOUT = "timeout"
    """It lasted too long."""
    BROWSER = "browser"
    """A web page of another site asks."""
    TLS = "tls"
    """Its TLS handshake failed, or it lacks an allowed certificate."""
    PASSWORD = "password"
    """Its password is missing or wrong."""
    ATTEMPTS = "attempts"
    """Its password was not checked, since too many were wrong."""
    RATE = "rate"
    """There were more requests than the configured rate."""


class Refusals:
    """Counts refused connections, for `metric`, which has a label for the reason."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._counts = dict.fromkeys(Reason, 0)
        self._lock = Lock()

    def count(self, reason: Reason) -> None:
        """Count one."""
        with self._lock:
            self._counts[reason] += 1

    def points(self) -> Iterator[Point]:
        """Yield one series for each reason, also if nothing was refused yet."""
        for reason, count in self._counts.items():
            yield self._metric.point(count, reason.value)


class _Connection(msgspec.Struct):
    peer: str
    began: float
    computing: bool = False
    """Whether its answer is being computed."""
    ended: bool = False
    """Whether it was shut down; it stays until its thread has noticed."""


class Connections:
    """The open connections of a server. `clock` is monotonic, in seconds.

    One that waits for its request, or for its client to read the answer, gives way to a new one, the oldest first: so
    clients that do nothing keep nobody out. One whose answer is being computed stays.
    """

    def __init__(self, refusals: Refusals, clock: Callable[[], float] = time.monotonic) -> None:
        self.refusals = refusals
        self._clock = clock
        self._open: dict[socket.socket, _Connection] = {}
        self._changed = Condition()

    def admit(self, client: socket.socket, host: str) -> Reason | None:
        """Count a new connection from an address among the open ones, or return why it is refused."""
        peer = peer_of(host)
        with self._changed:
            reason = self._shortage(peer)
            if reason is not None and self._evict(reason, peer):
                self._changed.wait_for(lambda: self._shortage(peer) is None, MAX_EVICTION_SECONDS)
                reason = self._shortage(peer)
            if reason is None:
                self._open[client] = _Connection(peer, self._clock())
            else:
                self.refusals.count(reason)
            return reason

    def leave(self, client: socket.socket) -> None:
        """Forget a connection that has ended, or that was never admitted."""
        with self._changed:
            self._open.pop(client, None)
            self._changed.notify_all()

    @contextmanager
    def computing(self, client: socket.socket) -> Iterator[None]:
        """Keep an admitted connection from giving way while its answer is computed."""
        connection = self._open[client]
        connection.computing = True
        try:
            yield
        finally:
            connection.computing = False

    def expire(self) -> None:
        """Shut down the connections that have lasted too long."""
        with self._changed:
            latest = self._clock() - MAX_CONNECTION_SECONDS
            for client, connection in self._open.items():
                if connection.began <= latest and not connection.ended:
                    self._shut(client, connection, Reason.TIMEOUT)

    def _shortage(self, peer: str) -> Reason | None:
        if sum(connection.peer == peer for connection in self._open.values()) >= MAX_PEER_CONNECTIONS:
            return Reason.PEER
        return Reason.FULL if len(self._open) >= MAX_CONNECTIONS else None

    def _evict(self, reason: Reason, peer: str) -> bool:
        """Shut down the connection that gives way, unless it is ending already; return whether there is one."""
        for client, connection in self._open.items():  # the oldest first: a dict keeps the order of insertion
            if not connection.computing and (reason is Reason.FULL or connection.peer == peer):
                if not connection.ended:
                    self._shut(client, connection, reason)
                return True
        return False

    def _shut(self, client: socket.socket, connection: _Connection, reason: Reason) -> None:
        connection.ended = True
        self.refusals.count(reason)
        try:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client was faster


def peer_of(host: str) -> str:
    """Return to whom a client's IP address belongs: this host, an IPv4 address, or an IPv6 network of 64 bits.

    A host usually has a whole such network (RFC 4291, section 2.5.1), and each of 127.0.0.0/8.
    """
    address = ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:
        return LOOPBACK
    return str(address) if address.version == 4 else str(IPv6Network((int(address), 64), strict=False))
