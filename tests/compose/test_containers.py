"""The stack in containers, as far as it can be tested without a container engine."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from native import OPTIONAL, PARTS, TREE, Stack
from ports import stack_ports

COMPOSE = TREE / "compose"
ROOT_FILE, FILE = TREE / "compose.yaml", COMPOSE / "compose.yaml"
DOCKERFILE = COMPOSE / "Dockerfile"
PROVISIONING = COMPOSE / "grafana" / "provisioning"

ENDS = {"fio"}
"""Services that end by themselves."""
LOOKS_AT_THE_HOST = {"pinchpoint", "node"}


def settings() -> dict[str, str]:
    lines = [line for line in (COMPOSE / ".env").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def services() -> dict[str, dict[str, Any]]:
    """Return the services with their settings filled in; every variable must have a value."""
    model = yaml.safe_load(Template(FILE.read_text()).substitute(settings()))
    return dict(model["services"])


SERVICES = services()
each_service = pytest.mark.parametrize("name", SERVICES)


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield source, target and options of each volume."""
    for volume in service.get("volumes", ()):
        source, target, *options = volume.split(":")
        yield source, target, set(",".join(options).split(",")) - {""}


def validated(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True)


class TestTheFiles:
    def test_follow_the_compose_specification(self) -> None:
        done = validated(ROOT_FILE, FILE)

        assert done.returncode == 0, done.stdout

    def test_would_not_with_a_key_that_the_specification_does_not_know(self, tmp_path: Path) -> None:
        damaged = tmp_path / "compose.yaml"
        damaged.write_text(FILE.read_text().replace("pid: host", "pids: host", 1))

        assert validated(damaged).returncode

    def test_use_every_setting_and_no_other(self) -> None:
        text = "".join(line.partition(" #")[0] for line in FILE.read_text().splitlines(keepends=True))
        used = set(re.findall(r"(?<!\$)\$\{(\w+)", text))

        assert used == set(settings())

    def test_have_the_ports_of_the_stack_without_containers(self) -> None:
        ports = {part.variable: str(part.port) for part in (*PARTS.values(), *OPTIONAL.values())}

        assert {name: value for name, value in settings().items() if name.endswith("_PORT")} == ports

    def test_start_in_the_root_of_the_repository(self) -> None:
        root = yaml.safe_load(ROOT_FILE.read_text())

        assert [(TREE / path).resolve() for path in root["include"]] == [FILE]
        assert root["name"] == yaml.safe_load(FILE.read_text())["name"]

    @pytest.mark.parametrize("where", [(), ("--file", "compose/compose.yaml")])
    def test_say_the_same_to_docker_compose(self, where: tuple[str, ...]) -> None:
        found = json.loads(docker_compose(*where, "--profile", "demo", "config", "--format", "json"))

        assert set(found["services"]) == set(SERVICES)
        for name, service in found["services"].items():
            assert service.get("image") == SERVICES[name].get("image")
            assert service["healthcheck"]
            for volume in service["volumes"]:
                assert volume["type"] == "volume" or Path(volume["source"]).exists()
        assert (
            f"--web.listen-address=127.0.0.1:{PARTS['prometheus'].port}" in found["services"]["prometheus"]["command"]
        )

    def test_take_a_port_from_the_shell(self) -> None:
        said = docker_compose("config", "--format", "json", GRAFANA_PORT="13000")

        assert json.loads(said)["services"]["grafana"]["environment"]["GRAFANA_PORT"] == "13000"


def docker_compose(*arguments: str, **environment: str) -> str:
    try:
        known = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    except OSError:
        known = False
    if not known:
        pytest.skip("docker has no plugin `compose` here")
    done = subprocess.run(
        ["docker", "compose", *arguments], cwd=TREE, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "not set" not in done.stderr
    return done.stdout


class TestEveryService:
    @each_service
    def test_has_an_exact_version(self, name: str) -> None:
        if "build" in SERVICES[name]:
            return  # see TestTheImage
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])

    @each_service
    def test_has_no_more_rights_than_it_needs(self, name: str) -> None:
        service = SERVICES[name]

        assert "privileged" not in service
        assert "devices" not in service
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
        assert service["mem_limit"]
        assert "ulimits" not in service, "a daemon with lower limits refuses them; the exporter raises its own"
        if name != "pinchpoint":
            assert "cap_add" not in service
            assert "apparmor:unconfined" not in service["security_opt"]
        if name not in LOOKS_AT_THE_HOST:
            assert "pid" not in service
            assert "cgroup" not in service

    def test_does_not_run_as_root_if_it_is_built_here_and_needs_no_rights(self) -> None:
        assert SERVICES["judge"]["user"] == "65534:65534"

    def test_can_write_to_its_temporary_file_systems_whoever_it_runs_as(self) -> None:
        mounted = {name: service["tmpfs"] for name, service in SERVICES.items() if "tmpfs" in service}

        assert {"prometheus", "grafana"} <= set(mounted)
        assert all(mount.endswith(":mode=1777") for mount in mounted.values()), mounted

    @each_service
    def test_mounts_what_is_there_and_cannot_write_to_it(self, name: str) -> None:
        volumes = yaml.safe_load(FILE.read_text())["volumes"]
        for source, _, options in mounts(SERVICES[name]):
            if source.startswith(("/", ".")):
                assert (COMPOSE / source).exists()
                assert "ro" in options
                assert source != "/" or name in LOOKS_AT_THE_HOST
            else:
                assert source in volumes

    @each_service
    def test_is_reached_on_loopback_alone(self, name: str) -> None:
        service = SERVICES[name]
        listen = [word for word in service["command"] if "listen-address" in word] if "command" in service else []

        assert "ports" not in service
        assert service["network_mode"] == ("none" if name in ENDS else "host")
        if name in PARTS:
            assert f"--web.listen-address=127.0.0.1:{PARTS[name].port}" in listen
        assert all(word.partition("=")[2].startswith("127.0.0.1:") or word.endswith("=") for word in listen)

    @each_service
    def test_is_asked_whether_it_works_at_its_own_port(self, name: str) -> None:
        check = SERVICES[name]["healthcheck"]
        if name in ENDS:
            assert check == {"disable": True}
            return
        part = {**PARTS, **OPTIONAL}[name]
        asked = " ".join(check["test"])
        assert str(part.port) in asked
        assert part.health in asked
        assert "127.0.0.1" in asked

    @each_service
    def test_waits_until_those_that_it_needs_work(self, name: str) -> None:
        for other, how in SERVICES[name].get("depends_on", {}).items():
            assert how == {"condition": "service_healthy"}
            assert other in SERVICES

    def test_is_a_part_of_the_stack_or_of_the_demo(self) -> None:
        assert set(SERVICES) == {*PARTS, *OPTIONAL, *ENDS}
        assert {name for name, service in SERVICES.items() if "profiles" in service} == ENDS


class TestTheExporter:
    def test_sees_the_host(self) -> None:
        service = SERVICES["pinchpoint"]

        assert (service["pid"], service["cgroup"], service["network_mode"]) == ("host", "host", "host")
        assert ("/", "/host", {"ro", "rslave"}) in list(mounts(service))
        assert {"--path.sysfs=/host/sys", "--path.rootfs=/host", "--path.runs=/host/run/pinchpoint"} <= set(
            service["command"]
        )

    def test_has_the_capabilities_whose_want_was_measured_and_those_of_helpers(self) -> None:
        measured = ["SYS_PTRACE", "DAC_OVERRIDE", "SYS_ADMIN", "SYS_NICE", "SYSLOG"]

        assert SERVICES["pinchpoint"]["cap_add"] == [*measured, "SETUID", "SETGID", "KILL"]

    def test_understands_its_options(self, tmp_path: Path) -> None:
        program = str(Path(sys.executable).with_name("pinchpoint"))
        # It begins with these, and complains about the first folder that this host lacks.
        arguments = [word.replace("/host", str(tmp_path)) for word in SERVICES["pinchpoint"]["command"]]
        done = subprocess.run([program, *arguments], capture_output=True, text=True)

        assert done.stderr == f"pinchpoint: --path.sysfs: {tmp_path}/sys is not a directory\n"


class TestPrometheus:
    def start(self, folder: Path, environment: dict[str, str]) -> list[str]:
        """Run the command of its container, with a Prometheus that prints its arguments; return them."""
        service = yaml.safe_load(Template(FILE.read_text()).substitute(settings() | environment))["services"]
        (folder / "local").mkdir()
        (folder / "prometheus").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (folder / "prometheus").chmod(0o755)
        command = [*service["prometheus"]["entrypoint"], *service["prometheus"]["command"]]
        done = subprocess.run(
            [word.replace("/etc/prometheus", str(folder)) for word in command],
            env={"PATH": f"{folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    def test_scrapes_the_parts_of_the_stack_wherever_they_are(self, tmp_path: Path) -> None:
        self.start(tmp_path, {"NODE_EXPORTER_PORT": "19100"})

        found = {path.stem: yaml.safe_load(path.read_text()) for path in (tmp_path / "local").iterdir()}
        ports = {name: part.port for name, part in PARTS.items()} | {"node": 19100}
        assert found == {name: [{"targets": [f"127.0.0.1:{port}"]}] for name, port in ports.items()}

    def test_has_the_arguments_of_the_one_without_containers(self, tmp_path: Path) -> None:
        there, here = set(self.start(tmp_path, {})), set(PARTS["prometheus"].arguments)

        assert {word.partition("=")[0] for word in here} | {"--web.listen-address"} == {
            word.partition("=")[0] for word in there
        }
        same = ("--query",)
        assert {word for word in here if word.startswith(same)} == {word for word in there if word.startswith(same)}

    def test_finds_all_that_its_configuration_names(self) -> None:
        service = SERVICES["prometheus"]
        there = {target: (COMPOSE / source).resolve() for source, target, _ in mounts(service)}
        config = yaml.safe_load(there["/etc/prometheus/prometheus.yml"].read_text())

        assert there["/etc/prometheus/rules"] == TREE / "alerts"
        assert config["rule_files"] == ["rules/*.yml"]
        for job in config["scrape_configs"]:
            for file in job["file_sd_configs"][0]["files"]:
                folder, name = file.split("/")
                if folder == "targets":
                    assert (there["/etc/prometheus/targets"] / name).is_file()
                else:
                    assert (folder, service["tmpfs"]) == ("local", "/etc/prometheus/local:mode=1777")


class TestTheImage:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)

    def test_has_a_base_of_an_exact_version_that_can_be_replaced(self) -> None:
        (base,) = re.findall(r"^ARG BASE=(.*)$", DOCKERFILE.read_text(), re.MULTILINE)

        assert {image for image, _ in self.stages} == {"${BASE}"}
        assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", base)
        assert settings()["PYTHON_IMAGE"] == base
        built = [service["build"] for service in SERVICES.values() if "build" in service]
        assert [build["args"] for build in built] == [{"BASE": base}] * len(built)

    def test_asks_for_no_version_that_debian_may_have_replaced(self) -> None:
        installed = re.findall(r"apt-get install --yes --no-install-recommends (.*) \\", DOCKERFILE.read_text())
        assert len(installed) == 3
        assert not [package for packages in installed for package in packages.split() if "=" in package]

    def test_leaves_no_package_manager_to_whoever_gets_in(self) -> None:
        exporter = DOCKERFILE.read_text().partition("AS exporter")[2]

        assert all(path in exporter for path in ("/usr/bin/apt*", "/usr/bin/dpkg*", "/ensurepip", "/pip*"))
        assert "venv --without-pip /opt/pinchpoint" in DOCKERFILE.read_text()

    def test_has_a_stage_for_each_service_that_is_built(self) -> None:
        built = [service["build"] for service in SERVICES.values() if "build" in service]

        assert {build["target"] for build in built} <= {stage for _, stage in self.stages}
        assert {(COMPOSE / build["context"] / build["dockerfile"]).resolve() for build in built} == {DOCKERFILE}

    def test_is_made_of_files_that_are_there_and_are_sent_to_the_engine(self) -> None:
        rules = (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
        sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
        copied = {
            source
            for words in re.findall(r"^COPY ((?!--).*)$", DOCKERFILE.read_text(), re.MULTILINE)
            for source in words.split()[:-1]
        }

        assert copied == sent
        assert all((TREE / source).exists() for source in copied)
        assert "*" in rules

    def test_has_all_that_the_installation_reads(self) -> None:
        sent = {"setup.cfg", "setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
        named = re.findall(r"file: (\S+)|license_files = (\S+)", (TREE / "setup.cfg").read_text())

        assert {name for pair in named for name in pair if name} <= sent
        assert sent <= set(DOCKERFILE.read_text().split())


class TestGrafana:
    config = configparser.ConfigParser(interpolation=None)
    config.read(COMPOSE / "grafana" / "grafana.ini")

    def test_is_for_this_host_and_for_looking(self) -> None:
        assert self.config["server"]["http_addr"] == "127.0.0.1"
        assert self.config["auth.anonymous"]["enabled"] == "true"
        assert self.config["auth.anonymous"]["org_role"] == "Viewer"
        assert self.config["auth"]["disable_login_form"] == "true"
        assert self.config["security"]["disable_initial_admin_creation"] == "true"

    def test_talks_to_nobody_else(self) -> None:
        off = {
            "analytics": (
                "reporting_enabled",
                "check_for_updates",
                "check_for_plugin_updates",
                "feedback_links_enabled",
            ),
            "news": ("news_feed_enabled",),
            "plugins": ("plugin_admin_enabled",),
            "snapshots": ("external_enabled",),
        }
        on = {"plugins": ("preinstall_disabled", "public_key_retrieval_disabled"), "security": ("disable_gravatar",)}

        assert {self.config[section][key] for section, keys in off.items() for key in keys} == {"false"}
        assert {self.config[section][key] for section, keys in on.items() for key in keys} == {"true"}

    def test_begins_with_the_dashboard_bottleneck_now(self) -> None:
        home = self.config["dashboards"]["default_home_dashboard_path"]
        board = json.loads((TREE / "dashboards" / "json" / Path(home).name).read_text())

        assert home.startswith("${PINCHPOINT_DASHBOARDS}/")
        assert board["uid"] == "pinchpoint-bottleneck"

    def test_leaves_evaluating_to_prometheus(self) -> None:
        assert self.config["unified_alerting"]["execute_alerts"] == "false"

    def test_has_the_data_sources_of_the_stack(self) -> None:
        found = yaml.safe_load((PROVISIONING / "datasources" / "pinchpoint.yml").read_text())["datasources"]
        prometheus, alertmanager = found
        scrape = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["global"]["scrape_interval"]

        assert (prometheus["type"], prometheus["uid"]) == ("prometheus", "pinchpoint-prometheus")
        assert prometheus["isDefault"]
        assert prometheus["url"] == "http://127.0.0.1:${PROMETHEUS_PORT}"
        assert prometheus["jsonData"]["timeInterval"] == scrape
        assert prometheus["jsonData"]["httpMethod"] == "POST"
        assert prometheus["jsonData"]["alertmanagerUid"] == alertmanager["uid"] == "pinchpoint-alertmanager"
        assert alertmanager["type"] == "alertmanager"
        assert alertmanager["url"] == "http://127.0.0.1:${ALERTMANAGER_PORT}"

    def test_shows_the_dashboards_of_the_repository_as_they_are(self) -> None:
        (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "pinchpoint.yml").read_text())["providers"]
        there = {target: (COMPOSE / source).resolve() for source, target, _ in mounts(SERVICES["grafana"])}
        folder = there[SERVICES["grafana"]["environment"]["PINCHPOINT_DASHBOARDS"]]

        assert provider["options"]["path"] == "${PINCHPOINT_DASHBOARDS}"
        assert folder == TREE / "dashboards" / "json"
        assert not provider["allowUiUpdates"]
        assert provider["folder"] == "Pinchpoint"

    def test_gets_every_variable_in_containers_and_without(self, tmp_path: Path) -> None:
        files = [COMPOSE / "grafana" / "grafana.ini", *PROVISIONING.rglob("*.yml")]
        named = set(re.findall(r"\$\{(\w+)\}", "".join(file.read_text() for file in files)))

        assert named == set(SERVICES["grafana"]["environment"])
        assert named <= set(Stack(tmp_path, stack_ports(*OPTIONAL)).variables)


def test_the_demo_is_fio_with_the_settings_that_its_file_asks_for() -> None:
    service = SERVICES["fio"]
    named = set(re.findall(r"\$\{(\w+)\}", (COMPOSE / "demo.fio").read_text()))

    assert named == set(service["environment"])
    assert service["environment"]["DEMO_DIRECTORY"] in {target for _, target, _ in mounts(service)}
    assert service["command"][-1] in {target for _, target, _ in mounts(service)}
    assert service["restart"] == "no"
