"""What Prometheus costs for many hosts: the section "scale" of the page; docs/scale.md draws the conclusions.

The hosts are simulated (fleet.py): four clients for each storage host with 16 OSDs, in a run whose limit is the commit
thread of every OSD, so that hundreds of alerts fire. First one server scrapes all of them, without rules and then with
them; then compose/scale does: two agents, a ruler and, where it is installed, VictoriaMetrics.
"""

from __future__ import annotations

import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from fleet import Fleet
from page import machine, parser, publish, table
from scaled import Server, sharded, single

CLIENTS_PER_STORAGE_HOST = 4
LIMIT = "kv_sync"
WARM_UP = 45.0
"""Seconds until the rules have their data: a run of 30 s, windows of 15 s."""
START = 10.0
"""Seconds until a server without rules scrapes all of them steadily."""
AGENTS = 2
MEMORY = Path("/dev/shm")
"""Where servers write: in memory, so that no other load on a disk slows the rules, each of which ends with a write."""


@dataclass(frozen=True)
class Cost:
    """The result of one measurement of one server."""

    cpu: float
    """Per cent of one core."""
    rss: float
    """MB."""
    series: float
    samples: float
    """Samples that it stored or sent per second."""
    rules: float
    """Median seconds that the slowest group of rules took."""
    sent: float
    """KB per second that it wrote to another server."""
    missed: float
    """Evaluations of rules that were skipped because the previous one was not finished."""


def internal(server: Server, name: str) -> float:
    """Return the sum over the series of one of the server's own metrics."""
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}[{{ ]", line))


def measure(servers: Sequence[Server], seconds: float, *, counter: str, series: str) -> list[Cost]:
    """Measure what each of `servers` costs from now on; `counter` and `series` are metrics of theirs."""
    processes = [psutil.Process(server.process.pid) for server in servers]
    before = [process.cpu_times() for process in processes]
    stored = [internal(server, counter) for server in servers]
    missed = [internal(server, "prometheus_rule_group_iterations_missed_total") for server in servers]
    sent = [internal(server, "prometheus_remote_storage_bytes_total") for server in servers]
    begin, slowest = time.monotonic(), []
    while time.monotonic() - begin < seconds:
        time.sleep(2)
        slowest.append([slowest_group(server) for server in servers])
    took, after = time.monotonic() - begin, [process.cpu_times() for process in processes]
    return [
        Cost(
            cpu=100 * (after[n].user + after[n].system - before[n].user - before[n].system) / took,
            rss=processes[n].memory_info().rss / 1e6,
            series=internal(server, series),
            samples=(internal(server, counter) - stored[n]) / took,
            rules=statistics.median(found[n] for found in slowest),
            sent=(internal(server, "prometheus_remote_storage_bytes_total") - sent[n]) / took / 1e3,
            missed=internal(server, "prometheus_rule_group_iterations_missed_total") - missed[n],
        )
        for n, server in enumerate(servers)
    ]


def slowest_group(server: Server) -> float:
    """Return the seconds that the slowest group of rules took last; 0 if there are none."""
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as answer:
        found = re.findall(r"rule_group_last_duration_seconds\{[^}]*\} (\S+)", answer.read().decode())
    return max(map(float, found), default=0.0)


HEAD = {"counter": "prometheus_tsdb_head_samples_appended_total", "series": "prometheus_tsdb_head_series"}
SENT = {"counter": "prometheus_remote_storage_samples_total", "series": "prometheus_agent_active_series"}
STORED = {"counter": "vm_rows_inserted_total", "series": "vm_cache_entries{type=.storage/hour_metric_ids.}"}


@contextmanager
def fleet_of(hosts: int) -> Iterator[tuple[Fleet, Path]]:
    """Run a fleet, and make a directory."""
    storage = max(1, hosts // (CLIENTS_PER_STORAGE_HOST + 1))
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder,
        Fleet(hosts - storage, storage, full=[LIMIT]) as fleet,
    ):
        yield fleet, Path(folder)


def with_rules(server: Server, *files: str) -> None:
    """Give rules to a server without any, and wait until they have their data."""
    config = yaml.safe_load(server.config.read_text()) | {"rule_files": files}
    server.config.write_text(yaml.safe_dump(config))
    server.process.send_signal(signal.SIGHUP)
    time.sleep(WARM_UP)


def one_server(hosts: int, seconds: float) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of one server without rules and with them."""
    with fleet_of(hosts) as (fleet, folder), single(folder, fleet, rules=False) as server:
        time.sleep(START)
        yield "no", measure([server], seconds, **HEAD)[0]
        with_rules(server, "rules/*.yml")
        yield "yes", measure([server], seconds, **HEAD)[0]


def parts(hosts: int, seconds: float) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of each part of compose/scale."""
    store = shutil.which("victoria-metrics") is not None
    with (
        fleet_of(hosts) as (fleet, folder),
        sharded(folder, fleet, shards=AGENTS, rules=False, store=store) as running,
    ):
        time.sleep(START)
        yield from zip((f"agent {n}" for n in range(AGENTS)), measure(running.shards, seconds, **SENT), strict=True)
        yield "ruler, no rules", measure([running.ruler], seconds, **HEAD)[0]
        with_rules(running.ruler, "rules/*.yml", "scale/rules.yml")
        yield "ruler", measure([running.ruler], seconds, **HEAD)[0]
        if running.store is not None:
            yield "VictoriaMetrics", measure([running.store], seconds, **STORED)[0]


def version() -> str:
    """Return the version of Prometheus."""
    said = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


def exposition_rows() -> list[list[str]]:
    """Describe a scrape of each kind of host."""
    with fleet_of(5) as (fleet, _):
        texts = {host: fleet.exposition(host) for host in (fleet.clients[-1], fleet.storage[0])}
    return [
        [host.partition("0")[0], str(sum(not line.startswith(b"#") for line in text.splitlines())), str(len(text))]
        for host, text in texts.items()
    ]


def main() -> None:
    """Measure and write the section."""
    arguments = parser(__doc__)
    arguments.add_argument("--hosts", type=int, nargs="+", default=[100], help="sizes of the fleet")
    arguments.add_argument("--seconds", type=float, default=20.0, help="length of one measurement")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    if shutil.which("prometheus") is None:
        publish("scale", "Not measured: no prometheus (`make setup` as root installs it).", chosen)
        return
    print("measuring Prometheus with simulated hosts ...", file=sys.stderr)
    whole = [
        [str(hosts), rules, f"{cost.series:.0f}", f"{cost.samples:.0f}", f"{cost.cpu:.1f}", f"{cost.rss:.0f}",
         f"{cost.rules:.2f}", f"{cost.missed:.0f}"]
        for hosts in chosen.hosts
        for rules, cost in one_server(hosts, chosen.seconds)
    ]  # fmt: skip
    sharing = [
        [name, f"{cost.series:.0f}", f"{cost.samples:.0f}", f"{cost.cpu:.1f}", f"{cost.rss:.0f}", f"{cost.sent:.0f}"]
        for name, cost in parts(chosen.hosts[-1], chosen.seconds)
    ]
    costs = ["series", "samples/s", "CPU, % of one core", "RSS, MB"]
    publish(
        "scale",
        f"{machine()}; Prometheus {version()}. Scraped and evaluated every 2 s, {chosen.seconds:g} s each.\n\n"
        f"{table(['simulated host', 'series', 'bytes of a scrape'], exposition_rows())}\n"
        f"{table(['hosts', 'rules', *costs, 'slowest group, s of each 2 s', 'evaluations missed'], whole)}\n"
        f"{chosen.hosts[-1]} hosts, sharded as in `compose/scale`, with {AGENTS} agents:\n\n"
        f"{table(['part', *costs, 'sent, KB/s'], sharing)}",
        chosen,
    )


if __name__ == "__main__":
    main()
