from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine import Machine
from pinchpoint.model import Metric, Snapshot
from pinchpoint.probes.self_cost import SelfCost
from pinchpoint.sampler import Sampler
from pinchpoint.sources import LocalSource, SourceError, TargetSource, parse_exposition
from pinchpoint.web import application, serve
from polling import until

METRIC = Metric("a_bytes", "Bytes.", labels=("owner",))


@contextmanager
def answering(answer: bytes, *, pause: float = 0.0, pieces: int = 1) -> Iterator[str]:
    """Serve `answer`, whole or a piece at a time, to whoever connects; gives HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(4096)
                        for start in range(0, len(answer), max(1, len(answer) // pieces)):
                            connection.sendall(answer[start : start + max(1, len(answer) // pieces)])
                            time.sleep(pause)
                    except OSError:
                        pass

        threading.Thread(target=run, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: text/plain\r\n{headers}\r\n".encode() + body


def test_an_exporter_is_scraped_at_its_address(machine: Machine) -> None:
    server = serve(("127.0.0.1", 0), application(lambda: [METRIC.point(5, "x")], "/metrics"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    before = time.time()
    found = TargetSource(server.address).snapshot()
    server.shutdown()
    server.server_close()

    assert found.value("a_bytes", owner="x") == 5
    assert before <= found.time <= time.time()


def test_a_whole_url_is_scraped_as_it_is() -> None:
    assert TargetSource("node1:9748").url == "http://node1:9748/metrics"
    assert TargetSource("http://node1/pinchpoint").url == "http://node1/pinchpoint"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(http(b"a 1\n")) as target:
        assert TargetSource(target).snapshot().value("a") == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed connection"),
        (b"garbage\r\n\r\n", "garbage"),
        (http(b"", "503 Service Unavailable"), "503 Service Unavailable"),
        (http(b"<html>"), "not an exposition of metrics"),
        (http(b"a{b=} x\n"), "not an exposition of metrics"),
        (http(gzip.compress(b"a 1\n"), headers="Content-Encoding: gzip\r\n"), "not an exposition of metrics"),
    ],
    ids=["nothing", "no HTTP", "status", "a page", "damaged", "gzip that nobody asked for"],
)
def test_a_target_that_gives_no_metrics_is_named_with_the_reason(answer: bytes, reason: str) -> None:
    with answering(answer) as target, pytest.raises(SourceError) as caught:
        TargetSource(target).snapshot()

    assert str(caught.value).startswith(f"{target}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "target", ["", "node 1:9748", "::1:9748", "127.0.0.1:x", "http://", "x://y", "a..b:1", "http://[::1"]
)
def test_a_target_that_is_no_address_is_an_error_that_names_it(target: str) -> None:
    with pytest.raises(SourceError, match=r".*: "):
        TargetSource(target, timeout=1).snapshot()


def test_a_target_that_is_down_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(SourceError, match=f"{target}: .*refused"):
        TargetSource(target).snapshot()


def test_a_target_that_drips_its_answer_takes_no_longer_than_the_timeout() -> None:
    with answering(http(b"a 1\n" * 1000), pause=0.05, pieces=1000) as target:
        began = time.monotonic()
        with pytest.raises(SourceError, match="does not end its answer"):
            TargetSource(target, timeout=0.3).snapshot()

    assert time.monotonic() - began < 5


def test_a_target_that_never_answers_takes_no_longer_than_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(SourceError, match="timed out"):
        TargetSource(f"127.0.0.1:{listener.getsockname()[1]}", timeout=0.2).snapshot()


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    with answering(http(b'a{b="\xff"} 1\n')) as target:
        assert TargetSource(target).snapshot().value("a", b="\ufffd") == 1


def test_a_sampler_of_this_process_is_a_source_too(machine: Machine) -> None:
    source = LocalSource(Sampler([SelfCost(machine.host())]))
    found = until(10, lambda: source.snapshot().value("pinchpoint_self_resident_bytes"))
    source.close()

    assert found > 0


def test_an_exposition_is_read_into_series() -> None:
    found = parse_exposition('# TYPE a counter\na_total{b="x\\n\\"y"} 1.5\nc NaN\nd +Inf 12345\n', 7.0)

    assert found.time == 7.0
    assert found.value("a_total", b='x\n"y') == 1.5
    assert found.value("d") == float("inf")


FRAGMENTS = r"""
# TYPE a counter
# TYPE a
# TYPE "a
# HELP a
#
a{
a{b="c"
a{b="\
a{b="c"} 1 x
a{"b"} 1
a{b='c'} 1
a{,} 1
{"a",b="c"} 1
{"
a
a 1 1 1
a 0x1
a 1e9999
"""
LINES = st.sampled_from(FRAGMENTS.split("\n")) | st.text(max_size=12)


@given(st.lists(LINES, max_size=5).map("\n".join))
@example("{} 1")
@example("{, =a} 1\n")  # IndexError in prometheus_client 0.26
@example('{"a" 1')
def test_any_text_is_a_snapshot_or_a_value_error(text: str) -> None:
    try:
        found = parse_exposition(text, 1.0)
    except ValueError:
        return

    assert isinstance(found, Snapshot)
