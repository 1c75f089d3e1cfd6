"""What it costs to compare the ranks of a benchmark: the section "ranks" of the page.

The load is many processes that write, as the ranks of one host do. The figure is CPU time of the comparing thread
(CLOCK_THREAD_CPUTIME_ID), which a busy machine does not change: reading the counters of all ranks,
comparing them and making the series.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from page import Goal, machine, parser, publish, table
from pinchpoint.waits.ranks import RankSample, RankSpread, interval, read_work

LIMIT = 0.3
"""Percent of one CPU for 64 ranks."""
RANK = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    os.pwrite(file, bytes(4096), 0)
    time.sleep(0.1)
"""


@contextmanager
def ranks(count: int) -> Iterator[list[int]]:
    """Run `count` processes that write; give their pids."""
    with tempfile.TemporaryDirectory() as directory:
        found = [subprocess.Popen([sys.executable, "-c", RANK, f"{directory}/{place}"]) for place in range(count)]
        try:
            time.sleep(3.0)
            yield [process.pid for process in found]
        finally:
            for process in found:
                process.kill()
                process.wait()


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, default=64)
    arguments.add_argument("--looks", type=int, default=8)
    chosen = arguments.parse_args()
    spread, used, series = RankSpread(), 0.0, 0
    pause = interval(chosen.ranks)
    with ranks(chosen.ranks) as pids:
        for _ in range(chosen.looks):
            began = time.thread_time()
            samples = [
                RankSample(pid, 1, "ior", os.getpid(), place, read_work(f"/proc/{pid}"), {"disk": 0.9, "cpu": 0.1})
                for place, pid in enumerate(pids)
            ]
            spread.take(samples, pause)
            series = len(list(spread.points("ior", "r")))
            used += time.thread_time() - began
            time.sleep(pause)
    cost = 100 * used / chosen.looks / pause
    head = ["ranks", "CPU, % of one", "series"]
    rows = [[str(chosen.ranks), f"{cost:.2f}", str(series)]]
    body = f"{machine()}; {chosen.looks} looks, one every {pause:g} s.\n\n{table(head, rows)}"
    publish("ranks", body, chosen, [Goal(f"comparing {chosen.ranks} ranks", LIMIT, "%", cost)])


if __name__ == "__main__":
    main()
