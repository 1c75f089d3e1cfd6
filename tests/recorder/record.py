"""Records a benchmark run as a capture: ``python -m recorder.record FOLDER -- COMMAND...``.

It records the command's output with its arrival times, the processes, and their open files, so that the run can be
replayed (`recorder.replay`). Environments are never read.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn, TextIO

import click

from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.rootfs import open_in_root, read_piece
from pinchpoint.text import printable
from recorder.capture import FILES_HEADER, PROCS_HEADER

__all__ = ["FileRecorder", "ProcessRecorder", "main"]

INTERVAL = 0.1
"""Seconds between two looks."""
PIECE = 1 << 16
LINGER = 1.0
"""Seconds to wait for output of processes that the command left behind."""
TEXT_LIMIT = 1 << 20
"""Longest file that is recorded, in bytes."""
TOTAL_LIMIT = 16 << 20
"""Maximum number of bytes recorded from all files."""
TAIL = 64
"""Number of last bytes that distinguish a file that has grown from a new one."""
WATCHED_LIMIT = 4096
"""Maximum number of files watched in one directory."""
SLOWER = 1024
"""Rows that show only progress after which such rows become half as frequent."""
PLANS = (".ini", ".fio", ".ior", ".conf", ".cfg")
"""Suffixes of files on a command line that describe what the benchmark will do."""
CONTENTS = "the output, command lines and paths of the command"
DIGITS = re.compile(r"\d+")

State = tuple[str, ...]


class ProcessRecorder:
    """Writes a row for each process that is new, has changed or is gone (``procs.tsv``)."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: dict[int, tuple[State, State, float]] = {}
        self._minor = 0
        file.write(PROCS_HEADER)

    def look(self, tree: Tree, time: float) -> None:
        """Write the changes; `time` is in seconds since the start."""
        for pid in self._last.keys() - tree.processes.keys():
            del self._last[pid]
            self._file.write(f"{time:.3f}\t{pid}\t-\t-\tgone\t-\t-\n")
        for pid in tree.processes:
            state, last = _state(tree, pid), self._last.get(pid)
            # Other positions and other numbers in names are progress; everything else indicates phases.
            kind = tuple(DIGITS.sub("#", column) for column in state)
            if last is not None and state == last[0]:
                continue
            if last is not None and kind == last[1]:
                if time - last[2] < INTERVAL * (1 << self._minor // SLOWER):
                    continue
                self._minor += 1
            self._last[pid] = (state, kind, time)
            ppid, comm, cwd, rest, threads = state
            event = "new" if last is None else "chg"
            self._file.write(f"{time:.3f}\t{pid}\t{ppid}\t{comm}\t{event}\t{cwd}\t{rest}")
            self._file.write(f"\t{threads}\n" if threads else "\n")


def _state(tree: Tree, pid: int) -> State:
    task = tree.processes[pid]
    try:
        opened = " ".join(_opened(tree, pid))
    except PermissionError:
        opened = "?"
    line = " ".join(shlex.quote(word) for word in tree.argv(pid))
    names = tree.thread_names(pid)
    threads = ",".join(_field(name).replace(",", "_") for name in names.values()) if len(names) > 1 else ""
    return str(task.ppid), _field(task.comm), _field(tree.cwd(pid)), f"{_field(line)} | {_field(opened)}", threads


def _opened(tree: Tree, pid: int) -> Iterator[str]:
    for descriptor, path in tree.open_files(pid):
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/")):
            position = tree.position(pid, descriptor)
            if position is not None:
                yield f"{descriptor}:{path}@{position.offset}:0{position.flags:o}"


def _field(text: str) -> str:
    """Return text as one field of a row."""
    return printable(text).encode("utf-8", "replace").decode()


class FileRecorder:
    """Writes a row for each text file below some directories that appears or grows (``files.tsv``)."""

    def __init__(self, file: TextIO, directories: Sequence[Path]) -> None:
        self._file = file
        self._directories = directories
        self._seen: dict[str, tuple[int, int]] = {}
        self._recorded: dict[str, tuple[int, bytes]] = {}
        """Length of the recorded part of a file, and its last bytes."""
        self._left = TOTAL_LIMIT
        file.write(FILES_HEADER)
        for path, found in self._found():
            # Files that already exist belong to other runs, as long as they do not change.
            self._seen[path] = (found.st_size, found.st_mtime_ns)

    def plan(self, command: Sequence[str]) -> None:
        """Write the files named on the command line."""
        for word in command:
            path = os.path.abspath(word)
            if word.endswith(PLANS) and os.path.isfile(path):
                self._record(path, 0.0)

    def look(self, time: float) -> None:
        """Write the changes; `time` is in seconds since the start."""
        for path, found in self._found():
            stamp = (found.st_size, found.st_mtime_ns)
            if self._seen.get(path) != stamp:
                self._seen[path] = stamp
                if found.st_size <= TEXT_LIMIT:
                    self._record(path, time)

    def _found(self) -> Iterator[tuple[str, os.stat_result]]:
        for top in self._directories:
            count = 0
            for directory, _, names in os.walk(top):
                for name in names:
                    path = os.path.join(os.path.abspath(directory), name)
                    with suppress(OSError):
                        yield path, os.lstat(path)
                count += len(names)
                if count > WATCHED_LIMIT:
                    break

    def _record(self, path: str, time: float) -> None:
        known, tail = self._recorded.get(path, (0, b""))
        try:
            with open_in_root(Path("/"), path) as descriptor:
                begin = known - len(tail)
                data = read_piece(descriptor, begin, TEXT_LIMIT)
                grown = data.startswith(tail)
                data = data[len(tail) :] if grown else read_piece(descriptor, 0, TEXT_LIMIT)
        except OSError:
            return
        if b"\0" in data or len(data) > self._left or (grown and known and not data):
            return
        event = "new" if path not in self._recorded else "grow" if grown else "shrink"
        self._left -= len(data)
        size = len(data) + (known if grown else 0)
        self._recorded[path] = size, data[-TAIL:]
        text = repr(data.decode("utf-8", "surrogateescape"))
        self._file.write(f"{time:.3f}\t{_field(path)}\t{event}\t{size}\t{text}\n")


class _Output:
    """Passes one stream of the command on, and keeps it with its arrival times."""

    def __init__(self, stream: str, kept: BinaryIO, arrivals: TextIO, passed_to: int) -> None:
        self._stream, self._kept, self._arrivals, self._passed_to = stream, kept, arrivals, passed_to
        self._offset = 0

    def take(self, data: bytes, time: float) -> None:
        self._kept.write(data)
        self._arrivals.write(f"{time:.3f}\t{self._stream}\t{self._offset}\t{len(data)}\n")
        self._offset += len(data)
        with suppress(OSError):
            os.write(self._passed_to, data)


def record(folder: Path, command: Sequence[str], watched: Sequence[Path]) -> int:
    """Run a command and record it; return its exit status as a shell does. Raises OSError."""
    with ExitStack() as stack:

        def text(name: str) -> TextIO:
            return stack.enter_context((folder / name).open("w", encoding="utf-8", errors="surrogateescape"))

        def kept(name: str) -> BinaryIO:
            return stack.enter_context((folder / name).open("wb"))

        arrivals = text("arrivals.tsv")
        arrivals.write("# t_rel_s\tstream\toffset\tlen\n")
        files = FileRecorder(text("files.tsv"), watched)
        processes = ProcessRecorder(text("procs.tsv"))
        start, begin = time.time(), time.monotonic()
        files.plan(command)
        asked = _hold_signals(stack)
        child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert child.stdout is not None
        assert child.stderr is not None
        outputs = {
            child.stdout.fileno(): _Output("out", kept("stdout.txt"), arrivals, sys.stdout.fileno()),
            child.stderr.fileno(): _Output("err", kept("stderr.txt"), arrivals, sys.stderr.fileno()),
        }
        _follow(child, outputs, lambda now: _look(child.pid, processes, files, now), begin)
        duration = time.monotonic() - begin
    meta = {
        "cmd": list(command),
        "cwd": os.getcwd(),
        "pty": False,
        "start_epoch": round(start, 3),
        "duration_s": round(duration, 3),
        "rc": child.returncode if child.returncode >= 0 else None,
        "signal": signal.Signals(-child.returncode).name.removeprefix("SIG")
        if child.returncode < 0
        else next(iter(asked), None),
        "uname": os.uname().release,
        "note": "",
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    (folder / "cmd.txt").write_text(shlex.join(command) + "\n")
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _hold_signals(stack: ExitStack) -> list[str]:
    """Let signals of the terminal end only the command, which also gets them; return those that come."""
    asked: list[str] = []
    for number in (signal.SIGINT, signal.SIGQUIT):
        # Unlike SIG_IGN, a handler is not inherited by the command (execve(2)).
        before = signal.signal(number, lambda number, _: asked.append(signal.Signals(number).name.removeprefix("SIG")))
        stack.callback(signal.signal, number, before)
    return asked


def _look(pid: int, processes: ProcessRecorder, files: FileRecorder, now: float) -> None:
    processes.look(Tree.below(Path("/proc"), pid), now)
    files.look(now)


def _follow(
    child: subprocess.Popen[bytes], outputs: dict[int, _Output], look: Callable[[float], None], begin: float
) -> None:
    """Look and collect output until the command and its output have ended."""
    ended: float | None = None
    due = 0.0
    with selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            now = time.monotonic() - begin
            if now >= due and ended is None:
                look(now)
                due = max(due + INTERVAL, time.monotonic() - begin)
            if ended is None and child.poll() is not None:
                ended = now
                look(now)
            if ended is not None and (not selector.get_map() or now - ended > LINGER):
                return
            wait = INTERVAL if ended is not None else max(0.0, due - (time.monotonic() - begin))
            if not selector.get_map():
                time.sleep(wait)
                continue
            for key, _ in selector.select(wait):
                if data := os.read(key.fd, PIECE):
                    outputs[key.fd].take(data, time.monotonic() - begin)
                else:
                    selector.unregister(key.fd)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Record text files that appear or grow below it, up to 1 MiB each; repeatable.",
)
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def main(watched: tuple[Path, ...], folder: Path, argv: tuple[str, ...]) -> None:
    """Run a benchmark and record it as a capture, a folder that can be replayed."""
    command = argv[1:] if argv[0] == "--" else argv
    if not command or shutil.which(command[0]) is None:
        _fail(f"{' '.join(command[:1]) or '--'}: no such command")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            _fail(f"{folder}: not empty")
        status = record(folder, command, watched)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    click.echo(f"pinchpoint: recorded in {folder}: read it before you give it away, {CONTENTS} are in it", err=True)
    sys.exit(status)


def _fail(message: str) -> NoReturn:
    click.echo(f"pinchpoint: {message}", err=True)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
