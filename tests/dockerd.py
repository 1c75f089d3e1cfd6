"""A real dockerd for tests: Debian 13's, in a chroot and a mount namespace, without any registry of images."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from native import TREE
from patience import patience
from polling import until

__all__ = ["BASE_IMAGE", "STAND_INS", "Engine", "EngineError", "why_not"]

CACHE = TREE / ".containers"
"""The two systems that debootstrap makes, 1 GB; `make clean` removes them."""
MIRROR = "http://deb.debian.org/debian"
ENGINE = ("trixie", "docker.io,docker-cli,docker-compose,docker-buildx,ca-certificates")
"""Debian 12's docker.io and docker-compose are too old for the files in compose/."""
BASE = ("bookworm", "python3,python3-venv,ca-certificates")
"""In the place of python:3.11-slim-bookworm."""
BASE_IMAGE = "stand-in/python:3.11"
STAND_INS = {
    "PROMETHEUS_IMAGE": "prometheus",
    "ALERTMANAGER_IMAGE": "alertmanager",
    "NODE_EXPORTER_IMAGE": "node",
    "GRAFANA_IMAGE": "grafana",
}
"""The setting of compose/.env, and the stage of containers/Dockerfile."""
MADE = Path("made")
"""Stands in a system that debootstrap finished."""
DESCRIPTORS = 4096
"""The most open files that this dockerd can give: containers that ask for more do not start."""
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
START_SECONDS, STOP_SECONDS, COMMAND_SECONDS = 30.0, 30.0, 900.0

ALONE = ("unshare", "--mount", "--propagation=private")
# "$1" is the chroot and "$2" the tree. pivot_root instead of chroot, since runc makes / private, and / has to be
# a mount; it is shared because compose.yaml mounts it with rslave. The mounts end with the namespace's last process.
ENTER = """
set -eu
mount --bind "$1" "$1"
cd "$1"
mkdir -p tree old
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --bind "$2" tree
mount -o remount,bind,ro tree
pivot_root . old
umount -l old
mount --make-rshared /
shift 2
exec "$@"
"""


class EngineError(Exception):
    """A command of the engine that failed, with the end of what it said."""


def why_not() -> str:
    """Return why no dockerd can be started here, or ""."""
    if os.geteuid():
        return "needs root, to start dockerd"
    if missing := [name for name in ("debootstrap", "unshare", "nsenter", "prlimit") if not shutil.which(name)]:
        return f"needs {', '.join(missing)} (apt-get install debootstrap util-linux)"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "needs a mount namespace, which this machine refuses"
    if not any(Path("/sys/fs/cgroup").glob("*")):
        return "needs cgroups at /sys/fs/cgroup"
    filesystems = Path("/proc/filesystems").read_text().split()
    return "" if "overlay" in filesystems else "needs a kernel with overlayfs"


def _debootstrap(name: str, release: str, packages: str) -> Path:
    """Return the system of this name, made if it is not there yet. Raises EngineError."""
    system = CACHE / name
    if (system / MADE).exists():
        return system
    shutil.rmtree(system, ignore_errors=True)
    CACHE.mkdir(exist_ok=True)
    _run("debootstrap", "--variant=minbase", f"--include={packages}", release, str(system), MIRROR)
    (system / MADE).touch()
    return system


def _run(*command: str, **variables: str) -> str:
    """Run a command and return its output. Raises EngineError."""
    done = subprocess.run(
        command,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(COMMAND_SECONDS),
    )
    if done.returncode:
        raise EngineError(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-6000:]}")
    return done.stdout


class Engine:
    """A dockerd, as a context; its images stay for the next one with the same chroot, its containers do not."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._root = CACHE / "engine"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._namespaces: set[str] = set()
        self._group = f"pinchpoint-containers-{os.getpid()}"

    def __enter__(self) -> Engine:
        self._root = _debootstrap("engine", *ENGINE)
        shutil.copyfile("/etc/resolv.conf", self._root / "etc" / "resolv.conf")
        try:
            self.start()
            self._import_base()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(EngineError, subprocess.TimeoutExpired):
            if self._daemon is not None and (left := self.docker("ps", "--all", "--quiet").split()):
                self.docker("rm", "--force", "--volumes", *left)
        self.stop()
        for process in self._leftovers():
            with suppress(psutil.Error):
                process.kill()
        self._remove_groups()

    def start(self) -> None:
        """Start dockerd and wait until it answers. Raises EngineError with its log."""
        daemon = [
            "prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}",
            "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", f"--cgroup-parent=/{self._group}",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._daemon = subprocess.Popen(
                [*ALONE, "sh", "-c", ENTER, "sh", str(self._root), str(TREE), *daemon],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        if not until(START_SECONDS, self._answers, pause=0.2):
            raise EngineError(f"dockerd does not answer:\n{self._log.read_text()[-3000:]}")
        self._namespaces.add(os.readlink(f"/proc/{self._daemon.pid}/ns/mnt"))

    def stop(self) -> None:
        """Stop dockerd, and with it its containers and containerd."""
        if self._daemon is None:
            return
        self._daemon.terminate()
        try:
            self._daemon.wait(patience(STOP_SECONDS))
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        self._daemon = None

    def kill(self, pid: int) -> None:
        """Kill a process of a container, as a fault would. Raises EngineError for one that is not of this engine."""
        if self._group not in Path(f"/proc/{pid}/cgroup").read_text():
            raise EngineError(f"process {pid} does not belong to a container of this dockerd")
        os.kill(pid, signal.SIGKILL)

    def docker(self, *arguments: str, **variables: str) -> str:
        """Run docker with these arguments and return its output. Raises EngineError."""
        assert self._daemon is not None
        inside = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **variables}
        # Not nsenter's --wd: it looks for the directory outside.
        enter = ["nsenter", f"--target={self._daemon.pid}", "--mount", "--root"]
        settings = (f"{name}={value}" for name, value in inside.items())
        return _run(*enter, "env", "--ignore-environment", "--chdir=/tree", *settings, "docker", *arguments)

    def compose(self, *arguments: str, **variables: str) -> str:
        """Run docker compose on the files in compose/, with settings of .env. Raises EngineError."""
        files = ("--file=compose/compose.yaml", "--file=tests/compose/containers/local.yaml")
        images = {name: f"stand-in/{stage}" for name, stage in STAND_INS.items()}
        return self.docker("compose", *files, *arguments, **images, PYTHON_IMAGE=BASE_IMAGE, **variables)

    def build_stand_ins(self) -> None:
        """Build the images that a registry would give. Raises EngineError."""
        for stage in STAND_INS.values():
            self.docker(
                "build", "--quiet", "--network=host", f"--target={stage}", f"--tag=stand-in/{stage}",
                f"--build-arg=BASE={BASE_IMAGE}", "tests/compose/containers",
            )  # fmt: skip

    def sizes(self) -> Mapping[str, int]:
        """Return the bytes of the exporter's image and of its base."""
        images = {"base": BASE_IMAGE, "exporter": "pinchpoint-pinchpoint"}
        return {
            name: int(self.docker("image", "inspect", "--format={{.Size}}", image)) for name, image in images.items()
        }

    def _answers(self) -> bool:
        if self._daemon is None:
            return False
        if self._daemon.poll() is not None:
            raise EngineError(f"dockerd ended:\n{self._log.read_text()[-3000:]}")
        try:
            self.docker("version")
        except EngineError:
            return False
        return True

    def _import_base(self) -> None:
        if self.docker("image", "ls", "--quiet", BASE_IMAGE).strip():
            return
        system = _debootstrap("base", *BASE)
        # Where this machine trusts authorities of its own, pip has to trust them too.
        if AUTHORITIES.exists():
            shutil.copyfile(AUTHORITIES, system / AUTHORITIES.relative_to("/"))
            (system / "etc" / "pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")
        shutil.rmtree(system / "var/cache/apt/archives", ignore_errors=True)
        shutil.rmtree(system / "var/lib/apt/lists", ignore_errors=True)
        archive = self._root / "base.tar"
        try:
            _run("tar", "--create", f"--file={archive}", f"--directory={system}", "--numeric-owner", ".")
            self.docker("import", "/base.tar", BASE_IMAGE)
        finally:
            archive.unlink(missing_ok=True)

    def _leftovers(self) -> Iterator[psutil.Process]:
        """Yield what outlived dockerd: containerd and its shims by their namespace, containers by their cgroup."""
        for process in psutil.process_iter():
            with suppress(OSError):
                entry = Path(f"/proc/{process.pid}")
                if os.readlink(entry / "ns/mnt") in self._namespaces or self._group in (entry / "cgroup").read_text():
                    yield process

    def _remove_groups(self) -> None:
        for group in sorted(Path("/sys/fs/cgroup").glob(f"**/{self._group}/**/"), reverse=True):
            with suppress(OSError):
                group.rmdir()
