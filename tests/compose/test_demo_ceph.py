from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import demo_ceph
from demo_surroundings import surroundings
from lab.cluster import MARK, lacking
from native import TREE
from patience import patience
from polling import processes_of, until


@pytest.fixture
def environment(programs: None, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Free ports, and separate directories for saved runs and for the cluster."""
    if reason := lacking():
        pytest.skip(reason)
    with surroundings(tmp_path) as environment:
        yield environment


def start(state: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(TREE / "compose" / "demo_ceph.py"), "--state", str(state)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes_of_clusters(temporary: str) -> list[psutil.Process]:
    """Return the processes of the clusters below a directory."""
    processes = psutil.process_iter(["environ"])
    return [process for process in processes if (process.info["environ"] or {}).get(MARK, "").startswith(temporary)]


def test_ended_in_the_middle_it_leaves_nothing_behind(tmp_path: Path, environment: dict[str, str]) -> None:
    with start(tmp_path / "state", environment) as process:
        assert process.stdout
        for line in process.stdout:
            if "keeps them" in line:
                break
        assert processes_of_clusters(environment["TMPDIR"])
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=patience(60))

    assert process.returncode == 130, said
    assert "interrupted; what it started is stopped" in said
    assert until(10, lambda: not processes_of_clusters(environment["TMPDIR"]))
    assert processes_of(tmp_path / "state") == []


def test_what_is_missing_is_named_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo_ceph.py"])
    monkeypatch.setattr(demo_ceph, "missing", lambda: ["ceph-mds"])

    assert demo_ceph.main() == 1
    assert "ceph-mds" in capsys.readouterr().err


def test_an_alert_that_names_no_command_is_a_failure() -> None:
    assert demo_ceph.command_in("raise it: ceph config set mds mds_cache_memory_limit 12 now")[-1] == "12"
    with pytest.raises(demo_ceph.FailedError, match="no command"):
        demo_ceph.command_in("raise the limit")
