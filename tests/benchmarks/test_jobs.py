from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.benchmarks.jobs import job_of


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "4711"}, "4711"),
        ({"PBS_JOBID": "4711.server.example.org"}, "4711"),
        ({"PBS_JOBID": "4711[3].server"}, "4711[3]"),
        ({"LSB_JOBID": "12", "JOB_ID": "13"}, "12"),
        ({"SLURM_JOB_ID": "", "JOB_ID": "13"}, "13"),
        ({"JOB_ID": "build-7"}, ""),
        ({"SLURM_JOB_ID": "\x1b[31m"}, ""),
    ],
    ids=str,
)
def test_the_job_is_that_of_the_batch_system(environment: dict[str, str], job: str) -> None:
    assert job_of(environment) == job


@pytest.mark.parametrize(("flags", "name"), [([], "job4711-true"), (["--name", "base", "--tag", "job=own"], "base")])
def test_a_run_in_a_job_is_called_by_it_unless_the_user_says_otherwise(
    tmp_path: Path, flags: list[str], name: str
) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pinchpoint",
            "run",
            "--quiet",
            f"--path.runs={tmp_path / 'runs'}",
            *flags,
            "--",
            "true",
        ],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "SLURM_JOB_ID": "4711"},
        check=True,
        capture_output=True,
    )
    (saved,) = (tmp_path / "pinchpoint" / "runs").iterdir()

    assert saved.name.partition("Z-")[2] == name
    assert f'"job":"{"own" if flags else "4711"}"' in (saved / "run.json").read_text().replace(" ", "")
