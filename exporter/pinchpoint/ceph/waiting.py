"""What Ceph clients in user space wait for, by a few counters of their admin sockets, read several times a second.

A program with a Ceph library waits in a futex for everything; a FUSE mount makes all its users wait for ceph-fuse.
Their performance counters separate waits for MDSs and for OSDs: ``client.lat`` sums up the seconds of requests to
MDSs (Client::make_request, src/client/Client.cc), ``objecter.op_active`` is the number of operations that OSDs have not
answered yet. Asked for one counter, ``perf dump`` answers in 44 bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from pinchpoint.ceph.asker import Asker
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.follower import UNSEEN, DaemonReader, Follower, Followers
from pinchpoint.ceph.perf import PerfDump
from pinchpoint.model import Point
from pinchpoint.threads.processes import Process
from pinchpoint.threads.roles import BENCHMARK

__all__ = ["BLIND_AFTER_SECONDS", "SUMS", "ClientWaits", "LibraryReader", "Looked", "MountReader", "WaitReader"]

MIN_LOOK_INTERVAL_SECONDS = 0.2
"""Seconds between two looks at the operations in flight of one client."""
MAX_LOOKS_PER_SECOND = 16.0
"""Looks at all clients of a host in a second, 0.5 ms of CPU each on a full host (`bench/live_cost.py`); with many
clients each is looked at more rarely."""
MIN_EXPLAINED_SHARE = 0.9
"""Share of a process' time from which requests to MDSs explain what it waits for: what is in flight to OSDs doesn't
matter then."""
FIRST_NEGATIVE_GAUGE = 1 << 63
"""From here on a gauge of Ceph is a negative number."""
GONE = frozenset({"foreign", "missing", "refused"})
"""Problems of sockets that are not, or no longer, the process' own: a child inherits those of its parent."""
BLIND_AFTER_SECONDS = 1.5
"""Seconds without an answering socket after which a client counts as blind; looks that are overdue as long are not
waited for."""
SUMS = Question("perf dump", logger="client", every=0.5)
"""Asks a client with a file system for the time of its requests, reads, writes and fsyncs."""
STOPPED = frozenset({"silent", "stopped"})
"""Problems of a client that is stuck itself."""


class Looked(NamedTuple):
    """What is known of a client; all but `stuck` only grow, times are in seconds."""

    looks: int = 0
    active: int = 0
    """Looks that found operations in flight to OSDs."""
    requests: float = 0.0
    """Time that requests to MDSs have taken, of those that were answered."""
    data: float = 0.0
    """Time that reads, writes and fsyncs of its users have taken."""
    blocked: float = 0.0
    """Time that writes have waited because too much is dirty."""
    stuck: bool = False
    """Whether it doesn't answer at all."""

    @property
    def sums(self) -> float:
        """Time of all that has ended."""
        return self.requests + self.data + self.blocked

    def since(self, before: Looked) -> Looked:
        """Return what was added since `before`, nothing after a reset."""
        return Looked(
            looks=max(0, self.looks - before.looks),
            active=max(0, self.active - before.active),
            requests=max(0.0, self.requests - before.requests),
            data=max(0.0, self.data - before.data),
            blocked=max(0.0, self.blocked - before.blocked),
            stuck=self.stuck,
        )

    def __add__(self, other: object) -> Looked:
        """Return the sum."""
        if not isinstance(other, Looked):
            return NotImplemented
        return Looked(
            looks=self.looks + other.looks,
            active=self.active + other.active,
            requests=self.requests + other.requests,
            data=self.data + other.data,
            blocked=self.blocked + other.blocked,
            stuck=self.stuck or other.stuck,
        )


class WaitReader(DaemonReader):
    """What one admin socket of a client says."""

    identity = ()
    in_flight: ClassVar[Question]
    """How many operations OSDs have not answered: to be asked only while the sums do not explain what it waits for."""

    def __init__(self) -> None:
        self.looked = Looked()
        """To be read under the follower's lock."""
        self._explained = False
        self._summed: tuple[float, Looked] | None = None
        """When its sums were taken last, and what they were."""

    @abstractmethod
    def explains(self, done: Looked, elapsed: float) -> bool:
        """Return whether what was done in `elapsed` seconds says enough of what it waits for."""

    def wants(self, question: Question) -> bool:
        """Return whether the answer to a question that is due would say anything."""
        return question is not self.in_flight or not self._explained

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        """Take the answers of one round. Raises FormatError."""
        looks, active, requests, data, blocked, _ = self.looked
        summed = False
        for raw in answers.values():
            dump = PerfDump.parse(raw)
            if (flying := dump.value("objecter", "op_active")) is not None:
                looks += 1
                active += 0 < flying < FIRST_NEGATIVE_GAUGE
            if (latency := dump.average("client", "lat")) is not None:
                summed, requests = True, latency.total
                parts = [dump.average("client", counter) for counter in ("wrlat", "rdlat", "fsync")]
                data = sum(part.total for part in parts if part is not None)
            # ObjectCacher::perf_start (src/osdc/ObjectCacher.cc)
            if (waited := dump.value("objectcacher-libcephfs", "write_time_blocked")) is not None:
                blocked = waited
        self.looked = Looked(looks, active, requests, data, blocked)
        if summed:
            if self._summed is not None:
                last, before = self._summed
                self._explained = self.explains(self.looked.since(before), now - last)
            self._summed = now, self.looked
        elif SUMS.key in answers:
            self._explained, self._summed = False, None  # it has unmounted its file system

    def points(self, daemon: str) -> Iterator[Point]:
        """Yield nothing: callers read `looked` instead."""
        return iter(())


class LibraryReader(WaitReader):
    """A program with a Ceph library: looked at often, since what it waits for changes often."""

    in_flight = Question("perf dump", logger="objecter", counter="op_active", every=MIN_LOOK_INTERVAL_SECONDS)
    questions = (in_flight, SUMS)
    interval = MIN_LOOK_INTERVAL_SECONDS

    def explains(self, done: Looked, elapsed: float) -> bool:
        """Return whether it waited for MDSs nearly all the time."""
        return done.requests >= MIN_EXPLAINED_SHARE * elapsed > 0


class MountReader(WaitReader):
    """ceph-fuse: sums show what it did, and whether anything is in flight only matters when these stand still."""

    in_flight = Question("perf dump", logger="objecter", counter="op_active", every=0.5)
    questions = (
        SUMS,
        Question("perf dump", logger="objectcacher-libcephfs", counter="write_time_blocked", every=0.5),
        in_flight,
    )
    interval = 0.5

    def explains(self, done: Looked, elapsed: float) -> bool:
        """Return whether its sums grew."""
        return done.sums > 0


class _Chosen:
    """The processes that are followed: those of workloads and of their mounts."""

    def __init__(self) -> None:
        self.processes: Mapping[int, Process] = {}

    def current(self, now: float) -> Mapping[int, Process]:
        return self.processes

    def assign_cluster(self, process: Process, cluster: str) -> None:
        pass  # a client isn't named after its cluster


class ClientWaits:
    """The clients of a host that matter to its workloads; `make` gives each socket its reader."""

    def __init__(self, procfs: Path, rootfs: Path, make: type[WaitReader], asker: Asker | None = None) -> None:
        self._chosen = _Chosen()
        self._make = make
        self._followers = Followers(procfs, rootfs, self._chosen, {BENCHMARK}, make, asker=asker)
        self._last: dict[int, Looked] = {}
        self._since: dict[int, float] = {}
        self.interval = make.interval
        """Seconds between two looks at one client."""

    def follow(self, processes: Collection[Process], now: float) -> None:
        """Follow the clients in these processes and no others; `now` is a monotonic time in seconds."""
        self._chosen.processes = {
            process.pid: Process(process.pid, process.start, process.comm, BENCHMARK, process.owner)
            for process in processes
        }
        self._followers.refresh(now)
        self._since = {pid: self._since.get(pid, now) for pid in self._chosen.processes}
        self._last = {pid: looked for pid, looked in self._last.items() if pid in self._since}
        self.interval = max(self._make.interval, len(processes) / MAX_LOOKS_PER_SECOND)
        for _, followers in self._followers:
            for follower in followers:
                follower.reader.interval = self.interval

    def looked(self, now: float) -> dict[int, Looked | None]:
        """Return what each client did since the last call, by pid; None where it can't be seen.

        One that has only just been found is left out. `now` is a monotonic time in seconds.
        """
        found: dict[int, Looked | None] = {}
        for process, followers in self._followers:
            pid = process.pid
            shown = list(_shown(followers))
            known = [looked for looked in shown if looked is not None]
            if not known or len(known) < len(shown):
                if not shown and pid in self._last:
                    found[pid] = Looked()  # it has closed its socket: it is done with Ceph
                elif shown or now - self._since.get(pid, now) >= BLIND_AFTER_SECONDS:
                    found[pid] = None  # one blind socket makes all of the process blind
                continue
            total = sum(known, Looked())
            # What it did before the first look doesn't count.
            before, self._last[pid] = self._last.get(pid), total
            if before is not None:
                found[pid] = total.since(before)
        return found

    def close(self) -> None:
        """Ask no more."""
        self._followers.close()


def _shown(followers: Iterable[Follower]) -> Iterator[Looked | None]:
    """Yield what each socket of a process says, None for one that is blind; those that are not its own are left out."""
    for follower in followers:
        assert isinstance(follower.reader, WaitReader)
        with follower.lock:
            problem, looked = follower.problem, follower.reader.looked
        if not problem:
            yield looked
        elif problem in STOPPED:
            yield looked._replace(stuck=True)
        elif problem not in GONE | UNSEEN:
            yield None
