"""Makes what `kubectl apply -k` reads from the Helm chart, and checks both: `make manifests`, `make manifests-check`.

    python scripts/manifests.py             # write deploy/kubernetes/pinchpoint.yaml
    python scripts/manifests.py --check     # also lint the chart, and validate every object that it can make

Helm, kustomize and kubeconform are built from the Go module proxy, and kept with the schemas in
~/.cache/pinchpoint-manifests (PINCHPOINT_CACHE is another directory): 260 s of CPU and 180 MB the first time, besides
Go's own caches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "pinchpoint"
BASE = ROOT / "deploy" / "kubernetes"
MADE = BASE / "pinchpoint.yaml"
HEAD = "# Made from the Helm chart in deploy/helm by `make manifests`.\n# Digest of the chart: {digest}\n"
NAME = "pinchpoint"
"""The release and the namespace of what is made."""

TOOLS = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.8.2",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""A module whose archive has the definitions of PodMonitor and PrometheusRule."""
SCHEMAS = "kubernetes-validate==1.37.0"
"""A package on PyPI with the schemas of Kubernetes' own objects, for each release."""
RELEASES = ("1.30.0", "1.37.0")
"""The oldest release of Kubernetes that the chart allows, and the newest with schemas."""
VARIANTS: dict[str, Sequence[str]] = {
    "default values": (),
    "TLS and a password": (
        "--set",
        "webConfigSecret=web,scrapeBasicAuth.username.name=web,scrapeBasicAuth.username.key=user",
    ),
    "two judges that ask the hosts": ("--set", "judge.replicas=2,judge.targets={host1:9748,host2:9748}"),
    "a judge that asks protected hosts": (
        "--set",
        "webConfigSecret=web,judge.httpConfigSecret=http,judge.targets={https://host1:9748}",
    ),
    "network policy": ("--set", "networkPolicy.enabled=true,networkPolicy.from[0].podSelector.matchLabels.app=x"),
    "exporters alone": (
        "--set",
        "judge.enabled=false,rules.enabled=false,dashboards.enabled=false,monitors.enabled=false",
    ),
    "labels for selectors": (
        "--set",
        "monitors.labels.release=prom,rules.labels.release=prom,dashboards.annotations.a=b",
    ),
    "placement": (
        "--set",
        "exporter.nodeSelector.role=storage,exporter.priorityClassName=system-node-critical,imagePullSecrets[0].name=x",
    ),
    "other rules": ("--set", "scrapeInterval=15s", "--set-file", "rules.text={rules}"),
}
REFUSED = {
    "scrapeInterval=15s": "--scrape-interval 15s",
    "networkPolicy.enabled=true": "networkPolicy.from",
}
"""Values that the chart refuses, and what it then says: rules for another interval, a policy that lets everybody in."""
"""Values of the chart, each with what it is for; {rules} is a file made by `pinchpoint rules --scrape-interval 15s`."""


class UnavailableError(Exception):
    """A tool or a schema that this machine cannot get."""


@dataclass(frozen=True)
class Tools:
    """The programs and schemas, in the cache."""

    folder: Path

    def run(self, name: str, *arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of the programs."""
        return subprocess.run([self.folder / "bin" / name, *arguments], input=text, capture_output=True, text=True)

    def checked(self, name: str, *arguments: str | Path) -> str:
        """Run one of the programs and return its output. Raises SystemExit with its message if it fails."""
        done = self.run(name, *arguments)
        if done.returncode:
            raise SystemExit(f"{name} {' '.join(map(str, arguments))}: {_without_links(done.stderr or done.stdout)}")
        return done.stdout

    @property
    def schemas(self) -> Path:
        """Where the schemas of Kubernetes' releases are."""
        return self.folder / "schemas"

    @property
    def definitions(self) -> Path:
        """Where the schemas of the Prometheus operator's objects are."""
        return self.folder / "operator"


def _without_links(text: str) -> str:
    """Return Helm's messages without those about the chart's symbolic links."""
    return "\n".join(line for line in text.splitlines() if "found symbolic link" not in line).strip()


def get_tools() -> Tools:
    """Build and download what is missing. Raises UnavailableError with the reason."""
    versions = "-".join(reference.split("/")[-1] for reference in (*TOOLS.values(), OPERATOR, SCHEMAS))
    stamp = re.sub(r"[^\w.-]", "_", versions)
    cache = Path(os.environ.get("PINCHPOINT_CACHE") or Path.home() / ".cache" / "pinchpoint-manifests")
    tools = Tools(cache / stamp)
    if (tools.folder / "complete").exists():
        return tools
    go = shutil.which("go")
    if go is None:
        raise UnavailableError("there is no go in PATH")
    environment = {**os.environ, "GOBIN": str(tools.folder / "bin"), "GOFLAGS": "-buildvcs=false"}
    for name, module in TOOLS.items():
        print(f"manifests: building {name}", flush=True)
        _get([go, "install", module], environment)
    _convert_definitions(Path(json.loads(_get([go, "mod", "download", "-json", OPERATOR], environment))["Dir"]), tools)
    wheels = tools.folder / "wheels"
    _get([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), SCHEMAS], environment)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if any(f"/v{release}-local-strict/" in name for release in RELEASES):
                file = tools.schemas / Path(name).parent.name / Path(name).name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(_local(archive.read(name).decode()))
    (tools.folder / "complete").touch()
    return tools


def _local(schema: str) -> str:
    """Return a schema that refers to files beside it, not to addresses on the server that its `$id` names."""
    parsed = json.loads(re.sub(r'(?<="\$ref": ")[^"#]*/(?=_definitions)', "", schema))
    parsed.pop("$id", None)
    return json.dumps(parsed)


def _get(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "it failed").splitlines()[-1]
        raise UnavailableError(f"{' '.join(command[:2])} {command[-1]}: {last}")
    return done.stdout


def _convert_definitions(module: Path, tools: Tools) -> None:
    tools.definitions.mkdir(parents=True, exist_ok=True)
    for kinds in ("podmonitors", "prometheusrules"):
        file = module / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{kinds}.yaml"
        definition = yaml.safe_load(file.read_text())
        kind, group = definition["spec"]["names"]["kind"].lower(), definition["spec"]["group"].partition(".")[0]
        for version in definition["spec"]["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            (tools.definitions / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema))


def strict(schema: Any) -> Any:
    """Return an OpenAPI schema as a JSON schema in which an object has no property without a description."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if made.pop("x-kubernetes-int-or-string", False):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = bool(made.pop("x-kubernetes-preserve-unknown-fields", False))
    return made


def digest() -> str:
    """Return what changes with each file that the base is made of, so that a test sees it without Helm."""
    made = hashlib.sha256()
    for path in (CHART / "Chart.yaml", CHART / "values.yaml", *sorted((CHART / "templates").iterdir())):
        made.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return made.hexdigest()[:16]


def rendered(tools: Tools, *values: str) -> str:
    """Return the objects of the chart as text."""
    newest = RELEASES[-1]
    return tools.checked("helm", "template", NAME, CHART, "--namespace", NAME, "--kube-version", newest, *values)


def base(tools: Tools) -> str:
    """Return the base for kustomize: the chart without rules and dashboards, and without what only Helm reads."""
    text = rendered(tools, "--set", "rules.enabled=false,dashboards.enabled=false")
    lines = [line for line in text.splitlines() if not line.startswith("# Source: ") and "managed-by: Helm" not in line]
    return HEAD.format(digest=digest()) + re.sub(r"^---\n+(?=---)", "", "\n".join(lines), flags=re.MULTILINE) + "\n"


def objects(text: str) -> dict[str, Any]:
    """Return objects by kind and name, without what differs between Helm and kustomize on purpose."""
    found = {}
    for each in yaml.safe_load_all(text.replace(f"http://{NAME}-judge.{NAME}.svc:9749/", "http://127.0.0.1:9749/")):
        if each is None or each["kind"] == "Namespace":
            continue
        for labels in _labels(each):
            labels.pop("app.kubernetes.io/managed-by", None)
            if each["kind"] in ("ConfigMap", "PrometheusRule"):
                labels.pop("app.kubernetes.io/instance", None)
                labels.pop("app.kubernetes.io/version", None)
        found[f"{each['kind']} {each['metadata']['name']}"] = each
    return found


def _labels(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "labels" and isinstance(value, dict):
                yield value
            else:
                yield from _labels(value)
    elif isinstance(node, list):
        for each in node:
            yield from _labels(each)


def invalid(tools: Tools, text: str) -> list[str]:
    """Return what kubeconform finds wrong with objects, by release."""
    found = []
    for release in RELEASES:
        kinds = "{{.ResourceKind}}{{.KindSuffix}}.json"
        own = tools.schemas / f"v{release}-local-strict" / kinds
        options = ("-strict", "-schema-location", str(own), "-schema-location", str(tools.definitions / kinds), "-")
        done = tools.run("kubeconform", *options, text=text)
        if done.returncode:
            found += [f"Kubernetes {release}: {line}" for line in (done.stdout + done.stderr).splitlines()]
    return found


def problems(tools: Tools) -> list[str]:
    """Return what is wrong with the chart and the base."""
    found = []
    if MADE.read_text() != base(tools):
        found.append(f"{MADE.relative_to(ROOT)}: not up to date: run `make manifests`")
    tools.checked("helm", "lint", "--strict", CHART)
    built = tools.checked("kustomize", "build", BASE)
    found += [f"kustomize build: {line}" for line in invalid(tools, built)]
    chart, kustomized = objects(rendered(tools)), objects(built)
    found += [f"{name}: differs between the chart and the base" for name in sorted(chart.keys() | kustomized.keys())
              if chart.get(name) != kustomized.get(name)]  # fmt: skip
    rules = tools.folder / "rules.yml"
    rules.write_text(_rules("15s"))
    for name, values in VARIANTS.items():
        text = rendered(tools, *(value.replace("{rules}", str(rules)) for value in values))
        found += [f"{name}: {line}" for line in invalid(tools, text)]
    for value, words in REFUSED.items():
        refused = tools.run("helm", "template", CHART, "--kube-version", RELEASES[-1], "--set", value)
        if not refused.returncode or words not in refused.stderr:
            found.append(f"{value}: not refused")
    return found


def _rules(interval: str) -> str:
    command = [sys.executable, "-m", "pinchpoint", "rules", "--scrape-interval", interval]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write the base, or check it and the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if something is wrong")
    arguments = parser.parse_args()
    try:
        tools = get_tools()
    except UnavailableError as error:
        print(f"manifests: left out: {error}")
        sys.exit(os.EX_UNAVAILABLE)
    if not arguments.check:
        MADE.write_text(base(tools))
        return
    found = problems(tools)
    print("\n".join(found) if found else f"manifests: valid for Kubernetes {' and '.join(RELEASES)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
