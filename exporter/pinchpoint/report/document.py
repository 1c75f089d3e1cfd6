"""A run as one document: what `pinchpoint report --json` prints, and what a terminal and a browser show.

docs/report.md describes every key. Adding one is no change of `SCHEMA`; taking one away is, or giving it another
meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.knobs import Knobs, Settings, knobs
from pinchpoint.diagnosis.verdict import Limit, Verdict, verdict
from pinchpoint.report.window import Window
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.store import RunRecord

__all__ = [
    "SCHEMA",
    "Change",
    "Document",
    "Figure",
    "Host",
    "Judgement",
    "Phase",
    "Ranked",
    "Unknown",
    "build",
    "settings",
]

SCHEMA = 1
RANKED = 20
"""Resources of a phase that are kept at most: a cluster has hundreds that serve the OSDs."""
LEAST = 0.001
"""Blame under which a resource that is not full is left out."""
OFF = 2.0
"""Seconds by which the samples may miss a phase's start or end before it is said."""
DECIMALS = 4
"""Digits of a share that are kept: samples are not more exact than that."""


class Figure(msgspec.Struct):
    """One figure of a benchmark."""

    operation: str
    unit: str
    value: float
    printed: str


class Host(msgspec.Struct):
    """A host that was measured, and its settings."""

    host: str
    facts: dict[str, list[str]]


class Judgement(msgspec.Struct):
    """What limited a phase."""

    kind: str
    words: str
    confidence: str
    doubts: list[str]
    margin: str
    runbook: str
    advice: str
    evidence: list[str]
    innocent: list[str]
    blind: list[str]
    latency: list[str]
    no_role: list[str]


class Unknown(msgspec.Struct):
    """A thread that no role names, and that was hot. Shares are of the phase, 0 to 1."""

    thread: str
    process: str
    host: str
    busy: float
    saturated: float


class Ranked(msgspec.Struct):
    """A resource that serves what the benchmark waits for. Shares are of the phase, 0 to 1."""

    resource: str
    owner: str
    host: str
    serves: list[str]
    busy: float
    runqueue: float
    blocked: float
    saturated: float
    threshold: float
    full: bool
    blame: float
    named: bool


class Phase(msgspec.Struct):
    """One phase of the run."""

    phase: str
    benchmark: str
    state: str
    valid: bool
    start: float
    end: float | None
    seconds: float | None
    results: list[Figure]
    waits: dict[str, float]
    verdict: Judgement | None
    ranking: list[Ranked]
    unknown: list[Unknown]
    alerts: list[str] | None
    warnings: list[str]


class Change(msgspec.Struct):
    """A setting that differs from the run that this one is compared with."""

    origin: str
    name: str
    hosts: list[str]
    before: list[str]
    after: list[str]


class Document(msgspec.Struct):
    """A run."""

    schema: int
    run: str
    benchmark: str
    command: list[str]
    tags: dict[str, str]
    origin: str
    state: str
    reason: str
    valid: bool
    exit_status: int | None
    start: float
    end: float | None
    recorded: bool
    scores: list[Figure]
    hosts: list[Host]
    phases: list[Phase]
    against: str | None
    changed: list[Change]
    warnings: list[str]


def build(
    record: RunRecord,
    windows: Sequence[Window],
    known: Facts,
    *,
    state: str,
    recorded: bool,
    earlier: Settings | None = None,
    alerts: Sequence[Sequence[str] | None] = (),
    warnings: Iterable[str] = (),
) -> Document:
    """Return the document of a run.

    `windows` has the snapshots around each of its phases, `known` the settings of its hosts, `earlier` those of the run
    that it is compared with. `alerts` are those that fired in each phase, None where nobody was asked; without it, what
    is kept with the run.
    """
    marker = record.marker
    kept = [mark.alerts for mark in marker.phases]
    phases = [
        _phase(mark, window, fired, marker.benchmark, marker.run, recorded=recorded)
        for mark, window, fired in zip(marker.phases, windows, alerts or kept, strict=True)
    ]
    said = [*warnings]
    if recorded and not any(window.before for window in windows) and windows:
        said.append("the recording has no sample of any phase")
    changed = knobs([earlier], [settings(record, known)]) if earlier is not None else Knobs()
    if recorded:
        said += [f"what was changed is not fully known: {run} has no settings of hosts" for run in changed.unknown]
    return Document(
        SCHEMA,
        marker.run,
        marker.benchmark,
        record.command,
        marker.tags,
        record.origin,
        state,
        marker.reason,
        marker.valid,
        record.exit_status,
        marker.start,
        marker.end,
        recorded,
        _figures(marker.scores),
        [Host(host, facts) for host, facts in sorted(known.items())],
        phases,
        None if earlier is None else earlier.run,
        [
            Change(str(found.origin), found.name, list(found.hosts), list(found.base), list(found.other))
            for found in changed.differences
        ],
        said,
    )


def settings(record: RunRecord, known: Facts) -> Settings:
    """Return what the settings of a run are compared by."""
    return Settings(record.marker.run, record.marker.tags, record.command, known)


def _phase(
    mark: PhaseMark, window: Window, alerts: Sequence[str] | None, benchmark: str, run: str, *, recorded: bool
) -> Phase:
    name = mark.benchmark or benchmark
    end = window.end
    found = None
    warnings = _offsets(mark, window) if recorded else []
    if window.before and window.after:
        found = verdict(window.before, window.after, benchmark=name, run=run, seen=window.hottest)
    elif recorded:
        warnings.append("no samples: the recording has less than two moments of this phase")
    seconds = mark.seconds if mark.seconds is not None else None if end is None else max(0.0, end - mark.start)
    return Phase(
        mark.name,
        name,
        str(mark.state),
        mark.valid,
        mark.start,
        mark.end,
        None if seconds is None else round(seconds, 3),
        _figures(mark.results),
        {wait: round(share, DECIMALS) for wait, share in found.waits.items()} if found else {},
        _judgement(found) if found else None,
        _ranking(found) if found else [],
        _unknown(found) if found else [],
        None if alerts is None else list(alerts),
        warnings,
    )


def _offsets(mark: PhaseMark, window: Window) -> list[str]:
    """Return by how much the samples miss the phase, where that is much."""
    found = []
    for host in sorted(window.before.keys() & window.after.keys()):
        late = window.before[host].time - mark.start
        if abs(late) > OFF:
            found.append(f"samples of {host} begin {_beside(late, 'start')}")
        if mark.end is not None and abs(early := window.after[host].time - mark.end) > OFF:
            found.append(f"samples of {host} end {_beside(early, 'end')}")
    return found


def _beside(seconds: float, what: str) -> str:
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} the phase's {what}"


def _judgement(found: Verdict) -> Judgement:
    return Judgement(
        str(found.kind),
        found.words,
        str(found.confidence),
        list(found.doubts),
        found.margin,
        found.runbook,
        found.advice,
        list(found.evidence),
        list(found.innocent),
        list(found.blind),
        list(found.latency),
        list(found.no_role),
    )


def _unknown(found: Verdict) -> list[Unknown]:
    return [
        Unknown(hot.thread, hot.process, host, round(hot.busy, DECIMALS), round(hot.saturated, DECIMALS))
        for host, hot in found.unknown.items()
    ]


def _ranking(found: Verdict) -> list[Ranked]:
    named = set(found.limits)
    kept = [limit for limit in found.ranking if limit.full or limit in named or limit.blame >= LEAST]
    return [_ranked(limit, named=limit in named) for limit in kept[:RANKED]]


def _ranked(limit: Limit, *, named: bool) -> Ranked:
    return Ranked(
        limit.resource,
        limit.owner,
        limit.host,
        list(limit.serves),
        round(limit.busy, DECIMALS),
        round(limit.runqueue, DECIMALS),
        round(limit.blocked, DECIMALS),
        round(limit.saturated, DECIMALS),
        limit.threshold,
        limit.full,
        round(limit.blame, DECIMALS),
        named,
    )


def _figures(results: Iterable[Result]) -> list[Figure]:
    return [Figure(result.operation, result.unit, result.value, result.printed) for result in results]
