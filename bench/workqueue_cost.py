"""Which workqueues used the CPU of the kernel's workers: by BPF and by name, beside the truth, and the cost of each.

The load is writeback of a file on a disk: large pieces in a row, then scattered pages, each time written back by the
flush worker. The truth is a trace of every work and every switch of a worker (workqueue_trace.bpf.c). All three look at
the same run; their cost is measured in another one, without the trace.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compiled import HERE, MissingError
from page import Goal, machine, parser, publish, table
from pinchpoint.bpf.libbpf import OBJECTS, BpfError, Loaded, load
from pinchpoint.bpf.workqueues import TracedSource
from pinchpoint.host.procfs import FormatError, parse_schedstat, parse_stat, read_bytes
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.work_source import CommSource, WorkSource

PROC = Path("/proc")
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
INTERVAL = 0.1
"""Seconds between two samples, unless a source wants more."""
EVENT = struct.Struct("=QQII32s")
"""``struct event`` of workqueue_trace.bpf.c: time, run, worker, leaves, queue."""
WORTH = 0.01
"""Share of all workers' time from which a queue is shown."""
CLOSE = 5.0
"""Per cent by which the busiest queue may differ."""
LOAD = """
import ctypes, os, random, sys
syncfs = ctypes.CDLL(None).syncfs
pieces, block = 6144, os.urandom(65536)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
while True:
    for number in range(pieces):
        os.pwrite(file, block, number * len(block))
    syncfs(file)
    for _ in range(8000):
        os.pwrite(file, block[:4096], random.randrange(pieces * 16) * 4096)
    syncfs(file)
"""


def queue_of(work: str) -> str:
    """Return the workqueue of a work: that of writeback has its device in its name."""
    return "writeback" if work.startswith("flush-") else work


@contextmanager
def writing(directory: str | None) -> Iterator[None]:
    """Keep a file being written back."""
    with tempfile.TemporaryDirectory(dir=directory or "/var/tmp") as folder:  # a disk: /tmp may be in memory
        process = subprocess.Popen([sys.executable, "-c", LOAD, f"{folder}/file"])
        try:
            time.sleep(2.0)  # the file has its blocks then
            yield
        finally:
            process.kill()
            process.wait()


def workers() -> dict[int, int]:
    """Return the total use of every worker in nanoseconds."""
    found = {}
    for name in os.listdir(PROC):
        try:
            if name.isdigit() and (stat := parse_stat(read_bytes(PROC / name / "stat"))).kworker and stat.kernel_thread:
                found[int(name)] = parse_schedstat(read_bytes(PROC / name / "schedstat"))[0]
        except (OSError, FormatError):
            continue
    return found


class Tracer:
    """Records every event of workers."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._before = workers()

    def queues(self, since: float) -> dict[str, float]:
        """Return the milliseconds that each queue used since then, a monotonic time in seconds."""
        events = memoryview(self._loaded.memory("events"))
        (number,) = struct.unpack_from("=I", self._loaded.memory(".bss"))
        if number * EVENT.size > len(events):
            raise MissingError("more events than there is room for")
        by_worker: dict[int, list[tuple[int, int, int, int, bytes]]] = defaultdict(list)
        for event in EVENT.iter_unpack(events[: number * EVENT.size]):
            by_worker[event[2]].append(event)
        events.release()
        used: dict[str, float] = defaultdict(float)
        for worker, found in by_worker.items():
            ends = []
            left = 0, 0
            for when, run, _, leaves, queue in sorted(found, reverse=True):
                if leaves:
                    left = when, run
                else:
                    # It has run since: its use at that time was less by that.
                    ends.append((when, queue, max(run, left[1] - (left[0] - when))))
            before = self._before.get(worker, 0)
            for when, queue, run in reversed(ends):
                if when >= since * 1e9:
                    used[queue.partition(b"\0")[0].decode()] += max(0, run - before) / 1e6
                before = max(run, before)
        return used


@contextmanager
def tracer() -> Iterator[Tracer]:
    """Trace. Raises MissingError, BpfError."""
    if shutil.which("clang") is None:
        raise MissingError("no clang")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        name = "workqueue_trace.bpf"
        for suffix in (f"{name}.c", "Makefile"):
            shutil.copy((OBJECTS if suffix == "Makefile" else HERE) / suffix, folder)
        done = subprocess.run(["make", "-s", "-C", folder], capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"{name}.c is not compiled: {done.stderr.splitlines()[0]}")
        loaded = load("workqueue_trace", attach=("leave", "end"), folder=Path(folder))
    try:
        yield Tracer(loaded)
    finally:
        loaded.close()


class Watch:
    """Reads one source at its interval and sums its answers."""

    def __init__(self, source: WorkSource) -> None:
        self._source = source
        self._due = 0.0
        self.queues: dict[str, float] = defaultdict(float)
        """Milliseconds that each queue used."""
        self.cost = 0.0
        """Milliseconds of CPU that reading took."""
        source.sample(time.monotonic())

    def look(self, *, last: bool = False) -> float:
        """Read it if it is due, or for the last time; return when it is due next."""
        now = time.monotonic()
        if now >= self._due or last:
            self._due = max(now, self._due + (self._source.interval or INTERVAL))
            before = time.thread_time_ns()
            found = self._source.sample(now)
            self.cost += (time.thread_time_ns() - before) / 1e6
            for used in found:
                self.queues[queue_of(used.work)] += used.run / 1e6
        return self._due

    def total(self) -> float:
        """Return the milliseconds that all queues used."""
        return sum(self.queues.values())


def watch(seconds: float, *sources: WorkSource) -> list[Watch]:
    """Read all of these at once for some time."""
    watches = [Watch(source) for source in sources]
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        due = min(one.look() for one in watches)
        time.sleep(max(0.0, min(due, end) - now))
    for one in watches:
        one.look(last=True)
    return watches


def programs(loaded: set[str]) -> dict[str, tuple[int, int]]:
    """Return for each program of that name the nanoseconds that it ran, and how often."""
    listed = subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, check=True)
    return {
        program["name"]: (program.get("run_time_ns", 0), program.get("run_cnt", 0))
        for program in json.loads(listed.stdout)
        if program.get("name") in loaded and program["type"] == "tracing"
    }


def work_cost(source: TracedSource, seconds: float) -> tuple[float, float]:
    """Return the nanoseconds that each work costs the kernel, and the number of works per second."""
    names = {"begin", "end"}
    before = programs(names)
    STATISTICS.write_text("1")
    try:
        watch(seconds, source)
        after = programs(names)
    finally:
        STATISTICS.write_text("0")
    ran = {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in names}
    works = ran["end"][1]
    return sum(time / count for time, count in ran.values() if count), works / seconds


def deviation(used: float, truth: float) -> float:
    """Return by what per cent it is more."""
    return 100 * (used / truth - 1)


def measure(seconds: float, directory: str | None) -> tuple[str, list[Goal]]:
    """Return the section and its goals. Raises MissingError, BpfError."""
    processes = Processes(PROC, load_roles())
    with writing(directory), tracer() as trace:
        sources = TracedSource(PROC), CommSource(PROC, processes)
        before, began = workers(), time.monotonic()
        exact, named = watch(seconds, *sources)
        truth = trace.queues(began)
        used = sum(run - before.get(worker, 0) for worker, run in workers().items()) / 1e6
        for source in sources:
            source.close()
    with writing(directory):
        traced, comm = TracedSource(PROC), CommSource(PROC, processes)
        each, works = work_cost(traced, seconds / 3)
        costs = [watch(seconds / 3, source)[0].cost / 10 / (seconds / 3) for source in (traced, comm)]
        traced.close()
        comm.close()
    total = sum(truth.values())
    queues = [queue for queue in sorted(truth, key=lambda queue: -truth[queue]) if truth[queue] >= WORTH * total]
    rows = [
        [f"`{queue}`", f"{truth[queue]:.0f}"]
        + [
            cell
            for found in (exact, named)
            for cell in (f"{found.queues[queue]:.0f}", f"{deviation(found.queues[queue], truth[queue]):+.1f} %")
        ]
        for queue in queues
    ]
    sums = [
        cell
        for found in (exact, named)
        for cell in (f"{found.total():.0f}", f"{deviation(found.total(), used):+.1f} %")
    ]
    rows.append(["all, against schedstat", f"{used:.0f}", *sums])
    body = f"""
Writeback of a file on a disk for {seconds:.0f} s: milliseconds of CPU by workqueue, and by how much that is wrong. The
truth is of every work and every switch of a worker.

{table(["queue", "truth", "BPF", "", "names at 20 Hz", ""], rows)}
BPF costs the kernel {each:.0f} ns for each work (`bpf_stats_enabled`, with its own cost), {each * works / 1e7:.2f} % of
a CPU: with {works:.0f} works/s hardly any finds its data in a cache. Reading it costs the exporter {costs[0]:.2f} % of
a CPU at 10 Hz; reading names costs {costs[1]:.2f} % at 20 Hz.

{machine()}
"""
    first = queues[0]
    return body, [
        Goal(f"`{first}`, BPF against the truth", CLOSE, "%", abs(deviation(exact.queues[first], truth[first]))),
        Goal("all queues, BPF against schedstat", CLOSE, "%", abs(deviation(exact.total(), used))),
    ]


def main() -> None:
    """Measure and write the section."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--directory", help="where to write, on a disk")
    arguments = options.parse_args()
    try:
        body, goals = measure(arguments.seconds, arguments.directory)
    except (MissingError, BpfError, OSError) as error:
        body, goals = f"Not measured: {error}", []
    publish("workqueues", body, arguments, goals)


if __name__ == "__main__":
    main()
