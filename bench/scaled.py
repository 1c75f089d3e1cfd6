"""Prometheus servers, a judge and a long-term store for a simulated fleet, by the configuration in compose/.

Only the places differ from those files: ports on loopback, and the proxy that answers for the fleet.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleet import Fleet

__all__ = ["TREE", "Server", "Sharded", "free_addresses", "judging", "prometheus", "shard_config", "sharded", "single"]

TREE = Path(__file__).resolve().parent.parent
SCALE = TREE / "compose" / "scale"
LOOKBACK = "--query.lookback-delta=30s"
START_SECONDS = 30.0


@dataclass(frozen=True)
class Server:
    """A running server: Prometheus, a store with Prometheus' API, or the judge."""

    address: str
    process: subprocess.Popen[bytes]
    config: Path

    def get(self, path: str, **parameters: str) -> Any:
        """Return an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> dict[frozenset[tuple[str, str]], float]:
        """Return the present value of each series that an expression gives."""
        found = self.get("query", query=expr)["result"]
        return {frozenset(series["metric"].items()): float(series["value"][1]) for series in found}

    def value(self, expr: str) -> float:
        """Return the value of the only series that an expression gives, or 0 if there is none."""
        return next(iter(self.query(expr).values()), 0.0)

    def hosts(self, job: str = "pinchpoint") -> set[str]:
        """Return the hosts that it scrapes for a job, without their ports."""
        targets = self.get("targets", state="active")["activeTargets"]
        return {target["labels"]["instance"].partition(":")[0] for target in targets if target["scrapePool"] == job}


@dataclass(frozen=True)
class Sharded:
    """The servers of compose/scale for a fleet."""

    shards: list[Server]
    ruler: Server
    store: Server | None


@contextmanager
def single(folder: Path, fleet: Fleet, *, rules: bool) -> Iterator[Server]:
    """Run one Prometheus that scrapes all hosts, by compose/prometheus.yml; with rules, a judge beside it."""
    address, judge_at = free_addresses(2)
    config = yaml.safe_load((TREE / "compose" / "prometheus.yml").read_text())
    if not rules:
        del config["rule_files"]
    _through(fleet, config)
    _write_targets(folder, {"pinchpoint": fleet.hosts, **({"judge": [judge_at]} if rules else {})})
    with ExitStack() as stack:
        server = stack.enter_context(prometheus(folder, address, config))
        if rules:
            stack.enter_context(judging(folder, judge_at, f"--prometheus=http://{address}"))
        yield server


@contextmanager
def prometheus(
    folder: Path, address: str, config: Mapping[str, Any], *flags: str, agent: bool = False
) -> Iterator[Server]:
    """Run a Prometheus whose database, unless it is an agent, is `data` in its folder."""
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    (folder / "rules").symlink_to(TREE / "alerts")
    (folder / "scale").symlink_to(SCALE)
    # An agent has no database, and neither accepts the other's options.
    storage = ["--storage.agent.path=data"] if agent else ["--storage.tsdb.path=data", LOOKBACK]
    command = ["prometheus", f"--config.file={file.name}", f"--web.listen-address={address}", *storage, *flags]
    with _running(command, folder, f"http://{address}/-/ready") as process:
        yield Server(address, process, file)


@contextmanager
def judging(folder: Path, address: str, *flags: str) -> Iterator[Server]:
    """Run the judge; `flags` name its sources."""
    program = str(Path(sys.executable).with_name("pinchpoint"))
    command = [program, "judge", f"--web.listen-address={address}", "--interval=1", *flags]
    with _running(command, folder, f"http://{address}/-/healthy") as process:
        yield Server(address, process, folder)


@contextmanager
def sharded(folder: Path, fleet: Fleet, *, shards: int, rules: bool = True, store: bool = True) -> Iterator[Sharded]:
    """Run agents that scrape the fleet, the ruler, and VictoriaMetrics unless `store` is false.

    With rules a judge runs beside the ruler.
    """
    ruler_at, judge_at, store_at, *shards_at = free_addresses(3 + shards)
    config = yaml.safe_load((SCALE / "ruler.yml").read_text())
    (jobs,) = (job for job in config["scrape_configs"] if job["job_name"] == "shard")
    jobs["static_configs"] = [{"targets": shards_at}]
    if not rules:
        del config["rule_files"]
    if store:
        config["remote_write"][0]["url"] = f"http://{store_at}/api/v1/write"
    else:
        del config["remote_write"]
    with ExitStack() as stack:
        _write_targets(folder / "ruler", {"prometheus": [ruler_at], "judge": [judge_at]})
        long_term = stack.enter_context(_victoria_metrics(folder, store_at)) if store else None
        ruler = stack.enter_context(
            prometheus(folder / "ruler", ruler_at, config, "--web.enable-remote-write-receiver")
        )
        if rules:
            stack.enter_context(judging(folder, judge_at, f"--prometheus=http://{ruler_at}"))
        agents = []
        for number, address in enumerate(shards_at):
            config = shard_config(number, shards, ruler_at)
            _through(fleet, config)
            nodes = [host.replace(":9748", ":9100") for host in fleet.hosts]
            _write_targets(folder / f"shard-{number}", {"pinchpoint": fleet.hosts, "node": nodes})
            agents.append(
                stack.enter_context(
                    prometheus(folder / f"shard-{number}", address, config, "--enable-feature=agent", agent=True)
                )
            )
        yield Sharded(agents, ruler, long_term)


def shard_config(number: int, shards: int, ruler: str) -> dict[str, Any]:
    """Return compose/scale/shard.yml for one of `shards`."""
    text = (SCALE / "shard.yml").read_text()
    for name, value in (("$(SHARDS)", str(shards)), ("$(SHARD)", str(number)), ("$(RULER)", ruler)):
        text = text.replace(name, value)
    config: dict[str, Any] = yaml.safe_load(text)
    return config


def free_addresses(count: int) -> list[str]:
    """Return free addresses on loopback."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in sockets]


def _through(fleet: Fleet, config: dict[str, Any]) -> None:
    for job in config["scrape_configs"]:
        if job["job_name"] in ("pinchpoint", "node"):
            job["proxy_url"] = fleet.url


def _write_targets(folder: Path, targets: Mapping[str, list[str]]) -> None:
    """Write the lists of targets; those that are not named are empty."""
    (folder / "targets").mkdir(parents=True)
    for name in ("pinchpoint", "judge", "node", "ceph", "ceph-exporter", "prometheus", "alertmanager"):
        found = [{"targets": targets[name]}] if name in targets else []
        (folder / "targets" / f"{name}.yml").write_text(json.dumps(found))


@contextmanager
def _victoria_metrics(folder: Path, address: str) -> Iterator[Server]:
    service = yaml.safe_load((SCALE / "compose.yaml").read_text())["services"]["victoria-metrics"]
    flags = [flag for flag in service["command"] if not flag.startswith(("-httpListenAddr", "-storageDataPath"))]
    command = ["victoria-metrics", f"-httpListenAddr={address}", "-storageDataPath=store", *flags]
    with _running(command, folder, f"http://{address}/health") as process:
        yield Server(address, process, folder / "store")


@contextmanager
def _running(command: list[str], folder: Path, health: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. Raises RuntimeError with its log if it does not start."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(health):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} does not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False
