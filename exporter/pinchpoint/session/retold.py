"""A saved run as moments: what an exporter showed of its phases, results and score during the run.

Imported runs have nothing else. For runs with samples, it adds what these lack: the benchmark's last output comes after
the last sample, and verdicts after a phase.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from pinchpoint.benchmarks.events import FINAL_STATES, State
from pinchpoint.diagnosis.comparison import main_figures
from pinchpoint.diagnosis.trend import trends
from pinchpoint.metrics import (
    PHASE_VERDICT_INFO,
    RESULT_LEVEL,
    RESULT_LEVEL_CHANGE_RATIO,
    RESULT_LEVEL_START,
    RUN_FACT_HOSTS,
)
from pinchpoint.model import Point, Snapshot, Snapshots
from pinchpoint.probes.benchmark import as_label, run_points
from pinchpoint.runs import OWN_TAGS, PhaseMark, RunState
from pinchpoint.session.store import RunRecord

__all__ = ["NOWHERE", "TAIL_SECONDS", "end_of", "level_points", "retold"]

NOWHERE = ""
"""The host of runs that were measured on none."""
MOMENT_INTERVAL_SECONDS = 15.0
"""Seconds between two moments: half of the time for which the stack's Prometheus shows a sample (compose/native.py)."""
TAIL_SECONDS = 60.0
"""Seconds for which a run is shown after its end."""
MAX_RUN_MOMENTS = 100_000
"""Maximum moments of a run besides its phases' own: 17 days at that pace; a text may say anything."""
MAX_VALUE_CHARACTERS = 128
"""Longest tag or note that is shown, in characters."""


def end_of(state: RunState) -> float:
    """Return when a run ended, or the last known time of one without an end, in Unix seconds."""
    if state.end is not None:
        return state.end
    known = [time for mark in state.phases for time in (mark.start, mark.end, mark.moved) if time is not None]
    return max([state.start, *known])


def retold(record: RunRecord, final: str, levels: Sequence[Point] = ()) -> Iterator[Snapshots]:
    """Yield the moments of a run, from its start to `TAIL_SECONDS` after its end, when it is in the state `final`.

    The points of `levels` come at its end.
    """
    marker = record.marker
    last = end_of(marker)
    edges = {time for mark in marker.phases for time in (mark.start, mark.end) if time is not None}
    length = max(0.0, last + TAIL_SECONDS - marker.start)
    pace = max(MOMENT_INTERVAL_SECONDS, length / MAX_RUN_MOMENTS)
    steps = {marker.start + number * pace for number in range(int(length / pace) + 1)}
    facts = list(_facts(record))
    for now in sorted({*edges, *steps, last}):
        known = _known(marker, now, last, final)
        ended = levels if now >= last else ()
        yield {NOWHERE: Snapshot.of(now, [*run_points(known, now), *_verdicts(marker, now, last), *facts, *ended])}


def _known(state: RunState, now: float, last: float, final: str) -> RunState:
    """Return what is known about a run at a moment."""
    phases = [_phase(mark, now, last) for mark in state.phases if mark.start <= now]
    if now >= last:
        stands = State(final) if final in FINAL_STATES else State.FAILED
        scores, valid = state.scores, state.valid
    else:
        active = any(mark.end is None for mark in phases)
        stands = State.RUNNING if active else State.BETWEEN if phases else State.SETUP
        scores, valid = [], True
    return RunState(
        state.run, state.benchmark, state.start, state=stands, phases=phases, total=state.total, scores=scores,
        valid=valid, blind=state.blind,
    )  # fmt: skip


def _phase(mark: PhaseMark, now: float, last: float) -> PhaseMark:
    end = _end(mark, last)
    if now >= end:
        return msgspec.structs.replace(mark, end=end)
    return PhaseMark(
        mark.name, mark.start, None, benchmark=mark.benchmark, source=mark.source, expected=mark.expected,
        number=mark.number,
    )  # fmt: skip


def _end(mark: PhaseMark, last: float) -> float:
    return last if mark.end is None else mark.end


def _verdicts(state: RunState, now: float, last: float) -> Iterator[Point]:
    """Yield what limited the phases that have ended, as the judge's metrics."""
    ended = {(mark.benchmark, mark.name): mark for mark in state.phases if now >= _end(mark, last)}
    for mark in ended.values():
        if (found := mark.verdict) is None:
            continue
        labels = [as_label(text) for text in (mark.benchmark or state.benchmark, state.run, mark.name, found.kind)]
        for resource, owner in [(limit.resource, limit.owner) for limit in found.limits] or [("", "")]:
            yield PHASE_VERDICT_INFO.point(1, *labels, resource, owner, NOWHERE, found.confidence)


def level_points(runs: Sequence[RunState], shifts: Sequence[float]) -> dict[str, list[Point]]:
    """Return the levels of the results of repeated runs, in order of time, by the run's id.

    Each run is told later by so many seconds; the points are those before that.
    """
    found: dict[str, list[Point]] = {run.run: [] for run in runs}
    # Of phases with one name, the last is shown (`run_points`).
    known = [{*{key.phase: key for key in main_figures(run)}.values()} for run in runs]
    for trend in trends(runs):
        key, changes = trend.key, dict(trend.changes)
        borders = [*(level.first for level in trend.levels), len(runs)]
        for level, (first, end) in zip(trend.levels, pairwise(borders), strict=True):
            start = runs[first].start + shifts[first]
            for place in (place for place in range(first, end) if key in known[place]):
                run = runs[place].run
                labels = [as_label(text) for text in (key.benchmark, run, key.phase, key.operation, key.unit)]
                found[run].append(RESULT_LEVEL.point(level.mean, *labels))
                found[run].append(RESULT_LEVEL_START.point(start - shifts[place], *labels))
                if first in changes:
                    found[run].append(RESULT_LEVEL_CHANGE_RATIO.point(1 + changes[first], *labels))
    return found


def _facts(record: RunRecord) -> Iterator[Point]:
    """Yield on how many hosts a setting had a value; tags and the note belong to the run itself."""
    run = record.marker.run
    hosts = Counter(
        (fact, value) for facts in record.facts.values() for fact, values in facts.items() for value in values
    )
    own = {f"tag:{key}": value for key, value in record.marker.tags.items() if key not in OWN_TAGS}
    if record.note:
        own["note"] = record.note
    for (fact, value), number in hosts.items():
        yield RUN_FACT_HOSTS.point(number, run, fact, value)
    for fact, value in own.items():
        yield RUN_FACT_HOSTS.point(
            1, run, fact, value if len(value) <= MAX_VALUE_CHARACTERS else f"{value[: MAX_VALUE_CHARACTERS - 3]}..."
        )
