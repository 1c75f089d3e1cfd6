"""What it costs to sample the stacks of full threads: the section "profile" of the page.

The probe runs in this process on threads of real programs that are called full, so its own CPU time is known
(CLOCK_THREAD_CPUTIME_ID). What the sampled thread loses is taken from a program that counts what it does in a second
of its own CPU time, in turns with and without a perf event on it.
"""

from __future__ import annotations

import argparse
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from msgspec.structs import replace

from lab.cluster import Cluster
from lab.loads import rados_bench
from page import Goal, machine, parser, publish, table
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.host.procfs import parse_schedstat
from pinchpoint.probes.profile import FREQUENCY_HERTZ, MAX_THREADS, ProfileProbe
from pinchpoint.profile.perf_events import PerfError, ThreadEvent
from pinchpoint.threads.full import FullResource, FullThread, FullThreads
from spread import Spread, difference

INTERVAL = 0.1
"""Seconds between two samples of the probe, as in the exporter."""
WARM_SECONDS = 2.0
FIRST_SECONDS = 30.0
"""Seconds of a measurement that are counted apart: tables of symbols are read, out of what the budget has saved."""
CPU_LIMIT, MEMORY_LIMIT, LOSS_LIMIT = 0.5, 15.0, 1.0
COUNTER = struct.Struct("=Qd")
"""What the counting program has done, and the CPU seconds that it took."""
COUNTING = """
import mmap, struct, sys, time
memory = mmap.mmap(int(sys.argv[1]), 16)
def deep(level):
    if level:
        return deep(level - 1)
    done = 0
    while True:
        for _ in range(20000):
            done += 1
        struct.pack_into("=Qd", memory, 0, done, time.thread_time())
deep(40)
"""


class Chosen(FullThreads):
    """Threads that are full, whatever they do."""

    def __init__(self, resource: FullResource) -> None:
        super().__init__()
        self._resource = resource

    def resources(self, now: float) -> list[FullResource]:
        """Return them."""
        return [self._resource]


class Cost(NamedTuple):
    """What sampling took."""

    threads: int
    samples: int
    first: float
    """Per cent of a core in the first seconds."""
    cpu: float
    """Per cent of a core afterwards, with pauses."""
    each: float
    """Milliseconds of CPU per sample, with names and tables."""
    memory: float
    """MB by which this process grew."""


def busiest(pid: int) -> tuple[FullThread, ...]:
    """Return the threads of a process that used most CPU time so far."""
    used = {
        int(task.name): parse_schedstat((task / "schedstat").read_bytes())[0]
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return tuple(FullThread(pid, tid) for tid in sorted(used, key=lambda tid: -used[tid])[:MAX_THREADS])


def resident() -> float:
    """Return the resident memory of this process in MB, without the loads that it has started."""
    return float(psutil.Process().memory_info().rss) / 1e6


def measure(resource: str, threads: Sequence[FullThread], seconds: float) -> Cost:
    """Sample these threads for some time, as the exporter would."""
    full = Chosen(FullResource(resource, "bench", tuple(threads)))
    probe = ProfileProbe(replace(build_host(Config()), full=full))
    most = before = resident()
    began, used = time.monotonic(), [0.0, 0.0]
    try:
        while (now := time.monotonic()) - began < FIRST_SECONDS + seconds:
            cpu = time.thread_time()
            probe.sample(now)
            used[now - began >= FIRST_SECONDS] += time.thread_time() - cpu
            most = max(most, resident())
            time.sleep(max(0.0, now + INTERVAL - time.monotonic()))
        samples = sum(profile.samples for profile in probe.profiles)
    finally:
        probe.close()
    return Cost(
        threads=len(threads),
        samples=samples,
        first=100 * used[0] / FIRST_SECONDS,
        cpu=100 * used[1] / seconds,
        each=1000 * sum(used) / max(1, samples),
        memory=most - before,
    )


@contextmanager
def fio(directory: str) -> Iterator[Sequence[FullThread]]:
    """Run fio's writes of 4 KiB with a checksum of each; give its thread."""
    command = ["fio", "--name=job", f"--directory={directory}", "--size=64m", "--bs=4k", "--rw=write",
               "--verify=crc32c", "--time_based", "--runtime=600", "--thread"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory)
    try:
        time.sleep(WARM_SECONDS)
        yield busiest(process.pid)[:1]
    finally:
        process.kill()
        process.wait()


@contextmanager
def osd() -> Iterator[Sequence[FullThread]]:
    """Run an OSD that writes 4 KiB objects; give its busiest threads."""
    with Cluster(store="bluestore") as cluster, rados_bench(cluster, threads=16):
        time.sleep(WARM_SECONDS)
        yield busiest(cluster.daemon("osd.0").pid)


def loss(pairs: int, seconds: float) -> Spread:
    """Return by what per cent a sampled thread does less in a second of its CPU time."""
    with tempfile.TemporaryFile() as file:
        file.truncate(COUNTER.size)
        memory = mmap.mmap(file.fileno(), COUNTER.size)
        os.set_inheritable(file.fileno(), True)
        process = subprocess.Popen([sys.executable, "-c", COUNTING, str(file.fileno())], close_fds=False)
        try:
            time.sleep(WARM_SECONDS)

            def rate(*, sampled: bool) -> float:
                with ExitStack() as stack:
                    if sampled:
                        event = ThreadEvent(process.pid, FREQUENCY_HERTZ)
                        stack.callback(event.close)
                    done, cpu = COUNTER.unpack_from(memory)
                    end = time.monotonic() + seconds
                    while time.monotonic() < end:
                        time.sleep(INTERVAL)
                        if sampled:
                            event.read()
                    done_after, cpu_after = COUNTER.unpack_from(memory)
                return float((done_after - done) / (cpu_after - cpu))

            rates: tuple[list[float], list[float]] = [], []
            for pair in range(pairs):
                for sampled in (False, True) if pair % 2 else (True, False):
                    rates[sampled].append(rate(sampled=sampled))
            return difference(*rates)
        finally:
            process.kill()
            process.wait()


def rows(chosen: argparse.Namespace) -> dict[str, Cost]:
    """Measure each load that can run here."""
    found = {}
    if shutil.which("fio"):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, fio(directory) as threads:
            found["fio, 4 KiB writes with crc32c to memory"] = measure("benchmark", threads, chosen.seconds)
    if shutil.which("ceph-osd"):
        with osd() as threads:
            found["an OSD, its busiest threads, 4 KiB writes"] = measure("osd_op", threads, chosen.seconds)
    return found


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=60.0, help="length of one measurement")
    arguments.add_argument("--pairs", type=int, default=20, help="pairs of 2 s for the sampled thread's loss")
    chosen = arguments.parse_args()
    try:
        ThreadEvent(os.getpid(), FREQUENCY_HERTZ).close()
    except PerfError as error:
        publish("profile", f"Not measured: {error}.", chosen)
        return
    costs = rows(chosen)
    lost = loss(chosen.pairs, 2.0)
    first = f"CPU in the first {FIRST_SECONDS:g} s, % of one"
    head = ["what is full", "threads", "samples", first, "CPU afterwards, %", "CPU of a sample, ms", "memory, MB"]
    cells = [
        [load, str(cost.threads), str(cost.samples), *(f"{value:.2f}" for value in cost[2:5]), f"{cost.memory:.1f}"]
        for load, cost in costs.items()
    ]
    body = (
        f"{machine()}; {chosen.seconds:g} s each.\n\n{table(head, cells)}\n"
        f"A sampled thread loses {lost.median:.2f} % of what it does in a second of CPU time (95 % interval "
        f"{lost.low:.2f} to {lost.high:.2f} %, {chosen.pairs} pairs of 2 s).\n"
    )
    goals = [
        Goal("sampling full threads", CPU_LIMIT, "%", max((cost.cpu for cost in costs.values()), default=0.0)),
        Goal("symbols of full threads", MEMORY_LIMIT, "MB", max((cost.memory for cost in costs.values()), default=0.0)),
        Goal("loss of a sampled thread", LOSS_LIMIT, "%", lost.median, inside=lost.low <= LOSS_LIMIT),
    ]
    publish("profile", body, chosen, goals if costs else ())


if __name__ == "__main__":
    main()
