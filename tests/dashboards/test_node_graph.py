"""The fields of the graph of who wakes whom, evaluated by promtool over the judge's series."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import promtool
from dashboards import bottleneck
from dashboards.kit import encoded, panels_of
from diagnosis.history import START
from pinchpoint.diagnosis.chains import Passed, WaitGraph
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.diagnosis.verdict import Kind as VerdictKind
from pinchpoint.diagnosis.verdict import Verdict
from pinchpoint.judge.points import run_points
from pinchpoint.waits.chain import SELF, Kind, Node, Step
from pinchpoint.wire.exposition import text

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

CLIENT, LOCK = Node("ceph-fuse", "client_lock"), Node("mds.a", "mds_lock")
NODES = {
    "itself ": ("itself", ""),
    "ceph-fuse client_lock": CLIENT,
    "mds.a mds_lock": LOCK,
}


def series() -> dict[str, str]:
    """Return what a judge exports of two nodes that wake each other and the benchmark."""
    steps = (
        Step(SELF, 0.2, {Kind.CPU: 0.2}),
        Step(CLIENT, 0.3, {Kind.CPU: 0.1, Kind.RUNQUEUE: 0.2}),
        Step(LOCK, 0.5, {Kind.CPU: 0.4, Kind.EARLIER: 0.1}),
    )
    graph = WaitGraph(steps, (Passed(LOCK, CLIENT, 0.5), Passed(CLIENT, SELF, 0.3)), 2)
    run = Judged("fio", "20261125T032739Z-fio", "", Verdict(VerdictKind.UNKNOWN, 3.0, graph=graph), START)
    lines = [line for line in text(run_points([run])).splitlines() if line.startswith("pinchpoint_verdict_chain")]
    return {name: f"{value}x60" for name, _, value in (line.rpartition(" ") for line in lines)}


def fields() -> list[tuple[str, str]]:
    """Return the fields of the graph and their queries, first those of nodes."""
    panels = panels_of(json.loads(encoded(bottleneck.dashboard())))
    (panel,) = (panel for panel in panels if panel["type"] == "nodeGraph")
    names = panel["transformations"][-1]["options"]["renameByName"]
    return [(names["Value #" + target["refId"]], target["expr"].replace("$run", ".+")) for target in panel["targets"]]


def evaluated(folder: Path, expr: str, expected: Mapping[str, float], **more: Mapping[str, str]) -> str:
    samples = []
    for name, value in expected.items():
        labels = {"id": name, **{label: values[name] for label, values in more.items()}}
        given = ", ".join(f'{label}="{one}"' for label, one in labels.items() if one)
        samples.append({"labels": f"{{{given}}}", "value": value})
    return promtool.check(folder, series(), [(f"round({expr}, 1e-6)", 30, samples)])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("fixedx", (200, 0, -200)),
        ("fixedy", (-22, 22, -22)),
        ("arc__cpu", (1, 0.333333, 0.8)),
        ("arc__runqueue", (0, 0.666667, 0)),
        ("arc__other", (0, 0, 0.2)),
    ],
)
def test_nodes_have_places_and_parts(tmp_path: Path, field: str, values: tuple[float, float, float]) -> None:
    expr = dict(fields())[field]

    assert evaluated(tmp_path, expr, dict(zip(NODES, values, strict=True))) == ""


def test_nodes_have_their_share_and_their_name(tmp_path: Path) -> None:
    shares = dict(zip(NODES, (0.2, 0.3, 0.5), strict=True))
    titles, subtitles = ({name: node[place] for name, node in NODES.items()} for place in (0, 1))

    _, expr = fields()[0]
    assert evaluated(tmp_path, expr, shares, title=titles, subtitle=subtitles) == ""


def test_edges_have_their_ends_and_are_as_wide_as_their_share(tmp_path: Path) -> None:
    ends = {
        "mds.a mds_lock ceph-fuse client_lock": ("mds.a mds_lock", "ceph-fuse client_lock"),
        "ceph-fuse client_lock itself ": ("ceph-fuse client_lock", "itself "),
    }
    source, target = ({name: end[place] for name, end in ends.items()} for place in (0, 1))
    (_, share), (_, width) = fields()[-2:]

    assert {*source.values(), *target.values()} == NODES.keys()
    assert evaluated(tmp_path, share, dict(zip(ends, (0.5, 0.3), strict=True)), source=source, target=target) == ""
    assert evaluated(tmp_path, width, dict(zip(ends, (5.5, 3.7), strict=True))) == ""
