"""Writes the tables of the README, docs/judge.md and docs/rules.md from the code and the rule files.

`make docs` runs it; a test compares, so that no table gets stale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

import alert_delay
import page
from pinchpoint.catalogue import all_metrics, judge_metrics
from pinchpoint.commands.metrics import table as metrics_table

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
JUDGE = ROOT / "docs" / "judge.md"


def alerts_table() -> str:
    """Return the table of alerts in Markdown, in the order of the rule files."""
    severities: dict[str, list[str]] = {}
    waits: dict[str, str] = {}
    for path in sorted((ROOT / "alerts").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    severities.setdefault(rule["alert"], []).append(rule["labels"]["severity"])
                    waits.setdefault(rule["alert"], rule.get("for", "0s"))
    lines = ["| alert | severity | after | what it means |", "|---|---|---|---|"]
    for name, found in severities.items():
        severity = ", ".join(dict.fromkeys(found))
        lines.append(f"| [{name}](runbooks/{name}.md) | {severity} | {waits[name]} | {meaning(name)} |")
    return "\n".join(lines) + "\n"


def meaning(alert: str) -> str:
    """Return the first sentence under the heading Meaning of an alert's runbook."""
    text = (ROOT / "runbooks" / f"{alert}.md").read_text().partition("## Meaning\n")[2]
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence = re.match(r".*?[.!?](?=\s+[A-Z`]|$)", paragraph)
    return sentence[0] if sentence else paragraph


def tables() -> dict[Path, dict[str, str]]:
    """Return the tables of each page, by name."""
    costs = page.readme_table(page.PAGE.read_text())
    return {
        README: {"metrics": metrics_table(all_metrics()), "alerts": alerts_table(), "costs": costs},
        JUDGE: {"metrics": metrics_table(judge_metrics())},
    }


def updated(path: Path, made: Mapping[str, str]) -> str:
    """Return the text of a page with these tables made anew."""
    text = path.read_text()
    for name, table in made.items():
        begin, end = f"<!-- {name}: made by `make docs` -->\n", f"<!-- end of {name} -->"
        head, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise SystemExit(f"{path}: no section between {begin.strip()} and {end}")
        text = head + begin + table + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    for path, made in {**tables(), alert_delay.PAGE: {"delays": alert_delay.delay_table()}}.items():
        path.write_text(updated(path, made))
