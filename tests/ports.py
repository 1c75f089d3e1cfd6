"""TCP ports on loopback for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket

from native import PARTS

__all__ = ["free_port", "stack_ports"]

CHOICE = range(10_000, 32_768)
"""Above the ports of OSDs, and below those that the kernel gives to clients (ip_local_port_range, ip(7)): any
connection could take one of these before its server has started, and Ceph's monitor gives up after 15 s."""


def free_port() -> int:
    """Return a port that nobody uses now, most likely another one than the last."""
    # Of a generator of its own: hypothesis gives the common one the same seed in every process.
    for port in random.Random().sample(CHOICE, len(CHOICE)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"every port of {CHOICE.start} to {CHOICE.stop - 1} is in use")


def stack_ports(*optional: str) -> dict[str, int]:
    """Return different ports that nobody uses now, one for each part of a stack and of these optional ones."""
    names = (*PARTS, *optional)
    ports: dict[int, None] = {}
    while len(ports) < len(names):
        ports[free_port()] = None
    return dict(zip(names, ports, strict=True))
