"""Faults for local loads: slow disks, CPU quotas, limits of block I/O, links with a queue. All end with their block."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from polling import until

__all__ = [
    "SlowDisk",
    "beside",
    "cgroup",
    "compressed_disk",
    "entering",
    "hogs",
    "limit_dirty",
    "listens",
    "own_network",
    "quota",
    "shaped_loopback",
    "shaped_namespace",
    "slow_disk",
]

HIERARCHIES = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""Period of a CPU quota in microseconds, the kernel's default (sched-bwc.rst) ..."""
MIN_QUOTA = 1000
"""... and the smallest quota in a period."""
SIZE = 256 << 20
CLONE_NEWNET = 0x40000000  # linux/sched.h

_numbers = itertools.count()


def _run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextlib.contextmanager
def cgroup(controller: str, settings: Mapping[str, str]) -> Iterator[Path]:
    """Make a group in a cgroup v1 hierarchy with these settings; its processes return to the root at the end."""
    root = HIERARCHIES / controller
    group = root / f"pinchpoint-scenario-{os.getpid()}-{next(_numbers)}"
    try:
        group.mkdir()
        for name, value in settings.items():
            (group / name).write_text(value)
    except OSError as problem:
        pytest.skip(f"no hierarchy {controller} of cgroup v1: {problem}")
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        assert until(10, lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def quota(cpus: float) -> Mapping[str, str]:
    """Return the settings for a group of the hierarchy cpu that may use so many CPUs."""
    period = max(PERIOD, math.ceil(MIN_QUOTA / cpus))
    return {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(max(MIN_QUOTA, round(cpus * period)))}


def entering(group: Path) -> Sequence[str]:
    """Return the beginning of a command that runs in a group."""
    return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")]


@contextlib.contextmanager
def hogs(number: int, cpus: str = "") -> Iterator[None]:
    """Keep CPUs busy with processes that are not taken for a benchmark."""
    command = ["/bin/sh", "-c", "while :; do :; done"]
    started = [subprocess.Popen(["taskset", "-c", cpus, *command] if cpus else command) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class SlowDisk:
    """A file system on a disk that is artificially slow."""

    mount: Path
    name: str
    """The exporter's name for the disk: ``loop3``."""
    number: str
    """MAJOR:MINOR."""


@contextlib.contextmanager
def slow_disk(directory: Path, limits: Mapping[str, int]) -> Iterator[SlowDisk]:
    """Make a disk with limits such as ``{"write_bps": 20 << 20}``.

    It is a loop device on another loop device, and the lower one is limited in the root group. The upper one's worker
    is in that group, and so the upper one looks like a slow disk, with a queue in its statistics.
    """
    memory = Path("/dev/shm")
    lower_file = (memory if memory.is_dir() else directory) / f"pinchpoint-disk-{os.getpid()}-{next(_numbers)}"
    with contextlib.ExitStack() as stack:
        stack.callback(lower_file.unlink, missing_ok=True)
        with lower_file.open("wb") as file:
            file.truncate(SIZE)
        lower = _run("losetup", "--find", "--show", lower_file)
        stack.callback(subprocess.run, ["losetup", "--detach", lower], check=False)
        upper = _run("losetup", "--find", "--show", "--direct-io=on", lower)
        stack.callback(subprocess.run, ["losetup", "--detach", upper], check=False)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", upper)
        mount = directory / "slow"
        mount.mkdir()
        _run("mount", upper, mount)
        stack.callback(subprocess.run, ["umount", "--lazy", str(mount)], check=False)
        name = Path(upper).name
        for key, value in limits.items():
            _limit(stack, lower, key, value)
        yield SlowDisk(mount, name, Path(f"/sys/block/{name}/dev").read_text().strip())


def _limit(stack: contextlib.ExitStack, device: str, key: str, value: int) -> None:
    number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
    file = HIERARCHIES / "blkio" / f"blkio.throttle.{key}_device"
    try:
        file.write_text(f"{number} {value}")
    except OSError as problem:
        pytest.skip(f"{file}: {problem}")
    stack.callback(file.write_text, f"{number} 0")


@contextlib.contextmanager
def shaped_namespace(rate: str, *, within: bool = False) -> Iterator[tuple[str, str, str]]:
    """Make a network namespace behind a link; give its name, an address in it, and the link's end that has this rate.

    That end is ours, or the one `within` the namespace.
    """
    name = f"pinch{os.getpid() % 10000}n{next(_numbers)}"
    inside, outside = f"{name}i"[-15:], f"{name}o"[-15:]
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("no ip and tc; the Debian package iproute2 has them")
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _run("ip", "addr", "add", "10.215.0.1/24", "dev", outside)
        _run("ip", "link", "set", outside, "up")
        _run("ip", "-n", name, "addr", "add", "10.215.0.2/24", "dev", inside)
        _run("ip", "-n", name, "link", "set", inside, "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        shaped, where = (inside, ["-n", name]) if within else (outside, [])
        shape = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"]
        _run("tc", *where, "qdisc", "add", "dev", shaped, *shape)
        yield name, "10.215.0.2", shaped
    finally:
        subprocess.run(["ip", "link", "delete", outside], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


@contextlib.contextmanager
def compressed_disk(directory: Path) -> Iterator[SlowDisk]:
    """Make a file system on a zram device: its flush worker compresses, which costs CPU time but no disk time."""
    control = Path("/sys/class/zram-control")
    with contextlib.ExitStack() as stack:
        try:
            number = (control / "hot_add").read_text().strip()
            stack.callback((control / "hot_remove").write_text, number)
            Path(f"/sys/block/zram{number}/disksize").write_text(str(SIZE))
        except OSError as problem:
            pytest.skip(f"no zram: {problem}")
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/zram{number}")
        mount = directory / "compressed"
        mount.mkdir()
        _run("mount", f"/dev/zram{number}", mount)
        stack.callback(subprocess.run, ["umount", str(mount)], check=False)
        yield SlowDisk(mount, f"zram{number}", Path(f"/sys/block/zram{number}/dev").read_text().strip())


@contextlib.contextmanager
def beside(command: Sequence[str]) -> Iterator[None]:
    """Run a neighbour during the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def limit_dirty(disk: SlowDisk, size: int) -> None:
    """Make writers to a disk wait at so many dirty bytes of it: otherwise they wait only after gigabytes."""
    bdi = Path(f"/sys/class/bdi/{disk.number}")
    try:
        (bdi / "strict_limit").write_text("1")
        (bdi / "max_bytes").write_text(str(size))
    except OSError as problem:
        pytest.skip(f"{bdi}: {problem}")  # since Linux 6.2


def listens(namespace: str, port: int) -> bool:
    """Return whether a process listens on a TCP port in a namespace; an empty name means ours."""
    there = ["ip", "netns", "exec", namespace] if namespace else []
    found = subprocess.run(
        [*there, "ss", "-Hltn", f"sport = :{port}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(found.stdout.strip())


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Move the calling thread, and all that it starts, into its own network namespace that has only loopback."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"may not make a network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            if libc.setns(home, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(home)


@contextlib.contextmanager
def shaped_loopback(rate: str) -> Iterator[None]:
    """Limit the rate of the loopback link; for use within `own_network`."""
    # The bucket must hold a whole packet of lo, 64 KiB (tc-tbf(8)).
    _run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "200ms")
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "delete", "dev", "lo", "root"], capture_output=True, check=False)
