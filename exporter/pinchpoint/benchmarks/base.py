"""What Pinchpoint knows of a kind of benchmark: how its running phase is seen, and how its results are read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pinchpoint.procfs import FormatError, decode, parse_stat, read_bytes
from pinchpoint.runs import Result

__all__ = ["Benchmark", "Tree", "TreeProcess"]

TREE_LIMIT = 4096
"""Processes of one command that are looked at."""


@dataclass(frozen=True, slots=True)
class TreeProcess:
    """One process below a command."""

    pid: int
    ppid: int
    comm: str


class Tree:
    """The processes of a command, as procfs shows them now."""

    def __init__(self, procfs: Path, root: int) -> None:
        self._procfs = procfs
        self.processes: dict[int, TreeProcess] = {}
        waiting = [root]
        while waiting and len(self.processes) < TREE_LIMIT:
            pid = waiting.pop(0)
            try:
                stat = parse_stat(read_bytes(procfs / str(pid) / "stat"))
                tids = os.listdir(procfs / str(pid) / "task")
            except (OSError, FormatError):
                continue
            self.processes[pid] = TreeProcess(pid, stat.ppid, stat.comm)
            for tid in tids:
                # children_seq_show (fs/proc/array.c): the pids whose parent is this very thread.
                try:
                    found = read_bytes(procfs / str(pid) / "task" / tid / "children").split()
                except OSError:
                    continue
                waiting.extend(int(child) for child in found)

    def children(self, pid: int) -> list[int]:
        """Return the children of a process, oldest first."""
        return [process.pid for process in self.processes.values() if process.ppid == pid]

    def threads(self, pid: int) -> list[int]:
        """Return the threads of a process, oldest first; empty where they can't be read."""
        try:
            # next_tid (fs/proc/base.c) follows the list to whose end each new thread is added.
            return [int(tid) for tid in os.listdir(self._procfs / str(pid) / "task")]
        except OSError:
            return []

    def argv(self, pid: int) -> list[str]:
        """Return a process' command line; empty where it can't be read. It is used here and shown to nobody."""
        try:
            return [decode(word) for word in read_bytes(self._procfs / str(pid) / "cmdline").split(b"\0")[:-1]]
        except OSError:
            return []

    def variable(self, pid: int, name: str) -> str:
        """Return one variable of a process' environment; empty where there is none or it can't be read.

        It is used where a benchmark itself would put it into its plan, and shown to nobody.
        """
        try:
            words = read_bytes(self._procfs / str(pid) / "environ").split(b"\0")
        except OSError:
            return ""
        start = name.encode("utf-8", "replace") + b"="
        return next((decode(word[len(start) :]) for word in words if word.startswith(start)), "")

    def cwd(self, pid: int) -> Path:
        """Return a process' working directory; / where it can't be read."""
        try:
            return Path(os.readlink(self._procfs / str(pid) / "cwd"))
        except OSError:
            return Path("/")

    def open_files(self, pid: int) -> list[str]:
        """Return the paths that a process has open; empty where they can't be read."""
        found = []
        try:
            for name in os.listdir(self._procfs / str(pid) / "fd")[:256]:
                found.append(os.readlink(self._procfs / str(pid) / "fd" / name))
        except OSError:
            pass
        return found


class Benchmark(ABC):
    """One running benchmark.

    `comm` is the name of the process that is its leader. An object is made for every such process that appears in a
    run, with the leader's command line and working directory.
    """

    name: ClassVar[str]
    """The ``benchmark`` label."""
    comm: ClassVar[str]
    hint: ClassVar[str]
    """What to do where its output has no results."""

    @abstractmethod
    def __init__(self, argv: Sequence[str], cwd: Path) -> None: ...

    @abstractmethod
    def look(self, tree: Tree, leader: int) -> str | None:
        """Return the phase that goes on now, None between phases."""

    @abstractmethod
    def results(self, stdout: str, taken: set[int]) -> Mapping[str, list[Result]]:
        """Return the results by phase, after the end; `stdout` is what the whole run printed.

        Benchmarks of one kind are asked in the order of their start, with one `taken`: what of the output is one's own
        is noted there (in what way is the kind's affair), and left alone by those that come later.
        """
