"""Chains across hosts: what a thread waits for over the network is divided as the other host divides its answers.

Each host knows its own threads only. The server's end of a connection has the same name on both: its address and port
(`pinchpoint.bpf.path.Endpoint`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pinchpoint.waits.chain import PEERS, SELF, Chain, Kind, Node, peer_node

__all__ = ["Answered", "joined"]


class Answered(msgspec.Struct):
    """Answers of one end of connections, as one host saw them."""

    number: float = 0.0
    seconds: float = 0.0
    """From each request to its answer."""

    @property
    def mean(self) -> float:
        """The mean seconds from a request to its answer; 0 if there was none."""
        return self.seconds / self.number if self.number else 0.0

    def add(self, number: float, seconds: float) -> None:
        """Add more answers."""
        self.number += number
        self.seconds += seconds


def joined(
    chain: Chain,
    trips: Mapping[str, Answered],
    answered: Mapping[str, Answered],
    served: Mapping[str, Chain],
) -> Chain:
    """Return a chain in which other hosts' threads take the place of the ends of connections.

    By the ends' names, `trips` are the answers as the chain's own host saw them come, `answered` those that the other
    hosts gave, and `served` what went on there meanwhile. What an answer takes longer here than there is left to the
    network. An end that no host knows stays what it is; one that is met again behind itself does too.
    """
    found = Chain(chain.seconds, chain.asleep, chain.waits)
    found.parts.update(chain.parts)
    found.passed.update(chain.passed)
    seen: set[str] = set()
    while ends := sorted({node.role for node, _ in found.parts if node.owner == PEERS} - seen):
        for end in ends:
            if end in served and served[end].seconds > 0:
                _replace(found, end, 1 - _under_way(trips.get(end), answered.get(end)), served[end])
        seen.update(ends)
    return found


def _under_way(trips: Answered | None, answered: Answered | None) -> float:
    """Return the share of the time until an answer in which the network had it, 0 if that is unknown."""
    if trips is None or answered is None or not trips.mean:
        return 0.0
    return max(0.0, 1 - answered.mean / trips.mean)


def _replace(chain: Chain, end: str, share: float, there: Chain) -> None:
    """Give a share of what waits for the end of a connection to what went on there."""
    node = peer_node(end)
    woken = {after: seconds for (waker, after), seconds in chain.passed.items() if waker == node and seconds > 0}
    asked = {before: seconds for (before, after), seconds in chain.passed.items() if after == node and seconds > 0}
    for after, seconds in woken.items():
        moved = share * seconds
        chain.passed[node, after] -= moved
        chain.parts[node, Kind.NETWORK] = max(0.0, chain.parts[node, Kind.NETWORK] - moved)
        for (one, kind), part in there.parts.items():
            if kind is Kind.NETWORK and one.owner != PEERS:  # the rest of the request was still under way
                chain.parts[node, kind] += moved * part / there.seconds
                chain.passed[node, after] += moved * part / there.seconds
            else:
                chain.parts[after if one == SELF else one, kind] += moved * part / there.seconds
        for (waker, one), part in there.passed.items():
            _pass(chain, after if waker == SELF else waker, after if one == SELF else one, moved * part / there.seconds)
    # Who sent the requests went before all that.
    for before, seconds in asked.items():
        for after, part in woken.items():
            moved = share * seconds * part / sum(woken.values())
            chain.passed[before, node] -= moved
            _pass(chain, before, after, moved)


def _pass(chain: Chain, waker: Node, woken: Node, seconds: float) -> None:
    if waker != woken:
        chain.passed[waker, woken] += seconds
