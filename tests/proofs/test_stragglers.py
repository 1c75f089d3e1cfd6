"""Stragglers among the ranks of one host: eight jobs with the same work; the test slows one."""

from __future__ import annotations

import contextlib
import shutil
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
QUOTA = 0.01
"""CPUs of the slow job: the others use three times as much."""


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
    work = ["--rw=randwrite", "--bs=64k", "--size=16m", "--io_size=128m", "--rate=32m", "--refill_buffers"]
    common = [f"--directory={directory}", "--ioengine=psync", "--output-format=terse"]
    even = ["--name=even", *work, f"--numjobs={JOBS - 1}"]
    return ["env", "-C", str(directory), "fio", *common, *even, "--name=last", *work, *slow]


def test_one_of_eight_jobs_under_a_cpu_quota(watch: Watch, check: Check, memory: Path) -> None:
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(faults.cgroup("cpu", faults.quota(QUOTA)))
        # fio runs it by system(3), with its output in a file: the shell's parent is the job.
        found = watch.judge(jobs(memory, f"--exec_prerun=(echo $PPID >{group}/cgroup.procs)"))
    check(Truth((Kind.STRAGGLER,), "cpu_quota fio"), found)


def test_one_of_eight_jobs_with_more_to_do(watch: Watch, check: Check, memory: Path) -> None:
    check(Truth((Kind.STRAGGLER,)), watch.judge(jobs(memory, "--io_size=400m")))


def test_eight_even_jobs_have_no_straggler(watch: Watch, check: Check, memory: Path) -> None:
    even = [kind for kind in Kind if kind is not Kind.STRAGGLER]
    check(Truth(even, ".*"), watch.judge(jobs(memory, "--io_size=128m")))
