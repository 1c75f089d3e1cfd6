"""TLS and passwords from end to end: curl, a real Prometheus, and Pinchpoint's own commands ask an exporter."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest
from click.testing import CliRunner

from certificates import authority, issue
from patience import patience
from pinchpoint.cli import main
from pinchpoint.metrics import WEB_CONFIG_RELOAD_TIME
from polling import get_json, until
from ports import free_port

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
ALL = f"""
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
  client_allowed_sans: [scraper]
basic_auth_users:
  alice: {HASH}
"""
CLIENT = """
basic_auth: {username: alice, password_file: password}
tls_config: {ca_file: ca.pem, cert_file: scraper.pem, key_file: scraper.key, server_name: exporter.example}
"""
JOBS, SWAPS = 8, 12
"""Jobs of Prometheus, and certificates that replace one another while they scrape."""
NO_CERTIFICATE = "tls_server_config:\n  cert_file: nowhere\n  key_file: server.key\n"
NO_KEY = "tls_server_config:\n  cert_file: server.pem\n  key_file: nowhere\n"
SCRAPES = "sum(count_over_time(up[1h]))"
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    ca = authority(directory)
    for name, host in (("server", "exporter.example"), ("next", "exporter.example"), ("scraper", "scraper")):
        issue(ca, directory, name, f"DNS:{host}", "IP:127.0.0.1")
    issue(ca, directory, "stranger", "DNS:stranger")
    (directory / "password").write_text("secret\n")
    (directory / "web.yml").write_text(ALL)
    (directory / "http.yml").write_text(CLIENT)
    return directory


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "tls"))


class Service:
    """An exporter or a judge that runs as a separate process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        found = until(30, lambda: self.process.poll() is not None or re.findall(r"listens on (\S+)\n", self.log), 0.02)
        assert isinstance(found, list), self.log
        self.addresses = found

    @property
    def log(self) -> str:
        return self._log.read_text()


Start = Callable[..., Service]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start services on free ports of the loopback interface; they end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(command: str, *flags: str, starter: tuple[str, ...] = ()) -> Service:
        log = tmp_path / f"log{len(started)}"
        own = [f"--path.runs={tmp_path / 'runs'}"] if command == "exporter" else []
        with log.open("wb") as stderr:
            argv = [*starter, sys.executable, "-m", "pinchpoint", command, *own, *flags]
            started.append(subprocess.Popen(argv, stdout=stderr, stderr=stderr, cwd="/"))
        return Service(started[-1], log)

    yield run
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.wait()


def exporter(start: Start, directory: Path, *flags: str) -> str:
    """Start an exporter that wants everything; return its address."""
    found = start("exporter", "--web.listen-address=127.0.0.1:0", f"--web.config.file={directory / 'web.yml'}", *flags)
    return str(found.addresses[0])


def curl(directory: Path, address: str, *options: str, path: str = "/-/healthy") -> tuple[int, str]:
    """Return curl's exit status and what it printed, which ends with the status of the answer."""
    command = ["curl", "--silent", "--show-error", "--write-out", "%{http_code}", "--cacert", "ca.pem", *options]
    command += ["--max-time", str(patience(20)), f"https://{address}{path}"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def certificate(name: str) -> tuple[str, ...]:
    return "--cert", f"{name}.pem", "--key", f"{name}.key"


def test_curl_is_answered_with_an_allowed_certificate_and_the_password_alone(directory: Path, start: Start) -> None:
    address = exporter(start, directory)
    user = ("--user", "alice:secret")

    assert curl(directory, address, *certificate("scraper"), *user) == (0, "Pinchpoint is healthy.\n200")
    assert curl(directory, address, *certificate("scraper")) == (0, "Unauthorized\n401")
    assert curl(directory, address, *certificate("stranger"), *user)[0] != 0
    assert curl(directory, address, *user)[0] != 0
    assert curl(directory, address, *certificate("scraper"), *user, "--tls-max", "1.1")[0] != 0


@contextmanager
def prometheus(directory: Path, address: str) -> Iterator[str]:
    """Run a Prometheus with several jobs that scrape one exporter every second or more seldom; give its URL."""
    interval = math.ceil(patience(0.25))
    job = "".join(f"  {line}\n" for line in CLIENT.strip().splitlines())
    job += f"  static_configs: [{{targets: ['{address}']}}]\n"
    jobs = "".join(f"- job_name: job{number}\n  scheme: https\n{job}" for number in range(JOBS))
    head = f"global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s}}\nscrape_configs:\n"
    (directory / "prometheus.yml").write_text(head + jobs)
    port = free_port()
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
             "--storage.tsdb.path=data"], cwd=directory, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def value(url: str, query: str) -> float:
    """Return the value of a query; 0 if it has none, or if Prometheus is only starting."""
    with suppress(httpx.HTTPError):
        found = get_json(f"{url}/api/v1/query?query={query}")["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0
    return 0.0


def errors(url: str) -> set[str]:
    """Return why scrapes failed last."""
    return {target["lastError"] for target in get_json(f"{url}/api/v1/targets")["data"]["activeTargets"]}


@needs_prometheus
def test_prometheus_scrapes_while_certificates_are_replaced_and_no_scrape_fails(directory: Path, start: Start) -> None:
    address = exporter(start, directory)
    with prometheus(directory, address) as url:
        assert until(30, lambda: value(url, "sum(up)") == JOBS), errors(url)
        for number in range(SWAPS):
            # One after the other, as certbot does it: in between, the key does not belong to the certificate.
            for name in ("server.pem", "server.key"):
                other = directory / name.replace("server", "next")
                (directory / "new").write_bytes(other.read_bytes())
                other.write_bytes((directory / name).read_bytes())
                (directory / "new").rename(directory / name)
            least = value(url, SCRAPES) + 2

            def scraped(least: float = least) -> bool:
                return value(url, SCRAPES) >= least

            assert until(30, scraped), (number, errors(url))

        assert value(url, SCRAPES) >= 2 * SWAPS
        assert value(url, f"{SCRAPES}-sum(sum_over_time(up[1h]))") == 0, errors(url)
        assert value(url, f"max(changes({WEB_CONFIG_RELOAD_TIME.name}[1h]))") > 0
        # A scrape between certificate and key finds a failed reload: each job has to scrape after the last one.
        assert until(30, lambda: value(url, "min(pinchpoint_web_config_last_reload_successful)") == 1), errors(url)


def invoked(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_check_and_watch_ask_an_exporter_that_wants_everything(directory: Path, start: Start) -> None:
    address = exporter(start, directory)
    file = str(directory / "http.yml")

    status, said = invoked("check", "--target", address, "--http-config", file, "--json")
    assert status in (0, 1), said
    assert [host for host in json.loads(said)["hosts"] if "127.0.0.1" in str(host)]
    status, said = invoked("watch", "--once", "--target", address, "--http-config", file)
    assert status == 0, said


def test_without_the_file_the_reason_is_shown(directory: Path, start: Start) -> None:
    address = exporter(start, directory)

    status, said = invoked("check", "--target", address, "--json")
    assert status == 2
    assert "400 Bad Request" in said


def test_a_judge_asks_over_tls_and_is_itself_protected(directory: Path, start: Start) -> None:
    address = exporter(start, directory)
    (directory / "targets.yml").write_text(f"- targets: ['{address}']\n")
    judge = start(
        "judge",
        "--web.listen-address=127.0.0.1:0",
        f"--web.config.file={directory / 'web.yml'}",
        f"--http-config={directory / 'http.yml'}",
        f"--targets-file={directory / 'targets.yml'}",
    )

    def hosts() -> Any:
        known = (*certificate("scraper"), "--user", "alice:secret")
        status, said = curl(directory, judge.addresses[0], *known, path="/api/v1/verdicts")
        assert (status, said[-3:]) == (0, "200"), said
        return json.loads(said[:-3])["hosts"]

    found = until(20, hosts)
    assert [host["host"] for host in found] == [address], judge.log
    assert "protection: TLS, client certificates, passwords" in judge.log
    status, said = invoked(
        "watch", "--once", "--judge", judge.addresses[0], "--http-config", str(directory / "http.yml")
    )
    assert status == 0, said


def test_run_takes_the_samples_of_an_exporter_that_wants_everything(
    directory: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = exporter(start, directory)
    file = f"--http-config={directory / 'http.yml'}"
    markers = f"--path.runs={tmp_path}"
    command = [sys.executable, "-m", "pinchpoint", "run", f"--target={address}", file, markers, "--", "true"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=patience(60), check=False)

    assert done.returncode == 0, done.stderr
    assert f"samples from {address}" in done.stderr


@pytest.mark.parametrize(
    ("command", "text", "reason"),
    [
        (["exporter"], "rubbish", "web.yml:1: top level: must be a table of keys; this is text"),
        (
            ["judge", "--target=a:1"],
            NO_CERTIFICATE,
            "web.yml:2: tls_server_config.cert_file: ",
        ),
        (
            ["exporter"],
            NO_KEY,
            "web.yml:3: tls_server_config.key_file: ",
        ),
    ],
)
def test_a_broken_file_stops_the_start_with_its_line(
    directory: Path, command: list[str], text: str, reason: str
) -> None:
    (directory / "web.yml").write_text(text)
    status, said = invoked(*command, f"--web.config.file={directory / 'web.yml'}")

    assert status == 2
    assert said.startswith(f"pinchpoint: {directory}/{reason}")
    assert said.count("\n") == 1


def test_a_broken_file_of_a_client_stops_the_start_with_its_line(directory: Path) -> None:
    (directory / "http.yml").write_text("basic_auth: {user: a}\n")
    status, said = invoked("watch", "--once", f"--http-config={directory / 'http.yml'}")

    assert status == 2
    assert said == f"pinchpoint: {directory}/http.yml:1: basic_auth.user: unknown key\n"


def test_every_address_that_is_named_is_served(start: Start) -> None:
    found = start("exporter", "--web.listen-address=127.0.0.1:0", "--web.listen-address=127.0.0.2:0")

    assert [address.rpartition(":")[0] for address in found.addresses] == ["127.0.0.1", "127.0.0.2"]
    for address in found.addresses:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=patience(20)) as connection:
            connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert b" 200 " in connection.makefile("rb").readline()
    found.process.terminate()
    assert found.process.wait(patience(20)) == 0


ACTIVATE = """
import os, socket, sys
for number in range(int(sys.argv[1])):
    listening = socket.create_server(("127.0.0.1", 0))
    os.dup2(listening.fileno(), 10 + number)
for number in range(int(sys.argv[1])):
    os.dup2(10 + number, 3 + number, inheritable=True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[1], "LISTEN_FDNAMES": "x"}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Listens, and becomes another program, as systemd starts a service with a socket."""


@pytest.mark.parametrize("command", ["exporter", "judge"])
def test_the_sockets_of_systemd_are_served(start: Start, command: str) -> None:
    flags = ("--web.systemd-socket", *(("--target=127.0.0.1:1",) if command == "judge" else ()))
    found = start(command, *flags, starter=(sys.executable, "-c", ACTIVATE, "2"))

    assert until(10, lambda: len(set(re.findall(r"listens on (\S+)\n", found.log))) == 2)
    for address in re.findall(r"listens on (\S+)\n", found.log):
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=patience(20)) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b" 200 " in connection.makefile("rb").readline()


@pytest.mark.parametrize("command", [["exporter"], ["judge", "--target=a:1"]])
def test_without_sockets_of_systemd_the_reason_is_one_line(command: list[str]) -> None:
    status, said = invoked(*command, "--web.systemd-socket")

    assert status == 2
    assert said == (
        "pinchpoint: --web.systemd-socket: systemd passes no socket to this process: start it by a socket unit\n"
    )
