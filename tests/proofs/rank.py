"""A rank of a parallel benchmark that sends to a server, and the server.

As in MPI, ranks wait for each other in poll or select; what they write is counted by /proc/PID/io.

python rank.py serve ADDRESS PORT RANKS
python rank.py send ADDRESS PORT BYTES BYTES_PER_SECOND
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from select import select

BLOCK = bytes(1 << 16)
PR_SET_NAME = 15  # include/uapi/linux/prctl.h


def serve(address: str, port: int, ranks: int) -> None:
    """Let the ranks begin together, take what they send, and let all go on when the last one is done."""
    with socket.create_server((address, port)) as server:
        connections = [server.accept()[0] for _ in range(ranks)]
    for connection in connections:
        connection.sendall(b"!")
    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(_drain, connections))
    for connection in connections:
        connection.close()


def _drain(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass


def send(address: str, port: int, size: int, rate: int) -> None:
    """Wait for the others, send so many bytes at this rate at most, and wait again."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"ior", 0, 0, 0)
    with socket.create_connection((address, port)) as connection:
        select([connection], [], [])
        begin, sent = time.monotonic(), 0
        while sent < size:
            sent += os.write(connection.fileno(), BLOCK)
            time.sleep(max(0.0, begin + sent / rate - time.monotonic()))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        select([connection], [], [])


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    if what == "serve":
        serve(where, *map(int, numbers))
    else:
        send(where, *map(int, numbers))
