"""How long alerts take at different scrape intervals: the table of docs/rules.md, computed by promtool.

A resource becomes full at some moment between two scrapes, and promtool evaluates the generated rules at the pace of
the scrapes. No clock is involved, so the table is the same everywhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
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
"""Seconds before the load, of the load, and of the observation after it."""
ALERT = "WritebackWorkerSaturated"
SERIES = "pinchpoint_resource_saturated_seconds_total"


def delays(interval: int) -> tuple[list[float], list[float]]:
    """Return the seconds after which the alert fires, and ends, by the moment at which the load begins and ends."""
    begins = [QUIET + interval * number / OFFSETS for number in range(OFFSETS)]
    seen = _firing(interval, begins)
    fires = [min(times) - begin for begin, times in zip(begins, seen, strict=True)]
    ends = [max(times) + interval - begin - QUIET for begin, times in zip(begins, seen, strict=True)]
    return fires, ends


def _firing(interval: int, begins: Sequence[float]) -> list[list[int]]:
    """Return the seconds at which the alert fires on hosts on which a resource is full for `QUIET` seconds.

    Each host has its own time in `begins` at which that begins.
    """
    times = range(0, 3 * QUIET + 1, interval)
    groups = yaml.load(rules(interval), yaml.CSafeLoader)["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule.get("alert") == ALERT)
    # Without its texts, which promtool would make for every moment.
    own = [{"name": ALERT, "rules": [{**rule, "annotations": {}}]}]
    test: dict[str, Any] = {
        "interval": f"{interval}s",
        "input_series": [
            {
                "series": f'{SERIES}{{instance="host{number}",resource="writeback_worker",owner="ceph-1"}}',
                "values": " ".join(f"{min(max(0.0, time - begin), QUIET):g}" for time in times),
            }
            for number, begin in enumerate(begins)
        ],
        # No alert is expected at any time, so promtool's complaints say when it fires.
        "alert_rule_test": [{"alertname": ALERT, "eval_time": f"{time}s"} for time in times],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{interval}s", "tests": [test]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yml").write_text(json.dumps({"groups": own}))
        (Path(folder) / "test.yml").write_text(json.dumps(document))
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
        )
    text = done.stdout + done.stderr
    seen: list[list[int]] = [[] for _ in begins]
    _, *complaints = re.split(rf"alertname: {ALERT}, time: ([0-9hms]+),", text)
    for time, complaint in zip(complaints[::2], complaints[1::2], strict=True):
        for number in set(re.findall(r'instance="host(\d+)"', complaint)):
            seen[int(number)].append(_seconds(time))
    if not all(seen):
        raise ValueError(f"promtool shows no alert:\n{text}")
    return seen


def _seconds(text: str) -> int:
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def delay_table() -> str:
    """Return the table in Markdown."""
    rows = []
    for interval in INTERVALS:
        fires, ends = delays(interval)
        rows.append([f"{interval} s", f"{ScrapePace(interval).window(15)} s", span(fires), span(ends)])
    return table(["scrape every", "window", "fires after", "ends after"], rows)


def span(values: list[float]) -> str:
    """Return the shortest and the longest of some times, in seconds."""
    return f"{min(values):.0f} to {max(values):.0f} s"


if __name__ == "__main__":
    print(delay_table())
