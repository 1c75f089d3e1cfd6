"""Where a picture shows the nodes of a wait-for graph, so that it stands still while the shares change."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from pinchpoint.diagnosis.chains import WaitGraph
from pinchpoint.waits.chain import Node

__all__ = ["places"]

STAGGER_ROWS = 0.4
"""Rows by which every other column is lower: an arrow over several columns then passes between the nodes."""


def places(graph: WaitGraph) -> dict[Node, tuple[float, float]]:
    """Return the column and the row of each node.

    The benchmark is in column 0, who wakes it in column -1, and so on: arrows lead to the right. The heaviest chain is
    in row 0. Below are the others of a column, by name; each is beside the one that it wakes most.
    """
    chain = [step.node for step in graph.steps[: graph.heaviest + 1]]
    columns = {node: -place for place, node in enumerate(chain)}
    wakes: dict[Node, Node] = {}
    for one in graph.passed:
        wakes.setdefault(one.waker, one.woken)
    for step in graph.steps:
        way = [step.node]
        while way[-1] not in columns:
            woken = wakes.get(way[-1])
            if woken is None or woken in way:  # it wakes none of them, or they wake each other
                columns[way[-1]] = -1
            else:
                way.append(woken)
        for woken, waker in pairwise(reversed(way)):
            columns.setdefault(waker, columns[woken] - 1)
    rows: defaultdict[int, list[Node]] = defaultdict(list)
    for node in [*chain, *sorted(columns.keys() - {*chain})]:
        rows[columns[node]].append(node)
    return {
        node: (float(column), row + STAGGER_ROWS * (column % 2))
        for column, nodes in rows.items()
        for row, node in enumerate(nodes, 0 if nodes[0] in chain else 1)
    }
