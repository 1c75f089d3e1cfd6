"""Who makes a benchmark wait: sums of windows (`pinchpoint.bpf.path`), by the owner and the role of each thread.

A node is all threads of an owner with one role: ``osd.0`` and ``osd_op``. The parts of all nodes sum up to the time of
the benchmark's own threads. A timer or a disk that a thread waits for is a part of the thread: a worker that sleeps is
responsible for its sleep. So is a packet, unless it is known whose: the other end of a TCP connection is a node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from pinchpoint.bpf.path import Endpoint, Responsible, Share, Source, ThreadTime, Window
from pinchpoint.compat import StrEnum
from pinchpoint.host.procfs import decode
from pinchpoint.threads.processes import Process
from pinchpoint.threads.roleless import bare
from pinchpoint.threads.roles import Roles
from pinchpoint.user_labels import unmarked

__all__ = [
    *("KERNEL", "KIND_WORDS", "PEERS", "SELF"),
    *("Chain", "Kind", "Namer", "Node", "Step", "chain_of", "peer_node", "seen_from_afar", "served_chain"),
]

MAX_ASLEEP_SHARE = 0.8
"""Share of a window from which a thread counts as asleep: it waited for a time, for the exporter's questions, or for
something that did not come."""
MAX_CHAIN_NODES = 12
"""Nodes of a chain."""
MIN_LINK_SHARE = 0.02
"""Share of the benchmark's time below which a chain does not go on."""


class Kind(StrEnum):
    """What a node did in the time for which it is responsible."""

    CPU = "cpu"
    RUNQUEUE = "runqueue"
    """It could run and did not: no CPU was free, its quota was spent, or its CPU had yet to wake up."""
    TIMER = "timer"
    """It waited for a time: it slept, or was throttled."""
    DISK = "disk"
    """It waited for a device."""
    NETWORK = "network"
    """It waited for a packet of another host, or is the other host."""
    INTERRUPT = "interrupt"
    EARLIER = "earlier"
    """It waited for what happened before the window, or too many wake-ups ago."""
    PENDING = "pending"
    """It waited for something that did not come before the end of the window."""


KIND_WORDS: Mapping[Kind, str] = {
    Kind.CPU: "on a CPU",
    Kind.RUNQUEUE: "without a CPU",
    Kind.TIMER: "asleep",
    Kind.DISK: "disk",
    Kind.NETWORK: "network",
    Kind.INTERRUPT: "interrupts",
    Kind.EARLIER: "earlier",
    Kind.PENDING: "still waiting",
}
KERNEL, PEERS = "kernel", "network"
"""Owners of the kernel's threads, and of the ends of connections on other hosts."""
OF_HOST = " of "
"""Comes between the former and the name of another host."""
KINDS: Mapping[Source, Kind] = {
    Source.BEFORE: Kind.EARLIER,
    Source.TIMER: Kind.TIMER,
    Source.DEVICE: Kind.DISK,
    Source.NETWORK: Kind.NETWORK,
    Source.INTERRUPT: Kind.INTERRUPT,
}
WAITS = frozenset(KINDS.values())
"""What a node waits for that no other node is responsible for."""


class Node(NamedTuple):
    """All threads of an owner with one role."""

    owner: str
    role: str
    """Of a thread without a role: its name, without digits. Of the end of a connection: its address and port."""

    def __str__(self) -> str:
        return self.owner if self.owner == self.role else f"{self.owner} {self.role}"


SELF = Node("", "")
"""The threads of the benchmark whose time is divided."""


class Step(NamedTuple):
    """A node of a chain."""

    node: Node
    share: float
    """Its own part of the benchmark's time."""
    kinds: Mapping[Kind, float]
    """The same by what it did."""


class Chain(msgspec.Struct):
    """What the threads of a benchmark did, in seconds of all of them together."""

    seconds: float = 0.0
    asleep: int = 0
    """Threads that are left out: they were asleep."""
    waits: int = 0
    parts: defaultdict[tuple[Node, Kind], float] = msgspec.field(default_factory=lambda: defaultdict(float))
    passed: defaultdict[tuple[Node, Node], float] = msgspec.field(default_factory=lambda: defaultdict(float))
    """The seconds of the first node after which it woke the second one, which went on."""

    def add(self, other: Chain) -> None:
        """Add what was seen in another window."""
        self.seconds += other.seconds
        self.asleep = max(self.asleep, other.asleep)
        self.waits += other.waits
        for part, seconds in other.parts.items():
            self.parts[part] += seconds
        for pair, seconds in other.passed.items():
            self.passed[pair] += seconds

    def steps(self) -> list[Step]:
        """Return all nodes with their parts, the largest first."""
        kinds: dict[Node, dict[Kind, float]] = {}
        for (node, kind), seconds in self.parts.items():
            kinds.setdefault(node, {})[kind] = seconds / self.seconds
        found = [Step(node, sum(shares.values()), shares) for node, shares in kinds.items()]
        return sorted(found, key=lambda step: (-step.share, step.node))

    def waited(self) -> defaultdict[Node, float]:
        """Return the seconds in which nodes waited for what no other node is responsible for."""
        found: defaultdict[Node, float] = defaultdict(float)
        for (node, kind), seconds in self.parts.items():
            if kind in WAITS and node.owner != PEERS:  # of the end of a connection, it is what it passed on
                found[node] += seconds
        return found

    def heaviest(self) -> list[Node]:
        """Return the nodes of the heaviest chain, first the one that wakes the benchmark.

        It ends at the kernel, whose workers are one node for all that they work for.
        """
        waited = self.waited()
        wakers: defaultdict[Node, dict[Node, float]] = defaultdict(dict)
        for (waker, woken), seconds in self.passed.items():
            wakers[woken][waker] = seconds

        def behind(node: Node, seen: set[Node]) -> float:
            """Return the seconds of all that leads to a node."""
            total, waiting = waited[node], [node]
            while waiting:
                for waker, seconds in wakers[waiting.pop()].items():
                    if waker not in seen:
                        seen.add(waker)
                        waiting.append(waker)
                        total += seconds + waited[waker]
            return total

        chain: list[Node] = []
        last = SELF
        while len(chain) < MAX_CHAIN_NODES and last.owner.partition(OF_HOST)[0] != KERNEL:
            ways = {
                waker: seconds + behind(waker, {SELF, last, waker, *chain})
                for waker, seconds in wakers[last].items()
                if waker != SELF and waker not in chain
            }
            if not ways or max(ways.values()) < MIN_LINK_SHARE * self.seconds:
                break
            last = max(ways, key=lambda node: (ways[node], node))
            chain.append(last)
        return chain


class Namer:
    """Names threads by the rules for roles."""

    def __init__(self, processes: Mapping[int, Process], roles: Roles, comm: Callable[[int], str]) -> None:
        """Begin; `comm` gives the name of a process that no rule is interested in, "" if it has gone."""
        self._processes = processes
        self._roles = roles
        self._comm = comm
        self._known: dict[Responsible | Endpoint, Node] = {}

    def __call__(self, who: Responsible | Endpoint) -> Node:
        """Return the node of some threads, or of the end of a connection."""
        if (node := self._known.get(who)) is None:
            node = self._known[who] = peer_node(str(who)) if isinstance(who, Endpoint) else self._node(who)
        return node

    def _node(self, who: Responsible) -> Node:
        name = decode(who.name)
        if who.tgid == 0:
            return Node(KERNEL, bare(name))
        if (process := self._processes.get(who.tgid)) is None:
            return Node(unmarked(self._roles.unruled_owner(self._comm(who.tgid) or name)), bare(name))
        role = self._roles.thread_role(process.class_, name).role
        return Node(process.owner, bare(name) if role.fallback else role.name)


def seen_from_afar(node: Node, host: str) -> Node:
    """Return how a node of a host is named in the chain of another: each host has a kernel."""
    return Node(f"{KERNEL}{OF_HOST}{host}", node.role) if node.owner == KERNEL else node


def peer_node(endpoint: str) -> Node:
    """Return the node of the end of a connection on another host."""
    return Node(PEERS, endpoint)


def _asleep(thread: ThreadTime, observers: Collection[int]) -> float:
    """Return the seconds in which a thread waited for a time, for an observer, or for something that did not come.

    What one that an observer wakes waited for before the window is taken for an earlier question.
    """
    asked = [share.seconds for share in thread.shares if _is_question(share, observers)]
    alone = {Source.TIMER, Source.BEFORE} if asked else {Source.TIMER}
    slept = [share.seconds for share in thread.shares if share.by in alone and share.via is None]
    return thread.pending + sum(asked) + sum(slept)


def _is_question(share: Share, observers: Collection[int]) -> bool:
    return any(isinstance(who, Responsible) and who.tgid in observers for who in (share.by, share.via))


def chain_of(
    window: Window, processes: set[int], name: Callable[[Responsible | Endpoint], Node], observers: Collection[int]
) -> Chain:
    """Return what the threads of some of a window's processes did.

    `observers` are processes of Pinchpoint: a thread that only waits for their questions has no part in the benchmark.
    """
    threads = [thread for thread in window.threads if thread.tgid in processes]
    awake = [thread for thread in threads if _asleep(thread, observers) < MAX_ASLEEP_SHARE * window.seconds]
    chain = Chain(asleep=len(threads) - len(awake))
    for thread in awake:
        chain.waits += thread.waits
        own = {Kind.CPU: thread.run, Kind.RUNQUEUE: thread.queued, Kind.PENDING: thread.pending}
        for kind, seconds in own.items():
            _put(chain, SELF, kind, seconds)
        for share in thread.shares:
            _divide(chain, share, name)
    return chain


def served_chain(
    shares: Iterable[Share], name: Callable[[Responsible | Endpoint], Node], observers: Collection[int]
) -> Chain:
    """Return what went on between requests and their answers; `SELF` is who got the answers.

    What observers did has no part in it: they wake workers of the kernel and of daemons for their own questions.
    """
    chain = Chain()
    for share in shares:
        if not _is_question(share, observers):
            _divide(chain, share, name)
    return chain


def _divide(chain: Chain, share: Share, name: Callable[[Responsible | Endpoint], Node]) -> None:
    after = SELF if share.via is None else name(share.via)
    if isinstance(share.by, Source):
        _put(chain, after, KINDS[share.by], share.seconds)
        return
    node = name(share.by)
    if isinstance(share.by, Endpoint):
        _put(chain, node, Kind.NETWORK, share.seconds)
    else:
        _put(chain, node, Kind.CPU, share.seconds - share.queued)
        _put(chain, node, Kind.RUNQUEUE, share.queued)
    if node != after:
        chain.passed[node, after] += share.seconds


def _put(chain: Chain, node: Node, kind: Kind, seconds: float) -> None:
    if seconds > 0:
        chain.parts[node, kind] += seconds
        chain.seconds += seconds
