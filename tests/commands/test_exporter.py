from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from descriptors import bpf_ids, exist
from machine import Machine
from patience import Stopwatch, patience
from pinchpoint import __version__
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.bpf.choice import BPF, UnusableSourceError, choose_source
from pinchpoint.choices import TASK_SOURCES
from pinchpoint.cli import main
from pinchpoint.host.capabilities import Capability, effective, names
from pinchpoint.host.process_cost import private_bytes
from pinchpoint.model import Snapshot
from pinchpoint.probes import PROBES
from pinchpoint.probes.cpu import Cpu
from pinchpoint.wire.connections import MAX_PEER_CONNECTIONS
from pinchpoint.wire.sources import parse_exposition
from polling import runs, until

NOBODY = 65534
MAX_HELPER_BYTES = 12_000_000
AS_USER = """
import concurrent.futures.thread, ctypes, encodings.idna, os, sys
import pinchpoint.exporter, pinchpoint.commands.exporter, pinchpoint.commands.run
from pinchpoint.cli import main
from pinchpoint.threads.roles import load_roles

load_roles()
# Only after everything was imported, since another user may not be allowed to read this Python. The kernel makes a
# process that changes its user undumpable (PR_SET_DUMPABLE is 4), as no exporter is that a user starts.
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
main(sys.argv[2:])
"""


class Exporter:
    """An exporter that runs as a separate process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        address = until(30, lambda: self.process.poll() is not None or re.search(r"listens on (\S+)\n", self.log), 0.02)
        assert isinstance(address, re.Match), self.log
        self.address = address[1]
        host, _, port = self.address.rpartition(":")
        self.host, self.port = host.strip("[]"), int(port)

    @property
    def log(self) -> str:
        """Its log so far."""
        return self._log.read_text()

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request; underscores in a header's name stand for hyphens."""
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=patience(20))) as connection:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return answer, answer.read()

    def scrape(self) -> Snapshot:
        return parse_exposition(self.ask("/metrics")[1].decode(), time.time())

    def connect(self, sent: bytes) -> socket.socket:
        """Return a connection on which only `sent` was sent."""
        connection = socket.create_connection((self.host, self.port), timeout=patience(20))
        connection.sendall(sent)
        return connection

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and return how long its end took, in seconds of an idle machine (patience.py)."""
        clock = Stopwatch()
        self.process.send_signal(number)
        self.process.wait(patience(20))
        return clock.tick()


Start = Callable[..., Exporter]
PROMPT = 5.0
"""Seconds of an idle machine: less than any client, probe or thread may hang."""


def sampled(exporter: Exporter, *probes: str) -> Snapshot:
    """Return the exported series once these probes have succeeded."""

    def found() -> Snapshot | None:
        snapshot = exporter.scrape()
        seen = [snapshot.value("pinchpoint_probe_success", probe=probe) == 1 for probe in probes]
        return snapshot if all(seen) else None

    snapshot = until(20, found)
    assert isinstance(snapshot, Snapshot), f"{probes} do not all succeed"
    return snapshot


def resent(connection: socket.socket) -> int:
    """Return the number of retransmitted packets of a connection (tcpi_total_retrans in linux/tcp.h)."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    (number,) = struct.unpack_from("I", info, 100)
    return int(number)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start exporters on a free port of the loopback interface; those still running are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*flags: str, address: str = "127.0.0.1:0", user: int | None = None) -> Exporter:
        log = tmp_path / f"log{len(started)}"
        command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address={address}", *flags]
        if not any(flag.startswith("--path.runs") for flag in flags):
            command.append(f"--path.runs={tmp_path / 'runs'}")
        if user is not None:
            command[1:3] = ["-c", AS_USER, str(user)]
        with log.open("wb") as stderr:
            started.append(subprocess.Popen(command, stdout=stderr, stderr=stderr, cwd="/"))
        return Exporter(started[-1], log)

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """One exporter of this host for all tests that only query it."""
    directory = tmp_path_factory.mktemp("exporter")
    command = [sys.executable, "-m", "pinchpoint", "exporter", "--web.listen-address=127.0.0.1:0"]
    with (directory / "log").open("wb") as stderr:
        process = subprocess.Popen([*command, f"--path.runs={directory / 'runs'}"], stderr=stderr)
    exporter = Exporter(process, directory / "log")
    sampled(exporter, "self", "tasks")
    yield exporter
    process.kill()
    process.wait()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["exporter", *arguments])


def test_metrics_of_this_host_are_served(running: Exporter) -> None:
    found = running.scrape()

    assert found.value("pinchpoint_build_info", version=__version__, python=sys.version.split()[0]) == 1
    assert {labels["probe"] for labels, _ in found.series("pinchpoint_probe_success")} == {p.name for p in PROBES}
    assert (found.value("pinchpoint_resource_threshold_ratio", resource="writeback_worker")) == 0.7
    assert len(list(found.series("pinchpoint_task_source_info"))) == 1
    assert "Traceback" not in running.log


def test_counters_rise_from_scrape_to_scrape(running: Exporter) -> None:
    before = running.scrape().value("pinchpoint_sampler_samples_total", probe="tasks") or 0

    assert until(20, lambda: (running.scrape().value("pinchpoint_sampler_samples_total", probe="tasks") or 0) > before)


def test_prometheus_text_is_the_default(running: Exporter) -> None:
    answer, body = running.ask("/metrics")

    assert (answer.status, answer.headers.get_content_type()) == (200, "text/plain")
    assert b"\n# TYPE pinchpoint_self_cpu_seconds_total counter\n" in body
    assert b"# EOF" not in body


def test_openmetrics_is_served_to_whoever_accepts_it(running: Exporter) -> None:
    answer, body = running.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")

    assert answer.headers.get_content_type() == "application/openmetrics-text"
    assert b"\n# TYPE pinchpoint_self_cpu_seconds counter\n" in body
    assert body.endswith(b"# EOF\n")


def test_a_scrape_may_ask_for_some_names_alone(running: Exporter) -> None:
    body = running.ask("/metrics?name[]=pinchpoint_self_cpu_seconds_total&name[]=pinchpoint_build_info")[1]

    names = {line.split(b"{")[0].split()[0] for line in body.splitlines() if not line.startswith(b"#")}
    assert names == {b"pinchpoint_self_cpu_seconds_total", b"pinchpoint_build_info"}


def test_the_exporter_imports_nothing_that_it_never_uses(tmp_path: Path) -> None:
    code = "import sys, pinchpoint.exporter, pinchpoint.commands.exporter; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    heavy = {"asyncio", "bcrypt", "httpx", "jinja2", "matplotlib", "numpy", "psutil", "rich", "subprocess", "yaml"}

    assert heavy & set(done.stdout.split()) == set()


def test_help_and_completions_import_no_probe(tmp_path: Path) -> None:
    code = "import sys, pinchpoint.cli, pinchpoint.commands.exporter; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert {"pinchpoint.probes", "pinchpoint.exporter", "ctypes"} & set(done.stdout.split()) == set()


def test_an_answer_is_never_packed_since_that_costs_cpu_of_the_measured_host(running: Exporter) -> None:
    answer, body = running.ask("/metrics", Accept_Encoding="gzip")

    assert answer.headers["Content-Encoding"] is None
    assert body.startswith(b"# HELP")


def test_the_landing_page_leads_to_the_metrics_and_the_health(running: Exporter) -> None:
    answer, body = running.ask("/")

    assert (answer.status, answer.headers.get_content_type()) == (200, "text/html")
    assert __version__ in body.decode()
    for link in re.findall('href="(.*?)"', body.decode()):
        assert running.ask(link)[0].status == 200
    assert body.decode().count("href") == 2


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/-/healthy", 200, "Pinchpoint is healthy.\n"),
        ("GET", "/-/healthy?x=1", 200, "Pinchpoint is healthy.\n"),
        ("GET", "/missing", 404, "not here: see /metrics\n"),
        ("GET", "/metrics/", 404, "not here: see /metrics\n"),
        ("GET", "/%ff", 404, "not here: see /metrics\n"),
        ("POST", "/metrics", 405, "only GET and HEAD\n"),
        ("DELETE", "/", 405, "only GET and HEAD\n"),
        ("OPTIONS", "/-/healthy", 405, "only GET and HEAD\n"),
    ],
)
def test_everything_else_has_the_status_that_it_should_have(
    running: Exporter, method: str, path: str, status: int, text: str
) -> None:
    answer, body = running.ask(path, method)

    assert (answer.status, body.decode()) == (status, text)
    assert answer.headers["Allow"] == ("GET, HEAD" if status == 405 else None)


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/missing"])
def test_head_has_the_headers_of_get_and_no_body(running: Exporter, path: str) -> None:
    with running.connect(f"HEAD {path} HTTP/1.0\r\n\r\n".encode()) as connection:
        raw = connection.makefile("rb").read()
    answer, body = running.ask(path)
    length = re.search(rb"(?i)content-length: (\d+)", raw)

    assert raw.startswith(f"HTTP/1.0 {answer.status} ".encode())
    assert raw.endswith(b"\r\n\r\n")
    assert answer.headers["Content-Type"].encode() in raw
    assert length is not None
    assert int(length[1]) == pytest.approx(len(body), rel=0.1)  # the values of metrics move


def test_clients_that_never_end_their_request_hold_up_nobody(running: Exporter) -> None:
    slow = []
    clock = Stopwatch()
    for _ in range(50):
        slow.append(running.connect(b"GET /metrics HTTP/1.0\r\nX-Slow: "))
        assert resent(slow[-1]) == 0, "its first packet was dropped, and sent again a second later"
    for connection in slow:
        with suppress(ConnectionError):  # those that gave way to later ones are closed
            connection.sendall(b"x")
        assert running.ask("/-/healthy")[0].status == 200
    found = running.scrape()
    for connection in slow:
        connection.close()

    assert found.value("pinchpoint_probe_success", probe="self") == 1
    assert (found.value("pinchpoint_http_refused_connections_total", reason="peer") or 0) >= 50 - MAX_PEER_CONNECTIONS
    assert clock.tick() < 10, "a request waited for the timeout of a slow client"


@pytest.mark.parametrize(
    "request_", [b"\0\xff garbage\r\n\r\n", b"GET\r\n\r\n", b"", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000]
)
def test_a_damaged_request_costs_only_its_connection(running: Exporter, request_: bytes) -> None:
    running.connect(request_).close()

    assert running.ask("/-/healthy")[0].status == 200
    assert "Traceback" not in running.log


def test_help_lists_a_flag_for_each_probe_and_version_the_version() -> None:
    text = call("--help").output

    for probe in PROBES:
        assert f"--probe.{probe.name} / --no-probe.{probe.name}" in text
    for flag in ("--web.listen-address", "--web.telemetry-path", "--path.procfs", "--path.sysfs", "--path.rootfs",
                 "--config.file", "--sample-interval", "--log.level"):  # fmt: skip
        assert flag in text
    assert call("--version").output == f"pinchpoint, version {__version__}\n"


def test_a_probe_that_is_switched_off_does_not_run(start: Start) -> None:
    exporter = start("--no-probe.tasks")
    found = sampled(exporter, "self", "kworkers")

    assert "pinchpoint_task_source_info" not in found.values
    assert found.value("pinchpoint_probe_success", probe="tasks") is None
    assert found.value("pinchpoint_probe_success", probe="kworkers") == 1


def test_flags_come_before_the_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "pinchpoint.toml"
    file.write_text(
        'log-level = "error"\nsample-interval = 0.5\n[web]\nlisten-address = ":1"\ntelemetry-path = "/file"\n'
        "[probe]\ntasks = false\nself = false\n"
    )
    exporter = start(
        f"--config.file={file}",
        "--log.level=info",
        "--sample-interval=0.2",
        "--web.telemetry-path=/flag",
        "--probe.tasks",
    )

    assert exporter.ask("/file")[0].status == 404
    found = parse_exposition(exporter.ask("/flag")[1].decode(), 0)
    assert found.value("pinchpoint_probe_interval_seconds", probe="tasks") == 0.2
    assert found.value("pinchpoint_probe_interval_seconds", probe="self") is None


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]"), (":0", "[::]"), ("localhost:0", "127.0.0.1")],
)
def test_the_log_names_the_address_and_the_port_that_it_really_has(start: Start, address: str, host: str) -> None:
    if ":" in host:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    exporter = start(address=address)

    assert exporter.address == f"{host}:{exporter.port}"
    assert exporter.port > 0
    assert exporter.ask("/-/healthy")[0].status == 200


def test_an_empty_host_takes_both_kinds_of_addresses(start: Start) -> None:
    exporter = start(address=":0")

    with socket.create_connection(("127.0.0.1", exporter.port), timeout=patience(20)) as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.makefile("rb").readline()


def test_fixture_folders_are_read_in_the_hosts_place(start: Start, machine: Machine) -> None:
    machine.process(10, "ceph-osd", threads={11: "tp_osd_tp", 12: "tp_osd_tp"}, argv=("ceph-osd", "-i", "7"))
    machine.ran(10, 11, 1.0)
    exporter = start(
        f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}", f"--path.rootfs={machine.sysfs}"
    )

    assert until(20, lambda: exporter.scrape().value("pinchpoint_threads", role="osd_op", owner="osd.7") == 2)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--bad"], "No such option '--bad'; see "),
        (["--no-probe.tusks"], "No such option '--no-probe.tusks'"),
        (["surplus"], "Got unexpected extra argument (surplus); see "),
        (["--web.listen-address"], "Option '--web.listen-address' requires an argument; see "),
        (["--sample-interval=x"], "'x' is not a valid float"),
        (["--cost-limit=0"], "cost-limit: must be 0.005 to 100 CPUs"),
        (["--sample-interval=0"], "command line: sample-interval: must be 0.02 to 10 seconds"),
        (["--sample-interval=nan"], "command line: sample-interval: must be 0.02 to 10 seconds"),
        (["--task-source=fast"], "'fast' is not one of 'auto', 'bpf', 'bpf-iter', 'kept', 'plain'"),
        (["--kworker-source=fast"], "'fast' is not one of 'auto', 'bpf', 'comm'"),
        (["--wait-source=fast"], "'fast' is not one of 'auto', 'bpf', 'files'"),
        (["--log.level=loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (["--web.listen-address=9748"], "'9748' is not HOST:PORT, :PORT or [IPV6]:PORT"),
        (["--web.listen-address=:99999"], "':99999' is not HOST:PORT"),
        (["--web.listen-address=:\u00b2"], "is not HOST:PORT"),
        (["--web.listen-address=:" + "9" * 5000], "is not HOST:PORT"),
        (["--web.listen-address=[::x]:1"], "'[::x]:1': "),
        (["--web.listen-address=::1:9748"], "put an IPv6 address in brackets: [::1]:9748"),
        (["--web.listen-address=a..b:1"], "can't listen on a..b:1: not a valid host name"),
        (["--web.listen-address=192.0.2.1:0"], "can't listen on 192.0.2.1:0: Cannot assign requested address"),
        (["--web.telemetry-path=metrics"], "web.telemetry-path: must be a path other than / and /-/healthy"),
        (["--path.procfs=/missing"], "--path.procfs: /missing is not a directory"),
        (["--path.runs="], "path.runs: '' is not a valid path"),
        (["--config.file=/missing.toml"], "/missing.toml: No such file or directory"),
        (["--config.file=/"], "/: Is a directory"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_flag_is_one_clear_line_and_status_2(flags: list[str], reason: str) -> None:
    result = call(*flags)

    assert result.exit_code == 2
    assert result.output.startswith("pinchpoint: ")
    assert reason in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("config", "roles", "reason"),
    [
        ("[web", None, "pinchpoint.toml: not TOML: "),
        ("a = " + "[" * 5000, None, "pinchpoint.toml: not TOML: "),
        ("probe.tusks = false", None, "pinchpoint.toml: probe.tusks: unknown probe"),
        ('task-source = "fast"', None, "pinchpoint.toml: task-source: must be one of auto, bpf, bpf-iter, kept, plain"),
        ('kworker-source = "fast"', None, "pinchpoint.toml: kworker-source: must be one of auto, bpf, comm"),
        ('wait-source = "fast"', None, "pinchpoint.toml: wait-source: must be one of auto, bpf, files"),
        ('web.listen-address = "x"', None, "pinchpoint.toml: web.listen-address: 'x' is not HOST:PORT"),
        ('path.runs = "a\\u0000"', None, "pinchpoint.toml: path.runs: "),
        ('roles-file = "missing.toml"', None, "missing.toml: No such file or directory"),
        ('roles-file = "a\\u0000"', None, "embedded null byte"),
        ('roles-file = "roles.toml"', "[[role]]\n", "roles.toml: role[0]: Object missing required field `name`"),
        (
            'roles-file = "roles.toml"',
            '[[process]]\nmatch = "("\nclass = "x"\n',
            "roles.toml: process[0].match: not a reg",
        ),
        ('roles-file = "roles.toml"', "threshold = 2", "roles.toml: threshold: must be above 0"),
        ('waits-file = "missing.toml"', None, "missing.toml: No such file or directory"),
        (
            'waits-file = "roles.toml"',
            '[[rule]]\nclass = "disk"\nframes = "("\nseen = "x"\n',
            "rule[0].frames: not a reg",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_file_is_one_clear_line_and_status_2(tmp_path: Path, config: str, roles: str | None, reason: str) -> None:
    (tmp_path / "pinchpoint.toml").write_text(config)
    if roles is not None:
        (tmp_path / "roles.toml").write_text(roles)
    result = call(f"--config.file={tmp_path / 'pinchpoint.toml'}")

    assert result.exit_code == 2
    assert result.output.startswith("pinchpoint: ")
    assert reason in result.output
    assert result.output.count("\n") == 1


def test_a_port_in_use_is_one_clear_line_and_status_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [f"--web.listen-address={address}", "--log.level=warning"]
        command = [sys.executable, "-m", "pinchpoint", "exporter", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=False)

    expected = f"pinchpoint: can't listen on {address}: Address already in use; choose another --web.listen-address\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


@pytest.mark.parametrize("name", BPF)
@pytest.mark.parametrize("place", ["flag", "file"])
def test_a_source_that_can_not_work_is_one_clear_line_and_status_2(
    machine: Machine, tmp_path: Path, name: str, place: str
) -> None:
    machine.process(10, "fio")
    flags = [f"--path.procfs={machine.procfs}", f"--task-source={name}"]
    if place == "file":
        (tmp_path / "pinchpoint.toml").write_text(f'task-source = "{name}"\n')
        flags[1] = f"--config.file={tmp_path / 'pinchpoint.toml'}"
    result = call(*flags)

    assert result.exit_code == 2
    assert result.output.startswith(f"pinchpoint: task-source {name}: no {name}: no process in procfs tells its PID ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("source", ["kworker-source", "wait-source"])
def test_what_can_not_be_traced_is_one_clear_line_and_status_2(source: str, machine: Machine) -> None:
    machine.process(10, "fio")
    result = call(f"--path.procfs={machine.procfs}", f"--{source}=bpf")

    assert result.exit_code == 2
    assert result.output.startswith(f"pinchpoint: {source} bpf: no bpf: no process in procfs tells its PID ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("name", TASK_SOURCES[1:])
def test_the_source_that_is_asked_for_is_the_one_that_is_shown(start: Start, name: str) -> None:
    skip_without(name)
    exporter = start(f"--task-source={name}")
    shown = until(20, lambda: list(exporter.scrape().series("pinchpoint_task_source_info")))

    assert shown == [({"source": name, "file": "" if name in BPF else "schedstat", "reason": ""}, 1)]
    assert exporter.scrape().value("pinchpoint_probe_success", probe="tasks") == 1


def test_a_source_that_is_not_the_best_is_shown_and_logged_with_the_reason(start: Start, machine: Machine) -> None:
    machine.process(10, "fio")
    machine.ran(10, 10, 1.0)
    exporter = start(f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}")
    ((labels, _),) = until(20, lambda: list(exporter.scrape().series("pinchpoint_task_source_info")))

    assert (labels["source"], labels["file"]) == ("kept", "schedstat")
    assert labels["reason"].startswith("no bpf and bpf-iter: no process in procfs tells its PID namespace")
    assert exporter.log.count(f"threads are read by kept: {labels['reason']}\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", BPF)
def test_no_program_and_no_map_stays_in_the_kernel_however_it_ends(start: Start, name: str, number: int) -> None:
    skip_without(name)
    exporter = start(f"--task-source={name}")
    assert until(20, lambda: exporter.scrape().value("pinchpoint_probe_success", probe="tasks") == 1)
    ids = bpf_ids(exporter.process.pid)
    assert ids["prog"]
    assert ids["map"]
    assert exist(ids)
    exporter.end(number)

    assert until(20, lambda: not exist(ids))


def skip_without(name: str) -> None:
    """Skip if a source does not work."""
    try:
        choose_source(Path("/proc"), lambda tgid, comm: 1, name).close()
    except UnusableSourceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_under_a_second_with_status_0(start: Start, number: int) -> None:
    exporter = start()
    assert exporter.ask("/metrics")[0].status == 200

    assert exporter.end(number) < 1
    assert exporter.process.returncode == 0
    assert "Traceback" not in exporter.log


@pytest.mark.parametrize(
    ("file", "probe"), [("vmstat", "memory"), ("loadavg", "tasks")], ids=["slow lane", "fast lane"]
)
def test_a_probe_that_hangs_is_blind_alone_and_does_not_hold_up_the_end(
    start: Start, machine: Machine, file: str, probe: str
) -> None:
    machine.process(10, "fio")
    (machine.procfs / file).unlink(missing_ok=True)
    os.mkfifo(machine.procfs / file)  # without a writer, opening it blocks for ever
    exporter = start(f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}")
    found = sampled(exporter, "self", "cpu")

    assert found.value("pinchpoint_probe_success", probe=probe) == 0
    assert found.value("pinchpoint_probe_success", probe="cpu") == 1
    assert exporter.end() < PROMPT
    assert exporter.process.returncode == 0


def test_a_request_that_is_under_way_does_not_hold_up_the_end(start: Start) -> None:
    exporter = start()
    with exporter.connect(b"GET /metrics HTTP/1.0\r\n"):
        assert exporter.ask("/-/healthy")[0].status == 200
        assert exporter.end() < PROMPT
    assert exporter.process.returncode == 0


def test_scrapes_that_are_under_way_do_not_hold_up_the_end(start: Start) -> None:
    exporter = start()
    answered = threading.Event()

    def scrape() -> None:
        try:
            while exporter.ask("/metrics")[0].status == 200:
                answered.set()
        except (OSError, http.client.HTTPException):
            pass

    scrapers = [threading.Thread(target=scrape) for _ in range(4)]
    for scraper in scrapers:
        scraper.start()
    assert answered.wait(20)
    took = exporter.end()
    for scraper in scrapers:
        scraper.join()

    assert took < PROMPT
    assert exporter.process.returncode == 0
    assert "Traceback" not in exporter.log


def test_a_service_manager_learns_that_it_is_ready_alive_and_ending(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(patience(20))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        exporter = start()
        states = {manager.recv(100), manager.recv(100)}
        exporter.process.send_signal(signal.SIGTERM)
        while (last := manager.recv(100)) == b"WATCHDOG=1":
            pass

    assert states == {b"READY=1", b"WATCHDOG=1"}
    assert last == b"STOPPING=1"


def rights(exporter: Exporter) -> set[frozenset[int]]:
    """Return the different sets of capabilities, effective, permitted and bounding, of all threads."""
    found = set()
    for status in Path(f"/proc/{exporter.process.pid}/task").glob("*/status"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile
            for mask in re.findall(r"^Cap(?:Eff|Prm|Bnd):\s*(\w+)$", status.read_text(), re.MULTILINE):
                found.add(frozenset(number for number in range(64) if int(mask, 16) >> number & 1))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")
@pytest.mark.parametrize(
    "off", [[], ["waits", "namespaces", "profile"], [probe.name for probe in PROBES if probe is not Cpu]]
)
def test_root_keeps_the_capabilities_of_enabled_probes_alone_in_every_thread(start: Start, off: list[str]) -> None:
    exporter = start(*(f"--no-probe.{name}" for name in off))
    needed = {number for probe in PROBES if probe.name not in off for number in probe.capabilities}
    snapshot = sampled(exporter, "cpu")
    held = frozenset(needed & effective())

    assert rights(exporter) == {held}
    assert f"INFO pinchpoint.exporter: capabilities: keeps {names(held)}; dropped CAP_CHOWN" in exporter.log
    assert (Capability.SYS_ADMIN in held) == (not off)
    if needed == held:
        assert not list(snapshot.series("pinchpoint_probe_missing_capability_info"))


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that every user may enter; skip if the test cannot run as another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    code = f"import os, sys; os.setuid({NOBODY}); open(sys.argv[1])"
    roles = str(resources.files("pinchpoint.threads") / "roles.toml")
    if subprocess.run([sys.executable, "-c", code, roles], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("another user may not read the files of this package")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_user_without_rights_runs_it_and_sees_what_may_be_seen(start: Start, public: Path) -> None:
    shut = public / "shut"
    shut.mkdir(mode=0o700)
    exporter = start(f"--path.runs={shut / 'runs'}", user=NOBODY)

    sampled(exporter, "self", "tasks", "benchmark")

    assert f"{shut / 'runs'}: Permission denied: runs will not show their phases" in exporter.log
    assert exporter.log.count("not by helpers with their users' rights: lacks CAP_KILL, CAP_SETGID, CAP_SETUID\n") == 1
    assert "Traceback" not in exporter.log
    assert exporter.end() < PROMPT


@pytest.fixture
def jobs(public: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a fio with 64 jobs as another user."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    public.chmod(0o777)
    command = [
        "fio", "--name=job", "--rw=write", "--size=64k", "--numjobs=64", "--rate=64k", "--time_based",
        "--runtime=1000", "--output=out.txt", "--status-interval=1",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=public, user=NOBODY, group=NOBODY, extra_groups=[]) as process:
        yield process
        process.terminate()


def helpers(exporter: Exporter) -> dict[int, int]:
    """Return the processes that an exporter has started, and their users."""
    found = Tree.below(Path("/proc"), exporter.process.pid)
    return {pid: found.user(pid).uid for pid in found.processes if pid != exporter.process.pid}


def test_a_users_files_are_read_by_a_small_process_of_that_user(start: Start, jobs: subprocess.Popen[bytes]) -> None:
    exporter = start()

    def looked() -> Snapshot | None:
        found = exporter.scrape()
        phases = {labels["phase"] for labels, value in found.series("pinchpoint_phase_active") if value}
        samples = found.value("pinchpoint_sampler_samples_total", probe="benchmark") or 0
        return found if "job" in phases and samples >= 10 else None

    found = until(60, looked)
    assert found, exporter.log
    (nursery, *_), (helper,) = helpers(exporter), [pid for pid, user in helpers(exporter).items() if user == NOBODY]
    status = Path(f"/proc/{helper}/status").read_text()
    for line in (f"Uid:\t{NOBODY}", "CapEff:\t0000000000000000", "Seccomp:\t2", "NoNewPrivs:\t1"):
        assert f"\n{line}" in status
    assert private_bytes(helper) <= MAX_HELPER_BYTES
    assert private_bytes(nursery) <= MAX_HELPER_BYTES
    assert (found.value("pinchpoint_benchmark_helpers") or 0) >= 1
    assert "WARNING pinchpoint.benchmarks" not in exporter.log

    started = helpers(exporter)
    exporter.end(signal.SIGKILL)
    assert until(20, lambda: not any(map(runs, started)))


def test_the_run_of_an_untrusted_user_has_the_same_id_in_the_metrics_as_where_it_is_saved(
    start: Start, public: Path
) -> None:
    runs, state = public / "runs", public / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    exporter = start(f"--path.runs={runs}")
    until(20, runs.exists)
    command = [sys.executable, "-c", AS_USER, str(NOBODY), "run", f"--path.runs={runs}", "--", "sleep", "60"]
    with subprocess.Popen(command, cwd="/", env={**os.environ, "XDG_STATE_HOME": str(state)}) as process:
        try:
            (saved,) = until(20, lambda: list(state.glob("pinchpoint/runs/*"))) or [state]
            shown = until(20, lambda: exporter.scrape().value("pinchpoint_run_state", **run_of(saved), state="running"))
        finally:
            process.terminate()

    assert saved.name.endswith("-sleep@uid65534")
    assert shown is not None


def run_of(saved: Path) -> dict[str, str]:
    return {"benchmark": "command", "run": saved.name}


def test_processes_that_are_hidden_are_counted_and_the_rest_is_followed(start: Start, public: Path) -> None:
    machine = Machine(public)
    machine.process(1, "systemd")
    for pid in (10, 11, 12):
        machine.process(pid, "fio")
    machine.process(13, "ior", threads={14: "ior"})
    machine.ran(13, 13, 1.0)
    for pid in (10, 11):
        (machine.procfs / str(pid)).chmod(0)
    (machine.procfs / "12" / "task").chmod(0)
    exporter = start(f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}", user=NOBODY)
    found = until(20, lambda: (s := exporter.scrape()).value("pinchpoint_tasks_unreadable") == 3 and s)

    assert found, exporter.scrape().values
    assert found.value("pinchpoint_threads", role="benchmark", owner="ior") == 2
    assert found.value("pinchpoint_probe_success", probe="tasks") == 1


def test_a_configuration_that_may_not_be_read_is_one_clear_line_and_status_2(public: Path) -> None:
    file = public / "pinchpoint.toml"
    file.touch(mode=0o600)
    command = [sys.executable, "-c", AS_USER, str(NOBODY), "exporter", f"--config.file={file}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(f"pinchpoint: Invalid value for '--config.file': Path '{file}' is not readable")
    assert done.stderr.count("\n") == 1
