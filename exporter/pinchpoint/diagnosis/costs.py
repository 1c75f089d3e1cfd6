"""What the threads of full resources spend their CPU time on, from the samples of their stacks (docs/profile.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec

from pinchpoint.compat import re
from pinchpoint.diagnosis.blame import Limit
from pinchpoint.diagnosis.evidence import MAX_LISTED, owner
from pinchpoint.diagnosis.series import gained, label, picked, series
from pinchpoint.metrics import COST_RATIO, COST_SAMPLES
from pinchpoint.model import Metric, Snapshot, Snapshots
from pinchpoint.profile.classes import MAX_CLASSES, OTHER, cost_words
from pinchpoint.shipped import shipped
from pinchpoint.tomlfile import decode_toml

__all__ = ["Cost", "all_cost_advice", "cost_advice", "cost_sentence", "costs"]

MIN_SAMPLES = 100
"""Samples from which shares are named: 95 of 100 are then right to within 10 points (binomial distribution)."""
MIN_EXACT_SAMPLES = 400
"""Samples from which they are right to within 5 points: below, they are "about"."""
MIN_NAMED_SHARE = 0.1
"""Share from which a class is named."""
MIN_ADVISED_SHARE = 0.2
"""Share from which something is to be done about it."""
PAGE = "docs/costs.md"


class CostAdvice(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What to do first about a class: see ``cost_advice.toml``."""

    do: str
    owners: str = ".*"


@cache
def all_cost_advice() -> Mapping[str, CostAdvice]:
    """Return the advice by class."""
    raw = shipped("diagnosis/cost_advice.toml").read_bytes()
    return decode_toml(raw, dict[str, CostAdvice], "cost_advice.toml")


class Cost(msgspec.Struct, frozen=True):
    """What the threads of one full resource spent their CPU time on."""

    resource: str
    owner: str
    host: str
    samples: int
    """Samples in the interval; 0 for shares from before and during it, whose number is not known."""
    shares: Mapping[str, float]
    """Shares by class, the largest first."""

    @property
    def named(self) -> dict[str, float]:
        """The classes that are large enough to be told, the largest first."""
        return {cost: share for cost, share in self.shares.items() if share >= MIN_NAMED_SHARE and cost != OTHER}


def costs(limits: Iterable[Limit], before: Snapshots, after: Snapshots) -> tuple[Cost, ...]:
    """Return the costs of the first limits that were sampled often enough.

    The samples of the interval count if they are enough, else the last ones that the exporter shows as shares: a live
    verdict covers 3 s, and a window of samples 5 s.
    """
    found = (_cost(limit, before.get(limit.host), after.get(limit.host)) for limit in limits)
    return tuple(cost for cost in found if cost is not None)[:MAX_LISTED]


def _cost(limit: Limit, before: Snapshot | None, after: Snapshot | None) -> Cost | None:
    if after is None:
        return None
    then = dict(_classes(before, COST_SAMPLES, limit)) if before is not None else {}
    now = dict(_classes(after, COST_SAMPLES, limit))
    taken = gained(then, now)
    samples = sum(taken.values())
    if samples >= MIN_SAMPLES:
        return Cost(limit.resource, limit.owner, limit.host, round(samples), _shares(taken, samples))
    shown = dict(_classes(after, COST_RATIO, limit))
    total = sum(shown.values())
    return Cost(limit.resource, limit.owner, limit.host, 0, _shares(shown, total)) if total > 0 else None


def _classes(snapshot: Snapshot, metric: Metric, limit: Limit) -> Iterator[tuple[str, float]]:
    found = 0
    for labels, value in series(snapshot, metric):
        if picked(labels, "resource", "owner") == (limit.resource, limit.owner) and found < MAX_CLASSES:
            found += 1
            yield label(labels, "class"), value


def _shares(values: Mapping[str, float], total: float) -> dict[str, float]:
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return {cost: value / total for cost, value in ordered if value > 0}


def cost_sentence(cost: Cost) -> str:
    """Return what a full resource spends its CPU time on, in a sentence; empty if no class is large enough."""
    if not cost.named:
        return ""
    about = "about " if cost.samples < MIN_EXACT_SAMPLES else ""
    parts = [f"{share:.0%} {cost_words(found)}" for found, share in cost.named.items()]
    number = f" ({cost.samples} samples)" if cost.samples else ""
    which = f"{cost.resource} of {owner(cost.owner, cost.host)}"
    return f"{which} is full: its CPU time is {about}{', '.join(parts)}{number}"


def cost_advice(cost: Cost) -> str:
    """Return what to do about the largest class that has a fifth of the time and advice; empty if there is none."""
    for found, share in cost.named.items():
        advice = all_cost_advice().get(found)
        if share >= MIN_ADVISED_SHARE and advice is not None and re.fullmatch(advice.owners, cost.owner):
            return f"about {cost_words(found)}: {advice.do} ({PAGE}, {found})"
    return ""
