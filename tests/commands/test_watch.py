from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from click.testing import CliRunner, Result

from patience import Deadline
from pinchpoint.commands import watch
from pinchpoint.commands.watch import command
from pinchpoint.probes import PROBES
from serving import serving

PATIENCE = 30.0
"""Seconds after which a test gives up waiting."""


def exposition(path: str) -> str:
    """Return the exposition of an exporter whose kswapd is always full, however late it is read."""
    busy = 10 * time.time()  # A share of time is at most 1.
    return (
        f'pinchpoint_resource_busy_seconds_total{{resource="kswapd",owner="node0",serves="memory"}} {busy}\n'
        f'pinchpoint_resource_saturated_seconds_total{{resource="kswapd",owner="node0",serves="memory"}} {busy}\n'
        'pinchpoint_resource_threshold_ratio{resource="kswapd"} 0.8\n'
        'pinchpoint_phase_active{benchmark="fio",run="r1",phase="write"} 1\n'
    )


@contextmanager
def trickling() -> Iterator[str]:
    """Serve an answer that never ends and never pauses for long."""
    stop = Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not stop.wait(0.02):
                connection.sendall(b"#")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=trickle)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()


@pytest.fixture
def exporter() -> Iterator[str]:
    with serving(exposition) as target:
        yield target


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SCRAPE_TIMEOUT_SECONDS", 1.0)


def once(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--once", "--interval", "0.1", *arguments])


def test_once_prints_one_picture_as_plain_text(exporter: str) -> None:
    result = once("--target", exporter)

    assert result.exit_code == 0
    assert f"{exporter} (exporter)  fio write" in result.output
    assert re.search(r"kswapd +node0 .* \d+% +\d+% FULL\n", result.output)
    assert all(line.isprintable() and len(line) <= 80 for line in result.output.splitlines())


def test_once_waits_until_what_runs_can_be_judged() -> None:
    began = time.time()

    def exposition(path: str) -> str:
        spent = f'pinchpoint_workload_seconds_total{{benchmark="fio",run="r",wait="cpu"}} {time.time() - began}\n'
        return f'{spent}pinchpoint_workload_owner_info{{benchmark="fio",run="r",owner="fio"}} 1\n'

    with serving(exposition) as target:
        result = once("--target", target)

    assert "fio: latency-bound" in result.output


def test_targets_may_be_in_a_list_or_repeated_and_are_watched_once(exporter: str, nobody: str) -> None:
    result = once("--target", f"{exporter},{nobody}", "--target", exporter)

    assert result.output.count(exporter) == 1
    assert re.search(rf"{nobody}  DOWN for 0:0.: Connection refused", result.output)
    assert result.exit_code == 0


def test_the_status_is_1_when_every_target_is_down(nobody: str) -> None:
    assert once("--target", nobody).exit_code == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<!doctype html>\n<p>hello", "not an exposition of metrics"),
        ("", "has no metrics of Pinchpoint"),
        ("node_load1 0.5\n", "has no metrics of Pinchpoint"),
        ('pinchpoint_threads{role="x', "not an exposition of metrics"),
        ("\x00\xff\x1b[2J", "not an exposition of metrics"),
    ],
)
def test_a_target_that_is_no_exporter_is_down_and_the_others_go_on(body: str, reason: str, exporter: str) -> None:
    with serving(lambda path: body) as target:
        result = once("--target", target, "--target", exporter)

    assert re.search(rf"{target}  DOWN for 0:0.: .*{reason}", result.output)
    assert "kswapd" in result.output
    assert "Traceback" not in result.output
    assert result.exit_code == 0


@pytest.mark.usefixtures("impatient")
def test_a_target_that_is_silent_is_down_and_holds_up_nobody(exporter: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        result = once("--target", silent, "--target", exporter)

    assert re.search(rf"{silent}  DOWN for 0:0.: .*timed out", result.output)
    assert "kswapd" in result.output


@pytest.mark.usefixtures("impatient")
def test_a_target_whose_answer_never_ends_is_down_and_holds_up_nobody(exporter: str) -> None:
    with trickling() as target:
        result = once("--target", target, "--target", exporter)

    assert re.search(rf"{target}  DOWN for 0:0.: timed out while sending its response", result.output)
    assert "kswapd" in result.output


def test_every_host_of_a_prometheus_server_is_watched() -> None:
    """The server has scraped both once more between the first query and each later one."""
    asked = count(1)

    def answer(path: str) -> str:
        now = 1000.0 + next(asked)
        series = [
            {
                "metric": {"__name__": name, "instance": instance, "resource": "kswapd", "owner": "node0"},
                "values": [[now, str(now)]],
            }
            for instance in ("a:9748", "b:9748")
            for name in ("pinchpoint_resource_busy_seconds_total", "pinchpoint_resource_saturated_seconds_total")
        ]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})

    with serving(answer) as target:
        result = once("--prometheus", f"http://{target}")

    assert "a:9748 (by Prometheus)" in result.output
    assert "b:9748 (by Prometheus)" in result.output
    assert len(re.findall(r"kswapd +node0 .* \d+% +\d+% FULL\n", result.output)) == 2
    assert result.exit_code == 0


def test_a_prometheus_server_that_is_down_is_one_line(nobody: str) -> None:
    result = once("--prometheus", f"http://{nobody}")

    assert re.search(rf"http://{nobody}  DOWN for 0:0.: Connection refused", result.output)
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "node1"], "'node1' is not HOST:PORT"),
        (["--target", "a:1,,b:2"], "has an empty target"),
        (["--target", ":9748"], "names no host"),
        (["--target", "file:///etc/passwd"], "only http and https"),
        (["--interval", "nan"], "is not a number"),
        (["--interval", "0"], "not in the range"),
    ],
)
def test_a_wrong_argument_is_told_in_one_line(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(command, ["--once", *arguments])

    assert result.exit_code == 2
    assert message in result.output.splitlines()[-1]


def test_a_wrong_configuration_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "pinchpoint.toml"
    file.write_text("nonsense = 1\n")

    result = once("--config.file", str(file))

    assert result.exit_code == 2
    assert result.output.startswith(f"pinchpoint: {file}: ")
    assert len(result.output.splitlines()) == 1


def test_an_exporter_on_this_host_is_used(exporter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PORT", int(exporter.partition(":")[2]))

    assert f"{exporter} (exporter)" in once().output


def test_without_an_exporter_this_host_is_sampled(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PORT", int(nobody.partition(":")[2]))
    file = tmp_path / "pinchpoint.toml"
    # One probe is enough here.
    file.write_text("[probe]\n" + "".join(f"{probe.name} = {str(probe.name == 'self').lower()}\n" for probe in PROBES))

    result = once("--config.file", str(file))

    assert result.exit_code == 0
    assert f"{socket.gethostname()} (sampled here)" in result.output


def run(*arguments: str, **keywords: object) -> subprocess.Popen[bytes]:
    arguments = (sys.executable, "-m", "pinchpoint", "watch", "--interval", "0.1", *arguments)
    return subprocess.Popen(arguments, **keywords)  # type: ignore[call-overload,no-any-return]


def test_without_a_terminal_pictures_follow_one_another_until_the_pipe_breaks(exporter: str) -> None:
    process = run("--target", exporter, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as output, process.stderr as errors:
        lines = [output.readline().decode().rstrip("\n") for _ in range(20)]
        output.close()
        process.wait(PATIENCE)

        headers = [index for index, line in enumerate(lines) if line.startswith(exporter)]
        assert len(headers) > 1
        assert all(lines[index - 1] == "" for index in headers[1:])
        assert errors.read() == b""


class Terminal:
    """The live view on a pseudo-terminal."""

    def __init__(self, *arguments: str) -> None:
        self.master, self.slave = pty.openpty()
        self.settings = self._settings()
        self.process = run(
            *arguments,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        self.seen = b""
        self.read_until(b"kswapd")

    def _settings(self) -> list[object]:
        return list(termios.tcgetattr(self.slave))

    def read_until(self, text: bytes) -> None:
        os.set_blocking(self.master, False)
        deadline = Deadline(PATIENCE)
        while text not in self.seen and not deadline.over:
            try:
                self.seen += os.read(self.master, 65536)
            except BlockingIOError:
                time.sleep(0.01)
        assert text in self.seen

    def end(self) -> int:
        """Wait for its end and return the status; the terminal's settings must be as before."""
        self.read_until(b"\x1b[?1049l")
        status = self.process.wait(PATIENCE)
        assert self._settings() == self.settings
        assert b"\x1b[?25h" in self.seen  # the cursor is visible again
        assert b"Traceback" not in self.seen
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(exporter: str) -> Iterator[Terminal]:
    terminal = Terminal("--target", exporter)
    yield terminal
    terminal.close()


def test_q_leaves_the_terminal_as_it_was(terminal: Terminal) -> None:
    os.write(terminal.master, b"q")

    assert terminal.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_terminal_as_it_was(terminal: Terminal, number: int, status: int) -> None:
    terminal.process.send_signal(number)

    assert terminal.end() == status
