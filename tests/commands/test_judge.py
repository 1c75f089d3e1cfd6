from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from diagnosis.history import MadeHost
from patience import Stopwatch, patience
from pinchpoint.cli import main
from pinchpoint.wire.sources import parse_exposition
from polling import until
from serving import serving

PROMPT = 5.0
"""Seconds of an idle machine: less than a source may hang."""


class Judge:
    """A judge that runs as a separate process."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pinchpoint", "judge", "--web.listen-address=127.0.0.1:0", *arguments],
                stderr=output,
            )
        found = until(30, lambda: self.process.poll() is not None or re.search(r"listens on (\S+)\n", self.log))
        assert isinstance(found, re.Match), self.log
        self.url = f"http://{found[1]}"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=patience(10), trust_env=False)

    def said(self) -> Any:
        return self.ask("/api/v1/verdicts").json()

    def words(self) -> dict[str, str]:
        """Return the verdict on each run."""
        return {run["run"]: run["verdict"]["words"] for run in self.said()["runs"]}

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and return how long its end took, in seconds of an idle machine."""
        clock = Stopwatch()
        self.process.send_signal(number)
        self.process.wait(patience(20))
        return clock.tick()


Start = Callable[..., Judge]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start judges that end with the test."""
    judges: list[Judge] = []

    def begin(*arguments: str) -> Judge:
        judges.append(Judge(tmp_path / f"judge-{len(judges)}.log", *arguments))
        return judges[-1]

    yield begin
    for judge in judges:
        judge.process.kill()
        judge.process.wait()


class Exporters:
    """Servers of made-up hosts whose counters grow every second."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def add(self, host: MadeHost) -> str:
        """Serve a host whose counters keep growing at its rate; return HOST:PORT."""
        began = time.time()
        return self._stack.enter_context(serving(lambda path: exposition(host, time.time() - began)))

    def answer(self, answer: Callable[[str], str | bytes]) -> str:
        return self._stack.enter_context(serving(answer))


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    with ExitStack() as stack:
        yield Exporters(stack)


def exposition(host: MadeHost, seconds: float) -> str:
    """Return the exposition of the host's exporter after so many seconds."""
    before, after = host.pair()
    lines = []
    for name, series in after.values.items():
        for labels, value in series.items():
            rate = (value - before.values[name][labels]) / host.seconds
            text = ",".join(f'{key}="{word}"' for key, word in labels)
            lines.append(f"{name}{{{text}}} {before.values[name][labels] + rate * seconds}\n")
    return "".join(lines)


def client(run: str, wait: str = "mds") -> MadeHost:
    return MadeHost().works({wait: 1.0}, run=run)


def server() -> MadeHost:
    return MadeHost().resource("mds_lock", "mds.a", 0.95, "mds", runqueue=0.0)


def test_what_limits_each_run_is_said_as_json_as_metrics_and_as_a_page(start: Start, exporters: Exporters) -> None:
    targets = [exporters.add(client("one")), exporters.add(client("two", "cpu")), exporters.add(server())]
    judge = start("--target", ",".join(targets))

    def named() -> set[tuple[str, str, str]]:
        metrics = parse_exposition(judge.ask("/metrics").text, 0.0)
        return {
            (labels["run"], labels["resource"], labels["host"])
            for labels, _ in metrics.series("pinchpoint_verdict_info")
        }

    # A verdict needs two readings of each host, and the server's to know what the first run waits for.
    assert until(30, lambda: judge.words().keys() == {"one", "two"}), judge.said()
    assert until(30, lambda: judge.words().get("one") == "limited by mds_lock of mds.a"), judge.said()
    assert until(30, lambda: ("one", "mds_lock", targets[2]) in named()), named()
    assert until(30, lambda: "limited by mds_lock of mds.a" in judge.ask("/").text)
    assert judge.ask("/-/healthy").status_code == 200
    assert judge.ask("/runbooks/MdsLockSaturated").status_code == 200


def test_hosts_that_hang_are_gone_or_talk_nonsense_blind_only_themselves(start: Start, exporters: Exporters) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        bad = {
            f"127.0.0.1:{deaf.getsockname()[1]}": "timed out|no answer",
            exporters.answer(lambda path: "<html>hello"): "not an exposition",
            exporters.answer(lambda path: "node_load1 1\n"): "no metrics of Pinchpoint",
            exporters.answer(lambda path: b"\xff\x00" * 1000): "not an exposition",
            "127.0.0.1:9": "refused",
        }
        judge = start("--target", ",".join([exporters.add(client("one")), exporters.add(server()), *bad]))

        assert until(30, lambda: judge.words() == {"one": "limited by mds_lock of mds.a"})

        def problems() -> dict[str, str]:
            return {problem["source"]: problem["reason"] for problem in judge.said()["problems"]}

        assert until(30, lambda: problems().keys() == bad.keys()), problems()
        for source, reason in bad.items():
            assert re.search(reason, problems()[source]), problems()
        assert "Traceback" not in judge.log


def test_files_of_targets_are_read_again_and_a_malformed_one_keeps_its_targets(
    start: Start, exporters: Exporters, tmp_path: Path
) -> None:
    one, two = exporters.add(client("one", "cpu")), exporters.add(client("two", "cpu"))
    path = tmp_path / "targets.yml"
    path.write_text(f"- targets: ['{one}']\n")
    judge = start("--targets-file", str(path))
    assert until(30, lambda: judge.words().keys() == {"one"})

    path.write_text(f"- targets: ['{one}', '{two}'\n")
    assert until(30, lambda: any(problem["source"] == str(path) for problem in judge.said()["problems"]))
    assert until(30, lambda: judge.words().keys() == {"one"})
    assert f"{path}:" in judge.log

    path.write_text(f"- targets: ['{two}']\n")
    assert until(30, lambda: judge.words().keys() == {"two"})


def test_one_that_was_killed_goes_on_when_it_is_started_again(start: Start, exporters: Exporters) -> None:
    targets = ",".join([exporters.add(client("one")), exporters.add(server())])
    first = start("--target", targets)
    assert until(30, first.words)
    first.end(signal.SIGKILL)

    second = start("--target", targets)

    assert until(30, lambda: second.words() == {"one": "limited by mds_lock of mds.a"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to_whatever_hangs(start: Start, number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        judge = start("--target", f"127.0.0.1:{deaf.getsockname()[1]}")

        assert judge.end(number) < PROMPT
    assert judge.process.returncode == 0
    assert "Traceback" not in judge.log


def test_a_server_that_scrapes_the_hosts_may_be_asked_instead(start: Start, exporters: Exporters) -> None:
    began = time.time()

    def prometheus(path: str) -> str:
        now = time.time()
        host = client("one", "cpu")
        result = [
            {
                "metric": {"__name__": name, "instance": "client1:9748", "job": "pinchpoint", **dict(labels)},
                "values": [[now, str(before + (value - before) / host.seconds * (now - began))]],
            }
            for name, series in host.pair()[1].values.items()
            for labels, value in series.items()
            for before in [host.pair()[0].values[name][labels]]
        ]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})

    judge = start("--prometheus", f"http://{exporters.answer(prometheus)}")

    assert until(30, lambda: judge.words().keys() == {"one"})
    assert [host["host"] for host in judge.said()["hosts"]] == ["client1:9748"]


def test_what_a_judge_says_can_be_watched_in_a_terminal(start: Start, exporters: Exporters) -> None:
    judge = start("--target", ",".join([exporters.add(client("one")), exporters.add(server())]))
    assert until(30, lambda: judge.words() == {"one": "limited by mds_lock of mds.a"})

    shown = CliRunner().invoke(main, ["watch", "--once", "--judge", judge.url])
    gone = CliRunner().invoke(main, ["watch", "--once", "--judge", "127.0.0.1:9"])

    assert (shown.exit_code, gone.exit_code) == (0, 1)
    assert "fio: limited by mds_lock of mds.a" in shown.stdout
    assert "refused" in gone.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no hosts to ask: give --target, --targets-file or --prometheus; see pinchpoint judge --help"),
        (["--target", "a:1", "--web.listen-address", "9749"], "'9749' is not HOST:PORT, :PORT or [IPV6]:PORT"),
    ],
)
def test_what_it_cannot_start_with_is_one_line(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["judge", *arguments])

    assert (result.exit_code, result.stderr) == (2, f"pinchpoint: {message}\n")


def test_a_port_that_is_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(main, ["judge", "--target", "a:1", "--web.listen-address", address])

    assert result.exit_code == 2
    assert f"can't listen on {address}: Address already in use" in result.stderr
