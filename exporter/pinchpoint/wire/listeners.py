"""The addresses on which a service answers: one server for each, with common bounds and one guard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from socket import socket
from threading import Thread

from pinchpoint.host.systemd import activated_sockets
from pinchpoint.wire.addresses import ListenError, parse_address
from pinchpoint.wire.connections import Connections, Refusals
from pinchpoint.wire.guard import Application, Guard, ProtectionMetrics
from pinchpoint.wire.http import Server, listen

__all__ = ["Listeners", "load_protection", "open_sockets"]


POLL_INTERVAL_SECONDS = 0.5
"""Seconds until a server notices that it is to end, and between two looks for connections that last too long."""


def load_protection(path: Path | None, metrics: ProtectionMetrics, refusals: Refusals) -> Guard | None:
    """Return what protects a server by the file of ``--web.config.file``; None without one. Raises ConfigError."""
    if path is None:
        return None
    # Only here: what it needs costs 6 MB.
    from pinchpoint.wire.protection import Protection

    return Protection(path, metrics, refusals)


def open_sockets(addresses: Sequence[str], activated: bool) -> list[socket]:
    """Return sockets that listen on these addresses, or those of systemd if `activated`. Raises ListenError."""
    if activated:
        try:
            return activated_sockets()
        except OSError as error:
            raise ListenError(f"--web.systemd-socket: {error.strerror}") from error
    found: list[socket] = []
    for address in addresses:
        try:
            found.append(listen(parse_address(address)))
        except OSError as error:
            for other in found:
                other.close()
            reason = f"can't listen on {address}: {error.strerror}; choose another --web.listen-address"
            raise ListenError(reason) from error
    return found


class Listeners:
    """Servers of one application."""

    def __init__(
        self, sockets: Sequence[socket], app: Application, refusals: Refusals, guard: Guard | None = None
    ) -> None:
        connections = Connections(refusals)
        self._guard = guard
        self._servers = [Server(one, app, connections, guard) for one in sockets]

    @property
    def addresses(self) -> list[str]:
        """Their addresses."""
        return [server.address for server in self._servers]

    @property
    def protected_by(self) -> str:
        """What protects them, for the log."""
        return "no TLS, no passwords" if self._guard is None else self._guard.summary

    def serve_forever(self) -> None:
        """Answer until `shutdown`."""
        first, *others = self._servers
        for server in others:
            Thread(target=server.serve_forever, args=(POLL_INTERVAL_SECONDS,), name="http", daemon=True).start()
        first.serve_forever(POLL_INTERVAL_SECONDS)

    def shutdown(self) -> None:
        """End `serve_forever`; to be called in another thread."""
        for server in reversed(self._servers):
            server.shutdown()

    def close(self) -> None:
        """Close the sockets."""
        for server in self._servers:
            server.server_close()
