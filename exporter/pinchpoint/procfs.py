"""Parsers of procfs' formats: pure functions over bytes, each with the kernel file that writes them.

All of them take what another process may have put there: a thread can choose any name, so fields are found from the
*last* closing parenthesis on, and text is decoded with replacement.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["FormatError", "Stat", "decode", "kworker_work", "parse_schedstat", "parse_stat", "read_bytes"]

PF_KTHREAD = 0x00200000
"""Flag of a kernel thread (include/linux/sched.h; unchanged since Linux 2.6.27)."""
PF_WQ_WORKER = 0x00000020
"""Flag of a workqueue worker (include/linux/sched.h; since Linux 3.1)."""

READ_LIMIT = 1 << 20
"""No file that the kernel writes for us is longer than this, in bytes; anything longer is not what we think it is."""


class FormatError(ValueError):
    """A file of the kernel does not have the format that its parser knows."""


class Stat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that Pinchpoint uses (``do_task_stat`` in fs/proc/array.c)."""

    comm: str
    state: str
    ppid: int
    flags: int
    utime: int
    """User time in clock ticks."""
    stime: int
    """System time in clock ticks."""
    start: int
    """Clock ticks from boot to the start of the task: with the id, its identity."""

    @property
    def kernel_thread(self) -> bool:
        """Whether it is a kernel thread: no name of a user's process can imitate this."""
        return bool(self.flags & PF_KTHREAD)

    @property
    def kworker(self) -> bool:
        """Whether it is a worker of a workqueue."""
        return bool(self.flags & PF_WQ_WORKER)


def read_bytes(path: Path | str, limit: int = READ_LIMIT) -> bytes:
    """Return at most `limit` bytes of the file `path`. Raises OSError where it can't be read."""
    with open(path, "rb", buffering=0) as file:
        chunks = []
        while limit > 0 and (chunk := file.read(limit)):
            chunks.append(chunk)
            limit -= len(chunk)
    return b"".join(chunks)


def decode(raw: bytes) -> str:
    """Return text for bytes that anybody may have chosen; what is not UTF-8 or not printable becomes U+FFFD."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def parse_stat(raw: bytes) -> Stat:
    """Return the fields of ``/proc/PID/stat`` or ``/proc/PID/task/TID/stat``.

    The name is everything between the first opening and the last closing parenthesis, as it may hold both
    (``do_task_stat``, fs/proc/array.c). Raises FormatError.
    """
    begin, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 1 :].split()
    if begin < 0 or end < begin or len(fields) < 20:
        raise FormatError(f"not a stat line: {raw[:80]!r}")
    try:
        return Stat(
            comm=decode(raw[begin + 1 : end]),
            state=decode(fields[0]),
            ppid=int(fields[1]),
            flags=int(fields[6]),
            utime=int(fields[11]),
            stime=int(fields[12]),
            start=int(fields[19]),
        )
    except ValueError as error:
        raise FormatError(f"not a stat line: {raw[:80]!r}") from error


def parse_schedstat(raw: bytes) -> tuple[int, int]:
    """Return the nanoseconds on a CPU and the nanoseconds of run-queue wait of ``/proc/PID/task/TID/schedstat``.

    Written by ``proc_pid_schedstat`` (fs/proc/base.c): sum_exec_runtime, run_delay, pcount. The wait includes the
    time in which a CFS quota kept the thread off the CPU. Raises FormatError.
    """
    fields = raw.split()
    if len(fields) != 3 or not (fields[0].isdigit() and fields[1].isdigit()):
        raise FormatError(f"not a schedstat line: {raw[:80]!r}")
    return int(fields[0]), int(fields[1])


def kworker_work(comm: str) -> str:
    """Return what a worker does or did last, from its name: ``kworker/u8:1+flush-254:0`` gives ``flush-254:0``.

    ``wq_worker_comm`` (kernel/workqueue.c, since Linux 4.18) appends ``+WORK`` while the worker runs and ``-WORK``
    afterwards. Gives "" where there is no work in the name.
    """
    head, _, tail = comm.partition(":")
    if not head.startswith("kworker/"):
        return ""
    signs = [index for index in (tail.find("+"), tail.find("-")) if index >= 0]
    return tail[min(signs) + 1 :] if signs else ""
