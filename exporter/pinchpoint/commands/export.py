"""``pinchpoint export``: runs as OpenMetrics text, from which Prometheus makes blocks."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import click

from pinchpoint.commands.options import complete_runs
from pinchpoint.diagnosis.trend import MAX_TREND_RUNS
from pinchpoint.model import Point, time_of
from pinchpoint.runs import MAX_TIME_SECONDS
from pinchpoint.session import store
from pinchpoint.session.retold import TAIL_SECONDS, end_of, level_points, retold
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, warn
from pinchpoint.terminal.runs import DIED, standing
from pinchpoint.terminal.view import duration
from pinchpoint.wire import recording
from pinchpoint.wire.backfill import Backfill
from pinchpoint.wire.recording import read_recording

__all__ = ["command"]

MAX_UNREPORTED_GAP_SECONDS = 5.0
"""Seconds before a run's end from which missing samples are reported: one per second was due."""
RUN_SPACING_SECONDS = 300.0
"""Seconds between runs placed back to back: Prometheus shows a sample for that long by default."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: standard output]")
@click.option(
    "--end",
    "until",
    metavar="TIME",
    help='Place the runs back to back, with the last sample at TIME: "now", Unix seconds, or 2026-11-21T16:00:00Z.',
)
@click.option(
    "--trend",
    is_flag=True,
    help="Take the runs for repeats of one configuration, and add the levels of their results, as `runs --trend` does.",
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_runs)
def command(output: Path | None, until: str | None, runs: tuple[str, ...], *, trend: bool) -> None:
    """Write runs as OpenMetrics text for a Prometheus server: phases, results, score, verdicts, all recorded samples.

    A RUN is an id, its beginning, a name or a part of it, "last", or a pattern in quotes; see `pinchpoint runs`. The
    label "instance" has the host. Pass the text to `promtool tsdb create-blocks-from openmetrics FILE DIRECTORY`. A
    server with this DIRECTORY as its --storage.tsdb.path, or with the blocks in its own, shows the runs at their
    original times, or at those of --end. Imported runs have no samples, only the results from their texts.
    """
    end = None if until is None else _time(until)
    laid = list(_laid(_chosen(runs), end))
    levels = _levels(laid) if trend else {}
    try:
        with Backfill() as backfill:
            for record, shift in laid:
                _add(record, shift, backfill, levels.get(record.marker.run, ()))
            if output is None:
                _print(backfill)
            else:
                _write(backfill, output)
            if backfill.dropped:
                warn(
                    f"{backfill.dropped} samples are left out: their host's clock had been set back, "
                    "or another run has their time"
                )
            if backfill.impossible:
                warn(
                    f"{backfill.impossible} samples are left out: no exporter gives such values; was the file changed?"
                )
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        what = error.filename or f"temporary files in {tempfile.gettempdir()}"
        fail(f"{what}: {error.strerror or error}")


def _time(text: str) -> float:
    """Return the Unix time given by ``--end``; exit if it is invalid."""
    if text == "now":
        return time.time()
    with suppress(ValueError):
        if 0 <= (found := float(text)) <= MAX_TIME_SECONDS:
            return found
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        fail(f'--end {text!r} is not a time: use "now", Unix seconds, or a date such as 2026-11-21T16:00:00Z', 2)


def _chosen(texts: Sequence[str]) -> list[RunRecord]:
    """Return the selected runs, oldest first; exit if there are none."""
    try:
        kept = store.runs(warn)
        found = {record.marker.run: record for text in texts for record in store.select(text, kept)}
    except StoreError as error:
        fail(str(error))
    return [record for record in kept if record.marker.run in found]


def _laid(records: Sequence[RunRecord], end: float | None) -> Iterator[tuple[RunRecord, float]]:
    """Yield each run and its shift in seconds, so that the last sample of the last one is at `end`."""
    if end is None:
        yield from ((record, 0.0) for record in records)
        return
    lengths = [end_of(record.marker) + TAIL_SECONDS - record.marker.start for record in records]
    start = end - sum(lengths) - RUN_SPACING_SECONDS * (len(records) - 1)
    for record, length in zip(records, lengths, strict=True):
        yield record, start - record.marker.start
        start += length + RUN_SPACING_SECONDS


def _levels(laid: Sequence[tuple[RunRecord, float]]) -> dict[str, list[Point]]:
    """Return the levels of the results of the last runs, by their ids."""
    if (left_out := len(laid) - MAX_TREND_RUNS) > 0:
        warn(f"the first {left_out} of {len(laid)} runs have no levels: no more than {MAX_TREND_RUNS} are compared")
    laid = laid[-MAX_TREND_RUNS:]
    return level_points([record.marker for record, _ in laid], [shift for _, shift in laid])


def _add(record: RunRecord, shift: float, backfill: Backfill, levels: Sequence[Point]) -> None:
    """Add the data of a saved run. Raises OSError, or ValueError if its recording is invalid."""
    run = record.marker.run
    path = store.state_directory() / run / recording.FILE
    if path.exists():
        before, last = backfill.samples, 0.0
        for moment in read_recording(path, warn):
            backfill.add(moment, shift)
            last = time_of(moment)
        if backfill.samples == before:
            raise ValueError(f"{path}: has no samples")
        _tell_end(record, last)
    elif not record.origin:
        warn(f"{run} has no samples: its recording is gone")
    for moment in retold(record, standing(record), levels):
        backfill.add(moment, shift)


def _tell_end(record: RunRecord, last: float) -> None:
    """Report samples that don't reach the run's end."""
    marker = record.marker
    at = duration(last - marker.start)
    if marker.end is None:
        state = "died" if standing(record) == DIED else "goes on"
        warn(f"{marker.run} {state}: its samples end at {at}")
    elif marker.end - last > MAX_UNREPORTED_GAP_SECONDS:
        warn(f"{marker.run} lasted {duration(marker.end - marker.start)}, and its samples end at {at}")


def _print(backfill: Backfill) -> None:
    sys.stdout.flush()
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            _copy(backfill, stream)
    except BrokenPipeError:
        sys.exit(1)  # the reader has seen enough, as with any command in a pipe
    except OSError as error:
        fail(f"standard output: {error.strerror}")


def _write(backfill: Backfill, output: Path) -> None:
    """Write a whole file or none: half of one would be taken for the whole."""
    part = output.with_name(f".{output.name}.{os.getpid()}")
    special = output.exists() and not output.is_file()
    try:
        with (output if special else part).open("wb") as stream:
            _copy(backfill, stream)
        if not special:
            part.replace(output)
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    finally:
        with suppress(OSError):
            part.unlink()


def _copy(backfill: Backfill, stream: BinaryIO) -> None:
    for piece in backfill.text():
        stream.write(piece.encode("utf-8", "replace"))
