"""What it costs to find and follow a benchmark among the processes: the section "phases" of the page.

The figures are CPU time of the thread that looks (CLOCK_THREAD_CPUTIME_ID), so that a busy machine does not change
them. The exporter makes the pass over all processes anyway, for its threads: the last column is without it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from page import Goal, machine, parser, publish, table
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.probes.benchmark import BenchmarkProbe

LIMIT = 2.0
"""Milliseconds of CPU per look with 500 processes."""
IO500 = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, b"io500", 0, 0, 0)  # PR_SET_NAME, which is the comm of the process
directory = sys.argv[1]
result = open(directory + "/result.txt", "w")
result.write("[run]\\nprocs = 1\\n\\n[ior-easy-write]\\nt_start = 2026-01-01 00:00:00\\nexe = ./ior\\n")
result.flush()
phase = open(directory + "/ior-easy-write.txt", "w")
print(flush=True)
time.sleep(3600)
"""


@contextmanager
def processes(count: int) -> Iterator[None]:
    """Run `count` processes that do nothing, below one shell."""
    shell = subprocess.Popen(
        ["sh", "-c", f"for i in $(seq {count}); do sleep 3600 & done; echo; wait"],
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert shell.stdout is not None
    shell.stdout.readline()
    try:
        yield
    finally:
        os.killpg(shell.pid, 9)
        shell.wait()


@contextmanager
def io500() -> Iterator[None]:
    """Run a process that looks like rank 0 of IO500 in its first phase."""
    with tempfile.TemporaryDirectory() as directory:
        rank = subprocess.Popen([sys.executable, "-c", IO500, directory], stdout=subprocess.PIPE)
        assert rank.stdout is not None
        rank.stdout.readline()
        try:
            yield
        finally:
            rank.kill()
            rank.wait()


def looks(count: int) -> tuple[int, float, float, bool]:
    """Look `count` times, a second apart in the probe's time.

    Return the number of processes, ms of CPU per look in all and without the pass, and whether a phase was found.
    """
    config = Config()
    config.path.runs = os.devnull  # no directory of markers: only what is found counts
    host = build_host(config)
    probe = BenchmarkProbe(host)
    whole, own = [], []
    for second in range(count):
        before = time.thread_time()
        host.processes.everything(float(second))
        between = time.thread_time()
        probe.sample(float(second))
        whole.append(time.thread_time() - before)
        own.append(time.thread_time() - between)
    return (
        len(host.processes.everything(float(count))),
        1e3 * statistics.mean(whole),
        1e3 * statistics.mean(own),
        bool(list(probe.points())),
    )


def measure(count: int) -> tuple[list[list[str]], float]:
    """Return the table's rows for `count` looks, without a benchmark and with one, and the costliest look in ms."""
    rows, dearest = [], 0.0
    for name, running in (("none", None), ("IO500", io500)):
        with running() if running is not None else nullcontext():
            number, whole, own, found = looks(count)
        rows.append([str(number), name, f"{whole:.2f}", f"{own:.2f}"])
        dearest = max(dearest, whole)
        if found != (running is not None):
            raise SystemExit("the benchmark was not found" if running else "a benchmark runs on this machine")
    return rows, dearest


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--processes", type=int, default=500)
    arguments.add_argument("--looks", type=int, default=200)
    chosen = arguments.parse_args()
    missing = max(0, chosen.processes - sum(path.name.isdigit() for path in Path("/proc").iterdir()))
    with processes(missing):
        rows, dearest = measure(chosen.looks)
    head = ["processes", "benchmark", "CPU of a look, ms", "without the pass over all processes, ms"]
    body = f"{machine()}; mean of {chosen.looks} looks.\n\n{table(head, rows)}"
    publish("phases", body, chosen, [Goal(f"a look at {chosen.processes} processes for phases", LIMIT, "ms", dearest)])


if __name__ == "__main__":
    main()
