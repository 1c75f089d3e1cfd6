"""For how much of the time a lock that seems to be the limit was held, by its own state (docs/ceph.md#the-locks)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pinchpoint.diagnosis.blame import Limit
from pinchpoint.diagnosis.evidence import MAX_LISTED, name
from pinchpoint.diagnosis.series import gained, picked, series
from pinchpoint.metrics import LOCK_HELD_SECONDS, LOCK_OBSERVED_SECONDS, LOCK_WAITING_SECONDS
from pinchpoint.model import Metric, Snapshot, Snapshots

__all__ = ["LockUse", "lock_doubt", "lock_sentence", "lock_uses"]

MIN_OBSERVED_SECONDS = 5.0
"""Seconds from which a share is named: 50 looks are right to within 14 points in 95 of 100 cases (binomial
distribution), 400 to within 5."""
MIN_LOCK_HELD_SHARE = 0.6
"""Share below which a lock is doubted to be the limit: for more than a third of the time nobody wants it."""


class LockUse(msgspec.Struct, frozen=True):
    """The use of a lock in an interval."""

    limit: Limit
    held: float
    """Share of the time in which it was held."""
    waiting: float | None
    """Threads that waited for it, on average; None if it does not show that."""


def lock_uses(limits: Iterable[Limit], before: Snapshots, after: Snapshots) -> tuple[LockUse, ...]:
    """Return the use of the first limits that are locks whose state was known for long enough."""
    found = (_use(limit, before.get(limit.host), after.get(limit.host)) for limit in limits)
    return tuple(use for use in found if use is not None)[:MAX_LISTED]


def _use(limit: Limit, before: Snapshot | None, after: Snapshot | None) -> LockUse | None:
    if before is None or after is None:
        return None
    observed = _gain(LOCK_OBSERVED_SECONDS, limit, before, after) or 0.0
    if observed < MIN_OBSERVED_SECONDS:
        return None
    held = _gain(LOCK_HELD_SECONDS, limit, before, after) or 0.0
    waiting = _gain(LOCK_WAITING_SECONDS, limit, before, after)
    return LockUse(limit, min(1.0, held / observed), None if waiting is None else waiting / observed)


def _gain(metric: Metric, limit: Limit, before: Snapshot, after: Snapshot) -> float | None:
    """Return by how much a counter of a lock has grown; None if there is no such counter."""
    then, now = (
        {picked(labels, "resource", "owner"): value for labels, value in series(one, metric)} for one in (before, after)
    )
    return gained(then, now).get((limit.resource, limit.owner))


def lock_sentence(use: LockUse) -> str:
    """Return what the state of a lock shows: ``mds_lock of mds.a is held for 63% of the time, 0.2 threads wait``."""
    held = f"{name(use.limit)} is held for {use.held:.0%} of the time"
    return held if use.waiting is None else f"{held}, and {use.waiting:.1f} threads wait for it"


def lock_doubt(uses: Iterable[LockUse]) -> str:
    """Return why a lock may not be the limit; empty if each is held for most of the time."""
    for use in uses:
        if use.held < MIN_LOCK_HELD_SHARE:
            return f"{name(use.limit)} is held for {use.held:.0%} of the time only: its threads are busy without it"
    return ""
