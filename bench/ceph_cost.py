"""What reading Ceph's admin sockets costs on a host with 8 OSDs and 4 MDSs: the section "ceph" of the page.

The daemons belong to a real cluster that is started for this and left idle: the questions do not depend on load. Rounds
with and without the probes alternate. The daemons' cost is the CPU time of their threads named ``admin_socket``, which
do nothing else.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cost import Cost, measure, median
from lab.cluster import Cluster
from page import machine, parser, publish, table
from pinchpoint.host.procfs import parse_schedstat

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
    """Add to `found` the per cent of a core that the daemons used for answering while the block ran."""
    before, begin = answering_seconds(names, cluster), time.monotonic()
    yield
    found.append(100 * (answering_seconds(names, cluster) - before) / (time.monotonic() - begin))


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    arguments.add_argument("--rounds", type=int, default=2, help="pairs of measurements; medians are shown")
    chosen = arguments.parse_args()
    if shutil.which("ceph-osd") is None:
        publish("ceph", "Not measured: Ceph is not installed (`make setup` as root installs it).", chosen)
        return
    names = [f"osd.{number}" for number in range(OSDS)] + [f"mds.{letter}" for letter in "abcd"[:MDSS]]
    costs: dict[str, list[Cost]] = {"not asked": [], "asked": []}
    answering: dict[str, list[float]] = {"not asked": [], "asked": []}
    print("starting a cluster ...", file=sys.stderr)
    with Cluster(osds=OSDS, mdss=MDSS) as cluster:
        for _ in range(chosen.rounds):
            for name, flags in (("not asked", WITHOUT), ("asked", [])):
                with counted(names, cluster, answering[name]):
                    costs[name].append(measure(chosen.seconds, flags))
    rows = []
    for name, found in costs.items():
        cost, share = median(found), statistics.median(answering[name])
        shown = (f"{cost.series:.0f}", f"{cost.cpu:.2f}", f"{cost.rss:.1f}", f"{cost.latency:.1f}", f"{share:.2f}")
        rows.append([name, *shown])
    head = ["admin sockets", "series", "CPU, % of one core", "RSS, MB", "latency of a scrape, ms",
            "daemons' CPU for it, % of one core"]  # fmt: skip
    about = f"{OSDS} OSDs and {MDSS} MDSs, median of {chosen.rounds} x {chosen.seconds:g} s"
    body = f"{machine()}; {about}.\n\n{table(head, rows)}"
    publish("ceph", body, chosen)


if __name__ == "__main__":
    main()
