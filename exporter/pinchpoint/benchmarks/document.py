"""A run and its phases as plain JSON data, the same wherever one is printed (docs/results.md describes it)."""

from __future__ import annotations

from typing import Any

from pinchpoint.runs import LimitMark, PhaseMark, Result, RunState

__all__ = ["limit_document", "phase_document", "run_document"]


def run_document(state: RunState, zero: float | None = None) -> dict[str, Any]:
    """Return a run; `zero` is the Unix time from which its times are counted; None omits times."""
    return {
        "benchmark": state.benchmark,
        "state": str(state.state),
        "reason": state.reason,
        "valid": state.valid,
        "score": state.scores[-1].value if state.scores else None,
        "scores": [_result(result) for result in state.scores],
        "phases": [phase_document(mark, state.benchmark, zero) for mark in state.phases],
    }


def phase_document(mark: PhaseMark, benchmark: str, zero: float | None = None) -> dict[str, Any]:
    """Return a phase of a run of `benchmark`; see `run_document`."""
    main = mark.results[0] if mark.results else None
    document: dict[str, Any] = {
        "phase": mark.name,
        "benchmark": mark.benchmark or benchmark,
        "state": str(mark.state),
        "value": main.value if main else None,
        "unit": main.unit if main else None,
        "printed": main.printed if main else None,
        "seconds": mark.seconds,
        "valid": mark.valid,
        "results": [_result(result) for result in mark.results],
    }
    if mark.verdict is not None:
        limits = [limit_document(limit) for limit in mark.verdict.limits]
        document["verdict"] = {"kind": mark.verdict.kind, "limits": limits}
    if zero is not None:
        document["source"] = str(mark.source)
        document["start"] = round(mark.start - zero, 3)
        document["end"] = None if mark.end is None else round(mark.end - zero, 3)
    return document


def limit_document(limit: LimitMark) -> dict[str, Any]:
    """Return a resource that a verdict names."""
    return {"resource": limit.resource, "owner": limit.owner, "blame": limit.blame}


def _result(result: Result) -> dict[str, Any]:
    return {
        "operation": result.operation,
        "unit": result.unit,
        "value": result.value,
        "printed": result.printed,
    }
