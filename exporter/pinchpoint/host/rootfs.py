"""Opens files of other processes so that nobody can redirect us or make us wait.

A path in another process' root directory is walked one component at a time: an absolute link leads where it leads for
that process, never to a file of ours. Only regular files and directories are opened: a fifo would block or be emptied,
a device may act. Nor is a file opened that the process itself may not open: naming a file in a command line must not
reveal its content in our metrics.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

__all__ = ["Rights", "list_in_root", "open_in_root", "read_piece"]

MAX_SYMLINKS = 40
"""Symbolic links that are followed in one path, as in the kernel (MAXSYMLINKS, include/linux/namei.h)."""
MAX_DEPTH = 256
"""Directories open at once on the way: a process may open 1024 files (ulimit -n)."""
MAX_PATH_CHARACTERS = 4096
"""Characters of a path, and of what a link puts in its place (PATH_MAX, include/uapi/linux/limits.h)."""
PATH_ONLY = os.O_PATH | os.O_CLOEXEC
READ_RIGHT = 0o4
SEARCH_RIGHT = 0o1


class Rights(msgspec.Struct, frozen=True):
    """What a process may open, by user, groups and mode, as in ``acl_permission_check`` (fs/namei.c).

    Rights that only an access control list grants don't count.
    """

    user: int
    groups: frozenset[int]

    def grant(self, descriptor: int, wanted: int) -> bool:
        """Return whether what `descriptor` stands for may be read or searched. Raises OSError."""
        if self.user == 0:
            return True
        found = os.fstat(descriptor)
        shift = 6 if found.st_uid == self.user else 3 if found.st_gid in self.groups else 0
        return bool(found.st_mode >> shift & wanted)


@contextmanager
def open_in_root(root: Path, path: str, rights: Rights | None = None) -> Iterator[int]:
    """Yield a descriptor of the regular file `path` as seen from the root directory `root`.

    Like ``openat2`` with RESOLVE_IN_ROOT (openat2(2)), which Python doesn't have: links in `path` can't lead out of
    `root`, even if they change meanwhile. With `rights`, a file that they don't grant is refused. Raises OSError.
    """
    with _found(root, path, rights) as found, _reopened(found, stat.S_IFREG, path) as file:
        yield file


def list_in_root(root: Path, path: str, limit: int, rights: Rights | None = None) -> list[str]:
    """Return at most `limit` names in the directory `path`, in no order; found as in `open_in_root`. Raises OSError."""
    with (
        _found(root, path, rights) as found,
        _reopened(found, stat.S_IFDIR, path) as directory,
        os.scandir(directory) as names,
    ):
        return [entry.name for entry in islice(names, limit)]


@contextmanager
def _found(root: Path, path: str, rights: Rights | None) -> Iterator[int]:
    """Yield a descriptor of what `path` leads to, without opening it."""
    inside: list[int] = []
    try:
        inside.append(os.open(root, PATH_ONLY | os.O_DIRECTORY))
        parts = _parts(path)
        links = 0
        while parts:
            part = parts.pop()
            if part in ("/", ".."):
                while len(inside) > 1:
                    os.close(inside.pop())
                    if part == "..":
                        break
                continue
            if rights is not None and not rights.grant(inside[-1], SEARCH_RIGHT):
                raise _error(errno.EACCES, path)
            inside.append(_entered(part, inside[-1], path))
            if stat.S_ISLNK(os.fstat(inside[-1]).st_mode):
                links += 1
                if links > MAX_SYMLINKS:
                    raise _error(errno.ELOOP, path)
                # An empty path means the link itself (readlinkat(2)).
                parts.extend(_parts(os.readlink("", dir_fd=inside[-1])))
                os.close(inside.pop())
            elif len(inside) > MAX_DEPTH:
                raise _error(errno.ENAMETOOLONG, path)
        if rights is not None and not rights.grant(inside[-1], READ_RIGHT):
            raise _error(errno.EACCES, path)
        yield inside[-1]
    finally:
        for descriptor in inside:
            os.close(descriptor)


def _parts(path: str) -> list[str]:
    """Return the names of a path, the last one first; ``/`` stands for the root directory."""
    if len(path) > MAX_PATH_CHARACTERS:
        raise _error(errno.ENAMETOOLONG, path[:MAX_PATH_CHARACTERS])
    names = [name for name in path.split("/") if name not in ("", ".")]
    return [*reversed(names), *(["/"] if path.startswith("/") else [])]


def _entered(name: str, where: int, path: str) -> int:
    try:
        return os.open(name, PATH_ONLY | os.O_NOFOLLOW, dir_fd=where)
    except ValueError as error:  # a null or unencodable character
        raise _error(errno.EINVAL, path) from error


@contextmanager
def _reopened(descriptor: int, kind: int, path: str) -> Iterator[int]:
    if stat.S_IFMT(os.fstat(descriptor).st_mode) != kind:
        raise _error(errno.EINVAL if kind == stat.S_IFREG else errno.ENOTDIR, path)
    file = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield file
    finally:
        os.close(file)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def read_piece(descriptor: int, offset: int, limit: int) -> bytes:
    """Return at most `limit` bytes of a file from `offset` on. Raises OSError."""
    pieces = []
    while limit > 0 and (piece := os.pread(descriptor, limit, offset)):
        pieces.append(piece)
        offset += len(piece)
        limit -= len(piece)
    return b"".join(pieces)
