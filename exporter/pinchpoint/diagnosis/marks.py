"""Verdicts as saved with a run's phases, and what those of repeats have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import msgspec

from pinchpoint.diagnosis.blame import DAEMONS
from pinchpoint.diagnosis.verdict import Verdict
from pinchpoint.expressions import expression
from pinchpoint.runs import LimitMark, StepMark, VerdictMark

__all__ = ["STEP_DECIMALS", "Bottleneck", "bottleneck", "verdict_mark"]

Identity = tuple[str, frozenset[tuple[str, str]]]
MAX_KEPT_LIMITS = 4
"""Maximum number of resources saved per verdict."""
STEP_DECIMALS = 7
"""Digits of a step's seconds that are saved: daemons count nanoseconds, but a tenth of a microsecond is noise."""
MOUNT = expression(r"ceph-\d+")
"""The writeback device of a CephFS mount."""


class Bottleneck(msgspec.Struct, frozen=True):
    """What limited a phase in a group of repeats: the verdict of most of them."""

    kind: str
    """A `pinchpoint.diagnosis.verdict.Kind`."""
    limits: tuple[LimitMark, ...]
    """The most blamed first; blame is the mean over the runs that agree."""
    agreeing: int
    """Number of runs with this verdict."""
    runs: int
    """Number of runs whose phase was judged."""
    dissent: tuple[VerdictMark, ...] = ()
    """Other verdicts of the group, each once, the more frequent first."""

    @property
    def identity(self) -> Identity:
        """Identifies the same verdict in different runs."""
        return _identity(VerdictMark(self.kind, self.limits))


def verdict_mark(verdict: Verdict) -> VerdictMark:
    """Return the saved form of a verdict: the resources it names, of equal ones the most blamed, and the steps."""
    limits: dict[tuple[str, str], LimitMark] = {}
    for limit in verdict.limits:
        mark = LimitMark(limit.resource, limit.owner, round(limit.blame, 3))
        limits.setdefault(_same(mark), mark)
    steps = tuple(
        StepMark(fall.operation, step.name, round(step.seconds, STEP_DECIMALS))
        for fall in verdict.waterfalls
        if not fall.daemon
        for step in fall.steps
    )
    return VerdictMark(str(verdict.kind), tuple(limits.values())[:MAX_KEPT_LIMITS], str(verdict.confidence), steps)


def bottleneck(marks: Sequence[VerdictMark]) -> Bottleneck | None:
    """Return what limited a phase in the runs of a group; None if it was not judged in any.

    If several verdicts are equally frequent, the earliest is taken.
    """
    if not marks:
        return None
    (most, agreeing), *others = Counter(map(_identity, marks)).most_common()
    first = {_identity(mark): mark for mark in reversed(marks)}
    return Bottleneck(
        first[most].kind,
        _mean_limits([mark for mark in marks if _identity(mark) == most]),
        agreeing,
        len(marks),
        tuple(first[identity] for identity, _ in others),
    )


def _identity(mark: VerdictMark) -> Identity:
    return mark.kind, frozenset(map(_same, mark.limits))


def _same(limit: LimitMark) -> tuple[str, str]:
    """Return what identifies the same resource in different runs.

    The MDS or OSD changes with every failover, and the number of a CephFS mount with every mount.
    """
    prefix = limit.owner.partition(".")[0]
    return limit.resource, prefix if prefix in DAEMONS else MOUNT.sub("ceph", limit.owner)


def _mean_limits(marks: Sequence[VerdictMark]) -> tuple[LimitMark, ...]:
    """Return each resource with its mean blame and its most frequent owner."""
    found: dict[tuple[str, str], list[LimitMark]] = {}
    for mark in marks:
        for limit in mark.limits:
            found.setdefault(_same(limit), []).append(limit)
    means = []
    for limits in found.values():
        ((owner, _),) = Counter(limit.owner for limit in limits).most_common(1)
        means.append(LimitMark(limits[0].resource, owner, fmean(limit.blame for limit in limits)))
    return tuple(sorted(means, key=lambda limit: -limit.blame))
