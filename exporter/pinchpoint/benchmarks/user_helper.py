"""The exporter's end of one helper process: asks it, takes its answers without waiting, and trusts none of them."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from pinchpoint.benchmarks.progress import read_progress
from pinchpoint.benchmarks.talk import MAX_SAID_BYTES, Ask, Done, Found, Said, Task, answers, message
from pinchpoint.compat import StrEnum
from pinchpoint.host.confine import User
from pinchpoint.host.procfs import FormatError
from pinchpoint.text import printable

__all__ = ["Fault", "HelperError", "UserHelper"]

MAX_LOGGED_LINES = 64
"""Most that one helper may have logged."""
MAX_LOGGED_CHARACTERS = 400
RECEIVED_BYTES = 64 << 10

log = logging.getLogger(__name__)


class Fault(StrEnum):
    """Why a helper is replaced, as in the label ``reason``."""

    HUNG = "hung"
    """It did not answer in time: a file system hangs, or it computes without end."""
    INVALID = "invalid"
    """It said what a helper never says."""
    ENDED = "ended"
    """It ended: it exceeded a limit, or its user killed it."""


class HelperError(Exception):
    """A helper has to be replaced; the reason is in `fault`."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class UserHelper:
    """One helper: for a user, behind a connection that does not block."""

    def __init__(self, number: int, user: User, connection: socket.socket, progress: int, now: float) -> None:
        self.number = number
        self.user = user
        self.began = now
        """When it was started, in monotonic seconds."""
        self.asked: float | None = None
        """When it was asked what it has not answered yet, in monotonic seconds."""
        self.told: Mapping[int, Task] = {}
        """What it was told at the last look, by pid."""
        self.ranks: dict[tuple[int, int], int] = {}
        """The ranks that it has said, by pid and start, of its user's processes."""
        self._connection = connection
        self._progress = progress
        self._looks = 0
        self._buffer = bytearray()
        self._received = 0
        self._found: list[Found] = []
        self._logged = 0

    @property
    def busy(self) -> bool:
        """Whether it has not answered yet."""
        return self.asked is not None

    @property
    def reading(self) -> int:
        """The process that it reads now; 0 for none."""
        return read_progress(self._progress)

    def fileno(self) -> int:
        """Return the descriptor that is readable when it says something."""
        return self._connection.fileno()

    def ask(self, told: Mapping[int, Task], disowned: tuple[int, ...], now: float, wall: float) -> None:
        """Ask for a look at these processes; `now` is in monotonic, `wall` in Unix seconds. Raises HelperError."""
        self._looks += 1
        raw = message(Ask(self._looks, now, wall, tuple(told.values()), disowned))
        try:
            sent = self._connection.send(raw)
        except OSError as error:
            raise HelperError(Fault.ENDED, str(error)) from error
        if sent < len(raw):
            raise HelperError(Fault.INVALID, "it does not read what it is asked")
        self.asked, self.told, self._received, self._found = now, told, 0, []
        self.ranks = {key: number for key, number in self.ranks.items() if self.is_own(*key)}

    def take(self) -> list[Found] | None:
        """Take what it has said; return what it found once its answer is complete. Raises HelperError."""
        while True:
            try:
                piece = self._connection.recv(RECEIVED_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                raise HelperError(Fault.ENDED, str(error)) from error
            if not piece:
                raise HelperError(Fault.ENDED, "it has ended")
            self._buffer += piece
            self._received += len(piece)
            try:
                if self._received > MAX_SAID_BYTES:
                    raise FormatError(f"more than {MAX_SAID_BYTES} bytes")
                if self._done():
                    return self._found
            except FormatError as error:
                raise HelperError(Fault.INVALID, str(error)) from error

    def _done(self) -> bool:
        for said in answers(self._buffer):
            match said:
                case Said():
                    self._log(said.text)
                case _ if self.asked is None:
                    raise FormatError("an answer to no question")
                case Found():
                    self._found.append(said)
                case Done():
                    if said.number != self._looks:
                        raise FormatError("an answer to another question")
                    if self._buffer:
                        raise FormatError("more than an answer")
                    for mark in said.ranks:
                        if self.is_own(mark.pid, mark.start):
                            self.ranks[mark.pid, mark.start] = mark.number
                    self.asked = None
                    return True
        return False

    def is_own(self, pid: int, start: int) -> bool:
        """Return whether a process that it was shown is its user's."""
        task = self.told.get(pid)
        return task is not None and task.own and task.start == start

    def _log(self, text: str) -> None:
        self._logged += 1
        if self._logged <= MAX_LOGGED_LINES:
            log.warning("user %d: %s", self.user.uid, printable(text)[:MAX_LOGGED_CHARACTERS])

    def ended(self) -> bool:
        """Return whether it has ended, ignoring all that it still says."""
        try:
            return not self._connection.recv(RECEIVED_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the connection: a helper that works ends then."""
        self._connection.close()
        os.close(self._progress)
