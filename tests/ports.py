"""TCP ports on loopback for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket

from native import PARTS

__all__ = ["free_port", "stack_ports"]

CHOICE = range(10_000, 32_768)
"""Above the ports of OSDs, and below those that the kernel gives to clients (ip_local_port_range, ip(7)): any
connection could take one of the latter before its server has started, and Ceph's monitor gives up after 15 s."""


def free_port() -> int:
    """Return an unused port, most likely a different one each time."""
    # From its own generator: hypothesis gives the shared one the same seed in every process.
    for port in random.Random().sample(CHOICE, len(CHOICE)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"every port of {CHOICE.start} to {CHOICE.stop - 1} is in use")


def stack_ports(*optional: str) -> dict[str, int]:
    """Return distinct unused ports, one for each part of a stack, including these optional ones."""
    names = (*PARTS, *optional)
    ports: dict[int, None] = {}
    while len(ports) < len(names):
        ports[free_port()] = None
    return dict(zip(names, ports, strict=True))
