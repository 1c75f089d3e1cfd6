"""The objects for Kubernetes, as far as they can be read without Helm and kustomize (`make manifests-check`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import manifests
from manifests import BASE, CHART, MADE
from native import TREE
from pinchpoint import __version__
from pinchpoint.cli import main
from pinchpoint.rules import JOB

DASHBOARDS = TREE / "dashboards" / "json"


def documents(path: Path) -> dict[str, Any]:
    """Return the objects of a file by kind and name."""
    found = [each for each in yaml.safe_load_all(path.read_text()) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


OBJECTS = documents(MADE)
EXPORTER = OBJECTS["DaemonSet pinchpoint-exporter"]["spec"]["template"]["spec"]
JUDGE = OBJECTS["Deployment pinchpoint-judge"]["spec"]["template"]["spec"]
COMPOSED = yaml.safe_load((TREE / "compose" / "compose.yaml").read_text())["services"]["pinchpoint"]


class TestTheExporter:
    (container,) = EXPORTER["containers"]
    security = container["securityContext"]

    def test_has_the_rights_that_it_has_in_the_local_stack(self) -> None:
        assert self.security["capabilities"] == {"drop": ["ALL"], "add": COMPOSED["cap_add"]}
        assert self.security["privileged"] is False
        assert self.security["allowPrivilegeEscalation"] is False
        assert self.security["readOnlyRootFilesystem"] is True
        assert "apparmor:unconfined" in COMPOSED["security_opt"]
        assert self.security["appArmorProfile"] == {"type": "Unconfined"}
        assert "label:disable" in COMPOSED["security_opt"]
        assert self.security["seLinuxOptions"] == {"type": "spc_t"}

    def test_sees_the_node(self) -> None:
        assert (EXPORTER["hostPID"], EXPORTER["hostNetwork"]) == (True, True)
        assert self.container["command"] == ["nsenter", "--cgroup=/proc/1/ns/cgroup", "--", "pinchpoint"]
        assert {word for word in self.container["args"] if word.startswith("--path.")} == {
            word for word in COMPOSED["command"] if word.startswith("--path.")
        }

    def test_cannot_write_to_the_node(self) -> None:
        (mount,) = self.container["volumeMounts"]
        (volume,) = EXPORTER["volumes"]

        assert mount == {
            "name": "host", "mountPath": "/host", "readOnly": True, "mountPropagation": "HostToContainer"
        }  # fmt: skip
        assert volume["hostPath"] == {"path": "/", "type": "Directory"}

    def test_is_on_every_node(self) -> None:
        assert EXPORTER["tolerations"] == [{"operator": "Exists"}]
        assert EXPORTER["nodeSelector"] == {"kubernetes.io/os": "linux"}

    def test_knows_no_secret_of_kubernetes(self) -> None:
        assert EXPORTER["automountServiceAccountToken"] is False
        assert JUDGE["automountServiceAccountToken"] is False

    def test_understands_its_options(self, tmp_path: Path) -> None:
        words = [word.replace("/host", str(tmp_path)) for word in self.container["args"]]
        program = Path(sys.executable).with_name("pinchpoint")
        done = subprocess.run([program, *words], capture_output=True, text=True)

        assert done.stderr == f"pinchpoint: --path.sysfs: {tmp_path}/sys is not a directory\n"


class TestTheJudge:
    (container,) = JUDGE["containers"]

    def test_has_no_rights(self) -> None:
        """The Pod Security Standard `restricted` requires all of this."""
        security = self.container["securityContext"]

        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert JUDGE["securityContext"]["runAsNonRoot"] is True
        assert JUDGE["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostNetwork", "hostIPC", "volumes"} & set(JUDGE)

    def test_is_reached_through_the_service_to_which_links_lead(self) -> None:
        service = OBJECTS["Service pinchpoint-judge"]["spec"]
        labels = OBJECTS["Deployment pinchpoint-judge"]["spec"]["template"]["metadata"]["labels"]

        assert service["selector"].items() <= labels.items()
        assert service["ports"] == [{"name": "http", "port": 9749, "targetPort": "http"}]
        links = set(re.findall(r"runbook_url: (\S+?)/runbooks", (BASE / "rules.yaml").read_text()))
        assert links == {"http://pinchpoint-judge.pinchpoint.svc:9749"}

    def test_understands_its_options(self) -> None:
        program = Path(sys.executable).with_name("pinchpoint")
        words = [*self.container["args"], "--web.listen-address=nowhere"]
        done = subprocess.run([program, *words], capture_output=True, text=True)

        assert "nowhere" in done.stderr
        assert "No such option" not in done.stderr


class TestPrometheus:
    def endpoint(self, part: str) -> dict[str, Any]:
        monitor = OBJECTS[f"PodMonitor pinchpoint-{part}"]["spec"]
        kind = "DaemonSet" if part == "exporter" else "Deployment"
        labels = OBJECTS[f"{kind} pinchpoint-{part}"]["spec"]["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        (endpoint,) = monitor["podMetricsEndpoints"]
        return dict(endpoint)

    @pytest.mark.parametrize(("part", "job"), [("exporter", JOB), ("judge", f"{JOB}-judge")])
    def test_scrapes_under_the_name_that_the_alerts_select(self, part: str, job: str) -> None:
        endpoint = self.endpoint(part)

        assert endpoint["port"] == "http"
        assert endpoint["interval"] == endpoint["scrapeTimeout"] == "2s"
        assert {"targetLabel": "job", "replacement": job} in endpoint["relabelings"]
        assert f'job="{job}"' in (BASE / "rules.yaml").read_text()

    def test_has_every_rule_of_the_project(self) -> None:
        found = {name: each["spec"]["groups"] for name, each in documents(BASE / "rules.yaml").items()}
        there = {
            f"PrometheusRule pinchpoint-{path.stem}": yaml.safe_load(path.read_text())["groups"]
            for path in (TREE / "alerts").glob("*.yml")
        }
        link = "http://pinchpoint-judge.pinchpoint.svc:9749/runbooks/"

        assert json.loads(json.dumps(found).replace(link, "http://127.0.0.1:9749/runbooks/")) == there


class TestTheBase:
    def test_is_made_of_the_chart_as_it_is(self) -> None:
        assert MADE.read_text().startswith(manifests.HEAD.format(digest=manifests.digest())), "run `make manifests`"

    def test_is_made_of_files_that_are_there(self) -> None:
        resources = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]

        assert all((BASE / name).exists() for name in resources)
        assert {path.name for path in BASE.glob("*.yaml")} == {"kustomization.yaml", *resources[:-1]}
        assert (BASE / resources[-1]).resolve() == DASHBOARDS

    def test_has_every_dashboard_where_the_sidecar_of_grafana_finds_it(self) -> None:
        made = yaml.safe_load((DASHBOARDS / "kustomization.yaml").read_text())

        assert made["generatorOptions"]["labels"]["grafana_dashboard"] == "1"
        assert {each["name"]: each["files"] for each in made["configMapGenerator"]} == {
            f"pinchpoint-dashboard-{path.stem}": [f"pinchpoint-{path.name}={path.name}"]
            for path in DASHBOARDS.glob("*.json")
        }

    def test_allows_the_exporter_in_its_namespace(self) -> None:
        labels = documents(BASE / "namespace.yaml")["Namespace pinchpoint"]["metadata"]["labels"]

        assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


class TestTheChart:
    def test_has_the_version_of_the_program(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

        assert chart["appVersion"] == __version__
        assert EXPORTER["containers"][0]["image"] == f"localhost/pinchpoint:{__version__}"

    @pytest.mark.parametrize(("link", "target"), [("alerts", TREE / "alerts"), ("dashboards", DASHBOARDS)])
    def test_reads_the_rules_and_dashboards_of_the_project(self, link: str, target: Path) -> None:
        assert (CHART / "files" / link).resolve() == target

    @pytest.mark.parametrize("part", ["exporter", "judge"])
    def test_gives_options_that_the_program_knows(self, part: str) -> None:
        text = (CHART / "templates" / f"{part}.yaml").read_text() + (CHART / "values.yaml").read_text() * (
            part == "judge"
        )
        named = set(re.findall(r"(?:- |\[)(--[a-z][\w.-]*)", text))
        command = main.get_command(click.Context(main), part)

        assert command is not None
        assert len(named) >= 4
        assert named <= {option for parameter in command.params for option in parameter.opts}

    def test_uses_every_value_and_no_other(self) -> None:
        def paths(node: Any, above: str = "") -> set[str]:
            if isinstance(node, dict) and node and above not in whole:
                return {path for key, value in node.items() for path in paths(value, f"{above}.{key}")}
            return {above}

        whole = {f".{part}.{key}" for part in ("exporter", "judge") for key in ("nodeSelector", "resources")}
        whole |= {".scrapeTlsConfig"}
        text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
        used = {path.removesuffix(".") for path in re.findall(r"\.Values((?:\.\w+)+)", text)}

        assert used == paths(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_a_schema_of_the_operator_refuses_properties_that_it_does_not_describe() -> None:
    schema = {
        "type": "object",
        "properties": {
            "free": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True},
            "number": {"x-kubernetes-int-or-string": True},
            "list": {"items": {"properties": {"a": {"type": "string"}}}},
        },
    }
    made = manifests.strict(schema)

    assert made["additionalProperties"] is False
    assert made["properties"]["free"]["additionalProperties"] is True
    assert made["properties"]["number"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert made["properties"]["list"]["items"]["additionalProperties"] is False


def test_without_go_the_check_says_that_it_is_left_out(tmp_path: Path) -> None:
    script = TREE / "scripts" / "manifests.py"
    environment = {"PATH": str(tmp_path), "PINCHPOINT_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, script, "--check"], env=environment, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (os.EX_UNAVAILABLE, "manifests: left out: there is no go in PATH\n")
