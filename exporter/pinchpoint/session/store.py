"""Saved runs: one directory each, with ``run.json`` and everything else recorded."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.diagnosis.io500_rules import ResultFolder
from pinchpoint.expressions import expression
from pinchpoint.regular import open_regular
from pinchpoint.runs import Step, Time, numbered
from pinchpoint.state import state_root
from pinchpoint.typedjson import decoder
from pinchpoint.user_labels import split_user

__all__ = [
    "ClockStep",
    "RunRecord",
    "StoreError",
    "find",
    "load",
    "name_of",
    "new_run_directory",
    "release",
    "reserve",
    "runs",
    "save",
    "select",
    "state_directory",
    "step_words",
]

FILE = "run.json"
RESERVE = "reserve"
RESERVE_BYTES = 256 << 10
"""Room for a record of 200 phases, in bytes; it is there while the run lasts."""
MAX_RUN_FILE_BYTES = 64 << 20
"""Longest ``run.json`` that is read, in bytes (4,096 phases with ten results each have 5 MiB)."""
MAX_RUNS_PER_SECOND = 10_000
"""Maximum number of runs of one name that begin in the same second."""
MAX_NAMED_RUNS = 5
"""Maximum number of runs named in a message."""
LAST = "last"
"""The word for the newest run."""
STAMP = expression(r"\d{8}T\d{6}Z-")
"""The beginning of a run's id: `pinchpoint.runs.run_id`."""
GLOB = expression(r"[*?\[]")


class StoreError(Exception):
    """A run that cannot be loaded; the message says why, and what to do."""


class ClockStep(msgspec.Struct, frozen=True):
    """A change of the host's wall clock during a run, whose times are as if there had been none."""

    time: Time
    """Unix seconds, as in the rest of the run."""
    seconds: Step
    """How far it was set forward; negative if back."""


def step_words(seconds: float) -> str:
    """Return a step of the wall clock in words."""
    if seconds < 0:
        return f"the clock of this host was set back by {-seconds:.0f} s"
    return f"the clock of this host was set forward by {seconds:.0f} s, or the host was suspended"


class RunRecord(msgspec.Struct):
    """What ``run.json`` in a run's directory holds."""

    marker: Marker
    command: list[str]
    exit_status: int | None = None
    """Exit status of the command, or minus the signal that ended it; None while it runs or after a crash."""
    origin: str = ""
    """The file it was imported from; empty for our own runs."""
    note: str = ""
    """The last line before it in that file that no benchmark printed: mostly what was changed, or the command."""
    facts: dict[str, dict[str, list[str]]] = {}
    """Settings of each measured host: see `pinchpoint.diagnosis.facts`."""
    folder: ResultFolder | None = None
    """What IO500's result folder says; None for other benchmarks, and where it was not read."""
    host: str = ""
    """The name of the host that it ran on, which may not be this one: several may share a home directory. Empty in
    imported runs, and in those of older releases."""
    steps: list[ClockStep] = []
    """Changes of the wall clock; what it showed at a time of the run is that time and all steps up to it."""


DECODER = decoder(RunRecord)


def state_directory() -> Path:
    """Return where runs are saved. Raises OSError if there is no such place."""
    return state_root() / "runs"


def name_of(run: str) -> str:
    """Return the name in a run's id."""
    return STAMP.sub("", split_user(run)[0], count=1)


def new_run_directory(run: str) -> tuple[str, Path]:
    """Make a directory for the run; a second run in the same second gets a number. Raises OSError."""
    for number in range(MAX_RUNS_PER_SECOND):
        name = numbered(run, number + 1)
        path = state_directory() / name
        with suppress(FileExistsError):
            path.mkdir(parents=True, mode=0o700)
            return name, path
    raise FileExistsError(errno.EEXIST, "too many runs with this name in one second", str(state_directory() / run))


def discard(directory: Path) -> None:
    """Remove the directory of a run that has nothing to save."""
    shutil.rmtree(directory, ignore_errors=True)


def reserve(directory: Path) -> None:
    """Take room on the disk for a last `save`, in case the run fills it. Raises OSError."""
    with (directory / RESERVE).open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def release(directory: Path) -> bool:
    """Give up the room that `reserve` took; return whether there was any."""
    try:
        (directory / RESERVE).unlink()
    except OSError:
        return False
    return True


def save(directory: Path, record: RunRecord) -> None:
    """Replace the record of a run as a whole: a reader sees the old or the new one. Raises OSError."""
    raw = msgspec.json.format(msgspec.json.encode(record))
    try:
        _replace(directory / FILE, raw)
    except OSError:
        if not release(directory):
            raise
        _replace(directory / FILE, raw)


def _replace(whole: Path, raw: bytes) -> None:
    part = whole.with_suffix(".part")
    try:
        part.write_bytes(raw)
        part.replace(whole)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def load(directory: Path) -> RunRecord:
    """Return the record of a run. Raises StoreError."""
    path = directory / FILE
    try:
        with open_regular(path) as file:
            # Python reserves as much memory as it is asked to read.
            raw = file.read(min(os.fstat(file.fileno()).st_size, MAX_RUN_FILE_BYTES) + 1)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_RUN_FILE_BYTES:
        raise StoreError(f"{path}: longer than {MAX_RUN_FILE_BYTES >> 20} MiB")
    try:
        record = DECODER.decode(raw)
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, not a run, nested without end
        raise StoreError(f"{path}: not a run: {error}") from error
    if record.marker.run != directory.name:
        raise StoreError(f"{path}: holds the run {record.marker.run!r}: was the directory renamed?")
    return record


def runs(warn: Callable[[str], None] = lambda message: None) -> list[RunRecord]:
    """Return the saved runs, oldest first; `warn` is called for each that can't be read. Raises StoreError."""
    try:
        root = state_directory()
        directories = sorted(path for path in root.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    found = []
    for directory in directories:
        try:
            found.append(load(directory))
        except StoreError as error:
            warn(str(error))
    return sorted(found, key=lambda record: (record.marker.start, record.marker.run))


def find(text: str, among: Sequence[RunRecord] | None = None) -> RunRecord:
    """Return the one run that `text` means: ``last``, an id, its beginning, its name, or a part of the name.

    `among` are the runs to look in, oldest first. Raises StoreError unless it is exactly one.
    """
    kept = runs() if among is None else among
    if not kept:
        raise StoreError("no run is saved yet: `pinchpoint run` and `pinchpoint import` save them")
    if text == LAST:
        return kept[-1]
    ways: tuple[Callable[[str], bool], ...] = (
        lambda run: run == text,
        lambda run: run.startswith(text),
        lambda run: name_of(run) == text,
        lambda run: text in name_of(run),
    )
    for way in ways if text else ():
        found = [record for record in kept if way(record.marker.run)]
        if len(found) > 1:
            names = [record.marker.run for record in found]
            raise StoreError(
                f"{text!r} means {len(found)} runs: {_listed(names)}; "
                f"give one id, or several with commas or a pattern such as '*{text}*' for a group of repeats"
            )
        if found:
            return found[0]
    raise StoreError(f"no run is {text!r}: `pinchpoint runs` lists the saved runs")


def select(text: str, among: Sequence[RunRecord] | None = None) -> list[RunRecord]:
    """Return the runs of a group of repeats, oldest first: what `find` understands, or patterns, separated by commas.

    A pattern (``*``, ``?``, ``[...]``) matches the whole id or name. Raises StoreError if one matches none.
    """
    kept = runs() if among is None else among
    chosen: dict[str, RunRecord] = {}
    for part in text.split(","):
        if GLOB.search(part):
            found = [
                record
                for record in kept
                if fnmatchcase(record.marker.run, part) or fnmatchcase(name_of(record.marker.run), part)
            ]
            if not found:
                raise StoreError(f"no run fits the pattern {part!r}: `pinchpoint runs` lists the saved runs")
        else:
            found = [find(part, kept)]
        chosen |= {record.marker.run: record for record in found}
    return sorted(chosen.values(), key=lambda record: (record.marker.start, record.marker.run))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED_RUNS
    return ", ".join(names[:MAX_NAMED_RUNS]) + (f" and {more} more" if more > 0 else "")
