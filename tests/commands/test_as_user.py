"""What a user without root can do, with a real user and a real load."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from as_user import NOBODY, as_user, user_environment
from patience import patience
from pinchpoint.host.capabilities import WITHOUT, Capability, losses
from pinchpoint.wire.sources import TargetSource
from polling import until
from ports import free_port


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a directory that belongs to the user; skip the test if it cannot run as another one."""
    as_user()
    # Not below pytest's own directory, which other users may not enter.
    home = Path(tempfile.mkdtemp())
    os.chown(home, NOBODY, NOBODY)
    yield home
    shutil.rmtree(home)


@pytest.fixture
def fio() -> str:
    if (found := shutil.which("fio")) is None:
        pytest.skip("fio is not installed (`make setup` as root installs it)")
    return found


def asked(home: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    """Run a command as the user; return what it wrote."""
    done = subprocess.run(
        as_user(*arguments), cwd=home, env=user_environment(home), capture_output=True, text=True, timeout=patience(120)
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


@contextmanager
def service(home: Path, *arguments: str) -> Iterator[tuple[str, Path]]:
    """Run an exporter or a judge as the user; give its address and its log."""
    address, log = f"127.0.0.1:{free_port()}", home / f"{arguments[0]}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            as_user(*arguments, f"--web.listen-address={address}"), cwd=home, env=user_environment(home), stderr=stderr
        )
    try:
        assert until(30, lambda: "listens on" in log.read_text()), log.read_text()
        yield address, log
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(30)) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
    assert "WARNING pinchpoint.sampler" not in log.read_text()


def load(home: Path, seconds: int) -> Sequence[str]:
    return (
        "fio", "--name=mine", f"--directory={home}", "--size=16M", "--rw=randwrite", "--bs=4k", "--unlink=1",
        "--time_based", f"--runtime={seconds}", f"--output={home / 'out'}", "--output-format=json",
    )  # fmt: skip


@contextmanager
def loaded(command: Sequence[str], user: int) -> Iterator[None]:
    with subprocess.Popen(
        command, user=user, group=user, extra_groups=[], cwd="/", stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.terminate()


def test_a_run_of_the_user_has_phases_results_and_a_verdict_and_can_be_reported_and_compared(
    home: Path, fio: str
) -> None:
    markers = f"--path.runs={home / 'markers'}"
    for name in ("first", "second"):
        _, said = asked(home, "run", markers, "--name", name, "--target", down(), "--", "true", status=2)
        assert "cannot be reached" in said or "refused" in said
        _, said = asked(home, "run", markers, "--name", name, "--", *load(home, 3))
        assert "phase mine ended" in said
        assert re.search("mine .* write ", said), said
    report = json.loads(asked(home, "report", "--json", "second")[0])
    (phase,) = report["phases"]

    assert phase["results"]
    assert phase["verdict"]["kind"] not in {"blind", "unknown"}, phase
    assert "mine" in asked(home, "compare", "first", "second")[0]
    assert len(asked(home, "runs")[0].splitlines()) > 2


def down() -> str:
    return f"127.0.0.1:{free_port()}"


def test_an_exporter_of_the_user_sees_the_users_benchmark_and_lists_what_it_lacks(home: Path, fio: str) -> None:
    with service(home, "exporter") as (address, log), loaded(load(home, 60), NOBODY):
        with_phase = until(30, lambda: shown(address, "pinchpoint_phase_active", benchmark="fio", phase="mine"))
        waits = until(30, lambda: shown(address, "pinchpoint_workload_seconds_total"))
        snapshot = TargetSource(address).snapshot()
        lines = re.findall(r"(lacks CAP.*: .*)$", log.read_text(), re.MULTILINE)
        once, _ = asked(home, "watch", "--once", "--target", address)

    assert with_phase
    assert waits
    assert "fio" in once
    assert lines == losses(list(Capability))
    assert len(lines) == len(WITHOUT)
    named = {labels["capability"] for labels, _ in snapshot.series("pinchpoint_probe_missing_capability_info")}
    assert named == {f"CAP_{one.name}" for one in Capability}


def test_the_files_of_other_users_are_missing_and_not_a_failure(home: Path, fio: str) -> None:
    with service(home, "exporter") as (address, _), loaded(load(home, 60), 0):
        running = until(30, lambda: shown(address, "pinchpoint_threads", role="benchmark"))
        absent = until(10, lambda: not shown(address, "pinchpoint_probe_present", probe="storage"))
        snapshot = TargetSource(address).snapshot()

    assert running
    assert absent
    assert [labels["probe"] for labels, value in snapshot.series("pinchpoint_probe_success") if value != 1] == []


def test_a_judge_of_the_user_judges_the_users_exporter(home: Path) -> None:
    with service(home, "exporter") as (exporter, _), service(home, "judge", f"--target={exporter}") as (judge, _):
        assert until(30, lambda: shown(judge, "pinchpoint_judge_build_info"))


def shown(address: str, metric: str, **labels: str) -> bool:
    """Return whether a series of this metric with these labels is above 0."""
    series = TargetSource(address).snapshot().series(metric)
    return any(value > 0 and labels.items() <= found.items() for found, value in series)
