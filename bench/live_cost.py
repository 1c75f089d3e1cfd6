"""What the exporter costs while real benchmarks run beside it: the section "live" of the page.

A mean over simulated hosts says little about the moment that counts. Each load runs on this host, without Ceph and then
on a real cluster, and the exporter with all its probes is scraped every 5 s. The cost by probe is the exporter's own
(`pinchpoint_probe_cpu_seconds_total`); what is left of the whole belongs to scrapes, to the threads that ask Ceph, and
to the helpers that read users' files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.cluster import Cluster
from lab.loads import metadata_command
from meter import Served, scrape, serving, thread_seconds
from page import Goal, machine, parser, publish, table
from pinchpoint.host.process_cost import private_bytes
from pinchpoint.metrics import PROBE_CPU_SECONDS, WAITS_KERNEL_SECONDS
from pinchpoint.wire.sources import parse_exposition
from ports import free_port

SCRAPE_INTERVAL = 5.0
SETTLED = 12.0
"""Seconds of a load before its cost is measured: benchmarks are found, connections and files looked at."""
RESTED = 32.0
"""Seconds without a load after which everything rests."""
KERNEL = "waits in the kernel"
"""What a timer in the kernel uses of the CPUs: no process is charged for it."""
SHOWN = 6
"""Probes, and threads, of which the cost is shown, the dearest first."""
ROOMY = {"osd": {"memstore_device_bytes": "8Gi"}}
"""What `rados bench` writes in each round stays."""
MDTEST = Path(__file__).resolve().parent.parent / "tests" / "loads" / "mdtest.py"

Start = Callable[[], AbstractContextManager[object]]
StartOne = Callable[[], AbstractContextManager[psutil.Process]]
IDLE = "nothing but an idle cluster"
STORM = "metadata storm of 8 clients of libcephfs"
MDTEST_RANKS = "8 processes as mdtest, through ceph-fuse"
RADOS_BENCH = "`rados bench`, 4 KiB writes"
DIRECT = "fio, direct 4 KiB random reads"


@dataclass(frozen=True)
class Cost:
    """The result of one measurement."""

    cpu: float
    """Per cent of one core, of the exporter, the processes that work for it and its timer, scrapes included."""
    rss: float
    """MB of the exporter."""
    helper: float
    """MB that the largest helper shares with nobody; 0 without one."""
    scrape: float
    """Milliseconds of CPU for a scrape."""
    probes: Mapping[str, float]
    """Per cent of one core by probe."""
    threads: Mapping[str, float]
    """Per cent of one core by thread."""


@contextmanager
def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[psutil.Process]:
    """Run a load and end it, with its children, when the block ends. Raises RuntimeError if it ended before that."""
    with tempfile.TemporaryFile() as said:
        found = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env={**os.environ, **(environment or {})})
        try:
            yield found
            if found.poll() is not None:
                said.seek(0)
                last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise RuntimeError(f"{command[0]} ended with {found.returncode} before it was measured: {last}")
        finally:
            left = [*(found.children(recursive=True) if found.is_running() else ()), found]
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.terminate()
            psutil.wait_procs(left, timeout=10)


def fio(directory: str, *options: str) -> StartOne:
    """Return what starts fio on a file of this directory."""
    command = ["fio", "--name=job", f"--directory={directory}", "--size=256m", "--bs=4k", "--time_based",
               "--runtime=600", "--ioengine=libaio", "--iodepth=8", "--numjobs=2", *options]  # fmt: skip
    return lambda: process(command)


def direct_reads(directory: str) -> StartOne:
    """Return what starts fio's reads past the page cache."""
    return fio(directory, "--rw=randread", "--direct=1")


def storm(cluster: Cluster) -> StartOne:
    """Return what starts the storm, as a run."""
    command = [sys.executable, "-m", "pinchpoint", "run", "--", *metadata_command("storm", processes=8)]
    return lambda: process(command, cluster.environment())


def rados_bench(cluster: Cluster) -> StartOne:
    """Return what starts `rados bench`."""
    command = ["rados", "bench", "-p", "rbd", "600", "write", "-t", "16", "-b", "4096", "--no-cleanup"]
    return lambda: process(command, cluster.environment())


def ceph_loads(cluster: Cluster, mount: Path) -> dict[str, Start]:
    """Return the loads on a cluster by name."""

    @contextmanager
    def mdtest() -> Iterator[None]:
        with ExitStack() as stack:
            for rank in range(8):
                tree = mount / f"rank{rank}"
                shutil.rmtree(tree, ignore_errors=True)
                tree.mkdir()
                command = [sys.executable, str(MDTEST), "-F", "-n", "100000", "-d", str(tree)]
                stack.enter_context(process(command))
            yield

    return {
        STORM: storm(cluster),
        MDTEST_RANKS: mdtest,
        RADOS_BENCH: rados_bench(cluster),
    }


def measure(load: AbstractContextManager[object], settled: float, seconds: float, flags: Sequence[str]) -> Cost:
    """Start an exporter and a load, and return the cost of the exporter once both have settled."""
    port = free_port()
    command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address=127.0.0.1:{port}", *flags]
    with serving(command, port) as served, load:
        time.sleep(settled)
        before, threads = _by_probe(port), thread_seconds(served.pid)
        begin, cpu = time.monotonic(), served.cpu_ms()
        scrapes = []
        while (now := time.monotonic()) - begin < seconds:
            rate = served.rate(SCRAPE_INTERVAL - 1.0)
            scrapes.append(served.scrape(rate).cpu)
            time.sleep(max(0.0, now + SCRAPE_INTERVAL - time.monotonic()))
        took = time.monotonic() - begin
        used = served.cpu_ms() - cpu
        by_thread, by_probe = _rates(threads, thread_seconds(served.pid), took), _rates(before, _by_probe(port), took)
        rss = psutil.Process(served.pid).memory_info().rss / 1e6
        cpu = used / took / 10 + by_probe[KERNEL]
        return Cost(cpu, rss, _helper_mb(served), statistics.median(scrapes), by_probe, by_thread)


def _rates(before: Mapping[str, float], after: Mapping[str, float], took: float) -> dict[str, float]:
    return {name: 100 * (value - before.get(name, 0.0)) / took for name, value in after.items()}


def _by_probe(port: int) -> dict[str, float]:
    found = parse_exposition(scrape(port), time.monotonic())
    kernel = found.value(WAITS_KERNEL_SECONDS.name) or 0.0
    return {KERNEL: kernel, **{labels["probe"]: value for labels, value in found.series(PROBE_CPU_SECONDS.name)}}


def _helper_mb(served: Served) -> float:
    """Return what the largest process shares with nobody, of those that work for the exporter."""
    found = [private_bytes(child.pid) / 1e6 for child in psutil.Process(served.pid).children(recursive=True)]
    return max(found, default=0.0)


def median(costs: Sequence[Cost]) -> Cost:
    """Return the medians of several measurements."""
    cpu, rss, helper, scraped = (
        statistics.median(getattr(cost, name) for cost in costs) for name in ("cpu", "rss", "helper", "scrape")
    )
    probes, threads = _medians([cost.probes for cost in costs]), _medians([cost.threads for cost in costs])
    return Cost(cpu, rss, helper, scraped, probes, threads)


def _medians(rates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one.get(name, 0.0) for one in rates) for name in rates[0]}


def cell(rates: Mapping[str, float]) -> str:
    """Return the dearest probes or threads, as a cell of the table."""
    dearest = sorted(rates.items(), key=lambda item: -item[1])[:SHOWN]
    return ", ".join(f"{name} {value:.2f}" for name, value in dearest)


def rounds(loads: Mapping[str, Start], chosen: argparse.Namespace, found: dict[str, list[Cost]]) -> None:
    """Measure every load several times."""
    for number in range(chosen.rounds):
        for name, start in loads.items():
            if chosen.load and chosen.load not in name:
                continue
            settled = RESTED if name.startswith("nothing") else SETTLED
            for flags in [chosen.flag, *([flag] for flag in chosen.against)]:
                title = f"{name}, `{flags[0]}`" if chosen.against and flags else name
                print(f"{title}, round {number + 1} ...", file=sys.stderr)
                found.setdefault(title, []).append(measure(start(), settled, chosen.seconds, flags))


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=3, help="measurements of each load; medians are shown")
    arguments.add_argument("--load", default="", help="only the loads whose names contain this")
    arguments.add_argument("--flag", action="append", default=[], help="a flag of the exporter")
    arguments.add_argument("--against", action="append", default=[], help="measure in turns an exporter with this flag")
    chosen = arguments.parse_args()
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=".") as directory:
        rounds(
            {
                "nothing": nullcontext,
                DIRECT: direct_reads(directory),
                "fio, buffered 4 KiB random writes": fio(directory, "--rw=randwrite"),
            },
            chosen,
            found,
        )
    if shutil.which("ceph-osd") is None:
        print("Ceph is not installed: its loads are left out", file=sys.stderr)
    elif any(chosen.load in name for name in (IDLE, STORM, MDTEST_RANKS, RADOS_BENCH)):
        with Cluster(options=ROOMY) as cluster, cluster.mount() as mount:
            rounds({IDLE: nullcontext, **ceph_loads(cluster, mount.path)}, chosen, found)
    if not found:
        arguments.error(f"no load has {chosen.load!r} in its name")
    rows, goals = [], []
    for name, costs in found.items():
        cost = median(costs)
        spread = f"{cost.cpu:.2f} ({min(one.cpu for one in costs):.2f} to {max(one.cpu for one in costs):.2f})"
        rest = [f"{value:.1f}" for value in (cost.rss, cost.helper, cost.scrape)]
        rows.append([name, spread, cell(cost.probes), cell(cost.threads), *rest])
        if name.endswith("`"):
            continue  # another exporter, to compare with
        limit = 0.3 if name.startswith("nothing") else 2.0
        goals.append(Goal(f"exporter beside {name}: of a core", limit, "%", cost.cpu))
    for what, field, limit, unit in (
        ("exporter, at most beside any of these: of memory", "rss", 32.0, "MB"),
        ("helper that reads a user's files, at most: of memory", "helper", 12.0, "MB"),
        ("exporter, at most beside any of these: of CPU for a scrape", "scrape", 8.0, "ms"),
    ):
        goals.append(Goal(what, limit, unit, max(getattr(median(costs), field) for costs in found.values())))
    head = ["load", "CPU, % of one core", "by probe", "by thread", "RSS, MB", "largest helper, MB",
            "CPU of a scrape, ms"]  # fmt: skip
    about = f"scraped every {SCRAPE_INTERVAL:g} s; median of {chosen.rounds} x {chosen.seconds:g} s (lowest to highest)"
    publish("live", f"{machine()}; {about}.\n\n{table(head, rows)}", chosen, goals)


if __name__ == "__main__":
    main()
