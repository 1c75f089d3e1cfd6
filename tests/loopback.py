"""Runs a command in a network namespace of its own, in which nothing but loopback exists and every port is free.

python tests/loopback.py COMMAND...     # as root
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

__all__ = ["in_own_network"]

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
"""Requests of netdevice(7), from include/uapi/linux/sockios.h."""
IFF_UP = 1
IFREQ = struct.Struct("16sH14x")
"""``struct ifreq`` with flags."""


def in_own_network(*command: str) -> list[str]:
    """Return a command that runs another one there."""
    return ["unshare", "--net", sys.executable, str(Path(__file__).resolve()), *command]


def _switch_on() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        name, flags = IFREQ.unpack(fcntl.ioctl(asked, SIOCGIFFLAGS, IFREQ.pack(b"lo", 0)))
        fcntl.ioctl(asked, SIOCSIFFLAGS, IFREQ.pack(name, flags | IFF_UP))


if __name__ == "__main__":
    _switch_on()
    os.execvp(sys.argv[1], sys.argv[1:])
