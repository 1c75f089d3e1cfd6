from __future__ import annotations

import http.client
import math
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import Any
from wsgiref.handlers import BaseHandler

import pytest

from blocked import all_wait
from patience import patience
from pinchpoint.metrics import HTTP_REFUSED_CONNECTIONS
from pinchpoint.model import Metric, Point
from pinchpoint.wire import connections
from pinchpoint.wire.connections import MAX_PEER_CONNECTIONS, Refusals
from pinchpoint.wire.http import MAX_REQUEST_HEAD_BYTES, Application, Server, StartResponse, application, serve
from polling import until

METRIC = Metric("a_bytes", "Bytes.", labels=("owner",))
OTHER = Metric("b_bytes", "Bytes.", labels=("owner",))
ANSWER = b"here you are\n"
BIG_BYTES = 64 << 20
"""More than the kernel keeps for a client that does not read (tcp_wmem and tcp_rmem, tcp(7))."""


def plain(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [ANSWER]


@contextmanager
def running(app: Application, host: str = "127.0.0.1") -> Iterator[Server]:
    server = serve((host, 0), app, Refusals(HTTP_REFUSED_CONNECTIONS))
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(plain) as found:
        yield found


def connect(server: Server, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=patience(10))
    connection.sendall(sent)
    return connection


def answer(connection: socket.socket) -> bytes:
    with connection, connection.makefile("rb") as file:
        return file.read()


def status(server: Server, **headers: str) -> int:
    """Return the status of a GET; underscores in a header's name stand for hyphens."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=patience(10))) as connection:
        connection.request("GET", "/", headers={name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse().status


def refused(server: Server) -> dict[str, float]:
    return {labels[0]: value for _, labels, value in server.refusals.points() if value}


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed a connection; sends one more byte."""
    try:
        connection.sendall(b"x")
        return connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.0\r\n\r\n"],
        [b"GET / HTTP/1.0\n\n"],
        [b"GET / HTTP/1.0\r\nA: b\r\n\r", b"\n"],
        [b"GET / HTTP/1.1\r\nA: b\n", b"\r\n"],
        [bytes([byte]) for byte in b"GET / HTTP/1.1\r\n\r\n"],
        [b"GET / HTTP/1.1\r\n\r\n" * 100],
    ],
    ids=["whole", "bare LF", "split in its end", "mixed", "byte by byte", "pipelined"],
)
def test_a_request_is_answered_in_whatever_pieces_it_comes(server: Server, pieces: list[bytes]) -> None:
    connection = connect(server)
    for piece in pieces:
        connection.sendall(piece)

    assert answer(connection).endswith(b"\r\n\r\n" + ANSWER)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nA: " + b"a" * MAX_REQUEST_HEAD_BYTES + b"\r\n\r\n",
        b"GET /" + b"a" * MAX_REQUEST_HEAD_BYTES,
        b"\r" * (MAX_REQUEST_HEAD_BYTES + 1),
    ],
    ids=["headers", "request line", "rubbish"],
)
def test_a_head_above_the_limit_is_answered_with_431_and_counted(server: Server, head: bytes) -> None:
    assert answer(connect(server, head)).startswith(b"HTTP/1.0 431 Request Header Fields Too Large\r\n")
    assert refused(server) == {"headers": 1}


def test_a_head_of_exactly_the_limit_is_answered(server: Server) -> None:
    head = b"GET / HTTP/1.1\r\nA: \r\n\r\n"
    head = head.replace(b"A: ", b"A: " + b"a" * (MAX_REQUEST_HEAD_BYTES - len(head)))

    assert answer(connect(server, head)).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /\r\n\r\n", b"400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\n", b"505 HTTP Version Not Supported"),
    ],
)
def test_what_is_not_understood_is_answered_with_its_status(server: Server, head: bytes, status: bytes) -> None:
    assert answer(connect(server, head)).startswith(b"HTTP/1.0 " + status + b"\r\n")


def test_a_header_with_an_underscore_is_not_taken_for_one_with_a_hyphen(server: Server) -> None:
    assert answer(connect(server, b"GET / HTTP/1.1\r\nsec_fetch_site: cross-site\r\n\r\n")).startswith(b"HTTP/1.0 200 ")
    assert answer(connect(server, b"GET / HTTP/1.1\r\nsec-fetch-site: cross-site\r\n\r\n")).startswith(b"HTTP/1.0 403 ")


def test_variables_of_the_exporters_own_process_are_not_taken_for_headers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BaseHandler.os_environ, "HTTP_ORIGIN", "http://other.example")

    assert answer(connect(server, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.0 200 ")


def test_a_client_that_goes_on_sending_single_bytes_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTION_SECONDS", 0.2)
    with connect(server, b"GET / HTTP/1.0\r\nX-Slow: ") as slow:
        assert until(10, lambda: is_closed(slow), 0.01)

    assert refused(server) == {"timeout": 1}
    assert status(server) == 200


def test_a_client_that_does_not_read_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTION_SECONDS", 0.2)

    def big(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [bytes(BIG_BYTES)]

    before = set(threading.enumerate())
    with running(big) as server, connect(server, b"GET / HTTP/1.0\r\n\r\n"):
        assert until(10, lambda: refused(server) == {"timeout": 1}, 0.01)
        assert until(10, lambda: len(set(threading.enumerate()) - before) == 1, 0.01), "its thread goes on"


def test_clients_that_wait_keep_nobody_out_and_hold_a_bounded_number_of_threads(server: Server) -> None:
    slow = []
    most = 0
    for _ in range(3 * MAX_PEER_CONNECTIONS):
        slow.append(connect(server, b"GET / HTTP/1.0\r\n"))
        assert status(server) == 200
        most = max(most, threading.active_count())

    assert refused(server).keys() == {"peer"}
    assert most <= MAX_PEER_CONNECTIONS + 3
    for connection in slow:
        connection.close()


@pytest.mark.parametrize(
    ("limit", "line", "reason"),
    [
        ("MAX_PEER_CONNECTIONS", b"HTTP/1.0 429 Too Many Requests\r\n", "peer"),
        ("MAX_CONNECTIONS", b"HTTP/1.0 503 Service Unavailable\r\n", "full"),
    ],
)
def test_a_connection_for_which_none_gives_way_is_told_so(
    monkeypatch: pytest.MonkeyPatch, limit: str, line: bytes, reason: str
) -> None:
    monkeypatch.setattr(connections, limit, 2)
    asked: list[str] = []
    may_end = Event()

    def slow(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        asked.append(environ["PATH_INFO"])
        may_end.wait(patience(10))
        return plain(environ, start_response)

    with running(slow) as server:
        served = [connect(server, b"GET / HTTP/1.0\r\n\r\n") for _ in range(2)]
        assert until(10, lambda: len(asked) == 2, 0.01)
        assert answer(connect(server)).startswith(line)
        may_end.set()
        assert [answer(connection).endswith(ANSWER) for connection in served] == [True, True]
        assert refused(server) == {reason: 1}


def scrape(app: Application, accept: str = "", query: str = "") -> str:
    said: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "QUERY_STRING": query, "HTTP_ACCEPT": accept}
    body = b"".join(app(environ, lambda status, headers: said.append(dict(headers)["Content-Type"])))
    return f"{said[0]}\n{body.decode()}"


def test_scrapes_at_the_same_moment_are_rendered_once() -> None:
    collected = 0
    later: list[Thread] = []
    found: list[str] = []

    def points() -> Iterable[Point]:
        nonlocal collected
        collected += 1
        assert until(10, lambda: later and all_wait(later), 0.001)
        return [METRIC.point(5, "x")]

    app = application(points, "/metrics")

    def call() -> None:
        found.append(scrape(app))

    first = Thread(target=call)
    first.start()
    assert until(10, lambda: collected, 0.001)
    threads = [Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    later += threads
    for thread in (first, *threads):
        thread.join()

    assert collected == 1
    assert len(found) == 21
    assert set(found) == {found[0]}
    assert 'a_bytes{owner="x"} 5.0\n' in found[0]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; version=0.0.4"),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*", "application/openmetrics-text"),
        ("application/openmetrics-text;version=x", "application/openmetrics-text"),
        ("application/openmetrics-text;version=" + "1." * 4000, "application/openmetrics-text"),
    ],
)
def test_an_accept_header_chooses_between_two_formats_whatever_else_it_says(accept: str, kind: str) -> None:
    found = scrape(application(lambda: [METRIC.point(5, "x")], "/metrics"), accept)

    assert found.startswith(kind)
    assert found.endswith("# EOF\n") == ("openmetrics" in kind)


def test_a_scrape_for_some_names_gets_those_alone() -> None:
    app = application(lambda: [METRIC.point(5, "x"), OTHER.point(6, "y")], "/metrics")

    assert "b_bytes" not in scrape(app, query="name[]=a_bytes")
    assert "b_bytes" in scrape(app)


def test_a_scrape_may_ask_for_the_full_rate() -> None:
    asked: list[str] = []
    app = application(list, "/metrics", hold_full_rate=lambda: asked.append("full"))
    scrape(app)
    scrape(app, query="rate=slow")
    assert asked == []

    scrape(app, query="rate=full&name[]=a_bytes")
    assert asked == ["full"]


def test_stacks_of_full_threads_are_a_page_of_their_own() -> None:
    asked: list[float] = []

    def stacks(seconds: float) -> str:
        asked.append(seconds)
        return "kv_sync of osd.0;main;malloc 3\n"

    app = application(list, "/metrics", stacks=stacks)
    for query in (b"", b"?seconds=60", b"?seconds=1&seconds=30", b"?seconds=nan", b"?seconds=-1"):
        head = b"GET /profile" + query + b" HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"
        with running(app) as server, connect(server, head) as connection:
            assert answer(connection).endswith(b"\r\n\r\nkv_sync of osd.0;main;malloc 3\n")
    assert asked == [math.inf, 60.0, 30.0, math.inf, math.inf]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "127.0.0.1:9748"}, 200),
        ({"Host": "192.0.2.1"}, 200),
        ({"Host": "[::1]:9748"}, 200),
        ({"Host": "LOCALHOST:9748"}, 200),
        ({"Host": "rebound.example:9748"}, 403),
        ({"Host": "localhost.rebound.example"}, 403),
        ({"Host": "127.0.0.1.rebound.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "a:b:c"}, 403),
        ({"Origin": "http://site.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, 403),
    ],
    ids=str,
)
def test_a_server_on_loopback_answers_programs_and_people_and_no_page_of_another_site(
    server: Server, headers: dict[str, str], expected: int
) -> None:
    assert status(server, **headers) == expected
    assert refused(server) == ({"browser": 1} if expected == 403 else {})


def test_a_request_without_a_host_header_is_answered(server: Server) -> None:
    assert answer(connect(server, b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_requires_a_local_name(host: str) -> None:
    try:
        with running(plain, host) as server, closing(http.client.HTTPConnection(host, server.server_port)) as client:
            client.request("GET", "/", headers={"Host": "rebound.example"})
            assert client.getresponse().status == 403
    except OSError:
        pytest.skip(f"this machine has no {host}")


def test_a_server_for_other_hosts_answers_to_any_name_but_no_page_of_another_site() -> None:
    with running(plain, "") as server:
        assert status(server, Host="client1.example:9748") == 200
        assert status(server, Host="client1.example:9748", Origin="http://site.example") == 403
