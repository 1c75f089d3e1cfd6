"""``pinchpoint compare``: what changed between runs, phase by phase, and what of it is more than noise."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from pinchpoint import store
from pinchpoint.diagnosis.comparison import Comparison, Figure, Group, Row, compare
from pinchpoint.runs import RunState
from pinchpoint.store import RunRecord, StoreError
from pinchpoint.terminal.comparison import comparison_parts
from pinchpoint.terminal.plain import fail, say, show, warn
from pinchpoint.terminal.runs import standing

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option(
    "--noise",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Spread that repeats are known to have: a smaller difference is noise.",
)
@click.option("--all", "every", is_flag=True, help="Compare every figure, not only the main one of each phase.")
@click.argument("groups", nargs=-1, required=True, metavar="RUN...")
def command(as_json: bool, noise: float | None, every: bool, groups: tuple[str, ...]) -> None:
    """Compare runs phase by phase with the first one, and say what is more than noise.

    A RUN is an id, its beginning, a name, or "last"; see `pinchpoint runs`. Repeats of a run make a group: ids with
    commas between them, or a pattern in quotes, such as 'base*'. Their spread is what a difference has to exceed.
    """
    if len(groups) < 2:
        fail("two runs or groups of runs are compared; `pinchpoint runs` lists those that are kept", 2)
    if noise is not None and not math.isfinite(noise):
        fail(f"--noise {noise} is no percentage", 2)
    try:
        kept = store.runs(warn)
        chosen = [_group(text, store.select(text, kept)) for text in groups]
    except StoreError as error:
        fail(str(error))
    base, *others = chosen
    share = None if noise is None else noise / 100
    comparisons = [compare(base, other, noise=share, every=every) for other in others]
    if as_json:
        say(json.dumps(_document(comparisons, share), indent=2))
    else:
        show(*comparison_parts(comparisons))
    if not any(row.base and row.other for comparison in comparisons for row in comparison.rows):
        fail("the runs have no figure in common: were other benchmarks run, or are there no results?")


def _group(label: str, records: list[RunRecord]) -> Group:
    for record in records:
        record.marker.state = standing(record)
    return Group(label, tuple(record.marker for record in records))


def _document(comparisons: list[Comparison], noise: float | None) -> dict[str, Any]:
    return {
        "noise": noise,
        "base": _group_document(comparisons[0].base),
        "comparisons": [
            {"other": _group_document(found.other), "rows": [_row(row) for row in found.rows]} for found in comparisons
        ],
    }


def _group_document(group: Group) -> dict[str, Any]:
    return {"label": group.label, "runs": [_run(run) for run in group.runs]}


def _run(run: RunState) -> dict[str, Any]:
    return {
        "run": run.run,
        "benchmark": run.benchmark,
        "state": str(run.state),
        "valid": run.valid,
        "reason": run.reason,
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "benchmark": row.key.benchmark,
        "phase": row.key.phase or None,
        "occurrence": row.key.occurrence,
        "operation": row.key.operation,
        "unit": row.key.unit,
        "base": _figure(row.base),
        "other": _figure(row.other),
        "change": row.change,
        "noise": row.noise,
        "interval": None if row.interval is None else list(row.interval),
        "verdict": str(row.verdict),
        "marks": list(row.marks),
    }


def _figure(figure: Figure | None) -> dict[str, Any] | None:
    if figure is None:
        return None
    return {
        "mean": figure.mean,
        "values": list(figure.values),
        "spread": figure.spread,
        "seconds": figure.seconds,
        "invalid": figure.invalid,
        "failed": figure.failed,
    }
