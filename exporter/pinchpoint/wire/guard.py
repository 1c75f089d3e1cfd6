"""What an HTTP server asks whoever protects it, and how an application learns how a request was protected."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from pinchpoint.model import Metric, Point
from pinchpoint.wire.connections import LOOPBACK, peer_of

__all__ = ["Application", "Guard", "ProtectionMetrics", "StartResponse", "exposure"]

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


class ProtectionMetrics(NamedTuple):
    """Metrics of a server's protection."""

    reload_successful: Metric
    reload_time: Metric
    password_cpu: Metric


class Guard(Protocol):
    """Protects a server; `wire/protection.py` has the one for ``--web.config.file``."""

    @property
    def summary(self) -> str:
        """What protects the server, for its log."""

    def secure(self, client: socket.socket) -> socket.socket:
        """Return the connection on which a client speaks HTTP. Raises OSError to refuse it."""

    def wrap(self, app: Application) -> Application:
        """Return an application, protected."""

    def points(self) -> Iterator[Point]:
        """Yield its metrics."""


def exposure(environ: dict[str, Any]) -> str:
    """Return a sentence on what does not protect the server of this request; empty if only this host reaches it."""
    if peer_of(environ["SERVER_NAME"]) == LOOPBACK:
        return ""
    missing = []
    if environ.get("wsgi.url_scheme") != "https":
        missing.append("it is not encrypted")
    if not environ.get("REMOTE_USER") and environ.get("SSL_CLIENT_VERIFY") != "SUCCESS":
        missing.append("no password or client certificate is asked for")
    if not missing:
        return ""
    return f"Unprotected: {' and '.join(missing)}. --web.config.file changes that."
