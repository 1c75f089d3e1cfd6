from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from native import PARTS, TREE, Stack, free_ports
from patience import patience
from polling import processes_of, until


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Free ports, and a place of its own for what is kept of a run."""
    ports = {part.variable: str(port) for part, port in zip(PARTS.values(), free_ports().values(), strict=True)}
    return os.environ | ports | {"XDG_STATE_HOME": str(tmp_path / "kept")}


@contextmanager
def demo(state: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(TREE / "compose" / "demo.py"), "--state", str(state), *arguments]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def workload_of(state: Path) -> list[psutil.Process]:
    """Return the processes of the demo's fio: its output file, in the state directory, is among their arguments."""
    processes = psutil.process_iter(["cmdline"])
    return [process for process in processes if f"--output={state}" in " ".join(process.info["cmdline"] or ())]


def test_it_passes_when_alertmanager_received_the_alert(
    programs: None, fio: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    state = tmp_path / "state"
    # A short second phase: what its alert does depends on the disk.
    with demo(state, environment, "--disk-seconds=2") as process:
        said, _ = process.communicate(timeout=patience(120))

    assert process.returncode == 0, said
    assert "BenchmarkThreadSaturated is pending in Prometheus" in said
    assert "BenchmarkThreadSaturated of fio received by Alertmanager" in said
    assert "runbooks/BenchmarkThreadSaturated.md" in said
    assert "cpu_one_thread" in said
    assert "disk_random_write" in said
    assert list((tmp_path / "kept" / "pinchpoint" / "runs").glob("*demo*"))
    assert processes_of(state) == []
    assert not list(state.glob("demo-*"))


def test_it_fails_without_the_alert_and_leaves_a_stack_that_was_there(
    programs: None, fio: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    stack = Stack(tmp_path / "state", free_ports())
    stack.start(keep=True)
    try:
        # No load of one second fills half of the rule's window.
        with demo(stack.state, environment, "--cpu-seconds=1", "--disk-seconds=1") as process:
            said, _ = process.communicate(timeout=patience(120))

        assert process.returncode == 1, said
        assert "using the stack of `make up`" in said
        assert "FAILED: BenchmarkThreadSaturated did not arrive" in said
        assert all(stack.healthy(name) for name in PARTS)
    finally:
        stack.stop()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_workload_and_the_stack(
    programs: None, fio: str, tmp_path: Path, environment: dict[str, str], number: signal.Signals, status: int
) -> None:
    state = tmp_path / "state"
    with demo(state, environment) as process:
        assert until(60, lambda: workload_of(state))
        process.send_signal(number)
        process.communicate(timeout=patience(60))

    assert process.returncode == status
    assert workload_of(state) == []
    assert processes_of(state) == []
    assert not list(state.glob("demo-*"))


def test_it_says_what_still_works_when_a_port_is_in_use(
    programs: None, fio: str, tmp_path: Path, environment: dict[str, str], stack: Stack
) -> None:
    taken = stack.ports["alertmanager"]
    with demo(tmp_path, environment | {"ALERTMANAGER_PORT": str(taken)}) as process:
        said, _ = process.communicate(timeout=patience(60))

    assert process.returncode == 1
    assert f"Port {taken} (Alertmanager) is in use by prometheus-aler" in said
    assert "ALERTMANAGER_PORT=" in said
    assert "pinchpoint watch`" in said
    assert "Traceback" not in said


def test_it_says_what_still_works_without_fio(tmp_path: Path, environment: dict[str, str]) -> None:
    with demo(tmp_path, environment | {"PATH": str(tmp_path)}) as process:
        said, _ = process.communicate(timeout=patience(60))

    assert process.returncode == 1
    assert said.startswith("demo: fio is not installed; `make setup` as root installs it.")
    assert "need no fio" in said
