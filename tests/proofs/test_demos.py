"""The demos as a user runs them, and the load that `make demo` chooses for a disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import pytest

from demo_load import calibrated
from demo_surroundings import surroundings
from lab.cluster import lacking
from native import TREE
from polling import processes_of
from proofs.faults import slow_disk

GROUP = "Demos"
STEPS = (
    "MdsCacheNearLimit received by Alertmanager",
    "Ceph warns: MDS_CACHE_OVERSIZED",
    "MdsCacheOversized received by Alertmanager",
    "running  ceph config set mds mds_cache_memory_limit 1073741824",
    "both alerts are gone",
    "demo: passed",
)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    with surroundings(tmp_path) as environment:
        yield environment


def said(script: str, state: Path, environment: dict[str, str]) -> str:
    """Return the output of a demo, which has to pass."""
    command = [sys.executable, str(TREE / "compose" / script), "--state", str(state)]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_demo_ends_with_both_verdicts_and_their_alerts(
    tmp_path: Path, environment: dict[str, str], measured: MutableMapping[str, str]
) -> None:
    state = tmp_path / "state"

    text = said("demo.py", state, environment)

    measured["disk"] = next((line.removeprefix("demo: ") for line in text.splitlines() if "second phase" in line), "")
    assert "BenchmarkThreadSaturated of fio received by Alertmanager" in text
    assert "pinchpoint runbook BenchmarkThreadSaturated" in text
    assert "limited by benchmark of fio" in text
    assert list((tmp_path / "kept" / "pinchpoint" / "runs").glob("*demo*"))
    assert processes_of(state) == []
    assert not list(state.glob("demo-*"))


@pytest.mark.long
def test_the_demo_on_ceph_has_its_alert_before_ceph_warns_and_the_command_of_the_alert_ends_both(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    if reason := lacking():
        pytest.skip(reason)

    text = said("demo_ceph.py", tmp_path / "state", environment)

    places = [text.find(step) for step in STEPS]
    assert -1 not in places
    assert places == sorted(places)
    assert processes_of(tmp_path / "state") == []


def test_the_demo_fills_a_slow_disk_with_small_writes(tmp_path: Path, measured: MutableMapping[str, str]) -> None:
    if os.geteuid():
        pytest.skip("needs root, for loop devices and block I/O limits")
    with slow_disk(tmp_path, {"write_bps": 20 << 20}) as disk, calibrated([disk.mount]) as (_, choice, words):
        measured["disk"] = choice.reason

    assert words[0] == choice.reason
    assert (choice.disk, choice.fills, choice.load.kib) == (disk.name, True, 16)


def test_the_demo_tries_loads_on_the_first_directory_that_has_a_disk_and_leaves_nothing(
    tmp_path: Path, measured: MutableMapping[str, str]
) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no memory file system besides that of the tests")
    with calibrated([Path("/nowhere"), Path("/proc"), memory, tmp_path]) as (directory, choice, words):
        assert directory.parent == tmp_path or not choice.disk

    measured["disk"] = choice.reason
    assert words[0].startswith("cannot write in /proc: ")
    assert words[1] == "no disk below /dev/shm"
    assert not list(memory.glob("demo-*"))
    assert not list(tmp_path.iterdir())
