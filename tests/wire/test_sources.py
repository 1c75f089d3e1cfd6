from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from machine import Machine
from patience import Stopwatch
from pinchpoint.build import LocalSource
from pinchpoint.metrics import HTTP_REFUSED_CONNECTIONS
from pinchpoint.model import Labels, Metric, Snapshot, Snapshots
from pinchpoint.probes.self_cost import SelfCost
from pinchpoint.sampler import Sampler
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.http import StartResponse, application, serve
from pinchpoint.wire.recording import Recorder
from pinchpoint.wire.sampletext import most_heads
from pinchpoint.wire.sources import (
    FORGET_HOST_SECONDS,
    Demand,
    PrometheusSource,
    RecordingSource,
    SourceError,
    TargetSource,
    is_here,
    parse_exposition,
)
from polling import until
from serving import serving

METRIC = Metric("a_bytes", "Bytes.", labels=("owner",))


@contextmanager
def answering(answer: bytes, *, pause: float = 0.0, pieces: int = 1) -> Iterator[str]:
    """Serve `answer`, whole or in pieces, to every client; give HOST:PORT."""
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
    app = application(lambda: [METRIC.point(5, "x")], "/metrics")
    server = serve(("127.0.0.1", 0), app, Refusals(HTTP_REFUSED_CONNECTIONS))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    before = time.time()
    found = TargetSource(server.address).snapshot()
    server.shutdown()
    server.server_close()

    assert found.value("a_bytes", owner="x") == 5
    assert before <= found.time <= time.time()


@pytest.mark.parametrize(("path", "more"), [("/metrics", ""), ("/metrics?collect=all", "collect=all&")])
def test_the_full_rate_is_asked_for_while_it_is_wanted(path: str, more: str) -> None:
    asked: list[str] = []

    def app(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        asked.append(environ["QUERY_STRING"])
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"a 1\n"]

    demand = Demand()
    server = serve(("127.0.0.1", 0), app, Refusals(HTTP_REFUSED_CONNECTIONS))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    source = TargetSource(f"http://{server.address}{path}", demand=demand)
    for full in (False, True, False):
        demand.full = full
        source.snapshot()
    server.shutdown()
    server.server_close()

    assert asked == [more.rstrip("&"), f"{more}rate=full", more.rstrip("&")]


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
        clock = Stopwatch()
        with pytest.raises(SourceError, match="timed out while sending its response"):
            TargetSource(target, timeout=0.3).snapshot()

    assert clock.tick() < 5


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


def test_a_series_that_was_read_before_is_read_in_the_same_way() -> None:
    heads: dict[str, tuple[str, Labels]] = {}
    text = 'a{b="c"} 1\na{b="d"} 2\n'

    assert parse_exposition(text, 1.0, heads) == parse_exposition(text, 1.0, heads) == parse_exposition(text, 1.0)
    assert len(heads) == 2


def test_a_server_with_new_series_for_ever_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinchpoint.wire.sources.MAX_HEADS", 10)
    heads: dict[str, tuple[str, Labels]] = {}
    found = parse_exposition("".join(f"a{number} {number}\n" for number in range(100)), 1.0, heads)

    assert len(heads) <= 10
    assert found.value("a7") == 7
    assert found.value("a99") == 99


def test_a_host_whose_processes_come_and_go_is_remembered_as_it_is_now() -> None:
    heads: dict[str, tuple[str, Labels]] = {}
    for turn in range(100):
        found = parse_exposition("".join(f'a{{run="{turn}-{number}"}} 1\n' for number in range(100)), 1.0, heads)

        assert len(heads) <= most_heads(100)
        assert found.value("a", run=f"{turn}-99") == 1


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


@contextmanager
def prometheus(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> Iterator[str]:
    result = [{"metric": metric, "values": values} for metric, values in series]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    with answering(http(body)) as target:
        yield f"http://{target}"


def scraped(name: str, instance: str, *values: tuple[float, str], **labels: str) -> Any:
    return {"__name__": name, "instance": instance, "job": "pinchpoint", **labels}, list(values)


CPU = "pinchpoint_thread_cpu_seconds_total"


def test_a_prometheus_server_gives_each_instance_with_the_times_of_its_samples() -> None:
    with prometheus(
        scraped(CPU, "a:1", (10.5, "1"), (12.5, "2"), role="r", owner="o"),
        scraped(CPU, "b:1", (11.25, "+Inf"), role="r", owner="o"),
    ) as url:
        found = PrometheusSource(url).snapshots()

    assert {name: one.time for name, one in found.items()} == {"a:1": 12.5, "b:1": 11.25}
    assert found["a:1"].value(CPU, role="r", owner="o") == 2.0
    assert found["b:1"].value(CPU, role="r", owner="o") == float("inf")


def test_a_series_that_has_ended_is_not_in_the_newest_scrape() -> None:
    with prometheus(
        scraped(CPU, "a:1", (10.5, "1"), (12.5, "2"), role="r", owner="o"),
        scraped(CPU, "a:1", (10.5, "7"), role="r", owner="gone"),
    ) as url:
        found = PrometheusSource(url).snapshots()

    assert list(found["a:1"].values[CPU]) == [(("owner", "o"), ("role", "r"))]


def test_labels_that_prometheus_adds_or_renames_are_those_of_the_exporter_again() -> None:
    with prometheus(scraped(CPU, "a:1", (1, "1"), role="site", exported_role="r", owner="o", datacenter="x")) as url:
        found = PrometheusSource(url).snapshots()

    assert found["a:1"].value(CPU, role="r", owner="o") == 1.0


def test_a_metric_of_a_newer_exporter_keeps_its_labels() -> None:
    with prometheus(scraped("pinchpoint_new", "a:1", (1, "1"), kind="x")) as url:
        assert PrometheusSource(url).snapshots()["a:1"].value("pinchpoint_new", kind="x") == 1.0


def test_hosts_that_another_source_has_are_left_out() -> None:
    with prometheus(scraped("pinchpoint_new", "a:1", (1, "1")), scraped("pinchpoint_new", "b:1", (1, "1"))) as url:
        source = PrometheusSource(url, leave_out=lambda instance: instance == "a:1")

        assert source.snapshots().keys() == {"b:1"}


def test_an_instance_that_is_not_scraped_any_more_is_named() -> None:
    with prometheus(scraped("pinchpoint_new", "a:1", (1, "1")), scraped("pinchpoint_new", "b:1", (1, "1"))) as url:
        now = [0.0]
        source = PrometheusSource(url, clock=lambda: now[0])
        source.snapshots()
    with prometheus(scraped("pinchpoint_new", "a:1", (3, "1"))) as url:
        source.name = url

        assert source.snapshots().keys() == {"a:1"}
        assert source.problems == {"b:1": f"Prometheus at {url} has no samples of the last 15 s"}
        now[0] = FORGET_HOST_SECONDS
        source.snapshots()
        assert source.problems == {}, "it has gone for good"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b'{"status":"error","error":"too many samples"}', "too many samples"),
        (b"<html>a page</html>", "no answer of a Prometheus server"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "compose/prometheus.yml"),
        (
            b'{"status":"success","data":{"result":[{"metric":{"__name__":"pinchpoint_x"},"values":[[1,"one"]]}]}}',
            "pinchpoint_x has the value 'one'",
        ),
    ],
    ids=["its error", "a page", "nothing of ours", "no number"],
)
def test_a_prometheus_server_that_gives_no_hosts_is_named_with_the_reason(answer: bytes, reason: str) -> None:
    with answering(http(answer)) as target, pytest.raises(SourceError) as caught:
        PrometheusSource(f"http://{target}").snapshots()

    assert str(caught.value).startswith(f"http://{target}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:9090", "http://127.0.0.1:1", "http://[::1"])
def test_a_prometheus_server_that_cannot_be_asked_is_told_with_the_way_out(url: str) -> None:
    with pytest.raises(SourceError, match="; a server's address is needed, such as http") as caught:
        PrometheusSource(url).snapshots()

    assert str(caught.value).startswith(f"{url}: ")


class Server:
    """A Prometheus whose hosts have been scraped at least once; it records the requested instances."""

    def __init__(self) -> None:
        self.scrapes: dict[str, list[tuple[float, dict[str, str]]]] = {}
        """By instance: times, and values by series name."""
        self.asked: list[list[str]] = []
        self.now = 1000.0
        """Unix time in seconds of queries that give none."""

    def scrape(self, instance: str, at: float, **values: str) -> None:
        self.scrapes.setdefault(instance, []).append((at, {"pinchpoint_sampler_priority_info": "1", **values}))

    def answer(self, path: str) -> bytes:
        question = parse_qs(urlsplit(path).query)
        (query,) = question["query"]
        last = float(question.get("time", [f"{self.now}"])[0])
        selector, _, seconds = query.removesuffix("ms]").rpartition("[")
        (named,) = re.findall(r'__name__=~?"(.*?)"', selector)
        pattern = re.search(r'instance=~"(.*)"}', selector)
        if pattern:
            fits = re.compile(json.loads(f'"{pattern[1]}"'))
            self.asked.append([host for host in self.scrapes if fits.fullmatch(host)])
        result: dict[tuple[str, str], list[tuple[float, str]]] = {}
        for host, scrapes in self.scrapes.items():
            for at, values in scrapes:
                for name, value in values.items():
                    fits_both = (not pattern or fits.fullmatch(host)) and re.fullmatch(named, name)
                    if fits_both and last - float(seconds) / 1000 <= at <= last:
                        result.setdefault((host, name), []).append((at, value))
        found = [
            {"metric": {"__name__": name, "instance": host}, "values": values}
            for (host, name), values in result.items()
        ]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode()


@pytest.fixture
def server() -> Iterator[tuple[Server, PrometheusSource]]:
    server = Server()
    with serving(server.answer) as address:
        source = PrometheusSource(f"http://{address}")
        yield server, source
        source.close()


def values_of(snapshots: Snapshots, name: str) -> dict[str, float | None]:
    return {host: snapshot.value(name) for host, snapshot in snapshots.items()}


def test_a_prometheus_server_is_asked_once_for_each_scrape(server: tuple[Server, PrometheusSource]) -> None:
    prometheus, source = server
    prometheus.scrape("a:1", 990.0, pinchpoint_x="1")
    prometheus.scrape("b:1", 991.0, pinchpoint_x="2")
    assert values_of(source.snapshots(), "pinchpoint_x") == {"a:1": 1.0, "b:1": 2.0}
    prometheus.scrape("b:1", 993.0, pinchpoint_x="3")
    assert values_of(source.snapshots(), "pinchpoint_x") == {"a:1": 1.0, "b:1": 3.0}
    source.snapshots()

    assert prometheus.asked == [["a:1", "b:1"], ["b:1"]]


def test_a_server_is_asked_for_the_metrics_that_are_wanted_and_for_the_clock_of_each_host() -> None:
    prometheus = Server()
    prometheus.scrape("a:1", 990.0, pinchpoint_x_total="1", pinchpoint_x_total_more="2", pinchpoint_y="3")
    with serving(prometheus.answer) as address:
        found = PrometheusSource(f"http://{address}", names=["pinchpoint_x_total"]).snapshots()

    assert found["a:1"].values.keys() == {"pinchpoint_x_total", "pinchpoint_sampler_priority_info"}


@pytest.fixture
def steady() -> Iterator[tuple[Server, PrometheusSource]]:
    server = Server()
    with serving(server.answer) as address:
        names = ["pinchpoint_x_total", "pinchpoint_limit", "pinchpoint_fact"]
        yield server, PrometheusSource(f"http://{address}", names=names, steady=names[1:])


def seen(steady: tuple[Server, PrometheusSource], at: float, **values: str) -> tuple[float | None, float | None]:
    """Let a host be scraped; return its limit and its fact then."""
    server, source = steady
    server.now = at
    server.scrape(
        "a:1", at, pinchpoint_x_total=f"{at}", **{f"pinchpoint_{name}": value for name, value in values.items()}
    )
    found = source.snapshots()["a:1"]
    if found.time == at:
        assert found.value("pinchpoint_x_total") == at
    return found.value("pinchpoint_limit"), found.value("pinchpoint_fact")


def test_steady_metrics_are_asked_for_every_15_seconds_and_stay_as_they_were_in_between(
    steady: tuple[Server, PrometheusSource],
) -> None:
    assert [seen(steady, at, limit="7", fact="1") for at in (1000.0, 1002.0)] == [(7, 1), (7, 1)]
    assert [seen(steady, at, limit="8", fact="1") for at in (1004.0, 1016.0)] == [(7, 1), (7, 1)]
    assert [seen(steady, at, limit="9", fact="1") for at in (1017.0, 1019.0)] == [(9, 1), (9, 1)]


def test_a_host_that_is_new_or_was_lost_is_asked_for_steady_metrics_twice(
    steady: tuple[Server, PrometheusSource],
) -> None:
    """Its first scrape may have come in part."""
    assert [seen(steady, 1000.0), seen(steady, 1002.0, limit="7"), seen(steady, 1004.0, limit="8")] == [
        (None, None), (7, None), (7, None)
    ]  # fmt: skip
    server, source = steady
    server.now = 1030.0
    server.scrape("b:1", 1030.0)
    assert "a:1" not in source.snapshots()
    assert seen(steady, 1032.0, limit="9") == (9, None)


def test_a_steady_series_that_has_ended_is_gone_after_two_questions(steady: tuple[Server, PrometheusSource]) -> None:
    for at in (1000.0, 1002.0):
        assert seen(steady, at, limit="7", fact="1") == (7, 1)
    found = [seen(steady, at, limit="8") for at in (1004.0, 1017.0, 1019.0, 1021.0)]

    # The first whole answer that lacks a series may have come in part.
    assert found == [(7, 1), (7, 1), (8, None), (8, None)]


def test_a_host_that_is_scraped_rarely_is_lost_after_some_scrapes(server: tuple[Server, PrometheusSource]) -> None:
    prometheus, source = server
    for at in (950.0, 965.0, 980.0):
        prometheus.scrape("rarely:1", at)
    for at in (980.0, 982.0, 984.0):
        prometheus.scrape("lost:1", at)
    prometheus.scrape("new:1", 999.5)

    found = source.snapshots()

    assert {host: snapshot.lasts for host, snapshot in found.items()} == {"rarely:1": 37.5, "new:1": 37.5}
    prometheus.scrape("lost:1", 986.0)
    assert source.snapshots()["lost:1"].lasts == 5.0


def test_a_scrape_that_has_come_in_part_is_taken_when_it_is_whole(server: tuple[Server, PrometheusSource]) -> None:
    """Remote write sends a scrape in several pieces."""
    prometheus, source = server
    prometheus.scrape("a:1", 990.0, pinchpoint_x="1", pinchpoint_y="1")
    source.snapshots()
    prometheus.scrape("a:1", 992.0, pinchpoint_x="2")
    assert source.snapshots()["a:1"].time == 990.0
    prometheus.scrape("a:1", 992.0, pinchpoint_y="2")
    found = source.snapshots()["a:1"]

    assert (found.time, found.value("pinchpoint_x"), found.value("pinchpoint_y")) == (992.0, 2.0, 2.0)


def test_a_series_that_is_gone_for_good_holds_a_host_back_once(server: tuple[Server, PrometheusSource]) -> None:
    prometheus, source = server
    prometheus.scrape("a:1", 990.0, pinchpoint_x="1", pinchpoint_y="1")
    source.snapshots()
    prometheus.scrape("a:1", 992.0, pinchpoint_x="2")

    assert [source.snapshots()["a:1"].time for _ in range(2)] == [990.0, 992.0]


def test_hosts_are_asked_for_by_their_very_names_and_a_hundred_at_a_time(
    server: tuple[Server, PrometheusSource],
) -> None:
    prometheus, source = server
    names = ["a.b:1", "[::1]:9748", 'a"\\b', *(f"host{number}:1" for number in range(240))]
    for name in names:
        prometheus.scrape(name, 990.0, pinchpoint_x="1")

    assert source.snapshots().keys() == set(names)
    assert [len(asked) for asked in prometheus.asked] == [100, 100, 43]


def moment(time: float) -> Snapshots:
    return {"a": Snapshot(time, {"a": {(): time}})}


def recorded(path: Path, *moments: Snapshots) -> RecordingSource:
    recorder = Recorder(path)
    for moment in moments:
        recorder.add(moment, {"a": ("gauge", "A.")})
    recorder.close()
    return RecordingSource(path)


def test_a_recording_is_a_source_with_a_position_in_time(tmp_path: Path) -> None:
    moments = [moment(second) for second in (10.0, 11.0, 12.0)]
    source = recorded(tmp_path / "r", *moments)

    assert source.time == 10.0
    assert list(source.advance(11.5)) == moments[:2]
    assert (source.snapshots(), source.time, source.ended) == (moments[1], 11.0, False)
    assert list(source.advance(11.9)) == []
    assert list(source.advance(float("inf"))) == moments[2:]
    assert (source.snapshots(), source.ended) == (moments[2], True)
    source.close()


def test_before_its_first_moment_a_recording_has_nothing_to_show(tmp_path: Path) -> None:
    source = recorded(tmp_path / "r", moment(10.0))

    assert list(source.advance(9.0)) == []
    with pytest.raises(SourceError, match="has not been read yet"):
        source.snapshots()


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "has no samples"), (b"garbage", "not a recording"), (None, "No such")]
)
def test_a_recording_that_holds_nothing_is_an_error_that_names_it(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "r"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SourceError, match=f"^{path}: {reason}"):
        RecordingSource(path)


@pytest.mark.parametrize("target", ["127.0.0.1:9748", "localhost:1", "http://127.0.0.1/metrics", "[::1]:9748"])
def test_a_loopback_address_is_this_machine(target: str) -> None:
    assert is_here(target)


@pytest.mark.parametrize("target", ["192.0.2.1:9748", "", "http://", "[::1", "no.such.host.invalid:1"])
def test_an_address_elsewhere_and_one_that_is_none_are_not_this_machine(target: str) -> None:
    assert not is_here(target)


def test_the_loopback_of_a_server_elsewhere_is_that_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_here("127.0.0.1:9748", "http://localhost:9090")
    assert not is_here("127.0.0.1:9748", "http://192.0.2.1:9090")
