"""Sources of per-thread CPU time and run-queue wait.

At each call a `TaskSource` returns the threads that ran or waited since the last one. All implementations report the
same; they differ in cost. This module has the source for every kernel: kept descriptors of procfs files, read with
``pread`` at a tenth of the cost of opening the files each time. `pinchpoint.bpf.choice` chooses.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from pinchpoint.host.procfs import FormatError, Stat, decode, first_names, parse_schedstat, parse_stat, read_bytes
from pinchpoint.units import NANOSECONDS_PER_SECOND, TICKS_PER_SECOND

__all__ = [
    "KeptFile",
    "ProcfsSource",
    "Task",
    "TaskSource",
    "TaskUse",
    "Times",
    "born_since",
    "choose_times",
    "raise_file_limit",
    "uptime",
]

RESERVED_DESCRIPTORS = 256
"""Descriptors that stay free for sockets and for files that are opened for a moment."""
NAME_SETTLED_SECONDS = 10.0
"""Seconds after which a thread's name is taken as final; before, it is read again whenever the thread ran."""
BORN_SLACK_SECONDS = 2 / TICKS_PER_SECOND
"""Seconds by which a thread's start and the uptime may differ: both are cut to a tick."""


class Task:
    """One thread. The same object stands for it as long as it lives; a reused id is another object."""

    __slots__ = ("born", "comm", "sampled_every", "tgid", "tid")

    def __init__(self, tgid: int, tid: int, comm: str, born: float) -> None:
        self.tgid = tgid
        self.tid = tid
        self.comm = comm
        self.born = born
        """Monotonic time in seconds at which it was found."""
        self.sampled_every = 1
        """It is read once in so many samples, if reading it costs anything."""


class _ProcfsTask(Task):
    """A thread, and the last reading of it."""

    __slots__ = ("file", "raw", "run", "wait")

    def __init__(self, tgid: int, tid: int, comm: str, born: float, file: KeptFile) -> None:
        super().__init__(tgid, tid, comm, born)
        self.file = file
        self.raw = b""
        self.run = 0
        self.wait = 0


class TaskUse(NamedTuple):
    """What a thread used since the last sample: nanoseconds on a CPU and nanoseconds of run-queue wait."""

    task: Task
    run: int
    wait: int


class TaskSource(Protocol):
    """The interface of every source of per-thread times."""

    name: str
    """Its name in ``pinchpoint_task_source_info``."""
    file: str
    """Name of the procfs file that it reads; "" where it reads none."""
    reason: str
    """Why it was chosen and not a better one; "" for the best."""
    unreadable: int
    """Threads that exist but can't be read."""

    def follow(self, tgids: Iterable[int], now: float) -> None:
        """Follow the threads of these processes and of no others; newborn threads count from zero."""

    def sample(self, now: float, *, all_tasks: bool = False) -> list[TaskUse]:
        """Return the threads that ran or waited since the last call; `now` is a monotonic time in seconds.

        A source may leave out threads that are not due; with `all_tasks` it leaves out none. One that sees the whole
        host also reports threads of other processes that used 5 % of the time or more.
        """

    def tasks(self) -> Iterable[Task]:
        """Return every thread that is followed."""

    def close(self) -> None:
        """Release everything."""


class KeptFile:
    """A procfs file that is read again and again through one descriptor.

    The descriptor of a thread's file belongs to that thread for ever: after its end a read gives ESRCH and never the
    values of a new thread with the same id (``proc_single_show`` holds a ``struct pid``, fs/proc/base.c). Where no
    descriptor may be kept the file is opened at each read.
    """

    __slots__ = ("_fd", "_path", "_size", "read")

    kept = 0
    """Descriptors that all objects of this class keep open."""
    counting = Lock()
    """Held to change `kept`."""
    limit = 512
    """How many they may keep: see `raise_file_limit`."""

    read: Callable[[], bytes]
    """Returns the beginning of the file as it is now; raises OSError. It is called thousands of times a second, and a
    Python frame would add a tenth to its cost."""

    def __init__(self, path: str, size: int = 512, *, keep: bool = True) -> None:
        self._path, self._size = path, size
        self._fd = -1
        self.read = partial(read_bytes, path, size)
        if keep and KeptFile.kept < KeptFile.limit:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.read = partial(os.pread, self._fd, size, 0)
            with KeptFile.counting:
                KeptFile.kept += 1

    def close(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            self.read = partial(read_bytes, self._path, self._size)
            os.close(self._fd)
            self._fd = -1
            with KeptFile.counting:
                KeptFile.kept -= 1


def raise_file_limit() -> int:
    """Raise this process' limit of open files as far as allowed; return how many files may be kept open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    # Half of a small limit, all but a reserve of a large one.
    KeptFile.limit = max(soft // 2, soft - RESERVED_DESCRIPTORS)
    return KeptFile.limit


class Times(NamedTuple):
    """Where a thread's times are read."""

    file: str
    """Its name in the thread's directory."""
    parse: Callable[[bytes], tuple[int, int]]
    """Gives nanoseconds on a CPU and nanoseconds of run-queue wait; raises FormatError."""
    size: int
    """Bytes to read of it: the buffer is allocated first."""
    reason: str = ""
    """Why there is no better file; "" for the best."""


SCHEDSTAT = Times("schedstat", parse_schedstat, 64)


def uptime(procfs: str) -> float:
    """Return the seconds since boot that a procfs shows, NaN if it shows none."""
    try:
        return float(read_bytes(f"{procfs}/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return math.nan


def born_since(stat: Stat, earlier: float, later: float) -> bool:
    """Return whether a thread was created between two times of `uptime`.

    False if unknown: what a thread used before the first look is never taken for new.
    """
    # A start in the future means that uptime is another machine's (LXCFS shows a container's).
    return earlier - BORN_SLACK_SECONDS <= stat.start / TICKS_PER_SECOND <= later + BORN_SLACK_SECONDS


class ProcfsSource:
    """Threads of chosen processes, read from ``/proc/PID/task/TID/FILE``.

    `period` returns a thread's `Task.sampled_every`, by its process and name: threads that can't be full need not be
    read ten times a second. `most` returns how many threads of a process are followed, the oldest first. A thread's
    name is read again for its first `settled` seconds. Without `keep` each file is opened at each read.
    """

    def __init__(
        self,
        procfs: Path,
        times: Times = SCHEDSTAT,
        *,
        period: Callable[[int, str], int] = lambda tgid, comm: 1,
        most: Callable[[int], int] = lambda tgid: sys.maxsize,
        settled: float = NAME_SETTLED_SECONDS,
        keep: bool = True,
    ) -> None:
        self.name = "kept" if keep else "plain"
        self.file, self._parse, self._size, self.reason = times
        self._keep = keep
        self.unreadable = 0
        self._procfs = os.fspath(procfs)
        self._period = period
        self._most = most
        self._settled = settled
        self._tasks: dict[int, dict[int, _ProcfsTask]] = {}
        self._turn = 0
        self._followed_at = math.nan
        """Uptime before the last listing, in seconds."""

    def follow(self, tgids: Iterable[int], now: float) -> None:
        """Follow the threads of these processes and of no others."""
        wanted = dict.fromkeys(tgids)
        for tgid in [tgid for tgid in self._tasks if tgid not in wanted]:
            for task in self._tasks.pop(tgid).values():
                task.file.close()
        self.unreadable = 0
        before = uptime(self._procfs)
        for tgid in wanted:
            self._follow(tgid, now)
        self._followed_at = before

    def _follow(self, tgid: int, now: float) -> None:
        known = self._tasks.setdefault(tgid, {})
        try:
            tids = set(map(int, first_names(f"{self._procfs}/{tgid}/task", self._most(tgid))))
        except PermissionError:
            self.unreadable += 1
            return
        except (OSError, ValueError):
            tids = set()
        for tid in known.keys() - tids:
            known.pop(tid).file.close()
        new = sorted(tids - known.keys())
        listed = uptime(self._procfs) if new else math.nan
        for tid in new:
            if (task := self._meet(tgid, tid, now, listed)) is not None:
                known[tid] = task

    def _meet(self, tgid: int, tid: int, now: float, listed: float) -> _ProcfsTask | None:
        """Return a thread that was not there at the last look; None if it is gone again."""
        path = f"{self._procfs}/{tgid}/task/{tid}"
        file = None
        try:
            file = KeptFile(f"{path}/{self.file}", self._size, keep=self._keep)
            stat = parse_stat(read_bytes(f"{path}/stat"))
            task = _ProcfsTask(tgid, tid, stat.comm, now, file)
            task.raw = file.read()
            task.run, task.wait = self._parse(task.raw)
        except (OSError, FormatError) as error:
            self.unreadable += isinstance(error, PermissionError)
            if file is not None:
                file.close()
            return None
        task.sampled_every = self._period(tgid, task.comm)
        if born_since(stat, self._followed_at, listed):
            # All that it used is new. An older one only became interesting now: by an exec.
            task.raw, task.run, task.wait = b"", 0, 0
        return task

    def sample(self, now: float, *, all_tasks: bool = False) -> list[TaskUse]:
        """Return what changed since the last call, of the threads that are due or of all."""
        used: list[TaskUse] = []
        self._turn += 1
        turn = self._turn
        for tasks in self._tasks.values():
            gone = None
            for task in tasks.values():
                if task.sampled_every > 1 and not all_tasks and (turn + task.tid) % task.sampled_every:
                    continue
                try:
                    raw = task.file.read()
                    if raw == task.raw:
                        continue
                    run, wait = self._parse(raw)
                except (OSError, FormatError):
                    gone = [task] if gone is None else [*gone, task]
                    continue
                task.raw = raw
                if run < task.run or wait < task.wait:
                    # Another thread with a reused id; only a newly opened file can show it.
                    task.run, task.wait, task.born = 0, 0, now
                if now - task.born < self._settled:
                    self._rename(task)
                used.append(TaskUse(task, run - task.run, wait - task.wait))
                task.run, task.wait = run, wait
            for task in gone or ():
                tasks.pop(task.tid).file.close()
        return used

    def _rename(self, task: _ProcfsTask) -> None:
        """Read the name of a young thread again: it starts with its creator's and sets its own later."""
        try:
            comm = _comm(f"{self._procfs}/{task.tgid}/task/{task.tid}")
        except OSError:
            return
        if comm != task.comm:
            task.comm = comm
            task.sampled_every = self._period(task.tgid, comm)

    def tasks(self) -> Iterable[Task]:
        """Return every thread that is followed."""
        return [task for tasks in self._tasks.values() for task in tasks.values()]

    def close(self) -> None:
        """Close every kept file."""
        self.follow((), 0.0)


def _comm(task: str) -> str:
    """Return the name of the thread whose directory is `task`: without the kernel's final newline."""
    return decode(read_bytes(f"{task}/comm").removesuffix(b"\n"))


def choose_times(procfs: Path) -> Times:
    """Return the best file that this machine has for a thread's times. Raises OSError where there is no procfs."""
    if reason := _schedstat_missing(procfs):
        return Times("stat", _parse_stat_times, 512, reason)
    return SCHEDSTAT


def _parse_stat_times(raw: bytes) -> tuple[int, int]:
    """Return what `parse_schedstat` does, in whole ticks; without CONFIG_SCHED_INFO the wait is unknown."""
    stat = parse_stat(raw)
    return (stat.utime + stat.stime) * NANOSECONDS_PER_SECOND // TICKS_PER_SECOND, 0


def _schedstat_missing(procfs: Path) -> str:
    """Return why schedstat can't be used, "" where it can."""
    pids = sorted((int(name) for name in os.listdir(procfs) if name.isdigit()), reverse=True)
    seen = False
    for pid in pids[:64]:
        try:
            run, wait = parse_schedstat(read_bytes(f"{procfs}/{pid}/schedstat"))
        except (OSError, FormatError):
            continue
        seen = True
        if run or wait:
            return ""
    # proc_pid_schedstat (fs/proc/base.c) prints "0 0 0" where accounting is switched off.
    return "schedstat is all zero" if seen else "no schedstat" if pids else "no processes to be seen"
