"""Who makes a benchmark wait, by who wakes whom: evidence for a verdict (docs/chain.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pinchpoint.diagnosis.blame import DAEMONS, BenchmarkWork, Limit, blame_nodes
from pinchpoint.diagnosis.evidence import MAX_LISTED, MIN_SENTENCE_SHARE, name
from pinchpoint.diagnosis.series import gained, label, picked, series
from pinchpoint.diagnosis.served import KIND_LABELS, Served
from pinchpoint.diagnosis.unknown import HotThread, full
from pinchpoint.diagnosis.usage import UnknownThread, Usage
from pinchpoint.metrics import (
    PATH_OPEN_SECONDS,
    PATH_PASSED_SECONDS,
    PATH_RATIO,
    PATH_SECONDS,
    PATH_THREAD_SECONDS,
)
from pinchpoint.model import Metric, Snapshot, Snapshots
from pinchpoint.resources import entry_of
from pinchpoint.threads.roleless import RESOURCE as UNKNOWN_THREAD
from pinchpoint.threads.roleless import bare
from pinchpoint.waits.chain import PEERS, SELF, Chain, Kind, Node, Step

__all__ = [
    *("MIN_COUNTED_SECONDS", "NodeShare", "Passed", "WaitGraph"),
    *("activity", "answers_for", "chain_limits", "contradiction", "counted_chains"),
    *("node_shares", "only_chains", "sentence", "wait_graph", "works"),
]

CHAIN_METRICS = "pinchpoint_path_"
"""How the names of the metrics of chains begin."""
MIN_COUNTED_SECONDS = 16.0
"""Seconds of an interval from which its own windows count: it has four of them. Below, the last four count."""
MIN_AWAKE_SHARE = 0.5
"""Awake threads for each of a benchmark's processes from which its chains are about most of its time."""
MAX_GRAPH_NODES = 12
"""Nodes of a graph that can be read."""
MAX_CHAIN_PAIRS = 100
"""Pairs of nodes in which the heaviest chain is looked for."""
MIN_GRAPH_SHARE = 0.01
"""Share of the time below which nodes and pairs are left out of a graph."""


class NodeShare(NamedTuple):
    """What an owner's role is responsible for."""

    node: Node
    share: float
    """Share of the time of the benchmark's threads."""


class Passed(NamedTuple):
    """How a wait goes on: one node woke another."""

    waker: Node
    woken: Node
    share: float
    """Share of the time of the benchmark's threads: the part of the waker's after which it woke the other."""


class WaitGraph(msgspec.Struct, frozen=True):
    """Who makes a benchmark wait, and for whom: the largest nodes of the wait-for graph of all hosts together."""

    steps: tuple[Step, ...]
    """The benchmark's own threads, then the heaviest chain from them on, then others, the largest share first."""
    passed: tuple[Passed, ...]
    """Between these nodes, the largest first."""
    heaviest: int
    """How many nodes the heaviest chain has."""


def only_chains(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the series alone that `counted_chains` reads."""
    kept = {name: values for name, values in snapshot.values.items() if name.startswith(CHAIN_METRICS)}
    return msgspec.structs.replace(snapshot, values=kept)


def counted_chains(before: Snapshots, after: Snapshots, workload: BenchmarkWork, remote: Served) -> dict[str, Chain]:
    """Return what the windows of an interval saw on each host, as if it was a second; empty chains if too few.

    Each host sees its own processes. Those of all hosts count alike, whatever their number of threads. Where they wait
    for an end of a connection on a host that is seen too, that host's threads take its place.
    """
    return {host: remote.joined(host, _counted(before.get(host), after[host], workload)) for host in sorted(after)}


def wait_graph(counted: Mapping[str, Chain]) -> WaitGraph | None:
    """Return the wait-for graph of an interval from `counted_chains`; None if it had too few windows."""
    whole = Chain()
    for chain in counted.values():
        whole.add(chain)
    if not whole.seconds:
        return None
    steps = {step.node: step for step in whole.steps()}
    heaviest = _largest(whole).heaviest()
    others = [
        node for node, step in steps.items() if node != SELF and node not in heaviest and step.share >= MIN_GRAPH_SHARE
    ]
    shown = dict.fromkeys([SELF, *heaviest, *others][:MAX_GRAPH_NODES])
    passed = [
        Passed(*pair, seconds / whole.seconds)
        for pair, seconds in _with_waits(whole).items()
        if shown.keys() >= {*pair} and seconds >= MIN_GRAPH_SHARE * whole.seconds
    ]
    return WaitGraph(
        tuple(steps.get(node, Step(node, 0.0, {})) for node in shown),
        tuple(sorted(passed, key=lambda one: (-one.share, one.waker, one.woken))),
        min(len(heaviest), MAX_GRAPH_NODES - 1),
    )


def _with_waits(whole: Chain) -> dict[tuple[Node, Node], float]:
    """Return the seconds after which nodes woke others, with those in which the wakers waited for disks or timers.

    The latter are divided among those that a waker wakes like its own time, since nobody counts them by whom it woke.
    """
    waited = whole.waited()
    own: defaultdict[Node, float] = defaultdict(float)
    for (waker, _), seconds in whole.passed.items():
        own[waker] += seconds
    return {
        (waker, woken): seconds * (1 + waited[waker] / own[waker])
        for (waker, woken), seconds in whole.passed.items()
        if seconds
    }


def _largest(whole: Chain) -> Chain:
    """Return a chain with its largest pairs alone, so that it takes a bounded time to follow it."""
    passed = sorted(whole.passed.items(), key=lambda one: -one[1])[:MAX_CHAIN_PAIRS]
    found = Chain(seconds=whole.seconds)
    found.parts.update(whole.parts)
    found.passed.update(passed)
    return found


def node_shares(
    counted: Mapping[str, Chain], after: Snapshots, workload: BenchmarkWork, remote: Served
) -> tuple[NodeShare, ...]:
    """Return who was responsible for the time of a workload's threads, the largest share first; empty if unknown.

    From `counted_chains`; of a host whose windows were too few, from the last ones before the interval's end.
    """
    found: dict[Node, float] = {}
    seen = 0
    for host, chain in counted.items():
        shares = _shares(chain, after[host], workload)
        if not chain.seconds and any(node.owner == PEERS for node in shares):
            shares = _joined_shares(shares, host, remote)
        seen += bool(shares)
        for node, share in shares.items():
            found[node] = found.get(node, 0.0) + share
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(NodeShare(node, share / seen) for node, share in ordered)


def _shares(counted: Chain, after: Snapshot, workload: BenchmarkWork) -> dict[Node, float]:
    if steps := counted.steps():
        return {step.node: step.share for step in steps}
    shown = _values(after, PATH_RATIO, workload, "owner", "role")
    # What is below a hundredth is not shown: shares are those of the whole, not of what is shown.
    total = max(1.0, sum(shown.values()))
    return {Node(owner, role): value / total for (owner, role), value in shown.items()}


def _joined_shares(shares: Mapping[Node, float], host: str, remote: Served) -> dict[Node, float]:
    """Return shares in which other hosts' threads take the place of the ends of connections."""
    chain = Chain(seconds=1.0)
    for node, share in shares.items():
        chain.parts[node, Kind.NETWORK if node.owner == PEERS else Kind.CPU] = share
        chain.passed[node, SELF] = share
    return {step.node: step.share for step in remote.joined(host, chain).steps() if step.share}


def _counted(before: Snapshot | None, after: Snapshot, workload: BenchmarkWork) -> Chain:
    if before is None or after.time - before.time < MIN_COUNTED_SECONDS:
        return Chain()
    parts = _gains(before, after, PATH_SECONDS, workload, "owner", "role", "kind")
    if (total := sum(parts.values())) <= 0:
        return Chain()
    found = Chain(seconds=1.0)
    for (owner, role, kind), seconds in parts.items():
        if seconds:
            found.parts[Node(owner, role), KIND_LABELS.get(kind, Kind.EARLIER)] += seconds / total
    for (owner, role, to_owner, to_role), seconds in _gains(
        before, after, PATH_PASSED_SECONDS, workload, "owner", "role", "to_owner", "to_role"
    ).items():
        found.passed[Node(owner, role), Node(to_owner, to_role)] += seconds / total
    return found


def _gains(
    before: Snapshot, after: Snapshot, metric: Metric, workload: BenchmarkWork, *by: str
) -> dict[tuple[str, ...], float]:
    return gained(_values(before, metric, workload, *by), _values(after, metric, workload, *by))


def _values(snapshot: Snapshot, metric: Metric, workload: BenchmarkWork, *by: str) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for labels, value in series(snapshot, metric):
        if label(labels, "benchmark") == workload.benchmark and workload.includes(label(labels, "run")):
            key = picked(labels, *by)
            found[key] = found.get(key, 0.0) + value
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


def chain_limits(
    hosts: Mapping[str, Usage], hot: Iterable[HotThread], found: Sequence[NodeShare], least: float
) -> tuple[Limit, ...]:
    """Return what is full and answers for at least `least` of a benchmark's time, the most first.

    Resources of roles, whatever they serve by the rules, what these wait for, and the hot threads without a role.
    """
    if not found:
        return ()
    limits = [limit for limit in blame_nodes(hosts, {one.node: one.share for one in found}) if limit.blame >= least]
    for host, thread in hot:
        if full(thread) and (share := answers_for(thread, found)) >= least:
            limits.append(
                Limit(
                    resource=UNKNOWN_THREAD,
                    owner=thread.process or thread.thread,
                    host=host,
                    serves=(),
                    busy=thread.busy,
                    runqueue=0.0,
                    blocked=0.0,
                    saturated=thread.saturated,
                    threshold=entry_of(UNKNOWN_THREAD).threshold or 1.0,
                    full=True,
                    blame=share,
                    reach=share,
                )
            )
    return tuple(sorted(limits, key=lambda limit: -limit.blame))


def works(before: Snapshots, after: Snapshots, workload: BenchmarkWork) -> bool:
    """Return whether threads of a benchmark that seems idle worked, or waited for others, for most of the time.

    Waits in poll and epoll count as idle. Threads that slept, or that waited for one thing all the time, are in no
    chain.
    """
    awake = 0.0
    for host, last in after.items():
        first = before.get(host)
        if first is None:
            continue
        seconds = sum(_gains(first, last, PATH_THREAD_SECONDS, workload).values())
        seen = (last.value(PATH_OPEN_SECONDS.name) or 0.0) - (first.value(PATH_OPEN_SECONDS.name) or 0.0)
        awake += seconds / seen if seen > 0 else 0.0
    return awake >= MIN_AWAKE_SHARE * workload.total


def activity(found: Iterable[NodeShare], least: float) -> str:
    """Return what says that a benchmark that seems idle waits for others; empty if nothing does."""
    others = [one for one in found if one.node != SELF and one.share >= least]
    if not others:
        return ""
    return f"by who wakes whom, it is not idle: {others[0].node} answers for {others[0].share:.0%} of the time"


def contradiction(woken: Sequence[Limit], limits: Sequence[Limit]) -> str:
    """Return what `chain_limits` leads to instead of the limits by the rules; empty if it leads to one of them.

    Of one daemon, the chain and the rules may name different parts: a lock, or the thread that mostly holds it. Of
    several daemons whose same part is full, they may name different ones.
    """
    owners = {(limit.host, limit.owner) for limit in limits}
    parts = {limit.kind for limit in limits if limit.kind[1] in DAEMONS}
    if not woken or any((limit.host, limit.owner) in owners or limit.kind in parts for limit in woken):
        return ""
    return f"by who wakes whom, {name(woken[0])} is full instead, and answers for {woken[0].blame:.0%} of the time"
