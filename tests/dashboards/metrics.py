"""The metrics that a dashboard can read, with their origins and their possible labels."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pinchpoint.metrics import EXPORTER, JUDGE, TREND
from promql import labels_of, parse

__all__ = ["FOREIGN", "TARGET", "TREE", "Known", "known_metrics"]

TREE = Path(__file__).resolve().parents[2]
FOREIGN = Path(__file__).with_name("foreign.toml")
TARGET = frozenset({"job", "instance", "cluster", "group"})
"""Labels of a target: its own two, and those from lists of targets (compose/targets)."""


@dataclass(frozen=True)
class Known:
    """A metric; `source` is its exporter: pinchpoint, rules, or a table of foreign.toml."""

    source: str
    kind: str
    labels: frozenset[str]


@cache
def known_metrics() -> dict[str, Known]:
    """Return every metric by its name: Pinchpoint's, those of other exporters in foreign.toml, and recorded ones."""
    found = {
        metric.name: Known("pinchpoint", metric.kind.value, frozenset(metric.labels) | TARGET)
        for metric in (*EXPORTER, *JUDGE, *TREND)
    }
    for source, metrics in tomllib.loads(FOREIGN.read_text()).items():
        for name, entry in metrics.items():
            found[name] = Known(source, entry["kind"], frozenset(entry["labels"]) | TARGET)
    labels = {name: known.labels for name, known in found.items()}
    rules = [(rule, parse(rule["expr"])) for rule in _rules()]
    labels |= {rule["record"]: frozenset() for rule, _ in rules if "record" in rule} | {
        "ALERTS": frozenset({"alertname", "alertstate"})
    }
    while True:  # rules read each other, and one reads itself
        before = dict(labels)
        for rule, tree in rules:
            name = rule.get("record", "ALERTS")
            labels[name] |= labels_of(tree, labels) - {"__name__"} | set(rule.get("labels", {}))
        if labels == before:
            break
    labels["ALERTS_FOR_STATE"] = labels["ALERTS"] - {"alertstate"}
    return found | {name: Known("rules", "gauge", labels[name]) for name in labels.keys() - found.keys()}


def _rules() -> list[dict[str, Any]]:
    files = sorted((TREE / "alerts").glob("*.yml"))
    return [rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
