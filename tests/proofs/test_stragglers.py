"""Stragglers among ranks with the same work, on one host and on two; the test slows some."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hosts import another_host
from pinchpoint.diagnosis.verdict import Kind
from polling import until
from ports import free_port
from proofs import faults
from proofs.conftest import Check
from proofs.observed import Watch, watching
from truth import Truth

GROUP = "Stragglers"
JOBS = 8
WORK = ["--rw=randwrite", "--bs=64k", "--size=16m", "--io_size=128m", "--refill_buffers"]
TWICE = "--io_size=256m"
SECONDS = 4
EVEN = Truth([kind for kind in Kind if kind is not Kind.STRAGGLER], ".*")
RATE = "--rate=32m"
"""With it the work takes so many seconds."""
ENGINE = ["--ioengine=psync"]
RANK = str(Path(__file__).with_name("rank.py"))
SENT = 4 << 20
"""Bytes that a rank sends in a second, and ..."""
SLOW_LINK = "20mbit"
"""... a link on which two of them take three times as long."""


@pytest.fixture(autouse=True)
def _programs() -> None:
    if shutil.which("fio") is None:
        pytest.skip("no fio")


@pytest.fixture
def memory() -> Iterator[Path]:
    """Give a directory in memory, so that no disk makes the jobs uneven."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def jobs(directory: Path, *slow: str, every: Sequence[str] = ()) -> list[str]:
    """Return a command that runs eight jobs for four seconds each.

    `slow` are more options of the last one, `every` of them all.
    """
    common = [f"--directory={directory}", *ENGINE, "--output-format=terse"]
    even = ["--name=even", *WORK, RATE, f"--numjobs={JOBS - 1}", *every]
    return ["env", "-C", str(directory), "fio", *common, *even, "--name=last", *WORK, RATE, *every, *slow]


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
    check(Truth((Kind.STRAGGLER,), "cpu_quota fio", since=SECONDS), found)


def test_one_of_eight_jobs_with_more_to_do(watch: Watch, check: Check, memory: Path) -> None:
    check(Truth((Kind.STRAGGLER,), since=SECONDS), watch.judge(jobs(memory, "--io_size=400m")))


def test_one_of_eight_threads_with_more_to_do(watch: Watch, check: Check, memory: Path) -> None:
    found = watch.judge(jobs(memory, "--io_size=400m", every=["--thread"]))
    check(Truth((Kind.STRAGGLER,), since=SECONDS), found)
    assert found.verdict.straggler.startswith("thread 7 on "), found.verdict


def ranks(numbers: Sequence[int], server: tuple[str, int]) -> list[str]:
    """Return a command that runs these ranks of a benchmark, which send to a server for four seconds."""
    rank = shlex.join([sys.executable, RANK, "send", *map(str, (*server, SENT * SECONDS, SENT))])
    each = " ".join(f"PMI_RANK={number} {rank} &" for number in numbers)
    return ["sh", "-c", f"{each} wait"]


def test_the_ranks_of_a_host_behind_a_slow_link(check: Check, tmp_path: Path) -> None:
    with faults.shaped_namespace(SLOW_LINK, within=True) as (name, address, link), contextlib.ExitStack() as stack:
        near, far = (stack.enter_context(another_host(*within)) for within in ((), ("ip", "netns", "exec", name)))
        for place in ("near", "far"):
            (tmp_path / place).mkdir()
        there = stack.enter_context(watching(tmp_path / "far", prefix=far, host=address))
        here = stack.enter_context(watching(tmp_path / "near", prefix=near, others=[there.address]))
        server = "10.215.0.1", free_port()
        stack.enter_context(faults.beside([sys.executable, RANK, "serve", *map(str, (*server, JOBS))]))
        assert until(10, lambda: faults.listens("", server[1]))
        stack.enter_context(faults.beside([*far, *ranks(range(JOBS - 2, JOBS), server)]))
        found = here.judge(ranks(range(JOBS - 2), server), prefix=near)
    check(Truth((Kind.STRAGGLER,), f"link {link}", since=SECONDS), found)
    assert found.verdict.straggler == f"the 2 ranks on {there.address}"


def test_eight_even_jobs_have_no_straggler(watch: Watch, check: Check, memory: Path) -> None:
    check(EVEN, watch.judge(jobs(memory, every=[TWICE])))


def test_eight_even_threads_have_no_straggler(watch: Watch, check: Check, memory: Path) -> None:
    check(EVEN, watch.judge(jobs(memory, every=[TWICE, "--thread"])))
