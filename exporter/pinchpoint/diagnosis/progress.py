"""The benchmark runs in a snapshot, and their progress."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pinchpoint.benchmarks.events import FINAL_STATES
from pinchpoint.diagnosis.series import label, series
from pinchpoint.metrics import (
    PHASE_ACTIVE,
    PHASE_ELAPSED_SECONDS,
    PHASE_EXPECTED_SECONDS,
    PHASE_NUMBER,
    PHASE_PROGRESS_RATIO,
    PHASE_RATE,
    PHASE_RESULT,
    PHASE_STALLED_SECONDS,
    PHASE_START_TIMESTAMP_SECONDS,
    RUN_BLIND_INFO,
    RUN_PHASES,
    RUN_SCORE,
    RUN_START_TIMESTAMP_SECONDS,
    RUN_STATE,
    RUN_VALID,
)
from pinchpoint.model import Labels, Metric, Snapshot
from pinchpoint.runs import Result

__all__ = ["WALLED", "ActivePhase", "Run", "active_phases", "current_runs"]

WALLED = frozenset({"io500", "ior", "mdtest"})
"""Benchmarks whose phases have an expected time only where that is a stonewall (-D, -W). What comes after it is a tail:
each rank goes on until it has done as much as the fastest one (``stoneWallingWearOut``, src/ior.c)."""
RECENT_END_SECONDS = 60.0
"""Seconds for which a run that has ended is still of interest."""


class ActivePhase(msgspec.Struct, frozen=True):
    """A phase of a benchmark run in progress."""

    benchmark: str
    run: str
    phase: str
    start: float | None
    """Unix time in seconds."""
    number: int | None = None
    """Its position in the run, from 1."""
    total: int | None = None
    """Number of phases that the run will have."""
    progress: float | None = None
    """Share that is done, 0 to 1."""
    expected: float | None = None
    """Expected duration in seconds."""
    elapsed: float | None = None
    """Seconds since it began, by the clock of its host."""
    stalled: float | None = None
    """Seconds without progress; None if its work can't be seen."""
    rates: tuple[Result, ...] = ()
    """Its current rate, as last printed by the benchmark."""

    @property
    def tail(self) -> float | None:
        """Seconds since its stonewall; None before it, and for a phase without one."""
        if self.benchmark not in WALLED or self.expected is None or self.elapsed is None:
            return None
        return self.elapsed - self.expected if self.elapsed > self.expected else None


class Run(msgspec.Struct, frozen=True):
    """A benchmark run that is in progress or has just ended."""

    benchmark: str
    run: str
    state: str
    """``running``, ``syncing``, ``paused`` and so on: what `pinchpoint_run_state` says."""
    start: float | None
    """Unix time in seconds."""
    phases: tuple[ActivePhase, ...] = ()
    """The phases in progress."""
    results: tuple[tuple[str, Result], ...] = ()
    """The ended phases with their main results, oldest first; then the score."""
    valid: bool = True
    """False if the benchmark calls a result invalid."""
    blind: tuple[str, ...] = ()
    """What the exporter lacks permission to read."""
    end: float | None = None
    """Unix time in seconds; None while in progress."""


def active_phases(snapshot: Snapshot) -> tuple[ActivePhase, ...]:
    """Return the phases in progress, oldest first."""
    active = [labels for labels, value in series(snapshot, PHASE_ACTIVE) if value]
    if not active:
        return ()  # as on most hosts

    def figures(metric: Metric) -> dict[Labels, float]:
        return dict(series(snapshot, metric))

    starts, numbers, progress = (
        figures(PHASE_START_TIMESTAMP_SECONDS),
        figures(PHASE_NUMBER),
        figures(PHASE_PROGRESS_RATIO),
    )
    expected, stalled, elapsed = map(figures, (PHASE_EXPECTED_SECONDS, PHASE_STALLED_SECONDS, PHASE_ELAPSED_SECONDS))
    totals = {_run(labels): int(total) for labels, total in series(snapshot, RUN_PHASES)}
    rates: dict[tuple[str, str], list[Result]] = {}
    for labels, rate in series(snapshot, PHASE_RATE):
        result = Result(label(labels, "operation"), label(labels, "unit"), rate)
        rates.setdefault((label(labels, "run"), label(labels, "phase")), []).append(result)
    found = []
    for labels in active:
        benchmark, run, phase = (label(labels, name) for name in ("benchmark", "run", "phase"))
        found.append(
            ActivePhase(
                benchmark=benchmark,
                run=run,
                phase=phase,
                start=starts.get(labels),
                number=int(numbers[labels]) if labels in numbers else None,
                total=totals.get(run),
                progress=progress.get(labels),
                expected=expected.get(labels),
                elapsed=elapsed.get(labels),
                stalled=stalled.get(labels),
                rates=tuple(sorted(rates.get((run, phase), ()), key=_main)),
            )
        )
    return tuple(sorted(found, key=lambda phase: (phase.start or 0.0, phase.benchmark, phase.run, phase.phase)))


def _run(labels: Labels) -> str:
    return label(labels, "run")


def _main(result: Result) -> tuple[int, float, str]:
    """Sort results by importance: throughput before operations before all others, the largest first."""
    units = ("bytes_per_second", "operations_per_second", "seconds")
    return units.index(result.unit) if result.unit in units else len(units), -result.value, result.operation


def current_runs(snapshot: Snapshot, phases: Sequence[ActivePhase]) -> tuple[Run, ...]:
    """Return the runs in progress or ended less than `RECENT_END_SECONDS` ago, oldest first; `phases` are active."""
    starts = {_run(labels): start for labels, start in series(snapshot, RUN_START_TIMESTAMP_SECONDS)}
    valid = {_run(labels): bool(value) for labels, value in series(snapshot, RUN_VALID)}
    begins = dict(series(snapshot, PHASE_START_TIMESTAMP_SECONDS))
    ends: dict[str, float] = {}
    order: dict[tuple[str, str], float] = {}
    for labels, elapsed in series(snapshot, PHASE_ELAPSED_SECONDS):
        begin = begins.get(labels, 0.0)
        order[_run(labels), label(labels, "phase")] = begin
        ends[_run(labels)] = max(begin + elapsed, ends.get(_run(labels), 0.0))
    results: dict[tuple[str, str], Result] = {}
    for labels, value in series(snapshot, PHASE_RESULT):
        key = _run(labels), label(labels, "phase")
        result = Result(label(labels, "operation"), label(labels, "unit"), value)
        results[key] = min(results.get(key, result), result, key=_main)
    scores: dict[str, Result] = {}
    for labels, value in series(snapshot, RUN_SCORE):
        if label(labels, "unit") == "score":
            scores[_run(labels)] = Result("score", "score", value)
    blind: dict[str, list[str]] = {}
    for labels, _ in series(snapshot, RUN_BLIND_INFO):
        blind.setdefault(_run(labels), []).append(label(labels, "what"))
    found = []
    for labels, present in series(snapshot, RUN_STATE):
        run, state = _run(labels), label(labels, "state")
        end = ends.get(run, starts.get(run, 0.0)) if state in FINAL_STATES else None
        if not present or (end is not None and snapshot.time - end > RECENT_END_SECONDS):
            continue
        done = sorted((key for key in results if key[0] == run), key=lambda key: order.get(key, 0.0))
        named = [(phase, results[run, phase]) for _, phase in done]
        if run in scores:
            named.append(("score", scores[run]))
        own = tuple(phase for phase in phases if phase.run == run)
        kept = tuple(sorted(blind.get(run, ())))
        benchmark, start = label(labels, "benchmark"), starts.get(run)
        found.append(
            Run(
                benchmark=benchmark,
                run=run,
                state=state,
                start=start,
                phases=own,
                results=tuple(named),
                valid=valid.get(run, True),
                blind=kept,
                end=end,
            )
        )
    return tuple(sorted(found, key=lambda run: (run.start or 0.0, run.run)))
