from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import native
from native import PARTS, TREE, Stack, StackError, ports_from
from patience import patience
from polling import get_json, processes_of, until
from ports import stack_ports


def rules() -> list[dict[str, Any]]:
    groups = [group for path in TREE.glob("alerts/*.yml") for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


class TestARunningStack:
    def test_answers_on_every_part(self, stack: Stack) -> None:
        assert {name: stack.healthy(name) for name in PARTS} == dict.fromkeys(PARTS, True)

    def test_listens_on_loopback_only(self, stack: Stack) -> None:
        addresses = {
            connection.laddr[0]
            for process in processes_of(stack.state)
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }

        assert addresses == {"127.0.0.1"}

    def test_has_every_part_scraped_by_prometheus(self, stack: Stack) -> None:
        def up() -> dict[str, str]:
            targets = get_json(f"{stack.urls['prometheus']}/api/v1/targets")["data"]["activeTargets"]
            return {target["scrapePool"]: target["health"] for target in targets}

        parts = {"pinchpoint-judge" if name == "judge" else name for name in PARTS}
        assert until(30, lambda: up() == dict.fromkeys(parts, "up")), up()

    def test_scrapes_no_ceph_until_somebody_names_a_cluster(self, stack: Stack) -> None:
        answer = get_json(f"{stack.urls['prometheus']}/api/v1/targets")["data"]
        targets = [*answer["activeTargets"], *answer["droppedTargets"]]

        assert [target["scrapeUrl"] for target in targets if "ceph" in target["scrapePool"]] == []

    def test_knows_no_other_hosts_and_clusters_if_it_ends_with_its_block(self, stack: Stack) -> None:
        lists = {path.name: path.read_text() for path in (stack.state / "targets").iterdir()}

        assert lists == {path.name: "[]\n" for path in (TREE / "compose" / "targets").iterdir()}

    def test_scrapes_another_host_as_soon_as_its_list_names_it(self, stack: Stack) -> None:
        named = stack.state / "targets" / "pinchpoint.yml"
        # The other host is this one under another name.
        other = f"localhost:{stack.ports['pinchpoint']}"

        def up() -> set[str]:
            targets = get_json(f"{stack.urls['prometheus']}/api/v1/targets")["data"]["activeTargets"]
            return {
                target["labels"]["instance"]
                for target in targets
                if (target["scrapePool"], target["health"]) == ("pinchpoint", "up")
            }

        own = f"127.0.0.1:{stack.ports['pinchpoint']}"
        try:
            named.write_text(f"- targets: [{other}]\n")
            assert until(30, lambda: up() == {own, other}), up()
        finally:
            named.write_text("[]\n")
        assert until(30, lambda: up() == {own}), up()

    def test_has_every_rule_of_the_alerts_folder(self, stack: Stack) -> None:
        groups = get_json(f"{stack.urls['prometheus']}/api/v1/rules")["data"]["groups"]
        loaded = sorted(rule["name"] for group in groups for rule in group["rules"])

        assert loaded == sorted(rule.get("alert") or rule["record"] for rule in rules())

    def test_sends_alerts_to_its_alertmanager(self, stack: Stack) -> None:
        def active() -> list[str]:
            answer = get_json(f"{stack.urls['prometheus']}/api/v1/alertmanagers")
            return [alertmanager["url"] for alertmanager in answer["data"]["activeAlertmanagers"]]

        assert until(10, active) == [f"{stack.urls['alertmanager']}/api/v2/alerts"]

    def test_is_found_by_its_state_directory(self, stack: Stack) -> None:
        found = Stack.running(stack.state)

        assert found is not None
        assert found.urls == stack.urls
        assert not found.kept

    def test_knows_the_process_of_each_part(self, stack: Stack) -> None:
        pids = stack.pids()

        assert pids.keys() == stack.ports.keys()
        assert set(pids.values()) < {process.pid for process in processes_of(stack.state)}

    def test_is_not_started_twice(self, stack: Stack) -> None:
        with pytest.raises(StackError, match=r"runs in .* already"):
            Stack(stack.state, stack_ports()).start(keep=False)

        assert all(stack.healthy(name) for name in PARTS)


class TestTheEndOfAStack:
    def test_leaves_no_process_when_the_block_ends(self, programs: None, tmp_path: Path) -> None:
        with Stack(tmp_path, stack_ports()) as stack:
            (supervisor,) = (process for process in processes_of(tmp_path) if process.name() == "supervisord")
            assert len(supervisor.children()) == len(PARTS)

        assert processes_of(tmp_path) == []
        assert Stack.running(tmp_path) is None
        assert not any(stack.healthy(name) for name in PARTS)

    def test_leaves_no_process_when_the_block_fails(self, programs: None, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), Stack(tmp_path, stack_ports()):
            raise ZeroDivisionError

        assert processes_of(tmp_path) == []

    def test_ends_also_what_a_killed_supervisor_left(self, programs: None, tmp_path: Path) -> None:
        with Stack(tmp_path, stack_ports()):
            for process in processes_of(tmp_path):
                if "supervisord" in process.name():
                    process.kill()
            assert processes_of(tmp_path)

        assert processes_of(tmp_path) == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_comes_with_the_end_of_its_process(self, programs: None, tmp_path: Path, number: signal.Signals) -> None:
        program = (
            "import sys, time, pathlib, native, ports\n"
            "native.exit_on_sigterm()\n"
            "with native.Stack(pathlib.Path(sys.argv[1]), ports.stack_ports()):\n"
            "    print('up', flush=True)\n"
            # A signal just before a sleep is handled after the sleep.
            "    while True: time.sleep(0.1)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": f"{TREE / 'compose'}:{TREE / 'tests'}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            process.send_signal(number)
            process.wait(timeout=patience(30))

        # After SIGKILL no parent waits: the kernel notifies supervisord, which stops the rest.
        assert until(30, lambda: not processes_of(tmp_path))


class TestAStackThatCannotStart:
    def test_names_the_port_its_user_the_variable_and_what_still_works(self, programs: None, tmp_path: Path) -> None:
        ports = stack_ports()
        with socket.create_server(("127.0.0.1", ports["prometheus"])), pytest.raises(StackError) as caught:
            Stack(tmp_path, ports).start(keep=False)

        message = str(caught.value)
        assert (
            f"Port {ports['prometheus']} (Prometheus) is in use by {psutil.Process().name()} (pid {os.getpid()},"
            in message
        )
        assert "PROMETHEUS_PORT=" in message
        assert "pinchpoint watch`" in message
        assert processes_of(tmp_path) == []

    def test_names_a_program_that_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(StackError, match=r"Not installed: prometheus, .*\n`make setup` as root") as caught:
            Stack(tmp_path / "state", stack_ports()).start(keep=False)
        assert "pinchpoint run`" in str(caught.value)

    @pytest.mark.parametrize("keep", [False, True])
    def test_shows_the_log_of_the_part_that_failed(
        self, programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
    ) -> None:
        tree = tmp_path / "tree"
        (tree / "alerts").mkdir(parents=True)
        (tree / "compose").mkdir()
        (tree / "compose" / "alertmanager.yml").write_text((TREE / "compose" / "alertmanager.yml").read_text())
        (tree / "compose" / "prometheus.yml").write_text("no_such_setting: 1\n")
        monkeypatch.setattr(native, "TREE", tree)

        with pytest.raises(StackError, match="Prometheus does not start") as caught:
            Stack(tmp_path / "state", stack_ports()).start(keep=keep)

        assert "no_such_setting" in str(caught.value)
        assert processes_of(tmp_path / "state") == []


GRAFANA = """\
#!{python}
import http.server, json, os, pathlib, sys

pathlib.Path({seen!r}).write_text(json.dumps({{"arguments": sys.argv, "environment": dict(os.environ)}}))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()

    def log_message(self, *words):
        pass


http.server.HTTPServer(("127.0.0.1", int(os.environ["GRAFANA_PORT"])), Handler).serve_forever()
"""
"""Answers as Grafana does, and records how it was started."""


@dataclass(frozen=True)
class Unpacked:
    """A folder like that of Grafana's archive, and the record of its start."""

    home: Path
    seen: Path

    def start(self) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and the environment of the program."""
        found = json.loads(self.seen.read_text())
        return found["arguments"], found["environment"]

    def program(self, name: str) -> Path:
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(GRAFANA.format(python=sys.executable, seen=str(self.seen)))
        path.chmod(0o755)
        return path


@pytest.fixture
def grafana(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unpacked:
    """Grafana's folder, still without a program; its programs are the first in PATH."""
    home = tmp_path / "grafana-12"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "defaults.ini").touch()
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("GRAFANA_HOME", raising=False)
    return Unpacked(home, tmp_path / "seen.json")


class TestGrafana:
    def test_is_started_with_the_files_of_the_containers(
        self, programs: None, tmp_path: Path, grafana: Unpacked
    ) -> None:
        program = grafana.program("grafana")

        with Stack(tmp_path / "state", stack_ports("grafana")) as stack:
            assert stack.healthy("grafana")
            arguments, environment = grafana.start()

        assert arguments == [
            str(program),
            "server",
            f"--homepath={grafana.home}",
            f"--config={TREE / 'compose' / 'grafana' / 'grafana.ini'}",
        ]
        expected = {
            "PROMETHEUS_PORT": str(stack.ports["prometheus"]),
            "ALERTMANAGER_PORT": str(stack.ports["alertmanager"]),
            "PINCHPOINT_DASHBOARDS": str(TREE / "dashboards" / "json"),
            "GF_PATHS_PROVISIONING": str(TREE / "compose" / "grafana" / "provisioning"),
            "GF_PATHS_DATA": str(tmp_path / "state" / "grafana"),
        }
        assert expected.items() <= environment.items()
        assert not stack.healthy("grafana")

    def test_of_old_has_a_program_of_another_name(self, grafana: Unpacked, tmp_path: Path) -> None:
        program = grafana.program("grafana-server")

        command = Stack(tmp_path, stack_ports("grafana")).commands()["grafana"]

        assert command[:2] == [str(program), f"--homepath={grafana.home}"]

    def test_is_found_by_its_home(self, grafana: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = grafana.program("grafana")
        monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[2])
        monkeypatch.setenv("GRAFANA_HOME", str(grafana.home))

        assert Stack(tmp_path, stack_ports("grafana")).commands()["grafana"][0] == str(program)

    def test_is_not_started_where_nobody_wants_it(self, grafana: Unpacked, tmp_path: Path) -> None:
        grafana.program("grafana")

        assert set(Stack(tmp_path, stack_ports()).commands()) == set(PARTS)

    def test_without_its_home_counts_as_not_installed(
        self, grafana: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grafana.program("grafana")
        monkeypatch.setenv("GRAFANA_HOME", str(tmp_path))

        assert set(Stack(tmp_path, stack_ports("grafana")).commands()) == set(PARTS)


def test_a_state_directory_may_have_a_long_and_strange_name(programs: None, tmp_path: Path) -> None:
    state = tmp_path / "100 % of 'it'" / ("x" * 120)

    with Stack(state, stack_ports(), runs=tmp_path / "runs of 100 %") as stack:
        assert set(stack.states()) == set(PARTS)

    assert processes_of(state) == []


def test_up_status_and_down_say_what_they_found(programs: None, tmp_path: Path) -> None:
    ports = stack_ports()
    environment = os.environ | {part.variable: str(ports[name]) for name, part in PARTS.items()}
    environment["GRAFANA_HOME"] = str(tmp_path)  # where none is

    def call(command: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, TREE / "compose" / "native.py", command, "--state", tmp_path],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    try:
        status, said = call("up")
        assert status == 0, said
        assert all(f"http://127.0.0.1:{port}" in said for port in ports.values())
        assert "make down" in said
        assert [line.split()[:3] for line in said.splitlines() if "Grafana" in line] == [
            ["Grafana", "not", "installed"]
        ]
        assert "dashboards/json" in said

        for path in (TREE / "compose" / "targets").iterdir():
            assert (tmp_path / "targets" / path.name).samefile(path)

        status, said = call("up")
        assert (status, said.splitlines()[0]) == (0, "The local stack already runs:")

        status, said = call("status")
        assert (status, said.count("healthy")) == (0, len(PARTS))

        (prometheus,) = [process for process in processes_of(tmp_path) if process.name() == "prometheus"]
        prometheus.terminate()
        assert until(10, lambda: "does not answer (exited)" in call("status")[1])
        status, said = call("up")
        assert (status, said.splitlines()[-1]) == (1, "`make down`, then `make up` starts it anew.")
    finally:
        status, said = call("down")
    assert (status, said) == (0, "The local stack is stopped.\n")
    assert processes_of(tmp_path) == []
    assert call("down") == (0, "The local stack does not run.\n")
    assert call("status")[0] == 3


def test_ports_come_from_the_environment() -> None:
    ports = ports_from({"PROMETHEUS_PORT": "19090", "ALERTMANAGER_PORT": ""})

    assert ports == {"pinchpoint": 9748, "judge": 9749, "prometheus": 19090, "alertmanager": 9093, "node": 9100}
    assert ports_from({"GRAFANA_PORT": "13000"}, "grafana")["grafana"] == 13000


@pytest.mark.parametrize("text", ["0", "65536", "-1", "x", "9 090", "９０９０"])  # noqa: RUF001 - digits that are not a port
def test_what_is_no_port_is_refused_by_name(text: str) -> None:
    with pytest.raises(StackError, match="PROMETHEUS_PORT: must be a port"):
        ports_from({"PROMETHEUS_PORT": text})


def test_two_parts_on_one_port_are_refused() -> None:
    with pytest.raises(StackError, match="both 9093"):
        ports_from({"PROMETHEUS_PORT": "9093"})
