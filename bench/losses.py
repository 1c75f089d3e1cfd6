"""What a benchmark loses to an exporter that watches it: the section "losses" of the page.

Loads run with and without the exporter, in pairs of alternating order, on a host with 10,000 sleeping threads. The
result is work done in a fixed time. The loss is the median difference of the pairs, with its 95 % interval; beside it
stands the spread of the runs without the exporter.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from compiled import MissingError, compiled
from meter import scrape, serving
from page import Goal, machine, parser, publish, table
from ports import free_port
from spread import Spread, difference, spread
from workload import ceph_host, running

THREADS = 10_000
LIMIT = 1.0
"""Per cent."""
SCRAPE_INTERVAL = 5.0
WARM_UP = 2.0
MEMORY, DISK = Path("/dev/shm"), Path("/var/tmp")
"""Metadata in memory: with a journal on a disk, runs differ by a factor of two even without an exporter."""


class Load(NamedTuple):
    """A benchmark."""

    name: str
    place: Path
    run: Callable[[Path, float], float]
    """Runs it in a folder for some seconds, and returns its operations per second. Raises MissingError."""


def fio(jobs: int, *flags: str) -> Callable[[Path, float], float]:
    """Return a function that runs fio."""

    def run(folder: Path, seconds: float) -> float:
        if shutil.which("fio") is None:
            raise MissingError("no fio")
        command = ["fio", "--name=bench", f"--directory={folder}", f"--numjobs={jobs}", "--group_reporting",
                   "--ioengine=psync", "--bs=4k", "--size=128m", "--time_based", f"--runtime={seconds:g}", *flags,
                   "--output-format=json"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"fio ended with {done.returncode}")
        (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        return float(job["read"]["iops"] + job["write"]["iops"])

    return run


def metadata(jobs: int) -> Callable[[Path, float], float]:
    """Return a function that runs the mdtest-like load."""

    def run(folder: Path, seconds: float) -> float:
        command = [str(compiled("metadata")), str(folder), str(jobs), f"{seconds:g}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"the load ended with {done.returncode}")
        return float(done.stdout)

    return run


CPUS = os.cpu_count() or 1
LOADS = (
    Load("fio, 4 KiB random reads of a disk", DISK, fio(1, "--direct=1", "--rw=randread")),
    Load("create, stat and unlink as mdtest, in memory", MEMORY, metadata(1)),
    Load(f"fio, cached 4 KiB random reads on all {CPUS} CPUs", DISK, fio(CPUS, "--invalidate=0", "--rw=randread")),
    Load(f"create, stat and unlink as mdtest, in memory, on all {CPUS} CPUs", MEMORY, metadata(CPUS)),
)


@contextmanager
def exporter(flags: Sequence[str]) -> Iterator[str]:
    """Run the exporter and scrape it at intervals; yield the source of its thread times."""
    port = free_port()
    command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address=127.0.0.1:{port}", *flags]
    end = threading.Event()

    def scrapes() -> None:
        while not end.wait(SCRAPE_INTERVAL):
            scrape(port)

    with serving(command, port):
        time.sleep(WARM_UP)
        source = re.search(r'pinchpoint_task_source_info\{[^}]*source="([^"]*)"', scrape(port))
        scraper = threading.Thread(target=scrapes)
        scraper.start()
        try:
            yield source[1] if source else "unknown"
        finally:
            end.set()
            scraper.join()


class Paired(NamedTuple):
    """Results of a load without and with the exporter, pair by pair."""

    without: list[float]
    with_: list[float]
    source: str


def paired(load: Load, pairs: int, seconds: float, flags: Sequence[str]) -> Paired:
    """Run a load in pairs: without, with; with, without; and so on. Raises MissingError."""
    without: list[float] = []
    with_: list[float] = []
    source = ""
    with tempfile.TemporaryDirectory(dir=load.place) as name:
        folder = Path(name)
        load.run(folder, 1.0)  # creates the files and fills the caches
        while len(without) < pairs:
            without.append(load.run(folder, seconds))
            with exporter(flags) as source:
                with_.append(load.run(folder, seconds))
                with_.append(load.run(folder, seconds))
            without.append(load.run(folder, seconds))
    return Paired(without, with_, source)


def variation(values: Sequence[float]) -> float:
    """Return the interquartile range of some results in per cent of their median."""
    found = spread(values)
    return 100 * (found.high - found.low) / found.median


def goal(name: str, loss: Spread, noise: float) -> Goal:
    """Return the goal for a load's loss."""
    return Goal(f"loss of {name}", LIMIT, "%", max(0.0, loss.median), inside=loss.median <= noise)


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=8, help="pairs of runs of each load, an even number")
    arguments.add_argument("--seconds", type=float, default=2.0, help="length of a run")
    chosen, flags = arguments.parse_known_args()
    rows, goals, sources = [], [], set()
    with running(ceph_host(THREADS, 0)) as threads:
        for load in LOADS:
            print(f"{load.name} ...", file=sys.stderr)
            try:
                without, with_, source = paired(load, chosen.pairs, chosen.seconds, flags)
            except MissingError as error:
                rows.append([load.name, f"not measured: {error}", *[""] * 4])
                goals.append(Goal(f"loss of {load.name}", LIMIT, "%", str(error)))
                continue
            loss, noise = difference(without, with_), variation(without)
            sources.add(source)
            rows.append([load.name, f"{statistics.median(without):,.0f}", f"{statistics.median(with_):,.0f}",
                         f"{loss.median:+.2f}", f"{loss.low:+.2f} to {loss.high:+.2f}", f"{noise:.2f}"])  # fmt: skip
            goals.append(goal(load.name, loss, noise))
    head = ["load", "without, per second", "with", "loss, %", "95 % interval of the loss",
            "spread of runs without, %"]  # fmt: skip
    body = (
        f"{machine()}. {threads:,} threads sleep; source {', '.join(f'`{name}`' for name in sorted(sources)) or '-'}, "
        f"scraped every {SCRAPE_INTERVAL:g} s; {chosen.pairs} pairs of {chosen.seconds:g} s for each load.\n\n"
        f"{table(head, rows)}"
    )
    publish("losses", body, chosen, goals)


if __name__ == "__main__":
    main()
