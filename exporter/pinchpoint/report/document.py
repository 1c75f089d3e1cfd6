"""A run as one document: what a terminal and a browser show, and what `pinchpoint report --json` prints of it.

docs/report.md describes every key of the JSON. Adding one does not change `REPORT_SCHEMA`; removing one or changing its
meaning does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pinchpoint.benchmarks.io500_detail import PhaseDetail
from pinchpoint.diagnosis.chains import WaitGraph
from pinchpoint.diagnosis.costs import Cost
from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.knobs import Knobs, Settings, knobs
from pinchpoint.diagnosis.marks import STEP_DECIMALS
from pinchpoint.diagnosis.tail import planned_tail
from pinchpoint.diagnosis.verdict import Limit, Verdict, judge_phase
from pinchpoint.diagnosis.waterfall import Waterfall
from pinchpoint.diagnosis.window import Window
from pinchpoint.report.folder import DocumentFolder, DocumentTail, folder_document, tail_document
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.session.store import RunRecord

__all__ = [
    "REPORT_SCHEMA",
    "Document",
    "DocumentFigure",
    "DocumentHost",
    "DocumentPhase",
    "DocumentStage",
    "SettingChange",
    "StageWindow",
    "build",
    "document_json",
    "ranking",
    "settings",
    "verdict_json",
]

REPORT_SCHEMA = 1
MAX_RANKED = 20
"""Maximum number of resources per phase: a cluster has hundreds that serve the OSDs."""
MIN_BLAME = 0.001
"""Blame below which a resource that is not full is left out."""
MAX_OFF_SECONDS = 2.0
"""Seconds of a phase's start or end that samples may miss without a warning."""
SHARE_DECIMALS = 4
"""Digits of a share: samples are not more exact."""
RATE_DECIMALS = 1
NO_VERDICT: dict[str, Any] = {
    "waits": {},
    "verdict": None,
    "waterfalls": [],
    "costs": [],
    "graph": None,
    "ranking": [],
    "unknown": [],
}


class DocumentFigure(msgspec.Struct):
    """One figure of a benchmark."""

    operation: str
    unit: str
    value: float
    printed: str


class DocumentHost(msgspec.Struct):
    """A measured host and its settings."""

    host: str
    facts: dict[str, list[str]]


class DocumentStage(msgspec.Struct, kw_only=True):
    """The part of a phase until its stonewall, or its tail."""

    stage: str
    start: float
    end: float
    verdict: str
    """Its kind; empty without samples."""
    words: str


class DocumentPhase(msgspec.Struct, kw_only=True):
    """One phase of the run."""

    phase: str
    benchmark: str
    state: str
    valid: bool
    start: float
    end: float | None
    seconds: float | None
    results: list[DocumentFigure]
    verdict: Verdict | None
    alerts: list[str] | None
    warnings: list[str]
    tail: DocumentTail | None
    stages: list[DocumentStage]


class SettingChange(msgspec.Struct):
    """A setting that differs from the run it is compared with."""

    origin: str
    name: str
    hosts: list[str]
    before: list[str]
    after: list[str]


class Document(msgspec.Struct, kw_only=True):
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
    scores: list[DocumentFigure]
    hosts: list[DocumentHost]
    phases: list[DocumentPhase]
    against: str | None
    changed: list[SettingChange]
    warnings: list[str]
    folder: DocumentFolder | None


class StageWindow(NamedTuple):
    """A stage of a phase and its samples."""

    stage: str
    start: float
    end: float
    window: Window


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
    stages: Mapping[int, Sequence[StageWindow]] = {},
) -> Document:
    """Return the document of a run.

    `windows` has the snapshots around each of its phases, `known` the settings of its hosts, `earlier` those of the run
    that it is compared with. `alerts` are those that fired in each phase, None if no server was asked; without it,
    those saved with the run. `stages` has those of each phase that has any, by its place.
    """
    marker = record.marker
    kept = [mark.alerts for mark in marker.phases]
    phases = [
        _phase(mark, window, fired, marker.benchmark, marker.run, recorded=recorded)
        for mark, window, fired in zip(marker.phases, windows, alerts or kept, strict=True)
    ]
    folder = None if record.folder is None else folder_document(record.folder, marker)
    for place, phase in enumerate(phases):
        phase.tail = None if folder is None else folder.tails.get(phase.phase)
        if phase.tail is None and (tail := planned_tail(marker.phases[place], phase.benchmark)) is not None:
            phase.tail = tail_document(phase.phase, tail, PhaseDetail(phase.phase))
        phase.stages = [_stage(one, phase.benchmark, marker.run) for one in stages.get(place, ())]
    said = [*warnings]
    if recorded and not any(window.before for window in windows) and windows:
        said.append("the recording has no sample of any phase")
    changed = knobs([earlier], [settings(record, known)]) if earlier is not None else Knobs()
    if recorded:
        said += [f"what was changed is not fully known: {run} has no settings of hosts" for run in changed.unknown]
    return Document(
        schema=REPORT_SCHEMA,
        run=marker.run,
        benchmark=marker.benchmark,
        command=record.command,
        tags=marker.tags,
        origin=record.origin,
        state=state,
        reason=marker.reason,
        valid=marker.valid,
        exit_status=record.exit_status,
        start=marker.start,
        end=marker.end,
        recorded=recorded,
        scores=_figures(marker.scores),
        hosts=[DocumentHost(host, facts) for host, facts in sorted(known.items())],
        phases=phases,
        against=None if earlier is None else earlier.run,
        changed=[
            SettingChange(str(found.origin), found.name, list(found.hosts), list(found.base), list(found.other))
            for found in changed.differences
        ],
        warnings=said,
        folder=folder,
    )


def _stage(found: StageWindow, benchmark: str, run: str) -> DocumentStage:
    window = found.window
    verdict = None
    if window.before and window.after:
        _, verdict = judge_phase(window, benchmark=benchmark, run=run, seen=window.hottest)
    return DocumentStage(
        stage=found.stage,
        start=found.start,
        end=found.end,
        verdict="" if verdict is None else str(verdict.kind),
        words="no samples" if verdict is None else verdict.words,
    )


def settings(record: RunRecord, known: Facts) -> Settings:
    """Return a run's settings for the comparison."""
    return Settings(record.marker.run, record.marker.tags, record.command, known)


def _phase(
    mark: PhaseMark, window: Window, alerts: Sequence[str] | None, benchmark: str, run: str, *, recorded: bool
) -> DocumentPhase:
    name = mark.benchmark or benchmark
    end = window.end
    found = None
    warnings = _offsets(mark, window) if recorded else []
    if window.before and window.after:
        _, found = judge_phase(window, benchmark=name, run=run, seen=window.hottest)
    elif recorded:
        warnings.append("no samples: the recording has less than two moments of this phase")
    seconds = mark.seconds if mark.seconds is not None else None if end is None else max(0.0, end - mark.start)
    return DocumentPhase(
        phase=mark.name,
        benchmark=name,
        state=str(mark.state),
        valid=mark.valid,
        start=mark.start,
        end=mark.end,
        seconds=None if seconds is None else round(seconds, 3),
        results=_figures(mark.results),
        verdict=found,
        alerts=None if alerts is None else list(alerts),
        warnings=warnings,
        tail=None,
        stages=[],
    )


def _offsets(mark: PhaseMark, window: Window) -> list[str]:
    """Return by how much the samples miss the phase, if that matters."""
    found = []
    for host in sorted(window.before.keys() & window.after.keys()):
        late = window.before[host].time - mark.start
        if abs(late) > MAX_OFF_SECONDS:
            found.append(f"samples of {host} begin {_beside(late, 'start')}")
        if mark.end is not None and abs(early := window.after[host].time - mark.end) > MAX_OFF_SECONDS:
            found.append(f"samples of {host} end {_beside(early, 'end')}")
    return found


def _beside(seconds: float, what: str) -> str:
    return f"{abs(seconds):.1f} s {'after' if seconds > 0 else 'before'} the phase's {what}"


def _figures(results: Iterable[Result]) -> list[DocumentFigure]:
    return [DocumentFigure(result.operation, result.unit, result.value, result.printed) for result in results]


def document_json(document: Document) -> dict[str, Any]:
    """Return the document as plain data, as docs/report.md describes it."""
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(document, phases=[]))
    return {**found, "phases": [_phase_json(phase) for phase in document.phases]}


def _phase_json(phase: DocumentPhase) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(phase, verdict=None))
    return {**found, **(NO_VERDICT if phase.verdict is None else verdict_json(phase.verdict))}


def verdict_json(found: Verdict) -> dict[str, Any]:
    """Return a verdict as plain data, with the shares and the ranking behind it."""
    return {
        "waits": {wait: round(share, SHARE_DECIMALS) for wait, share in found.waits.items()},
        "verdict": {
            "kind": str(found.kind),
            "words": found.words,
            "confidence": str(found.confidence),
            "doubts": list(found.doubts),
            "margin": found.margin,
            "runbook": found.runbook,
            "advice": found.advice,
            "evidence": list(found.evidence),
            "innocent": list(found.innocent),
            "blind": list(found.blind),
            "latency": list(found.latency),
            "no_role": list(found.no_role),
            "peers": list(found.peers),
            "ranks": list(found.ranks),
            "straggler": found.straggler,
        },
        "waterfalls": [_waterfall_json(fall) for fall in found.waterfalls],
        "costs": [_cost_json(cost) for cost in found.costs],
        "graph": None if found.graph is None else _graph_json(found.graph),
        "ranking": [_limit_json(limit, named=named) for limit, named in ranking(found)],
        "unknown": [
            {
                "thread": hot.thread,
                "process": hot.process,
                "host": host,
                "busy": round(hot.busy, SHARE_DECIMALS),
                "saturated": round(hot.saturated, SHARE_DECIMALS),
            }
            for host, hot in found.unknown
        ],
    }


def _waterfall_json(found: Waterfall) -> dict[str, Any]:
    return {
        "operation": found.operation,
        "daemon": found.daemon,
        "rate": round(found.rate, RATE_DECIMALS),
        "seconds": round(found.seconds, STEP_DECIMALS),
        "steps": [{"name": step.name, "seconds": round(step.seconds, STEP_DECIMALS)} for step in found.steps],
    }


def _cost_json(found: Cost) -> dict[str, Any]:
    return {
        "resource": found.resource,
        "owner": found.owner,
        "host": found.host,
        "samples": found.samples,
        "shares": {cost: round(share, SHARE_DECIMALS) for cost, share in found.shares.items()},
    }


def _graph_json(found: WaitGraph) -> dict[str, Any]:
    places = {step.node: place for place, step in enumerate(found.steps)}
    return {
        "nodes": [
            {
                "owner": step.node.owner,
                "role": step.node.role,
                "share": round(step.share, SHARE_DECIMALS),
                "kinds": {str(kind): round(share, SHARE_DECIMALS) for kind, share in step.kinds.items()},
            }
            for step in found.steps
        ],
        "passed": [
            {"waker": places[one.waker], "woken": places[one.woken], "share": round(one.share, SHARE_DECIMALS)}
            for one in found.passed
        ],
        "heaviest": found.heaviest,
    }


def ranking(found: Verdict) -> list[tuple[Limit, bool]]:
    """Return the resources of a verdict worth showing, most blamed first, and whether it names them."""
    named = set(found.limits)
    kept = [limit for limit in found.ranking if limit.full or limit in named or limit.blame >= MIN_BLAME]
    return [(limit, limit in named) for limit in kept[:MAX_RANKED]]


def _limit_json(limit: Limit, *, named: bool) -> dict[str, Any]:
    return {
        "resource": limit.resource,
        "owner": limit.owner,
        "host": limit.host,
        "serves": list(limit.serves),
        "busy": round(limit.busy, SHARE_DECIMALS),
        "runqueue": round(limit.runqueue, SHARE_DECIMALS),
        "blocked": round(limit.blocked, SHARE_DECIMALS),
        "saturated": round(limit.saturated, SHARE_DECIMALS),
        "threshold": limit.threshold,
        "full": limit.full,
        "blame": round(limit.blame, SHARE_DECIMALS),
        "named": named,
    }
