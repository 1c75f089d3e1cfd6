"""Writes expositions, dashboards and tables of pages from code and data. `make generated` runs it.

    python scripts/generate.py --check      # only say what is not up to date

Review the difference as carefully as code.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

import alert_delay
import goldens
import page
from dashboards.boards import JSON, generated
from pinchpoint.benchmarks.base import Benchmark, Documented
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.commands.metrics import table as metrics_table
from pinchpoint.diagnosis.findings import all_checks
from pinchpoint.host.capabilities import Capability, names
from pinchpoint.metrics import EXPORTER, JUDGE, TREND
from pinchpoint.probes import PROBES
from pinchpoint.probes.base import Probe
from pinchpoint.probes.benchmark import EVERYDAY_AGE_SECONDS
from pinchpoint.resources import all_resources
from pinchpoint.rules import RUNBOOKS as RUNBOOKS_BASE
from pinchpoint.rules import files as rule_files
from pinchpoint.statuses import STATUSES
from pinchpoint.threads.roles import load_roles

ROOT = Path(__file__).resolve().parent.parent
RUNBOOKS = ROOT / "runbooks"
BY = "make generated"
"""The command that stands in the pages."""
SEVERITIES = ("info", "warning", "critical")


def checks_table() -> str:
    """Return what `pinchpoint check` looks at, in the order in which findings are shown."""
    rows = []
    for name, check in all_checks().items():
        source = ", ".join(f"`{metric}`" for metric in check.source)
        runbook = f"[{check.runbook}](../runbooks/{check.runbook}.md)" if check.runbook else f"[below](#{name})"
        when = check.when.format_map(check.fields())
        harmless = (check.harmless or "never").format_map(check.fields())
        rows.append([name, check.what, check.level, _plain(when), source, _plain(harmless), runbook])
    return page.table(["check", "what", "level", "finds", "from", "harmless", "read"], rows)


def _plain(text: str) -> str:
    return text.replace("*", "\\*")


def resources_table() -> str:
    """Return every resource that a verdict may name."""
    roles = load_roles()
    rows = []
    for name, entry in all_resources().items():
        if entry.inside:
            continue  # the one that contains it is named
        serves = roles.serves.get(name, entry.serves)
        threshold = roles.thresholds.get(name, entry.threshold)
        rows.append(
            [
                f"`{name}`",
                entry.what,
                "" if threshold is None or entry.harmless else f"{100 * threshold:.0f} %",
                ", ".join(f"`{wait}`" for wait in serves),
                f"[{entry.runbook}](../runbooks/{entry.runbook}.md)" if entry.runbook else "",
            ]
        )
    return page.table(["resource", "what it is", "full from", "serves", "runbook"], rows)


def benchmarks_table() -> str:
    """Return how each benchmark is recognised, in the order of the registry."""
    rows = []
    for kind in BENCHMARKS:
        later = f"; after {EVERYDAY_AGE_SECONDS:.0f} s, because it is an everyday program" if kind.everyday else ""
        for told in _documented(kind):
            rows.append([_title(told), told.phases, told.detected_from + later, told.results_from])
    return page.table(["benchmark", "phases", "phase detected from", "results from"], rows)


def imports_table() -> str:
    """Return what is understood of each benchmark in a text."""
    rows = [[_title(told), told.imported_from] for kind in BENCHMARKS for told in _documented(kind)]
    return page.table(["benchmark", "texts"], rows)


def _title(told: Documented) -> str:
    return f"{told.title}, {told.variant}" if told.variant else told.title


def _documented(kind: type[Benchmark]) -> tuple[Documented, ...]:
    """Return the documentation of a benchmark. Raises SystemExit if it has none."""
    if not kind.documented:
        raise SystemExit(f"{kind.__module__}: {kind.__name__} needs `documented`: its row in docs/benchmarks.md")
    return kind.documented


def capabilities_table() -> str:
    """Return the capabilities that each probe needs, a column for each."""
    rows = [
        [f"`{probe.name}`", *(_need(probe, capability) for capability in Capability)]
        for probe in PROBES
        if probe.capabilities
    ]
    return page.table(["probe", *(names([capability]).removeprefix("CAP_") for capability in Capability)], rows)


def _need(probe: type[Probe], capability: Capability) -> str:
    if capability in probe.capabilities:
        return "x"
    if capability in probe.start_capabilities:
        return "start"
    return "helpers" if capability in probe.helper_capabilities else ""


def statuses_table() -> str:
    """Return what the exit status of each command says."""
    rows = [
        [f"`pinchpoint {command}`" if index == 0 else "", status, _plain(meaning)]
        for command, known in STATUSES.items()
        for index, (status, meaning) in enumerate(known.items())
    ]
    return page.table(["command", "status", "says"], rows)


def alerts_table() -> str:
    """Return the alerts with the sentence under the title of each one's runbook."""
    severities: dict[str, set[str]] = {}
    waits: dict[str, dict[str, None]] = {}
    for path in sorted((ROOT / "alerts").glob("*.yml")):
        for group in yaml.load(path.read_text(), yaml.CSafeLoader)["groups"]:
            for rule in group["rules"]:
                if name := rule.get("alert"):
                    severities.setdefault(name, set()).add(rule["labels"]["severity"])
                    waits.setdefault(name, {})[rule["for"]] = None
    rows = [
        [
            f"[{name}]({name}.md)",
            ", ".join(sorted(severities[name], key=SEVERITIES.index)),
            ", ".join(sorted(waits[name], key=_seconds)),
            _meaning(name),
        ]
        for name in sorted(severities)
    ]
    return page.table(["alert", "severity", "after", "what it says"], rows)


def _seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def _meaning(alert: str) -> str:
    """Return an alert's meaning: the sentence under the title of its runbook. Raises SystemExit if there is none."""
    path = RUNBOOKS / f"{alert}.md"
    try:
        _, _, line, *_ = path.read_text().split("\n")
    except (OSError, ValueError):
        line = ""
    if not line or line.startswith("#"):
        raise SystemExit(f"{path.relative_to(ROOT)}: needs a sentence under its title that says what the alert says")
    return line


KUBERNETES_RULES = ROOT / "deploy" / "kubernetes" / "rules.yaml"
KUBERNETES_JUDGE = "http://pinchpoint-judge.pinchpoint.svc:9749/"
"""Where the judge of deploy/kubernetes serves its pages."""


def kubernetes_rules() -> str:
    """Return the alert rules as objects that the Prometheus operator reads, one for each file."""
    made = [f"# Made from alerts/ by `{BY}`.\n"]
    for name, text in rule_files().items():
        spec = textwrap.indent(text.replace(RUNBOOKS_BASE, f"{KUBERNETES_JUDGE}runbooks/"), "  ")
        made.append(
            "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n"
            f"  name: pinchpoint-{name}\n  labels:\n    app.kubernetes.io/name: pinchpoint\nspec:\n{spec}"
        )
    return made[0] + "---\n".join(made[1:])


SECTIONS: Mapping[tuple[Path, str], Callable[[], str]] = {
    (ROOT / "README.md", "costs"): lambda: page.readme_table(page.PAGE.read_text()),
    (ROOT / "docs" / "metrics.md", "metrics"): lambda: metrics_table(EXPORTER),
    (ROOT / "docs" / "install.md", "capabilities"): capabilities_table,
    (ROOT / "docs" / "judge.md", "metrics"): lambda: metrics_table(JUDGE),
    (ROOT / "docs" / "check.md", "checks"): checks_table,
    (ROOT / "docs" / "verdict.md", "resources"): resources_table,
    (ROOT / "docs" / "use.md", "statuses"): statuses_table,
    (ROOT / "docs" / "benchmarks.md", "benchmarks"): benchmarks_table,
    (ROOT / "docs" / "results.md", "texts"): imports_table,
    (ROOT / "docs" / "results.md", "trend"): lambda: metrics_table(TREND),
    (RUNBOOKS / "README.md", "alerts"): alerts_table,
}
"""The functions that make the tables of pages, by page and section."""


def made() -> dict[Path, str]:
    """Return the text of each file that is generated as a whole or in part. Raises SystemExit if it can't be."""
    found = {JSON / name: text for name, text in generated().items()}
    found[KUBERNETES_RULES] = kubernetes_rules()
    with tempfile.TemporaryDirectory() as folder:
        found |= {goldens.FOLDER / f"{name}.prom": text for name, text in goldens.expositions(Path(folder)).items()}
    sections = dict(SECTIONS)
    if shutil.which("promtool"):
        sections[alert_delay.PAGE, "delays"] = alert_delay.delay_table
    for (path, name), make in sections.items():
        try:
            found[path] = page.replaced(found.get(path) or path.read_text(), name, make(), by=BY)
        except ValueError as error:
            raise SystemExit(f"{path.relative_to(ROOT)}: {error}") from error
    return found


def stale(found: Mapping[Path, str]) -> list[Path]:
    """Return the files that are out of date, and those that are no longer generated."""
    differ = [path for path, text in found.items() if not path.is_file() or path.read_text() != text]
    orphans = {*JSON.glob("*.json"), *goldens.FOLDER.glob("*.prom")} - found.keys()
    return sorted([*differ, *orphans])


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a file is not up to date")
    arguments = parser.parse_args()
    found = made()
    paths = stale(found)
    for path in paths:
        if arguments.check:
            print(f"{path.relative_to(ROOT)}: not up to date: run `{BY}`")
        elif path in found:
            path.write_text(found[path])
            print(f"{path.relative_to(ROOT)}: written")
        else:
            path.unlink()
            print(f"{path.relative_to(ROOT)}: removed: nothing makes it any more")
    if not shutil.which("promtool"):
        print("docs/rules.md: the delays of alerts need promtool, Debian's package prometheus: left as they are")
    sys.exit(arguments.check and bool(paths))


if __name__ == "__main__":
    main()
