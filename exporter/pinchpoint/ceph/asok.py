"""Ceph's admin sockets: one question, one answer, and nothing that could block the daemon or its operator.

The protocol is that of ``AdminSocket::do_accept`` (src/common/admin_socket.cc, Ceph 14 to 20): a JSON object ended by
NUL, answered by a 4-byte big-endian length and as many bytes; one question per connection. A daemon answers all of them
in one thread, so one that waits for a lock delays all others: only those in `LOCK_FREE` are sent.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from typing import Self  # novermin: for mypy alone

__all__ = ["LOCK_FREE", "AdminSocketError", "Conversation", "Question", "SilentError", "UnknownCommandError", "ask"]

LOCK_FREE = frozenset({"perf dump", "config get", "dump_mempools", "dump_blocked_ops", "version"})
"""The only commands that are ever sent.

Measured on Ceph 16.2.15 with the thread that holds mds_lock frozen: these answered in 0.3 to 5 ms; ``status``,
``cache status``, ``session ls``, ``dump loads``, ``get subtrees``, ``openfiles ls``, ``damage ls``, ``scrub status``
and ``dump snaps`` hung, and every later question with them, the operator's ``ceph daemon`` included. Also left out:
``mds_requests``, ``mds_sessions`` and ``status`` of a client, which take its client_lock (src/client/Client.cc).
"""

MAX_ANSWER_BYTES = 4 << 20
"""Longest answer in bytes. A ``perf dump`` is 45 KB, and 3 KB more for each image of a client."""
MAX_SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket in bytes (man 7 unix)."""
MIN_RECEIVED_BYTES, MAX_RECEIVED_BYTES = 4096, 65536
"""Bytes that are read at once: of an answer whose length is not known yet, and of a long one."""
LENGTH = struct.Struct(">I")
CREDENTIALS = struct.Struct("3i")
"""pid, uid and gid of SO_PEERCRED (man 7 unix)."""


class AdminSocketError(Exception):
    """An admin socket gave no answer; `reason` is the word that is exported.

    denied: we may not connect; missing: there is no such socket; refused: nobody listens, or the connection was ended
    without an answer; foreign: another process listens; too_large: longer than any expected answer.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SilentError(AdminSocketError):
    """The daemon accepts connections, or its queue of them is full, and it does not answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__("silent", message)


class UnknownCommandError(AdminSocketError):
    """The daemon answered, and does not know the command or the option: another release."""

    def __init__(self, message: str) -> None:
        super().__init__("unknown", message)


class Question(NamedTuple):
    """A command for a daemon, and how often it is asked."""

    prefix: str
    var: str = ""
    """The option of ``config get``."""
    every: float = 1.0
    """Interval in seconds."""
    limit: int = MAX_ANSWER_BYTES
    """Longest answer in bytes."""
    logger: str = ""
    """The only logger of ``perf dump`` that is asked for: 0.1 KB instead of 45 (since Ceph 9)."""
    counter: str = ""
    """Its only counter."""

    @property
    def key(self) -> str:
        """Return the command as an operator types it: ``config get fsid``, ``perf dump objecter op_active``."""
        return _key(self)

    @property
    def request(self) -> bytes:
        """Return what is sent. Raises ValueError for a command that could wait for a lock."""
        return _request(self)


@lru_cache(maxsize=256)
def _key(question: Question) -> str:
    return " ".join(word for word in (question.prefix, question.var, question.logger, question.counter) if word)


@lru_cache(maxsize=256)
def _request(question: Question) -> bytes:
    if question.prefix not in LOCK_FREE:
        raise ValueError(f"{question.prefix!r} is not known to be free of locks")
    words = {"prefix": question.prefix, "format": "json"}
    for name, value in (("var", question.var), ("logger", question.logger), ("counter", question.counter)):
        if value:
            words[name] = value
    return msgspec.json.encode(words) + b"\0"


class Conversation:
    """One question on its way to an admin socket.

    After a timeout the caller may wait again on the same connection. A new one would take another place in the daemon's
    queue, which has five (``listen(sock_fd, 5)``, admin_socket.cc), and a frozen daemon's operator would find it full.

    Raises AdminSocketError where the socket can't be connected, or where `pid` is given and another process listens.
    """

    def __init__(self, path: Path, question: Question, *, pid: int = 0) -> None:
        request = question.request
        self._limit = question.limit
        self._received = bytearray()
        # Non-blocking: a local connection is made at once or, with a full queue, after an unknown time.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            _connect(self._socket, path)
            if pid and (peer := self._peer()) and peer != pid:
                raise AdminSocketError("foreign", f"process {peer} listens on {path}, not {pid}")
            self._socket.sendall(request)
        except OSError as error:
            self.close()
            raise _translate(error, path) from error
        except AdminSocketError:
            self.close()
            raise

    def _peer(self) -> int:
        """Return the process that listens, 0 where it is in another pid namespace."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        return int(CREDENTIALS.unpack(raw)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when more of the answer has come."""
        return self._socket.fileno()

    def received(self) -> bytes | None:
        """Return the whole answer, None while it is incomplete; never waits.

        Raises any AdminSocketError but SilentError if it never will be complete.
        """
        wanted = LENGTH.size
        try:
            while len(self._received) < wanted or len(self._received) < (wanted := self._wanted()):
                piece = self._socket.recv(
                    min(MAX_RECEIVED_BYTES, max(MIN_RECEIVED_BYTES, wanted - len(self._received)))
                )
                if not piece:
                    raise AdminSocketError("refused", "the connection was ended before the answer was complete")
                self._received += piece
        except BlockingIOError:
            return None
        except OSError as error:
            raise AdminSocketError("refused", str(error)) from error
        answer = bytes(self._received[LENGTH.size : wanted])
        # Errors come as text in place of the answer, without a status.
        if answer.startswith(b"ERROR: ("):
            raise UnknownCommandError(answer[:200].decode("utf-8", "replace").strip())
        return answer

    def answer(self, timeout: float) -> bytes:
        """Return the whole answer, waiting for it for at most `timeout` seconds altogether.

        Raises SilentError if it did not come in that time, and then one may wait again; any other AdminSocketError if
        it never will.
        """
        deadline = time.monotonic() + timeout
        readable = select.poll()
        readable.register(self, select.POLLIN)
        while (answer := self.received()) is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise SilentError("no complete answer in time")
            readable.poll(max(1.0, 1e3 * left))
        return answer

    def _wanted(self) -> int:
        """Return how many bytes to expect in total."""
        if len(self._received) < LENGTH.size:
            return LENGTH.size
        (length,) = LENGTH.unpack_from(self._received)
        if length > self._limit:
            raise AdminSocketError("too_large", f"{length} bytes are announced, the limit is {self._limit}")
        return LENGTH.size + int(length)


def ask(path: Path, question: Question, *, timeout: float = 1.0, pid: int = 0) -> bytes:
    """Return the answer of the admin socket `path`, JSON as it came. Raises AdminSocketError."""
    with Conversation(path, question, pid=pid) as conversation:
        return conversation.answer(timeout)


def _connect(connection: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        connection.connect(os.fspath(path))
        return
    # A longer one, such as a container's seen through /proc/PID/root, is reached through a descriptor.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        with suppress(OSError):
            os.close(directory)


REASONS = {
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ELOOP: "missing",
}


def _translate(error: OSError, path: Path) -> AdminSocketError:
    message = f"{path}: {error.strerror or error}"
    if error.errno == errno.EAGAIN:  # its queue of connections is full (man 2 connect)
        return SilentError(message)
    return AdminSocketError(REASONS.get(error.errno or 0, "refused"), message)
