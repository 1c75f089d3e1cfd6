"""How each fault is made, and undone at the end of its block."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from hotplug import one_cpu_less
from lab.cluster import Cluster
from native import Stack
from proofs.faults import cgroup, hogs, quota
from thrash.plan import DELAY_SECONDS, Fault, Kind

__all__ = ["SEAM", "Ground", "full", "inflict", "liar", "set_clock", "small_disk"]

HERE = Path(__file__).resolve().parent
SEAM = HERE / "seam"
"""Directory that Pinchpoint's programs have first in PYTHONPATH."""
STORE_BYTES = 16 << 20
FORK_FOREVER = "while :; do (:) & (:) & (:) & wait; done"
SIGNAL_SECONDS = 5.0
"""Time for a process that was sent SIGTERM."""
MOMENT_SECONDS = 0.1
"""Time between two pauses of an admin socket."""


@dataclass(frozen=True)
class Ground:
    """What the faults hit."""

    cluster: Cluster
    stack: Stack
    seam: Path
    """Folder of the files that seam/sitecustomize.py reads."""
    store: Path
    """A small file system in which runs are saved."""


Make = Callable[[Ground, Fault], contextlib.AbstractContextManager[None]]


def set_clock(seam: Path, ahead: float) -> None:
    """Set by how many seconds the wall clock of Pinchpoint's programs is ahead, also for those that run."""
    descriptor = os.open(seam / "clock", os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(descriptor, struct.pack("d", ahead), 0)
    os.close(descriptor)


def liar(path: Path, lie: int, identity: str) -> list[str]:
    """Return the command of a process that imitates an OSD, with an admin socket at a path; `lie` is one of `LIES`."""
    python = ["env", f"PYTHONPATH={HERE.parent}", sys.executable]
    return [*python, str(HERE / "liar.py"), str(path), str(lie), "-i", identity]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system at a folder."""
    options = f"size={STORE_BYTES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """Leave no room in the file system of a folder."""
    file = folder / "rest"
    try:
        with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
            while True:
                opened.write(bytes(1 << 16))
        yield
    finally:
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _freeze_daemon(ground: Ground, fault: Fault) -> Iterator[None]:
    daemon = ground.cluster.daemon(fault.target)
    try:
        daemon.freeze()
        yield
    finally:
        daemon.thaw()


@contextlib.contextmanager
def _kill_daemon(ground: Ground, fault: Fault) -> Iterator[None]:
    daemon = ground.cluster.daemon(fault.target)
    daemon.kill()
    try:
        yield
    finally:
        daemon.start()


@contextlib.contextmanager
def _quota(ground: Ground, fault: Fault) -> Iterator[None]:
    with cgroup("cpu", quota(fault.level)) as group:
        _enter(group, ground.cluster.daemon(fault.target).pid)
        yield


@contextlib.contextmanager
def _slow_osd(ground: Ground, fault: Fault) -> Iterator[None]:
    option = "osd_debug_inject_dispatch_delay_duration"
    ground.cluster.set_option(fault.target, option, fault.level)
    try:
        yield
    finally:
        ground.cluster.set_option(fault.target, option, DELAY_SECONDS)


@contextlib.contextmanager
def _slow_admin(ground: Ground, fault: Fault) -> Iterator[None]:
    """Freeze the thread that answers questions, and no other, over and over (cgroup-v1/freezer-subsystem.rst)."""
    pid = ground.cluster.daemon(fault.target).pid
    threads = [task.name for task in Path(f"/proc/{pid}/task").iterdir() if _name(task) == "admin_socket"]
    ended = threading.Event()
    with cgroup("freezer", {}) as group:
        for thread in threads:
            (group / "tasks").write_text(thread)

        def pause() -> None:
            while not ended.is_set():
                (group / "freezer.state").write_text("FROZEN")
                ended.wait(fault.level)
                (group / "freezer.state").write_text("THAWED")
                ended.wait(MOMENT_SECONDS)

        pausing = threading.Thread(target=pause)
        pausing.start()
        try:
            yield
        finally:
            ended.set()
            pausing.join()


@contextlib.contextmanager
def _lies(ground: Ground, fault: Fault) -> Iterator[None]:
    name, _, identity = fault.target.partition(".")
    path = ground.cluster.directory / "run" / f"ceph-{name}.{identity}.asok"
    path.unlink(missing_ok=True)
    with _running([liar(path, int(fault.level), identity)]):
        yield


@contextlib.contextmanager
def _freeze_part(ground: Ground, fault: Fault) -> Iterator[None]:
    process = psutil.Process(_pid(ground, fault.target))
    process.suspend()
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


@contextlib.contextmanager
def _kill_part(ground: Ground, fault: Fault) -> Iterator[None]:
    _kill(ground, fault.target)
    yield


@contextlib.contextmanager
def _step(ground: Ground, fault: Fault) -> Iterator[None]:
    set_clock(ground.seam, fault.level)
    try:
        yield
    finally:
        set_clock(ground.seam, 0.0)


@contextlib.contextmanager
def _full_disk(ground: Ground, fault: Fault) -> Iterator[None]:
    with full(ground.store):
        yield


@contextlib.contextmanager
def _forks(ground: Ground, fault: Fault) -> Iterator[None]:
    with _running([["/bin/sh", "-c", FORK_FOREVER]] * int(fault.level)):
        yield


@contextlib.contextmanager
def _hogs(ground: Ground, fault: Fault) -> Iterator[None]:
    with hogs(int(fault.level)):
        yield


@contextlib.contextmanager
def _pids(ground: Ground, fault: Fault) -> Iterator[None]:
    with cgroup("pids", {"pids.max": "0"}) as group:
        _enter(group, _pid(ground, fault.target))
        yield


@contextlib.contextmanager
def _memory(ground: Ground, fault: Fault) -> Iterator[None]:
    # What a process had before it entered is not charged to the group (cgroup-v1/memory.rst, section 8).
    with cgroup("memory", {"memory.limit_in_bytes": str(int(fault.level) << 20)}) as group:
        _enter(group, _pid(ground, fault.target))
        yield


@contextlib.contextmanager
def _descriptors(ground: Ground, fault: Fault) -> Iterator[None]:
    pid = _pid(ground, fault.target)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + int(fault.level), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def _bpf(ground: Ground, fault: Fault) -> Iterator[None]:
    denied = ground.seam / "bpf"
    denied.write_text(f"{fault.level:.0f}")
    try:
        _kill(ground, fault.target)
        yield
    finally:
        denied.unlink()
        _kill(ground, fault.target)


@contextlib.contextmanager
def _offline(ground: Ground, fault: Fault) -> Iterator[None]:
    with one_cpu_less():
        yield


MAKE: Mapping[Kind, Make] = {
    Kind.FREEZE_DAEMON: _freeze_daemon,
    Kind.KILL_DAEMON: _kill_daemon,
    Kind.QUOTA: _quota,
    Kind.SLOW_OSD: _slow_osd,
    Kind.SLOW_ADMIN: _slow_admin,
    Kind.LIES: _lies,
    Kind.FREEZE_PART: _freeze_part,
    Kind.KILL_PART: _kill_part,
    Kind.STEP: _step,
    Kind.FULL_DISK: _full_disk,
    Kind.FORKS: _forks,
    Kind.HOGS: _hogs,
    Kind.PIDS: _pids,
    Kind.DESCRIPTORS: _descriptors,
    Kind.MEMORY: _memory,
    Kind.BPF: _bpf,
    Kind.OFFLINE: _offline,
}


def inflict(ground: Ground, fault: Fault) -> contextlib.AbstractContextManager[None]:
    """Return the fault, which lasts as long as the block.

    Where this machine cannot make it, it raises the exception of `pytest.skip`.
    """
    return MAKE[fault.kind](ground, fault)


def _enter(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def _pid(ground: Ground, part: str) -> int:
    if (pid := ground.stack.pids().get(part)) is None:
        pytest.skip(f"{part} is being started")
    return pid


def _kill(ground: Ground, part: str) -> None:
    """Kill a part, which supervisord starts again."""
    if pid := ground.stack.pids().get(part):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""  # the thread has ended


@contextlib.contextmanager
def _running(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run programs, each with all that it starts."""
    started = [
        subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SIGNAL_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
