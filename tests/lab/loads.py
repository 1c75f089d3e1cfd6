"""Loads on a cluster of the lab: context managers that start a load and end it with the block."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil

from lab.cluster import HERE, POLL_SECONDS, PYTHON, Cluster, LabError
from patience import Deadline
from ports import free_port

__all__ = [
    "Ganesha",
    "Load",
    "fio_rbd",
    "ganesha",
    "has_ganesha",
    "metadata",
    "metadata_command",
    "omap",
    "rados_bench",
]

READY_SECONDS = 60.0
STOP_SECONDS = 5.0
Mode = Literal["hold", "create", "storm", "scan", "read", "write"]

_numbers = itertools.count()


class Load:
    """A running load; as a context manager, one that ends with the block."""

    def __init__(self, cluster: Cluster, program: str, command: Sequence[str]) -> None:
        self.name = f"{program}.{next(_numbers)}"
        self.output = cluster.directory / "log" / f"ceph-{self.name}.out"
        """Its output file."""
        self._cluster = cluster
        self._process = cluster.spawn(command, self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, text: str = "ready", seconds: float = READY_SECONDS) -> Self:
        """Return when a line of the output starts with `text`. Raises LabError if the load ends before."""
        deadline = Deadline(seconds)
        while not any(line.startswith(text) for line in self._lines()):
            if not self.running or deadline.over:
                end = "\n".join(f"  {line}" for line in self._lines()[-8:])
                how = "is not ready" if self.running else "ended"
                raise LabError(f"The load {self.name} {how}.\n{end}")
            time.sleep(POLL_SECONDS)
        return self

    def operations(self) -> int:
        """Return how many operations a load of clients.py has done since its start; it reports them once a second."""
        counts = [line for line in self._lines() if line.isdecimal()]
        return int(counts[-1]) if counts else 0

    def wait(self, seconds: float) -> int:
        """Wait for its own end; return its status."""
        return self._process.wait(seconds)

    def stop(self) -> None:
        """End it, so that its clients unmount; by force if that takes long, as under a stopped daemon."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in self.kill():
                self._cluster.evict(pid)

    def kill(self) -> list[int]:
        """Kill it, and return the PIDs that it had: their clients keep their capabilities for 300 s."""
        pids = [self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))]
        self._process.kill()
        self._process.wait()
        return pids

    def _lines(self) -> list[str]:
        return self.output.read_text(errors="replace").splitlines()


class Ganesha(Load):
    """NFS-Ganesha that exports the file system as /cephfs, NFSv4.0 only."""

    def __init__(self, cluster: Cluster) -> None:
        self.port = free_port()
        state = Path(cluster.directory, f"ganesha.{self.port}")
        state.mkdir()
        (state / "ganesha.conf").write_text(_ganesha_configuration(cluster, state, self.port))
        command = ["ganesha.nfsd", "-F", "-f", f"{state}/ganesha.conf", "-L", f"{state}/log", "-p", f"{state}/pid"]
        super().__init__(cluster, "ganesha", command)
        self._log = state / "log"

    def url(self, path: str = "") -> str:
        """Return a URL for the utilities of libnfs."""
        return f"nfs://127.0.0.1/cephfs/{path}?version=4&nfsport={self.port}"

    def wait_ready(self, text: str = "", seconds: float = READY_SECONDS) -> Self:
        """Return when it answers."""
        deadline = Deadline(seconds)
        while subprocess.run(["nfs-ls", self.url()], capture_output=True, check=False, timeout=seconds).returncode:
            if not self.running or deadline.over:
                lines = self._log.read_text(errors="replace").splitlines()[-8:] if self._log.exists() else []
                how = "does not answer" if self.running else "ended"
                raise LabError("\n".join([f"ganesha.nfsd {how}.", *(f"  {line}" for line in lines)]))
            time.sleep(POLL_SECONDS)
        return self

    def load(self) -> Load:
        """List the directory and copy a file of 6 bytes into it, over and over; nfs-cp fails with larger files."""
        script = 'echo ready; printf 6bytes >"$0"; while :; do nfs-ls "$1" && nfs-cp "$0" "$2"; done >/dev/null 2>&1'
        source = str(self._cluster.directory / f"ganesha.{self.port}" / "source")
        return Load(self._cluster, "nfs", ["/bin/sh", "-c", script, source, self.url(), self.url("copied")])

    def client_command(self) -> list[str]:
        """Return the command of a client that creates and removes a file until it is killed (nfs_client.py)."""
        return [sys.executable, str(HERE / "nfs_client.py"), self.url()]

    def stop(self) -> None:
        """End it, and evict its client: otherwise its session keeps its capabilities until they are reclaimed."""
        super().stop()
        self._cluster.evict(self.pid)


def metadata_command(
    mode: Mode,
    *,
    processes: int = 1,
    rate: float = 0,
    files: int = 1000,
    ramp: int = 0,
    keep: bool = False,
    size: int = 16 << 20,
    block: int = 4096,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command of libcephfs clients (clients.py), which finds the cluster by its environment.

    hold: create `files` files, the first `ramp` of them at `rate` a second, and keep them open. create: create and
    unlink, or `keep`. storm: create, stat, unlink. scan: list directories of `files` files in total. read, write:
    blocks of a file of `size` bytes. `rate` limits the operations per second of each of the `processes`. `options` are
    for their ceph.conf.
    """
    numbers = {"processes": processes, "rate": rate, "files": files, "ramp": ramp, "size": size, "block": block}
    command = [PYTHON, str(HERE / "clients.py"), mode, *(f"--{name}={value}" for name, value in numbers.items())]
    command += [f"--option={name}={value}" for name, value in (options or {}).items()]
    return [*command, "--keep"] if keep else command


def metadata(cluster: Cluster, mode: Mode, *, nice: int = 0, **parameters: Any) -> Load:
    """Start libcephfs clients, with the parameters of `metadata_command`."""
    return Load(cluster, mode, ["nice", "-n", str(nice), *metadata_command(mode, **parameters)])


def rados_bench(
    cluster: Cluster,
    mode: Literal["write", "seq", "rand"] = "write",
    *,
    seconds: int = 600,
    block: int = 4096,
    threads: int = 16,
    pool: str = "rbd",
) -> Load:
    """Start `rados bench`; reads need the objects of an earlier write."""
    command = ["rados", "bench", "-p", pool, str(seconds), mode, "-t", str(threads)]
    if mode == "write":
        command += ["-b", str(block), "--no-cleanup"]
    return Load(cluster, "rados", command)


def omap(cluster: Cluster) -> Load:
    """Start a client that replaces omap keys, which are in the OSDs' databases."""
    return Load(cluster, "omap", [PYTHON, str(HERE / "omap.py")])


def fio_rbd(
    cluster: Cluster,
    *,
    rw: str = "randwrite",
    bs: str = "4k",
    iodepth: int = 32,
    seconds: int = 600,
    size: str = "256M",
    object_size: str = "4M",
    image: str = "image",
    extra: Sequence[str] = (),
) -> Load:
    """Start fio with its RBD engine on an image, which is created if it does not exist."""
    if shutil.which("fio") is None:
        raise LabError("Not installed: fio. `make setup` as root installs it.")
    environment = cluster.environment()
    rbd = ["rbd", "-p", "rbd"]
    if subprocess.run([*rbd, "info", image], env=environment, capture_output=True, check=False).returncode:
        create = [*rbd, "create", image, "--size", size, "--object-size", object_size]
        subprocess.run(create, env=environment, capture_output=True, check=True)
    command = ["fio", f"--name={rw}", "--ioengine=rbd", "--clientname=admin", "--pool=rbd", f"--rbdname={image}"]
    command += [f"--rw={rw}", f"--bs={bs}", f"--iodepth={iodepth}", "--time_based", f"--runtime={seconds}"]
    return Load(cluster, "fio", [*command, *extra])


def has_ganesha() -> bool:
    """Return whether everything that `ganesha` needs is installed."""
    return not _absent()


def ganesha(cluster: Cluster) -> Ganesha:
    """Start NFS-Ganesha on the file system; return when it answers."""
    if absent := _absent():
        raise LabError(f"Not installed: {', '.join(absent)}. `make setup` as root installs it.")
    server = Ganesha(cluster)
    try:
        return server.wait_ready()
    except BaseException:
        server.stop()
        raise


def _absent() -> list[str]:
    packages = {"ganesha.nfsd": "nfs-ganesha", "nfs-cp": "libnfs-utils"}
    absent = [package for program, package in packages.items() if shutil.which(program) is None]
    return absent if any(Path("/usr/lib").glob("*/ganesha/libfsalceph.so")) else [*absent, "nfs-ganesha-ceph"]


def _ganesha_configuration(cluster: Cluster, state: Path, port: int) -> str:
    return f"""
NFS_CORE_PARAM {{
    NFS_Port = {port};
    Bind_addr = 127.0.0.1;
    Protocols = 4;
    Enable_NLM = false;
    Enable_RQUOTA = false;
}}
NFSV4 {{
    RecoveryBackend = fs;
    RecoveryRoot = {state};
    Minor_Versions = 0;
    Graceless = true;
}}
CEPH {{
    Ceph_Conf = {cluster.conf};
}}
EXPORT {{
    Export_Id = 1;
    Path = /;
    Pseudo = /cephfs;
    Access_Type = RW;
    Squash = None;
    SecType = sys, none;
    Protocols = 4;
    Transports = TCP;
    FSAL {{ Name = CEPH; }}
}}
"""
