"""The cost of each query of each dashboard at 100 hosts with 480 OSDs: samples that Prometheus reads, never times.

A tenth of the hosts is simulated (bench/fleet.py), with the series of a real exporter for each OSD, MDS and client
(daemons.prom, recorded on a real cluster), more CPUs, node_exporter's metrics and Ceph's own. A real Prometheus scrapes
them for half a minute and evaluates all rules; a real judge queries it. Each query runs for a few points of an hour,
with the steps and windows of an hour, and the samples that it read are multiplied: each point costs the same.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboards.boards import generated
from fleet import GOLDEN, Fleet
from grafana import Asked, Choice, Client, asked_of, select_all
from metrics import known_metrics
from polling import until
from scaled import Server, single

SCALE = 10
"""How many times more hosts there are than simulated ones: the samples that a query reads grow with them."""
CLIENTS, STORAGE = 70 // SCALE, 30 // SCALE
SHOWN = 3600.0
"""Seconds that the dashboards show."""
FIXED = "@ end()"
"""Marks a part of a query that ends at the same time at every point."""
POINTS = 2
"""Queried points of an hour."""
SCRAPED = 20
"""Seconds of data that are needed: the longest window of a rate, 4 x 5 s."""
READ = 20_000_000
"""Samples that a query may read: 7,000 series for each of 720 points, with four samples in each window."""
HELD = 10_000_000
"""Samples that a query may have in memory at a time; Prometheus refuses it at 50 million (--query.max-samples)."""
CPUS, DEVICES, POOLS = 32, 8, 10
"""CPUs of a client; disks or interfaces of a host; pools of the cluster."""
DAEMONS = Path(__file__).with_name("daemons.prom").read_text().splitlines()
LAST_CPU = [line for line in (GOLDEN / "xeon.prom").read_text().splitlines() if 'cpu="3"' in line]
"""Series of a client for the last of its four CPUs in the fleet."""
BOARDS = {name.removesuffix(".json"): json.loads(text) for name, text in generated().items()}
ASKED = [asked for name, board in BOARDS.items() for asked in asked_of(name, board)]


class Cluster(Fleet):
    """A fleet with all series that dashboards query: as exporter, as node_exporter, and as the manager of Ceph."""

    def __init__(self, clients: int, storage: int) -> None:
        super().__init__(clients, storage)
        self._began = time.time()
        osds = [owner for host in self.storage for owner in self.owners(host, "osd_op")]
        mdss = [owner for host in self.storage for owner in self.owners(host, "mds_lock")]
        self._more = {MANAGER: [line for name in others("ceph") for line in ceph(name, osds, mdss)]}
        devices = [line for name in others("node") for line in device_lines(name)]
        cpus = [line for text in LAST_CPU for line in cpu_lines(text)]
        for host in self.hosts:
            daemons = {"osd.0": self.owners(host, "osd_op"), "mds.a": self.owners(host, "mds_lock")}
            daemons["ceph-fuse"] = ["ceph-fuse"] if host in self.clients else []
            self._more[host] = [line for text in DAEMONS for line in own_lines(text, daemons)]
            if host in self.clients:
                self._more[host] += cpus
            self._more[node(host)] = devices

    def exposition(self, host: str) -> bytes:
        """Return the current exposition of a host. Raises KeyError."""
        elapsed = time.time() - self._began
        more = "".join(f"{text} {value + gain * elapsed:.9f}\n" for text, value, gain in self._more[host])
        return more.encode() + (super().exposition(host) if host in self.hosts else b"")


Line = tuple[str, float, float]
"""Name and labels; initial value; gain per second."""
MANAGER = ""
"""The proxy's own address, as it sees it."""


def node(host: str) -> str:
    """Return the address of the node_exporter of a host."""
    return host.replace(":9748", ":9100")


def others(source: str) -> list[str]:
    return [name for name, known in known_metrics().items() if known.source == source]


def ceph(name: str, osds: list[str], mdss: list[str]) -> Iterator[Line]:
    """Yield the series of one of Ceph's own metrics."""
    labels = known_metrics()[name].labels
    daemons = mdss if name.startswith("ceph_mds_") else osds
    values = daemons if "ceph_daemon" in labels else [str(number) for number in range(POOLS)]
    label = next((label for label in ("ceph_daemon", "pool_id") if label in labels), None)
    gain = 10.0 if known_metrics()[name].kind == "counter" else 0.0
    for kind in ("SLOW_OPS", "PENDING_CREATING_PGS") if "type" in labels else ("",):
        for number, value in enumerate(values if label else [""]):
            rest = {"type": kind, "name": f"name{number}", "rank": str(number)}
            found = {label: value} | {key: text for key, text in rest.items() if key in labels}
            inside = ",".join(f'{key}="{text}"' for key, text in found.items() if key)
            yield f"{name}{{{inside}}}", 1.0, gain


def device_lines(name: str) -> Iterator[Line]:
    """Yield the series of one of node_exporter's metrics."""
    for number in range(DEVICES):
        yield f'{name}{{device="device{number}"}}', 1.0, 1e6


def cpu_lines(text: str) -> Iterator[Line]:
    """Yield a line about the last CPU for each CPU that the fleet's clients lack."""
    series, _, value = text.rpartition(" ")
    for number in range(4, CPUS):
        yield series.replace('cpu="3"', f'cpu="{number}"'), float(value), gain_of(series)


def gain_of(series: str) -> float:
    """Return the gain of a series per second."""
    name = series.partition("{")[0]
    return 0.0 if not name.endswith("_total") else 0.3 if "_seconds_" in name else 20.0


def own_lines(text: str, daemons: dict[str, list[str]]) -> Iterator[Line]:
    """Yield a line of daemons.prom for each matching daemon of a host, or once if it is not about a daemon."""
    series, _, value = text.rpartition(" ")
    about = next((daemon for daemon in daemons if f'"{daemon}"' in series), None)
    for name in [about] if about is None else daemons[about]:
        yield series.replace(f'"{about}"', f'"{name}"'), float(value), gain_of(series)


@dataclass(frozen=True)
class Cost:
    """Samples that a query reads for an hour, and holds in memory at a time."""

    read: float
    held: float

    def times(self, factor: float) -> Cost:
        """Return so many times the cost."""
        return Cost(self.read * factor, self.held * factor)


@dataclass
class Costs:
    """Measures the cost of queries."""

    client: Client
    all: Mapping[str, Choice]
    """What selects everything on each dashboard."""
    covered: float
    """Seconds covered by data."""

    def of(self, asked: Asked) -> Cost:
        """Return the cost of a query with everything selected. Raises AskError."""
        longer = SHOWN / self.covered if "$__range" in asked.expr else 1.0
        some = self._measured(asked, POINTS)
        points = SHOWN / self.client.step(asked) + 1
        if asked.instant:
            return some.times(longer * SCALE)
        if FIXED not in asked.expr:
            return some.times(points / POINTS * longer * SCALE)
        # What ends at a fixed time is read once, and the rest at every point.
        fewer = self._measured(asked, POINTS - 1)
        each, once = some.read - fewer.read, POINTS * fewer.read - (POINTS - 1) * some.read
        return Cost((once * longer + each * points) * SCALE, some.held * points / POINTS * SCALE)

    def _measured(self, asked: Asked, points: int) -> Cost:
        answer = self.client.ask(asked, self.all[asked.board], points=points, stats="all")
        samples = answer["stats"]["samples"]
        return Cost(samples["totalQueryableSamples"], samples["peakSamples"])


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Costs]:
    if shutil.which("prometheus") is None:
        pytest.skip("not installed: prometheus; `make setup` as root installs it")
    folder = tmp_path_factory.mktemp("cost")
    with ExitStack() as stack:
        with Cluster(CLIENTS, STORAGE) as cluster:
            server = stack.enter_context(single(folder, cluster, rules=True))
            targets = {"node": [node(host) for host in cluster.hosts], "ceph": [cluster.url.removeprefix("http://")]}
            for job, addresses in targets.items():
                (folder / "targets" / f"{job}.yml").write_text(json.dumps([{"targets": addresses}]))
            assert until(120, lambda: is_seen(server, len(cluster.hosts)), pause=1.0), "the hosts are not seen"
            end = time.time()
        # On a busy machine scrapes are late or lost, so their number does not show the time.
        covered = server.value("time() - min(min_over_time(timestamp(pinchpoint_build_info)[1h:1s]))")
        client = Client(f"http://{server.address}", end, SHOWN)
        yield Costs(client, {name: select_all(board, client) for name, board in BOARDS.items()}, covered)


def is_seen(server: Server, hosts: int) -> bool:
    """Return whether all data of the dashboards is there, for as long as their windows look back."""
    signs = {
        f"count(count_over_time(pinchpoint_build_info[{SCRAPED}s]) >= {SCRAPED // 2 - 1})": hosts,
        f"count(count_over_time(scrape_duration_seconds{{job='node'}}[{SCRAPED}s]) >= {SCRAPED // 5})": hosts,
        f"min(count_over_time(ceph_health_status[{SCRAPED}s]))": SCRAPED // 5,
        "count(pinchpoint_verdict_info)": 1,
    }
    return all(server.value(expr) >= least for expr, least in signs.items())


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_query_reads_a_bounded_number_of_samples(costs: Costs, asked: Asked) -> None:
    cost = costs.of(asked)

    assert cost.read <= READ, f"{cost.read:,.0f} samples are read"
    assert cost.held <= HELD, f"{cost.held:,.0f} samples are held"
