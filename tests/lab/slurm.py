"""A real Slurm cluster of this host alone, from Debian's packages: munged, slurmctld and slurmd on loopback.

The options are those of Slurm 22.05 (Debian 12), slurm.conf(5). It needs root, as slurmd does.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from polling import until
from ports import free_port

__all__ = ["lacking", "slurm"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
START_SECONDS = 20.0
STOP_SECONDS = 10.0
CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 RealMemory=500
PartitionName=main Nodes={host} Default=YES MaxTime=5 State=UP
"""


def lacking() -> str:
    """Return why there can be no cluster here; empty if there can."""
    if os.geteuid():
        return "slurmd needs root"
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def slurm(place: Path) -> Iterator[Mapping[str, str]]:
    """Run a cluster with its files in an empty directory; give the environment in which its commands work."""
    host = socket.gethostname().partition(".")[0]
    config = place / "slurm.conf"
    config.write_text(CONFIG.format(host=host, place=place, controller=free_port(), daemon=free_port()))
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    for path, mode in ((place, 0o755), (key, 0o400)):
        path.chmod(mode)
    for name in ("state", "spool"):
        (place / name).mkdir()
    environment = {**os.environ, "SLURM_CONF": str(config), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    files = [f"--{name}={place}/munge.{end}" for name, end in (("key-file", "key"), ("socket", "socket"),
             ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    with ExitStack() as stack:
        for command in (
            ["munged", "--foreground", "--force", "--num-threads=1", *files],
            ["slurmctld", "-D", "-c"],
            ["slurmd", "-D", "-N", host],
        ):
            log = stack.enter_context((place / f"{command[0]}.out").open("wb"))
            daemon = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(_end, daemon)
            if command[0] == "munged":
                until(START_SECONDS, (place / "munge.socket").exists)
        if not until(START_SECONDS, lambda: "idle" in _said(environment, "sinfo", "--noheader", "--format=%t")):
            raise RuntimeError("no idle node: " + "".join(path.read_text()[-500:] for path in place.glob("*.out")))
        stack.callback(_cancel, environment)
        yield environment


def _said(environment: Mapping[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _cancel(environment: Mapping[str, str]) -> None:
    """End the jobs: what a slurmstepd has started outlives slurmd."""
    _said(environment, "scancel", "--signal=KILL", "--full", "--partition=main")
    _said(environment, "scancel", "--partition=main")
    until(STOP_SECONDS, lambda: not _said(environment, "squeue", "--noheader"))


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
