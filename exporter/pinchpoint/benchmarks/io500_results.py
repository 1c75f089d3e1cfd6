"""Finds the result directory of an IO500 run, and reads its result file as it grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

from pinchpoint.benchmarks.events import Began, Ended, Event
from pinchpoint.benchmarks.io500_output import ResultFile
from pinchpoint.benchmarks.io500_plan import ini_sections
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.host.procfs import read_bytes
from pinchpoint.host.rootfs import list_in_root, open_in_root, read_piece

__all__ = ["Results", "planned_directory", "read_text"]

MAX_RESULT_PIECE_BYTES = 64 << 10
"""Bytes of result.txt that are read at one look at most; a whole one has 8 KiB."""
MAX_INI_BYTES = 64 << 10
"""Bytes of an ini file that are read; config.ini of a result directory has 2 KiB."""
MAX_DIRECTORY_NAMES = 4096
"""Names in the directory of result directories that are read."""
MAX_RESULT_DIRECTORIES = 32
"""Result directories that are searched for the run's own: the newest ones."""
MAX_CLOCK_SKEW_SECONDS = 2.0
"""How much older than its run a result directory may seem, in seconds: file servers have clocks of their own."""
STAMP = expression(r"\d{4}\.\d\d\.\d\d-\d\d\.\d\d\.\d\d(?:-app)?")
"""Name of a result directory (``prepare_aiori`` in src/main.c); isc20's app adds the suffix."""


class Results:
    """result.txt, followed by its end. It is kept open: its last lines come when rank 0 is about to go."""

    def __init__(self) -> None:
        self.file = ResultFile()
        self._kept: int | None = None
        self._identity = (0, 0)
        self._offset = 0

    def __del__(self) -> None:
        self.close()

    @property
    def known(self) -> bool:
        """Whether it could be opened."""
        return self._kept is not None

    def follow(self, tree: Tree, pid: int, path: str) -> tuple[Event, ...]:
        """Return the events since the last call. A file that was replaced is read from its beginning."""
        try:
            with _opened(tree, pid, path) as descriptor:
                found = os.fstat(descriptor)
                if self._kept is None or (found.st_dev, found.st_ino) != self._identity:
                    self.close()
                    self._kept = os.dup(descriptor)
                    self._identity = (found.st_dev, found.st_ino)
                    self._restart()
        except (OSError, ValueError):
            pass
        return self.read()

    def read(self) -> tuple[Event, ...]:
        """Return the new events of the file that is kept open."""
        if self._kept is None:
            return ()
        try:
            if os.fstat(self._kept).st_size < self._offset:
                self._restart()
            piece = read_piece(self._kept, self._offset, MAX_RESULT_PIECE_BYTES)
        except OSError:
            return ()
        self._offset += len(piece)
        return _told(self.file.feed(piece))

    def close(self) -> None:
        """Keep nothing open."""
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None

    def _restart(self) -> None:
        self.file = ResultFile()
        self._offset = 0


def _opened(tree: Tree, pid: int, path: str) -> AbstractContextManager[int]:
    """Give a descriptor of a file as the process sees it, or as we do if its root directory is not accessible."""
    if _blind(tree, pid) and path.startswith("/"):
        return open_in_root(Path("/"), path, tree.rights(pid))
    return tree.open_path(pid, path)


def _blind(tree: Tree, pid: int) -> bool:
    try:
        os.readlink(tree.procfs / str(pid) / "root")
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def read_text(tree: Tree, pid: int, path: str, limit: int) -> str:
    """Return the beginning of a file as the process sees it; empty if it can't be read."""
    try:
        with _opened(tree, pid, path) as descriptor:
            return read_piece(descriptor, 0, limit).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _told(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return events without phases that did not run, and without begins whose end is among them."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, Ended):
            while found and isinstance(last := found[-1], Began) and last.phase == event.phase:
                found.pop()
        if not isinstance(event, Ended) or event.ran:
            found.append(event)
    return tuple(found)


def planned_directory(tree: Tree, rank: int) -> str:
    """Return the result directory given by the ini file on the command line: the first one since the run's start."""
    argv = tree.argv(rank)
    if len(argv) < 2 or argv[1].startswith("-"):
        return ""
    options = ini_sections(read_text(tree, rank, argv[1], MAX_INI_BYTES)).get("global")
    if options is None:
        return ""
    above = options.get("resultdir") or "./results"
    stamp = _stamp(argv)
    if options.get("timestamp-resultdir", "TRUE").upper() == "FALSE":
        names = ["", "io500-app"]
    elif stamp:
        names = [stamp, f"{stamp}-app"]
    else:
        names = sorted(filter(STAMP.fullmatch, _listed(tree, rank, above)))[-MAX_RESULT_DIRECTORIES:]
    earliest = _start(tree, rank) - MAX_CLOCK_SKEW_SECONDS
    made = [(_made(tree, rank, path), path) for path in (os.path.join(above, name) for name in names)]
    return min(((time, path) for time, path in made if time is not None and time >= earliest), default=(0.0, ""))[1]


def _stamp(argv: Sequence[str]) -> str:
    """Return the name that io500.sh gives the result directory; empty if it gives none."""
    for word, after in pairwise((*argv, "")):
        if word.startswith("--timestamp"):
            return word.partition("=")[2] or after
    return ""


def _listed(tree: Tree, pid: int, path: str) -> list[str]:
    try:
        if _blind(tree, pid):
            return list_in_root(Path("/"), path, MAX_DIRECTORY_NAMES, tree.rights(pid)) if path.startswith("/") else []
        return tree.list_directory(pid, path, MAX_DIRECTORY_NAMES)
    except (OSError, ValueError):
        return []


def _made(tree: Tree, pid: int, directory: str) -> float | None:
    """Return when a result directory's run began, in Unix seconds: it writes config-orig.ini then, and never again."""
    try:
        with _opened(tree, pid, os.path.join(directory, "config-orig.ini")) as descriptor:
            return os.fstat(descriptor).st_mtime
    except (OSError, ValueError):
        return None


def _start(tree: Tree, pid: int) -> float:
    """Return when a process was started, in Unix seconds; 0 if not known."""
    task = tree.processes.get(pid)
    try:
        lines = read_bytes(tree.procfs / "stat").splitlines()
        boot = next(float(line.split()[1]) for line in lines if line.startswith(b"btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0.0
    return boot + task.start / os.sysconf("SC_CLK_TCK") if task is not None else 0.0
