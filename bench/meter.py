"""Measures processes: CPU time to the nanosecond, memory, and the cost of a scrape."""

from __future__ import annotations

import compileall
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

import pinchpoint
from compiled import MissingError
from pinchpoint.host.process_cost import cpu_seconds, private_bytes

__all__ = [
    "Scrape",
    "Served",
    "cpu_ms",
    "memory_mb",
    "run_cpu",
    "scrape",
    "series",
    "serving",
    "thread_seconds",
    "total",
]

START_SECONDS = 20.0
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus asks for (2.42, scrape/scrape.go)."""
SETTLE = 0.25
"""Seconds for which a garbage collector may work after an answer; they belong to the scrape."""


def cpu_ms(pid: int) -> float:
    """Return the CPU time of a process in milliseconds, and of the processes that work for it."""
    found = 0.0
    for process in _working(pid):
        ended = process.cpu_times()
        found += cpu_seconds(process.pid) + ended.children_user + ended.children_system
    return 1e3 * found


def thread_seconds(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a process' threads by name, those of processes that work for it as one, "helpers".

    The numbers that end names are left out (``ceph-osd.0`` and ``ceph-osd.1`` are ``ceph-osd``).
    """
    found: dict[str, float] = defaultdict(float)
    for thread in psutil.Process(pid).threads():
        with suppress(OSError):
            task = Path(f"/proc/{pid}/task/{thread.id}")
            name = (task / "comm").read_text().rstrip("0123456789.-\n")
            found[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
    found["helpers"] = cpu_ms(pid) / 1e3 - cpu_seconds(pid)
    return dict(found)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process in MB, and what those that work for it do not share with it."""
    process, *others = _working(pid)
    return (process.memory_info().rss + sum(private_bytes(other.pid) for other in others)) / 1e6


def _working(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def run_cpu(command: Sequence[str]) -> tuple[float, float]:
    """Run a program to its end; return its milliseconds of CPU, including its children's, and its RSS in MB."""
    with tempfile.TemporaryFile() as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise MissingError(f"{command[0]} ended with {process.returncode}")
    return 1e3 * (usage.ru_utime + usage.ru_stime), usage.ru_maxrss * 1024 / 1e6


def scrape(port: int, timeout: float = 60.0) -> str:
    """Return the exposition of the exporter on `port`."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return str(answer.read().decode())


def series(text: str) -> int:
    """Return the number of series in an exposition."""
    return sum(not line.startswith("#") for line in text.splitlines())


def total(text: str, name: str) -> float:
    """Return the sum over the series of a metric."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


class Scrape(NamedTuple):
    """One scrape of an exporter."""

    cpu: float
    """Milliseconds of CPU on top of what the exporter uses anyway."""
    latency: float
    """Milliseconds."""
    text: str


@dataclass(frozen=True)
class Served:
    """A running exporter."""

    pid: int
    port: int

    def cpu_ms(self) -> float:
        """Return its CPU time so far, in milliseconds."""
        return cpu_ms(self.pid)

    def rss(self) -> float:
        """Return its resident memory in MB."""
        return memory_mb(self.pid)

    def scrape(self, rate: float = 0.0) -> Scrape:
        """Scrape it; `rate` is the milliseconds of CPU that it uses per second without scrapes."""
        before, begin = self.cpu_ms(), time.monotonic()
        text = scrape(self.port)
        latency = time.monotonic() - begin
        time.sleep(SETTLE)
        took = time.monotonic() - begin
        return Scrape(max(0.0, self.cpu_ms() - before - rate * took), 1e3 * latency, text)

    def rate(self, seconds: float) -> float:
        """Return the milliseconds of CPU that it uses per second without scrapes."""
        before, begin = self.cpu_ms(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_ms() - before) / (time.monotonic() - begin)


@contextmanager
def serving(command: Sequence[str], port: int) -> Iterator[Served]:
    """Run an exporter that listens on `port` of loopback. Raises MissingError with the exporter's last line.

    Python's modules are compiled, as they are after an installation: to compile them takes CPU time and 2.5 MB.
    """
    _compile()
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read().decode(errors="replace").strip().splitlines()
                    raise MissingError(said[-1] if said else f"{Path(command[0]).name} does not start")
                time.sleep(0.05)
            yield Served(process.pid, port)
        finally:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


@cache
def _compile() -> None:
    compileall.compile_dir(Path(pinchpoint.__file__).parent, quiet=1)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False
