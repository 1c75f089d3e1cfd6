"""The set-up of compose/scale: shards that scrape, a ruler, a judge beside it, and VictoriaMetrics as the store."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet import PHASE, RUN, Fleet
from pinchpoint.metrics import EXPORTER
from polling import until
from scaled import TREE, Server, Sharded, shard_config, sharded

SCALE = TREE / "compose" / "scale"
NAME = re.compile(r"\b(?:ALERTS(?:_FOR_STATE)?|up(?=\{)|(?:pinchpoint|ceph|node)[:_][a-z0-9_:]+)\b")
PER_HOST = {"pinchpoint", "node", "ceph-exporter"}
"""Jobs with one target per host."""
NOT_KEPT = {"Blame"}
"""Panels of Bottleneck that read a series of every resource: the store has the blame, not the busy time of each."""

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((TREE / "compose" / name).read_text())
    return found


def shipped(name: str, relabeling: list[dict[str, Any]]) -> bool:
    """Return whether a metric passes write_relabel_configs that check only names."""
    for step in relabeling:
        assert step["source_labels"] == ["__name__"]
        fits = re.fullmatch(step["regex"], name) is not None
        if fits == (step["action"] == "drop"):
            return False
    return True


def read_by(dashboard: str) -> Iterator[str]:
    """Yield every metric that a dashboard queries and that is still queried after months."""
    board = json.loads((TREE / "dashboards" / "json" / f"{dashboard}.json").read_text())
    kept = [panel for panel in board["panels"] if panel.get("title") not in NOT_KEPT]
    asked = [kept, board["templating"], board["annotations"]]
    for expr in re.findall(r'"(?:expr|query)": "((?:[^"\\]|\\.)*)"', json.dumps(asked)):
        yield from NAME.findall(expr)


def series_text(metric: str, **labels: str) -> str:
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


class TestTheConfiguration:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "rules").symlink_to(TREE / "alerts")
        (tmp_path / "scale").symlink_to(SCALE)
        (tmp_path / "targets").symlink_to(TREE / "compose" / "targets")
        return tmp_path

    @needs_promtool
    @pytest.mark.parametrize("number", [0, 1])
    def test_of_a_shard_is_valid_for_an_agent(self, folder: Path, number: int) -> None:
        (folder / "shard.yml").write_text(yaml.safe_dump(shard_config(number, 2, "ruler:9090")))

        done = subprocess.run(
            ["promtool", "check", "config", "--agent", folder / "shard.yml"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    @needs_promtool
    def test_of_the_ruler_is_valid(self, folder: Path) -> None:
        shutil.copy(SCALE / "ruler.yml", folder)

        done = subprocess.run(["promtool", "check", "config", folder / "ruler.yml"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "rules found" in done.stdout

    def test_has_the_jobs_of_one_server_at_the_same_pace(self) -> None:
        def jobs(settings: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
            return {
                job["job_name"]: (
                    job.get("scrape_interval", settings["global"]["scrape_interval"]),
                    job.get("honor_labels", False),
                    *(files for sd in job.get("file_sd_configs", []) for files in sd["files"]),
                )
                for job in settings["scrape_configs"]
            }

        of_shards, of_ruler = jobs(shard_config(0, 2, "")), jobs(config("scale/ruler.yml"))
        del of_ruler["shard"]

        assert set(of_shards) == PER_HOST
        assert of_shards | of_ruler == jobs(config("prometheus.yml"))

    def test_the_local_prometheus_would_send_the_same_to_a_store(self) -> None:
        text = (SCALE.parent / "prometheus.yml").read_text()
        commented = text[text.index("# remote_write:") :]
        (write,) = yaml.safe_load(re.sub("(?m)^# ", "", commented))["remote_write"]
        (of_ruler,) = config("scale/ruler.yml")["remote_write"]

        assert write["write_relabel_configs"] == of_ruler["write_relabel_configs"]

    def test_lets_everything_through_to_the_ruler_that_a_rule_or_a_dashboard_reads(self) -> None:
        (write,) = shard_config(0, 2, "")["remote_write"]
        texts = [path.read_text() for path in (*TREE.glob("alerts/*.yml"), *TREE.glob("dashboards/json/*.json"))]
        read = {name for text in texts for name in NAME.findall(text)}

        assert len(read) > 100
        assert [name for name in sorted(read) if not shipped(name, write["write_relabel_configs"])] == []

    @pytest.mark.parametrize("dashboard", ["bottleneck", "runs"])
    def test_ships_what_is_asked_of_a_run_after_months(self, dashboard: str) -> None:
        (write,) = config("scale/ruler.yml")["remote_write"]
        read = set(read_by(dashboard))

        assert len(read) > 5
        assert [name for name in sorted(read) if not shipped(name, write["write_relabel_configs"])] == []


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = config("scale/compose.yaml")["services"]
    return found


class TestTheContainers:
    def test_are_one_stack_to_docker_compose(self, services: dict[str, Any]) -> None:
        docker = shutil.which("docker")
        if not docker or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
            pytest.skip("docker has no plugin `compose` here")
        files = ["-f", "compose/compose.yaml", "-f", "compose/scale/compose.yaml"]
        done = subprocess.run(
            ["docker", "compose", *files, "config", "--format", "json"], cwd=TREE, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

        found = json.loads(done.stdout)["services"]
        assert set(found) == {*services, "pinchpoint", "node", "alertmanager"}
        for service in found.values():
            sources = [mount["source"] for mount in service["volumes"] if mount["type"] == "bind"]
            assert [source for source in sources if not Path(source).exists()] == []
            targets = [mount["target"] for mount in service["volumes"]]
            assert len(set(targets)) == len(targets)

    def test_mount_what_is_there(self, services: dict[str, Any]) -> None:
        sources = [mount.split(":")[0] for service in services.values() for mount in service["volumes"]]
        volumes = set(config("scale/compose.yaml")["volumes"])

        assert [
            source for source in sources if source.startswith(".") and not (TREE / "compose" / source).exists()
        ] == []
        assert {source for source in sources if not source.startswith(".")} == volumes

    def test_can_write_to_their_temporary_file_systems_whoever_they_run_as(self, services: dict[str, Any]) -> None:
        mounted = {name: service["tmpfs"] for name, service in services.items() if "tmpfs" in service}

        assert {"shard-0", "shard-1"} <= set(mounted)
        assert all(mount.endswith(":mode=1777") for mount in mounted.values()), mounted

    def test_start_the_ruler_as_the_only_server_but_for_what_shards_write(self, services: dict[str, Any]) -> None:
        alone = config("compose.yaml")["services"]["prometheus"]["command"]

        assert services["prometheus"]["command"] == [*alone, "--web.enable-remote-write-receiver"]

    def test_find_each_other(self, services: dict[str, Any]) -> None:
        def listens(name: str, option: str) -> str:
            (found,) = (word.partition("=")[2] for word in services[name]["command"] if word.startswith(option))
            return str(found)

        ruler = config("scale/ruler.yml")
        (shards,) = (job["static_configs"] for job in ruler["scrape_configs"] if job["job_name"] == "shard")
        (source,) = config("scale/grafana-datasource.yml")["datasources"]
        store = f"http://{listens('victoria-metrics', '-httpListenAddr')}"

        assert shards[0]["targets"] == [listens(f"shard-{n}", "--web.listen-address") for n in range(2)]
        assert ruler["remote_write"][0]["url"] == f"{store}/api/v1/write"
        assert source["url"] == store

    @pytest.mark.parametrize("number", [0, 1])
    def test_put_its_number_into_the_configuration_of_a_shard(
        self, services: dict[str, Any], tmp_path: Path, number: int
    ) -> None:
        service = services[f"shard-{number}"]
        script = service["entrypoint"][2].replace("/run/shard", str(tmp_path)).replace("/etc/prometheus", str(SCALE))
        for variable in ("PROMETHEUS_PORT", "PINCHPOINT_PORT", "NODE_EXPORTER_PORT"):
            script = script.replace(f"${{{variable}}}", "9000")
        (tmp_path / "prometheus").write_text("#!/bin/sh\n")
        (tmp_path / "prometheus").chmod(0o755)

        subprocess.run(
            ["sh", "-euc", script.replace("$$", "$")],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", **service["environment"]},
            check=True,
        )

        made = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
        assert made == shard_config(number, 2, "127.0.0.1:9000")
        assert {path.name for path in (tmp_path / "local").iterdir()} == {"pinchpoint.yml", "node.yml"}


@needs_promtool
class TestAlertsAboutTheParts:
    def check(self, folder: Path, name: str, series: dict[str, str], expected: list[dict[str, str]]) -> None:
        """Have promtool check that after two minutes the alert fires for `expected` and for nothing else."""
        rules = [rule for group in config("scale/rules.yml")["groups"] for rule in group["rules"]]
        (fixed,) = (rule["labels"] for rule in rules if rule["alert"] == name)
        firing = [{"alertname": name, "alertstate": "firing", **fixed, **labels} for labels in expected]
        test = {
            "interval": "2s",
            "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'ALERTS{{alertname="{name}", alertstate="firing"}}',
                    "eval_time": "2m",
                    "exp_samples": [{"labels": series_text("ALERTS", **labels), "value": 1} for labels in firing],
                }
            ],
        }
        file = folder / "test.yml"
        content = {"rule_files": [str(SCALE / "rules.yml")], "evaluation_interval": "2s", "tests": [test]}
        file.write_text(yaml.safe_dump(content))
        done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def test_a_shard_that_does_not_answer_is_told(self, tmp_path: Path) -> None:
        up = {'up{job="shard",instance="a"}': "1x60", 'up{job="shard",instance="b"}': "1x20 0x40"}
        self.check(tmp_path, "ShardDown", up, [{"job": "shard", "instance": "b"}])

    def test_a_ruler_without_shards_is_told(self, tmp_path: Path) -> None:
        self.check(tmp_path, "ShardDown", {'up{job="prometheus",instance="a"}': "1x60"}, [{"job": "shard"}])

    def test_shards_that_answer_are_no_alert(self, tmp_path: Path) -> None:
        self.check(tmp_path, "ShardDown", {'up{job="shard",instance="a"}': "1x60"}, [])

    @pytest.mark.parametrize(("late", "fires"), [(8, False), (12, True)])
    def test_what_arrives_more_than_10_s_late_is_told(self, tmp_path: Path, late: int, fires: bool) -> None:
        shard = {"job": "shard", "instance": "a"}
        queue = shard | {"remote_name": "r", "url": "http://ruler"}
        scraped = "prometheus_remote_storage_highest_timestamp_in_seconds"
        sent = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"
        series = {series_text(scraped, **shard): "1000+2x60", series_text(sent, **queue): f"{1000 - late}+2x60"}

        self.check(tmp_path, "RemoteWriteBehind", series, [queue] if fires else [])


def test_simulated_hosts_say_only_what_an_exporter_can_say() -> None:
    known = {metric.name for metric in EXPORTER}
    fleet = Fleet(1, 1)

    for host in fleet.hosts:
        lines = fleet.exposition(host).decode().splitlines()
        names = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
        assert len(names) > 20
        assert names <= known


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    for program in ("prometheus", "victoria-metrics"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (`make setup` as root installs it)")
    with Fleet(14, 6) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def running(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sharded]:
    with sharded(tmp_path_factory.mktemp("scale"), fleet, shards=2) as running:

        def found(job: str) -> int:
            return sum(len(shard.hosts(job)) for shard in running.shards)

        assert until(30, lambda: found("pinchpoint") >= len(fleet.hosts) <= found("node"))
        yield running


@pytest.fixture(scope="module")
def store(running: Sharded) -> Server:
    assert running.store is not None
    return running.store


@pytest.fixture(scope="module")
def limit(fleet: Fleet, running: Sharded) -> tuple[str, str]:
    """The one full resource: an OSD's commit thread, on a host that is not scraped by the run's own shard."""
    (other,) = (shard for shard in running.shards if fleet.clients[0].partition(":")[0] not in shard.hosts())
    host = next(host for host in fleet.storage if host.partition(":")[0] in other.hosts())
    owner = fleet.owners(host, "kv_sync")[3]
    fleet.fill(host, "kv_sync", owner)
    return host, owner


def labels(server: Server, expr: str, *names: str) -> set[tuple[str, ...]]:
    """Return the result of an expression, as the values of some labels."""
    return {tuple(dict(found).get(name, "") for name in names) for found in server.query(expr)}


class TestTwoShards:
    def test_scrape_each_host_exactly_once(self, fleet: Fleet, running: Sharded) -> None:
        first, second = (shard.hosts() for shard in running.shards)

        assert first | second == {host.partition(":")[0] for host in fleet.hosts}
        assert not first & second
        assert first
        assert second

    def test_keep_all_exporters_of_a_host_together(self, running: Sharded) -> None:
        assert [shard.hosts("node") for shard in running.shards] == [shard.hosts() for shard in running.shards]

    def test_bring_every_host_to_the_ruler(self, fleet: Fleet, running: Sharded) -> None:
        def up() -> set[tuple[str, ...]]:
            return labels(running.ruler, 'up{job="pinchpoint"} == 1', "instance")

        assert until(30, lambda: up() == {(host,) for host in fleet.hosts}), up()


class TestTheJudgeBesideTheRuler:
    def test_blames_a_host_that_another_shard_scrapes(self, running: Sharded, limit: tuple[str, str]) -> None:
        def found() -> set[tuple[str, ...]]:
            return labels(running.ruler, "pinchpoint_verdict_info", "run", "kind", "resource", "host", "owner")

        assert until(90, lambda: found() == {(RUN, "resource", "kv_sync", *limit)}, pause=0.5), found()


class TestTheRuler:
    def test_evaluates_every_rule_without_an_error(self, running: Sharded) -> None:
        rules = [rule for group in running.ruler.get("rules")["groups"] for rule in group["rules"]]

        assert {"ShardDown", "KvSyncSaturated", "JudgeDown"} <= {rule["name"] for rule in rules}
        assert [rule["name"] for rule in rules if rule.get("lastError")] == []


class TestTheStore:
    def test_answers_with_the_verdict(self, running: Sharded, store: Server, limit: tuple[str, str]) -> None:
        def found() -> set[tuple[str, ...]]:
            return labels(store, "pinchpoint_verdict_info", "run", "kind", "resource", "host", "owner", "domain")

        assert until(90, lambda: found() == {(RUN, "resource", "kv_sync", *limit, "default")}, pause=0.5), found()

    @pytest.mark.parametrize(
        ("expr", "names"),
        [
            ("pinchpoint_verdict_blame_ratio > 0.4", ("resource", "owner", "host")),
            ("pinchpoint_verdict_wait_ratio > 0.1", ("run", "wait")),
            ("pinchpoint_phase_active == 1", ("run", "phase", "instance")),
            ("pinchpoint_run_state == 1", ("run", "state")),
            ('ALERTS{alertname="KvSyncSaturated", alertstate="firing"}', ("owner", "instance")),
        ],
    )
    def test_answers_what_the_ruler_answers(
        self, running: Sharded, store: Server, limit: tuple[str, str], expr: str, names: tuple[str, ...]
    ) -> None:
        def agree() -> bool:
            here, there = labels(running.ruler, expr, *names), labels(store, expr, *names)
            return bool(here) and here == there

        assert until(90, agree, pause=0.5), (labels(running.ruler, expr, *names), labels(store, expr, *names))

    def test_tells_a_phase_over_time(self, running: Sharded, store: Server) -> None:
        def samples() -> int:
            (found,) = store.query(f'count_over_time(pinchpoint_phase_active{{phase="{PHASE}"}}[1m])').values() or [0]
            return int(found)

        assert until(60, lambda: samples() > 5, pause=0.5)

    def test_has_nothing_else(self, running: Sharded, store: Server, limit: tuple[str, str]) -> None:
        (write,) = config("scale/ruler.yml")["remote_write"]
        assert until(90, lambda: store.query("pinchpoint_verdict_info"), pause=0.5)

        names = store.get("label/__name__/values")

        assert [name for name in names if not shipped(name, write["write_relabel_configs"])] == []
        assert not {"pinchpoint_resource_busy_seconds_total", "pinchpoint:owner_cpu:rate"} & set(names)
        assert running.ruler.value("count(pinchpoint_resource_busy_seconds_total)") > 500


def test_a_shard_that_dies_is_told_by_the_ruler(
    running: Sharded,
) -> None:  # the last: it takes the shard from the others
    dead = running.shards[0]
    dead.process.kill()

    def told() -> set[tuple[str, ...]]:
        return labels(running.ruler, 'ALERTS{alertname="ShardDown", alertstate="firing"}', "instance")

    assert until(60, told, pause=0.5) == {(dead.address,)}
