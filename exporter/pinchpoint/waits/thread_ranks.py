"""The threads among which a process divides the work, as ranks: the jobs of ``fio --thread``, elbencho's workers.

The kernel counts the bytes that each thread moves (``/proc/PID/task/TID/io``), so threads are compared by these alone.
By what they wait for they are not told apart: a thread's own are its CPU time and its run-queue wait, and the rest is
divided as that of its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinchpoint.host.procfs import FormatError
from pinchpoint.units import TICKS_PER_SECOND
from pinchpoint.waits.ranks import RankSample, read_moved
from pinchpoint.waits.stack_rules import PARKED, Stacks
from pinchpoint.waits.watched import WatchedProcess, WatchedThread

__all__ = ["thread_ranks"]

MIN_WORKER_BYTES = 65536
"""Bytes that a thread has moved from which it is a worker: helpers that print the progress move fewer."""
OWN_CLASSES = ("cpu", "runqueue")
"""Classes whose time is known of each thread."""


def thread_ranks(
    process: WatchedProcess, times: Mapping[str, float], stacks: Stacks, elapsed: float, now: float
) -> Iterator[RankSample]:
    """Yield the workers of a process as they are now, without its main thread, which only starts and counts them.

    `times` are the process' own by wait class in the `elapsed` seconds since the last look, `now` is a monotonic time
    in seconds. What has gone or may not be read is left out.
    """
    waits = {wait: seconds for wait, seconds in times.items() if wait not in OWN_CLASSES and seconds > 0}
    if len(waits) > 1:
        waits.pop("idle", None)  # a process whose threads all pause between their requests has no other
    for task, thread in process.threads.items():
        if thread.main:
            continue
        try:
            moved = read_moved(thread.directory)
        except (OSError, FormatError):
            continue
        if max(moved) < MIN_WORKER_BYTES:
            continue
        still, thread.moved = moved == thread.moved, moved
        found = _times(thread, waits, elapsed, idle=still and _is_parked(thread, stacks, now))
        start = round(task.born * TICKS_PER_SECOND)
        yield RankSample(task.tid, start, task.comm, task.tgid, None, (*moved, 0), found, thread=True)


def _is_parked(thread: WatchedThread, stacks: Stacks, now: float) -> bool:
    """Return whether a thread waits for another one, a message or a time."""
    raw = thread.stack.read()
    return raw is not None and stacks.look(raw, now, times=0).wait == PARKED


def _times(thread: WatchedThread, waits: Mapping[str, float], elapsed: float, *, idle: bool) -> dict[str, float]:
    """Return a thread's time by wait class, in seconds."""
    run, late = thread.used()
    left = max(0.0, elapsed - run - late)
    whole = sum(waits.values())
    found = {"cpu": run, "runqueue": late}
    if idle:
        return {**found, "idle": left}
    if not whole:
        return {**found, "other": left}
    return found | {wait: left * seconds / whole for wait, seconds in waits.items()}
