"""Phases as regions: their exact starts and ends, from what Grafana does with the values of an annotation's query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import promtool
from dashboards.boards import generated
from dashboards.kit.board import REGION_STEP_SECONDS

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

RUN = 'benchmark="io500", run="20261125T032739Z-io500"'
PHASES = {"ior_easy_write": (103.25, 157.5), "find": (158.125, 158.75), "mdtest_easy_stat": (161.0, 420.0)}
"""Start and end of each, in seconds."""
SEEN = 300
"""When somebody looks."""


def annotation() -> dict[str, Any]:
    found = json.loads(generated()["bottleneck.json"])["annotations"]["list"]
    return dict(next(one for one in found if one["name"] == "Phases"))


def regions(values: list[float], step: float) -> list[tuple[float, float]]:
    """Return what Grafana 12.3 makes of the values of a series (processAnnotationResponse, with useValueForTime)."""
    found: list[tuple[float, float]] = []
    for value in values:
        if found and found[-1][1] + step >= value:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def value_at(time: float, start: float, end: float) -> float | None:
    """Return what the query gives at a time, in milliseconds; None before the phase."""
    if time < start:
        return None
    return 1000 * min(max(time - REGION_STEP_SECONDS, start), end, max(time, start))


def test_the_query_gives_the_times_of_the_step_before_inside_of_the_phase(tmp_path: Path) -> None:
    series = {}
    for phase, (start, end) in PHASES.items():
        labels = f'{{{RUN}, phase="{phase}"}}'
        elapsed = [f"{min(second, end) - start:g}" if second >= start else "_" for second in range(SEEN + 1)]
        begun = [f"{start:g}" if second >= start else "_" for second in range(SEEN + 1)]
        series[f"pinchpoint_phase_start_timestamp_seconds{labels}"] = " ".join(begun)
        series[f"pinchpoint_phase_elapsed_seconds{labels}"] = " ".join(elapsed)
    expr = annotation()["expr"].replace("$run", ".+")
    expected = []
    for time in range(100, SEEN + 1, REGION_STEP_SECONDS):
        samples = [
            {"labels": f'{{{RUN}, phase="{phase}"}}', "value": value}
            for phase, (start, end) in PHASES.items()
            if (value := value_at(time, start, min(end, time))) is not None
        ]
        expected.append((expr, time, samples))

    assert promtool.check(tmp_path, series, expected) == ""


@pytest.mark.parametrize("offset", [0.0, 0.4, 3.7, 9.9])
def test_a_region_begins_and_ends_with_its_phase(offset: float) -> None:
    step = annotation()["step"]
    assert (annotation()["useValueForTime"], step) == (True, f"{REGION_STEP_SECONDS}s")

    for start, end in PHASES.values():
        times = [100 + offset + REGION_STEP_SECONDS * number for number in range(40)]
        values = [found for time in times if (found := value_at(time, start, min(end, time))) is not None]

        assert regions(values, 1000 * REGION_STEP_SECONDS) == [(1000 * start, 1000 * end)]
