"""What it costs to know what a benchmark waits for: the section "waits" of the page.

The load is one process with many threads that write synchronously at intervals, so that at each look each of them has
run and waits: every stack has to be read. The figures are CPU time of the looking thread (CLOCK_THREAD_CPUTIME_ID),
which a busy machine does not change, and the work of the load meanwhile. They leave out the pass over all processes,
which the exporter makes anyway.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from page import Goal, machine, parser, publish, table
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.model import Snapshot
from pinchpoint.probes.waits import Waits

LIMIT = 1.0
"""Percent of one CPU for 32 threads at 10 looks a second."""
INTERVAL = 0.1
LOAD = """
import ctypes, os, sys, threading, time
directory, count = sys.argv[1], int(sys.argv[2])
ctypes.CDLL(None).prctl(15, b"ior", 0, 0, 0)  # PR_SET_NAME, which is the comm of the process
done = [0] * count
def write(number):
    file = os.open(f"{directory}/{number}", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    block = bytes(4096)
    while True:
        os.pwrite(file, block, done[number] % 256 * 4096)
        done[number] += 1
        time.sleep(0.005)
for number in range(count):
    threading.Thread(target=write, args=(number,), daemon=True).start()
for line in sys.stdin:
    print(sum(done), flush=True)
"""


class Load:
    """A process whose threads wait in I/O."""

    def __init__(self, answers: IO[str], questions: IO[str]) -> None:
        self._answers = answers
        self._questions = questions

    def done(self) -> int:
        """Return the number of its writes so far."""
        self._questions.write("\n")
        self._questions.flush()
        return int(self._answers.readline())


@contextmanager
def load(threads: int) -> Iterator[Load]:
    """Run a load of `threads` threads."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:  # a disk: /tmp may be in memory
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD, directory, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            found = Load(process.stdout, process.stdin)
            found.done()
            yield found
        finally:
            process.kill()
            process.wait()


def look(seconds: float, found: Load, probe: Waits | None) -> tuple[float, float]:
    """Look at the load for some time; return the CPUs that looking used, and the load's writes per second."""
    used = 0.0
    began, before = time.monotonic(), found.done()
    due = began
    while (now := time.monotonic()) - began < seconds:
        if probe is not None:
            probe.host.processes.current(now)  # the exporter makes this pass anyway
            start = time.thread_time()
            probe.sample(now)
            used += time.thread_time() - start
        due += INTERVAL
        time.sleep(max(0.0, due - time.monotonic()))
    elapsed = time.monotonic() - began
    return used / elapsed, (found.done() - before) / elapsed


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--threads", type=int, default=32)
    arguments.add_argument("--seconds", type=float, default=8.0)
    chosen = arguments.parse_args()
    config = Config()
    config.path.runs = os.devnull  # no directory of markers
    with load(chosen.threads) as found:
        _, alone = look(chosen.seconds, found, None)
        probe = Waits(build_host(config))
        look(2.0, found, probe)  # it waits a second until it knows the run of the processes
        cost, watched = look(chosen.seconds, found, probe)
        snapshot = Snapshot.of(0.0, probe.points())
        probe.close()
    waited = sum(value for labels, value in snapshot.series("pinchpoint_workload_seconds_total"))
    if waited < chosen.seconds:
        raise SystemExit("the probe did not find the load")
    head = ["threads", "CPU of the probe, % of one", "writes/s without", "with"]
    rows = [[str(chosen.threads), f"{100 * cost:.2f}", f"{alone:.0f}", f"{watched:.0f}"]]
    body = f"{machine()}; {chosen.seconds:g} s each.\n\n{table(head, rows)}"
    publish("waits", body, chosen, [Goal(f"dividing the time of {chosen.threads} threads", LIMIT, "%", 100 * cost)])


if __name__ == "__main__":
    main()
