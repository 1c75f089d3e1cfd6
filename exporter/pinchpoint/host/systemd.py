"""Tells systemd that the service is ready, alive or ending, by the protocol of sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

from pinchpoint.units import MICROSECONDS_PER_SECOND

__all__ = ["Watchdog", "notify"]

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
