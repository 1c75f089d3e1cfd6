"""Who makes the threads of benchmarks wait, by who wakes whom (path.bpf.c), in short windows with pauses between them.

A wake-up costs about a microsecond while a window is open, so a window ends after half a second or 10,000 wake-ups of
the host, whatever comes first. The next one begins 4 s after it began, or later: when all that the window cost is 0.4 %
of a CPU.

On a host without a benchmark there are windows while somebody asks for the full rate: a benchmark of another host may
wait for this one's daemons.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache

from pinchpoint.benchmarks.workloads import Member, Workload, Workloads
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.bpf.path import MAX_CHOSEN, OUTSIDE, Answers, Responsible, Window, Windows
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import FormatError, decode, read_bytes
from pinchpoint.host.sockdiag import read_listening
from pinchpoint.host.users import process_user
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    PATH_FULL,
    PATH_LOST_SECONDS,
    PATH_OPEN_SECONDS,
    PATH_PASSED_SECONDS,
    PATH_RATIO,
    PATH_SECONDS,
    PATH_SERVED_ANSWERS,
    PATH_SERVED_PASSED_SECONDS,
    PATH_SERVED_SECONDS,
    PATH_SOURCE_INFO,
    PATH_THREAD_SECONDS,
    PATH_TRIP_SECONDS,
    PATH_TRIPS,
    PATH_WAKEUPS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.threads.processes import Process
from pinchpoint.user_labels import split_user, user_of
from pinchpoint.waits.chain import PEERS, SELF, Chain, Kind, Namer, Node, chain_of, peer_node, served_chain
from pinchpoint.waits.remote import Answered, joined

__all__ = [
    *("MAX_WAKEUPS", "PATH_LOOK_SECONDS", "PATH_WINDOW_SECONDS", "PERIOD_SECONDS", "RECENT_WINDOWS"),
    *("Path", "pause"),
]

PATH_WINDOW_SECONDS = 0.5
"""Seconds of a window, which has to be much longer than the waits."""
PATH_LOOK_SECONDS = 0.1
"""Seconds between two looks whether a window was spent early: it still costs something until it is closed."""
PERIOD_SECONDS, MAX_PERIOD_SECONDS = 4.0, 30.0
"""Seconds between the beginnings of two windows, at least and at most."""
MAX_COST_RATIO = 0.004
"""Share of a CPU that windows take, at most."""
WAKEUP_SECONDS = 1.5e-6
"""CPU time of the programs that is assumed for each wake-up: `make bench` measures 0.8 to 1 us."""
MAX_WAKEUPS = 10_000
"""Wake-ups of the host after which a window ends; eight packets count as one."""
UNLOAD_SECONDS = 60.0
"""Seconds without a benchmark after which the programs are unloaded."""
MAX_WORKLOADS = 24
"""Workloads of trusted users that have series ..."""
MAX_USER_WORKLOADS = 6
"""... and of each other user."""
MAX_NODES = 40
"""Nodes of a workload that have series, and the pairs of nodes; others are ``more``, of the network or not."""
MAX_DAEMON_ENDS = 64
"""Ends of connections that have series, of daemons: an OSD has two ..."""
MAX_OTHER_ENDS = 4
"""... and of all other processes, which any user can start."""
MAX_DAEMON_END_NODES, MAX_OTHER_END_NODES = 16, 6
"""Nodes of such an end that have series, and the pairs of them ..."""
MIN_END_NODE_SHARE = 0.003
"""... if they are responsible for this share of a window's answers."""
MIN_END_SHARE = 0.01
"""Share of a window below which an end's answers do not count: heartbeats have no series."""
MORE, MORE_PEERS = Node("more", "more"), Node(PEERS, "more")
RECENT_WINDOWS = 4
"""Windows whose mean is shown: from one mean to the next, shares change by a few points."""
MIN_SHOWN_RATIO = 0.01
PROGRAM = "pinchpoint"
"""What our processes are called."""


def pause(window: Window, used: float) -> float:
    """Return the seconds from the beginning of a window to that of the next one.

    `used` is the CPU time in seconds that it took to open it, to end it and to read it.
    """
    cost = used + window.spent * WAKEUP_SECONDS
    return min(MAX_PERIOD_SECONDS, max(PERIOD_SECONDS, cost / MAX_COST_RATIO))


def _listening() -> Collection[int]:
    """Return the ports of servers; none where the kernel does not tell."""
    try:
        return read_listening()
    except (OSError, FormatError):
        return ()


class _Totals:
    """The sums of a workload, or of the end of a connection, since it was first seen."""

    def __init__(self, most: int = MAX_NODES, least: float = 0.0) -> None:
        self._most = most
        self._least = least
        """Share of a window from which a node gets series."""
        self.answered = Answered()
        """The answers of the end of a connection."""
        self.seen = 0.0
        """When it was last seen, in monotonic seconds."""
        self.seconds = 0.0
        self.parts: defaultdict[tuple[Node, Kind], float] = defaultdict(float)
        self.passed: defaultdict[tuple[Node, Node], float] = defaultdict(float)
        self._nodes: set[Node] = {SELF}
        self._recent: deque[Chain] = deque(maxlen=RECENT_WINDOWS)

    def add(self, chain: Chain, now: float) -> None:
        self.seen = now
        self.seconds += chain.seconds
        self._recent.append(chain)
        for step in chain.steps():  # the largest first: they get their own series
            if len(self._nodes) < self._most and step.share >= self._least:
                self._nodes.add(step.node)
        for (node, kind), seconds in chain.parts.items():
            self.parts[self._shown(node), kind] += seconds
        for (before, after), seconds in sorted(chain.passed.items(), key=lambda one: -one[1]):
            pair = self._shown(before), self._shown(after)
            if pair in self.passed or len(self.passed) < self._most:
                self.passed[pair] += seconds

    def ratios(self, oldest: float) -> dict[Node, float]:
        """Return the share of each node in the last windows; empty if the last of them was before `oldest`."""
        if self.seen < oldest:
            return {}
        recent = Chain()
        for chain in self._recent:
            recent.add(chain)
        found: defaultdict[Node, float] = defaultdict(float)
        for step in recent.steps():
            found[self._shown(step.node)] += step.share
        return {node: share for node, share in found.items() if share >= MIN_SHOWN_RATIO}

    def whole(self) -> Chain:
        """Return all that was seen as one chain."""
        return Chain(self.seconds, parts=self.parts, passed=self.passed)

    def _shown(self, node: Node) -> Node:
        return node if node in self._nodes else MORE_PEERS if node.owner == PEERS else MORE


class Path(Probe):
    """Chains of benchmarks."""

    name = "path"
    metrics = (
        PATH_SECONDS,
        PATH_PASSED_SECONDS,
        PATH_RATIO,
        PATH_THREAD_SECONDS,
        PATH_SERVED_SECONDS,
        PATH_SERVED_PASSED_SECONDS,
        PATH_SERVED_ANSWERS,
        PATH_TRIP_SECONDS,
        PATH_TRIPS,
        PATH_OPEN_SECONDS,
        PATH_WAKEUPS,
        PATH_LOST_SECONDS,
        PATH_FULL,
        PATH_SOURCE_INFO,
    )
    capabilities = (Capability.BPF, Capability.PERFMON)
    interval = PATH_WINDOW_SECONDS
    rest_interval = PERIOD_SECONDS
    # An open window costs more the longer it is: with fewer samples it would be open for longer.
    steady = True

    def __init__(
        self, host: Host, workloads: Workloads | None = None, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        super().__init__(host)
        self._cpu = cpu
        self._workloads = workloads or Workloads(host.procfs, host.processes, host.runs, host.benchmarks, host.found)
        self._windows: Windows | None = None
        self._members: Mapping[int, Member] | None = None
        """Whom the window that is open is about."""
        self._began = 0.0
        """When it was opened."""
        self._used = 0.0
        """CPU seconds that it took to open the window that is open."""
        self._pause = PERIOD_SECONDS
        self._next = self._worked = self._sampled = float("-inf")
        self._totals: dict[Workload, _Totals] = {}
        self._ends: dict[bool, dict[str, _Totals]] = {True: {}, False: {}}
        """Those of the ends of connections on this host, of daemons and of other processes."""
        self._trips: dict[str, Answered] = {}
        """Answers of those ends of connections on other hosts that are nodes."""
        self._seconds = 0.0
        self._wakeups = 0
        self._lost = 0.0
        self._full = 0
        self.reason: str | None = None
        """Why there are no windows, "" if there are; None before the first one."""

    def sample(self, now: float) -> None:
        """Open a window or end one."""
        self._sampled = now
        if self._members is None:
            if now >= self._next - PATH_WINDOW_SECONDS / 2:
                self.begin(now)
                self._forget(now)
        elif self.spent or now >= self._began + PATH_WINDOW_SECONDS - PATH_LOOK_SECONDS / 2:
            for workload, chain in self.finish(now).items():
                self._add(workload, chain, now)
        self.again = None if self._members is None else PATH_LOOK_SECONDS

    def begin(self, now: float) -> bool:
        """Open a window about all benchmarks; return whether there are any and it could be opened."""
        if self.reason:
            return False
        found = sorted(
            self._workloads.current(now).items(), key=lambda item: user_of(item[1].process.owner) is not None
        )
        members = dict(found[:MAX_CHOSEN])  # those of trusted users come first
        if not members and not self.host.activity.asked(now):
            if self._windows is not None and now - self._worked > UNLOAD_SECONDS:
                self.close()
            return False
        self._worked = now
        try:
            if self._windows is None:
                self._windows = Windows(self.host.procfs)
            began = self._cpu()  # the programs are loaded once for a run: that does not count as a cost of a window
            self._windows.open(members, MAX_WAKEUPS, _listening())
        except (BpfError, OSError) as error:
            self.reason = str(error)
            self.close()
            return False
        self.reason, self._members, self._began = "", members, now
        self._used = self._cpu() - began
        return True

    @property
    def spent(self) -> bool:
        """Whether the open window has ended by itself."""
        return self._windows is not None and self._windows.spent

    def finish(self, now: float) -> dict[Workload, Chain]:
        """End the open window; return what was seen of each workload."""
        members, self._members = self._members, None
        if members is None or self._windows is None:
            return {}
        began = self._cpu()
        window = self._windows.end()
        self._seconds += window.seconds
        self._wakeups += window.wakeups
        self._lost += window.lost
        self._full += window.full
        known = {**self.host.processes.followed(now), **{pid: member.process for pid, member in members.items()}}
        comm = cache(self._comm)
        name = Namer(known, self.host.roles, comm)
        observers = self._observers(window, known, comm, {split_user(one.process.owner)[1] for one in members.values()})
        for answers in window.answers:
            if answers.here and answers.seconds >= MIN_END_SHARE * window.seconds:
                self._serve(answers, known, served_chain(answers.shares, name, observers), now)
        processes: dict[Workload, set[int]] = {}
        for pid, member in members.items():
            processes.setdefault(member.workload, set()).add(pid)
        chains = {workload: chain_of(window, pids, name, observers) for workload, pids in processes.items()}
        self._count_trips(window.answers, chains.values())
        self._pause = pause(window, self._used + self._cpu() - began)
        self._next = self._began + self._pause
        return chains

    def _observers(
        self, window: Window, known: Collection[int], comm: Callable[[int], str], users: Collection[str]
    ) -> Collection[int]:
        """Return this process and others of Pinchpoint, such as that of ``pinchpoint run``.

        A name proves nothing: of an untrusted user they count if the user runs a benchmark, by the marks in `users`.
        """
        shares = [share for thread in window.threads for share in thread.shares]
        shares += [share for answers in window.answers for share in answers.shares]
        ends = {end for share in shares for end in (share.by, share.via)}
        others = {end.tgid for end in ends if isinstance(end, Responsible)} - {*known}
        marks = {"", *users}

        def observes(pid: int) -> bool:
            return comm(pid) == PROGRAM and self.host.users.mark(process_user(self.host.procfs, pid)) in marks

        return {os.getpid(), *filter(observes, others)}

    def _serve(self, answers: Answers, known: Mapping[int, Process], chain: Chain, now: float) -> None:
        """Add the answers of a connection's end on this host."""
        who = {share.by.tgid for share in answers.shares if share.via is None and isinstance(share.by, Responsible)}
        if who <= {OUTSIDE}:
            return  # another container's, or that of the host: theirs to tell
        daemon = any(pid in known and known[pid].daemon for pid in who)
        ends, end = self._ends[daemon], str(answers.end)
        if end not in ends:
            if len(ends) >= (MAX_DAEMON_ENDS if daemon else MAX_OTHER_ENDS):
                oldest = min(ends, key=lambda key: ends[key].seen)
                if now - ends[oldest].seen < KEEP_ENDED_SECONDS:
                    return
                del ends[oldest]
            ends[end] = _Totals(MAX_DAEMON_END_NODES if daemon else MAX_OTHER_END_NODES, MIN_END_NODE_SHARE)
        ends[end].add(chain, now)
        ends[end].answered.add(answers.number, chain.seconds)

    def _count_trips(self, answers: Iterable[Answers], chains: Iterable[Chain]) -> None:
        """Add the answers of other hosts for which this one's threads waited."""
        shown = {node for chain in chains for node, _ in chain.parts}
        shown |= {node for ends in self._ends.values() for one in ends.values() for node, _ in one.parts}
        for one in answers:
            end = str(one.end)
            room = end in self._trips or len(self._trips) < MAX_DAEMON_ENDS
            if not one.here and room and peer_node(end) in shown:
                self._trips.setdefault(end, Answered()).add(one.number, one.seconds)

    def joined(self, chain: Chain) -> Chain:
        """Return a chain that goes on in this host's containers, whose ends of connections are seen here too."""
        ends = {**self._ends[False], **self._ends[True]}
        served = {end: one.whole() for end, one in ends.items()}
        return joined(chain, self._trips, {end: one.answered for end, one in ends.items()}, served)

    def _comm(self, pid: int) -> str:
        try:
            return decode(read_bytes(f"{self.host.procfs}/{pid}/comm").rstrip(b"\n"))
        except OSError:
            return ""

    def _add(self, workload: Workload, chain: Chain, now: float) -> None:
        if workload not in self._totals:
            mark = split_user(workload.run)[1]
            alike = {key: totals.seen for key, totals in self._totals.items() if split_user(key.run)[1] == mark}
            if len(alike) >= (MAX_USER_WORKLOADS if mark else MAX_WORKLOADS):
                oldest = min(alike, key=lambda key: alike[key])
                if alike[oldest] >= now:
                    return
                del self._totals[oldest]
            self._totals[workload] = _Totals()
        self._totals[workload].add(chain, now)

    def _forget(self, now: float) -> None:
        for workload in [one for one, totals in self._totals.items() if now - totals.seen > KEEP_ENDED_SECONDS]:
            del self._totals[workload]
        for ends in self._ends.values():
            for end in [one for one, totals in ends.items() if now - totals.seen > KEEP_ENDED_SECONDS]:
                del ends[end]
        if not self._totals and not any(self._ends.values()):
            self._trips.clear()

    def points(self) -> Iterator[Point]:
        """Yield the series of every workload."""
        for workload, totals in self._totals.items():
            for (node, kind), seconds in totals.parts.items():
                yield PATH_SECONDS.point(seconds, *workload, *node, kind)
            for (before, after), seconds in totals.passed.items():
                yield PATH_PASSED_SECONDS.point(seconds, *workload, *before, *after)
            for node, share in totals.ratios(self._sampled - RECENT_WINDOWS * self._pause).items():
                yield PATH_RATIO.point(share, *workload, *node)
            yield PATH_THREAD_SECONDS.point(totals.seconds, *workload)
        for end, totals in {**self._ends[False], **self._ends[True]}.items():
            for (node, kind), seconds in totals.parts.items():
                yield PATH_SERVED_SECONDS.point(seconds, end, *node, kind)
            for (before, after), seconds in totals.passed.items():
                yield PATH_SERVED_PASSED_SECONDS.point(seconds, end, *before, *after)
            yield PATH_SERVED_ANSWERS.point(totals.answered.number, end)
        for end, trips in self._trips.items():
            yield PATH_TRIP_SECONDS.point(trips.seconds, end)
            yield PATH_TRIPS.point(trips.number, end)
        if self.reason is not None:
            yield PATH_SOURCE_INFO.point(1, "none" if self.reason else "bpf", self.reason)
        if self._seconds:
            yield PATH_OPEN_SECONDS.point(self._seconds)
            yield PATH_WAKEUPS.point(self._wakeups)
            yield PATH_LOST_SECONDS.point(self._lost)
            yield PATH_FULL.point(self._full)

    def close(self) -> None:
        """Remove the programs and maps from the kernel."""
        self._members = None
        if self._windows is not None:
            self._windows.close()
            self._windows = None
