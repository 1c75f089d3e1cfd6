"""Finds the benchmarks of each user with a helper process that has that user's rights and no others.

A look asks every helper and waits only briefly: what comes later is taken at the next look. A helper that hangs, ends
or says what it should not is replaced. Its runs are kept meanwhile, and its successor finds the benchmarks again, but
for the one in whose files it hung.
"""

from __future__ import annotations

import logging
import select
import time
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import MAX_FOLLOWED_PER_USER, began
from pinchpoint.benchmarks.markers import MAX_EXPORTED_RUNS
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.talk import Found, Task
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.user_helper import Fault, HelperError, UserHelper
from pinchpoint.benchmarks.user_run import UserRun
from pinchpoint.benchmarks.user_tasks import UserTasks
from pinchpoint.benchmarks.workloads import UserProcess
from pinchpoint.host.confine import User
from pinchpoint.host.users import Users
from pinchpoint.metrics import BENCHMARK_HELPER_RESTARTS, BENCHMARK_HELPERS
from pinchpoint.model import Point

__all__ = ["UserHelpers"]

MAX_HELPERS = 16
"""Maximum number of helpers of users other than root."""
MAX_HELPERS_PER_USER = 2
"""Maximum number of helpers of one user, who has one for each set of groups."""
MAX_DYING = 3
"""Helpers of one user that were killed and have not ended: then there is no further one. A file system that hangs may
hold them in the kernel, ..."""
MAX_ALL_DYING = 64
"""... and those of all users, who count towards the service's limit of processes."""
MAX_WAIT_SECONDS = 0.1
"""Seconds that one look waits for all answers; the other probes wait as long."""
MAX_ANSWER_SECONDS = 10.0
"""Seconds after which a helper that has not answered is replaced."""
IDLE_SECONDS = 60.0
"""Seconds without a benchmark after which a user's helper ends."""
FIRST_RESTART_PAUSE_SECONDS, MAX_RESTART_PAUSE_SECONDS = 0.5, 60.0
"""Pause before a helper is replaced; it doubles with each failure."""
SETTLED_SECONDS = 60.0
"""Age in seconds from which the end of a helper counts as a first failure again."""
MAX_SUSPICION = 2
"""A process is left alone once so many helpers ended while they read it; one that hung is enough."""
HUNG, NO_HELPER = "hung", "helper"
"""What is blind in a run whose files hang, and in one whose user has no helper now."""

Leader = tuple[int, int]
"""Pid of a process, and its start in clock ticks since boot."""

log = logging.getLogger(__name__)


class _Account:
    """All about one user."""

    def __init__(self, user: User, now: float) -> None:
        self.user = user
        self.helper: UserHelper | None = None
        self.dying: list[UserHelper] = []
        self.tasks: Mapping[int, Task] = {}
        """The processes that its helper is to be shown."""
        self.needed = now
        """When it last had a benchmark, in monotonic seconds."""
        self.runs: dict[tuple[Leader, str], UserRun] = {}
        """Those in progress, by leader and kind."""
        self.ended: deque[UserRun] = deque(maxlen=MAX_EXPORTED_RUNS)
        """Those that have ended: no more of them are exported."""
        self.disowned: set[int] = set()
        """What the helper has yet to forget."""
        self.suspicion: Counter[Leader] = Counter()
        """Helpers that ended while they read a process."""
        self.failures = 0
        self.resumes = now
        """When its next helper may be started, in monotonic seconds."""

    def avoids(self, leader: Leader) -> bool:
        """Return whether a process is left alone."""
        return self.suspicion[leader] >= MAX_SUSPICION

    def end(self, key: tuple[Leader, str], wall: float) -> None:
        """Record that a run's leader has gone while no helper watched it."""
        run = self.runs.pop(key)
        run.end(wall)
        self.ended.append(run)


class UserHelpers:
    """The benchmarks of all users: a `pinchpoint.benchmarks.finder.Finder`."""

    def __init__(self, kinds: Iterable[type[Benchmark]], nursery: Nursery, users: Users) -> None:
        self._kinds: dict[str, list[type[Benchmark]]] = {}
        for kind in kinds:
            for comm in kind.comms:
                self._kinds.setdefault(comm, []).append(kind)
        self._nursery = nursery
        self._users = users
        self._tasks = UserTasks(self._kinds.keys(), users, MAX_HELPERS_PER_USER)
        self._accounts: dict[User, _Account] = {}
        self._restarts = dict.fromkeys(Fault, 0)
        self._told: set[str] = set()

    @property
    def followed(self) -> Sequence[UserRun]:
        """The benchmarks, including those that have ended, by their start."""
        runs = [run for account in self._accounts.values() for run in (*account.ended, *account.runs.values())]
        return sorted(runs, key=lambda run: run.began)

    @property
    def helpers(self) -> Sequence[UserHelper]:
        """The helpers that work."""
        return [account.helper for account in list(self._accounts.values()) if account.helper is not None]

    @property
    def ranks(self) -> Mapping[UserProcess, int]:
        """The ranks in MPI of untrusted users' processes, as far as known."""
        return {
            (user, *key): number
            for helper in self.helpers
            if (user := self._users.account(helper.user.uid)) is not None
            for key, number in helper.ranks.items()
        }

    def disown(self, pids: Container[int]) -> None:
        """Forget the benchmarks that these processes lead: they are followed elsewhere."""
        for account in self._accounts.values():
            account.disowned |= {pid for pid in account.tasks if pid in pids}
            for key in [key for key in account.runs if key[0][0] in pids]:
                del account.runs[key]

    def forget(self, before: float) -> None:
        """Forget the benchmarks that ended before this time, in Unix seconds."""
        for account in self._accounts.values():
            kept = [run for run in account.ended if run.ended is None or run.ended >= before]
            account.ended = deque(kept, MAX_EXPORTED_RUNS)

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """Take a look; `now` is in monotonic seconds, `wall` in Unix seconds."""
        found = self._tasks.of(tree)
        for user in found.keys() - self._accounts.keys():
            self._accounts[user] = _Account(user, now)
        for account in self._accounts.values():
            account.tasks = _without_avoided(found.get(account.user, {}), tree, account)
            self._take(account, now, wall)
        self._release(now)
        self._wait([account for account in self._accounts.values() if self._ask(account, tree, now, wall)], now, wall)
        for account in self._accounts.values():
            self._check(account, tree, now, wall)

    def points(self) -> Iterator[Point]:
        """Yield how many helpers there are, and how often one was replaced."""
        yield BENCHMARK_HELPERS.point(len(self.helpers))
        for fault, count in self._restarts.items():
            yield BENCHMARK_HELPER_RESTARTS.point(count, fault)

    def close(self) -> None:
        """End the helpers that work."""
        for helper in self.helpers:
            helper.close()
        self._accounts.clear()

    def _take(self, account: _Account, now: float, wall: float) -> None:
        """Take what a helper has said."""
        if (helper := account.helper) is None:
            return
        try:
            found = helper.take()
        except HelperError as error:
            self._replace(account, helper, error, now)
        else:
            if found is not None:
                self._update(account, helper, found, wall)

    def _update(self, account: _Account, helper: UserHelper, found: Iterable[Found], wall: float) -> None:
        for one in found:
            key = (one.pid, one.start), one.kind
            run = account.runs.get(key) or self._new(account, helper, one)
            if run is None:
                continue
            run.update(one, helper.number)
            if run.ended is None:
                account.runs[key] = run
            else:
                account.runs.pop(key, None)
                account.ended.append(run)
        for leader, kind in list(account.runs):
            if not _among(helper.told, leader) and not account.avoids(leader):
                account.end((leader, kind), wall)

    def _new(self, account: _Account, helper: UserHelper, found: Found) -> UserRun | None:
        """Return a run that has begun; None where a helper speaks of what is not its user's benchmark."""
        task = helper.told.get(found.pid)
        if task is None or not helper.is_own(found.pid, found.start) or found.pid in account.disowned:
            return None
        if len(account.runs) >= MAX_FOLLOWED_PER_USER:
            return None
        kind = next((kind for kind in self._kinds.get(task.comm, ()) if kind.name == found.kind), None)
        return None if kind is None else UserRun(kind, account.user.uid, found.pid, found.start, found.began, found.job)

    def _release(self, now: float) -> None:
        """End the helpers that have had nothing to do for a while, and forget users of whom nothing is known."""
        for account in list(self._accounts.values()):
            if account.tasks or account.runs or account.dying:
                account.needed = now
            if now - account.needed < IDLE_SECONDS:
                continue
            if account.helper is not None:
                account.helper.close()
                account.helper = None
            if not account.ended:
                del self._accounts[account.user]

    def _ask(self, account: _Account, tree: Tree, now: float, wall: float) -> bool:
        """Ask a user's helper unless it is busy; return whether its answer is worth waiting for."""
        if not account.tasks and not account.runs:
            return False
        helper = account.helper or self._start(account, now)
        if helper is None or helper.busy:
            return False
        leaders = {leader for leader, _ in account.runs}
        told = {
            pid: msgspec.structs.replace(task, syncs=True) if (pid, task.start) in leaders and tree.syncs(pid) else task
            for pid, task in account.tasks.items()
        }
        try:
            helper.ask(told, tuple(account.disowned), now, wall)
        except HelperError as error:
            self._replace(account, helper, error, now)
            return False
        account.disowned.clear()
        return True

    def _start(self, account: _Account, now: float) -> UserHelper | None:
        if now < account.resumes:
            return None
        others = sum(helper.user.uid != 0 for helper in self.helpers)
        # A user may have thousands of subordinate uids.
        user = self._users.user(account.user.uid)
        dying = [self._users.user(each.user.uid) for each in self._accounts.values() for _ in each.dying]
        if dying.count(user) >= MAX_DYING or len(dying) >= MAX_ALL_DYING:
            return None
        if sum(self._users.user(helper.user.uid) == user for helper in self.helpers) >= MAX_HELPERS_PER_USER:
            return None
        if account.user.uid != 0 and others >= MAX_HELPERS and not self._retire():
            self._tell(f"more than {MAX_HELPERS} users run benchmarks: those of the others are not followed")
            return None
        try:
            number, connection, progress = self._nursery.start(account.user)
        except OSError as error:
            self._tell(f"no helper can be started: {error.strerror}")
            account.resumes = now + MAX_RESTART_PAUSE_SECONDS
            return None
        account.helper = UserHelper(number, account.user, connection, progress, now)
        return account.helper

    def _retire(self) -> bool:
        """End a helper that has nothing to do; return whether there was one."""
        for account in self._accounts.values():
            if account.helper is not None and not account.tasks and not account.runs:
                account.helper.close()
                account.helper = None
                return True
        return False

    def _wait(self, asked: Sequence[_Account], now: float, wall: float) -> None:
        """Take the answers that come soon."""
        until = time.monotonic() + MAX_WAIT_SECONDS
        while waits := [account for account in asked if account.helper is not None and account.helper.busy]:
            ready = select.poll()
            for helper in (account.helper for account in waits if account.helper is not None):
                ready.register(helper.fileno(), select.POLLIN)
            left = until - time.monotonic()
            if left <= 0 or not ready.poll(1000 * left):
                return
            for account in waits:
                self._take(account, now, wall)

    def _check(self, account: _Account, tree: Tree, now: float, wall: float) -> None:
        """Replace a helper that hangs, and look after the runs that none follows."""
        helper = account.helper
        if helper is not None and helper.asked is not None and now - helper.asked >= MAX_ANSWER_SECONDS:
            late = HelperError(Fault.HUNG, f"no answer for {MAX_ANSWER_SECONDS:.0f} s")
            self._replace(account, helper, late, now)
        for dying in [dying for dying in account.dying if dying.ended()]:
            account.dying.remove(dying)
            dying.close()
        for leader in list(account.suspicion):
            if not _among(tree.processes, leader):
                del account.suspicion[leader]
            elif account.avoids(leader) and all(leader != known for known, _ in account.runs):
                pid, start = leader
                if kind := next(iter(self._kinds.get(tree.comm(pid), ())), None):
                    account.runs[leader, kind.name] = UserRun(
                        kind, account.user.uid, pid, start, began(tree, pid, wall)
                    )
        for leader, kind_name in list(account.runs):
            avoided = account.avoids(leader)
            if account.helper is not None and not avoided:
                continue
            if _among(tree.processes, leader):
                account.runs[leader, kind_name].blind = (HUNG if avoided else NO_HELPER,)
            else:
                account.end((leader, kind_name), wall)

    def _replace(self, account: _Account, helper: UserHelper, error: HelperError, now: float) -> None:
        """Give up a helper; the next one is started after a pause."""
        account.helper = None
        task = helper.told.get(helper.reading)
        if task is not None:
            account.suspicion[task.pid, task.start] += MAX_SUSPICION if error.fault is Fault.HUNG else 1
        self._restarts[error.fault] += 1
        account.failures = 1 if now - helper.began >= SETTLED_SECONDS else account.failures + 1
        pause = min(FIRST_RESTART_PAUSE_SECONDS * 2 ** (account.failures - 1), MAX_RESTART_PAUSE_SECONDS)
        account.resumes = now + pause
        reads = "" if task is None else f" while it read {task.comm}[{task.pid}]"
        log.warning(
            "the helper of user %d %s%s: %s; the next one starts in %.1f s",
            account.user.uid, error.fault, reads, error, pause,
        )  # fmt: skip
        if error.fault is Fault.ENDED:
            helper.close()
            return
        account.dying.append(helper)
        with suppress(OSError):  # without a nursery there are no helpers either
            self._nursery.kill(helper.number)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            log.warning("%s", message)


def _among(processes: Mapping[int, object], leader: Leader) -> bool:
    """Return whether a process is among these, and not another one that has its pid."""
    return getattr(processes.get(leader[0]), "start", None) == leader[1]


def _without_avoided(tasks: Mapping[int, Task], tree: Tree, account: _Account) -> Mapping[int, Task]:
    """Return the processes without those that are left alone, and those below them."""
    avoided = [pid for pid, start in account.suspicion if account.avoids((pid, start)) and pid in tasks]
    left = {*avoided, *tree.descendants(*avoided)}
    return {pid: task for pid, task in tasks.items() if pid not in left} if left else tasks
