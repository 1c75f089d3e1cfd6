"""The exporter's HTTP side: metrics, a landing page and a health check."""

from __future__ import annotations

import errno
import html
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from pinchpoint import __version__
from pinchpoint.model import Metric, Point
from pinchpoint.wire.exposition import registry

__all__ = [
    "AddressError",
    "Application",
    "Server",
    "StartResponse",
    "application",
    "get_only",
    "parse_address",
    "serve",
]

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

log = logging.getLogger(__name__)

LANDING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pinchpoint</title>
<style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}}
</style></head><body>
<h1>Pinchpoint {version}</h1>
<p>Says what limits a storage benchmark run on this host, live.</p>
<ul><li><a href="{path}">Metrics</a></li><li><a href="/-/healthy">Health</a></li></ul>
</body></html>
"""


class AddressError(ValueError):
    """Invalid listen address."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``:PORT`` (every address, IPv6 too) or ``[IPV6]:PORT``."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535 or re.search(r"[^!-~]", host):
        raise AddressError(f"{text!r} is not HOST:PORT, :PORT or [IPV6]:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host.partition("%")[0])
        except ValueError as error:
            raise AddressError(f"{text!r}: {error}") from error
    elif ":" in host:
        raise AddressError(f"{text!r}: put an IPv6 address in brackets: [{host}]:{port}")
    return host, int(port)


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds that a client may take for its request

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.address_string(), format % args)


class Server(ThreadingMixIn, WSGIServer):
    """A threading WSGI server; the request threads end with the process."""

    daemon_threads = True
    request_queue_size = 128
    """Connections that may wait to be accepted; with the default of 5, a sixth at a time waits a second or more."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that broke: a scraper that gives up is not an error here."""
        log.debug("connection of %s broke", client_address, exc_info=True)

    @property
    def address(self) -> str:
        """Its address, with the port that the kernel chose for port 0."""
        host = f"[{self.server_name}]" if self.address_family == socket.AF_INET6 else self.server_name
        return f"{host}:{self.server_port}"

    def server_bind(self) -> None:
        """Bind without the reverse look-up of the host's name, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


def application(
    points: Callable[[], Iterable[Point]], telemetry_path: str, metrics: Iterable[Metric] = ()
) -> Application:
    """Return the WSGI application that serves the points, which belong to `metrics`."""
    # Never compressed: bytes on the wire are cheaper than the measured host's CPU.
    exposition = make_wsgi_app(registry(points, metrics), disable_compression=True)
    landing = LANDING.format(version=__version__, path=html.escape(telemetry_path, quote=True)).encode()

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == telemetry_path:
            return exposition(environ, start_response)  # type: ignore[no-any-return]
        if path == "/":
            status, kind, body = "200 OK", "text/html", landing
        elif path == "/-/healthy":
            status, kind, body = "200 OK", "text/plain", b"Pinchpoint is healthy.\n"
        else:
            status, kind, body = "404 Not Found", "text/plain", f"not here: see {telemetry_path}\n".encode()
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8")])
        return [body]

    return get_only(app)


def get_only(app: Application) -> Application:
    """Return `app`, which answers GET, extended to HEAD with the same headers; all else is refused."""

    def wrapped(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            return app(environ, start_response)
        if environ["REQUEST_METHOD"] != "HEAD":
            refused = [("Content-Type", "text/plain; charset=utf-8"), ("Allow", "GET, HEAD")]
            start_response("405 Method Not Allowed", refused)
            return [b"only GET and HEAD\n"]
        answer: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(app({**environ, "REQUEST_METHOD": "GET"}, lambda *given: answer.append(given)))
        status, headers = answer[0]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return []

    return wrapped


def serve(address: tuple[str, int], app: Application) -> Server:
    """Return a server that listens on `address`. Raises OSError if it can't."""
    host, port = address
    family = socket.AF_INET
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise OSError(errno.EINVAL, "not a valid host name") from error
    if not host:
        # An empty host means every address: one IPv6 socket takes both kinds, where the kernel has IPv6.
        host, family = ("::", socket.AF_INET6) if _has_ipv6() else ("0.0.0.0", family)
    elif ":" in host:
        family = socket.AF_INET6
    server_class = type("Server", (Server,), {"address_family": family})
    server: Server = make_server(host, port, app, server_class, _Handler)
    return server


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
