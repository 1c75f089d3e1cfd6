"""The fields of the graph of who wakes whom, evaluated by promtool over the judge's series."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import promtool
from dashboards import bottleneck
from dashboards.kit.board import encoded, panels_of
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


def evaluated(folder: Path, query: str, field: str, expected: Mapping[str, float], **more: Mapping[str, str]) -> str:
    """Return what promtool finds wrong about one field in the results of a query: A is of the nodes, B of the edges."""
    panels = panels_of(json.loads(encoded(bottleneck.dashboard())))
    (panel,) = (panel for panel in panels if panel["type"] == "nodeGraph")
    (asked,) = (target["expr"] for target in panel["targets"] if target["refId"] == query)
    those = f'label_replace(vector(1), "field", "{field}", "", "")'
    expr = f"round({asked.replace('$run', '.+')}, 1e-6) and on (field) {those}"
    samples = []
    for name, value in expected.items():
        labels = {"id": name, "field": field, **{label: values[name] for label, values in more.items()}}
        given = ", ".join(f'{label}="{one}"' for label, one in labels.items() if one)
        samples.append({"labels": f"{{{given}}}", "value": value})
    return promtool.check(folder, series(), [(expr, 30, samples)])


NAMES = {
    "title": {name: node[0] for name, node in NODES.items()},
    "subtitle": {name: node[1] for name, node in NODES.items()},
}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("fixedx", (200, 0, -200)),
        ("fixedy", (-26, 26, -26)),
        ("arc__cpu", (1, 0.333333, 0.8)),
        ("arc__runqueue", (0, 0.666667, 0)),
        ("arc__other", (0, 0, 0.2)),
    ],
)
def test_nodes_have_places_and_parts(tmp_path: Path, field: str, values: tuple[float, float, float]) -> None:
    assert evaluated(tmp_path, "A", field, dict(zip(NODES, values, strict=True)), **NAMES) == ""


def test_nodes_have_their_share_as_text(tmp_path: Path) -> None:
    texts = dict(zip(NODES, ("20 %", "30 %", "50 %"), strict=True))

    assert evaluated(tmp_path, "A", "share", dict.fromkeys(NODES, 1), mainstat=texts, **NAMES) == ""


def test_edges_lead_from_node_to_node_and_are_as_wide_as_their_share(tmp_path: Path) -> None:
    first, last = "mds.a mds_lock ceph-fuse client_lock", "ceph-fuse client_lock itself "
    ends = {
        "source": {first: "mds.a mds_lock", last: "ceph-fuse client_lock"},
        "target": {first: "ceph-fuse client_lock", last: "itself "},
    }

    assert {node for names in ends.values() for node in names.values()} == NODES.keys()
    assert evaluated(tmp_path, "B", "thickness", {first: 5.5, last: 3.7}, **ends) == ""
    texts = {first: "50 %", last: "30 %"}
    assert evaluated(tmp_path, "B", "share", {first: 1, last: 1}, mainstat=texts, **ends) == ""
