"""Loads on a CephFS, from libcephfs clients without a mount; run by Debian's Python, which has its module.

Each of `--processes` is its own client, in its own directory. Prints ``ready`` when all of them have reached the state
that their mode is for, and from then on, once a second, the sum of their operations. Ends on SIGTERM: the clients
unmount and so return their capabilities, which a killed client keeps for session_autoclose (300 s).
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable

import cephfs

PR_SET_PDEATHSIG = 1
READY = 1


class Ended(BaseException):
    """SIGTERM has arrived."""


class Client:
    """One libcephfs client, its directory and its counters."""

    def __init__(self, options: argparse.Namespace, number: int, shared: memoryview) -> None:
        self.options = options
        self._ready, self._operations = 2 * number, 2 * number + 1
        self._shared = shared
        self._started = time.monotonic()
        self._paced = 0
        self.fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"])
        for pair in options.option:
            self.fs.conf_set(*pair.split("=", 1))
        self.fs.mount()
        self.directory = f"/{options.mode}.{os.getpid()}"
        # PIDs come again within hours, and directories stay.
        for number in itertools.count(1):
            try:
                self.fs.mkdir(self.directory, 0o755)
                break
            except cephfs.ObjectExists:
                self.directory = f"/{options.mode}.{os.getpid()}.{number}"

    def ready(self) -> None:
        self._shared[self._ready] = READY

    def count(self, operations: int = 1) -> None:
        self._shared[self._operations] += operations

    def pace(self, rate: float) -> None:
        """Wait so that there are `rate` calls a second; 0 means as fast as possible."""
        if rate:
            if self._paced == 0:
                self._started = time.monotonic()
            self._paced += 1
            ahead = self._started + self._paced / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)

    def create(self, path: str) -> int:
        descriptor: int = self.fs.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        return descriptor


def hold(client: Client) -> None:
    """Create files and keep them open: capabilities that the client cannot give back."""
    options = client.options
    for number in range(options.files):
        if number < options.ramp:
            client.pace(options.rate)
        client.create(f"{client.directory}/{number}")
        client.count()
    client.ready()
    while True:
        signal.pause()


def create(client: Client) -> None:
    """Create and unlink one file after another; with --keep, do not unlink."""
    client.ready()
    for number in itertools.count():
        client.pace(client.options.rate)
        path = f"{client.directory}/{number}"
        client.fs.close(client.create(path))
        client.count()
        if not client.options.keep:
            client.fs.unlink(path)
            client.count()


def storm(client: Client) -> None:
    """Create, stat and unlink files."""
    client.ready()
    for number in itertools.count():
        client.pace(client.options.rate)
        path = f"{client.directory}/{number}"
        client.fs.close(client.create(path))
        client.fs.stat(path)
        client.fs.unlink(path)
        client.count(3)


def scan(client: Client) -> None:
    """List directories with --files files in total, over and over: more than the MDS may keep in its cache."""
    options = client.options
    directories = [f"{client.directory}/{number}" for number in range(max(1, options.files // options.per_directory))]
    for directory in directories:
        client.fs.mkdir(directory, 0o755)
        for number in range(options.per_directory):
            client.fs.close(client.create(f"{directory}/{number}"))
    client.ready()
    while True:
        for directory in directories:
            client.pace(options.rate)
            handle = client.fs.opendir(directory)
            while client.fs.readdir(handle):
                pass
            client.fs.closedir(handle)
            client.count()


def read(client: Client) -> None:
    """Read blocks of a file in random order. Without `--option client_oc=false` they come from the client's cache."""
    options = client.options
    descriptor = client.create(f"{client.directory}/file")
    for offset in range(0, options.size, options.block):
        client.fs.write(descriptor, os.urandom(options.block), offset)
    client.fs.fsync(descriptor, 0)
    client.ready()
    while True:
        client.pace(options.rate)
        client.fs.read(descriptor, random.randrange(options.size // options.block) * options.block, options.block)
        client.count()


def write(client: Client) -> None:
    """Write blocks of a file in random order, and sync after each."""
    options = client.options
    descriptor = client.create(f"{client.directory}/file")
    block = os.urandom(options.block)
    client.ready()
    while True:
        client.pace(options.rate)
        client.fs.write(descriptor, block, random.randrange(options.size // options.block) * options.block)
        client.fs.fsync(descriptor, 0)
        client.count()


MODES: dict[str, Callable[[Client], None]] = {
    function.__name__: function for function in (hold, create, storm, scan, read, write)
}


def end(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Ended


def run(options: argparse.Namespace, number: int, shared: memoryview) -> None:
    """Be one client until SIGTERM."""
    # A client that is ended during the mount would not unmount.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    client = Client(options, number, shared)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        MODES[options.mode](client)
    except Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        client.fs.shutdown()


def fork(options: argparse.Namespace, number: int, shared: memoryview) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            run(options, number, shared)
            status = 0
    except Ended:
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def main() -> int:
    parser = argparse.ArgumentParser(description="Put a load on a CephFS.")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0, help="operations a second of each process")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--ramp", type=int, default=0, help="so many files come at --rate, the others as they can")
    parser.add_argument("--per-directory", type=int, default=100)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--size", type=int, default=16 << 20)
    parser.add_argument("--block", type=int, default=4096)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the client's ceph.conf")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    shared = memoryview(mmap.mmap(-1, 16 * options.processes)).cast("Q")
    children = {fork(options, number, shared) for number in range(options.processes)}
    status = 0
    announced = False
    try:
        while children:
            if not announced and all(shared[::2]):
                announced = True
                print("ready", flush=True)
            if announced:
                print(sum(shared[1::2]), flush=True)
            pid, code = os.waitpid(-1, os.WNOHANG)
            if pid:
                children.discard(pid)
                if status := os.waitstatus_to_exitcode(code):
                    raise Ended
            time.sleep(1.0 if announced else 0.05)
    except Ended:
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        for pid in children:
            os.waitpid(pid, 0)
    return status


if __name__ == "__main__":
    sys.exit(main())
