"""What the judge costs for many hosts: the section "judge" of the page, or with ``--many`` the section "judge_many".

The hosts are simulated (fleet.py) and all busy: the limit is the commit thread of every OSD. First the judge reads them
itself, then it queries a Prometheus that scrapes them every 2 s. The queries' cost for that server is the difference of
its cost with and without the judge. Both are measured in turn, and the page has the medians.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from fleet import Fleet
from page import Goal, machine, parser, publish, table
from scale_cost import START, fleet_of, internal
from scaled import Server, free_addresses, judging, single

WARM_UP = 15.0
"""Seconds until the judge has seen every host more than once."""
GOALS = {"direct": 25.0, "through Prometheus": 10.0}
"""Per cent of one core for 100 hosts, by how they are read."""
HOSTS, MANY_HOSTS = 100, 1000
"""Numbers of hosts: the one that the goals are for, and one without goals: the simulation itself takes a core."""


class Cost(NamedTuple):
    """The result of one measurement."""

    cpu: float
    """Per cent of one core that the judge used."""
    rss: float
    """MB."""
    rounds: float
    """Judgements per second; the goal is one."""
    hosts: float
    """Number of hosts that it saw."""
    runs: float
    server: float
    """Per cent of one core that its queries cost Prometheus; NaN if it makes none."""


def cpu_seconds(server: Server) -> float:
    """Return the CPU seconds that a server has used."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def cpu(server: Server, seconds: float) -> float:
    """Measure what a server uses from now on, in per cent of one core."""
    before, begin = cpu_seconds(server), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(server) - before) / (time.monotonic() - begin)


def measure(judge: Server, seconds: float, server: Server | None = None, alone: float = 0.0) -> Cost:
    """Measure what the judge costs from now on, and how much more than `alone` it costs `server`."""
    rounds, begin = internal(judge, "pinchpoint_judge_rounds_total"), time.monotonic()
    asked = cpu_seconds(server) if server is not None else 0.0
    used = cpu(judge, seconds)
    took = time.monotonic() - begin
    return Cost(
        used,
        psutil.Process(judge.process.pid).memory_info().rss / 1e6,
        (internal(judge, "pinchpoint_judge_rounds_total") - rounds) / took,
        internal(judge, 'pinchpoint_judge_hosts{state="up"}'),
        internal(judge, "pinchpoint_judge_runs"),
        100 * (cpu_seconds(server) - asked) / took - alone if server is not None else float("nan"),
    )


def direct(hosts: int, seconds: float) -> Cost:
    """Measure a judge that reads every host itself."""
    (address,) = free_addresses(1)
    with fleet_of(hosts) as (fleet, folder):
        targets = folder / "targets.json"
        targets.write_text(json.dumps(groups(fleet)))
        with judging(folder, address, f"--targets-file={targets}") as judge:
            time.sleep(WARM_UP)
            return measure(judge, seconds)


def groups(fleet: Fleet) -> list[dict[str, object]]:
    """Return a list of targets, one per host, whose path tells the proxy which host is meant."""
    proxy = fleet.url.removeprefix("http://")
    return [{"targets": [proxy], "labels": {"instance": host, "__metrics_path__": f"/{host}"}} for host in fleet.hosts]


def through_prometheus(hosts: int, seconds: float) -> Cost:
    """Measure a judge that queries a Prometheus without rules."""
    (address,) = free_addresses(1)
    with fleet_of(hosts) as (fleet, folder), single(folder, fleet, rules=False) as server:
        time.sleep(START)
        alone = cpu(server, seconds)
        with judging(folder, address, f"--prometheus=http://{server.address}") as judge:
            time.sleep(WARM_UP)
            return measure(judge, seconds, server, alone)


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


WAYS = {"direct": direct, "through Prometheus": through_prometheus}


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--many", action="store_true", help=f"measure {MANY_HOSTS:,} hosts instead of {HOSTS}")
    arguments.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    arguments.add_argument("--repeats", type=int, default=3, help="measurements of each kind")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    print("measuring the judge with simulated hosts ...", file=sys.stderr)
    ways = [way for way in WAYS if way == "direct" or shutil.which("prometheus")]
    hosts = MANY_HOSTS if chosen.many else HOSTS
    taken = [(way, WAYS[way](hosts, chosen.seconds)) for _ in range(chosen.repeats) for way in ways]
    found = {way: median([cost for other, cost in taken if other == way]) for way in ways}
    rows = [
        [str(hosts), way, f"{cost.hosts:.0f}", f"{cost.runs:.0f}", f"{cost.rounds:.2f}", f"{cost.cpu:.1f}",
         f"{cost.rss:.0f}", "-" if cost.server != cost.server else f"{cost.server:.1f}"]
        for way, cost in found.items()
    ]  # fmt: skip
    goals = [
        Goal(f"judge, {HOSTS} hosts {way}", limit, "% of a core", found[way].cpu if way in found else "no prometheus")
        for way, limit in GOALS.items()
    ]
    head = ["hosts", "asked", "seen", "runs", "rounds/s", "CPU, % of one core", "RSS, MB", "Prometheus, % more"]
    how = f"medians of {chosen.repeats} measurements of {chosen.seconds:g} s"
    body = f"{machine()}; {how}.\n\n{table(head, rows)}"
    if chosen.many:
        publish("judge_many", body, chosen)
    else:
        publish("judge", body, chosen, goals)


if __name__ == "__main__":
    main()
