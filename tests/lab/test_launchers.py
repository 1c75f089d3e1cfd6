"""Ranks that mpirun and mpiexec.hydra start on two hosts, and an exporter on each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from hosts import another_host, remote_shell
from lab.exporters import answer, exporting, make_rank, shows, watched
from polling import until

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Launcher(NamedTuple):
    """A program that starts ranks on several hosts, by a remote shell."""

    program: str
    options: Callable[[Path], Sequence[str]]
    """Starts two ranks here and two on the host ``n1``, by the shell with that path."""
    number: str
    """The variable with a rank's number."""


def _open_mpi(shell: Path) -> Sequence[str]:
    """Return options of Open MPI 4.1 (man 1 mpirun)."""
    return "--mca", "plm_rsh_agent", str(shell), "--oversubscribe", "--host", "localhost:2,n1:2", "-np", "4"


def _hydra(shell: Path) -> Sequence[str]:
    """Return options of MPICH 4.0's process manager (``mpiexec.hydra -help``)."""
    return "-launcher-exec", str(shell), "-localhost", "127.0.0.1", "-hosts", "127.0.0.1,n1", "-ppn", "2", "-n", "4"


@pytest.mark.parametrize(
    "launcher",
    [
        Launcher("mpirun.openmpi", _open_mpi, "OMPI_COMM_WORLD_RANK"),
        Launcher("mpiexec.hydra", _hydra, "PMI_RANK"),
    ],
    ids=lambda launcher: launcher.program,
)
def test_ranks_on_two_hosts_belong_to_one_run(tmp_path: Path, launcher: Launcher) -> None:
    if os.geteuid() or shutil.which(launcher.program) is None:
        pytest.skip("needs root" if os.geteuid() else f"{launcher.program} is not installed")
    rank = make_rank(tmp_path, launcher.number)
    with ExitStack() as stack:
        hosts = [stack.enter_context(another_host()) for _ in range(2)]
        shell = stack.enter_context(remote_shell(tmp_path, {"n1": hosts[1]}))
        first, second = (
            stack.enter_context(exporting(tmp_path / f"runs-{place}", *host)) for place, host in enumerate(hosts)
        )
        command = [*hosts[0], launcher.program, *launcher.options(shell), str(rank)]
        stack.callback(stack.enter_context(subprocess.Popen(command, env={**os.environ, **AS_ROOT})).terminate)

        ranks = '^pinchpoint_workload_ranks{{benchmark="ior",run="{}",state="working"}} 2'
        slowest = '^pinchpoint_workload_slowest_rank{{benchmark="ior",numbered="mpi",run=".*"}} {}'
        assert until(60, lambda: shows(first, ranks.format(r"\d+T\d+Z-ior"))), answer(first)
        assert until(60, lambda: shows(second, ranks.format(""))), answer(second)
        assert until(60, lambda: shows(first, slowest.format("[01]"))), answer(first)
        assert until(60, lambda: shows(second, slowest.format("[23]"))), answer(second)
        # How many of them work varies on a busy host.
        assert until(60, lambda: "of 4.0 processes at a time" in watched(first, second)), watched(first, second)
