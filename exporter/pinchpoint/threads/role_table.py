"""Thread times summed by role and owner, and the busy time of what the roles make of them.

Both probes that read threads - `tasks` for threads that keep their name, `kworkers` for workers that do not - charge
what they read to a `RoleTable`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from pinchpoint import resources
from pinchpoint.metrics import KEEP_ENDED_SECONDS, THREAD_CPU_SECONDS, THREAD_RUNQUEUE_SECONDS, THREADS
from pinchpoint.model import Point
from pinchpoint.resources import Resource
from pinchpoint.threads.roles import Role
from pinchpoint.threads.task_source import Task
from pinchpoint.units import SECONDS_PER_NANOSECOND
from pinchpoint.user_labels import marked, split_user

__all__ = ["METRICS", "RoleTable", "RoleTotals"]

METRICS = (THREAD_CPU_SECONDS, THREAD_RUNQUEUE_SECONDS, THREADS, *resources.METRICS)

MAX_OWNERS_PER_ROLE = 128
"""Owners per role: of daemons, of trusted users together, and of each other user; later ones are charged to the owner
``more``."""

_Group = tuple[str, bool, str]
"""Owners that share a limit: role, whether they are daemons, mark of an untrusted user."""


class RoleTotals:
    """One role of one owner: its totals, and what its serial units used in the sample that is being taken."""

    __slots__ = (
        *("_groups", "alive", "charged", "counted", "cpu", "daemon"),
        *("full", "ran", "resource", "role", "threads", "wait"),
    )

    def __init__(self, role: Role, resource: Resource | None, *, daemon: bool) -> None:
        self.role = role
        self.resource = resource
        self.daemon = daemon
        self.cpu = 0
        self.wait = 0
        self.threads: dict[int, int] = {}
        """Number of threads by group (a process, or a worker): the divisor of a pool."""
        self.alive: float | None = None
        """Monotonic time in seconds at which it last had a thread; None before the first look."""
        self.charged = 0.0
        """Age of the table in seconds when it was last charged."""
        self.counted = False
        """Whether threads are counted: a worker has no role between two works."""
        self.full = False
        """Whether the resource was full in the last sample."""
        self.ran: dict[Task, int] = {}
        """What each thread used in nanoseconds, as long as the resource is full and somebody takes it."""
        self._groups: dict[int, tuple[int, int]] = {}

    def count(self, group: int) -> None:
        """Count a thread of `group`."""
        self.threads[group] = self.threads.get(group, 0) + 1
        self.counted = True

    def charge(self, group: int, run: int, wait: int) -> None:
        """Charge nanoseconds that one thread of `group` used.

        A group is what has one lock or one pool: a process. Two processes with the same owner (two ceph-fuse) are
        two groups, and the busiest stands for the owner.
        """
        self.cpu += run
        self.wait += wait
        if self.resource is None:
            return
        before = self._groups.get(group)
        if before is None:
            self._groups[group] = (run, wait)
        elif self.role.unit == "thread":
            if run + wait > before[0] + before[1]:
                self._groups[group] = (run, wait)
        else:
            self._groups[group] = (before[0] + run, before[1] + wait)

    def settle(self, elapsed: float) -> None:
        """Turn what was charged since the last call into busy time of the resource."""
        if self.resource is None or not self._groups:
            return
        best = 0.0
        best_wait = 0.0
        for group, (run, wait) in self._groups.items():
            # A pool is as full as the mean of its threads.
            divisor = (self.threads.get(group) or 1) if self.role.unit == "pool" else 1
            busy = (run + wait) * SECONDS_PER_NANOSECOND / divisor
            if busy > best:
                best, best_wait = busy, wait * SECONDS_PER_NANOSECOND / divisor
        self._groups.clear()
        if self.role.unit == "lock" and best > elapsed > 0:
            # The sum over the takers of a lock is an upper bound: waiting before taking it is not holding it.
            best, best_wait = elapsed, best_wait * elapsed / best
        self.resource.add(elapsed, best, runqueue=best_wait)
        self.full = best >= self.resource.threshold * elapsed > 0


class RoleTable:
    """Every role and owner ever seen on this host."""

    def __init__(self) -> None:
        self._uses: dict[tuple[str, str], RoleTotals] = {}
        self._owners: Counter[_Group] = Counter()
        self._touched: set[RoleTotals] = set()
        self._age = 0.0
        """Seconds of all samples."""
        self.full: Sequence[RoleTotals] = ()
        """What was full in the last sample."""

    def use(self, role: Role, owner: str, *, daemon: bool = False) -> RoleTotals:
        """Return the entry of a role and an owner; for those of a `daemon` there is always as much room."""
        key = (role.name, owner)
        if (use := self._uses.get(key)) is None:
            group = role.name, daemon, split_user(owner)[1]
            more = marked("more", group[2])
            if self._owners[group] >= MAX_OWNERS_PER_ROLE and owner != more and not self._make_room(group):
                return self.use(role, more, daemon=daemon)
            self._owners[group] += 1
            full = None
            if role.unit is not None:
                full = Resource(role.name, owner, role.serves, role.threshold, ("runqueue",))
            use = self._uses[key] = RoleTotals(role, full, daemon=daemon)
            use.charged = self._age
        return use

    def _make_room(self, group: _Group) -> bool:
        """Forget the owner that has had no thread for longest; return whether there was one.

        Where threads are not counted, it is one that used nothing for `KEEP_ENDED_SECONDS`: a device that was unmounted
        looks like an idle one.
        """
        gone = [
            (use.alive or 0.0 if use.counted else use.charged, owner)
            for (name, owner), use in self._uses.items()
            if (name, use.daemon, split_user(owner)[1]) == group
            and (not use.threads if use.counted else self._age - use.charged >= KEEP_ENDED_SECONDS)
        ]
        if gone:
            self._drop(group[0], min(gone)[1])
        return bool(gone)

    def _drop(self, role: str, owner: str) -> None:
        use = self._uses.pop((role, owner))
        self._touched.discard(use)
        group = role, use.daemon, split_user(owner)[1]
        self._owners[group] -= 1
        if not self._owners[group]:
            del self._owners[group]

    def charge(self, use: RoleTotals, group: int, run: int, wait: int) -> None:
        """Charge nanoseconds that one thread of `group` used."""
        use.charge(group, run, wait)
        self._touched.add(use)

    def settle(self, elapsed: float, told: Collection[tuple[str, str]] = ()) -> None:
        """End the sample, `elapsed` seconds after the last one; `told` is what is full whatever its threads used."""
        for use in self.full:
            use.full = False
        self._age += elapsed
        for use in self._touched:
            use.charged = self._age
            use.settle(elapsed)
            if told and use.resource is not None and (use.resource.name, use.resource.owner) in told:
                use.full = True
        self.full = [use for use in self._touched if use.full]
        self._touched.clear()

    def clear_threads(self) -> None:
        """Forget how many threads each role has, before they are counted again."""
        for use in self._uses.values():
            use.threads.clear()

    def forget(self, now: float) -> None:
        """Forget what has had no thread for `KEEP_ENDED_SECONDS`.

        A run's commands come and go, and their series must not pile up.
        """
        for (role, owner), use in list(self._uses.items()):
            if use.threads or not use.counted or use.alive is None:
                use.alive = now
            elif now - use.alive >= KEEP_ENDED_SECONDS:
                self._drop(role, owner)

    def resources(self) -> Iterator[Resource]:
        """Yield the resources among the roles."""
        return (use.resource for use in self._uses.values() if use.resource is not None)

    def points(self) -> Iterator[Point]:
        """Yield the points of every role, and of the resources among them."""
        for (role, owner), use in self._uses.items():
            yield Point(THREAD_CPU_SECONDS, (role, owner), use.cpu * SECONDS_PER_NANOSECOND)
            yield Point(THREAD_RUNQUEUE_SECONDS, (role, owner), use.wait * SECONDS_PER_NANOSECOND)
            if use.counted:
                yield Point(THREADS, (role, owner), sum(use.threads.values()))
        yield from resources.points(self.resources())
