"""The exporter's HTTP side: metrics, a landing page and a health check.

The server is socketserver's and wsgiref's: one request a connection and a thread for each, which wire/connections.py
bounds. waitress 3.0, cheroot 11.1 and gunicorn 27.0 limit the headers, but neither the time of a whole request nor the
connections of one peer: with 500 clients that send one byte a second, all three answered no scrape in 22 s, and they
save no memory (RSS 27, 29 and 54 MB; `wsgiref.simple_server` 27 MB, and wire/request.py says why it is not used). One
request a connection also means that no connection is idle between two scrapes.
"""

from __future__ import annotations

import errno
import html
import ipaddress
import logging
import math
import socket
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from io import BytesIO
from socketserver import StreamRequestHandler, TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from wsgiref.handlers import SimpleHandler

from pinchpoint import __version__
from pinchpoint.expressions import expression
from pinchpoint.model import Point
from pinchpoint.wire.connections import LOOPBACK, Connections, Reason, Refusals, peer_of
from pinchpoint.wire.exposition import openmetrics, text
from pinchpoint.wire.guard import Application, Guard, StartResponse, exposure
from pinchpoint.wire.request import Request, RequestError, parse_request
from pinchpoint.wire.single_flight import SingleFlight

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Application",
    "Server",
    "StartResponse",
    "application",
    "exposition",
    "get_only",
    "listen",
    "serve",
]

log = logging.getLogger(__name__)

MAX_REQUEST_HEAD_BYTES = 8192
"""Bytes of a request line and its headers."""
MAX_UNREAD_BYTES = 1 << 16
REQUEST_QUEUE_SIZE = 128
"""Connections that may wait to be accepted; with Python's default of 5, a sixth at a time waits a second or more."""
SECONDS_ASKED = expression(r"[0-9]{1,9}")
END_OF_HEAD = expression(rb"\n\r?\n")
OPENMETRICS = "application/openmetrics-text"
KINDS = (
    (f"{OPENMETRICS}; version=1.0.0; charset=utf-8", openmetrics),
    ("text/plain; version=0.0.4; charset=utf-8", text),
)
"""The formats: what clients that know OpenMetrics get, and what all others do."""
SHORTAGES = {
    Reason.FULL: b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n\r\ntoo many connections\n",
    Reason.PEER: b"HTTP/1.0 429 Too Many Requests\r\nRetry-After: 1\r\n\r\ntoo many connections from this address\n",
}
FOREIGN = """refused: a web page of another site asks, or the Host header names neither an IP address nor localhost,
which a server that listens on loopback requires.
"""

LANDING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Pinchpoint</title>
<style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}}
</style></head><body>
<h1>Pinchpoint {version}</h1>
<p>Says what limits a storage benchmark run on this host, live.</p>{exposure}
<ul><li><a href="{path}">Metrics</a></li><li><a href="/-/healthy">Health</a></li></ul>
</body></html>
"""


class _Handler(StreamRequestHandler):
    server: Server
    wbufsize = -1  # an answer leaves in few packets

    def setup(self) -> None:
        """Begin to speak HTTP, with TLS if the server has a guard that wants it. Raises OSError if that fails."""
        self.client = self.request
        """The connection as the server knows it."""
        if self.server.guard is not None:
            self.request = self.server.guard.secure(self.client)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.request is not self.client:
            _end_tls(self.request, self.client)

    def _environ(self, request: Request) -> dict[str, Any]:
        """Return the variables of a request (PEP 3333), with those that Apache's mod_ssl adds."""
        path, _, query = request.target.partition("?")
        environ = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "QUERY_STRING": query,
            "SERVER_NAME": self.server.server_name,
            "SERVER_PORT": str(self.server.server_port),
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": self.client_address[0],
        }
        # As a variable, a name with an underscore could be taken for another one with a hyphen.
        headers = {name: value for name, value in request.headers.items() if "_" not in name}
        environ |= {f"HTTP_{name.replace('-', '_').upper()}": value for name, value in headers.items()}
        if self.request is not self.client:
            environ["HTTPS"] = "on"
            environ["SSL_CLIENT_VERIFY"] = "SUCCESS" if self.request.getpeercert() else "NONE"
        return environ

    def handle(self) -> None:
        """Answer one request, whose head is read as a whole first: nothing is parsed as it trickles in."""
        try:
            head = self._head()
            self.rfile.close()
            if head is None:
                return
            environ = self._environ(parse_request(head))
        except RequestError as error:
            self._run({"REQUEST_METHOD": "", "SERVER_PROTOCOL": "HTTP/1.0"}, _refusal(error.status))
        else:
            self._run(environ, self._compute)

    def _run(self, environ: dict[str, Any], app: Application) -> None:
        log.debug("%s: %s %r", self.client_address[0], environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""))
        handler = SimpleHandler(BytesIO(), self.wfile, sys.stderr, environ)  # type: ignore[arg-type]
        handler.os_environ = {}  # the variables of this process say nothing of a request
        handler.run(app)

    def _head(self) -> bytes | None:
        """Return the request line and headers with the empty line that ends them; None if none comes.

        Raises RequestError for one that is too long.
        """
        head = bytearray()
        while chunk := self.connection.recv(MAX_REQUEST_HEAD_BYTES):
            seen = len(head)
            head += chunk
            end = END_OF_HEAD.search(head, max(0, seen - 2))
            if (end.end() if end else len(head)) > MAX_REQUEST_HEAD_BYTES:
                self.server.refusals.count(Reason.HEADERS)
                raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if end:
                return bytes(head[: end.end()])
        return None

    def _compute(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        with self.server.connections.computing(self.client):
            return self.server.app(environ, start_response)


def _refusal(status: HTTPStatus) -> Application:
    """Return the application that answers a request with this status alone."""

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{status.phrase}\n".encode()]

    return app


class Server(ThreadingMixIn, TCPServer):
    """A WSGI server with a bounded number of threads; they end with the process."""

    daemon_threads = True

    def __init__(
        self, listening: socket.socket, app: Application, connections: Connections, guard: Guard | None
    ) -> None:
        """Serve on a socket that listens; several servers may share the bounds of `connections`."""
        self.address_family = listening.family
        self.connections = connections
        self.refusals = connections.refusals
        self.guard = guard
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.app = _same_site(app, peer_of(self.server_name) == LOOPBACK, self.refusals)
        if guard is not None:
            self.app = guard.wrap(self.app)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is a place for a new connection; if not, tell the client."""
        shortage = self.connections.admit(request, client_address[0])
        if shortage is None:
            return True
        try:
            request.send(SHORTAGES[shortage], socket.MSG_DONTWAIT)
        except OSError as error:
            log.debug("connection of %s: %s", client_address, error)
        return False

    def shutdown_request(self, request: Any) -> None:
        """Close a connection. With bytes unread the kernel would reset it, and the client could lose the answer."""
        try:
            request.recv(MAX_UNREAD_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            pass
        super().shutdown_request(request)
        self.connections.leave(request)

    def service_actions(self) -> None:
        """End the connections that have lasted too long; `serve_forever` calls it at each of its rounds."""
        self.connections.expire()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that broke: a scraper that gives up is not an error here."""
        log.debug("connection of %s broke", client_address, exc_info=True)

    @property
    def address(self) -> str:
        """Its address, with the port that the kernel chose for port 0."""
        host = f"[{self.server_name}]" if self.address_family == socket.AF_INET6 else self.server_name
        return f"{host}:{self.server_port}"


def application(
    points: Callable[[], Iterable[Point]],
    telemetry_path: str,
    hold_full_rate: Callable[[], None] = lambda: None,
    stacks: Callable[[float], str] = lambda seconds: "",
) -> Application:
    """Return the WSGI application that serves the points.

    `hold_full_rate` is called for each scrape with the parameter ``rate=full``. `stacks` returns the stacks of
    threads that were full in the last seconds, in the folded format.
    """
    exposed = exposition(points)
    path_shown = html.escape(telemetry_path, quote=True)

    def landing(environ: dict[str, Any]) -> str:
        lacks = exposure(environ)
        note = f"\n<p><strong>{html.escape(lacks)}</strong></p>" if lacks else ""
        return LANDING.format(version=__version__, path=path_shown, exposure=note)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == telemetry_path:
            if "full" in parse_qs(environ.get("QUERY_STRING", "")).get("rate", ()):
                hold_full_rate()
            return exposed(environ, start_response)
        if path == "/":
            status, kind, body = "200 OK", "text/html", landing(environ).encode()
        elif path == "/profile":
            # The last value counts, and what is not a number stands for all that is known.
            asked = parse_qs(environ.get("QUERY_STRING", "")).get("seconds", [""])[-1]
            seconds = float(asked) if SECONDS_ASKED.fullmatch(asked) else math.inf
            status, kind, body = "200 OK", "text/plain", stacks(seconds).encode("utf-8", "replace")
        elif path == "/-/healthy":
            status, kind, body = "200 OK", "text/plain", b"Pinchpoint is healthy.\n"
        else:
            status, kind, body = "404 Not Found", "text/plain", f"not here: see {telemetry_path}\n".encode()
        start_response(status, [("Content-Type", f"{kind}; charset=utf-8")])
        return [body]

    return get_only(app)


def exposition(points: Callable[[], Iterable[Point]]) -> Application:
    """Return the WSGI application that serves the points.

    They are rendered once for all who ask at the same moment. The parameter ``name[]`` restricts them to some metrics,
    and the header Accept chooses OpenMetrics.
    """

    def render(key: tuple[bool, frozenset[str]]) -> tuple[bytes, str]:
        knows_openmetrics, names = key
        kind, written = KINDS[0 if knows_openmetrics else 1]
        found = points()
        return written(point for point in found if not names or point.metric.name in names).encode(), kind

    rendered = SingleFlight(render)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        names = parse_qs(environ.get("QUERY_STRING", "")).get("name[]", ())
        # Never compressed: bytes on the wire are cheaper than the measured host's CPU.
        body, kind = rendered((OPENMETRICS in environ.get("HTTP_ACCEPT", ""), frozenset(names)))
        start_response("200 OK", [("Content-Type", kind)])
        return [body]

    return app


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


def _same_site(app: Application, loopback: bool, refusals: Refusals) -> Application:
    """Return `app`, which refuses web pages of other sites; `loopback` says whether only this host reaches the server.

    A page whose DNS name is changed to point to this server (DNS rebinding) shows only in the Host header. Other hosts
    may call an exporter by any name, so only a server on loopback can require certain ones.
    """

    def wrapped(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        # A browser adds Origin to a GET only if it leads to another origin (https://fetch.spec.whatwg.org). It sends
        # Sec-Fetch-Site to servers on loopback and to those with TLS, also if a person follows a link, which is fine
        # (https://www.w3.org/TR/fetch-metadata).
        page = environ.get("HTTP_SEC_FETCH_SITE") in ("cross-site", "same-site")
        foreign = page and environ.get("HTTP_SEC_FETCH_MODE") != "navigate"
        rebound = loopback and not _is_local_name(environ.get("HTTP_HOST", ""))
        if not (foreign or rebound or "HTTP_ORIGIN" in environ):
            return app(environ, start_response)
        refusals.count(Reason.BROWSER)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [FOREIGN.encode()]

    return wrapped


def _is_local_name(host: str) -> bool:
    """Return whether a Host header is an IP address or localhost; old clients leave it out."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return not host or name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def serve(address: tuple[str, int], app: Application, refusals: Refusals, guard: Guard | None = None) -> Server:
    """Return a server that listens on `address` and counts what it refuses. Raises OSError if it can't listen."""
    return Server(listen(address), app, Connections(refusals), guard)


def listen(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens on an address. Raises OSError."""
    host, port = address
    family = socket.AF_INET
    if not _is_local_name(host):
        try:
            host.encode("idna")  # its tables take 0.7 MB
        except UnicodeError as error:
            raise OSError(errno.EINVAL, "not a valid host name") from error
    if not host:
        # An empty host means every address: one IPv6 socket takes both kinds, where the kernel has IPv6.
        host, family = ("::", socket.AF_INET6) if _has_ipv6() else ("0.0.0.0", family)
    elif ":" in host:
        family = socket.AF_INET6
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(REQUEST_QUEUE_SIZE)
    except OSError:
        found.close()
        raise
    return found


def _end_tls(secured: ssl.SSLSocket, client: socket.socket) -> None:
    """Say that the answer is complete (close_notify, RFC 8446, section 6.1), without which it counts as truncated."""
    try:
        # The client need not say the same (Go's does not, once it has its answer): nothing of it is waited for.
        client.shutdown(socket.SHUT_RD)
        secured.unwrap()
    except (OSError, ValueError):
        pass  # it has gone, or has sent more
    secured.close()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
