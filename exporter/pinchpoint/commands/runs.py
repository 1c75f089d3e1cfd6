"""``pinchpoint runs``: the saved runs."""

from __future__ import annotations

import json
from typing import Any

import click

from pinchpoint.benchmarks.document import run_document
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, say, show, warn, width
from pinchpoint.terminal.runs import runs_table, standing

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print all data about the runs as JSON.")
def command(as_json: bool) -> None:
    """List the saved runs, oldest first.

    `pinchpoint run` and `pinchpoint import` save each run in a directory under $XDG_STATE_HOME/pinchpoint/runs. You can
    delete these directories.
    """
    try:
        records = store.runs(warn)
    except StoreError as error:
        fail(str(error))
    if as_json:
        say(json.dumps({"runs": [_document(record) for record in records]}, indent=2))
    elif records:
        show(runs_table(records, width()))
    else:
        say("no run is saved yet: `pinchpoint run` and `pinchpoint import` save them")


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
