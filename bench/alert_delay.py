"""How long alerts take at different scrape intervals: the table of docs/rules.md, computed by promtool.

A resource becomes full at some moment between two scrapes, and the generated rules are evaluated at the pace of the
scrapes, as promtool does it (no clock is involved, so the table is the same everywhere).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from page import table
from pinchpoint.rules import ScrapePace, rules

__all__ = ["PAGE", "delay_table", "delays", "span"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
INTERVALS = (2, 5, 10, 15, 30)
"""Seconds between two scrapes."""
OFFSETS = 5
"""Moments between two scrapes at which the load begins."""
QUIET = 300
"""Seconds before the load, and for which it lasts, and for which it is looked at afterwards."""
ALERT = "WritebackWorkerSaturated"
SERIES = "pinchpoint_resource_saturated_seconds_total"


def delays(interval: int) -> tuple[list[float], list[float]]:
    """Return after how many seconds the alert fires, and ends, by the moment at which the load begins and ends."""
    fires, ends = [], []
    with tempfile.TemporaryDirectory() as folder:
        groups = yaml.safe_load(rules(interval))["groups"]
        own = [group for group in groups if any(rule.get("alert") == ALERT for rule in group["rules"])]
        (Path(folder) / "rules.yml").write_text(yaml.safe_dump({"groups": own}))
        for number in range(OFFSETS):
            begin = QUIET + interval * number / OFFSETS
            seen = _firing(Path(folder), interval, begin)
            fires.append(min(seen) - begin)
            ends.append(max(seen) + interval - begin - QUIET)
    return fires, ends


def _firing(folder: Path, interval: int, begin: float) -> list[int]:
    """Return the seconds at which the alert fires while a resource is full for `QUIET` seconds from `begin` on."""
    times = range(0, 3 * QUIET + 1, interval)
    full = [min(max(0.0, time - begin), QUIET) for time in times]
    test: dict[str, Any] = {
        "interval": f"{interval}s",
        "input_series": [
            {
                "series": f'{SERIES}{{job="pinchpoint",instance="a:9748",resource="writeback_worker",owner="ceph-1"}}',
                "values": " ".join(f"{value:g}" for value in full),
            }
        ],
        # Nothing is expected at any time: what promtool complains of is when it fires.
        "alert_rule_test": [{"alertname": ALERT, "eval_time": f"{time}s"} for time in times],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{interval}s", "tests": [test]}
    (folder / "test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    found = re.findall(rf"alertname: {ALERT}, time: (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?,", done.stdout + done.stderr)
    seconds = [3600 * int(hours or 0) + 60 * int(minutes or 0) + int(rest or 0) for hours, minutes, rest in found]
    if not seconds:
        raise ValueError(f"promtool shows no alert:\n{done.stdout}{done.stderr}")
    return seconds


def delay_table() -> str:
    """Return the table in Markdown."""
    rows = []
    for interval in INTERVALS:
        fires, ends = delays(interval)
        rows.append([f"{interval} s", f"{ScrapePace(interval).window(15)} s", span(fires), span(ends)])
    return table(["scrape every", "window", "fires after", "ends after"], rows)


def span(values: list[float]) -> str:
    """Return the shortest and the longest of some times in seconds."""
    return f"{min(values):.0f} to {max(values):.0f} s"


if __name__ == "__main__":
    print(delay_table())
