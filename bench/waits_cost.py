"""What it costs to know what a benchmark waits for, in each way: the section "waits" of the page.

Both sources of the exporter look in turns at the same load. The figures are CPU time of the looking thread
(CLOCK_THREAD_CPUTIME_ID), which a busy machine does not change, and that of the timer in the kernel. They leave out the
pass over all processes, which the exporter makes anyway. Beside them is what a program at each switch of the scheduler
takes (switches.bpf.c), by the kernel's own count.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from compiled import HERE, MissingError
from page import Goal, machine, parser, publish, table
from pinchpoint.bpf.libbpf import OBJECTS, BpfError, Loaded, load
from pinchpoint.build import build_host
from pinchpoint.choices import WAIT_SOURCES
from pinchpoint.config import Config
from pinchpoint.metrics import WORKLOAD_SECONDS
from pinchpoint.model import Snapshot
from pinchpoint.probes.waits import Waits

LIMIT = 1.0
"""Percent of one CPU for 32 threads."""
INTERVAL = 0.1
SETTLED = 2.0
"""Seconds until the probe knows the run of the processes."""
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
SWITCHES = {"times": "at each switch: times only", "with_stack": "at each switch: a stack at each wait"}
THREADS = """
import ctypes, os, sys, threading, time
directory, count = sys.argv[1], int(sys.argv[2])
ctypes.CDLL(None).prctl(15, b"ior", 0, 0, 0)  # PR_SET_NAME, which is the comm of the process
def write(number):
    file = os.open(f"{directory}/{number}", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    block = bytes(4096)
    for turn in range(1 << 62):
        os.pwrite(file, block, turn % 256 * 4096)
        time.sleep(0.005)
for number in range(count):
    threading.Thread(target=write, args=(number,), daemon=True).start()
time.sleep(1 << 20)
"""


class Cost(NamedTuple):
    """Per cent of one CPU."""

    probe: float
    kernel: float
    looks: float
    """Stacks seen per second."""


@contextmanager
def running(command: Sequence[str]) -> Iterator[int]:
    """Run a load; yield its pid."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            time.sleep(SETTLED)
            yield process.pid
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()


def probed(source: str, seconds: float) -> Cost:
    """Look at the load for some time by one source. Raises UnusableSourceError."""
    config = Config()
    config.path.runs = os.devnull  # no directory of markers
    config.wait_source = source
    probe = Waits(build_host(config))
    try:
        _look(probe, SETTLED)
        before, kernel, waited = _seen(probe), probe.kernel_seconds, _waited(probe)
        used = _look(probe, seconds)
        if _waited(probe) - waited < seconds / 2:
            raise SystemExit("the probe did not find the load")
        kernel = probe.kernel_seconds - kernel
        return Cost(100 * used / seconds, 100 * kernel / seconds, (_seen(probe) - before) / seconds)
    finally:
        probe.close()


def _look(probe: Waits, seconds: float) -> float:
    """Sample for some time; return the CPU seconds that it took."""
    used = 0.0
    due = time.monotonic()
    end = due + seconds
    while (now := time.monotonic()) < end:
        probe.host.processes.current(now)  # the exporter makes this pass anyway
        begin = time.thread_time()
        probe.sample(now)
        used += time.thread_time() - begin
        due += probe.interval or INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))
    return used


def _seen(probe: Waits) -> int:
    return sum(stack.times for stack in probe.stacks)


def _waited(probe: Waits) -> float:
    return sum(value for _, value in Snapshot.of(0.0, probe.points()).series(WORKLOAD_SECONDS.name))


def switched(program: str, pid: int, seconds: float) -> tuple[Cost, float, float]:
    """Charge waits at switches for some time; return the cost, switches of the host and waits of the load per second.

    Raises MissingError, BpfError.
    """
    loaded = _load(program)
    try:
        for one in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
            loaded.put("followed", struct.pack("=I", one), b"\1")
        STATISTICS.write_text("1")
        before, (waits,) = loaded.statistics(program), struct.unpack_from("=Q", loaded.memory(".bss"))
        time.sleep(seconds)
        after, (waits_after,) = loaded.statistics(program), struct.unpack_from("=Q", loaded.memory(".bss"))
    finally:
        STATISTICS.write_text("0")
        loaded.close()
    took, count = after[0] - before[0], after[1] - before[1]
    looks = (waits_after - waits) / seconds
    return Cost(0.0, took / seconds / 1e7, looks * (program != "times")), count / seconds, looks


def _load(program: str) -> Loaded:
    if shutil.which("clang") is None:
        raise MissingError("no clang")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shutil.copy(HERE / "switches.bpf.c", folder)
        shutil.copy(OBJECTS / "Makefile", folder)
        done = subprocess.run(["make", "-s", "-C", folder], capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"switches.bpf.c is not compiled: {done.stderr.splitlines()[0]}")
        return load("switches", attach=(program,), folder=Path(folder))


def measure(name: str, command: Sequence[str], seconds: float, rounds: int) -> tuple[list[list[str]], list[Goal]]:
    """Return the rows of a load, and its goal. Raises MissingError, BpfError, UnusableSourceError."""
    found: dict[str, list[Cost]] = {}
    rates = []
    with running(command) as pid:
        for _ in range(rounds):
            for source in WAIT_SOURCES[1:]:
                found.setdefault(f"`{source}`", []).append(probed(source, seconds))
            for program, title in SWITCHES.items():
                cost, switches, waits = switched(program, pid, seconds)
                found.setdefault(title, []).append(cost)
                rates.append((switches, waits))
    switches, waits = (statistics.median(values) for values in zip(*rates, strict=True))
    load = f"{name}: {waits:.0f} waits/s of it, {switches:.0f} switches/s of the host"
    rows, goals = [], []
    for way, costs in found.items():
        probe, kernel, looks = (statistics.median(values) for values in zip(*costs, strict=True))
        rows.append([load, way, f"{probe:.2f}", f"{kernel:.2f}", f"{probe + kernel:.2f}", f"{looks:.0f}"])
        if way == f"`{WAIT_SOURCES[1]}`":
            goals.append(Goal(f"dividing the time of {name}", LIMIT, "%", probe + kernel))
    return rows, goals


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=6.0, help="for each way")
    arguments.add_argument("--rounds", type=int, default=3)
    chosen = arguments.parse_args()
    rows: list[list[str]] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # a disk: /tmp may be in memory
        fio = ["fio", "--name=job", f"--directory={directory}", "--size=64m", "--bs=4k", "--time_based",
               "--runtime=900", "--ioengine=psync", "--numjobs=4", "--rw=randread", "--direct=1"]  # fmt: skip
        loads = {
            "32 threads that write at intervals": [sys.executable, "-c", THREADS, directory, "32"],
            "4 processes of fio, direct reads": fio,
        }
        try:
            for name, command in loads.items():
                if shutil.which(command[0]) is not None:
                    more, limits = measure(name, command, chosen.seconds, chosen.rounds)
                    rows += more
                    goals += limits
        except (MissingError, BpfError, OSError) as error:
            publish("waits", f"Not measured: {error}", chosen)
            return
    head = ["load", "way", "CPU of the probe, % of one", "in the kernel, %", "both, %", "stacks/s"]
    body = f"{machine()}; median of {chosen.rounds} x {chosen.seconds:g} s, in turns.\n\n{table(head, rows)}"
    publish("waits", body, chosen, goals)


if __name__ == "__main__":
    main()
