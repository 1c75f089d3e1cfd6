"""Network namespaces (man 7 network_namespaces): which one a process is in, and sockets in another one."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread

__all__ = ["namespace_file", "namespace_of", "opener_in"]

CLONE_NEWNET = 0x40000000  # linux/sched.h


def namespace_file(procfs: Path, pid: int | str) -> Path:
    """Return the file that stands for the network namespace of a process."""
    return procfs / str(pid) / "ns" / "net"


def namespace_of(procfs: Path, pid: int | str) -> int | None:
    """Return the number of the network namespace of a process, None if it is unknown."""
    try:
        return os.stat(f"{procfs}/{pid}/ns/net").st_ino  # a Path costs more than the call
    except OSError:
        return None


def opener_in(path: Path, number: int) -> Callable[[int], socket.socket]:
    """Return an opener of netlink sockets in the network namespace that `path` stands for, which has that `number`.

    A socket always belongs to the namespace that it was created in (sock_net_set in sk_alloc, net/core/sock.c). A
    thread enters it (setns, man 2), creates the socket and ends: nothing else of this process runs there. The opener
    raises OSError, EPERM without CAP_SYS_ADMIN.
    """

    def open_there(protocol: int) -> socket.socket:
        found: list[socket.socket | OSError] = []

        def go() -> None:
            try:
                _enter(path, number)
                found.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol))
            except OSError as error:
                found.append(error)

        thread = Thread(target=go, name="netns", daemon=True)
        thread.start()
        thread.join()
        (answer,) = found
        if isinstance(answer, OSError):
            raise answer
        return answer

    return open_there


def _enter(path: Path, number: int) -> None:
    """Move this thread into a network namespace. Raises OSError, also if the process has moved to another."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_ino != number:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
