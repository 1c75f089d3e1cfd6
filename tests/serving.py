"""A server on loopback that says what a test lets it say: an exporter, or a Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving(answer: Callable[[str], str | bytes], status: int = 200) -> Iterator[str]:
    """Serve what `answer` makes of the path that is asked for; give HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode() if isinstance(body, str) else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of a client that has gone while it was answered."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)  # type: ignore[arg-type]

    server = Server(("127.0.0.1", 0), Handler)
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
def answering(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve one answer to every question, and give the URL and the paths that were asked for."""
    asked: list[str] = []

    def note(path: str) -> bytes:
        asked.append(path)
        return body

    with serving(note, status) as address:
        yield f"http://{address}", asked
