"""The result folder that IO500 names at the end of its output: what it says is saved with the run."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

from pinchpoint.benchmarks.io500_folder import folder_runs
from pinchpoint.benchmarks.io500_output import STORED
from pinchpoint.benchmarks.result_files import ResultFilesError
from pinchpoint.diagnosis.io500_rules import ResultFolder, result_folder
from pinchpoint.runs import RunState

__all__ = ["folder_of", "folder_within"]

MAX_END_BYTES = 64 << 10
"""Bytes at the end of the output in which IO500 names its folder."""


def folder_of(output: Path, directory: Path, state: RunState) -> ResultFolder | None:
    """Return what the result folder of a run says; None if its output names none, or the folder is of another run.

    `output` keeps what the command printed in the working directory `directory`. Raises OSError.
    """
    with output.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_END_BYTES))
        text = file.read(MAX_END_BYTES).decode("utf-8", "replace")
    _, found, rest = text.rpartition(STORED)
    name = rest.splitlines()[0].strip() if rest else ""
    if not found or not name or "\0" in name:
        return None
    path = directory / name
    if not path.is_dir():
        return None
    try:
        runs = folder_runs(path, state.start, lambda line: None)
    except ResultFilesError:
        return None
    score = [result.value for result in state.scores]
    return next((result_folder(run) for run in runs if [one.value for one in run.run.state.scores] == score), None)


def folder_within(seconds: float, output: Path, directory: Path, state: RunState) -> ResultFolder | None:
    """Return the same, None if it takes longer than `seconds`: the folder may be in a file system that hangs."""
    found: list[ResultFolder | None] = []

    def read() -> None:
        try:
            found.append(folder_of(output, directory, state))
        except OSError:
            found.append(None)

    thread = Thread(target=read, name="folder", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None
