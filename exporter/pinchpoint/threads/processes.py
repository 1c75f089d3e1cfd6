"""The processes of interest: found cheaply, classified by the roles file, shared by the probes that need them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

import msgspec

from pinchpoint.host.procfs import FormatError, Stat, decode, parse_stat, parse_thread_group, read_bytes, shows_own_pids
from pinchpoint.host.users import ROOT, Users, ceph_uids, own_users, process_user
from pinchpoint.quotas import shared_out
from pinchpoint.threads.identity import NOT_THE_PROGRAM, ShownOwners, mark
from pinchpoint.threads.roles import BENCHMARK, UNVERIFIED, ProcessRule, Roles
from pinchpoint.threads.slurm import SlurmSteps
from pinchpoint.user_labels import marked, split_user, unmarked, user_mark, user_of

__all__ = ["Process", "Processes", "ceph_id"]

SCAN_INTERVAL_SECONDS = 0.25
"""Seconds between two looks for new processes, while some are being forked."""
LIST_INTERVAL_SECONDS = 1.0
"""Seconds between two listings of all processes while some are being forked: who is new is known without."""
MAX_BORN = 64
"""Threads and processes that are looked at one by one; if more were started since the last look, all are listed."""
MAX_SCAN_WAIT_SECONDS = 0.1
"""Seconds to wait for another thread's scan: it takes milliseconds, or it hangs."""
FULL_SCAN_INTERVAL_SECONDS = 5.0
"""Seconds between two passes that read every process again: an exec changes a name without a new pid ..."""
KERNEL_SCAN_INTERVAL_SECONDS = 60.0
"""... and every kernel thread, which never calls exec: on a host with many CPUs most processes are kernel threads. Only
one that ended and whose pid was given away again is noticed that late."""
YOUNG_SECONDS = 2.0
"""Seconds for which a new process is read again at each scan."""
CLUSTER_ID_CHARACTERS = 8
"""Characters of the fsid that distinguish two clusters' daemons on one host."""
MAX_OWNERS_PER_CLASS = 128
"""Owners per process class, of daemons and of others; further instances have the owner ``more``."""
MAX_USER_OWNERS = 16
"""The same of one untrusted user, whose owners have a mark and take nobody else's place."""
MAX_UNVERIFIED, MAX_UNVERIFIED_PER_USER = 32, 8
"""Unverified processes whose threads are read, in all and of one user; the others are only counted."""
UNKNOWN = "?"
"""An id that a command line does not have, or a cluster that a daemon has not told yet."""
MAX_ID_CHARACTERS = 64
"""Characters of a daemon's id that are shown: any process may have any command line."""


class Process(msgspec.Struct, frozen=True):
    """A process that a rule of the roles file is interested in."""

    pid: int
    start: int
    """Clock ticks from boot to its start: with the pid, its identity."""
    comm: str
    class_: str
    owner: str
    daemon: bool = False
    """Whether it is what its name says. Daemons share no limit with processes whose names anybody may choose."""


def ceph_id(argv: list[str]) -> str:
    """Return a Ceph daemon's id from its command line: ``-i 3``, ``--id=3``, ``-n osd.3``; "?" where there is none.

    The options are those of ``ceph_argparse_early_args`` (src/common/ceph_argparse.cc, Ceph 14 to 19).
    """
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option in ("-i", "--id", "-n", "--name"):
            value = value if equals else argv[index + 1] if index + 1 < len(argv) else ""
        elif re.fullmatch(r"-[in].+", word):
            option, value = word[:2], word[2:]
        else:
            continue
        if option in ("-n", "--name"):
            value = value.partition(".")[2]
        return value[:MAX_ID_CHARACTERS] or UNKNOWN
    return UNKNOWN


_Group = tuple[str, bool, str]
"""What shares a limit of owners: a class, whether these are daemons, and the mark of a user."""


class Processes:
    """The table of processes of interest, refreshed on request, at most every `SCAN_INTERVAL_SECONDS`.

    `adopted` gives pids whose process trees count as benchmarks whatever they are called: the commands of runs. Below
    `rootfs` the host says which uids Ceph's daemons have.
    """

    def __init__(
        self,
        procfs: Path,
        roles: Roles,
        adopted: Callable[[], Collection[int]] = tuple,
        *,
        rootfs: Path = Path("/"),
        users: Users | None = None,
    ) -> None:
        self._procfs = procfs
        self._rootfs = rootfs
        self._roles = roles
        self._adopted = adopted
        self._users = users or own_users()
        try:
            self._own = shows_own_pids(procfs)
        except OSError:
            self._own = True
        self._lock = Lock()
        self._seen: dict[int, Stat] = {}
        self._first_seen: dict[int, float] = {}
        self._young: set[int] = set()
        self._classified: dict[int, Process] = {}
        self._current: Mapping[int, Process] = {}
        self._followed: Mapping[int, Process] = {}
        self._shown = ShownOwners()
        self._steps = SlurmSteps(procfs)
        self._benchmarks: dict[int, int] = {}
        self._roots: frozenset[int] = frozenset()
        self._last_pid: int | None = None
        self._scanned = self._listed = self._read_users = self._read_kernel = self._newcomer = float("-inf")
        self.unreadable = 0
        """Processes that are listed but can't be read (hidepid, another user's)."""
        self.unverified: Mapping[str, int] = {}
        """Processes that only have the name of a daemon, by the class that this would have."""
        self.kworkers: frozenset[int] = frozenset()
        """Pids of the workqueue workers."""
        self.generation = 0
        """Rises with every scan that found new processes or threads."""
        self.turnover = 0
        """Rises only with those after which the followed processes, or their threads, may be others."""
        self._clusters: dict[tuple[int, int], str] = {}
        self._several = self._renamed = False

    def current(self, now: float) -> Mapping[int, Process]:
        """Return the processes of interest by pid, without unverified ones; `now` is a monotonic time in seconds."""
        with self._lock:
            if now - self._scanned >= SCAN_INTERVAL_SECONDS:
                self._scan(now)
            return self._current

    def followed(self, now: float) -> Mapping[int, Process]:
        """Return the processes of interest by pid, with some unverified ones; `now` is a monotonic time in seconds."""
        with self._lock:
            if now - self._scanned >= SCAN_INTERVAL_SECONDS:
                self._scan(now)
            return self._followed

    def everything(self, now: float) -> Mapping[int, Stat]:
        """Return all processes by pid; `now` is a monotonic time in seconds.

        New ones appear within `SCAN_INTERVAL_SECONDS`. One that has ended may stay until the next scan. While another
        thread's scan hangs, the last result is returned.
        """
        if self._lock.acquire(timeout=MAX_SCAN_WAIT_SECONDS):
            try:
                if now - self._scanned >= SCAN_INTERVAL_SECONDS:
                    self._scan(now)
            finally:
                self._lock.release()
        return self._seen

    @property
    def adopted(self) -> Collection[int]:
        """Pids of the processes of runs."""
        return self._benchmarks.keys()

    def benchmark_owner(self, pid: int, name: str) -> str:
        """Return the owner of a benchmark's process: a name with the mark of the untrusted user who started it."""
        return marked(name, self._users.mark(process_user(self._procfs, pid)))

    def assign_cluster(self, process: Process, cluster: str) -> None:
        """Set the cluster (fsid) of a Ceph daemon.

        With several clusters, owners get its first characters: two clusters both have an osd.0. A daemon that
        starts then is ``osd.0@?`` until its cluster is known: a plain name would belong to different daemons in turn.
        """
        with self._lock:
            if self._clusters.get((process.pid, process.start)) != cluster:
                self._clusters[process.pid, process.start] = cluster
                # For good: a new name begins new series and resets rates and alerts.
                self._several |= len(set(self._clusters.values())) > 1
                self._renamed |= self._several

    def _scan(self, now: float) -> None:
        self._scanned = now
        roots = frozenset(self._adopted())
        full = now - self._read_users >= FULL_SCAN_INTERVAL_SECONDS
        kernel = now - self._read_kernel >= KERNEL_SCAN_INTERVAL_SECONDS
        last_pid = self._newest_pid()
        groups = self._groups(last_pid)
        born = None if groups is None else {number for number, group in groups.items() if number == group}
        self.turnover += groups is None or not self._followed.keys().isdisjoint(groups.values())
        young = now - self._newcomer < YOUNG_SECONDS
        if not (full or kernel or young or born is None or born) and roots == self._roots and not self._renamed:
            if last_pid != self._last_pid:  # a thread of a known process
                self._last_pid = last_pid
                self.generation += 1
            return
        self._last_pid, self._roots = last_pid, roots
        if full:
            self._read_users = now
        if kernel:
            self._read_kernel = now
        if full or kernel or born is None or now - self._listed >= LIST_INTERVAL_SECONDS:
            self._listed = now
            pids = {int(name) for name in os.listdir(self._procfs) if name.isdigit()}
        else:
            pids = self._seen.keys() | born
        seen, read = self._read(pids, born or set(), now, users=full, kernel=kernel)
        before, known, self._seen = self._benchmarks, self._seen, self._steps.attached(seen)
        self._benchmarks = self._descendants(roots)
        changed = {pid for pid in read if _kind(seen.get(pid)) != _kind(known.get(pid))}
        changed |= (known.keys() - seen.keys()) | (before.keys() ^ self._benchmarks.keys())
        if self._renamed:
            changed |= {pid for pid, process in self._classified.items() if process.daemon}
        if full:
            changed |= {pid for pid, process in self._classified.items() if _doubtful(process)}
        self._renamed = False
        if changed:
            self._classify_again(changed)
        followed = {**self._current, **self._show(now)}
        self.turnover += followed != self._followed
        self._followed = followed
        self.generation += 1

    def _read(
        self, pids: set[int], born: set[int], now: float, *, users: bool, kernel: bool
    ) -> tuple[dict[int, Stat], set[int]]:
        """Return the processes with these pids, and which of them were read: new ones, young ones, all of a kind."""
        for pid in self._first_seen.keys() - pids:
            del self._first_seen[pid]
        for pid in pids - self._first_seen.keys():
            self._first_seen[pid] = self._newcomer = now
            self._young.add(pid)
        # A young process may be a fork that has not called exec yet, or a worker that has not run: its name and flags
        # are not its own.
        self._young = {pid for pid in self._young & pids if now - self._first_seen[pid] < YOUNG_SECONDS}
        seen = {pid: stat for pid, stat in self._seen.items() if pid in pids}
        read = (pids - seen.keys()) | (pids & born)
        read |= {pid for pid in self._young & seen.keys() if not seen[pid].kworker}
        if users or kernel:
            read |= {pid for pid, stat in seen.items() if (kernel if stat.kernel_thread else users)}
        # Without hidepid=2 (or with rights) the first process can always be seen: man 5 proc.
        self.unreadable = 0 if 1 in pids else 1
        for pid in read:
            stat = self._stat(pid)
            if stat is None:
                seen.pop(pid, None)
            else:
                seen[pid] = stat
        return dict(sorted(seen.items())), read

    def _classify_again(self, changed: set[int]) -> None:
        """Say anew what these processes are; the others stay what they are."""
        self._clusters = {
            (pid, start): cluster
            for (pid, start), cluster in self._clusters.items()
            if pid in self._seen and self._seen[pid].start == start
        }
        classified = {pid: process for pid, process in self._classified.items() if pid not in changed}
        users = cache(lambda: ceph_uids(self._rootfs) | {ROOT})
        owners: dict[_Group, set[str]] = {}
        for known in classified.values():
            owners.setdefault(_group(known.class_, known.owner, daemon=known.daemon), set()).add(known.owner)
        for pid in sorted(changed & self._seen.keys()):
            if (process := self._classify(pid, self._seen[pid], owners, users)) is not None:
                old = self._classified.get(pid)
                classified[pid] = old if old == process else process
        self._classified = dict(sorted(classified.items()))
        self.kworkers = frozenset(pid for pid, stat in self._seen.items() if stat.kworker and stat.kernel_thread)
        self._current = {pid: process for pid, process in self._classified.items() if process.class_ != UNVERIFIED}

    def _show(self, now: float) -> dict[int, Process]:
        """Count the unverified processes; return those whose threads are read."""
        unverified = [process for process in self._classified.values() if process.class_ == UNVERIFIED]
        rules = [self._roles.process(process.comm, kernel=False) for process in unverified]
        self.unverified = Counter(match[0].class_ for match in rules if match is not None)
        owners = self._shown.choose((process.owner for process in unverified), now)
        shown = ((user_of(process.owner), process) for process in unverified if process.owner in owners)
        followed = shared_out(shown, MAX_UNVERIFIED_PER_USER, MAX_UNVERIFIED)
        return {process.pid: process for process in followed}

    def _newest_pid(self) -> int | None:
        """Return the last field of ``/proc/loadavg``, which grows with every new thread (loadavg_proc_show).

        None without it, and where the procfs is that of another PID namespace than ours: the field is of ours.
        """
        if not self._own:
            return None
        try:
            return int(read_bytes(f"{self._procfs}/loadavg").rpartition(b" ")[2])
        except (OSError, ValueError):
            return None

    def _groups(self, last_pid: int | None) -> dict[int, int] | None:
        """Return the process of each thread that was started since the last scan; None where they are not known.

        The kernel gives numbers to threads and processes in one ascending row (alloc_pid, kernel/pid.c).
        """
        if last_pid is None or self._last_pid is None or not 0 <= last_pid - self._last_pid <= MAX_BORN:
            return None
        found = {}
        for number in range(self._last_pid + 1, last_pid + 1):
            with suppress(OSError, FormatError):  # it has ended; procfs also shows threads that it does not list
                found[number] = parse_thread_group(read_bytes(f"{self._procfs}/{number}/status"))
        return found

    def _stat(self, pid: int) -> Stat | None:
        try:
            return parse_stat(read_bytes(f"{self._procfs}/{pid}/stat"))
        except PermissionError:
            self.unreadable += 1
        except (OSError, FormatError):
            pass  # it is gone
        return None

    def _descendants(self, roots: frozenset[int]) -> dict[int, int]:
        """Return pid and start of `roots` and their descendants, which stay when a parent ends."""
        if not roots:
            return {}
        found = {pid for pid, start in self._benchmarks.items() if pid in self._seen and self._seen[pid].start == start}
        found |= roots & self._seen.keys()
        children: dict[int, list[int]] = {}
        for pid, stat in self._seen.items():
            children.setdefault(stat.ppid, []).append(pid)
        waiting = list(found)
        while waiting:
            new = [child for child in children.get(waiting.pop(), ()) if child not in found]
            found.update(new)
            waiting += new
        return {pid: self._seen[pid].start for pid in found}

    def _classify(
        self, pid: int, stat: Stat, owners: MutableMapping[_Group, set[str]], users: Callable[[], Collection[int]]
    ) -> Process | None:
        if stat.kernel_thread and stat.kworker:
            return None
        match = self._roles.process(stat.comm, kernel=stat.kernel_thread)
        if match is not None:
            rule, groups = match
            class_, daemon = rule.class_, rule.daemon
            end = mark(self._procfs, pid, rule.pattern, users()) if daemon else ""
            if end:
                # Its command line is not read: a process may make every reader of its memory wait forever.
                if (uid := user_of(end)) is not None:
                    end = user_mark(self._users.user(uid))
                return Process(pid, stat.start, stat.comm, UNVERIFIED, f"{_named(stat, rule, groups, [])}{end}")
            owner = _named(stat, rule, groups, self._arguments(pid) if "{ceph_id}" in rule.owner else [])
            if self._several and "{ceph_id}" in rule.owner:
                owner = self._name_in_cluster(pid, stat, owner)
            if class_ != BENCHMARK:
                owner = unmarked(owner)  # a daemon's id is its own user's choice
        elif pid in self._benchmarks:
            class_, owner, daemon = BENCHMARK, self._roles.unruled_owner(stat.comm), False
        else:
            return None
        if class_ == BENCHMARK:
            owner = self.benchmark_owner(pid, owner)
        group = _group(class_, owner, daemon=daemon)
        alike = owners.setdefault(group, set())
        if owner not in alike and len(alike) >= (MAX_USER_OWNERS if group[2] else MAX_OWNERS_PER_CLASS):
            owner = marked("more", group[2])
        alike.add(owner)
        return Process(pid, stat.start, stat.comm, class_, owner, daemon)

    def _name_in_cluster(self, pid: int, stat: Stat, owner: str) -> str:
        """Return the name that a daemon has beside other clusters' daemons: with the beginning of its cluster's fsid.

        One that had a name before keeps it until its cluster is known: a third name would begin further series.
        """
        cluster, old = self._clusters.get((pid, stat.start)), self._classified.get(pid)
        if cluster is None and old is not None and old.daemon and old.start == stat.start:
            return old.owner
        return f"{owner}@{(cluster or UNKNOWN)[:CLUSTER_ID_CHARACTERS]}"

    def _arguments(self, pid: int) -> list[str]:
        try:
            argv = read_bytes(f"{self._procfs}/{pid}/cmdline").split(b"\0")
        except OSError:
            return []
        return [decode(word) for word in argv if word]


def _group(class_: str, owner: str, *, daemon: bool) -> _Group:
    return class_, daemon, split_user(owner)[1]


def _named(stat: Stat, rule: ProcessRule, groups: tuple[str, ...], argv: list[str]) -> str:
    """Return the owner that a rule gives a process."""
    fields = {str(index + 1): group for index, group in enumerate(groups)}
    fields |= {"comm": stat.comm, "ceph_id": ceph_id(argv)}
    return re.sub(r"\{([^{}]*)\}", lambda found: fields[found[1]], rule.owner)


def _kind(stat: Stat | None) -> tuple[object, ...]:
    """Return what decides what a process is, besides its command line."""
    return () if stat is None else (stat.start, stat.comm, stat.kernel_thread, stat.kworker)


def _doubtful(process: Process) -> bool:
    """Return whether a process may still become the daemon that it is named after: a script that starts it last."""
    return process.class_ == UNVERIFIED and process.owner.endswith(NOT_THE_PROGRAM)
