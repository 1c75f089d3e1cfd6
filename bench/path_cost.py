"""What it costs to see who wakes whom: the section "chains" of the page.

Pairs of processes that wake each other as fast as they can are the worst case: the cost is one of wake-ups. Beside
them are benchmarks, on this host and on a real cluster. The figures are the time that the kernel's BPF programs took,
as the kernel counts it while kernel.bpf_stats_enabled is 1 (which is contained in them), and CPU time of the thread
that opens windows and reads them (CLOCK_THREAD_CPUTIME_ID).
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from lab.cluster import Cluster
from live_cost import DIRECT, RADOS_BENCH, ROOMY, STORM, StartOne, direct_reads, rados_bench, storm
from page import Goal, machine, parser, publish, table
from pinchpoint.bpf.path import PROGRAMS, Windows
from pinchpoint.probes.path import MAX_WAKEUPS, PATH_LOOK_SECONDS, PATH_WINDOW_SECONDS, PERIOD_SECONDS, pause

LIMIT = 0.5
"""Percent of one CPU."""
STEADY_SECONDS = 5.0
"""Until a benchmark is past its start."""
MIN_WAKEUPS = 10_000
"""Wake-ups from which it is shown what one costs: they are counted in steps of 64 for each CPU."""
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
PAIR = """
import os
there, back = os.pipe(), os.pipe()
child = os.fork()
mine, other = (there, back) if child else (back, there)
if child:
    os.write(other[1], b"x")
while True:
    os.read(mine[0], 1)
    os.write(other[1], b"x")
"""


REMOTE_PAIR = """
import os, socket
from waiters import REMOTE_PORT, THERE, another_host
server = another_host()(lambda: socket.create_server((THERE, REMOTE_PORT)))
mine = socket.create_connection((THERE, REMOTE_PORT))
other, _ = server.accept()
for end in (mine, other):
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
end = mine if os.fork() else other
if end is mine:
    end.send(b"x")
while True:
    end.recv(1)
    end.send(b"x")
"""
"""Two processes that wake each other over a link between two network namespaces."""


@contextmanager
def pairs(count: int, code: str) -> Iterator[set[int]]:
    """Run `count` pairs of processes; give the pids of the first of each."""
    found = [subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for _ in range(count)]
    try:
        time.sleep(1.0)
        yield {process.pid for process in found}
    finally:
        for process in found:
            subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
            process.wait()


@contextmanager
def benchmark(start: StartOne) -> Iterator[set[int]]:
    """Run a benchmark; give the pids of its processes."""
    with start() as process:
        time.sleep(STEADY_SECONDS)
        yield {process.pid, *(child.pid for child in process.children(recursive=True))}


@contextmanager
def counted() -> Iterator[None]:
    """Let the kernel count the time of BPF programs."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def measured(load: AbstractContextManager[set[int]], number: int) -> tuple[float, float, float, float, float]:
    """Return wake-ups a second, seconds of a window, microseconds a wake-up (NaN if few), and % of a CPU twice.

    The first percentage is that of the kernel, the other that of the probe.
    """
    kernel = user = seen = passed = 0.0
    wakeups = 0
    with load as pids:
        windows = Windows(Path("/proc"))
        try:
            for _ in range(number):
                began, used = time.monotonic(), time.thread_time()
                windows.open(pids, MAX_WAKEUPS)
                while not windows.spent and time.monotonic() < began + PATH_WINDOW_SECONDS:
                    time.sleep(PATH_LOOK_SECONDS)
                window = windows.end()
                used = time.thread_time() - used
                user += used
                length = pause(window, used)
                wakeups += window.wakeups
                seen += window.seconds
                passed += length
                time.sleep(max(0.0, began + length - time.monotonic()))
            kernel = sum(windows.statistics(program)[0] for program in PROGRAMS) / 1e9
        finally:
            windows.close()
    share = 100 / passed
    each = 1e6 * kernel / wakeups if wakeups > MIN_WAKEUPS else math.nan
    return wakeups / seen, seen / number, each, kernel * share, user * share


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--windows", type=int, default=8)
    chosen = arguments.parse_args()
    rows: list[list[str]] = []
    goals: list[Goal] = []

    def measure(name: str, load: AbstractContextManager[set[int]]) -> None:
        print(f"{name} ...", file=sys.stderr)
        rate, seconds, each, kernel, user = measured(load, chosen.windows)
        shown = "-" if math.isnan(each) else f"{each:.2f}"
        rows.append([name, f"{rate:,.0f}", f"{seconds:.2f}", shown, f"{kernel:.2f}", f"{user:.2f}"])
        goals.append(Goal(f"chains beside {name}", LIMIT, "%", kernel + user))

    with counted():
        measure("nothing", nullcontext(set()))
        measure("1 pair", pairs(1, PAIR))
        measure("8 pairs", pairs(8, PAIR))
        measure("8 pairs on two hosts", pairs(8, REMOTE_PAIR))
        with tempfile.TemporaryDirectory(dir=".") as directory:
            measure(DIRECT, benchmark(direct_reads(directory)))
        if shutil.which("ceph-osd") is None:
            print("Ceph is not installed: its loads are left out", file=sys.stderr)
        else:
            with Cluster(options=ROOMY) as cluster:
                measure(STORM, benchmark(storm(cluster)))
                measure(RADOS_BENCH, benchmark(rados_bench(cluster)))
    head = ["load", "wake-ups/s", "window, s", "us a wake-up", "in the kernel, % of one CPU", "of the probe, %"]
    often = f"one every {PERIOD_SECONDS:g} s or less often"
    body = f"{machine()}; {chosen.windows} windows for each load, {often}.\n\n{table(head, rows)}"
    publish("chains", body, chosen, goals)


if __name__ == "__main__":
    main()
