from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from patience import Stopwatch
from pinchpoint.wire import fetch
from pinchpoint.wire.fetch import Fetcher, FetchError

Answer = Callable[[bytes], bytes]
"""Returns the response to a request, both as bytes; an empty response closes the connection."""


class Server:
    """Answers on a port of this host, byte for byte as a test says."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.connections = 0
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                try:
                    while request := connection.recv(65536):
                        self.requests.append(request)
                        if not (given := self.answer(request)):
                            break
                        connection.sendall(given)
                except OSError:
                    pass


@contextmanager
def server(answer: Answer) -> Iterator[Server]:
    found = Server(answer)
    try:
        yield found
    finally:
        found.listener.shutdown(socket.SHUT_RDWR)
        found.listener.close()


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def redirect(location: str) -> bytes:
    return http(b"moved", "302 Found", f"Location: {location}\r\n")


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
URL = "http://127.0.0.1:9/"
"""A port without a listener (the discard protocol)."""


@contextmanager
def connected(said: bytes) -> Iterator[Fetcher]:
    """Give a fetcher connected to a server of `URL` that sends this and closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        fetcher = Fetcher(5.0)
        fetcher._connection = fetch._connection(urlsplit(URL), 5.0)
        fetcher._connection.sock = ours
        fetcher._server = ("http", "127.0.0.1:9")
        yield fetcher


def test_one_connection_serves_all_questions() -> None:
    with server(lambda request: http(b"a 1\n")) as asked:
        fetcher = Fetcher(5.0)
        assert [fetcher.get(f"{asked.url}/metrics") for _ in range(3)] == [b"a 1\n"] * 3

    assert asked.connections == 1


def test_a_connection_that_the_server_has_closed_is_opened_again() -> None:
    answers = iter([http(b"1"), b"", http(b"2")])
    with server(lambda request: next(answers)) as asked:
        fetcher = Fetcher(5.0)
        assert [fetcher.get(asked.url), fetcher.get(asked.url)] == [b"1", b"2"]

    assert asked.connections == 2


def test_a_server_that_closes_every_connection_is_asked_once() -> None:
    with server(lambda request: b"") as asked, pytest.raises(FetchError, match="closed connection"):
        Fetcher(5.0).get(asked.url)

    assert len(asked.requests) == 1


def test_an_answer_in_chunks_is_put_together() -> None:
    chunks = CHUNKED + b"2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"
    with server(lambda request: chunks) as asked:
        fetcher = Fetcher(5.0)
        assert [fetcher.get(asked.url), fetcher.get(asked.url)] == [b"a 1\n"] * 2

    assert asked.connections == 1


def test_parameters_are_added_to_those_of_the_address() -> None:
    with server(lambda request: http(b"")) as asked:
        Fetcher(5.0).get(f"{asked.url}/a b?x=1", {"query": 'up{a="b c"}'})

    assert asked.requests[0].startswith(b"GET /a%20b?x=1&query=up%7Ba%3D%22b+c%22%7D HTTP/1.1\r\n")


def test_a_document_does_not_follow_a_redirection() -> None:
    with server(lambda request: redirect("http://127.0.0.1:9/")) as asked, pytest.raises(FetchError) as found:
        Fetcher(5.0).send("POST", asked.url, b"{}")

    assert (str(found.value), found.value.status) == ("redirects to http://127.0.0.1:9/", 302)


def test_who_asks_may_stand_in_the_address() -> None:
    with server(lambda request: http(b"")) as asked:
        Fetcher(5.0).get(asked.url.replace("http://", "http://me:p%40ss@"))

    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in asked.requests[0]


def test_a_redirection_is_followed_without_the_password_for_another_server() -> None:
    with server(lambda request: http(b"there")) as there, server(lambda request: redirect(f"{there.url}/x")) as here:
        assert Fetcher(5.0).get(here.url.replace("http://", "http://me:secret@")) == b"there"

    assert b"Authorization" in here.requests[0]
    assert b"Authorization" not in there.requests[0]


def test_redirections_end_some_day() -> None:
    with server(lambda request: redirect("/again")) as asked, pytest.raises(FetchError, match="redirects more than"):
        Fetcher(5.0).get(asked.url)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "//", "http://[::1", "x"])
def test_a_redirection_to_nowhere_ends(location: str) -> None:
    with server(lambda request: redirect(location)) as asked, pytest.raises(FetchError):
        Fetcher(5.0).get(asked.url)


def test_an_error_has_the_status_as_its_reason_and_keeps_what_came_with_it() -> None:
    with server(lambda request: http(b"why", "422 Unprocessable Entity")) as asked, pytest.raises(FetchError) as caught:
        Fetcher(5.0).get(asked.url)

    assert (str(caught.value), caught.value.body) == ("422 Unprocessable Entity", b"why")


@pytest.mark.parametrize(
    "answer",
    [http(b"a" * 101), CHUNKED + b"65\r\n" + b"a" * 101, CHUNKED + b"-1\r\n" + b"a" * (2 << 20), b"a" * (2 << 20)],
    ids=["length", "chunks", "a negative chunk", "head"],
)
def test_an_answer_that_is_too_long_is_given_up(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BODY_BYTES", 100)
    with (
        server(lambda request: answer) as asked,
        pytest.raises(FetchError, match=r"answers with more than|got more than"),
    ):
        Fetcher(5.0).get(asked.url)


def test_an_answer_that_breaks_off_is_none() -> None:
    with connected(http(b"whole")[:-2]) as fetcher, pytest.raises(FetchError, match="ends early"):
        fetcher.get(URL)


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["status", "head", "body"]
)
def test_a_server_that_drips_is_not_waited_for(start: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.sendall(start)
                    while True:
                        connection.sendall(b"x")
                        time.sleep(0.02)
                except OSError:
                    pass

        threading.Thread(target=drip, daemon=True).start()
        clock = Stopwatch()
        with pytest.raises(FetchError, match="timed out"):
            Fetcher(0.3).get(f"http://127.0.0.1:{listener.getsockname()[1]}")

    assert clock.tick() < 5


@pytest.mark.parametrize(
    "url", ["", "host:1/metrics", "ftp://host/", "http://", "http://h:x/", "http://a\tb/", "http://[::1"]
)
def test_what_is_no_address_is_an_error(url: str) -> None:
    with pytest.raises(FetchError):
        Fetcher(1.0).get(url)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(b"HTTP/1.1 200 OK\r\n".__add__))
@example(b"HTTP/1.1 100 Continue\r\n\r\n" * 3)
@example(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx")
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx")
@example(b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n")
def test_whatever_a_server_says_is_an_answer_or_an_error(said: bytes) -> None:
    with connected(said) as fetcher:
        try:
            assert isinstance(fetcher.get(URL), bytes)
        except FetchError:
            pass
