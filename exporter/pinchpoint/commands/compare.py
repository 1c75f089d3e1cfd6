"""``pinchpoint compare``: what changed between runs, phase by phase, and which changes exceed the noise."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import click
import msgspec

from pinchpoint.benchmarks.document import limit_document
from pinchpoint.commands.options import NumberRange, complete_runs
from pinchpoint.diagnosis.comparison import ComparedFigure, Comparison, GroupFigure, Move, RunGroup, compare
from pinchpoint.diagnosis.knobs import Difference, Settings
from pinchpoint.diagnosis.marks import Bottleneck
from pinchpoint.diagnosis.score import score_factors
from pinchpoint.runs import RunState
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.comparison import comparison_parts
from pinchpoint.terminal.plain import fail, say, show, warn
from pinchpoint.terminal.runs import standing
from pinchpoint.terminal.story import story_parts
from pinchpoint.text import printable

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("--brief", is_flag=True, help="Summarise each run in a few lines: what moved and what was changed.")
@click.option("--chain", is_flag=True, help="Compare each run with the one before it, in brief.")
@click.option(
    "--noise",
    type=NumberRange(0, 100),
    metavar="PERCENT",
    help="Known spread of repeats; smaller differences count as noise.",
)
@click.option(
    "--repeats",
    metavar="RUNS",
    help="Repeats of one configuration; the spread of each figure is used for all runs.",
)
@click.option("--all", "every", is_flag=True, help="Compare every figure, not only the main one of each phase.")
@click.argument("groups", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_runs)
def command(
    as_json: bool,
    brief: bool,
    chain: bool,
    noise: float | None,
    repeats: str | None,
    every: bool,
    groups: tuple[str, ...],
) -> None:
    """Compare runs phase by phase with the first one, and show which differences exceed the noise.

    A RUN is an id, its beginning, a name or a part of it, or "last"; see `pinchpoint runs`. Repeats of a run form
    a group: ids separated by commas, or a pattern in quotes, such as 'base*'. A difference has to exceed the spread of
    the group. With --chain, a single pattern is a chain of runs, oldest first.

    The output shows what limited each phase, if there is a verdict, and what differs in tags, command lines and host
    settings.
    """
    try:
        kept = store.runs(warn)
        chosen = [_group(text, store.select(text, kept)) for text in groups]
        if chain and len(groups) == 1:
            chosen = [_group(store.name_of(record.marker.run), [record]) for record in store.select(groups[0], kept)]
        reference = None if repeats is None else _group(repeats, store.select(repeats, kept))
    except StoreError as error:
        fail(str(error))
    if len(chosen) < 2:
        fail("name at least two runs or groups of runs; `pinchpoint runs` lists the saved ones", 2)
    for other in () if chain else chosen[1:]:
        same = {run.run for run in chosen[0].runs} & {run.run for run in other.runs}
        if same and len(chosen[0].runs) + len(other.runs) > 2:
            warn(f"{printable(min(same))} is in both groups: its figures count on both sides")
    if reference is not None and len(reference.runs) < 2:
        fail(f"--repeats {repeats} is one run: name at least two", 2)
    share = None if noise is None else noise / 100
    pairs = list(pairwise(chosen)) if chain else [(chosen[0], other) for other in chosen[1:]]
    comparisons = [compare(base, other, noise=share, reference=reference, every=every) for base, other in pairs]
    if as_json:
        say(json.dumps(_document(comparisons, share, reference), indent=2))
    else:
        show(*(story_parts if brief or chain else comparison_parts)(comparisons))
    if not any(row.base and row.other for comparison in comparisons for row in comparison.rows):
        fail("the runs have no figure in common: were other benchmarks run, or are there no results?")


def _group(label: str, records: list[RunRecord]) -> RunGroup:
    for record in records:
        record.marker.state = standing(record)
    settings = (
        Settings(record.marker.run, record.marker.tags, record.command, record.facts, record.note) for record in records
    )
    return RunGroup(label, tuple(record.marker for record in records), tuple(settings))


def _document(comparisons: list[Comparison], noise: float | None, reference: RunGroup | None) -> dict[str, Any]:
    return {
        "noise": noise,
        "repeats": None if reference is None else _group_document(reference),
        "base": _group_document(comparisons[0].base),
        "comparisons": [_comparison(found) for found in comparisons],
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    factors = score_factors(found)
    return {
        "base": found.base.label,
        "other": _group_document(found.other),
        "rows": [{**_row(row), "score_factor": factors.get(row.key)} for row in found.rows],
        "bottlenecks": [_move(move) for move in found.moves],
        "differences": [_difference(difference) for difference in found.knobs.differences],
        "facts_unknown": list(found.knobs.unknown),
    }


def _group_document(group: RunGroup) -> dict[str, Any]:
    notes = {settings.run: settings.note for settings in group.settings}
    return {"label": group.label, "runs": [{**_run(run), "note": notes.get(run.run, "")} for run in group.runs]}


def _run(run: RunState) -> dict[str, Any]:
    return {
        "run": run.run,
        "benchmark": run.benchmark,
        "state": str(run.state),
        "valid": run.valid,
        "reason": run.reason,
    }


def _row(row: ComparedFigure) -> dict[str, Any]:
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


def _figure(figure: GroupFigure | None) -> dict[str, Any] | None:
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


def _move(move: Move) -> dict[str, Any]:
    return {
        **move.place._asdict(),
        "base": _bottleneck(move.base),
        "other": _bottleneck(move.other),
        "moved": move.moved,
        "steps": [msgspec.structs.asdict(step) for step in move.steps],
    }


def _bottleneck(found: Bottleneck | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "kind": found.kind,
        "limits": [limit_document(limit) for limit in found.limits],
        "agreeing": found.agreeing,
        "runs": found.runs,
        "dissent": [
            {"kind": mark.kind, "limits": [limit_document(limit) for limit in mark.limits]} for mark in found.dissent
        ],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "origin": str(difference.origin),
        "name": difference.name,
        "base": list(difference.base),
        "other": list(difference.other),
        "hosts": list(difference.hosts),
        "varies": difference.varies,
    }
