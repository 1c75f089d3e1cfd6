"""Which admin sockets a process has: found through the process itself, so that no name has to be guessed.

Two clusters on one host both have an ``osd.0``, cephadm puts sockets into a directory for each fsid inside of each
container, clients name theirs after pids of their own namespace. A process' descriptors and its ``/proc/PID/net/unix``
say exactly which sockets it listens on, whatever they are called and wherever they are.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pinchpoint.host.netns import namespace_of
from pinchpoint.host.procfs import MAX_SOCKET_DESCRIPTORS, decode, first_names, read_bytes
from pinchpoint.threads.processes import Process

__all__ = ["AdminSocket", "SocketTables", "admin_sockets", "is_ceph_client", "listening_sockets", "resolve_in_root"]

ENDING = b".asok"
"""How admin sockets' names end by default (option admin_socket, src/common/options)."""
MAX_TABLE_SOCKETS = 150_000
"""Sockets of a network namespace that are looked at."""
TABLE_TIMES = 20.0
"""How many times as long as it took to read a table is kept: any user may fill it, or make namespaces with others."""
SO_ACCEPTCON = 0x10000
"""Flag of a listening socket (__SO_ACCEPTCON, include/uapi/linux/net.h)."""
MAX_SYMLINKS = 40
"""Symbolic links that are followed in one path, as in the kernel (MAXSYMLINKS, include/linux/namei.h)."""
RUN_DIRECTORIES = ("run/ceph", "var/run/ceph")


class AdminSocket(NamedTuple):
    """Where a process listens."""

    root: Path
    """Root directory of the process, as we see it."""
    path: str
    """What the socket is bound to, below `root`."""
    rootfs: Path
    """Root directory of the host, below which the socket is if it can't be found below `root`."""

    def resolve(self) -> Path:
        """Return a path that we can connect to.

        This blocks for as long as a file system hangs that the path leads through, and a client's user chose the path.
        """
        try:
            return resolve_in_root(self.root, self.path)
        except OSError:
            return self.rootfs / self.path.lstrip("/")


def listening_sockets(raw: bytes) -> dict[int, str]:
    """Return the paths of the listening sockets in ``/proc/PID/net/unix`` by inode.

    Written by ``unix_seq_show`` (net/unix/af_unix.c) as they were bound, without any escaping. Abstract sockets have
    no path; other lines are skipped. A path with a newline can imitate another line: check who listens after
    connecting.
    """
    found: dict[int, str] = {}
    for line in raw.splitlines():
        fields = line.split(None, 7)
        if len(fields) != 8 or not fields[7].startswith(b"/"):
            continue
        try:
            flags, inode = int(fields[3], 16), int(fields[6])
        except ValueError:
            continue
        if flags & SO_ACCEPTCON:
            found[inode] = os.fsdecode(fields[7])
    return found


class SocketTables:
    """The sockets in a procfs that are called as admin sockets are, read once for each network namespace.

    `cpu` gives CPU seconds of the calling thread.
    """

    def __init__(self, procfs: Path, cpu: Callable[[], float] = time.thread_time) -> None:
        self._procfs = procfs
        self._cpu = cpu
        self._tables: dict[int, tuple[float, Mapping[str, str]]] = {}
        """Until when a table is kept, in monotonic seconds, and what it has."""

    def named(self, pid: int, now: float) -> Mapping[str, str]:
        """Return the paths of the sockets that listen in a process' network namespace, by the names of descriptors.

        `now` is a monotonic time in seconds. Raises OSError.
        """
        self._tables = {number: table for number, table in self._tables.items() if now <= table[0]}
        number = namespace_of(self._procfs, pid)
        if number is None or number not in self._tables:
            began = self._cpu()
            with (self._procfs / str(pid) / "net" / "unix").open("rb") as file:
                lines = (line for line in islice(file, MAX_TABLE_SOCKETS) if line.rstrip(b"\n").endswith(ENDING))
                found = listening_sockets(b"".join(lines))
            named = {f"socket:[{inode}]": path for inode, path in found.items()}
            if number is None:
                return named
            self._tables[number] = now + TABLE_TIMES * (self._cpu() - began), named
        return self._tables[number][1]


def admin_sockets(tables: SocketTables, procfs: Path, rootfs: Path, process: Process, now: float) -> list[AdminSocket]:
    """Return the admin sockets of a process; none where it has none (yet). No file system of its user is asked.

    Without the right to see the process' descriptors they are looked for by the daemon's name in the usual directories;
    check who listens after connecting. Raises PermissionError if there is none of that name, and OSError if the search
    fails, as for lack of descriptors of our own.
    """
    directory = procfs / str(process.pid)
    try:
        paths = sorted(_own_sockets(directory, tables.named(process.pid, now)))
    except PermissionError:
        if named := list(_by_name(rootfs, process)):
            return [AdminSocket(Path("/"), os.fspath(path), rootfs) for path in named]
        raise
    except (FileNotFoundError, ProcessLookupError):
        return []  # it is gone
    return [AdminSocket(directory / "root", path, rootfs) for path in paths]


def _own_sockets(directory: Path, named: Mapping[str, str]) -> Iterator[str]:
    if not named:
        return
    for descriptor in first_names(directory / "fd", MAX_SOCKET_DESCRIPTORS):
        try:
            target = os.readlink(directory / "fd" / descriptor)
        except FileNotFoundError:
            continue
        if (path := named.get(target)) is not None:
            yield path


def _by_name(rootfs: Path, process: Process) -> Iterator[Path]:
    kind, _, name = process.owner.partition("@")[0].partition(".")
    if not process.class_.endswith(f"-{kind}"):
        return  # a client's name says nothing about its process
    pattern = re.compile(rf".+-{re.escape(kind)}\.{re.escape(name)}\.asok")
    seen = set()
    for directory in RUN_DIRECTORIES:
        for folder, _, files in os.walk(rootfs / directory):
            for file in files:
                path = Path(os.path.realpath(folder), file)
                if pattern.fullmatch(file) and path not in seen:
                    seen.add(path)
                    yield path


def resolve_in_root(root: Path, path: str) -> Path:
    """Return `path` of another root directory as we see it, with links followed as processes there follow them.

    The kernel takes an absolute link below ``/proc/PID/root`` from *our* root: ``/var/run -> /run`` in a container
    would lead to our sockets (path_resolution(7)). Raises OSError. Links may be changed meanwhile to mislead us: check
    who listens after connecting.
    """
    parts = list(reversed(PurePosixPath(path).parts))
    inside: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == "/":
            inside.clear()
        elif part == "..":
            del inside[-1:]
        else:
            where = root.joinpath(*inside, part)
            try:
                target = os.readlink(where)
            except OSError as error:
                if error.errno != errno.EINVAL:  # not a link
                    raise
                inside.append(part)
                continue
            links += 1
            if links > MAX_SYMLINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(where))
            parts.extend(reversed(PurePosixPath(target).parts))
    return root.joinpath(*inside)


def is_ceph_client(procfs: Path, pid: int) -> bool:
    """Return whether a process has the threads of a Ceph client library: ``msgr-worker-N`` (src/msg/async/Stack.h)."""
    try:
        tids = os.listdir(procfs / str(pid) / "task")
    except OSError:
        return False
    for tid in tids:
        try:
            name = decode(read_bytes(procfs / str(pid) / "task" / tid / "comm"))
        except OSError:
            continue
        if name.startswith("msgr-worker-"):
            return True
    return False
