"""What reading Ceph's admin sockets costs on a host with 8 OSDs and 4 MDSs, as a table in Markdown.

The daemons are real ones, of a cluster that is started for it and left idle: what is asked does not depend on load.
Rounds with and without the probes that ask alternate. The price that the daemons pay is the CPU time of their threads
named ``admin_socket``, which do nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from cost import Cost, measure
from lab.cluster import Cluster
from pinchpoint.procfs import parse_schedstat

OSDS, MDSS = 8, 4
PROBES = ("mds", "osd", "ceph_daemons", "ceph_client")
WITHOUT = [f"--no-probe.{name}" for name in PROBES]


def answering_seconds(names: list[str], cluster: Cluster) -> float:
    """Return the CPU time so far of the threads that answer admin sockets."""
    total = 0
    for name in names:
        for task in Path(f"/proc/{cluster.daemon(name).pid}/task").iterdir():
            if (task / "comm").read_text() == "admin_socket\n":
                total += parse_schedstat((task / "schedstat").read_bytes())[0]
    return total / 1e9


@contextmanager
def counted(names: list[str], cluster: Cluster, found: list[float]) -> Iterator[None]:
    """Add to `found` what the daemons used for answering while the block ran."""
    before = answering_seconds(names, cluster)
    yield
    found.append(answering_seconds(names, cluster) - before)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of measurements; medians are shown")
    arguments = parser.parse_args()
    names = [f"osd.{number}" for number in range(OSDS)] + [f"mds.{letter}" for letter in "abcd"[:MDSS]]
    costs: dict[str, list[Cost]] = {"not asked": [], "asked": []}
    answering: dict[str, list[float]] = {"not asked": [], "asked": []}
    print("starting a cluster ...", file=sys.stderr)
    with Cluster(osds=OSDS, mdss=MDSS) as cluster:
        threads = sum(process.num_threads() for process in psutil.process_iter())
        for _ in range(arguments.rounds):
            for name, flags in (("not asked", WITHOUT), ("asked", [])):
                with counted(names, cluster, answering[name]):
                    costs[name].append(measure(threads, arguments.seconds, flags))
    print(
        f"{OSDS} OSDs and {MDSS} MDSs, Linux {platform.release().partition('-')[0]}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, median of {arguments.rounds} x {arguments.seconds:.0f} s\n"
    )
    print("| admin sockets | series | CPU, % of one core | RSS, MB | scrape, ms | daemons' CPU for it, % of one core |")
    print("|---|---|---|---|---|---|")
    for name, found in costs.items():
        series, cpu, rss, scrape = (
            statistics.median(getattr(cost, field) for cost in found) for field in ("series", "cpu", "rss", "scrape")
        )
        share = 100 * statistics.median(answering[name]) / arguments.seconds
        print(f"| {name} | {series:.0f} | {cpu:.2f} | {rss:.1f} | {scrape:.1f} | {share:.2f} |")


if __name__ == "__main__":
    main()
