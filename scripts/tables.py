"""Writes the tables of the README, docs/metrics.md, docs/judge.md and docs/rules.md.

The code, docs/performance.md and the alert rules say what is in them. `make docs` runs it; a test compares, so that no
table gets stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import alert_delay
import page
from pinchpoint.commands.metrics import table as metrics_table
from pinchpoint.metrics import EXPORTER, JUDGE

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
METRICS = ROOT / "docs" / "metrics.md"
JUDGE_PAGE = ROOT / "docs" / "judge.md"


def tables() -> dict[Path, dict[str, str]]:
    """Return the tables of each page, by name."""
    return {
        README: {"costs": page.readme_table(page.PAGE.read_text())},
        METRICS: {"metrics": metrics_table(EXPORTER)},
        JUDGE_PAGE: {"metrics": metrics_table(JUDGE)},
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
