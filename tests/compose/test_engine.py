"""The stack in containers on a real dockerd: `make containers-check`, which needs root, debootstrap, minutes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dockerd import BASE_IMAGE, Engine, why_not
from native import OPTIONAL, PARTS
from polling import until
from ports import stack_ports

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

WAIT = ("up", "--detach", "--wait", "--wait-timeout=180")
MOST = 80_000_000
"""Bytes that the exporter's image may have over its base, without what only charts need."""
CHARTS = (
    *(
        "matplotlib*",
        "mpl_toolkits",
        "numpy*",
        "pillow*",
        "PIL",
        "fonttools*",
        "fontTools",
        "contourpy*",
        "kiwisolver*",
    ),
)
"""Packages that matplotlib brings."""


class Stack:
    """The services of compose.yaml on ports of their own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ports = stack_ports("grafana")
        parts = {**PARTS, **OPTIONAL}
        self._settings = {parts[name].variable: str(port) for name, port in self.ports.items()}
        self._settings |= {"DEMO_CPU_SECONDS": "25", "DEMO_DISK_SECONDS": "25"}

    def compose(self, *arguments: str) -> str:
        return self.engine.compose(*arguments, **self._settings)

    def containers(self) -> dict[str, dict[str, Any]]:
        lines = self.compose("ps", "--all", "--format=json").splitlines()
        return {container["Service"]: container for container in map(json.loads, lines)}

    def healthy(self) -> bool:
        found = self.containers()
        return len(found) == len(self.ports) and {one["Health"] for one in found.values()} == {"healthy"}

    def inside(self, service: str, *command: str) -> str:
        return self.compose("exec", "--no-TTY", service, *command)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the series that Prometheus finds."""
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/query"
        try:
            answer = httpx.get(url, params={"query": query}, timeout=10, trust_env=False).raise_for_status().json()
        except httpx.HTTPError:
            return []
        return list(answer["data"]["result"])

    def restarts(self, service: str) -> int:
        found = self.engine.docker("inspect", "--format={{.RestartCount}}", self.containers()[service]["ID"])
        return int(found)


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    if "containers" not in request.config.option.markexpr:
        pytest.skip("takes minutes and 1 GB: `make containers-check`")
    if reason := why_not():
        pytest.skip(f"dockerd cannot be started: {reason}")
    with Engine(tmp_path_factory.mktemp("engine") / "dockerd.log") as engine:
        engine.build_stand_ins()
        stack = Stack(engine)
        stack.compose("--profile", "demo", "build")
        try:
            stack.compose(*WAIT)
            yield stack
        finally:
            print(stack.compose("ps", "--all"), stack.compose("logs", "--tail=15"))
            stack.compose("--profile", "demo", "down", "--volumes", "--timeout=5")


def test_every_service_is_healthy(stack: Stack) -> None:
    assert stack.healthy()


def test_prometheus_gets_metrics_of_every_part_that_has_some(stack: Stack) -> None:
    assert until(60, lambda: [one["value"][1] for one in stack.ask("up")] == ["1"] * len(PARTS))


def test_the_exporter_sees_the_processes_of_the_host(stack: Stack) -> None:
    seen = stack.inside("pinchpoint", "python", "-c", "import os; print(*os.listdir('/proc'))").split()

    assert str(Path("/proc/self").resolve().name) in seen


def test_bpf_programs_are_loaded_inside(stack: Stack) -> None:
    def source() -> list[dict[str, Any]]:
        return stack.ask('pinchpoint_task_source_info{source="bpf"}')

    assert until(30, source)


def test_services_have_the_rights_that_they_need_and_no_others(stack: Stack) -> None:
    def right(service: str, line: str) -> str:
        status = stack.inside(service, "cat", "/proc/self/status")
        return next(words.split()[1] for words in status.splitlines() if words.startswith(line))

    # CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_NICE,
    # CAP_SYSLOG (capability.h)
    assert int(right("pinchpoint", "CapBnd"), 16) == sum(1 << bit for bit in (1, 5, 6, 7, 19, 21, 23, 34))
    for service in ("judge", "node", "alertmanager", "prometheus", "grafana"):
        assert int(right(service, "CapEff"), 16) == 0
        assert int(right(service, "CapBnd"), 16) == 0
        assert right(service, "Uid") == "65534"


@pytest.mark.parametrize("program", ["apt", "apt-get", "dpkg", "pip", "pip3"])
def test_the_image_has_no_package_manager(stack: Stack, program: str) -> None:
    found = stack.inside("judge", "python", "-c", f"import shutil; print(shutil.which('{program}'))")
    modules = stack.inside(
        "judge", "python", "-c", "from importlib.util import find_spec as f; print(f('pip'), f('ensurepip'))"
    )

    assert found.strip() == "None"
    assert modules.split() == ["None", "None"]


@pytest.mark.parametrize("service", ["pinchpoint", "judge"])
def test_the_root_of_a_container_cannot_be_written(stack: Stack, service: str) -> None:
    said = stack.inside(
        service, "sh", "-c", "for d in / /tmp /opt/pinchpoint /etc; do touch $d/x 2>/dev/null && echo $d; done; true"
    )

    assert said.split() == []


def test_the_exporter_s_image_is_small(stack: Stack) -> None:
    sizes = stack.engine.sizes()
    places = " ".join(f"/opt/pinchpoint/lib/python3*/site-packages/{name}" for name in CHARTS)
    script = f"du -scB1 {places} 2>/dev/null | tail -n 1 | cut -f 1"
    charts = int(stack.inside("judge", "sh", "-c", script))
    over = sizes["exporter"] - sizes["base"]
    print(f"over {BASE_IMAGE}: {over / 1e6:.1f} MB, with {charts / 1e6:.1f} MB of charts")

    assert over - charts <= MOST


def test_the_demo_s_verdict_arrives(stack: Stack) -> None:
    stack.compose("--profile", "demo", "run", "--rm", "--no-TTY", "fio")

    def verdicts() -> list[dict[str, Any]]:
        return stack.ask('last_over_time(pinchpoint_phase_verdict_info{phase="cpu_one_thread"}[10m])')

    assert until(30, verdicts)
    found = {
        tuple(one["metric"].get(name) for name in ("benchmark", "kind", "resource", "owner")) for one in verdicts()
    }
    assert found == {("fio", "resource", "benchmark", "fio@uid65534")}
    profiled = 'last_over_time(pinchpoint_cost_source_info{source="perf_events", reason=""}[10m])'
    assert stack.ask(profiled), "the sandbox keeps the exporter from sampling what is full"


@pytest.mark.parametrize("service", ["prometheus", "pinchpoint", "judge", "grafana"])
def test_a_service_is_healthy_again_after_a_restart(stack: Stack, service: str) -> None:
    stack.compose("restart", service)

    assert until(90, stack.healthy)


@pytest.mark.parametrize("service", ["prometheus", "pinchpoint", "judge"])
def test_a_service_is_healthy_again_after_its_process_was_killed(stack: Stack, service: str) -> None:
    before = stack.restarts(service)
    pid = stack.engine.docker("inspect", "--format={{.State.Pid}}", stack.containers()[service]["ID"]).strip()
    stack.engine.kill(int(pid))

    assert until(30, lambda: stack.restarts(service) > before)
    assert until(90, stack.healthy)


def test_the_stack_is_healthy_again_with_a_new_dockerd(stack: Stack) -> None:
    stack.engine.stop()
    stack.engine.start()

    assert until(120, stack.healthy)
    assert until(60, lambda: {one["value"][1] for one in stack.ask("up")} == {"1"})
