"""What hosts did between the requests of others and their answers: there a chain goes on that reaches the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from pinchpoint.diagnosis.series import gained, picked, series
from pinchpoint.metrics import (
    PATH_SERVED_ANSWERS,
    PATH_SERVED_PASSED_SECONDS,
    PATH_SERVED_SECONDS,
    PATH_TRIP_SECONDS,
    PATH_TRIPS,
)
from pinchpoint.model import Metric, Snapshot, Snapshots
from pinchpoint.waits import remote
from pinchpoint.waits.chain import Chain, Kind, Node, seen_from_afar
from pinchpoint.waits.remote import Answered

__all__ = ["KIND_LABELS", "Served", "served"]

KIND_LABELS = {kind.value: kind for kind in Kind}
"""Kinds by the value of their label; an exporter of another version may know more."""


class Served(msgspec.Struct, frozen=True):
    """What all hosts answered, by the name of the end of a connection."""

    chains: Mapping[str, Chain]
    answered: Mapping[str, Answered]
    trips: Mapping[str, Mapping[str, Answered]]
    """The answers that each host saw come."""

    def joined(self, host: str, chain: Chain) -> Chain:
        """Return a chain of a host in which other hosts' threads take the place of the ends of connections."""
        return remote.joined(chain, self.trips.get(host, {}), self.answered, self.chains) if self.chains else chain


def served(before: Snapshots, after: Snapshots) -> Served:
    """Return what was served in an interval; by a host that saw no window in it, since it began to look."""
    chains: defaultdict[str, Chain] = defaultdict(Chain)
    numbers: defaultdict[str, float] = defaultdict(float)
    trips: dict[str, dict[str, Answered]] = {}
    for host, last in sorted(after.items()):
        first = before.get(host)

        def named(owner: str, role: str, host: str = host) -> Node:
            return seen_from_afar(Node(owner, role), host)

        if not any(_gains(first, last, PATH_SERVED_ANSWERS, "endpoint").values()):
            first = None
        for (end, owner, role, kind), seconds in _gains(
            first, last, PATH_SERVED_SECONDS, "endpoint", "owner", "role", "kind"
        ).items():
            chains[end].parts[named(owner, role), KIND_LABELS.get(kind, Kind.EARLIER)] += seconds
            chains[end].seconds += seconds
        for (end, owner, role, to_owner, to_role), seconds in _gains(
            first, last, PATH_SERVED_PASSED_SECONDS, "endpoint", "owner", "role", "to_owner", "to_role"
        ).items():
            chains[end].passed[named(owner, role), named(to_owner, to_role)] += seconds
        for (end,), number in _gains(first, last, PATH_SERVED_ANSWERS, "endpoint").items():
            numbers[end] += number
        came = _gains(before.get(host), last, PATH_TRIPS, "endpoint")
        trips[host] = {
            end: Answered(came.get((end,), 0.0), seconds)
            for (end,), seconds in _gains(before.get(host), last, PATH_TRIP_SECONDS, "endpoint").items()
        }
    return Served(chains, {end: Answered(number, chains[end].seconds) for end, number in numbers.items()}, trips)


def _gains(before: Snapshot | None, after: Snapshot, metric: Metric, *by: str) -> dict[tuple[str, ...], float]:
    """Return by how much the series of a metric grew; without a first snapshot, since they began."""

    def values(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
        return {picked(labels, *by): value for labels, value in series(snapshot, metric)}

    return values(after) if before is None else gained(values(before), values(after))
