"""Locks of Ceph daemons and clients: for how much of the time they are held, from their own state.

The sum over the threads that take a lock is only an upper bound: they also work, and wait for a CPU, without it. The
lock itself says whether it is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pinchpoint.host.capabilities import Capability
from pinchpoint.host.process_cost import CpuClocks
from pinchpoint.host.procfs import FormatError, decode, first_names, read_bytes
from pinchpoint.metrics import LOCK_HELD_SECONDS, LOCK_OBSERVED_SECONDS, LOCK_WAITING_SECONDS
from pinchpoint.model import Metric, Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.fair_mutex import FairMutex
from pinchpoint.threads.lock_state import LockState, ProcessLock, Threads
from pinchpoint.threads.processes import Process
from pinchpoint.threads.pthread_mutex import PthreadMutex
from pinchpoint.threads.roles import Role, State
from pinchpoint.units import NANOSECONDS_PER_SECOND

__all__ = ["Locks"]

LOCKS: Mapping[State | None, Callable[[Path, int], ProcessLock[Any]]] = {"fair_mutex": FairMutex, "mutex": PthreadMutex}
INTERVAL_SECONDS = 0.1
"""Seconds between two reads of the locks that were found."""
SEARCH_SECONDS = 1.0
"""Seconds between two searches for locks that were not found yet."""
MIN_SEARCHED_CPUS = 0.02
"""CPUs that a process has used since the last search for its lock; below that nobody waits for it, most likely ..."""
SELDOM_SEARCH_SECONDS = 10.0
"""... and it is searched for in this interval: a search takes 6 ms."""
MAX_SEARCHES = 120
"""Searches, one a second, for the lock of a process that works; after them it works without that lock, most likely."""
MAX_SEARCHED_THREADS = 256
"""Threads of a process that are looked at in one search."""
MAX_GAP_SECONDS = 0.5
"""Seconds between two reads for which the second one may stand."""


class _Lock:
    """A process' lock and its integrals in seconds."""

    __slots__ = ("held", "last", "observed", "process", "role", "searched", "searches", "state", "used", "waiting")

    def __init__(self, process: Process, role: Role, state: ProcessLock[LockState]) -> None:
        self.process = process
        self.role = role
        self.state = state
        self.last = self.searched = float("-inf")
        self.used = 0
        """Nanoseconds of CPU that the process had used at the last search."""
        self.searches = 0
        """Searches since it last did nothing."""
        self.observed = 0.0
        self.held = 0.0
        self.waiting: float | None = None
        """None if the lock does not show who waits."""

    def read(self, now: float) -> None:
        """Read its state once; it stands for the time since the last read."""
        if (seen := self.state.read()) is None:
            return
        if (elapsed := now - self.last) <= MAX_GAP_SECONDS:
            self.observed += elapsed
            self.held += elapsed * seen.held
            if seen.waiting is not None:
                self.waiting = (self.waiting or 0.0) + elapsed * seen.waiting
        self.last = now


class Locks(Probe):
    """For how long the locks of daemons were held, and how many threads waited for them."""

    name = "locks"
    metrics = (LOCK_OBSERVED_SECONDS, LOCK_HELD_SECONDS, LOCK_WAITING_SECONDS)
    capabilities = (Capability.SYS_PTRACE, Capability.SYS_NICE)
    interval = INTERVAL_SECONDS
    rest_interval = 10.0  # reads that are more than `MAX_GAP_SECONDS` apart say nothing
    urgent = True  # at a lower priority it runs when the holder lets go: 0.74 was shown for 0.83

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._locks: dict[tuple[int, int], _Lock] = {}
        self._searched = float("-inf")
        self._problem = ""
        """Why the memory of a daemon could not be read at the last search."""
        self._clocks = CpuClocks(host.procfs)

    def sample(self, now: float) -> None:
        """Read every lock. Raises NotPresent, also if the memory of the daemons may not be read."""
        if now - self._searched >= SEARCH_SECONDS - INTERVAL_SECONDS / 2:
            self._searched = now
            self._follow(now)
            if not self.host.activity.rests(now):  # at rest nobody waits for a lock
                self._search(now)
            self.interval = INTERVAL_SECONDS if self._any_found() else SEARCH_SECONDS
        for lock in self._locks.values():
            lock.read(now)
        if not self._locks:
            raise NotPresent("no daemon with a lock whose state is known")
        if self._problem and not self._any_found():
            raise NotPresent(self._problem)

    def _any_found(self) -> bool:
        return any(lock.state.found for lock in self._locks.values())

    def _follow(self, now: float) -> None:
        current = {
            (process.pid, process.start): (process, role)
            for process in self.host.processes.current(now).values()
            if process.daemon and (role := self.host.roles.lock_of(process.class_)) is not None
        }
        for key in self._locks.keys() - current.keys():
            self._locks.pop(key).state.close()
        for key, (process, role) in current.items():
            known = self._locks.get(key)
            if known is None:
                self._locks[key] = _Lock(process, role, LOCKS[role.state](self.host.procfs, process.pid))
            elif known.process.owner != process.owner:
                self._locks[key] = _Lock(process, role, known.state)

    def _search(self, now: float) -> None:
        """Search for the locks that are not known yet."""
        for lock in self._locks.values():
            try:
                if lock.state.found or not self._is_worth_it(lock, now):
                    continue
                lock.state.search(self._threads(lock))
                self._problem = ""
            except PermissionError as error:
                self._problem = f"the memory of {lock.process.owner} may not be read: {error.strerror}"
            except (OSError, FormatError):
                continue  # it has ended

    def _is_worth_it(self, lock: _Lock, now: float) -> bool:
        """Return whether to search for a lock: its process has begun to work, or it was not searched for in a while."""
        used, elapsed = self._clocks.nanoseconds(lock.process.pid), now - lock.searched
        works = used - lock.used >= MIN_SEARCHED_CPUS * NANOSECONDS_PER_SECOND * elapsed
        if elapsed < SELDOM_SEARCH_SECONDS and not (works and lock.searches < MAX_SEARCHES):
            return False
        lock.searched, lock.used = now, used
        lock.searches = lock.searches + 1 if works else 0
        return True

    def _threads(self, lock: _Lock) -> Threads:
        """Return the threads of a lock's process by whether they take it."""
        takers: dict[int, str] = {}
        others: set[int] = set()
        directory = f"{self.host.procfs}/{lock.process.pid}/task"
        for name in first_names(directory, MAX_SEARCHED_THREADS):
            try:
                comm = decode(read_bytes(f"{directory}/{name}/comm").removesuffix(b"\n"))
                if self.host.roles.thread_role(lock.process.class_, comm).role is lock.role:
                    takers[int(name)] = comm
                else:
                    others.add(int(name))
            except (OSError, ValueError):
                continue
        return Threads(takers, frozenset(others))

    def points(self) -> Iterator[Point]:
        """Yield the integrals of every lock that was read; of processes with one owner, the sums."""
        totals: defaultdict[tuple[Metric, str, str], float] = defaultdict(float)
        for lock in self._locks.values():
            if lock.observed:
                labels = lock.role.name, lock.process.owner
                totals[(LOCK_OBSERVED_SECONDS, *labels)] += lock.observed
                totals[(LOCK_HELD_SECONDS, *labels)] += lock.held
                if lock.waiting is not None:
                    totals[(LOCK_WAITING_SECONDS, *labels)] += lock.waiting
        for (metric, resource, owner), seconds in totals.items():
            yield metric.point(seconds, resource, owner)

    def close(self) -> None:
        """Close the memory of all processes."""
        for lock in self._locks.values():
            lock.state.close()
        self._locks.clear()
