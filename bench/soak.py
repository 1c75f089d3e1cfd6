"""Whether the exporter and the judge stay as large as they are: the section "soak" of the page.

Both run beside churn: threads, processes, benchmarks, runs and daemons start and end all the time, and both are scraped
every 2 s. After a warm-up a line is fitted to the most memory in each twentieth of the time, which comes and goes a MiB
at a time (ARENA_SIZE, Objects/obmalloc.c of CPython 3.10 and 3.11), and to the median of descriptors and threads, which
last for as long as a request. A goal is met only if growth is ruled out: if the upper 95 % bound of the line's slope is
below the limit.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from compiled import MissingError
from meter import serving
from page import Goal, machine, parser, publish, table
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from scaled import free_addresses, judging
from workload import OSD, Group, running

PINCHPOINT = str(Path(sys.executable).with_name("pinchpoint"))
HOUR = 3600.0
INTERVAL = 2.0
"""Seconds between two scrapes, and between two readings."""
WARM_UP = KEEP_ENDED_SECONDS + 600
"""Seconds until ended runs are forgotten as fast as new ones come, and allocators have met the most that is needed."""
BLOCKS = 20
"""Parts into which the readings are divided: neighbouring readings depend on each other, parts hardly do.

In half an hour a part is as long as the churn takes to come again, so that parts have the same churn.
"""
LIMITS: Mapping[str, tuple[float, str, Callable[[Sequence[float]], float]]] = {
    "memory": (0.1, "MB an hour", max),
    "descriptors": (1.0, "an hour", statistics.median),
    "threads": (1.0, "an hour", statistics.median),
}
"""Upper limit of growth, its unit, and what is compared of each part."""
HEAD = ("seconds", "process", "memory in MB", "descriptors", "threads")
FORKS = """
import os, random, threading, time
while True:
    for _ in range(random.randrange(10)):
        threading.Thread(target=time.sleep, args=(random.random(),)).start()
    for _ in range(random.randrange(10)):
        if not os.fork():
            time.sleep(random.random())
            os._exit(0)
    time.sleep(0.5)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


class Size(NamedTuple):
    """How large a process is."""

    memory: float
    """Resident, in MB."""
    descriptors: int
    threads: int


class Reading(NamedTuple):
    """How large a process is at a time."""

    seconds: float
    """Since the first scrape."""
    process: str
    memory: float
    descriptors: int
    threads: int


class Growth(NamedTuple):
    """The slope of a line through readings, per hour."""

    slope: float
    upper: float
    """Upper bound of its one-sided 95 % interval."""


def growth(
    seconds: Sequence[float], values: Sequence[float], of_part: Callable[[Sequence[float]], float] = max
) -> Growth:
    """Return the growth of values that were read at these times; there must be at least as many as `BLOCKS`.

    `of_part` gives the value of a part that is compared with those of the others.
    """
    from scipy import stats  # its import takes a second

    parts = [slice(len(values) * part // BLOCKS, len(values) * (part + 1) // BLOCKS) for part in range(BLOCKS)]
    hours = [statistics.fmean(seconds[part]) / HOUR for part in parts]
    compared = [of_part(values[part]) for part in parts]
    slope, start = statistics.linear_regression(hours, compared)
    squares = sum((value - start - slope * hour) ** 2 for hour, value in zip(hours, compared, strict=True))
    # The standard error of a slope; scipy's linregress has none for values that are all the same.
    error = math.sqrt(squares / (BLOCKS - 2) / (BLOCKS * statistics.pvariance(hours)))
    return Growth(slope, slope + float(stats.t.ppf(0.95, BLOCKS - 2)) * error)


def size(pid: int) -> Size:
    """Return the size of a process now. Raises OSError if it has ended."""
    process = Path(f"/proc/{pid}")
    # Exact, unlike VmRSS of status (SPLIT_RSS_COUNTING, include/linux/mm_types_task.h).
    resident = re.search(r"^Rss: +(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
    if resident is None:
        raise MissingError("the kernel does not say how much memory a process uses")
    return Size(int(resident[1]) * 1024 / 1e6, len(os.listdir(process / "fd")), len(os.listdir(process / "task")))


@contextmanager
def repeated(action: Callable[[int], None]) -> Iterator[None]:
    """Call `action` with 0, 1, 2 and so on in a thread until the block ends. Raises what it raised."""
    ended = threading.Event()

    def repeat() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            action(number)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(repeat)
        try:
            yield
        finally:
            ended.set()
    done.result()


@contextmanager
def forks() -> Iterator[None]:
    """Start and end threads and processes all the time."""
    with subprocess.Popen([sys.executable, "-S", "-E", "-c", FORKS]) as process:
        try:
            yield
        finally:
            process.kill()


def benchmark(folder: Path) -> Callable[[int], None]:
    """Return a function that runs fio with two phases, every other time as a run."""
    run_by = [PINCHPOINT, "run", f"--path.runs={folder / 'runs'}", "--"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    settings = ["--ioengine=cpuio", "--cpuload=10", "--time_based", "--output=/dev/null"]

    def run(number: int) -> None:
        phases = [f"--name=phase-{letter}-{number % 7}" for letter in "ab"]
        command = ["fio", *settings, phases[0], "--runtime=3", phases[1], "--runtime=3", "--stonewall"]
        if number % 2:
            command = [*run_by, *command]
        subprocess.run(command, env=environment, capture_output=True, check=True)

    return run


def daemon(number: int) -> None:
    """Run something like some OSDs for a while: twelve of these take a minute, and then come again."""
    with running([Group(1 + number % 3, "ceph-osd", OSD, 6)]):
        time.sleep(2.0 * (1 + number % 4))


def read(pids: Mapping[str, int], pages: Sequence[str], seconds: float) -> Iterator[Reading]:
    """Scrape the pages for some time, and yield the size of each process after each scrape."""
    begin = time.monotonic()
    for number in itertools.count(1):
        time.sleep(max(0.0, begin + number * INTERVAL - time.monotonic()))
        for page in pages:
            with urllib.request.urlopen(page, timeout=60) as answer:
                answer.read()
        if (now := time.monotonic() - begin) > seconds:
            return
        for name, pid in pids.items():
            yield Reading(now, name, *size(pid))


def load(path: Path) -> list[Reading]:
    """Return the readings of a run, which may have been cut within the last line. Raises OSError, ValueError."""
    lines = [line for line in path.read_text().splitlines(keepends=True)[1:] if line.endswith("\n")]
    cells = [line.rstrip().split(",") for line in lines]
    return [Reading(float(when), name, float(memory), int(fds), int(tids)) for when, name, memory, fds, tids in cells]


def soak(seconds: float) -> Iterator[Reading]:
    """Run the exporter and the judge beside churn, and yield their sizes. Raises MissingError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = free_addresses(2)
        command = [PINCHPOINT, "exporter", f"--web.listen-address={addresses[0]}", f"--path.runs={folder / 'runs'}"]
        exporter = stack.enter_context(serving(command, int(addresses[0].rpartition(":")[2])))
        judge = stack.enter_context(judging(folder, addresses[1], f"--target={addresses[0]}"))
        stack.enter_context(forks())
        stack.enter_context(repeated(benchmark(folder)))
        stack.enter_context(repeated(daemon))
        pages = [*(f"http://{address}/metrics" for address in addresses), f"http://{addresses[1]}/api/v1/verdicts"]
        yield from read({"exporter": exporter.pid, "judge": judge.process.pid}, pages, seconds)


def kept(readings: Iterable[Reading], path: Path) -> Iterator[Reading]:
    """Write each reading to a file, and yield it."""
    with path.open("w", buffering=1) as file:
        file.write(f"{','.join(HEAD)}\n")
        for reading in readings:
            file.write(f"{','.join(map(str, reading))}\n")
            yield reading


def judged(readings: Iterable[Reading]) -> tuple[str, list[Goal]]:
    """Return a table of the growth after the warm-up, and whether it meets the goals."""
    rows, goals = [], []
    late = [reading for reading in readings if reading.seconds >= WARM_UP]
    for name in dict.fromkeys(reading.process for reading in late):
        own = [reading for reading in late if reading.process == name]
        for field, (limit, unit, of_part) in LIMITS.items():
            values = [float(getattr(reading, field)) for reading in own]
            found = growth([reading.seconds for reading in own], values, of_part)
            cells = [f"{value:.4g}" for value in (min(values), max(values), *found)]
            rows.append([name, f"{field}, {unit.partition(' ')[0]}" if field == "memory" else field, *cells])
            goals.append(Goal(f"growth of the {name}'s {field}", limit, unit, found.upper))
    minutes = (late[-1].seconds - WARM_UP) / 60
    head = ["", "", "lowest", "highest", "growth an hour", "at most (95 %)"]
    return f"{machine()}; {minutes:.0f} minutes after {WARM_UP / 60:.0f}.\n\n{table(head, rows)}", goals


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--minutes", type=float, default=30.0, help=f"after the warm-up of {WARM_UP / 60:.0f} minutes"
    )
    arguments.add_argument("--readings", type=Path, default=os.devnull, help="file that keeps each reading")
    arguments.add_argument("--again", action="store_true", help="measure nothing: take the readings of that file")
    chosen = arguments.parse_args()
    measured = load(chosen.readings) if chosen.again else kept(soak(WARM_UP + 60 * chosen.minutes), chosen.readings)
    readings = list(measured)
    if sum(reading.seconds >= WARM_UP for reading in readings) < 2 * BLOCKS:
        arguments.error(f"less than {BLOCKS} readings of each process after the warm-up: ask for more --minutes")
    body, goals = judged(readings)
    publish("soak", body, chosen, goals, "make soak")


if __name__ == "__main__":
    main()
