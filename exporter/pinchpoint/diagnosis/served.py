"""What hosts did between the requests of others and their answers: there a chain goes on that reaches the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pinchpoint.diagnosis.series import gained, label, picked, series
from pinchpoint.metrics import (
    PATH_SERVED_ANSWERS,
    PATH_SERVED_PASSED_SECONDS,
    PATH_SERVED_SECONDS,
    PATH_TRIP_SECONDS,
    PATH_TRIPS,
)
from pinchpoint.model import Metric, Snapshot, Snapshots
from pinchpoint.waits.chain import PEERS, Chain, Kind, Node, seen_from_afar
from pinchpoint.waits.remote import Answered, joined

__all__ = ["KIND_LABELS", "Served"]

KIND_LABELS = {kind.value: kind for kind in Kind}
"""Kinds by the value of their label; an exporter of another version may know more."""


class Served:
    """What all hosts answered in an interval, by the name of the end of a connection.

    A host that saw no window in the interval has what it saw since it began to look. Hosts are read when a chain leads
    to them: a cluster has a thousand series for each, and a chain a few dozen ends.
    """

    def __init__(self, before: Snapshots, after: Snapshots) -> None:
        self._before, self._after = before, after
        self._hosts: defaultdict[str, set[str]] = defaultdict(set)
        """The hosts that know an end."""
        for host, snapshot in after.items():
            for labels, _ in series(snapshot, PATH_SERVED_ANSWERS):
                self._hosts[label(labels, "endpoint")].add(host)
        self._read: set[str] = set()
        self._chains: defaultdict[str, Chain] = defaultdict(Chain)
        self._numbers: defaultdict[str, float] = defaultdict(float)

    def joined(self, host: str, chain: Chain) -> Chain:
        """Return a chain of a host in which other hosts' threads take the place of the ends of connections."""
        wanted, known = _ends(chain), set[str]()
        while new := (wanted & self._hosts.keys()) - known:
            known |= new
            for one in sorted({one for end in new for one in self._hosts[end]} - self._read):
                self._read_host(one)
            wanted = {peer for end in new for peer in _ends(self._chains[end])}
        if not known:
            return chain
        answered = {end: Answered(self._numbers[end], self._chains[end].seconds) for end in known}
        return joined(chain, self._trips(host), answered, {end: self._chains[end] for end in known})

    def _read_host(self, host: str) -> None:
        self._read.add(host)
        first, last = self._before.get(host), self._after[host]
        if not any(_gains(first, last, PATH_SERVED_ANSWERS, "endpoint").values()):
            first = None
        for (end, owner, role, kind), seconds in _gains(
            first, last, PATH_SERVED_SECONDS, "endpoint", "owner", "role", "kind"
        ).items():
            node = seen_from_afar(Node(owner, role), host)
            self._chains[end].parts[node, KIND_LABELS.get(kind, Kind.EARLIER)] += seconds
            self._chains[end].seconds += seconds
        for (end, *nodes), seconds in _gains(
            first, last, PATH_SERVED_PASSED_SECONDS, "endpoint", "owner", "role", "to_owner", "to_role"
        ).items():
            waker, woken = (seen_from_afar(Node(*names), host) for names in (nodes[:2], nodes[2:]))
            self._chains[end].passed[waker, woken] += seconds
        for (end,), number in _gains(first, last, PATH_SERVED_ANSWERS, "endpoint").items():
            self._numbers[end] += number

    def _trips(self, host: str) -> Mapping[str, Answered]:
        """Return the answers that a host saw come."""
        first, last = self._before.get(host), self._after[host]
        came = _gains(first, last, PATH_TRIPS, "endpoint")
        took = _gains(first, last, PATH_TRIP_SECONDS, "endpoint")
        return {end: Answered(came.get((end,), 0.0), seconds) for (end,), seconds in took.items()}


def _ends(chain: Chain) -> set[str]:
    return {node.role for node, _ in chain.parts if node.owner == PEERS}


def _gains(before: Snapshot | None, after: Snapshot, metric: Metric, *by: str) -> dict[tuple[str, ...], float]:
    """Return by how much the series of a metric grew; without a first snapshot, since they began."""

    def values(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
        return {picked(labels, *by): value for labels, value in series(snapshot, metric)}

    return values(after) if before is None else gained(values(before), values(after))
