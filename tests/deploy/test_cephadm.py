"""What is given to cephadm: read by cephadm's own classes, rendered as its templates are, checked by promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from native import TREE
from pinchpoint.rules import JOB, rules

FOLDER = TREE / "deploy" / "cephadm"
EXPORTER, JUDGE, JOBS = FOLDER / "exporter.yaml", FOLDER / "judge.yaml", FOLDER / "prometheus-jobs.yml.j2"
each_spec = pytest.mark.parametrize("path", [EXPORTER, JUDGE], ids=lambda path: path.stem)

SYSTEM_PYTHON = Path("/usr/bin/python3")
READ_SPEC = """
import json, sys, yaml
from ceph.deployment.service_spec import ServiceSpec
spec = ServiceSpec.from_json(yaml.safe_load(sys.stdin))
spec.validate()
print(json.dumps([type(spec).__name__, spec.service_name(), spec.config_json()]))
"""
"""What `ceph orch apply -i` does with a file (16.2.15, pybind/mgr/orchestrator/module.py, _apply_misc)."""

BEFORE = "global:\n  scrape_interval: 10s\nscrape_configs:\n  - job_name: node\n    static_configs: []\n"
"""How cephadm's own templates begin and end, from 16.2 on."""
URLS = ["http://mgr1:8765/sd/prometheus/sd-config?service=node-exporter", "http://mgr2:8765/other"]
CREDENTIALS = {"service_discovery_username": "admin", "service_discovery_password": "secret"}
RELEASES: dict[str, dict[str, Any]] = {
    "pacific": {"nodes": [{"hostname": "osd1", "url": "10.0.0.1:9100"}]},
    "reef": {"node_exporter_sd_url": URLS[0], "secure_monitoring_stack": False},
    "reef, secured": {"node_exporter_sd_url": URLS[0], "secure_monitoring_stack": True, **CREDENTIALS},
    "tentacle": {"service_discovery_cfg": {"node-exporter": URLS}, "security_enabled": False},
    "tentacle, secured": {"service_discovery_cfg": {"node-exporter": URLS}, "security_enabled": True, **CREDENTIALS},
}
"""The variables that releases give their templates (pybind/mgr/cephadm/services/monitoring.py), if used here."""


def spec(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def read_by_cephadm(text: str) -> subprocess.CompletedProcess[str]:
    """Give a specification to cephadm's class; skip the test where this machine lacks it."""
    there = [str(SYSTEM_PYTHON), "-c", "import ceph.deployment.service_spec"]
    if not SYSTEM_PYTHON.exists() or subprocess.run(there, capture_output=True).returncode:
        pytest.skip("cephadm's classes are not installed: Debian's package python3-ceph-common has them")
    return subprocess.run([SYSTEM_PYTHON, "-c", READ_SPEC], input=text, capture_output=True, text=True)


def rendered(context: dict[str, Any]) -> str:
    """Return the configuration that cephadm makes of a template with these jobs (mgr/cephadm/template.py)."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(BEFORE + JOBS.read_text()).render(context)


class TestTheSpecs:
    @each_spec
    def test_are_custom_containers_to_cephadm(self, path: Path) -> None:
        done = read_by_cephadm(path.read_text())

        assert done.returncode == 0, done.stderr
        kind, name, config = json.loads(done.stdout)
        assert kind == "CustomContainerSpec"
        assert name == f"container.{spec(path)['service_id']}"
        assert {key: config[key] for key in spec(path)["spec"]} == spec(path)["spec"]

    def test_would_not_be_with_a_key_that_cephadm_does_not_know(self) -> None:
        done = read_by_cephadm(EXPORTER.read_text().replace("  bind_mounts:", "  binds:"))

        assert done.returncode
        assert "binds" in done.stderr

    @each_spec
    def test_name_options_that_pinchpoint_knows(self, path: Path, tmp_path: Path) -> None:
        words = [word.replace("/host", str(tmp_path)) for word in spec(path)["extra_entrypoint_args"]]
        program = Path(sys.executable).with_name("pinchpoint")
        # Stopped by a folder that is missing here and, for the judge, by an address that nobody can listen on.
        ended = ["--web.listen-address=nowhere"] if words[0] == "judge" else []
        done = subprocess.run([program, *words, *ended], capture_output=True, text=True, timeout=60)

        assert "no such option" not in done.stderr.lower()
        assert f"{tmp_path}/sys is not a directory" in done.stderr or "nowhere" in done.stderr

    def test_give_the_exporter_what_the_stack_in_containers_gives_it(self) -> None:
        service = yaml.safe_load((TREE / "compose" / "compose.yaml").read_text())["services"]["pinchpoint"]
        arguments = set(spec(EXPORTER)["spec"]["args"])
        options = {word for word in spec(EXPORTER)["extra_entrypoint_args"] if word.startswith("--path.")}

        assert options == {word for word in service["command"] if word.startswith("--path.")}
        assert {word for word in arguments if word.startswith("--cap-add=")} == {
            f"--cap-add={name}" for name in service["cap_add"]
        }
        assert {"--pid=host", "--net=host", "--cgroupns=host", "--read-only", "--cap-drop=ALL"} <= arguments
        assert {word for word in arguments if word.startswith("--security-opt=")} == {
            f"--security-opt={word.removesuffix(':true').replace(':', '=')}" for word in service["security_opt"]
        }
        assert f"--memory={service['mem_limit']}" in arguments

    def test_give_the_judge_no_rights(self) -> None:
        arguments = set(spec(JUDGE)["spec"]["args"])

        assert {"--cap-drop=ALL", "--read-only", "--security-opt=no-new-privileges"} <= arguments
        assert "--user=65534:65534" in arguments
        assert not [word for word in arguments if word.startswith(("--cap-add", "--pid", "--privileged"))]

    def test_give_the_judge_a_file_of_targets_where_it_looks(self) -> None:
        given, where = spec(JUDGE)["spec"], spec(JUDGE)["extra_entrypoint_args"][1].removeprefix("--targets-file=")
        ((source, mount),) = given["volume_mounts"].items()
        ((file, lines),) = given["files"].items()

        assert where == f"{mount.partition(':')[0]}/{Path(file).name}"
        assert Path(file).parent == Path(source)
        assert json.loads("\n".join(lines)) == [{"targets": ["host1:9748", "host2:9748"]}]


class TestTheJobsOfPrometheus:
    @pytest.mark.parametrize("release", RELEASES)
    def test_are_valid_at_the_end_of_the_template_of(self, release: str, tmp_path: Path) -> None:
        if shutil.which("promtool") is None:
            pytest.skip("promtool is not installed: Debian's package prometheus has it")
        file = tmp_path / "prometheus.yml"
        file.write_text(rendered(RELEASES[release]))
        (tmp_path / "root_cert.pem").touch()
        done = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True)

        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("release", RELEASES)
    def test_find_the_hosts_of_node_exporter_with(self, release: str) -> None:
        _, exporters, judges = yaml.safe_load(rendered(RELEASES[release]))["scrape_configs"]

        assert (exporters["job_name"], judges["job_name"]) == (JOB, f"{JOB}-judge")
        assert exporters["relabel_configs"][0]["replacement"] == "$1:9748"
        if "nodes" in RELEASES[release]:
            assert exporters["static_configs"] == [{"targets": ["10.0.0.1:9100"], "labels": {"instance": "osd1"}}]
            return
        found = exporters["http_sd_configs"]
        assert [entry["url"] for entry in found] == URLS[: len(found)]
        assert all(("basic_auth" in entry) == ("secured" in release) for entry in found)


def test_the_rules_for_cephadm_fit_the_limit_that_the_page_sets() -> None:
    page = (TREE / "docs" / "deploy.md").read_text()
    (limit,) = (int(line.split()[-1]) for line in page.splitlines() if "mon_config_key_max_entry_size " in line)

    assert 65536 < len(rules(10)) < limit * 3 / 4
