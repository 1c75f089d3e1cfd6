"""Which processes the helper of each user is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from pinchpoint.benchmarks.talk import MAX_TOLD_PROCESSES, Task
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.confine import User
from pinchpoint.host.users import Users

__all__ = ["UserTasks"]

MAX_GROUPS = 256
"""Groups of a user that count."""


class UserTasks:
    """The benchmarks of each user, by the names of their processes.

    Somebody has a helper for each set of groups and each subordinate uid: the oldest `most` of them count.
    """

    def __init__(self, comms: Collection[str], accounts: Users, most: int) -> None:
        self._comms = comms
        self._accounts = accounts
        self._most = most
        self._users: dict[tuple[int, int, str], User | None] = {}
        """Whose a process is, by pid, start and name; None if that can't be seen."""

    def of(self, tree: Tree) -> dict[User, dict[int, Task]]:
        """Return the processes by pid: a user's benchmarks, what that user runs below them, and what is above.

        Of the processes of others nothing but what is above, since they may not be read, and are followed elsewhere.
        """
        users = dict(self._owners(tree))
        found: dict[User, dict[int, Task]] = {}
        numbers: Counter[int] = Counter()
        for pid, user in users.items():
            if user not in found and tree.processes[pid].comm in self._comms:
                numbers[account := self._accounts.user(user.uid)] += 1
                if numbers[account] <= self._most:
                    found[user] = {}
        for pid, user in users.items():
            if user in found and len(found[user]) < MAX_TOLD_PROCESSES:
                found[user][pid] = _task(tree, pid, own=True)
        for told in found.values():
            for pid in tree.ancestors(*list(told)):
                if len(told) < MAX_TOLD_PROCESSES:
                    told[pid] = _task(tree, pid, own=False)
        return found

    def _owners(self, tree: Tree) -> Iterator[tuple[int, User]]:
        """Yield the benchmarks and all processes below them, and whose they are."""
        known, self._users = self._users, {}
        named = [pid for pid, task in tree.processes.items() if task.comm in self._comms]
        for pid in sorted({*named, *tree.descendants(*named)}):
            task = tree.processes[pid]
            key = (pid, task.start, task.comm)
            user = self._users[key] = known[key] if key in known else _user(tree, pid)
            if user is not None:
                yield pid, user


def _user(tree: Tree, pid: int) -> User | None:
    try:
        user = tree.user(pid)
    except OSError:
        return None
    if tree.owner(pid) != user.uid:
        return None  # a set-user-ID program with a benchmark's name: whoever started it has not that user's rights
    return user._replace(groups=user.groups[:MAX_GROUPS])


def _task(tree: Tree, pid: int, *, own: bool) -> Task:
    task = tree.processes[pid]
    return Task(pid, task.comm, task.state, task.ppid, task.start, own)
