"""What a helper process does: it finds the benchmarks of one user with that user's rights, and says what it found."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector, Followed
from pinchpoint.benchmarks.mpi import Ranks
from pinchpoint.benchmarks.progress import Progress
from pinchpoint.benchmarks.talk import (
    MAX_SAID_BYTES,
    MAX_TOLD_PHASES,
    Ask,
    Done,
    Found,
    Said,
    Task,
    answers,
    ask_in,
    message,
)
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.confine import allow_cpu_seconds
from pinchpoint.host.exitstatus import ExitWatch
from pinchpoint.host.procfs import FormatError
from pinchpoint.runs import RunState

__all__ = ["Looker", "UserTree", "helper"]

MAX_HELPER_CPU_SECONDS = 5
"""CPU time of one look, after which the kernel ends the helper."""
MAX_RUNS_BYTES = MAX_SAID_BYTES // 2
"""Length of all runs of one look; the other half is for what else is said."""
MAX_SAID_LINES = 64
"""Most that a helper says for the log in its life."""
MAX_SAID_CHARACTERS = 400
RECEIVED_BYTES = 64 << 10


def helper(
    kinds: Iterable[type[Benchmark]], procfs: Path, *, own_pids: bool
) -> Callable[[socket.socket, Progress], None]:
    """Return the work of a helper that looks for these kinds; `own_pids` is that of `host.exitstatus`."""

    def work(connection: socket.socket, progress: Progress) -> None:
        # A warning is of a reader's own failure; what the user wrote may be in it.
        log = logging.getLogger()
        log.handlers = [_ToExporter(connection)]
        log.setLevel(logging.WARNING)
        detector = Detector(kinds, watch=ExitWatch if own_pids else None, about=progress.read)
        try:
            _serve(connection, progress, Looker(detector, procfs, progress.read))
        except Exception as error:
            log.error("its helper fails: %s: %s", type(error).__name__, error)

    return work


def _serve(connection: socket.socket, progress: Progress, looker: Looker) -> None:
    """Answer until the exporter closes the connection. Raises OSError and FormatError."""
    buffer = bytearray()
    while piece := connection.recv(RECEIVED_BYTES):
        buffer += piece
        if (ask := ask_in(buffer)) is not None:
            allow_cpu_seconds(MAX_HELPER_CPU_SECONDS)
            said = looker.answer(ask)
            progress.read(0)
            connection.sendall(said)


class Looker:
    """Looks at a user's processes. `about` is called with one before anything of it is read, which may hang."""

    def __init__(self, detector: Detector, procfs: Path, about: Callable[[int], None] = lambda pid: None) -> None:
        self._detector = detector
        self._procfs = procfs
        self._about = about
        self._ranks = Ranks()

    def answer(self, ask: Ask) -> bytes:
        """Take a look, and return what it shows; a benchmark that has ended and a rank are told once."""
        detector = self._detector
        detector.disown(ask.disowned)
        tree = UserTree(self._procfs, {task.pid: task for task in ask.tasks})
        detector.look(tree, ask.now, ask.wall)
        told = [followed for followed in detector.followed if followed.pid]
        limit = MAX_RUNS_BYTES // max(1, len(told))
        raw = b"".join(_found(followed, limit) for followed in told)
        detector.forget(float("inf"))
        return raw + message(Done(ask.number, tuple(self._ranks.look(tree, self._benchmarks(tree)))))

    def _benchmarks(self, tree: UserTree) -> Iterator[int]:
        """Yield the user's processes that may be ranks."""
        for pid, task in tree.processes.items():
            if task.own and self._detector.kinds([task.comm]):
                self._about(pid)
                yield pid


def _found(followed: Followed, limit: int) -> bytes:
    """Return a message about a benchmark that has at most `limit` bytes: without its first phases if necessary."""
    run = _shortened(followed.state(""))
    while len(raw := message(_told(followed, run))) > limit and run.phases:
        run.phases = run.phases[len(run.phases) // 2 + 1 :]
    try:
        list(answers(bytearray(raw)))
    except FormatError as error:  # a reader let pass what no run may have
        logging.getLogger(__name__).warning("benchmark %s: %s", followed.kind.name, error)
        return b""
    return raw if len(raw) <= limit else b""


def _shortened(run: RunState) -> RunState:
    """Return a run with the phases that can be exported: the last one of each name."""
    phases = list({mark.name: mark for mark in run.phases}.values())[-MAX_TOLD_PHASES:]
    return msgspec.structs.replace(run, phases=phases, valid=run.valid and all(mark.valid for mark in run.phases))


def _told(followed: Followed, run: RunState) -> Found:
    return Found(followed.pid, followed.start, followed.kind.name, followed.began, followed.ended, run, followed.job)


class UserTree(Tree):
    """The processes that the exporter showed to a helper."""

    processes: dict[int, Task] = msgspec.field(default_factory=dict)

    def readable(self, pid: int) -> bool:
        """Return whether it is the user's."""
        return pid in self.processes and self.processes[pid].own

    def syncs(self, pid: int) -> bool:
        """Return what the exporter saw."""
        return pid in self.processes and self.processes[pid].syncs


class _ToExporter(logging.Handler):
    """Gives log lines to the exporter."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line, once."""
        text = record.getMessage()[:MAX_SAID_CHARACTERS]
        if text not in self._said and len(self._said) < MAX_SAID_LINES:
            self._said.add(text)
            self._connection.sendall(message(Said(text)))
