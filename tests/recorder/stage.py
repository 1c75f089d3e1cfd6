"""A stage for a capture: a /proc and a root directory with the recorded content, at one moment after another.

Everything is created below one directory of ours. Paths of the capture become names below it, checked one by one, and
links exist only where a /proc has them; nothing follows those.
Anything that was not recorded is invisible, as without permission.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pinchpoint.benchmarks.tree import OpenFile, Tree
from pinchpoint.host.procfs import FormatError, Stat, parse_stat, read_bytes
from recorder.capture import Change, OpenedFile, Written

__all__ = ["Stage"]

BOOT = 1000.0
"""Seconds from the boot of the replayed machine to the start of the capture."""
BEFORE = 0.05
"""A file that appears within this many seconds existed before the run."""
AGE = 60.0
"""Age of such a file in seconds."""
TICKS = os.sysconf("SC_CLK_TCK")
NAME_LIMIT = 255
PATH_LIMIT = 4095
DEPTH_LIMIT = 64
"""Maximum number of directories created for one path."""


class _Tree(Tree):
    """Processes, some without visible descriptors."""

    hidden: frozenset[int] = frozenset()

    def open_files(self, pid: int) -> list[OpenFile]:
        if pid in self.hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{self.procfs}/{pid}/fd")
        return super().open_files(pid)

    def threads(self, pid: int) -> list[int]:
        # A real /proc lists them in order, other file systems don't.
        return sorted(super().threads(pid))


class Stage:
    """A /proc and a root directory below `directory`, which has to be empty; `start` is in Unix seconds."""

    def __init__(self, directory: Path, start: float) -> None:
        self.procfs = directory / "proc"
        self.root = directory / "root"
        self._start = start
        self._births: dict[int, float] = {}
        self._hidden: set[int] = set()
        self.procfs.mkdir()
        self.root.mkdir()
        (self.procfs / "stat").write_text(f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {max(0, int(start - BOOT))}\n")

    def tree(self, time: float) -> Tree:
        """Return the processes `time` seconds after the start, in order of birth."""
        (self.procfs / "uptime").write_text(f"{BOOT + time:.2f} 0.00\n")
        found: dict[int, Stat] = {}
        for pid in self._births:
            try:
                found[pid] = parse_stat(read_bytes(self.procfs / str(pid) / "stat"))
            except (OSError, FormatError):
                continue
        return _Tree(self.procfs, found, frozenset(self._hidden))

    def change(self, change: Change) -> None:
        """Make a process start, change or end."""
        pid, directory = change.pid, self.procfs / str(change.pid)
        if change.gone:
            self._births.pop(pid, None)
            shutil.rmtree(directory, ignore_errors=True)
            return
        born = self._births.setdefault(pid, change.time)
        shutil.rmtree(directory, ignore_errors=True)
        for name in ("fd", "fdinfo"):
            (directory / name).mkdir(parents=True)
        comm = _name(change.comm)
        ticks = int((BOOT + born) * TICKS)
        # do_task_stat (fs/proc/array.c): pid, name, state, parent, 17 more, start; the rest is not read.
        fields = f"S {change.ppid} {pid} {pid} 0 -1 0 {'0 ' * 12}{ticks} 0 0\n"
        (directory / "stat").write_bytes(b"%d (%b) %b" % (pid, comm, fields.encode()))
        (directory / "comm").write_bytes(comm + b"\n")
        (directory / "cmdline").write_bytes(b"".join(_bytes(word) + b"\0" for word in change.argv))
        _link(directory / "cwd", change.cwd)
        (directory / "root").symlink_to(self.root)
        for number, name in enumerate(change.threads):
            thread = directory / "task" / str(pid + number)
            thread.mkdir(parents=True)
            (thread / "comm").write_bytes(_name(name) + b"\n")
        self._hidden.discard(pid)
        if change.files is None:
            self._hidden.add(pid)
        else:
            self._open(directory, change.files)

    @staticmethod
    def _open(directory: Path, files: Iterable[OpenedFile]) -> None:
        for file in files:
            _link(directory / "fd" / str(file.descriptor), file.path)
            (directory / "fdinfo" / str(file.descriptor)).write_text(
                f"pos:\t{file.position}\nflags:\t0{file.flags:o}\nmnt_id:\t1\nino:\t1\n"
            )

    def write(self, written: Written) -> None:
        """Write a file; a path that is invalid below the root, or blocked by another file, is left out."""
        path = PurePosixPath(written.path)
        parts = path.parts[1:]
        if (
            not path.is_absolute()
            or not 0 < len(parts) <= DEPTH_LIMIT
            or ".." in parts
            or "\0" in written.path
            or any(len(_bytes(part)) > NAME_LIMIT for part in parts)
        ):
            return
        target = Path(os.fsdecode(_bytes(str(self.root.joinpath(*parts)))))
        # There are no links below the root, since only this method writes there.
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab" if written.appended else "wb") as file:
                file.write(written.data)
            changed = self._start + (written.time if written.time > BEFORE else -AGE)
            for touched in (target, target.parent):
                os.utime(touched, (changed, changed))
        except OSError:
            return


def _bytes(text: str) -> bytes:
    """Return text as it appears in /proc: without a NUL, and with the bytes that were not UTF-8."""
    try:
        return text.replace("\0", "").encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.replace("\0", "").encode("utf-8", "replace")


def _name(text: str) -> bytes:
    """Return the name of a thread: 15 bytes at most (TASK_COMM_LEN, include/linux/sched.h)."""
    return _bytes(text)[:15]


def _link(path: Path, target: str) -> None:
    if 0 < len(raw := _bytes(target)) <= PATH_LIMIT and not path.is_symlink():
        os.symlink(raw, os.fsencode(path))
