"""A server on loopback whose answers a test sets: an exporter, or a Prometheus."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class QuietHandler(BaseHTTPRequestHandler):
    """A handler of requests that logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that left before the end of its answer, or with whom there can be no TLS."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def handled(handler: type[QuietHandler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve what a handler answers; give HOST:PORT."""
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(answer: Callable[[str], str | bytes], status: int = 200) -> Iterator[str]:
    """Serve the result of `answer` for each requested path; give HOST:PORT."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            body = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else body)

    with handled(Handler) as address:
        yield address


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve one answer to every request, and give the URL and the requested paths."""
    asked: list[str] = []

    def note(path: str) -> bytes:
        asked.append(path)
        return body

    with serving(note, status) as address:
        yield f"http://{address}", asked
