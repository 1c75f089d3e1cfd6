"""A process that only says that it is a Ceph daemon, with an admin socket that lies: ``liar.py SOCKET LIE -i ID``."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys
import time
from pathlib import Path

from daemon_socket import DaemonSocket, framed

PR_SET_NAME = 15  # linux/prctl.h
DUMP = json.dumps({"osd": {"op_wip": 1 << 62, "op": -1, "op_latency": {"avgcount": 1, "sum": 1e308}}}).encode()
GIGABYTES = 4 << 30


def torn(connection: socket.socket) -> None:
    """Hang up in the middle of an answer."""
    connection.sendall(framed(DUMP)[: len(DUMP) // 2])


def trickled(connection: socket.socket) -> None:
    """Send a byte now and then."""
    for byte in framed(DUMP):
        connection.sendall(bytes([byte]))
        time.sleep(0.2)


def endless(connection: socket.socket) -> None:
    """Announce more than anybody has."""
    connection.sendall((GIGABYTES - 1).to_bytes(4, "big"))
    while True:
        connection.sendall(bytes(1 << 16))


def deep(connection: socket.socket) -> None:
    """Nest deeper than a parser's stack."""
    connection.sendall(framed(b'{"osd":' * 100_000))


LIES = (torn, trickled, endless, deep)


def main(path: str, lie: str) -> None:
    """Lie until SIGTERM."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"ceph-osd")
    answers = dict.fromkeys(("perf dump", "dump_mempools", "dump_blocked_ops"), LIES[int(lie)])
    version = {"version": "16.2.15"}
    with DaemonSocket(Path(path), {**answers, "version": version}) as listening:
        print("ready", flush=True)
        signal.sigwait([signal.SIGTERM])
        listening.path.unlink(missing_ok=True)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main(*sys.argv[1:3])
