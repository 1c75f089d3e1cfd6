"""``pinchpoint runs``: the saved runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from pinchpoint.benchmarks.document import run_document
from pinchpoint.benchmarks.events import State
from pinchpoint.commands.options import complete_runs
from pinchpoint.diagnosis.knobs import Settings
from pinchpoint.diagnosis.trend import MAX_TREND_RUNS, Trend, trends
from pinchpoint.runs import RunState
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, say, show, warn, width
from pinchpoint.terminal.runs import runs_table, standing
from pinchpoint.terminal.trend import trend_parts
from pinchpoint.text import counted

__all__ = ["command"]

MAX_DOUBTED_RUNS = 8
"""Runs that a line names: the last ones."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print all data about the runs as JSON; with --trend its levels.")
@click.option(
    "--trend",
    metavar="NAME",
    shell_complete=complete_runs,
    help="Show when the results of the runs with this name, or of a pattern or list of runs, changed.",
)
def command(as_json: bool, trend: str | None) -> None:
    """List the saved runs, oldest first.

    `pinchpoint run` and `pinchpoint import` save each run in a directory under $XDG_STATE_HOME/pinchpoint/runs. You can
    delete these directories.
    """
    try:
        records = store.runs(warn)
    except StoreError as error:
        fail(str(error))
    if trend is not None:
        _trend(trend, records, as_json=as_json)
    elif as_json:
        say(json.dumps({"runs": [_document(record) for record in records]}, indent=2))
    elif records:
        show(runs_table(records, width()))
    else:
        say("no run is saved yet: `pinchpoint run` and `pinchpoint import` save them")


def _trend(text: str, records: list[RunRecord], *, as_json: bool) -> None:
    chosen = [record for record in records if store.name_of(record.marker.run) == text]
    try:
        chosen = chosen or store.select(text, records)
    except StoreError as error:
        fail(str(error))
    left_out = len(chosen) - MAX_TREND_RUNS
    chosen = chosen[-MAX_TREND_RUNS:]
    runs = [record.marker for record in chosen]
    found = trends(runs)
    if as_json:
        say(json.dumps({"runs": [run.run for run in runs], "figures": [_figure(one, runs) for one in found]}, indent=2))
        return
    if not found:
        fail(f"{text}: the runs have no results")
    if left_out > 0:
        say(f"the last {MAX_TREND_RUNS} of {MAX_TREND_RUNS + left_out} runs")
    if bad := [f"{one.marker.run} ({words})" for one in chosen if (words := _doubt(one))]:
        say(f"{counted(len(bad), 'run')} did not end well, and count too: {', '.join(bad[-MAX_DOUBTED_RUNS:])}")
    settings = [Settings(one.marker.run, one.marker.tags, one.command, one.facts, one.note) for one in chosen]
    show(*trend_parts(found, runs, settings))


def _doubt(record: RunRecord) -> str:
    """Return what speaks against the results of a run; empty if nothing does, or if there are none."""
    marker, state = record.marker, standing(record)
    if not marker.scores and not any(mark.results for mark in marker.phases):
        return ""
    valid = marker.valid and all(mark.valid for mark in marker.phases)
    return state if state != State.FINISHED else "" if valid else "invalid"


def _figure(trend: Trend, runs: Sequence[RunState]) -> dict[str, Any]:
    return {
        **trend.key._asdict(),
        "levels": [
            {
                "first": runs[level.first].run,
                "start": runs[level.first].start,
                "mean": level.mean,
                "values": level.values,
            }
            for level in trend.levels
        ],
    }


def _document(record: RunRecord) -> dict[str, Any]:
    marker = record.marker
    return {
        "run": marker.run,
        "start": marker.start,
        "end": marker.end,
        **run_document(marker),
        "state": standing(record),
        "tags": marker.tags,
        "command": record.command,
        "exit_status": record.exit_status,
        "origin": record.origin,
        "note": record.note,
        "facts": record.facts,
    }
