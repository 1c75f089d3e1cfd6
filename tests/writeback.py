"""Real writeback to this machine's disk, and the times that the kernel reports for its workers."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinchpoint.host.procfs import FormatError, parse_schedstat, parse_stat, read_bytes

__all__ = ["device_number", "dirtying", "worker_times"]


def device_number(path: Path) -> str:
    """Return MAJOR:MINOR of the file system that holds a file; skip if workers don't write it back."""
    command = ["stat", "-f", "-c", "%T", str(path)]
    kind = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if kind not in ("ext2/ext3", "ext4", "xfs"):
        pytest.skip(f"the temporary directory is on {kind}; writeback is tested on ext4 and xfs")
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


@contextmanager
def dirtying(path: Path) -> Iterator[None]:
    """Write every other page of a file, then have the worker write them back (fsync would write them itself)."""
    stop = threading.Event()

    def work() -> None:
        page = bytes(4096)
        syncfs = ctypes.CDLL(None).syncfs
        with path.open("wb") as file:
            while not stop.is_set():
                for index in range(0, 16384, 2):
                    os.pwrite(file.fileno(), page, index * len(page))
                syncfs(file.fileno())

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def worker_times() -> dict[int, int]:
    """Return the total nanoseconds that every worker has used."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and (stat := parse_stat(read_bytes(f"/proc/{name}/stat"))).kworker and stat.kernel_thread:
                found[int(name)] = parse_schedstat(read_bytes(f"/proc/{name}/schedstat"))[0]
        except (OSError, FormatError):
            continue
    return found
