"""Exporters of simulated hosts, for tests and measurements of their scrapers.

Each host starts from a golden exposition (tests/golden): its counters grow and its times are current. All of them run a
benchmark that waits for OSDs; only the first client knows the run and its phase, as the host of rank 0 does.

One HTTP proxy on loopback answers for all of them, so that each target has its own name: its URL is the ``proxy_url``
of a scrape job. Clients without proxies ask it for ``/HOST:PORT``.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

__all__ = ["OSDS", "PHASE", "RUN", "Fleet"]

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
OSDS = 16
"""OSDs of a storage host."""
RUN = "simulated"
PHASE = "ior_easy_write"

RATES = (
    (re.compile(r'workload_seconds_total\{.*wait="osd"'), 1.4),
    (re.compile(r'workload_seconds_total\{.*wait="(cpu|network)"'), 0.3),
    (re.compile(r"workload_seconds_total"), 0.0),
    (re.compile(r"resource_busy"), 0.3),
    (re.compile(r"resource_saturated"), 0.1),
    (re.compile(r"runqueue"), 0.03),
    (re.compile(r"thread_cpu"), 0.2),
    (re.compile(r"sampler_samples"), 10.0),
    (re.compile(r"sampler_(late|lost)|allocation_stalls"), 0.0),
    (re.compile(r"idle_state_entries"), 400.0),
    (re.compile(r""), 0.1),
)
"""Increase of a counter per second, by its name and labels; the first match applies. Two processes wait."""
TICK = 0.1
"""Seconds between two samples, as of a real exporter: whoever asks between them gets the same."""
FULL = ((re.compile(r"resource_busy"), 0.97), (re.compile(r"resource_saturated"), 0.9))
"""The same for a resource that is full."""

Line = tuple[str, float, float | None]
"""Name and labels; initial value; increase per second, None for a constant."""


class Fleet:
    """Simulated hosts behind a proxy; as a context manager, one that ends with the block.

    `full` names resources that are full on every storage host; `fill` makes one full on one host.
    """

    def __init__(self, clients: int, storage: int, *, full: Iterable[str] = ()) -> None:
        self.clients = [f"client{number:03}:9748" for number in range(clients)]
        self.storage = [f"storage{number:03}:9748" for number in range(storage)]
        self._begin = time.time()
        self._lines: dict[str, list[Line]] = {}
        self._rendered: dict[int, tuple[float, bytes]] = {}
        """By the identity of its lines, an exposition and the tick that it is of: most clients share their lines."""
        client, osds = _lines("xeon"), _lines("ceph_host")
        shared = [self._line(text, value) for text, value in client]
        for number, host in enumerate(self.clients):
            self._lines[host] = shared if number else [self._line(text, value) for text, value in _rank0(client)]
        for number, host in enumerate(self.storage):
            named = [(_renumbered(text, number), value) for text, value in osds if "socket_problem" not in text]
            self._lines[host] = [self._line(text, value) for text, value in named]
        for resource in full:
            for host in self.storage:
                self.fill(host, resource)
        self._server = _Proxy(self)

    @property
    def hosts(self) -> list[str]:
        """The addresses of all hosts."""
        return [*self.clients, *self.storage]

    def has(self, host: str) -> bool:
        """Return whether it is one of the hosts."""
        return host in self._lines

    @property
    def url(self) -> str:
        """The URL of the proxy that answers for them."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def owners(self, host: str, resource: str) -> list[str]:
        """Return the owners of the resources of one kind on a host."""
        found = re.compile(f'resource_busy.*owner="([^"]+)",resource="{resource}"')
        return [match[1] for text, _, _ in self._lines[host] if (match := found.search(text))]

    def fill(self, host: str, resource: str, owner: str = "") -> None:
        """Make a resource of a host full from the beginning, for one owner or all."""
        whose = f'owner="{owner}",resource="{resource}"' if owner else f'resource="{resource}"'
        self._lines[host] = [
            (text, value, next((rate for name, rate in FULL if name.search(text)), gain)) if whose in text else line
            for line in self._lines[host]
            for text, value, gain in [line]
        ]
        self._rendered.clear()

    def exposition(self, host: str) -> bytes:
        """Return the present exposition of a host. Raises KeyError."""
        lines = self._lines[host]
        elapsed = (time.time() - self._begin) // TICK * TICK
        tick, body = self._rendered.get(id(lines), (-1.0, b""))
        if tick != elapsed:
            body = "".join(
                text if gain is None else f"{text} {value + gain * elapsed:.9f}\n" for text, value, gain in lines
            ).encode()
            self._rendered[id(lines)] = elapsed, body
        return body

    def _line(self, text: str, value: str) -> Line:
        if not value:
            return f"{text}\n", 0.0, None
        name = text.partition("{")[0]
        if name.endswith("_total"):
            return text, float(value), next(rate for pattern, rate in RATES if pattern.search(text))
        if name.endswith("_start_timestamp_seconds"):
            return f"{text} {self._begin:.3f}\n", 0.0, None
        if name.endswith("_timestamp_seconds"):
            return text, self._begin, 1.0
        if name.endswith("_elapsed_seconds"):
            return text, 0.0, 1.0
        # Otherwise every alert would be about daemons of which nothing is known.
        return f"{text} {1.0 if name == 'pinchpoint_ceph_socket_up' else value}\n", 0.0, None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fleet = fleet

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about a server that was stopped while it scraped."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def do_GET(self) -> None:
        try:
            asked, fleet = urlsplit(self.path), self.server.fleet
            body, status = fleet.exposition(asked.path[1:] if fleet.has(asked.path[1:]) else asked.netloc), 200
        except KeyError:
            body, status = b"no such host\n", 404
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def _lines(machine: str) -> list[tuple[str, str]]:
    """Return the lines of a golden exposition: name and labels, and value; comments have no value."""
    lines = (GOLDEN / f"{machine}.prom").read_text().splitlines()
    return [
        (line, "") if line.startswith("#") else (line.rpartition(" ")[0], line.rpartition(" ")[2]) for line in lines
    ]


def _renumbered(text: str, number: int) -> str:
    """Return a line of a storage host with daemons' names that are unique to it."""
    text = re.sub(r'"osd\.(\d+)"', lambda match: f'"osd.{int(match[1]) + OSDS * number}"', text)
    return re.sub(r'"mds\.([a-z])"', rf'"mds.{number}\1"', text)


def _rank0(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the lines of a client that knows the run."""
    phase = f'{{benchmark="ior",phase="{PHASE}",run="{RUN}"}}'
    states = ("setup", "running", "syncing", "paused", "between", "finished", "failed", "stopped")
    known = [
        (f"pinchpoint_phase_active{phase}", "1.0"),
        (f"pinchpoint_phase_elapsed_seconds{phase}", "0.0"),
        (f"pinchpoint_phase_number{phase}", "1.0"),
        (f"pinchpoint_phase_start_timestamp_seconds{phase}", "0.0"),
        (f'pinchpoint_run_start_timestamp_seconds{{benchmark="ior",run="{RUN}"}}', "0.0"),
        *(
            (f'pinchpoint_run_state{{benchmark="ior",run="{RUN}",state="{state}"}}', f"{float(state == 'running')}")
            for state in states
        ),
    ]
    return [*((text.replace('run=""', f'run="{RUN}"'), value) for text, value in lines), *known]
