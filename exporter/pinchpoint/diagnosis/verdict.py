"""The verdict: what limits a phase, and how it is known.

Everything is derived from two snapshots of each host, so that a live view, the table of a run, and a report that is
read from a recording say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pinchpoint.model import Snapshots

__all__ = ["Confidence", "Kind", "Limit", "Verdict", "verdict"]


class Kind(StrEnum):
    """What kind of answer a verdict is."""

    RESOURCE = "resource"
    """One resource is full, and what the benchmark waits for is served by it."""
    SEVERAL = "several"
    """Two or more different resources are full and share the blame."""
    LATENCY_BOUND = "latency-bound"
    """The benchmark waits, and nothing that serves it is full."""
    STUCK = "stuck"
    """A daemon does nothing any more."""
    UNKNOWN = "unknown"
    """It waits for kernel locks, or in stacks that no rule knows."""
    BLIND = "blind"
    """There is no data on what it waits for."""
    IDLE = "idle"
    """The benchmark does nothing."""
    TOO_SHORT = "too short"
    """The interval is too short to judge."""


class Confidence(StrEnum):
    """How far a verdict can be trusted."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Limit:
    """One resource in the ranking. Shares are of the interval, 0 to 1."""

    resource: str
    owner: str
    host: str
    """Where it was measured, as its source is called."""
    serves: tuple[str, ...]
    """The wait classes for which it is blamed, the largest first."""
    busy: float
    runqueue: float
    """The part of `busy` in which it waited for a CPU."""
    blocked: float
    """The part of `busy` in which it waited for something below it."""
    saturated: float
    full: bool
    blame: float
    """The share of the benchmark's time that it answers for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits a benchmark between two snapshots of each host."""

    kind: Kind
    seconds: float
    """Length of the interval."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Share of the time of the benchmark's processes by wait class, the largest first; they add up to 1."""
    limits: tuple[Limit, ...] = ()
    """Those that the verdict names, the most blamed first; empty unless one is full or stuck."""
    ranking: tuple[Limit, ...] = ()
    """Every resource that serves what is waited for, the most blamed first."""
    margin: str = ""
    """How near another verdict was, in words ("just over"); empty where it is clear."""
    confidence: Confidence = Confidence.HIGH
    doubts: tuple[str, ...] = ()
    """Why the confidence is not high."""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers."""
    innocent: tuple[str, ...] = ()
    """What looks like the limit and is not, with the reason."""
    blind: tuple[str, ...] = ()
    """What could not be seen."""
    latency: tuple[str, ...] = ()
    """Where the latency of a latency-bound interval comes from."""
    runbook: str = ""
    """Name of the runbook's page that says what to do; empty where there is none."""
    advice: str = ""
    """What to do, in a sentence."""


def verdict(before: Snapshots, after: Snapshots, *, benchmark: str = "", run: str = "") -> Verdict:
    """Return what limits a benchmark's run between two snapshots of each host; without names, the busiest one."""
    raise NotImplementedError
