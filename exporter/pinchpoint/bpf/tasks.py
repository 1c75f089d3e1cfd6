"""Thread times from BPF: one pass over all tasks in the kernel, and only changed ones reach user space.

There are two forms. `SyscallSource` runs a program that walks the tasks itself on request, and leaves its results in
shared memory (Linux 6.7). `IteratorSource` reads an iterator's output (Linux 5.8). Both see every thread of the host:
besides those of followed processes, they report threads of others that used much.
"""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from pinchpoint.bpf.libbpf import BpfError, Loaded, load
from pinchpoint.host.procfs import PF_KTHREAD, PF_WQ_WORKER, decode, read_bytes
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.units import TICKS_PER_SECOND

__all__ = ["BpfSource", "IteratorSource", "SyscallSource", "pid_namespace"]

MIN_UNFOLLOWED_SHARE = 0.05
"""Share of an interval from which an unfollowed thread is reported."""
MIN_FOLLOWED_SHARE = 0.005
"""Share of an interval that a followed thread has used before it is reported, since daemons have dozens of threads that
only wake up; what is left is reported later."""
MAX_INTERVAL_SECONDS = 60.0
"""Cap of the interval, in seconds."""
RECORD = struct.Struct("=IIQQQII16s")
"""``struct record`` of tasks.h: tid, tgid, start, run, wait, flags, unused, comm."""
PASS = struct.Struct("=QQQIIIII")
"""``pass`` of tasks.h: since, much, little, namespace, listing, room, level, found."""
LEVEL_FIELD, FOUND_FIELD = 6, 7
MAX_PASS_RECORDS = 8192
"""Records of one pass, as many as ``records`` of tasks.bpf.c has."""
MAX_PASSES = 16
"""Passes of one sample, if more threads change than there is room for; the next sample reports the rest."""
READ_BYTES = 1024 * RECORD.size
"""Whole records, however large the kernel's own buffer is: eight of its pages (bpf_iter_seq, kernel/bpf/bpf_iter.c)."""
MIN_REMEMBERED_TASKS = 1 << 16
"""Minimum number of tasks that an iterator remembers,"""
REMEMBERED_PER_TASK = 2
"""... and per task that exists at its start, since more will come."""
MAX_ASKED_PROCESSES = 256
"""Oldest processes that are asked for their PID namespace."""
NEVER = (1 << 64) - 1
FIRST_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h."""
START_MARGIN_NANOSECONDS = 1_000_000_000
"""Nanoseconds by which a thread may be older than the last pass and still be new: it joins the list of tasks a while
after its start (copy_process, kernel/fork.c)."""
LISTING_SLACK_NANOSECONDS = 2 * 1_000_000_000 // TICKS_PER_SECOND
"""Nanoseconds that may pass between listing processes and their threads: as many as `born_since` allows."""
KEEP_STRANGER_SECONDS = 10.0
"""Seconds for which a stranger is remembered after it cooled."""


def pid_namespace(procfs: Path) -> int:
    """Return the inode number of the PID namespace that a procfs shows. Raises BpfError if nothing there shows it."""
    numbers = sorted(int(name) for name in os.listdir(procfs) if name.isdigit())
    for name in ("self", *map(str, numbers[:MAX_ASKED_PROCESSES])):
        try:
            # A process has a number in each namespace from the procfs' own down to the one that it is in (Linux 4.1).
            if len(_field(read_bytes(procfs / name / "status"), b"NSpid")) == 1:
                return os.stat(procfs / name / "ns" / "pid").st_ino
        except OSError:
            continue  # it is gone, or has rights that we lack: the first process often does
    raise BpfError("no process in procfs tells its PID namespace: it is another kernel's, or needs CAP_SYS_PTRACE")


def _field(status: bytes, name: bytes) -> list[bytes]:
    """Return the words of a line of ``/proc/PID/status``."""
    lines = (line.partition(b":") for line in status.split(b"\n"))
    return next((words.split() for key, _, words in lines if key == name), [])


class _BpfTask(Task):
    """A thread as BPF reports it."""

    __slots__ = ("hot", "name", "start")

    def __init__(self, tgid: int, tid: int, comm: str, born: float, start: int, name: bytes) -> None:
        super().__init__(tgid, tid, comm, born)
        self.start = start
        """Nanoseconds from boot to its start."""
        self.name = name
        """Its raw comm."""
        self.hot = born
        """Monotonic time in seconds at which it was last reported as a stranger."""


class BpfSource(ABC):
    """What both forms have in common. Raises BpfError where it does not work here."""

    name: str
    file = ""
    unreadable = 0

    def __init__(self, procfs: Path, reason: str = "") -> None:
        self.reason = reason
        self._procfs = os.fspath(procfs)
        namespace = pid_namespace(procfs)
        self._namespace = 0 if namespace == FIRST_NAMESPACE else namespace
        self._loaded = self._load(namespace)
        self._tasks: dict[int, _BpfTask] = {}
        self._strangers: dict[int, _BpfTask] = {}
        self._followed: frozenset[int] = frozenset()
        self._pending: list[TaskUse] = []
        self._since = self._listed = NEVER
        self._listings = 0
        self._last = 0.0
        try:
            self._pass = self._loaded.memory(".bss")
            self.sample(0.0)  # threads that start from now on are new
            self.follow((), 0.0)
            if self._namespace and not self._state()[LEVEL_FIELD]:
                raise BpfError("the PID namespace of the procfs can't be seen")
        except BaseException:
            self._loaded.close()
            raise

    @abstractmethod
    def _load(self, namespace: int) -> Loaded:
        """Load the programs for the tasks of a PID namespace. Raises BpfError."""

    @abstractmethod
    def _records(self) -> Iterator[bytes]:
        """Make a pass and yield its records, in pieces. Raises BpfError."""

    def _state(self) -> tuple[int, ...]:
        return PASS.unpack_from(self._pass)

    def _walk(
        self, *, much: int = 0, little: int = 0, listing: int = 0
    ) -> Iterator[tuple[int, int, int, int, int, int, int, bytes]]:
        """Make as many passes as it takes to report all, and yield the records."""
        for made in count(1):
            began = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - START_MARGIN_NANOSECONDS
            level = self._state()[LEVEL_FIELD]
            PASS.pack_into(
                self._pass, 0, self._since, much, little, self._namespace, listing, MAX_PASS_RECORDS, level, 0
            )
            for piece in self._records():
                yield from RECORD.iter_unpack(piece)
            if not listing:
                self._since = began
            if self._state()[FOUND_FIELD] <= MAX_PASS_RECORDS or (made >= MAX_PASSES and not listing):
                return

    def follow(self, tgids: Iterable[int], now: float) -> None:
        """Follow the threads of these processes; of others only those that use much are reported."""
        wanted = frozenset(tgids)
        for tgid in self._followed - wanted:
            self._loaded.drop("followed", tgid.to_bytes(4, "little"))
        for tgid in wanted - self._followed:
            self._loaded.put("followed", tgid.to_bytes(4, "little"), b"\1")
        self._followed = wanted
        began = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - LISTING_SLACK_NANOSECONDS
        tasks: dict[int, _BpfTask] = {}
        self._listings += 1
        for tid, tgid, start, run, wait, flags, _, name in self._walk(listing=self._listings):
            known = self._tasks.get(tid)
            if known is not None and known.start == start:
                task = self._named(known, flags, name)
            else:
                task = self._stranger(tgid, tid, start, flags, name, now)
                if start > self._listed and (run or wait):
                    # It was a stranger until now, and all that it used is new.
                    self._pending.append(TaskUse(task, run, wait))
            tasks[tid] = task
        self._tasks, self._listed = tasks, began
        self._strangers = {
            tid: task
            for tid, task in self._strangers.items()
            if now - task.hot < KEEP_STRANGER_SECONDS and tid not in tasks
        }

    def sample(self, now: float, *, all_tasks: bool = False) -> list[TaskUse]:
        """Return the threads that changed since the last call: others that used much, followed ones that used a little.

        With `all_tasks`, any use of a followed one counts.
        """
        pending, self._pending = self._pending, []
        used = list(pending)
        interval = 1e9 * min(now - self._last, MAX_INTERVAL_SECONDS)
        much, little = (
            max(1, int(MIN_UNFOLLOWED_SHARE * interval)),
            0 if all_tasks else int(MIN_FOLLOWED_SHARE * interval),
        )
        self._last = now
        known = self._tasks
        for tid, tgid, start, run, wait, flags, _, name in self._walk(much=much, little=max(0, little)):
            task = known.get(tid)
            if task is None or task.start != start:
                task = self._newcomer(tgid, tid, start, flags, name, now)
            elif task.name != name:
                self._named(task, flags, name)
            used.append(TaskUse(task, run, wait))
        return _summed(used) if pending or len(used) > MAX_PASS_RECORDS else used

    def _newcomer(self, tgid: int, tid: int, start: int, flags: int, name: bytes, now: float) -> _BpfTask:
        """Return a thread that is not on the list of followed ones."""
        task = self._stranger(tgid, tid, start, flags, name, now)
        if tgid in self._followed:
            self._tasks[tid] = task
        else:
            self._strangers[tid] = task
            task.hot = now
        return task

    def _stranger(self, tgid: int, tid: int, start: int, flags: int, name: bytes, now: float) -> _BpfTask:
        """Return a thread that is not followed so far; it may have been reported before."""
        known = self._strangers.get(tid)
        if known is not None and known.start == start:
            return self._named(known, flags, name)
        return _BpfTask(tgid, tid, self._comm(tgid, tid, flags, name), now, start, name)

    def _named(self, task: _BpfTask, flags: int, name: bytes) -> _BpfTask:
        """Return a known thread with its current name: a worker's changes with its work, its comm does not."""
        if task.name != name or flags & PF_WQ_WORKER:
            task.name = name
            task.comm = self._comm(task.tgid, task.tid, flags, name)
        return task

    def _comm(self, tgid: int, tid: int, flags: int, name: bytes) -> str:
        """Return a thread's name.

        Only procfs has a kernel thread's whole name (get_kthread_comm, since Linux 5.17), and says what a workqueue
        worker does (wq_worker_comm).
        """
        if flags & PF_KTHREAD:
            with suppress(OSError):
                return decode(read_bytes(f"{self._procfs}/{tgid}/task/{tid}/comm").removesuffix(b"\n"))
        return decode(name.partition(b"\0")[0])

    def tasks(self) -> Iterable[Task]:
        """Return every thread of the processes that are followed, as of the last `follow` and met since."""
        return list(self._tasks.values())

    def close(self) -> None:
        """Remove the programs and maps from the kernel."""
        self._loaded.close()


def _summed(uses: Iterable[TaskUse]) -> list[TaskUse]:
    """Return one entry per task: for a resource, an entry is all that its thread used."""
    found: dict[Task, TaskUse] = {}
    for task, run, wait in uses:
        before = found.get(task)
        if before is not None:
            run, wait = before.run + run, before.wait + wait
        found[task] = TaskUse(task, run, wait)
    return list(found.values())


class SyscallSource(BpfSource):
    """The program itself walks (tasks.bpf.c)."""

    name = "bpf"

    def _load(self, namespace: int) -> Loaded:
        return load("tasks")

    def _records(self) -> Iterator[bytes]:
        self._loaded.run("walk")
        yield self._loaded.memory("records")[: min(self._state()[FOUND_FIELD], MAX_PASS_RECORDS) * RECORD.size]


class IteratorSource(BpfSource):
    """The kernel walks, and gives the program each task (tasks_iter.bpf.c)."""

    name = "bpf-iter"

    def _load(self, namespace: int) -> Loaded:
        try:
            own = os.stat("/proc/self/ns/pid").st_ino
        except OSError as error:
            raise BpfError(f"/proc/self/ns/pid: {error.strerror}") from error
        if namespace != own:
            raise BpfError("an iterator sees its reader's own PID namespace only, and the procfs shows another")
        entries = {"last": max(MIN_REMEMBERED_TASKS, REMEMBERED_PER_TASK * _count_tasks(self._procfs))}
        return load("tasks_iter", attach=("tell",), entries=entries)

    def _records(self) -> Iterator[bytes]:
        descriptor = self._loaded.iterator()
        try:
            while piece := os.read(descriptor, READ_BYTES):
                yield piece
        except OSError as error:
            raise BpfError(f"the iterator can't be read: {error.strerror}") from error
        finally:
            os.close(descriptor)


def _count_tasks(procfs: str) -> int:
    """Return the number of tasks of the whole kernel (the fourth field of loadavg, fs/proc/loadavg.c), 0 if unknown."""
    try:
        return int(read_bytes(f"{procfs}/loadavg").split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0
