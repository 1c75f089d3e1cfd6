"""A batch job whose benchmark is started by srun, on a real Slurm cluster of this host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.exporters import answer, exporting, make_rank, shows, watched
from lab.slurm import lacking, slurm
from polling import until

LOAD = "--directory={place} --size=4M --rw=randwrite --bs=4k --time_based --runtime=6 --unlink=1"
SCRIPT = """\
#!/bin/bash
cd {place}
srun fio --name=redirected {load} >redirected.txt
srun -o option.txt fio --name=option {load}
"""

pytestmark = [
    pytest.mark.skipif(bool(lacking()), reason=lacking() or "Slurm is there"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Give the environment of the commands of a cluster."""
    (tmp_path / "slurm").mkdir()
    with slurm(tmp_path / "slurm") as cluster:
        yield cluster.environment


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[str]:
    """Give the address of an exporter's metrics."""
    with exporting(tmp_path / "runs") as address:
        yield address


def submit(place: Path, commands: Mapping[str, str], script: str, *options: str) -> str:
    """Submit a batch job; return its number."""
    path = place / "job.sh"
    path.write_text(script)
    asked = ["sbatch", "--parsable", f"--output={place}/job.out", *options, str(path)]
    return subprocess.run(asked, env=commands, capture_output=True, text=True, check=True).stdout.strip()


def test_steps_of_a_job_are_runs_with_its_number_and_with_the_results_that_srun_printed_into_files(
    tmp_path: Path, commands: Mapping[str, str], exporter: str
) -> None:
    load = LOAD.format(place=tmp_path)
    job = submit(tmp_path, commands, SCRIPT.format(place=tmp_path, load=load))

    def results() -> set[str]:
        pattern = rf'^pinchpoint_phase_result{{.*phase="(\w+)",run="\d+T\d+Z-job{job}-fio".*unit="bytes_per_second"'
        return set(re.findall(pattern, answer(exporter), re.MULTILINE))

    assert until(60, lambda: results() == {"redirected", "option"}), answer(exporter)
    assert 'what="output"' not in answer(exporter)


def test_a_run_of_srun_has_the_ranks_and_what_they_wait_for(tmp_path: Path, commands: Mapping[str, str]) -> None:
    run = f"{sys.executable} -m pinchpoint run --quiet --path.runs={tmp_path / 'runs'} --"
    saved = {**commands, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(sys.path)}
    job = submit(tmp_path, saved, f"#!/bin/bash\n{run} srun fio --name=load {LOAD.format(place=tmp_path)}\n", "--wait")
    (saved_run,) = (tmp_path / "state" / "pinchpoint" / "runs").iterdir()
    told = [sys.executable, "-m", "pinchpoint", "report", "--json", saved_run.name]
    report = json.loads(subprocess.run(told, env=saved, capture_output=True, check=True).stdout)
    (phase,) = report["phases"]

    assert (report["benchmark"], report["tags"], phase["phase"]) == ("fio", {"job": job}, "load")
    assert phase["results"][0]["unit"] == "bytes_per_second"
    assert any("of fio's time" in line for line in phase["verdict"]["evidence"])


def hook(place: Path, what: str) -> str:
    """Make what a host calls when a job begins or ends; return its path."""
    script = place / what
    call = f"{sys.executable} -m pinchpoint job {what} --path.runs={place}/runs-$SLURMD_NODENAME"
    script.write_text(f"#!/bin/sh\nPYTHONPATH={os.pathsep.join(sys.path)} {call}\n")
    script.chmod(0o755)
    return str(script)


def test_ranks_of_a_job_on_two_hosts_belong_to_its_run(tmp_path: Path) -> None:
    (tmp_path / "slurm").mkdir()
    rank = make_rank(tmp_path, "SLURM_PROCID")
    script = f"#!/bin/bash\nsrun --nodes=2 --ntasks=4 --overcommit {rank}\n"
    with ExitStack() as stack:
        hooks = {"Prolog": hook(tmp_path, "begin"), "Epilog": hook(tmp_path, "end")}
        cluster = stack.enter_context(slurm(tmp_path / "slurm", nodes=2, options=hooks))
        first, second = (
            stack.enter_context(exporting(tmp_path / f"runs-{name}", *enter))
            for name, enter in cluster.namespaces.items()
        )
        job = submit(tmp_path, cluster.environment, script, "--nodes=2", "--overcommit")

        run = rf'run="\d+T\d+Z-job{job}-ior"'
        ranks = '^pinchpoint_workload_ranks{{benchmark="ior",{},state="working"}} 2'
        assert until(60, lambda: shows(first, ranks.format(run))), answer(first)
        assert until(60, lambda: shows(second, ranks.format(f'run="job{job}"'))), answer(second)
        assert shows(first, rf'^pinchpoint_run_job_info{{benchmark="ior",job_id="{job}",{run}}} 1')
        marked = f'pinchpoint_job_start_timestamp_seconds{{job_id="{job}",user="root"}}'
        assert all(marked in answer(address) for address in (first, second))
        # How many of them work varies on a busy host.
        assert until(60, lambda: "of 4.0 processes at a time" in watched(first, second)), watched(first, second)

        subprocess.run(["scancel", job], env=cluster.environment, check=True)
        assert until(60, lambda: not any("pinchpoint_job_start" in answer(address) for address in (first, second)))
