"""Runs in one line each: their state, and the figure that people quote."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from pinchpoint.benchmarks.events import FINAL_STATES, State, ended_as
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.figures import bare_figure
from pinchpoint.runs import HASH_TAG, RunState
from pinchpoint.session.store import RunRecord
from pinchpoint.text import printable

__all__ = ["headline", "runs_table", "standing"]

DIED = "died"
"""The state of a run without a recorded end: its `pinchpoint run` was killed, or the host went down."""
ELSEWHERE = "elsewhere"
"""The state of a run without a recorded end that another host began: only there is known whether it still runs."""
MIN_TAGS_COLUMNS = 120
"""Columns from which tags have their own column."""
BESIDE_ID_COLUMNS = 52
"""Columns reserved for what is beside the ids."""
MIN_ID_COLUMNS = 16
"""Minimum columns for the ids."""


def standing(record: RunRecord) -> str:
    """Return the state of a saved run: one without an end that is no longer running on this host died."""
    marker = record.marker
    if marker.end is None:
        if record.host not in ("", os.uname().nodename):
            return ELSEWHERE
        return marker.state if RunDirectory(Path()).alive(marker) else DIED
    return marker.state if marker.state in FINAL_STATES else ended_as(record.exit_status or 0)


def headline(state: RunState) -> str:
    """Return the score of a run, or else the main figure of its first phase that has one."""
    if state.scores:
        result = state.scores[-1]
        return printable(f"score {bare_figure(result.value, result.unit)}{'' if state.valid else ' INVALID'}")
    for mark in state.phases:
        if mark.results:
            return printable(f"{mark.name} {bare_figure(mark.results[0].value, mark.results[0].unit)}")
    return "-"


def runs_table(records: Sequence[RunRecord], width: int | None) -> Table:
    """Return the table of saved runs; in less than `MIN_TAGS_COLUMNS` start and tags are below the run's id."""
    wide = width is None or width >= MIN_TAGS_COLUMNS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(
        "run", overflow="fold", max_width=None if width is None else max(MIN_ID_COLUMNS, width - BESIDE_ID_COLUMNS)
    )
    if wide:
        table.add_column("when", no_wrap=True)
    table.add_column("benchmark", overflow="fold")
    table.add_column("phases", justify="right", no_wrap=True, min_width=6)
    table.add_column("result", overflow="fold")
    table.add_column("state", no_wrap=True, min_width=8)
    if wide:
        table.add_column("tags", overflow="fold")
    for record in records:
        marker = record.marker
        tags = printable(" ".join(f"{key}={value}" for key, value in marker.tags.items() if key != HASH_TAG))
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(marker.start))
        state = standing(record)
        run = Text(printable(marker.run))
        table.add_row(
            *([run, Text(when)] if wide else [Text("\n").join([run, Text(f"{when}  {tags}".strip(), style="dim")])]),
            Text(printable(marker.benchmark)),
            Text(str(len(marker.phases))),
            Text(headline(marker)),
            Text(state, style="red" if state in (State.FAILED, DIED) else ""),
            *([Text(tags)] if wide else []),
        )
    return table
