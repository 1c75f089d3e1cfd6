from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from pinchpoint.diagnosis.chains import Passed, WaitGraph
from pinchpoint.report.graph import graph_picture, shown_kinds
from pinchpoint.report.palette import PARTS
from pinchpoint.report.words import chain_text
from pinchpoint.waits.chain import SELF, Kind, Node, Step

LOCK, WORKER, OTHER = Node("mds.a", "mds_lock"), Node("kernel", "kworker"), Node("proxy", "proxy")
GRAPH = WaitGraph(
    (
        Step(SELF, 0.1, {Kind.CPU: 0.1}),
        Step(LOCK, 0.5, {Kind.CPU: 0.3, Kind.RUNQUEUE: 0.2}),
        Step(WORKER, 0.15, {Kind.DISK: 0.15}),
        Step(OTHER, 0.25, {Kind.CPU: 0.25}),
    ),
    (Passed(LOCK, SELF, 0.5), Passed(OTHER, SELF, 0.25), Passed(WORKER, LOCK, 0.15)),
    2,
)


def elements(graph: WaitGraph, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(graph_picture(graph)).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def texts(graph: WaitGraph) -> list[str]:
    return ["".join(text.itertext()) for text in elements(graph, "text")]


def test_each_node_has_its_name_and_its_share() -> None:
    found = texts(GRAPH)

    assert found == ["10%", "the benchmark itself", "50%", "mds.a mds_lock", "15%", "kernel kworker", "25%", "proxy"]


def test_bars_are_as_long_as_the_parts_of_the_shares() -> None:
    lengths: dict[str, list[float]] = {}
    for path in elements(GRAPH, "path"):
        if filled := re.search(r"fill: (#\w{6})", path.get("style") or ""):
            corners = [float(x) for x in re.findall(r"(?<=[ML] )[\d.]+", path.get("d") or "")]
            lengths.setdefault(filled[1].upper(), []).append(max(corners) - min(corners))

    assert set(lengths) == {PARTS[kind].upper() for kind in shown_kinds(GRAPH)}
    (disk,), (runqueue,) = lengths[PARTS[Kind.DISK].upper()], lengths[PARTS[Kind.RUNQUEUE].upper()]
    assert disk / runqueue == pytest.approx(0.15 / 0.2, rel=0.01)


def test_arrows_are_as_wide_as_what_was_passed_and_the_chains_are_dark() -> None:
    styles = [path.get("style") or "" for path in elements(GRAPH, "path") if "fill: none" in (path.get("style") or "")]
    widths = {
        float(width[1]): "opacity" in style for style in styles if (width := re.search(r"width: ([\d.]+)", style))
    }

    assert [faint for _, faint in sorted(widths.items())] == [False, True, False]


def test_only_what_nodes_did_is_in_the_legend() -> None:
    assert shown_kinds(GRAPH) == [Kind.CPU, Kind.RUNQUEUE, Kind.DISK]


def test_the_chain_is_said_in_words() -> None:
    assert chain_text(GRAPH) == "the benchmark itself 10% <- mds.a mds_lock 50% <- kernel kworker 15%"


def test_nodes_in_a_row_that_answer_for_nothing_are_dots_in_words() -> None:
    names = ("messenger", "osd_op", "kv_sync", "kv_final")
    passing = [
        Step(Node("osd.0", name), share, {}) for name, share in zip(names, (0.0, 0.001, 0.04, 0.002), strict=True)
    ]
    graph = WaitGraph((GRAPH.steps[0], *passing, GRAPH.steps[2]), (), 5)

    assert chain_text(graph) == (
        "the benchmark itself 10% <- ... <- osd.0 kv_sync 4% <- osd.0 kv_final 0% <- kernel kworker 15%"
    )


def test_a_name_that_is_too_long_is_cut() -> None:
    graph = WaitGraph((Step(Node("x" * 500, "y"), 1.0, {Kind.CPU: 1.0}),), (), 0)

    (name,) = [text for text in texts(graph) if text.startswith("x")]
    assert len(name) < 40
    assert name.endswith("…")


def test_a_graph_in_which_nobody_did_anything_is_drawn() -> None:
    assert texts(WaitGraph((Step(SELF, 0.0, {}),), (), 0)) == ["0%", "the benchmark itself"]
