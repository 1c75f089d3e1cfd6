"""Tells systemd that the service is ready, alive or ending (sd_notify(3)), and takes its sockets (sd_listen_fds(3))."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import time
from collections.abc import Callable

from pinchpoint.units import MICROSECONDS_PER_SECOND

__all__ = ["Watchdog", "activated_sockets", "notify"]

FIRST_PASSED = 3
"""Descriptor of the first socket that is passed (SD_LISTEN_FDS_START)."""

log = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` to the service manager, if this process has one; a failure is only logged."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # an abstract socket (man 7 unix)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.setblocking(False)
            datagrams.sendto(state.encode(), address)
    except OSError as error:
        log.debug("%s is not sent to systemd: %s", state, error)


class Watchdog:
    """Says that this process is alive, at half of the interval after which systemd would restart it (WatchdogSec)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = float("-inf")
        self._interval: float | None = None
        # sd_watchdog_enabled(3): the variables may be meant for a parent.
        microseconds = os.environ.get("WATCHDOG_USEC", "")
        if microseconds.isdecimal() and os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid())):
            self._interval = int(microseconds) / MICROSECONDS_PER_SECOND / 2

    def beat(self) -> None:
        """Say it if it is time; to be called more often than that."""
        if self._interval is not None and (now := self._clock()) >= self._next:
            self._next = now + self._interval
            notify("WATCHDOG=1")


def activated_sockets() -> list[socket.socket]:
    """Return the TCP sockets that the service manager listens on for this process, by sd_listen_fds(3).

    Processes that this one starts do not inherit them. Raises OSError if there are none, or others.
    """
    process, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not re.fullmatch("[1-9][0-9]{0,3}", count):
        raise OSError(errno.ENOTCONN, "systemd passes no socket to this process: start it by a socket unit")
    found: list[socket.socket] = []
    for descriptor in range(FIRST_PASSED, FIRST_PASSED + int(count)):
        try:
            os.set_inheritable(descriptor, False)
            one = socket.socket(fileno=descriptor)
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise OSError(error.errno, f"descriptor {descriptor} is not a socket: {error.strerror}") from error
        found.append(one)
        if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM or not listens:
            raise OSError(errno.EPROTOTYPE, f"descriptor {descriptor} is not a TCP socket that listens (Accept=no)")
    return found
