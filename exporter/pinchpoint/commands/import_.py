"""``pinchpoint import``: saves runs made without Pinchpoint, from the output of their benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from pinchpoint.benchmarks.document import run_document
from pinchpoint.benchmarks.io500_folder import folder_runs
from pinchpoint.benchmarks.markers import Marker
from pinchpoint.benchmarks.reading import KINDS, FoundRun, TextReader
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.result_files import ResultFilesError, is_archive
from pinchpoint.commands.options import name_option, tags_option
from pinchpoint.diagnosis.io500_rules import ResultFolder, result_folder
from pinchpoint.limits import reason
from pinchpoint.report.folder import folder_json, folder_lines
from pinchpoint.runs import HASH_TAG, MAX_SEVERAL_NAME_CHARACTERS, MAX_TIME_SECONDS, RunState, run_id
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, say, warn
from pinchpoint.terminal.runs import headline
from pinchpoint.text import as_utf8, counted, printable

__all__ = ["command"]

PIECE_BYTES = 64 << 10
"""Bytes that are read at once."""
MAX_TEXT_BYTES = 128 << 20
"""Longest text that is read, in bytes; IO500 prints 2 KiB a run, fio with a status each second 1 MiB a minute."""
STDIN = "standard input"
"""The origin of a run that was piped in."""
TITLES = dict.fromkeys(told.title.strip("`") for kind in BENCHMARKS for told in kind.documented)
UNDERSTOOD = (
    f"understood are {', '.join(TITLES)}: what they print, IO500's result.txt or result folder, and fio's --output in "
    "any format"
)


class _UnreadableError(Exception):
    """A file without a readable run; the message says why."""


class _Text(msgspec.Struct, frozen=True):
    """What a file contains, or one run of a folder."""

    origin: str
    stem: str
    digest: str
    readings: list[FoundRun]
    folder: ResultFolder | None = None
    """What the result folder says of its only run; None for a text."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@name_option("Name of the runs. [default: the file's name without its suffix]", several=True)
@tags_option("Note to save with the runs; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, and save nothing.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def command(name: str | None, tags: dict[str, str], as_json: bool, files: tuple[str, ...]) -> None:
    """Import runs that were made without Pinchpoint, from the output of their benchmarks.

    A FILE is any text that contains such output: standard output in a log, an output file, IO500's result.txt, or a
    page of notes with several runs in it. - reads standard input. It may also be a result folder of IO500, or a tar
    archive of one: then stonewall, times of the ranks, options and hashes are read, too, and the run is checked against
    the rules of the list. Each run is saved like a `pinchpoint run`, so that `pinchpoint compare` can use it. A text
    that was imported before is not saved again.
    """
    if HASH_TAG in tags:
        fail(f"--tag {HASH_TAG}={tags[HASH_TAG]}: {HASH_TAG} is reserved: it identifies the text of a run", 2)
    failed = False
    documents: list[dict[str, Any]] = []
    for file in files:
        try:
            for text in _texts(file):
                if as_json:
                    documents += _documents(text, file)
                else:
                    _keep(text, file, name, tags)
        except (_UnreadableError, ResultFilesError, StoreError) as error:
            warn(str(error))
            failed = True
    if as_json:
        say(json.dumps({"runs": documents}, indent=2))
    sys.exit(int(failed))


def _documents(text: _Text, file: str) -> Iterator[dict[str, Any]]:
    for line, state, note in text.readings:
        document = {"file": file, "line": line, "note": note, **run_document(state)}
        if text.folder is not None:
            document["folder"] = folder_json(text.folder, state)
        yield document


def _texts(file: str) -> Iterator[_Text]:
    """Yield what a file contains, a folder run by run. Raises _UnreadableError, ResultFilesError."""
    path = Path(file)
    try:
        folder = file != "-" and (path.is_dir() or is_archive(path))
    except (OSError, ValueError):  # ValueError: a NUL in the name
        folder = False
    if not folder:
        yield _read(file)
        return
    for found in folder_runs(path, time.time(), warn):
        origin = as_utf8(os.path.join(os.path.abspath(file), found.directory).rstrip("/"))
        yield _Text(
            origin,
            as_utf8(Path(os.path.abspath(file)).name.partition(".t")[0]),
            found.digest,
            [found.run],
            result_folder(found),
        )


def _read(file: str) -> _Text:
    """Return what a file contains. Raises _UnreadableError."""
    reader = TextReader(KINDS)
    digest = hashlib.sha256()
    length, binary = 0, False
    try:
        opened, changed = _open(file)
        with opened as stream:
            while piece := stream.read(PIECE_BYTES):
                length += len(piece)
                if length > MAX_TEXT_BYTES:
                    raise _UnreadableError(_too_long(file))
                digest.update(piece)
                binary = binary or b"\0" in piece
                reader.feed(piece)
    except OSError as error:
        raise _UnreadableError(f"{file}: {error.strerror}") from error
    readings = reader.close(changed)
    if not readings:
        what = "it is empty" if not length else "it is not text" if binary else "no benchmark's output is found in it"
        raise _UnreadableError(f"{file}: {what}; {UNDERSTOOD}")
    for line, words in reader.unread:
        warn(f"{file}:{line}: looks like a result, and is not understood: {words}")
    if reader.unread_count > len(reader.unread):
        warn(f"{file}: {reader.unread_count - len(reader.unread)} more lines look like results, and are not understood")
    if reader.left_out:
        warn(f"{file}: only its first {len(readings)} runs are read, {reader.left_out} more are left out")
    origin = STDIN if file == "-" else as_utf8(os.path.abspath(file))
    return _Text(origin, "stdin" if file == "-" else as_utf8(Path(file).stem), digest.hexdigest(), readings)


def _open(file: str) -> tuple[AbstractContextManager[BinaryIO], float]:
    """Return a file and when it was last changed, in Unix seconds. Raises OSError, _UnreadableError."""
    if file == "-":
        if sys.stdin is None:
            raise _UnreadableError("-: standard input is closed")
        return nullcontext(sys.stdin.buffer), time.time()
    # A fifo would block us until someone writes, a device forever.
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode):
        raise _UnreadableError(f"{file}: not a regular file; give its content on standard input: pinchpoint import -")
    if found.st_size > MAX_TEXT_BYTES:
        raise _UnreadableError(_too_long(file))
    changed = found.st_mtime if 0 < found.st_mtime < MAX_TIME_SECONDS else time.time()
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb"), changed


def _too_long(file: str) -> str:
    return (
        f"{file}: longer than {MAX_TEXT_BYTES >> 20} MiB; cut out what the benchmark printed, "
        f"for instance grep RESULT {file} | pinchpoint import -"
    )


def _keep(text: _Text, file: str, name: str | None, tags: dict[str, str]) -> None:
    """Save the runs of a text, and print their ids. Raises StoreError."""
    kept = store.runs(warn)
    before = [record.marker.run for record in kept if record.marker.tags.get(HASH_TAG) == text.digest]
    if before:
        last = f" to {before[-1]}" if len(before) > 1 else ""
        say(f"{file}: imported before as {before[0]}{last}; nothing is saved twice")
        return
    # A diary grows: only runs not imported from the same file before are saved. All that is piped has one origin.
    known = Counter(_figures(record.marker) for record in kept if record.origin == text.origin != STDIN)
    stem = (name or text.stem)[:MAX_SEVERAL_NAME_CHARACTERS]
    digits = max(2, len(str(len(text.readings))))
    again = 0
    for number, (_, state, note) in enumerate(text.readings, 1):
        if state.phases and known[_figures(state)] > 0:
            known[_figures(state)] -= 1
            again += 1
            continue
        numbered = f"{stem}-{number:0{digits}}" if len(text.readings) > 1 else stem
        directory = None
        try:
            run, directory = store.new_run_directory(run_id(numbered, (), state.start))
            marker = _marker(run, state, {**tags, HASH_TAG: text.digest})
            store.save(directory, RunRecord(marker, [], origin=text.origin, note=note, folder=text.folder))
        except OSError as error:
            if directory is not None:
                store.discard(directory)
            raise StoreError(f"{reason(error)}; set XDG_STATE_HOME to a directory that can be written") from error
        say(f"{run}  {state.benchmark}  {counted(len(state.phases), 'phase')}  {headline(state)}  {_end(state)}")
        if text.folder is not None:
            for words in folder_lines(text.folder, state):
                say(f"  {printable(words)}")
    if again:
        say(f"{file}: {counted(again, 'run')} imported before; nothing is saved twice")


def _figures(state: RunState) -> bytes:
    """Return what identifies a run, independent of its place in a text and of the text's changes."""
    phases = [(mark.name, mark.results, mark.seconds) for mark in state.phases]
    return msgspec.json.encode((state.benchmark, state.state, state.scores, phases))


def _end(state: RunState) -> str:
    return printable(f"{state.state}: {state.reason}" if state.reason else state.state)


def _marker(run: str, state: RunState, tags: dict[str, str]) -> Marker:
    return Marker(
        run,
        state.benchmark,
        state.start,
        state.end,
        state.state,
        state.phases,
        total=state.total,
        scores=state.scores,
        valid=state.valid,
        reason=state.reason,
        pid=0,
        pid_start=0,
        command_pid=0,
        tags=tags,
    )
