"""Asks Ceph processes at a steady pace: a stuck one does not blind others.

A question that is not answered in time is still waited for: asking again would only lengthen the queue of a late
daemon. Meanwhile we check that the process is still alive.
"""

from __future__ import annotations

import logging
import os
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import ClassVar, Protocol, TypeVar

from pinchpoint.ceph.asker import Asker, Awaited
from pinchpoint.ceph.asok import AdminSocketError, Conversation, Question, SilentError, UnknownCommandError
from pinchpoint.ceph.perf import parse_option, parse_version
from pinchpoint.ceph.readings import Options
from pinchpoint.ceph.sockets import AdminSocket, SocketTables, admin_sockets
from pinchpoint.host.procfs import FormatError, parse_schedstat, parse_stat, read_bytes
from pinchpoint.metrics import (
    CEPH_DAEMON_INFO,
    CEPH_DAEMON_STUCK,
    CEPH_SOCKET_DURATION_SECONDS,
    CEPH_SOCKET_PROBLEM_INFO,
    CEPH_SOCKET_UP,
)
from pinchpoint.model import Point
from pinchpoint.threads.processes import Process

__all__ = ["METRICS", "UNSEEN", "DaemonReader", "Follower", "Followers", "ProcessTable"]

METRICS = (CEPH_SOCKET_UP, CEPH_SOCKET_PROBLEM_INFO, CEPH_SOCKET_DURATION_SECONDS, CEPH_DAEMON_STUCK, CEPH_DAEMON_INFO)

VERSION = Question("version", every=60.0)
FSID = Question("config get", "fsid", every=60.0)
ROUND_TIMEOUT_SECONDS = 1.0
"""Seconds in which all questions of a round have to be answered; a working daemon needs milliseconds."""
STUCK_AFTER_SECONDS = 2.0
"""Seconds without any CPU time after which a silent daemon counts as stuck."""
LOOK_AGAIN_SECONDS = (0.5, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds until a process without a socket is looked at again; a daemon opens its socket early, and a client may open
one more later, so the last interval repeats."""
MAX_LOOK_SECONDS = 0.05
"""CPU seconds in which the sockets of processes that anybody may start are looked for; the rest then waits ..."""
LOOK_TIMES = 20.0
"""... for so many times as long as that took."""
MAX_SOCKETS = 128
"""Sockets of daemons, and of others, that one probe follows at once; the processes of further ones are blind."""
ROUND_INTERVAL_SECONDS = 1.0
"""Seconds between two rounds of questions, as a rule."""
FOREIGN_INTERVAL_SECONDS = 60.0
"""Seconds until a socket that a parent or another container listens on is tried again."""
SETTLE_PAUSE_SECONDS = 0.005
"""Seconds between two looks whether all sockets were asked."""
MAX_TEXT_CHARACTERS = 64
"""Characters of a release or an fsid that are shown."""
STOPPED_CHECK_INTERVAL_SECONDS = 1.0
"""Seconds between two looks whether a process that answers is stopped."""
STOPPED = frozenset("Tt")
ENDED = frozenset("ZX")
"""States of a process (man 5 proc)."""
UNSEEN = frozenset({"new", "ended"})
"""States that are not exported: the first round is not over, or the process has ended and is still listed."""
NO_FSID = "00000000-0000-0000-0000-000000000000"

Answer = TypeVar("Answer")
Awaiting = Generator[Awaited, None, Answer]
"""What yields all that it waits for, and returns an answer."""

log = logging.getLogger(__name__)


class DaemonReader(ABC):
    """What a probe makes of the answers of one process."""

    questions: ClassVar[tuple[Question, ...]]
    """The most important first: if a round is short of time, the last ones wait for the next."""
    identity: ClassVar[tuple[Question, ...]] = (VERSION, FSID)
    """Asked as well, for the release and the cluster of a daemon."""
    names: ClassVar[bool] = True
    """Whether its cluster is a part of the process' name where there are several."""
    options = Options(())
    """The options of the process that it knows."""
    interval = ROUND_INTERVAL_SECONDS
    """Seconds between two rounds of questions."""

    def wants(self, question: Question) -> bool:
        """Return whether the answer to a question that is due would say anything."""
        return True

    @abstractmethod
    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        """Take the answers of one round, JSON by the question's key; `now` is a monotonic time in seconds.

        What was not due or this release does not know is missing. Raises FormatError.
        """

    @abstractmethod
    def points(self, daemon: str) -> Iterator[Point]:
        """Yield the present value of every series."""


class Follower:
    """One admin socket that is asked repeatedly."""

    def __init__(
        self,
        procfs: Path,
        process: Process,
        socket: AdminSocket,
        reader: DaemonReader,
        assign_cluster: Callable[[str], None] = lambda cluster: None,
    ) -> None:
        self.process = process
        """Replaced when its owner gets another name."""
        self.reader = reader
        self.lock = Lock()
        """Held while the reader takes answers or its points are read."""
        self.problem = "new"
        """Why nothing is known of it, "" when it answers; see also `UNSEEN`."""
        self.stuck = False
        self.duration = 0.0
        self.cluster = self.version = ""
        self._procfs = procfs
        self._socket = socket
        self._path: Path | None = None
        """Where the socket was found, until connecting fails: to resolve it takes a dozen system calls."""
        self._assign_cluster = assign_cluster
        self._due = dict.fromkeys((*reader.questions, *reader.identity), float("-inf"))
        self._answers: dict[str, bytes] = {}
        self._waiting: Conversation | None = None
        self._ran = -1
        self._still_since = 0.0
        self._reported = ""
        self._checked = float("-inf")

    def step(self, now: float) -> None:
        """Ask what is due, and wait for all answers for at most `ROUND_TIMEOUT_SECONDS`.

        `now` is a monotonic time in seconds.
        """
        for descriptor, deadline in self.round(now):
            readable = select.poll()
            readable.register(descriptor, select.POLLIN)
            readable.poll(max(0.0, 1e3 * (deadline - time.monotonic())))

    def round(self, now: float) -> Awaiting[None]:
        """Ask what is due, as `step` does, and yield whatever is waited for; see `Asked`."""
        try:
            self._check(now)
            yield from self._ask(now)
            answers, self._answers = self._answers, {}
            self._identify(answers)
            with self.lock:
                self.reader.take(now, answers)
                self.problem, self.stuck, self._ran = "", False, -1
        except AdminSocketError as error:
            self._blind(now, error.reason, error)
        except Exception as error:  # a reader that fails blinds its own daemon only, as a probe does
            self._blind(now, "malformed", error)
        self.duration = time.monotonic() - now

    def _check(self, now: float) -> None:
        if now - self._checked >= STOPPED_CHECK_INTERVAL_SECONDS or self.problem:
            self._checked = now
            if state(self._procfs, self.process) in STOPPED:
                raise AdminSocketError("stopped", "the process is stopped")

    def _ask(self, now: float) -> Awaiting[None]:
        """Ask what is due. Answers of an incomplete round are kept: most would be due again in a minute."""
        deadline = now + ROUND_TIMEOUT_SECONDS
        if self._waiting is not None:
            # What was asked so long ago is asked again: its answer is old.
            yield from self._finish(self._waiting, deadline)
        asked = False
        for question, due in self._due.items():
            if now < due or not self.reader.wants(question):
                continue
            self._answers.pop(question.key, None)
            if asked and time.monotonic() > now + ROUND_TIMEOUT_SECONDS / 2:
                continue  # it answers, slowly: the others wait for the next round
            asked = True
            self._path = self._path or self._socket.resolve()
            self._waiting = Conversation(self._path, question, pid=self.process.pid)
            if (answer := (yield from self._finish(self._waiting, deadline))) is not None:
                self._answers[question.key] = answer
            self._due[question] = now + question.every - self.reader.interval / 2

    def _finish(self, conversation: Conversation, deadline: float) -> Awaiting[bytes | None]:
        """Return the answer, None where this release does not know the question."""
        try:
            # It has only just been asked: no answer is there yet.
            yield Awaited(conversation.fileno(), deadline)
            while (answer := conversation.received()) is None:
                if time.monotonic() >= deadline:
                    raise SilentError("no complete answer in time")
                yield Awaited(conversation.fileno(), deadline)
        except SilentError:
            raise
        except UnknownCommandError:
            answer = None
        except AdminSocketError:
            self.hang_up()
            raise
        self.hang_up()
        return answer

    def pause(self) -> float:
        """Return the seconds between two rounds."""
        return FOREIGN_INTERVAL_SECONDS if self.problem == "foreign" else self.reader.interval

    def hangs(self) -> None:
        """Note that the present round blocks, as a look-up of the socket's path does on a file system that hangs."""
        with self.lock:
            self.problem = "silent"

    def hang_up(self) -> None:
        """Give up waiting for an answer."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def _identify(self, answers: Mapping[str, bytes]) -> None:
        if (raw := answers.get(VERSION.key)) is not None:
            self.version = parse_version(raw)[:MAX_TEXT_CHARACTERS]
        if (raw := answers.get(FSID.key)) is not None:
            cluster = (parse_option(raw) or "")[:MAX_TEXT_CHARACTERS]
            self.cluster = "" if cluster == NO_FSID else cluster
            if self.cluster and self.reader.names:
                self._assign_cluster(self.cluster)

    def _blind(self, now: float, reason: str, error: Exception) -> None:
        if state(self._procfs, self.process) in ENDED:
            reason = "ended"
        stuck = reason == "stopped"
        if reason == "silent":
            ran = cpu_time(self._procfs, self.process.pid)
            if ran != self._ran or not ran:  # 0: a kernel that does not say
                self._ran, self._still_since = ran, now
            stuck = now - self._still_since >= STUCK_AFTER_SECONDS
        self._path = None
        with self.lock:
            self.problem, self.stuck = reason, stuck
        if reason not in (self._reported, "ended"):
            log.warning("%s: admin socket %s: %s", self.process.owner, self._socket.path, error)
        self._reported = reason


class ProcessTable(Protocol):
    """Says which processes there are: `pinchpoint.threads.processes.Processes` is one."""

    def current(self, now: float) -> Mapping[int, Process]:
        """Return the processes by pid; `now` is a monotonic time in seconds."""

    def assign_cluster(self, process: Process, cluster: str) -> None:
        """Learn which cluster (fsid) a Ceph daemon belongs to."""


class Followers:
    """The followers of all processes of some classes. `make` gives each its reader.

    Processes that `accepts` refuses are left out until it accepts them: asked first, which is cheaper than looking for
    sockets in a table that takes milliseconds on a busy host.
    """

    def __init__(
        self,
        procfs: Path,
        rootfs: Path,
        processes: ProcessTable,
        classes: Collection[str],
        make: Callable[[], DaemonReader],
        *,
        accepts: Callable[[Process], bool] = lambda process: True,
        asker: Asker | None = None,
    ) -> None:
        self._accepts = accepts
        self._asker = asker or Asker()
        self._procfs = procfs
        self._rootfs = rootfs
        self._processes = processes
        self._classes = frozenset(classes)
        self._make = make
        self._found: dict[Identity, _Found] = {}
        self._tables = SocketTables(procfs)
        self._resumes = float("-inf")
        """When further sockets are looked for that are not daemons', in monotonic seconds."""

    def refresh(self, now: float) -> int:
        """Look for new processes and sockets, and drop those that are gone; return how many processes there are.

        `now` is a monotonic time in seconds.
        """
        self._asker.watch()
        present = {
            (process.pid, process.start): process
            for process in self._processes.current(now).values()
            if process.class_ in self._classes
        }
        for identity in self._found.keys() - present.keys():
            self._found.pop(identity).close()
        for identity, process in present.items():
            found = self._found.get(identity)
            if found is None:
                found = self._found[identity] = _Found(process, self._asker)
            found.rename(process)
        spent = 0.0
        for found in sorted(self._found.values(), key=lambda found: (not found.process.daemon, found.due)):
            if now >= found.due and (found.process.daemon or now >= self._resumes):
                found.due = now + LOOK_AGAIN_SECONDS[min(found.looks, len(LOOK_AGAIN_SECONDS) - 1)]
                found.looks += 1
                began = time.thread_time()
                self._look(found, now)
                spent += 0.0 if found.process.daemon else time.thread_time() - began
                if spent > MAX_LOOK_SECONDS:
                    self._resumes = now + LOOK_TIMES * spent
            found.describe(self._procfs)
        return len(present)

    def settle(self, seconds: float) -> None:
        """Wait until every socket was asked once, for at most so many seconds."""
        until = time.monotonic() + seconds
        while any(follower.problem == "new" for _, followers in self for follower in followers):
            if time.monotonic() >= until:
                break
            time.sleep(SETTLE_PAUSE_SECONDS)

    def _look(self, found: _Found, now: float) -> None:
        process = found.process
        found.lack = "missing"
        found.accepted = self._accepts(process)
        try:
            sockets = admin_sockets(self._tables, self._procfs, self._rootfs, process, now) if found.accepted else []
        except PermissionError:
            sockets, found.lack = [], "denied"
        for socket in found.followers.keys() - set(sockets):
            found.drop(socket)
        for socket in sockets:
            if socket in found.followers:
                continue
            followed = (each for other, followers in self if other.daemon == process.daemon for each in followers)
            if sum(each.problem != "foreign" for each in followed) >= MAX_SOCKETS:
                found.lack = "too_many"
                break
            assign_cluster = partial(self._processes.assign_cluster, process)
            found.follow(socket, Follower(self._procfs, process, socket, self._make(), assign_cluster))

    def __iter__(self) -> Iterator[tuple[Process, list[Follower]]]:
        """Yield each process with the followers of its sockets."""
        for found in self._found.values():
            if found.accepted:
                yield found.process, list(found.followers.values())

    def readers(self) -> Iterator[DaemonReader]:
        """Yield the readers of daemons that answer; none of them takes answers while the caller looks at it."""
        for shown in self._daemons().values():
            if isinstance(shown, Follower):
                with shown.lock:
                    if not shown.problem:
                        yield shown.reader

    def points(self) -> Iterator[Point]:
        """Yield what is known of each daemon, and the points of its reader unless it is blind."""
        for daemon, shown in self._daemons().items():
            if isinstance(shown, Follower):
                with shown.lock:
                    problem, stuck = shown.problem, shown.stuck
                    if not problem:
                        yield from shown.reader.points(daemon)
            else:
                problem, stuck = shown.problem, shown.stuck
            if problem in UNSEEN:
                continue
            yield CEPH_SOCKET_UP.point(float(not problem), daemon)
            if problem:
                yield CEPH_SOCKET_PROBLEM_INFO.point(1, daemon, problem)
            yield CEPH_DAEMON_STUCK.point(float(stuck), daemon)
            if isinstance(shown, Follower):
                yield CEPH_SOCKET_DURATION_SECONDS.point(shown.duration, daemon)
                if shown.version or shown.cluster:
                    yield CEPH_DAEMON_INFO.point(1, daemon, shown.cluster, shown.version)

    def _daemons(self) -> dict[str, Follower | _Found]:
        """Return what is shown under each name: what answers, else what is stuck, else what has a reason; the oldest.

        A name has several if a daemon has inherited a socket or has a child, if its predecessor is not reaped yet, if
        two have the same path in different containers, or with two clusters that are not known yet.
        """
        shown: dict[str, list[Follower | _Found]] = {}
        for found in self._found.values():
            shown.setdefault(found.process.owner, []).extend(found.followers.values() or [found])
        return {daemon: min(several, key=_rank) for daemon, several in shown.items()}

    def close(self) -> None:
        """Ask no more."""
        for found in self._found.values():
            found.close()
        self._found.clear()


Identity = tuple[int, int]
"""The pid and the start time of a process."""


class _Found:
    """A process and the followers of its sockets."""

    def __init__(self, process: Process, asker: Asker) -> None:
        self.process = process
        self._asker = asker
        self.due = float("-inf")
        self.looks = 0
        self.accepted = False
        self.followers: dict[AdminSocket, Follower] = {}
        self.lack = "missing"
        """Why it has no more of them."""
        self.problem, self.stuck = "new", False
        """Those of a follower, if it has none."""

    def describe(self, procfs: Path) -> None:
        """Say what is known of a process without followers. The first look may be before it opens its socket."""
        if self.followers:
            return
        now = state(procfs, self.process)
        self.stuck = now in STOPPED
        if now in ENDED:
            self.problem = "ended"
        elif self.stuck:
            self.problem = "stopped"
        else:
            self.problem = "new" if self.lack == "missing" and self.looks < 2 else self.lack

    def rename(self, process: Process) -> None:
        self.process = process
        for follower in self.followers.values():
            follower.process = process

    def follow(self, socket: AdminSocket, follower: Follower) -> None:
        self._asker.add(follower)
        self.followers[socket] = follower  # only now: starting a thread may fail, and is tried again

    def drop(self, socket: AdminSocket) -> None:
        self._asker.remove(self.followers.pop(socket))

    def close(self) -> None:
        for socket in list(self.followers):
            self.drop(socket)


def _rank(shown: Follower | _Found) -> tuple[bool, bool, bool]:
    problem = shown.problem
    return problem == "foreign" or problem in UNSEEN, problem != "", not shown.stuck


def state(procfs: Path, process: Process) -> str:
    """Return the state of a process (man 5 proc), X if it is gone or its pid another's, "" where it can't be read."""
    try:
        stat = parse_stat(read_bytes(f"{procfs}/{process.pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    except (OSError, FormatError):
        return ""
    return stat.state if stat.start == process.start else "X"


def cpu_time(procfs: Path, pid: int) -> int:
    """Return the nanoseconds that the living threads of a process have run; stat is too coarse for an idle daemon."""
    total = 0
    try:
        for tid in os.listdir(f"{procfs}/{pid}/task"):
            total += parse_schedstat(read_bytes(f"{procfs}/{pid}/task/{tid}/schedstat"))[0]
    except (OSError, FormatError):
        pass  # a thread ended: that is a change too
    return total
