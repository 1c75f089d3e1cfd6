"""What threads wait for, by BPF: a timer in the kernel looks at their stacks, and its sums are read twice a second.

Times on CPUs and run-queue waits are exact, as in `pinchpoint.waits.stack_files`. There are more looks at stacks, none
is late on a full host, and a thread that has been woken and has no CPU yet counts as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from pinchpoint.bpf.waits import MAX_WATCHED_PROCESSES, MAX_WATCHED_THREADS, Spent, StackTimer, Watch
from pinchpoint.quotas import shared_out
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.user_labels import user_of
from pinchpoint.waits.stack_rules import DATA, FLUSH, FUSE, PARKED, RUNNING, YIELDS, Stacks
from pinchpoint.waits.watched import Place, WatchedProcess

__all__ = ["KernelLooks"]


def _chosen(processes: Collection[WatchedProcess]) -> Mapping[WatchedProcess, Sequence[Task]]:
    """Return the threads that are looked at: all of trusted users, and of the others as many as there is room for.

    However many threads a user starts, those of others are looked at as before.
    """
    found: dict[WatchedProcess, list[Task]] = {}
    if len(processes) <= MAX_WATCHED_PROCESSES:
        found = {one: [] for one in processes}
    threads = []
    for one in processes:
        # The main thread first: of a rank, it is the one that may spin.
        tasks = sorted(one.threads, key=lambda task: (not one.threads[task].main, task.tid))
        threads += [(place, user_of(one.process.owner), (one, task)) for place, task in enumerate(tasks)]
    chosen = [(user, watched) for _, user, watched in sorted(threads, key=itemgetter(0))]
    trusted = sum(user is None for user, _ in chosen)
    if trusted <= MAX_WATCHED_THREADS < len(chosen):
        fitting = shared_out(chosen, MAX_WATCHED_THREADS, MAX_WATCHED_THREADS)
    else:
        fitting = [watched for _, watched in chosen]
    for one, task in fitting:
        found.setdefault(one, []).append(task)
    return found


class KernelLooks:
    """Raises BpfError where it does not work; `place` says where a process has its data."""

    name = "bpf"
    interval: float | None = 0.5
    how = ("bpf", "")

    def __init__(self, procfs: Path, stacks: Stacks, place: Place) -> None:
        self._stacks = stacks
        self._place = place
        self._timer = StackTimer(procfs, self._parked)
        self._now = 0.0

    @property
    def kernel_seconds(self) -> float:
        """Seconds of all looks: CPU time of whatever thread the timer interrupts."""
        return self._timer.seconds

    def _parked(self, raw: bytes) -> bool:
        return self._stacks.look(raw, self._now, times=0).wait == PARKED

    def follow(self, processes: Collection[WatchedProcess], now: float) -> None:
        """Look at the threads of these processes from now on. Raises BpfError if trusted users have too many."""
        self._take(now)  # also what those did that have ended
        self._timer.follow({
            process: {
                task: Watch(
                    task.tgid, task.tid, rank=process.threads[task].main and process.rank, trusted=process.trusted
                )
                for task in tasks
            }
            for process, tasks in _chosen(processes).items()
        })  # fmt: skip

    def look(
        self, processes: Mapping[int, WatchedProcess], tasks: Iterable[Task], used: Mapping[Task, TaskUse], now: float
    ) -> None:
        """Take what the kernel has summed up since the last call."""
        self._take(now)
        if self._timer.full:
            self.follow(processes.values(), now)

    def _take(self, now: float) -> None:
        self._now = now
        for spent in self._timer.collect():
            assert isinstance(spent.process, WatchedProcess)
            self._charge(spent.process, spent, now)

    def _charge(self, process: WatchedProcess, spent: Spent, now: float) -> None:
        if not spent.span:
            return  # not looked at yet
        process.spin.ran(spent.busy)
        times = {"cpu": spent.run, "runqueue": spent.wait}
        for raw, seconds, looks, rank_looks in spent.stacks:
            stack = self._stacks.look(raw, now, times=looks)
            for _ in range(rank_looks):
                process.spin.saw(stack.wait, empty=False)
            wait = stack.wait
            if wait == PARKED:
                continue
            if wait in (DATA, FLUSH, FUSE):
                wait = self._place(process, wait, now)
            elif not raw or wait is None:
                stack.slept |= bool(raw)
                wait = "other"
            elif wait in (RUNNING, YIELDS):
                wait = "runqueue"  # it was interrupted on its way to sleep
            times[wait] = times.get(wait, 0.0) + seconds
        process.time.add(times, spent.parked, spent.span)

    def close(self) -> None:
        """Remove the programs from the kernel."""
        self._timer.close()
