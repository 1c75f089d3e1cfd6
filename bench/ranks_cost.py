"""What it costs to compare the ranks of a benchmark: the section "ranks" of the page.

The load is many processes that write, as the ranks of one host do, and one process with as many threads. The figure is
CPU time of the comparing thread (CLOCK_THREAD_CPUTIME_ID), which a busy machine does not change: reading the counters
of all ranks, comparing them and making the series.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from page import Goal, machine, parser, publish, table
from pinchpoint.benchmarks.workloads import Member, Workload
from pinchpoint.threads.processes import Process
from pinchpoint.threads.task_source import Task
from pinchpoint.waits.ranks import RankSample, RankSpread, interval, read_work
from pinchpoint.waits.stack_rules import Stacks, load_waits
from pinchpoint.waits.thread_ranks import thread_ranks
from pinchpoint.waits.watched import WatchedProcess, WatchedThread

LIMIT = 0.3
"""Percent of one CPU for 64 ranks."""
RANK = """
import os, sys, threading, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
def work():
    while True:
        os.pwrite(file, bytes(65536), 0)
        time.sleep(0.1)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=work).start()
"""
WAITS = {"disk": 0.9, "cpu": 0.1}
"""Of each process in a second, which are not measured here."""


@contextmanager
def ranks(count: int, threads: int = 1) -> Iterator[list[int]]:
    """Run `count` processes whose threads write; give their pids."""
    with tempfile.TemporaryDirectory() as directory:
        found = [
            subprocess.Popen([sys.executable, "-c", RANK, f"{directory}/{place}", str(threads)])
            for place in range(count)
        ]
        try:
            time.sleep(3.0)
            yield [process.pid for process in found]
        finally:
            for process in found:
                process.kill()
                process.wait()


def cost(read: Callable[[], Iterable[RankSample]], count: int, looks: int) -> tuple[float, int]:
    """Return what comparing `count` ranks, which `read` returns, costs in % of a CPU, and how many series it makes."""
    spread, used, series = RankSpread(), 0.0, 0
    for _ in range(looks):
        began = time.thread_time()
        samples = list(read())
        assert len(samples) == count, f"{len(samples)} ranks, not {count}"
        spread.take(samples, interval(count))
        series = len(list(spread.points("ior", "r")))
        used += time.thread_time() - began
        time.sleep(interval(count))
    return 100 * used / looks / interval(count), series


def of_processes(count: int, looks: int) -> tuple[float, int]:
    """Return the `cost` of comparing processes."""
    with ranks(count) as pids:
        return cost(
            lambda: [
                RankSample(pid, 1, "ior", os.getpid(), place, read_work(f"/proc/{pid}"), WAITS)
                for place, pid in enumerate(pids)
            ],
            count,
            looks,
        )


def of_threads(count: int, looks: int) -> tuple[float, int]:
    """Return the `cost` of comparing the threads of one process."""
    stacks = Stacks(load_waits())
    with ranks(1, threads=count) as [pid]:
        process = WatchedProcess(Member(Process(pid, 1, "fio", "benchmark", "fio"), Workload("fio", "r")))
        for tid in map(int, os.listdir(f"/proc/{pid}/task")):
            task = Task(pid, tid, "fio", 0.0)
            process.threads[task] = WatchedThread(f"/proc/{pid}/task/{tid}", main=tid == pid)
        return cost(lambda: thread_ranks(process, WAITS, stacks, interval(count), time.monotonic()), count, looks)


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, default=64)
    arguments.add_argument("--looks", type=int, default=8)
    chosen = arguments.parse_args()
    found = {"processes": of_processes, "threads": of_threads}
    costs = {kind: measure(chosen.ranks, chosen.looks) for kind, measure in found.items()}
    rows = [[f"{chosen.ranks} {kind}", f"{used:.2f}", str(series)] for kind, (used, series) in costs.items()]
    head = ["ranks", "CPU, % of one", "series"]
    body = f"{machine()}; {chosen.looks} looks, one every {interval(chosen.ranks):g} s.\n\n{table(head, rows)}"
    goals = [Goal(f"comparing {chosen.ranks} {kind}", LIMIT, "%", used) for kind, (used, _) in costs.items()]
    publish("ranks", body, chosen, goals)


if __name__ == "__main__":
    main()
