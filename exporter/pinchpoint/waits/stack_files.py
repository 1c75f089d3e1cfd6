"""What threads wait for, by their files in procfs: a look at those that ran, at each sample.

A thread's time on CPUs and its run-queue wait are exact (schedstat); what is left of an interval is what its stack
waits for. A thread that did not run in between has the same stack as before, so only those that ran are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest

from pinchpoint.threads.kernel_stacks import state
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.units import SECONDS_PER_NANOSECOND
from pinchpoint.waits.stack_rules import DATA, FLUSH, FUSE, PARKED, RUNNING, YIELDS, Stack, Stacks
from pinchpoint.waits.watched import Place, WatchedProcess, WatchedThread

__all__ = ["MAX_STACKS_PER_LOOK", "StackFiles"]

MAX_LOOK_GAP_SECONDS = 2.0
"""Seconds between two looks from which the time between them is not counted."""
MIN_WAITED_SHARE = 0.1
"""Share of a look below which the wait of a thread that ran doesn't matter."""
ASLEEP_LOOKS = 20
"""Looks in which a thread did not run, from which it is read once in `ASLEEP_EVERY_LOOKS`: most threads of a library
sleep for the whole run. What it did in between is known when it is read again."""
ASLEEP_EVERY_LOOKS = 5
MAX_STACKS_PER_LOOK = 6
"""Stacks that one look reads of trusted users' threads, and of all others'. Of more threads, those that were seen
longest ago are read. The others' run-queue wait and CPU time are exact all the same, and shares of what they wait for
come from as many stacks a second as those of six threads do."""


class StackFiles:
    """Works everywhere: ``stack``, or ``wchan`` where stacks are denied.

    `place` says where a process has its data; `reason` is why there is no better source.
    """

    name = "files"
    interval: float | None = None
    kernel_seconds = 0.0

    def __init__(self, stacks: Stacks, place: Place, reason: str = "") -> None:
        self._stacks = stacks
        self._place = place
        self._reason = reason
        self._last: float | None = None
        self._file = ("", "")

    @property
    def how(self) -> tuple[str, str]:
        """The file that was read last, and why it is not a better one."""
        file, reason = self._file
        return file, "; ".join(filter(None, (self._reason if file else "", reason)))

    def follow(self, processes: Collection[WatchedProcess], now: float) -> None:
        """Do nothing: threads keep their own files open."""

    def look(
        self, processes: Mapping[int, WatchedProcess], tasks: Iterable[Task], used: Mapping[Task, TaskUse], now: float
    ) -> None:
        """Divide the time since the last look."""
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        if not 0 < elapsed < MAX_LOOK_GAP_SECONDS:
            return
        seen = self._choose(processes.values(), used, elapsed)
        active: dict[int, WatchedProcess] = {}
        for task in tasks:
            process = processes.get(task.tgid)
            if process is None or (thread := process.threads.get(task)) is None:
                continue
            active[task.tgid] = process
            use = used.get(task)
            if use is None:
                if task in seen:
                    self._see(process, thread, now)
                process.time.still(thread, elapsed)
                thread.slept += 1
                if thread.slept == ASLEEP_LOOKS:
                    task.sampled_every = ASLEEP_EVERY_LOOKS
            else:
                thread.slept, task.sampled_every = 0, 1
                self._ran(process, thread, use, elapsed, now, see=task in seen)
        for process in active.values():
            process.time.end_look(elapsed)

    def _choose(self, processes: Collection[WatchedProcess], used: Mapping[Task, TaskUse], elapsed: float) -> set[Task]:
        """Return the threads whose stacks are read now, of those whose wait is not known or may have changed."""
        worth: dict[bool, list[tuple[float, int, Task]]] = {True: [], False: []}
        enough = (1.0 - MIN_WAITED_SHARE) * elapsed / SECONDS_PER_NANOSECOND
        for process in processes:
            found = worth[process.trusted]
            for task, thread in process.threads.items():
                use = used.get(task)
                polls = thread.main and process.rank
                if thread.unsure if use is None else polls or use.run + use.wait <= enough:
                    found.append((thread.seen, task.tid, task))
        return {task for found in worth.values() for _, _, task in nsmallest(MAX_STACKS_PER_LOOK, found)}

    def _ran(
        self, process: WatchedProcess, thread: WatchedThread, use: TaskUse, elapsed: float, now: float, *, see: bool
    ) -> None:
        run, late = use.run * SECONDS_PER_NANOSECOND, use.wait * SECONDS_PER_NANOSECOND
        rest = process.time.ran(thread, elapsed, run, late)
        if thread.main and process.rank:
            process.spin.ran(run + late)
        if see:
            self._see(process, thread, now)
        else:
            thread.unsure = True
        process.time.rests(thread, rest)

    def _see(self, process: WatchedProcess, thread: WatchedThread, now: float) -> None:
        """Read a thread's stack: what it waits for now, and what it waited for last."""
        raw = thread.stack.read()
        thread.unsure, thread.seen = False, now
        if thread.stack.source != self._file[0]:
            self._file = thread.stack.source, thread.stack.reason
        if raw is None:
            thread.wait = thread.last = "other" if thread.stack.source == "none" else PARKED
            return
        stack = self._stacks.look(raw, now)
        if thread.main and process.rank:
            process.spin.saw(stack.wait, empty=not stack.frames)
        wait = self._wait(process, thread, stack, now)
        # A thread that could run and does not waits for a CPU; before, it waited for the same as last time.
        thread.wait = "runqueue" if wait is None else wait
        thread.last = thread.last if wait is None else wait

    def _wait(self, process: WatchedProcess, thread: WatchedThread, stack: Stack, now: float) -> str | None:
        """Return what a thread waits for; None where it runs or could."""
        if stack.wait in (DATA, FLUSH, FUSE):
            return self._place(process, stack.wait, now)
        if stack.frames and stack.wait is not None:
            return None if stack.wait in (RUNNING, YIELDS) else stack.wait
        # It waits only if it sleeps. Without any functions it runs, has ended, or has been woken meanwhile.
        now_is = state(thread.directory)
        if now_is in "RZX":
            return None if now_is == "R" else PARKED
        stack.slept |= bool(stack.frames)
        return "other" if stack.frames or thread.stack.source != "stack" else thread.last

    def close(self) -> None:
        """Do nothing: nothing is kept here."""
