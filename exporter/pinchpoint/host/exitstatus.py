"""How a process that is not our child ended, if the kernel says."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
from pathlib import Path

__all__ = ["STOPPING", "ExitWatch", "own_pids", "signal_name"]

STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals with which people and schedulers stop a program; SIGKILL may also come from the OOM killer."""
PIDFD_INFO_EXIT = 1 << 3
"""Asks for the exit status (include/uapi/linux/pidfd.h; since Linux 6.15)."""
INFO = struct.Struct("=QQ11Ii")
"""``struct pidfd_info``, first version: mask, cgroupid, eleven ids, exit_code."""
PIDFD_GET_INFO = 3 << 30 | INFO.size << 16 | 0xFF << 8 | 11
"""``_IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info)`` (since Linux 6.13)."""


def signal_name(number: int) -> str:
    """Return the name of a signal, as kill(1) lists it."""
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # 32 and 33, which glibc keeps for itself


def own_pids(procfs: Path) -> bool:
    """Return whether a pid means the same process in `procfs` and in our system calls.

    A container may see its host's /proc and have pids of its own: then ``self`` has another number there, or none.
    """
    try:
        return os.readlink(procfs / "self") == str(os.getpid())
    except OSError:
        return False


class ExitWatch:
    """Keeps a descriptor of a process, so that its exit status can be read after it ends."""

    def __init__(self, pid: int) -> None:
        self._descriptor: int | None
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError:  # it is gone, or pid is of another namespace
            self._descriptor = None

    def close(self) -> int | None:
        """Return the process' wait status, None if it still runs or the kernel doesn't say."""
        if self._descriptor is None:
            return None
        request = bytearray(INFO.pack(PIDFD_INFO_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self._descriptor, PIDFD_GET_INFO, request)
        except OSError:  # an older kernel
            return None
        finally:
            os.close(self._descriptor)
            self._descriptor = None
        mask, *_, status = INFO.unpack(request)
        return status if mask & PIDFD_INFO_EXIT else None
