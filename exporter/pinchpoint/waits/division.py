"""How the time of benchmark processes is divided: pure arithmetic over what was seen of their threads.

The unit is the process: all its threads count together, and only the time in which none of them did anything is its own
waiting. All times are in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pinchpoint.waits.stack_rules import FUSE, PARKED

__all__ = [
    "LEFT_OUT_IDLE_SHARE",
    "UNSEEN",
    "MountUse",
    "ProcessTime",
    "ThreadTime",
    "counting",
    "fuse_shares",
    "parked_shares",
    "share_out_locks",
]

UNSEEN = ""
"""Wait class of a thread that was never seen waiting: that it did nothing is as little known as what it waited for, so
such time is in no class."""
LEFT_OUT_IDLE_SHARE = 0.8
"""Share of idle time from which a process is left out while another one of its workload works: fio's parent wakes every
10 ms and would halve all shares."""
MIN_WORKING_CPUS = 0.05
"""CPUs below which a FUSE daemon that answers nothing itself waits."""


class ThreadTime:
    """What is known of one thread between two looks."""

    __slots__ = ("last", "mark", "pending", "rest", "rested", "unsure", "wait")

    def __init__(self) -> None:
        self.last = UNSEEN
        """Its last wait class: what it most likely waits for while it is seen running."""
        self.wait = UNSEEN
        """What it waits for as long as it does not run."""
        self.unsure = True
        """Whether its stack was not read since it last ran."""
        self.rest, self.rested = 0.0, UNSEEN
        """What was left of the looks in which it ran and was not taken back, and the class that it was charged to."""
        self.pending = 0.0
        """Time charged to it since it last ran."""
        self.mark = 0.0
        """Its process' parked time before these looks."""


class ProcessTime:
    """What one process did since its last block was taken."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.parked = 0.0
        self.span = 0.0
        """Length of the block so far, without time that is in no class."""
        self._active = 0.0
        self._unseen = 0.0
        self._all_parked = 0.0
        """Parked time of all blocks."""

    def charge(self, wait: str, seconds: float) -> None:
        """Charge what one thread did in this look."""
        if wait == UNSEEN:
            self._unseen += seconds
        elif wait != PARKED:
            self._active += seconds
            self.times[wait] = self.times.get(wait, 0.0) + seconds

    def still(self, thread: ThreadTime, elapsed: float) -> None:
        """Charge a thread that did not run since the last look."""
        thread.pending += elapsed
        self.charge(thread.wait, elapsed)

    def ran(self, thread: ThreadTime, elapsed: float, run: float, late: float) -> float:
        """Charge a thread's CPU time and run-queue wait; return what is left of `elapsed`, for `rests`.

        The kernel counts run-queue wait when it is over (sched_info_arrive, kernel/sched/stats.h): what exceeds
        `elapsed` was charged as something else before, and is taken back there, the latest first.
        """
        self.charge("cpu", run)
        self.charge("runqueue", late)
        excess = max(0.0, run + late - elapsed)
        back = min(excess, thread.pending)
        self._take_back(thread, thread.wait, back)
        thread.pending = 0.0
        back = min(excess - back, thread.rest)
        self._take_back(thread, thread.rested, back)
        thread.rest -= back
        if not thread.rest:
            thread.mark = self._all_parked
        return max(0.0, elapsed - run - late)

    def rests(self, thread: ThreadTime, rest: float) -> None:
        """Charge what `ran` returned to the thread's last class: perhaps a wait for a CPU that is not over."""
        self.charge(thread.last, rest)
        thread.rest = rest + (thread.rest if thread.rested == thread.last else 0.0)
        thread.rested = thread.last

    def _take_back(self, thread: ThreadTime, wait: str, seconds: float) -> None:
        """Take back what was charged to a thread since it last ran."""
        if wait == UNSEEN:
            self.span += seconds  # it is known now
            return
        if wait != PARKED:
            self.times[wait] = self.times.get(wait, 0.0) - seconds
            return
        # As far as no other thread was active: else that time was not parked.
        parked = max(0.0, min(seconds, self._all_parked - thread.mark))
        self.parked -= parked
        self._all_parked -= parked

    def end_look(self, elapsed: float) -> None:
        """End a look: time without an active thread is parked time, but for what was not seen."""
        parked = max(0.0, elapsed - self._active)
        unseen = min(parked, self._unseen)
        parked -= unseen
        self.parked += parked
        self._all_parked += parked
        self.span += elapsed - unseen
        self._active = self._unseen = 0.0

    def add(self, times: Mapping[str, float], parked: float, span: float) -> None:
        """Add what was divided elsewhere: times by class, parked time, and the length of it all."""
        for wait, seconds in times.items():
            self.times[wait] = self.times.get(wait, 0.0) + seconds
        self.parked += parked
        self.span += span

    def take(self) -> tuple[dict[str, float], float]:
        """Return the times by class and the parked time of the block, and begin the next one.

        What is taken back from a class after settling is subtracted from its next blocks.
        """
        found = {wait: seconds for wait, seconds in self.times.items() if seconds > 0}, max(0.0, self.parked)
        self.times = {wait: seconds for wait, seconds in self.times.items() if seconds < 0}
        self.parked = min(0.0, self.parked)
        self.span = 0.0
        return found


def parked_shares(span: float, requests: float, looks: int, active: int) -> dict[str, float]:
    """Return how a Ceph client's parked time divides, as shares; the rest is idle.

    `requests` is the time that its requests to MDSs took in `span`, `active` how many of `looks` found operations in
    flight to OSDs.
    """
    mds = min(1.0, requests / span) if span > 0 else 0.0
    osd = (1.0 - mds) * active / looks if looks else 0.0
    return {"mds": mds, "osd": osd}


class MountUse(msgspec.Struct, kw_only=True):
    """What happened on a FUSE mount of CephFS in a window."""

    waited: float = 0.0
    """Time that processes waited for it."""
    span: float = 0.0
    requests: float = 0.0
    data: float = 0.0
    blocked: float = 0.0
    looks: int = 0
    active: int = 0
    workers: float = 0.0
    """CPU time and run-queue wait of the threads that serve its users."""
    working: float = 0.0
    """CPU time and run-queue wait of the whole process."""
    stuck: bool = False
    """Whether ceph-fuse doesn't answer."""
    blind: bool = False
    """Whether it can't be asked."""

    def __add__(self, other: MountUse) -> MountUse:
        """Return the sum."""
        return MountUse(
            waited=self.waited + other.waited,
            span=self.span + other.span,
            requests=self.requests + other.requests,
            data=self.data + other.data,
            blocked=self.blocked + other.blocked,
            looks=self.looks + other.looks,
            active=self.active + other.active,
            workers=self.workers + other.workers,
            working=self.working + other.working,
            stuck=other.stuck,
            blind=other.blind,
        )


def fuse_shares(use: MountUse) -> dict[str, float]:
    """Return how the wait for a ceph-fuse mount divides, as shares: ``mds``, ``osd`` and ``client``.

    The client itself sums up requests to MDSs. Its reads, writes and fsyncs are waits for OSDs, less the time that its
    workers used themselves. The rest is the client's: locks, queues, the way through the kernel.
    """
    if use.blind:
        return {"ceph": 1.0}
    if use.waited <= 0 or use.stuck:
        return {"client": 1.0}
    if use.requests + use.data + use.blocked <= 0 and use.working < MIN_WORKING_CPUS * use.span:
        # Nothing is answered and ceph-fuse does nothing: it waits for a stuck daemon.
        return {"osd": 1.0} if use.active else {"mds": 1.0}
    mds = min(1.0, use.requests / use.waited)
    osd = min(1.0 - mds, max(use.blocked, use.data - use.workers, 0.0) / use.waited)
    return {"mds": mds, "osd": osd, "client": 1.0 - mds - osd}


class _Block(NamedTuple):
    idle: float
    total: float


class History(msgspec.Struct):
    """The last blocks of a process."""

    blocks: deque[_Block] = msgspec.field(default_factory=lambda: deque(maxlen=4))

    def add(self, times: Mapping[str, float]) -> None:
        """Add a block."""
        self.blocks.append(_Block(times.get("idle", 0.0), sum(times.values())))

    @property
    def idle(self) -> float:
        """Share of idle time in the last blocks."""
        total = sum(block.total for block in self.blocks)
        return sum(block.idle for block in self.blocks) / total if total > 0 else 1.0


def counting(idle: Sequence[float]) -> list[bool]:
    """Return which processes of a workload count, by their shares of idle time: all where all are idle."""
    works = [share < LEFT_OUT_IDLE_SHARE for share in idle]
    return works if any(works) else [True] * len(works)


def share_out_locks(times: Mapping[str, float], span: float) -> dict[str, float]:
    """Return a workload's times with its waits for kernel locks shared out over the rest.

    A lock's holder does something: as far as others of the workload were at work in a block of `span`, the wait was for
    their work. If none was, an outsider or nobody holds the lock, and the wait stays a lock.
    """
    locked = times.get("lock", 0.0)
    working = {wait: seconds for wait, seconds in times.items() if wait not in ("lock", "idle") and seconds > 0}
    total = sum(working.values())
    if locked <= 0 or total <= 0 or span <= 0:
        return dict(times)
    moved = locked * min(1.0, total / span)
    shared = {**times, "lock": locked - moved}
    for wait, seconds in working.items():
        shared[wait] += moved * seconds / total
    return shared


def resolve(times: Mapping[str, float], parked: float, shares: Mapping[str, float], rest: str) -> dict[str, float]:
    """Return times with the parked time divided: `shares` of it to their classes, the rest to `rest`."""
    found = dict(times)
    left = parked
    for wait, share in shares.items():
        found[wait] = found.get(wait, 0.0) + parked * share
        left -= parked * share
    found[rest] = found.get(rest, 0.0) + max(0.0, left)
    return found


def divide(times: Mapping[str, float], shares: Mapping[str, float], wait: str = FUSE) -> dict[str, float]:
    """Return times in which `wait` is divided by `shares`."""
    found = {name: seconds for name, seconds in times.items() if name != wait}
    for name, share in shares.items():
        found[name] = found.get(name, 0.0) + times.get(wait, 0.0) * share
    return found


def total(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum by class."""
    found: dict[str, float] = {}
    for times in several:
        for wait, seconds in times.items():
            found[wait] = found.get(wait, 0.0) + seconds
    return found
