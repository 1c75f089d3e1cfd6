"""What the exporter costs on a host with 4,000 threads, as a table in Markdown: ``make bench`` prints it.

Figures are of the exporter's own process: CPU from /proc/PID/stat, resident memory from /proc/PID/status, and the
time of a scrape as the scraper sees it.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from workload import CEPH_HOST, running

SCRAPE_INTERVAL = 2.0
LIMITS = {"cpu": 3.0, "rss": 45.0, "scrape": 60.0}
"""Per cent of one core, MB, milliseconds."""


@dataclass(frozen=True)
class Cost:
    """What one measurement found."""

    threads: int
    followed: int
    series: int
    cpu: float
    """Per cent of one core, scrapes included."""
    rss: float
    """MB."""
    scrape: float
    """Median milliseconds."""
    lost: float
    """Samples that were lost, of those that were due."""


def free_port() -> int:
    """Return a TCP port on loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(port: int) -> str:
    """Return the exposition of the exporter on `port`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def total(text: str, name: str) -> float:
    """Return the sum over the series of a metric."""
    lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def measure(threads: int, seconds: float, flags: Sequence[str]) -> Cost:
    """Run an exporter for `seconds` beside the workload that is running and return its cost."""
    port = free_port()
    command = [sys.executable, "-m", "pinchpoint", "exporter", f"--web.listen-address=127.0.0.1:{port}", *flags]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as exporter:
        try:
            process = psutil.Process(exporter.pid)
            deadline = time.monotonic() + 20
            while True:
                try:
                    scrape(port)
                    break
                except OSError:
                    if time.monotonic() > deadline or exporter.poll() is not None:
                        raise SystemExit("the exporter does not start") from None
                    time.sleep(0.1)
            time.sleep(2 * SCRAPE_INTERVAL)
            before, begin = process.cpu_times(), time.monotonic()
            text, times = scrape(port), []
            samples, lost = (
                total(text, "pinchpoint_sampler_samples_total"),
                total(text, "pinchpoint_sampler_lost_samples_total"),
            )
            while time.monotonic() - begin < seconds:
                time.sleep(SCRAPE_INTERVAL)
                asked = time.monotonic()
                text = scrape(port)
                times.append((time.monotonic() - asked) * 1000)
            after, took = process.cpu_times(), time.monotonic() - begin
            used = after.user + after.system - before.user - before.system
            samples = total(text, "pinchpoint_sampler_samples_total") - samples
            lost = total(text, "pinchpoint_sampler_lost_samples_total") - lost
            return Cost(
                threads=threads,
                followed=int(total(text, "pinchpoint_tasks_followed")),
                series=sum(not line.startswith("#") for line in text.splitlines()),
                cpu=100 * used / took,
                rss=process.memory_info().rss / 1e6,
                scrape=statistics.median(times),
                lost=lost / max(1.0, samples + lost),
            )
        finally:
            exporter.terminate()


def main() -> None:
    """Measure and print the table; exit 1 where a limit is broken and ``--check`` was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements; the median is shown")
    parser.add_argument("--check", action="store_true", help="fail where a limit is broken")
    arguments, flags = parser.parse_known_args()
    print("starting the workload ...", file=sys.stderr)
    with running(CEPH_HOST):
        threads = sum(process.num_threads() for process in psutil.process_iter())
        costs = [measure(threads, arguments.seconds, flags) for _ in range(arguments.rounds)]
    median = {name: statistics.median(getattr(cost, name) for cost in costs) for name in Cost.__dataclass_fields__}
    print(
        f"Linux {platform.release().partition('-')[0]}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f},"
    )
    print(f"median of {len(costs)} x {arguments.seconds:.0f} s, scraped every {SCRAPE_INTERVAL:.0f} s\n")
    print(
        "| threads of the host | threads followed | series | CPU, % of one core | RSS, MB | scrape, ms | samples lost |"
    )
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {median['threads']:.0f} | {median['followed']:.0f} | {median['series']:.0f} | {median['cpu']:.2f} "
        f"| {median['rss']:.1f} | {median['scrape']:.1f} | {median['lost']:.1%} |"
    )
    broken = [name for name, limit in LIMITS.items() if median[name] > limit]
    if arguments.check and broken:
        raise SystemExit(f"above the limit: {', '.join(broken)} ({LIMITS})")


if __name__ == "__main__":
    main()
