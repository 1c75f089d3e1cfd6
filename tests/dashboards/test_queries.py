"""Every query of every dashboard, sent as Grafana sends it, to a Prometheus that has seen real runs on a real cluster.

No query may be refused, whatever is selected, and each has to return something: for all hosts and runs, or else for one
of them. (Queries that stand in for a missing exporter return something for hosts outside of the cluster.) The
exceptions and their reasons are in empty.toml.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboards.boards import generated
from dashboards.kit import panels_of
from grafana import Asked, Choice, Client, asked_of, derived, select_all, several, title_of, values_of
from lab.cluster import Cluster, Mount, lacking
from lab.loads import metadata
from lab.observer import Observer
from machine import Machine
from machines import MACHINES
from metrics import TARGET, known_metrics
from native import PARTS, Stack
from patience import patience
from polling import get_json
from ports import free_port, stack_ports

PINCHPOINT = str(Path(sys.executable).with_name("pinchpoint"))
SHOWN = 300.0
"""Seconds that the dashboards show, ending at the end of the test."""
THIN = 5
"""One point in so many is queried, and all if these return nothing: only that counts."""
CACHE = 8 << 20
"""Bytes of the MDS cache; clients hold more open files than fit in it."""
OPEN_FILES = 8_000
DELAY, SLOW_SECONDS = 0.05, 0.01
"""Seconds that an OSD waits before each operation, and the age at which it calls one slow. Without the delay the loads
would take all CPUs, which other tests also need."""

BOARDS: dict[str, dict[str, Any]] = {name.removesuffix(".json"): json.loads(text) for name, text in generated().items()}
ASKED = [asked for name, board in BOARDS.items() for asked in asked_of(name, board)]
TABLES = [
    (name, title_of(panel, board))
    for name, board in BOARDS.items()
    for panel in panels_of(board)
    if panel["type"] == "table" and "groupingToMatrix" not in {step["id"] for step in panel["transformations"]}
]
OTHERS = [name for name, known in known_metrics().items() if known.source in ("prometheus", "node", "ceph")]
EMPTY: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("empty.toml").read_text())

pytestmark = pytest.mark.clusters


@dataclass(frozen=True)
class Seen:
    """What was seen up to the end of the runs."""

    client: Client
    values: Mapping[str, Mapping[str, list[str]]]
    """The values of each dashboard's variables."""
    all: Mapping[str, Choice]
    """What selects everything on each dashboard."""
    kinds: Mapping[str, str]
    """The types of metrics that Prometheus knows: counter, gauge and so on."""

    def choices(self, board: str) -> Iterator[tuple[str, Choice]]:
        """Yield possible selections, and the variable with only one value: all, each value, all values by name."""
        yield "", self.all[board]
        for name, values in self.values[board].items():
            for value in values:
                yield name, {**self.all[board], name: several([value])}
        yield "", {**self.all[board]} | {name: several(values) for name, values in self.values[board].items()}

    def series(self, asked: Asked, choice: Choice) -> list[dict[str, str]]:
        """Return the labels of a query's result. Raises AskError."""
        thin = self.client.ask(asked, choice, thin=THIN)["result"]
        return [series["metric"] for series in thin or self.client.ask(asked, choice)["result"]]


def variables(board: str) -> list[dict[str, Any]]:
    """Return the variables that one chooses from what there is."""
    return [one for one in BOARDS[board]["templating"]["list"] if one["type"] == "query" and not derived(one)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Keep a run, a found benchmark, and clients of the file system going; then stop all but Prometheus."""
    if reason := lacking():
        pytest.skip(reason)
    for part in PARTS.values():
        if part.programs and not any(map(shutil.which, part.programs)):
            pytest.skip(f"not installed: {part.programs[0]}; `make setup` as root installs it")
    folder = tmp_path_factory.mktemp("dashboards")
    with Stack(folder / "stack", stack_ports(), runs=folder / "runs") as stack:
        observer = Observer(stack)
        with contextlib.ExitStack() as running:
            observer.wait_for("pinchpoint_build_info")
            if others := observer.query("pinchpoint_phase_active == 1"):
                pytest.fail(f"alerts name a run only if it is the only one, but others are active: {others}")
            hosts = [running.enter_context(simulated_host(folder / one, one)) for one in ("powersave", "performance")]
            name(stack.state / "targets" / "pinchpoint.yml", [*hosts, f"127.0.0.1:{free_port()}"])
            cluster = running.enter_context(Cluster(osds=2, mdss=2, max_mds=2, store="bluestore"))
            observer.wait_for("pinchpoint_mds_rank_held")
            observer.watch(cluster)
            limit_cache(cluster, CACHE)
            running.enter_context(metadata(cluster, "hold", files=OPEN_FILES))
            # The run needs the alert for one evaluation of the rules only, however slow the disk is that it begins on.
            observer.wait_for('ALERTS{alertstate="firing", alertname="MdsCacheOversized"}', 120)
            slow_down(cluster)
            with run(cluster, stack, folder, "first", 24) as first:
                assert first.wait(patience(90)) == 0, (folder / "first.log").read_text()
            for sign in SIGNS_OF_THE_FIRST:
                observer.wait_for(sign)
            limit_cache(cluster, 2 * CACHE)
            second = running.enter_context(run(cluster, stack, folder, "second", 120))
            running.callback(second.terminate)
            running.enter_context(metadata(cluster, "storm", rate=50))
            running.callback(cluster.spawn(small_files(cluster.mount()), "small").terminate)
            for sign in SIGNS:
                observer.wait_for(sign)
            client = Client(stack.urls["prometheus"], time.time(), SHOWN)
            kinds = get_json(f"{client.url}/api/v1/metadata")["data"]
        values = {
            board: {one["name"]: client.values(*values_of(one), {}) for one in variables(board)} for board in BOARDS
        }
        yield Seen(
            client,
            values,
            {name: select_all(board, client) for name, board in BOARDS.items()},
            {metric: entries[0]["type"] for metric, entries in kinds.items()},
        )


SIGNS_OF_THE_FIRST = (
    'max_over_time(pinchpoint:run_alert:info{alertname="MdsCacheOversized", run=~".*first"}[1m])',
    'max_over_time(pinchpoint_phase_verdict_info{run=~".*first"}[1m])',
    'max_over_time(pinchpoint_run_fact_hosts{run=~".*first"}[1m])',
)
SIGNS = (
    'ALERTS{alertstate="firing", alertname="ExporterDown"}',
    'pinchpoint_phase_elapsed_seconds{run=~".*second"} > 20',
    'pinchpoint_phase_elapsed_seconds{run=~".*fio"} > 20',
    'pinchpoint_verdict_info{run=~".*second"}',
    f'pinchpoint_run_fact_hosts{{run=~".*second", fact="mds:mds_cache_memory_limit", value="{2 * CACHE}"}}',
    "ceph_healthcheck_slow_ops > 0",
    'pinchpoint_storage_device_info{owner=~"osd[.].+", device!=""}',
    'rate(pinchpoint_ceph_client_requests_total{target="mds"}[8s]) > 0 and on () count(up{job="pinchpoint"} == 1) == 3 '
    "and on () count(ceph_pg_total) and on () count(rate(pinchpoint_ceph_client_io_seconds_total[8s]) > 0)",
)
"""Needed before the dashboards are queried. The last one comes and goes: the dashboards show that moment."""


def name(file: Path, targets: list[str]) -> None:
    """Write a list of targets, replacing the link to the repository's."""
    file.unlink()
    file.write_text(json.dumps([{"targets": targets}]))


def limit_cache(cluster: Cluster, limit: int) -> None:
    cluster.command("config set", who="mds", name="mds_cache_memory_limit", value=str(limit))


def slow_down(cluster: Cluster) -> None:
    """Make each operation slow enough for a slow op."""
    for option, value in {
        "osd_op_complaint_time": SLOW_SECONDS,
        "osd_debug_inject_dispatch_delay_duration": DELAY,
        "osd_debug_inject_dispatch_delay_probability": 1,
    }.items():
        cluster.command("config set", who="osd", name=option, value=str(value))


def small_files(mount: Mount) -> list[str]:
    """Return a fio that creates, writes and removes small files all the time."""
    return [
        "fio", "--name=small", f"--directory={mount.path}", "--rw=write", "--bs=4k", "--size=1M", "--nrfiles=64",
        "--create_on_open=1", "--unlink_each_loop=1", "--loops=1000000", "--rate_iops=20",
    ]  # fmt: skip


def run(cluster: Cluster, stack: Stack, folder: Path, name: str, seconds: int) -> subprocess.Popen[bytes]:
    """Start `rados bench` under `pinchpoint run`, which logs problems in NAME.log."""
    command = [PINCHPOINT, "run", f"--name={name}", "--quiet", f"--path.runs={folder / 'runs'}"]
    command += [f"--target=127.0.0.1:{stack.ports['pinchpoint']}", f"--prometheus={stack.urls['prometheus']}", "--"]
    command += ["rados", "bench", "-p", "rbd", str(seconds), "write", "-b", "4096", "--no-cleanup"]
    environment = cluster.environment() | {"XDG_STATE_HOME": str(folder / "kept")}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
        )


@contextlib.contextmanager
def simulated_host(folder: Path, governor: str) -> Iterator[str]:
    """Run an exporter on a fake host with idle states and clocks, and give its address."""
    machine = Machine(folder)
    at = MACHINES["xeon"](machine)
    for policy in (machine.sysfs / "devices/system/cpu/cpufreq").iterdir():
        (policy / "scaling_governor").write_text(f"{governor}\n")
    at(0.0)
    address = f"127.0.0.1:{free_port()}"
    paths = [f"--path.procfs={machine.procfs}", f"--path.sysfs={machine.sysfs}", f"--path.runs={machine.runs}"]
    command = [PINCHPOINT, "exporter", f"--web.listen-address={address}", *paths]
    ended = threading.Event()

    def move() -> None:
        began = time.monotonic()
        while not ended.wait(0.2):
            at(time.monotonic() - began)

    mover = threading.Thread(target=move)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as exporter:
        mover.start()
        try:
            yield address
        finally:
            exporter.terminate()
            ended.set()
            mover.join()


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_query_gives_something_unless_there_is_a_reason(seen: Seen, asked: Asked) -> None:
    full: list[str] = []
    everything = False
    for number, (variable, choice) in enumerate(seen.choices(asked.board)):
        if variable and variable in full:
            continue  # one value with a result is enough
        if seen.series(asked, choice):
            full.append(variable)
            everything |= number == 0

    if str(asked) in EMPTY["always"]:
        assert not full, f"{asked} has a result: remove it from empty.toml"
        return
    if str(asked) in EMPTY["sometimes"]:
        return
    assert full, f"{asked} has no result:\n{asked.expr}"
    for name in seen.values[asked.board] if everything else ():
        given = name in full or f"${name}" not in asked.expr
        assert given != (EMPTY["alone"].get(str(asked), "").startswith(f"{name}: ")), f"{asked} for any {name} alone"


@pytest.mark.parametrize(("board", "panel"), TABLES)
def test_a_row_of_a_table_is_one_series_of_each_query(seen: Seen, board: str, panel: str) -> None:
    """Otherwise Grafana cannot merge them: labels shared by two queries would match several rows of one."""
    _, everything = next(seen.choices(board))
    queries = [asked for asked in ASKED if (asked.board, asked.panel) == (board, panel)]
    given = {asked.ref: found for asked in queries if (found := seen.series(asked, everything))}
    if not given and all(str(asked) in EMPTY["sometimes"] for asked in queries):
        return
    assert given, "the table has no row"
    shared = frozenset.intersection(*(frozenset().union(*found) for found in given.values()))
    for ref, found in given.items():
        rows = Counter(tuple((label, series.get(label)) for label in sorted(shared)) for series in found)
        assert [row for row, count in rows.items() if count > 1] == [], f"query {ref}"


def test_variables_offer_what_there_is(seen: Seen) -> None:
    offered = {name: found for values in seen.values.values() for name, found in values.items()}

    assert {run.partition("-")[2] for run in offered["run"]} == {"first", "second", "fio"}
    assert len(offered["host"]) == 3
    assert len(offered["cluster"]) == 1


@pytest.mark.parametrize("name", OTHERS)
def test_metrics_of_others_are_what_the_list_says(seen: Seen, name: str) -> None:
    known = known_metrics()[name]
    found = httpx.get(
        f"{seen.client.url}/api/v1/series", params={"match[]": name}, timeout=patience(10), trust_env=False
    )
    labels = {label for series in found.json()["data"] for label in series}
    kind = seen.kinds.get(name, "unknown")

    assert labels - TARGET - {"__name__"} == known.labels - TARGET
    assert known.kind == ("gauge" if kind == "unknown" else kind)


def test_the_verdict_is_a_sentence_with_advice(seen: Seen) -> None:
    for board in ("bottleneck", "wall"):
        text, advice = (seen.all[board][name] for name in ("verdict", "advice"))

        assert re.fullmatch(
            r"\*\*.+\*\* (is full \d+ % of the time|for \d+ s now: no resource is the limit).*\. Confidence: \w+\.",
            text,
        )
        assert re.fullmatch(r"\w.+\. \[Read on\]\(.+\.md\)", advice)


def test_every_reason_is_about_a_query() -> None:
    assert {name for names in EMPTY.values() for name in names} - {str(asked) for asked in ASKED} == set()
