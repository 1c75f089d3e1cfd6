"""Stragglers among the ranks of one host: eight jobs with the same work; the test slows one."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinchpoint.diagnosis.verdict import Kind
from proofs import faults
from proofs.conftest import Check
from proofs.observed import Watch
from truth import Truth

GROUP = "Stragglers"
JOBS = 8
WORK = ["--rw=randwrite", "--bs=64k", "--size=16m", "--io_size=128m", "--refill_buffers"]
SECONDS = 4
RATE = "--rate=32m"
"""With it the work takes so many seconds."""
ENGINE = ["--ioengine=psync"]


@pytest.fixture(autouse=True)
def _programs() -> None:
    if shutil.which("fio") is None:
        pytest.skip("no fio")


@pytest.fixture
def memory() -> Iterator[Path]:
    """Give a directory in memory, so that no disk makes the jobs uneven."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def jobs(directory: Path, *slow: str) -> list[str]:
    """Return a command that runs eight jobs for four seconds each; `slow` are more options of the last one."""
    common = [f"--directory={directory}", *ENGINE, "--output-format=terse"]
    even = ["--name=even", *WORK, RATE, f"--numjobs={JOBS - 1}"]
    return ["env", "-C", str(directory), "fio", *common, *even, "--name=last", *WORK, RATE, *slow]


@pytest.fixture(scope="module")
def needed() -> float:
    """Return how many CPUs one of the jobs needs on this machine: without a rate nothing but its work takes time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        command = ["fio", f"--directory={directory}", *ENGINE, "--output-format=json", "--name=alone", *WORK]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    (job,) = json.loads(done.stdout)["jobs"]
    return float(job["usr_cpu"] + job["sys_cpu"]) / 100 * float(job["job_runtime"]) / 1000 / SECONDS


def test_one_of_eight_jobs_under_a_cpu_quota(needed: float, watch: Watch, check: Check, memory: Path) -> None:
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(faults.cgroup("cpu", faults.quota(needed / 3)))
        # fio runs it by system(3), with its output in a file: the shell's parent is the job.
        found = watch.judge(jobs(memory, f"--exec_prerun=(echo $PPID >{group}/cgroup.procs)"))
    check(Truth((Kind.STRAGGLER,), "cpu_quota fio"), found)


def test_one_of_eight_jobs_with_more_to_do(watch: Watch, check: Check, memory: Path) -> None:
    check(Truth((Kind.STRAGGLER,)), watch.judge(jobs(memory, "--io_size=400m")))


def test_eight_even_jobs_have_no_straggler(watch: Watch, check: Check, memory: Path) -> None:
    even = [kind for kind in Kind if kind is not Kind.STRAGGLER]
    check(Truth(even, ".*"), watch.judge(jobs(memory, "--io_size=128m")))
