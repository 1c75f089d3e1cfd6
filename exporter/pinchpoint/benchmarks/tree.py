"""The processes that are searched for a benchmark, and what each reveals about itself.

What is read here about other users' processes (command lines, single variables, open files) names phases and is never
shown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from pinchpoint.host.confine import User
from pinchpoint.host.procfs import FormatError, Stat, decode, parse_stat, read_bytes
from pinchpoint.host.rootfs import Rights, list_in_root, open_in_root, read_piece
from pinchpoint.host.users import process_user

__all__ = ["OpenFile", "ProcessStat", "Tree", "stats_below"]

MAX_PROCESSES = 4096
"""Maximum number of processes per command."""
MAX_OPEN_FILES = 4096
"""Maximum number of open files per process."""
SYNC_CALLS = {
    "x86_64": (b"74", b"75", b"162", b"277", b"306"),
    "aarch64": (b"82", b"83", b"81", b"84", b"267"),
}
"""Numbers of fsync, fdatasync, sync, sync_file_range and syncfs (arch/x86/entry/syscalls/syscall_64.tbl,
include/uapi/asm-generic/unistd.h; they never change)."""
MAX_READ_BYTES = 1 << 20
"""Longest file that is read whole, in bytes."""
MAX_DIRECTORY_NAMES = 4096
"""Names of one directory that are read."""


class ProcessStat(Protocol):
    """What is known about a process: `pinchpoint.host.procfs.Stat` is one."""

    @property
    def comm(self) -> str:
        """Name of its leader."""

    @property
    def state(self) -> str:
        """``Z`` if it has ended and its parent has not reaped it."""

    @property
    def ppid(self) -> int:
        """Its parent."""

    @property
    def start(self) -> int:
        """Clock ticks from boot to its start; with the pid, this identifies it."""


class OpenFile(NamedTuple):
    """A file that a process has open."""

    descriptor: int
    path: str
    """Path as the process sees it; ``pipe:[N]``, ``socket:[N]`` and the like for anything but a file."""


class Position(NamedTuple):
    """A process' position in an open file (``seq_show`` in fs/proc/fd.c)."""

    offset: int
    flags: int
    """Those of open(2)."""

    @property
    def writes(self) -> bool:
        """Whether it can be written."""
        return self.flags & os.O_ACCMODE != os.O_RDONLY


class Tree(msgspec.Struct, dict=True):  # cached properties need a dictionary
    """Some processes of a host by pid, as they were just now. Data of processes that have gone is empty."""

    procfs: Path
    processes: Mapping[int, ProcessStat]

    @classmethod
    def below(cls, procfs: Path, root: int) -> Tree:
        """Return a process and all below it."""
        return cls(procfs, stats_below(procfs, root))

    @cached_property
    def _children(self) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = {}
        for pid, task in self.processes.items():
            found.setdefault(task.ppid, []).append(pid)
        return found

    @cached_property
    def _roots(self) -> dict[int, str]:
        """Root directories of processes that were asked for, as seen from ours."""
        return {}

    def readable(self, pid: int) -> bool:
        """Return whether more of a process may be read than its name."""
        return pid in self.processes

    def comm(self, pid: int) -> str:
        """Return the name of a process; empty if it isn't one of these."""
        task = self.processes.get(pid)
        return "" if task is None else task.comm

    def children(self, pid: int) -> Sequence[int]:
        """Return the children of a process, oldest first."""
        return self._children.get(pid, ())

    def descendants(self, *pids: int) -> Iterator[int]:
        """Yield all processes below these, but not these themselves: each once, those nearest to them first."""
        seen = {*pids}
        waiting = [child for pid in pids for child in _unseen(self.children(pid), seen)]
        for child in waiting:
            yield child
            waiting.extend(_unseen(self.children(child), seen))

    def ancestors(self, *pids: int) -> Iterator[int]:
        """Yield parent, grandparent and so on of these, while they are among these processes: each once."""
        seen = {*pids}
        for pid in pids:
            while (task := self.processes.get(pid)) is not None:
                pid = task.ppid
                if pid not in self.processes or pid in seen:
                    break
                seen.add(pid)
                yield pid

    def threads(self, pid: int) -> list[int]:
        """Return the threads of a process, oldest first; empty if they can't be read."""
        try:
            # next_tid (fs/proc/base.c) follows the list, to which each new thread is appended.
            return [int(tid) for tid in os.listdir(f"{self.procfs}/{pid}/task")]
        except OSError:
            return []

    def thread_names(self, pid: int) -> dict[int, str]:
        """Return the names of a process' threads by their id, oldest first."""
        names = {}
        for tid in self.threads(pid):
            try:
                names[tid] = decode(read_bytes(f"{self.procfs}/{pid}/task/{tid}/comm").rstrip(b"\n"))
            except OSError:
                continue
        return names

    def argv(self, pid: int) -> list[str]:
        """Return a process' command line; empty if it can't be read."""
        try:
            return [decode(word) for word in read_bytes(f"{self.procfs}/{pid}/cmdline").split(b"\0")[:-1]]
        except OSError:
            return []

    def variable(self, pid: int, name: str) -> str:
        """Return one variable of a process' environment; empty if unset or unreadable."""
        try:
            words = read_bytes(f"{self.procfs}/{pid}/environ").split(b"\0")
        except OSError:
            return ""
        start = name.encode("utf-8", "replace") + b"="
        return next((decode(word[len(start) :]) for word in words if word.startswith(start)), "")

    def cwd(self, pid: int) -> str:
        """Return a process' working directory as it sees it; / if it can't be read."""
        try:
            return self._inside(pid, os.readlink(f"{self.procfs}/{pid}/cwd"))
        except OSError:
            return "/"

    def _inside(self, pid: int, path: str) -> str:
        """Return a path that the kernel gave us as the process sees it.

        The kernel writes it as seen from our root directory (d_path, fs/d_path.c): after a plain chroot(2) with that of
        the process in front. For a process in a mount namespace of its own both paths begin at that namespace's root.
        """
        root = self._roots.get(pid)
        if root is None:
            try:
                root = os.readlink(f"{self.procfs}/{pid}/root")
            except OSError:
                root = "/"
            self._roots[pid] = root
        if root == "/" or not f"{path}/".startswith(f"{root}/"):
            return path
        return path[len(root) :] or "/"

    def syncs(self, pid: int) -> bool:
        """Return whether a process is inside a call that writes its data back, such as fsync(2)."""
        try:
            # proc_pid_syscall (fs/proc/base.c): the number and the arguments, or "running" while it has a CPU.
            number = read_bytes(f"{self.procfs}/{pid}/syscall").split(b" ", 1)[0]
        except OSError:
            return False
        return number in SYNC_CALLS.get(os.uname().machine, ())

    def open_files(self, pid: int) -> list[OpenFile]:
        """Return a process' open files, by descriptor. Raises PermissionError if we may not see them."""
        directory = self.procfs / str(pid) / "fd"
        found = []
        try:
            names = sorted(map(int, os.listdir(directory)))
        except PermissionError:
            raise
        except OSError:
            return []
        for descriptor in names[:MAX_OPEN_FILES]:
            if path := self.link(pid, descriptor):
                found.append(OpenFile(descriptor, path))
        return found

    def link(self, pid: int, descriptor: int) -> str:
        """Return the path of one open file; empty if it is not open or can't be seen."""
        try:
            return self._inside(pid, os.readlink(f"{self.procfs}/{pid}/fd/{descriptor}"))
        except OSError:
            return ""

    def position(self, pid: int, descriptor: int) -> Position | None:
        """Return a process' position in an open file, None if it can't be seen."""
        try:
            raw = read_bytes(f"{self.procfs}/{pid}/fdinfo/{descriptor}")
            fields = dict(line.split(b":", 1) for line in raw.splitlines() if b":" in line)
            return Position(int(fields[b"pos"]), int(fields[b"flags"], 8))
        except (OSError, KeyError, ValueError):
            return None

    def owner(self, pid: int) -> int:
        """Return the user who started the process."""
        return process_user(self.procfs, pid)

    def exit_code(self, pid: int) -> int:
        """Return the wait status of a zombie process; 0 if we may not see it."""
        try:
            # do_task_stat (fs/proc/array.c): its last field.
            return int(read_bytes(f"{self.procfs}/{pid}/stat").split()[-1])
        except (OSError, ValueError, IndexError):
            return 0

    def user(self, pid: int) -> User:
        """Return whose files a process opens. Raises OSError."""
        lines = read_bytes(f"{self.procfs}/{pid}/status").splitlines()
        fields = dict(line.split(b":", 1) for line in lines if b":" in line)
        try:
            # proc_pid_status (fs/proc/array.c): real, effective, saved and file system ids.
            user, group = (int(fields[name].split()[3]) for name in (b"Uid", b"Gid"))
            return User(user, group, tuple(map(int, fields[b"Groups"].split())))
        except (KeyError, IndexError, ValueError) as error:
            raise OSError(errno.EIO, "no ids", f"{self.procfs}/{pid}/status") from error

    def rights(self, pid: int) -> Rights | None:
        """Return what a process may open; None if these are not a kernel's processes. Raises OSError."""
        try:
            user = self.user(pid)
        except FileNotFoundError:
            if os.path.lexists(self.procfs / "self"):
                raise
            return None
        return Rights(user.uid, frozenset([user.gid, *user.groups]))

    def open_path(self, pid: int, path: str) -> AbstractContextManager[int]:
        """Give a descriptor of a regular file that the process may read, by its path as it sees it. Raises OSError."""
        return open_in_root(self.procfs / str(pid) / "root", os.path.join(self.cwd(pid), path), self.rights(pid))

    def read_file(self, pid: int, path: str, limit: int = MAX_READ_BYTES) -> bytes:
        """Return the beginning of a regular file by its path as the process sees it. Raises OSError."""
        with self.open_path(pid, path) as descriptor:
            return read_piece(descriptor, 0, limit)

    def list_directory(self, pid: int, path: str, limit: int = MAX_DIRECTORY_NAMES) -> list[str]:
        """Return names in a directory by its path as the process sees it, in no order. Raises OSError."""
        return list_in_root(self.procfs / str(pid) / "root", os.path.join(self.cwd(pid), path), limit, self.rights(pid))


def stats_below(procfs: Path, root: int) -> dict[int, Stat]:
    """Return a process and all below it."""
    found: dict[int, Stat] = {}
    seen, waiting = {root}, [root]
    for pid in waiting:
        if len(found) >= MAX_PROCESSES:
            break
        try:
            stat = parse_stat(read_bytes(f"{procfs}/{pid}/stat"))
            tids = os.listdir(f"{procfs}/{pid}/task")
        except (OSError, FormatError):
            continue
        found[pid] = stat
        for tid in tids:
            # children_seq_show (fs/proc/array.c): the pids whose parent is this very thread.
            try:
                children = list(map(int, read_bytes(f"{procfs}/{pid}/task/{tid}/children").split()))
            except (OSError, ValueError):
                continue
            waiting.extend(_unseen(children, seen))
    return found


def _unseen(pids: Iterable[int], seen: set[int]) -> Iterator[int]:
    """Yield the pids that are not in `seen`, and add them: a pid that is reused while we read may close a circle."""
    for pid in pids:
        if pid not in seen:
            seen.add(pid)
            yield pid
