"""The process that conducts an experiment, recognised after a crash of it or of the host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes

__all__ = ["Owner", "this_process"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Another one after each boot (random(4))."""


class Owner(msgspec.Struct, frozen=True):
    """A process, and when it started, in ticks after the boot with this id."""

    pid: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)] = 0
    start: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    boot: str = ""
    host: str = ""
    """Its host's name: several may share a home directory. Empty in files of older releases."""

    @property
    def elsewhere(self) -> bool:
        """Whether it is one of another host, where alone can be seen whether it still runs."""
        return bool(self.host) and self.host != os.uname().nodename

    @property
    def lost(self) -> bool:
        """Whether it was a process of this host and has ended."""
        return not self.elsewhere and not self.alive

    @property
    def alive(self) -> bool:
        """Whether it still runs on this host."""
        if not self.pid or self.elsewhere or self.boot != _boot():
            return False
        try:
            stat = parse_stat(read_bytes(f"/proc/{self.pid}/stat"))
        except (OSError, FormatError):
            return False
        return stat.start == self.start and not stat.ended


def this_process() -> Owner:
    """Return our own process. Raises OSError."""
    own = os.getpid()
    return Owner(own, parse_stat(read_bytes(f"/proc/{own}/stat")).start, _boot(), os.uname().nodename)


def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
