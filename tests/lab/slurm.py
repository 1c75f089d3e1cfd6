"""A real Slurm cluster of this host alone, from Debian's packages: munged, slurmctld and slurmd on loopback.

Each of several nodes has a PID namespace, as if it were a host: it sees its own processes. The options are those of
Slurm 22.05 (Debian 12), slurm.conf(5). It needs root, as slurmd does.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from hosts import another_host
from polling import until
from ports import free_port

__all__ = ["Slurm", "lacking", "slurm"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
START_SECONDS = 20.0
STOP_SECONDS = 10.0
CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
PartitionName=main Nodes=ALL Default=YES MaxTime=5 State=UP
"""
NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=500\n"


class Slurm(NamedTuple):
    """A cluster."""

    environment: Mapping[str, str]
    """In which its commands work."""
    namespaces: Mapping[str, Sequence[str]]
    """What has to stand before a command so that it runs on a node, by the node's name."""


def lacking() -> str:
    """Return why there can be no cluster here; empty if there can."""
    if os.geteuid():
        return "slurmd needs root"
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def slurm(place: Path, *, nodes: int = 1, options: Mapping[str, str] | None = None) -> Iterator[Slurm]:
    """Run a cluster with its files in an empty directory; `options` are more lines of slurm.conf."""
    host = socket.gethostname().partition(".")[0]
    # Short, since sockets are named after them, in the spool directory: 107 bytes with their path, unix(7).
    names = [f"n{number}" for number in range(nodes)]
    config = place / "slurm.conf"
    config.write_text(
        CONFIG.format(host=host, place=place, controller=free_port())
        + "".join(f"{name}={value}\n" for name, value in (options or {}).items())
        + "".join(NODE.format(node=name, host=host, port=free_port()) for name in names)
    )
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    for path, mode in ((place, 0o755), (key, 0o400)):
        path.chmod(mode)
    for name in ("state", *names):
        (place / name).mkdir()
    environment = {**os.environ, "SLURM_CONF": str(config), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    files = [f"--{name}={place}/munge.{end}" for name, end in (("key-file", "key"), ("socket", "socket"),
             ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
    with ExitStack() as stack:

        def start(name: str, *command: str) -> None:
            log = stack.enter_context((place / f"{name}.out").open("wb"))
            daemon = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(_end, daemon)

        start("munged", "munged", "--foreground", "--force", "--num-threads=1", *files)
        until(START_SECONDS, (place / "munge.socket").exists)
        start("slurmctld", "slurmctld", "-D", "-c")
        namespaces = {name: stack.enter_context(another_host()) if nodes > 1 else () for name in names}
        for name, enter in namespaces.items():
            start(name, *enter, "slurmd", "-D", "-N", name)
        if not until(
            START_SECONDS, lambda: _said(environment, "sinfo", "--noheader", "-N", "-o%t").split() == ["idle"] * nodes
        ):
            raise RuntimeError("no idle node: " + "".join(path.read_text()[-500:] for path in place.glob("*.out")))
        stack.callback(_cancel, environment)
        yield Slurm(environment, namespaces)


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
