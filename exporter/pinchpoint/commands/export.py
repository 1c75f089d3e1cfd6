"""``pinchpoint export``: the samples of a run as OpenMetrics text, which Prometheus makes blocks of."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import click

from pinchpoint.backfill import Backfill
from pinchpoint.commands.replay import open_recording
from pinchpoint.recording import read_recording, time_of
from pinchpoint.store import RunRecord
from pinchpoint.terminal.plain import fail, warn
from pinchpoint.terminal.runs import DIED, standing
from pinchpoint.terminal.view import duration

__all__ = ["command"]

GAP = 5.0
"""Seconds before a run's end from which on it is told that samples lack: one a second was meant to be there."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: standard output]")
@click.argument("run", metavar="RUN")
def command(output: Path | None, run: str) -> None:
    """Write the samples of a run as OpenMetrics text, for a Prometheus server.

    A RUN is an id, its beginning, a name, or "last"; see `pinchpoint runs`. The label "instance" has the host. The text
    is what `promtool tsdb create-blocks-from openmetrics FILE DIRECTORY` takes; a server that has the DIRECTORY for its
    --storage.tsdb.path, or the blocks in its own, shows the run at its own time.
    """
    record, path = open_recording(run)
    last = 0.0
    try:
        with Backfill() as backfill:
            for moment in read_recording(path, warn):
                backfill.add(moment)
                last = time_of(moment)
            if not backfill.samples:
                fail(f"{path}: has no samples")
            _tell_end(record, last)
            if output is None:
                _print(backfill)
            else:
                _write(backfill, output)
            if backfill.dropped:
                warn(f"{backfill.dropped} samples are left out: their host's clock had been set back")
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        _fail(error, error.filename or f"temporary files in {tempfile.gettempdir()}")


def _tell_end(record: RunRecord, last: float) -> None:
    """Say where the samples don't reach the run's end."""
    marker = record.marker
    at = duration(last - marker.start)
    if marker.end is None:
        state = "died" if standing(record) == DIED else "goes on"
        warn(f"{marker.run} {state}: its samples end at {at}")
    elif marker.end - last > GAP:
        warn(f"{marker.run} lasted {duration(marker.end - marker.start)}, and its samples end at {at}")


def _print(backfill: Backfill) -> None:
    sys.stdout.flush()
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            _copy(backfill, stream)
    except BrokenPipeError:
        sys.exit(1)  # who reads has seen enough, as with any command in a pipe
    except OSError as error:
        _fail(error, "standard output")


def _write(backfill: Backfill, output: Path) -> None:
    """Write a file, or none: half of one would be taken for the whole."""
    part = output.with_name(f".{output.name}.{os.getpid()}")
    special = output.exists() and not output.is_file()
    try:
        with (output if special else part).open("wb") as stream:
            _copy(backfill, stream)
        if not special:
            part.replace(output)
    except OSError as error:
        _fail(error, str(output))
    finally:
        with suppress(OSError):
            part.unlink()


def _copy(backfill: Backfill, stream: BinaryIO) -> None:
    for piece in backfill.text():
        stream.write(piece.encode("utf-8", "replace"))


def _fail(error: OSError, what: str) -> NoReturn:
    fail(f"{what}: {error.strerror or error}")
