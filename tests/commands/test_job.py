from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from pinchpoint.benchmarks.job_marks import JobMarks
from pinchpoint.commands.job import command

ROOT = Path(__file__).parents[2]
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_UID": "65534", "SLURM_JOB_USER": "nobody"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root marks jobs")


def job(runs: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Call the command with nothing in its environment, as a prolog is called."""
    call = [sys.executable, "-m", "pinchpoint", "job", *arguments, f"--path.runs={runs}"]
    return subprocess.run(call, env=environment or {}, capture_output=True, text=True, check=False)


def marked(runs: Path) -> list[tuple[str, int, str]]:
    return [(mark.job, mark.uid, mark.user) for mark in JobMarks(runs).running()]


def test_prolog_and_epilog_of_slurm_need_no_option(tmp_path: Path) -> None:
    assert job(tmp_path, "begin", environment=SLURM).returncode == 0
    assert marked(tmp_path) == [("4711", 65534, "nobody")]
    assert job(tmp_path, "end", environment=SLURM).returncode == 0
    assert marked(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        (("--job=12.server", "--user=nobody"), {}, ("12", 65534, "nobody")),
        (("--job=12[3].server", "--user=0"), {}, ("12[3]", 0, "root")),
        ((), {"LSB_JOBID": "13", "LSFUSER": "nobody"}, ("13", 65534, "nobody")),
        (("--user=root",), SLURM, ("4711", 0, "root")),
    ],
    ids=["PBS", "an array of PBS", "LSF", "options come first"],
)
def test_other_batch_systems_say_job_and_user(
    tmp_path: Path, options: tuple[str, ...], environment: Mapping[str, str], expected: tuple[str, int, str]
) -> None:
    assert job(tmp_path, "begin", *options, environment=environment).stderr == ""
    assert marked(tmp_path) == [expected]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("begin", "--user=root"), "'--job': none of SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, JOB_ID is set"),
        (("begin", "--job=x", "--user=root"), "'--job': 'x' does not begin with a number"),
        (("begin", "--job=1"), "'--user': none of SLURM_JOB_UID, LSFUSER is set"),
        (("begin", "--job=1", "--user=nix"), "'--user': this host has no user 'nix'"),
        (("begin", "--job=1", f"--user={'9' * 5000}"), "'--user': this host has no user"),
        (("end",), "'--job': none of"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = job(tmp_path, *arguments)
    assert (done.returncode, marked(tmp_path)) == (2, [])
    assert said in done.stderr


def test_a_mark_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    done = job(tmp_path, "end", "--job=1")
    assert (done.returncode, done.stdout) == (0, "job 1 is not marked on this host\n")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = job(tmp_path / "file/runs", "begin", environment=SLURM)
    assert (done.returncode, done.stderr) == (1, f"pinchpoint: {tmp_path}/file: File exists\n")


def test_a_user_is_told_that_only_root_marks_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    done = CliRunner().invoke(command, ["begin", f"--path.runs={tmp_path}"], env=SLURM)
    assert (done.exit_code, marked(tmp_path)) == (2, [])
    assert "only marks of root count" in done.output


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
@pytest.mark.parametrize("body", [None, "exit 1"], ids=["pinchpoint is not installed", "pinchpoint fails"])
def test_a_hook_of_slurm_never_fails_since_that_would_drain_the_node(
    tmp_path: Path, hook: str, body: str | None
) -> None:
    script = (ROOT / "deploy/slurm" / hook).read_text()
    if body is not None:
        place = tmp_path / "pinchpoint"
        place.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/said\n{body}\n')
        place.chmod(0o755)
    found = script.replace("PATH=/usr/local/bin:", f"PATH={tmp_path}:")
    assert subprocess.run(["sh", "-c", found], env={}, check=False).returncode == 0
    assert body is None or (tmp_path / "said").read_text() == f"job {'begin' if hook == 'prolog' else 'end'}\n"
    assert os.stat(ROOT / "deploy/slurm" / hook).st_mode & stat.S_IXUSR
