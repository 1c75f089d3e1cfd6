"""Who makes a benchmark wait, by who wakes whom: evidence for a verdict (docs/chain.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinchpoint.diagnosis.blame import BenchmarkWork, Limit
from pinchpoint.diagnosis.evidence import MAX_LISTED, MIN_SENTENCE_SHARE
from pinchpoint.diagnosis.series import gained, label, picked, series
from pinchpoint.diagnosis.usage import UnknownThread
from pinchpoint.metrics import PATH_RATIO, PATH_SECONDS
from pinchpoint.model import Metric, Snapshot, Snapshots
from pinchpoint.runs import strays
from pinchpoint.threads.roleless import RESOURCE as UNKNOWN_THREAD
from pinchpoint.waits.chain import SELF, Node, bare

__all__ = ["NodeShare", "answers_for", "node_shares", "sentence", "unknown_limits"]

MIN_COUNTED_SECONDS = 16.0
"""Seconds of an interval from which its own windows count: it has four of them. Below, the last four count."""


class NodeShare(NamedTuple):
    """What an owner's role is responsible for."""

    node: Node
    share: float
    """Share of the time of the benchmark's threads."""


def node_shares(before: Snapshots, after: Snapshots, workload: BenchmarkWork) -> tuple[NodeShare, ...]:
    """Return who was responsible for the time of a workload's threads, the largest share first; empty if unknown.

    Each host sees its own processes. Those of all hosts count alike, whatever their number of threads.
    """
    found: dict[Node, float] = {}
    seen = 0
    for host in sorted(after):
        shares = _shares(before.get(host), after[host], workload)
        seen += bool(shares)
        for node, share in shares.items():
            found[node] = found.get(node, 0.0) + share
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(NodeShare(node, share / seen) for node, share in ordered)


def _shares(before: Snapshot | None, after: Snapshot, workload: BenchmarkWork) -> dict[Node, float]:
    if before is not None and after.time - before.time >= MIN_COUNTED_SECONDS:
        then, now = (_values(snapshot, PATH_SECONDS, workload) for snapshot in (before, after))
        gains = gained(then, now)
        if (total := sum(gains.values())) > 0:
            return _by_node(gains, total)
    shown = _values(after, PATH_RATIO, workload)
    # What is below a hundredth is not shown: shares are those of the whole, not of what is shown.
    return _by_node(shown, max(1.0, sum(shown.values()))) if shown else {}


def _values(snapshot: Snapshot, metric: Metric, workload: BenchmarkWork) -> dict[tuple[str, str, str], float]:
    runs = (workload.run, *strays(workload.run))
    found: dict[tuple[str, str, str], float] = {}
    for labels, value in series(snapshot, metric):
        if label(labels, "benchmark") == workload.benchmark and label(labels, "run") in runs:
            owner, role = picked(labels, "owner", "role")
            key = owner, role, label(labels, "kind")
            found[key] = found.get(key, 0.0) + value
    return found


def _by_node(values: Mapping[tuple[str, str, str], float], total: float) -> dict[Node, float]:
    found: dict[Node, float] = {}
    for (owner, role, _), value in values.items():
        node = Node(owner, role)
        found[node] = found.get(node, 0.0) + value / total
    return found


def sentence(found: Iterable[NodeShare]) -> str:
    """Return the largest shares in a sentence; empty if nobody else has a tenth of the time."""
    others = [one for one in found if one.node != SELF and one.share >= MIN_SENTENCE_SHARE][:MAX_LISTED]
    if not others:
        return ""
    return "by who wakes whom, " + ", ".join(f"{one.node} answers for {one.share:.0%}" for one in others) + " of it"


def answers_for(thread: UnknownThread, found: Iterable[NodeShare]) -> float:
    """Return the share of a benchmark's time for which a thread without a role is responsible."""
    owner = thread.process or thread.thread
    return sum(one.share for one in found if one.node == Node(owner, bare(thread.thread)))


def unknown_limits(
    hot: Mapping[str, UnknownThread], found: Sequence[NodeShare], threshold: float, least: float
) -> tuple[Limit, ...]:
    """Return the threads without a role, by host, that answer for at least `least` of a benchmark's time."""
    limits = [
        Limit(
            resource=UNKNOWN_THREAD,
            owner=thread.process or thread.thread,
            host=host,
            serves=(),
            busy=thread.busy,
            runqueue=0.0,
            blocked=0.0,
            saturated=thread.saturated,
            threshold=threshold,
            full=True,
            blame=share,
            reach=share,
        )
        for host, thread in hot.items()
        if (share := answers_for(thread, found)) >= least
    ]
    return tuple(sorted(limits, key=lambda limit: -limit.blame))
