"""Captures: the visible traces of one run of a benchmark, kept as a folder of text files (format: docs/captures.md).

A capture is untrusted. Its rows are checked one by one, and its content is only kept as data: see `recorder.stage` for
how it is used.
"""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pinchpoint.benchmarks.events import State
from pinchpoint.host.exitstatus import STOPPING
from pinchpoint.host.procfs import read_bytes

__all__ = ["Arrival", "Capture", "CaptureError", "Change", "OpenedFile", "Written", "read_capture"]

FILE_LIMIT = 256 << 20
"""Longest file of a capture that is read, in bytes."""
LONGEST = 7 * 86400.0
"""Longest capture that is replayed, in seconds."""
OLDEST = 946684800.0
"""An earlier start, before the year 2000, is invalid; in Unix seconds."""
STREAMS = ("out", "pty")
"""The standard output in `arrivals.tsv`, be it a pipe or a terminal; ``err`` is the other stream."""
PID_LIMIT = 1 << 22
"""Highest possible PID (PID_MAX_LIMIT, include/linux/threads.h)."""
DESCRIPTOR_LIMIT = 1 << 20
NAMES = ("cmd.txt", "meta.json", "stdout.txt", "arrivals.tsv", "procs.tsv", "files.tsv")
LITERAL = re.compile(r"""b?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)
"""One string or bytes literal of Python, as `repr` writes it."""
DESCRIPTOR = re.compile(r"(?<!\d)(\d++):(.+)", re.DOTALL)
POSITION = re.compile(r"@(\d+):([0-7]+)(?: |$)")
QUOTED = "cmdline (quoted)"
"""In the header of a procs.tsv whose command lines are quoted for a shell; without it words are split at blanks."""
PROCS_HEADER = f"# t_rel_s\tpid\tppid\tcomm\tevent\tcwd\t{QUOTED} | open files (fd:path@pos:flags)\tthreads\n"
FILES_HEADER = "# t_rel_s\tpath\tevent\tsize\tappended (python repr)\n"


class CaptureError(Exception):
    """A folder is not a capture, or a file of it is damaged; the text says which and where, in one line."""


class Arrival(NamedTuple):
    """Bytes of the standard output, as returned by one read."""

    time: float
    """Seconds since the capture began, like all times here."""
    data: bytes


class OpenedFile(NamedTuple):
    """A file that a process had open."""

    descriptor: int
    path: str
    position: int
    flags: int
    """As in open(2)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A process that is new, has changed, or is gone."""

    time: float
    pid: int
    ppid: int = 0
    comm: str = ""
    gone: bool = False
    cwd: str = "/"
    argv: tuple[str, ...] = ()
    files: tuple[OpenedFile, ...] | None = ()
    """None: they were not recorded."""
    threads: tuple[str, ...] = ()
    """Names of its threads, oldest first; empty if they were not recorded."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is new, has grown, or has other content."""

    time: float
    path: str
    data: bytes
    appended: bool


@dataclass
class Capture:
    """One capture."""

    name: str
    command: list[str] = field(default_factory=list)
    """The command line; empty if it is unknown."""
    cwd: str = "/"
    start: float = OLDEST
    """Unix seconds."""
    duration: float = 0.0
    ended: State = State.FINISHED
    """How the command ended."""
    output: list[Arrival] = field(default_factory=list)
    processes: list[Change] | None = None
    """None: they were not recorded."""
    files: list[Written] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)
    """Final files of the directories of results, by ``DIRECTORY/NAME``."""


def read_capture(path: Path) -> Capture:
    """Return the capture in a folder, where any file may be missing, or in a single file that has only the output.

    Raises CaptureError.
    """
    capture = Capture(path.resolve().name)
    if not path.is_dir():
        capture.output = [Arrival(0.0, _read(path.resolve()))]
        return capture
    if not any((path / name).is_file() for name in NAMES):
        raise CaptureError(f"{path}: not a capture: it has none of {', '.join(NAMES)}")
    meta = _meta(path / "meta.json")
    capture.command = _command(meta, path / "cmd.txt")
    capture.cwd = cwd if isinstance(cwd := meta.get("cwd"), str) and cwd.startswith("/") else "/"
    capture.start = max(_seconds(meta.get("start_epoch")), OLDEST)
    capture.ended = _ended(meta)
    capture.processes = _changes(path / "procs.tsv", capture.command)
    capture.files = list(_written(path / "files.tsv"))
    arrivals, ends = _arrivals(path / "arrivals.tsv", path / "stdout.txt")
    times = [ends, _seconds(meta.get("duration_s")), *(row.time for row in capture.files)]
    times += [change.time for change in capture.processes or ()]
    capture.duration = max(times)
    if capture.duration > LONGEST:
        raise CaptureError(f"{path}: it lasts {capture.duration:.0f} s: at most {LONGEST:.0f} s are replayed")
    capture.output = arrivals
    if arrivals and math.isinf(arrivals[0].time):
        # Their arrival times are unknown: only at the end is it certain that they had arrived.
        capture.output = [Arrival(capture.duration, arrivals[0].data)]
    for file in sorted(path.glob("resultdir*/*")):
        if file.is_file() and not file.parent.is_symlink():
            capture.results[f"{file.parent.name}/{file.name}"] = _read(file)
    return capture


def _read(path: Path) -> bytes:
    """Return a regular file; a link could lead out of the capture. Raises CaptureError."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise CaptureError(f"{path}: not a regular file")
        data = read_bytes(path, FILE_LIMIT + 1)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror}") from error
    if len(data) > FILE_LIMIT:
        raise CaptureError(f"{path}: longer than {FILE_LIMIT >> 20} MiB")
    return data


def _ended(meta: Mapping[str, Any]) -> State:
    """Return how the command of a meta.json ended."""
    code, signalled = meta.get("rc"), meta.get("signal")
    if not code and (code is not None or not signalled):
        return State.FINISHED
    names = {number.name for number in STOPPING}
    return State.STOPPED if f"SIG{str(signalled).removeprefix('SIG')}" in names else State.FAILED


def _seconds(value: object) -> float:
    """Return a time of meta.json, 0 if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        found = float(value)
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) and found > 0 else 0.0


def _meta(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        meta = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise CaptureError(f"{path}: not JSON") from error
    if not isinstance(meta, dict):
        raise CaptureError(f"{path}: not a JSON object")
    return meta


def _command(meta: dict[str, Any], path: Path) -> list[str]:
    words = meta.get("cmd")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return words
    if not path.is_file():
        return []
    text = _read(path).decode("utf-8", "replace").strip()
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote
        return text.split()


def _rows(path: Path, fewest: int, most: int) -> Iterator[tuple[int, float, list[str]]]:
    """Yield the number, the time and the other fields of each row; an incomplete last line is left out.

    `fewest` and `most` are numbers of fields: everything after the last significant tab is one field.
    """
    if not path.is_file():
        return
    *lines, _ = _read(path).decode("utf-8", "surrogateescape").split("\n")
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        time, *fields = line.split("\t", most - 1)
        try:
            seconds = float(time)
        except ValueError:
            seconds = math.nan
        if len(fields) + 1 < fewest or not 0 <= seconds <= LONGEST:
            raise _damaged(path, number)
        yield number, seconds, fields


def _damaged(path: Path, number: int) -> CaptureError:
    return CaptureError(f"{path}:{number}: not a row of a {path.name}")


def _literal(text: str) -> bytes | None:
    """Return the bytes of a string as `repr` writes it, None if it is not one."""
    if LITERAL.fullmatch(text) is None:
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _whole(text: str, limit: int = 1 << 62) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= limit else None


def _arrivals(path: Path, stdout: Path) -> tuple[list[Arrival], float]:
    """Return the bytes on standard output with their times, and the time of the last bytes on any stream.

    A row without bytes refers to a piece of stdout.txt. The time is infinite if there are no rows.
    """
    text = _read(stdout) if stdout.is_file() else b""
    found: list[Arrival] = []
    last = 0.0
    for number, time, fields in _rows(path, 4, 5):
        stream, offset, length = fields[0], _whole(fields[1], FILE_LIMIT), _whole(fields[2], FILE_LIMIT)
        if offset is None or length is None:
            raise _damaged(path, number)
        last = max(last, time)
        if stream not in STREAMS:
            continue
        data = _literal(fields[3]) if len(fields) > 3 else text[offset : offset + length]
        if data is None:
            raise _damaged(path, number)
        found.append(Arrival(max(time, found[-1].time if found else 0.0), data))
    return found or ([Arrival(math.inf, text)] if text else []), last


def _changes(path: Path, command: list[str]) -> list[Change] | None:
    if not path.is_file():
        return None
    quoted = QUOTED.encode() in _read(path).split(b"\n", 1)[0]
    # If a command line is the command's own, or its tail after a wrapper, its words are known.
    known = {" ".join(command[index:]): tuple(command[index:]) for index in range(len(command))}
    changes = []
    for number, time, fields in _rows(path, 5, 8):
        pid = _whole(fields[0], PID_LIMIT)
        if not pid:
            raise _damaged(path, number)
        if fields[3] == "gone":
            changes.append(Change(time, pid, gone=True))
            continue
        if len(fields) < 6 or (ppid := _whole(fields[1], PID_LIMIT)) is None or fields[3] not in ("new", "chg"):
            raise _damaged(path, number)
        line, files = _opened(fields[5])
        threads = tuple(fields[6].split(",")) if len(fields) > 6 and fields[6] else ()
        argv = _quoted(line) if quoted else known.get(line, tuple(line.split()))
        changes.append(
            Change(
                time=time,
                pid=pid,
                ppid=ppid,
                comm=fields[2],
                gone=False,
                cwd=fields[4],
                argv=argv,
                files=files,
                threads=threads,
            )
        )
    return sorted(changes, key=lambda change: change.time)


def _quoted(line: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(line))
    except ValueError:
        return tuple(line.split())


def _opened(text: str) -> tuple[str, tuple[OpenedFile, ...] | None]:
    """Return the command line of a process and its open files; ``?`` in their place means that they were not seen."""
    line, _, rest = (text + " ").rpartition(" | ")
    files = []
    rest, at = rest.rstrip(" "), 0
    for ends in POSITION.finditer(rest):
        # A path may contain anything: it extends to the next position.
        begins = DESCRIPTOR.search(rest, at, ends.start())
        at = ends.end()
        number, offset = _whole(begins[1], DESCRIPTOR_LIMIT) if begins else None, _whole(ends[1])
        if begins is not None and number is not None and offset is not None and len(ends[2]) < 20:
            files.append(OpenedFile(number, begins[2], offset, int(ends[2], 8)))
    return line, None if rest.strip() == "?" else tuple(files)


def _written(path: Path) -> Iterator[Written]:
    for number, time, fields in _rows(path, 3, 5):
        if fields[1] == "gone":
            continue
        data = _literal(fields[3]) if len(fields) > 3 else b""
        if data is None:
            raise _damaged(path, number)
        yield Written(time, fields[0], data, fields[1] == "grow")
