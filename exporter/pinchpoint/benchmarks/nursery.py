"""A small process that starts helper processes for the exporter.

The exporter has many threads, and should not fork: the child would have their locks but not their holders. So it forks
this process once, before it starts any thread. The nursery keeps the right to become another user and to end helpers;
the exporter gives both up. It ends with the exporter.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple

import msgspec

from pinchpoint.benchmarks.progress import Progress, new_progress
from pinchpoint.host.capabilities import Capability, drop_all_but
from pinchpoint.host.confine import User, confine, end_with_parent
from pinchpoint.typedjson import decoder

__all__ = ["CAPABILITIES", "Nursery", "start_nursery"]

CAPABILITIES = (Capability.SETUID, Capability.SETGID, Capability.KILL)
"""What the nursery needs to start helpers, and to end those of other users."""
OF_ROOT = (Capability.SYS_PTRACE,)
"""What a helper of root keeps: without it nobody, not even root, sees the files of a process that has capabilities
(cap_ptrace_access_check, security/commoncap.c). It cannot trace: that system call is refused."""
MAX_ORDER_BYTES = 64 << 10

Work = Callable[[socket.socket, Progress], None]
"""What a helper does with its end of the connection, until the exporter closes the other end."""

log = logging.getLogger(__name__)


class _Order(msgspec.Struct, array_like=True):
    """What the exporter wants: a helper for a user, or, without a user, the end of one."""

    number: int
    user: User | None = None


DECODER = decoder(_Order)


class Nursery:
    """The exporter's end: it never waits for the nursery."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._control = control
        self._control.setblocking(False)
        self._number = 0

    def start(self, user: User) -> tuple[int, socket.socket, int]:
        """Order a helper; return its number, the connection to it, and the descriptor of its progress.

        The connection ends when the helper ends. Raises OSError.
        """
        progress = new_progress()
        self._number += 1
        try:
            ours, theirs = socket.socketpair()
            with closing(theirs):
                ours.setblocking(False)
                self._send(_Order(self._number, user), theirs.fileno(), progress)
        except OSError:
            os.close(progress)
            raise
        return self._number, ours, progress

    def kill(self, number: int) -> None:
        """Order the end of a helper; it ends once no file system holds it in the kernel. Raises OSError."""
        self._send(_Order(number))

    def close(self) -> None:
        """End the nursery and all helpers."""
        self._control.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _send(self, order: _Order, *descriptors: int) -> None:
        socket.send_fds(self._control, [msgspec.json.encode(order)], descriptors)


def start_nursery(work: Work) -> Nursery:
    """Fork a nursery whose helpers do `work`, from a process with a single thread. Raises OSError."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    parent = os.getpid()
    sys.stderr.flush()
    # What the child's collector moves or marks it gets a copy of: it must leave alone what exists now.
    gc.freeze()
    pid = os.fork()
    if pid:
        theirs.close()
        return Nursery(pid, ours)
    try:
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_with_parent(parent)
        drop_all_but((*CAPABILITIES, *OF_ROOT))
        _Nursery(theirs, work).run()
    except OSError as error:
        log.error("the process that starts helpers ends: %s", error)
    finally:
        os._exit(0)


class _Child(NamedTuple):
    pid: int
    descriptor: int
    """Its pidfd, readable once it has ended."""


class _Nursery:
    """The nursery itself: executes orders, and reaps helpers."""

    def __init__(self, control: socket.socket, work: Work) -> None:
        self._control = control
        self._work = work
        self._children: dict[int, _Child] = {}

    def run(self) -> None:
        """Work until the exporter ends. Raises OSError."""
        while True:
            waiting = select.poll()
            waiting.register(self._control, select.POLLIN)
            for child in self._children.values():
                waiting.register(child.descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in waiting.poll()}
            for number in [number for number, child in self._children.items() if child.descriptor in ready]:
                child = self._children.pop(number)
                os.waitpid(child.pid, 0)
                os.close(child.descriptor)
            if self._control.fileno() in ready and not self._order():
                return

    def _order(self) -> bool:
        """Execute one order; return whether the exporter is there."""
        raw, descriptors, _, _ = socket.recv_fds(self._control, MAX_ORDER_BYTES, 2)
        if not raw:
            return False
        order = DECODER.decode(raw)
        if order.user is not None:
            with socket.socket(fileno=descriptors[0]) as connection:
                try:
                    self._start(order.number, order.user, connection, descriptors[1])
                finally:
                    os.close(descriptors[1])
        elif (child := self._children.get(order.number)) is not None:
            os.kill(child.pid, signal.SIGKILL)
        return True

    def _start(self, number: int, user: User, connection: socket.socket, progress: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # the exporter sees the end of the connection
            log.warning("no helper for user %d: %s", user.uid, error.strerror)
            return
        if pid:
            self._children[number] = _Child(pid, os.pidfd_open(pid))
            return
        try:
            shared = Progress(progress)
            _isolate(connection)
            confine(user, OF_ROOT if user.uid == 0 else ())
            gc.freeze()
            self._work(connection, shared)
        except OSError:
            pass  # the exporter has ended, or the kernel refuses what the helper must not be without
        finally:
            os._exit(0)


def _isolate(connection: socket.socket) -> None:
    """Keep nothing open but the connection."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    kept = connection.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
