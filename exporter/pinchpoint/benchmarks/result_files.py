"""The files of a directory or a tar archive, one after the other, as somebody else made them: nothing is unpacked.

Links and devices are not followed or opened. Depth, number and size of files are bounded, and of an archive also how
much it unpacks to.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

__all__ = ["FoundFile", "ResultFilesError", "archive_files", "directory_files", "is_archive"]

MAX_DIRECTORY_DEPTH = 12
"""Directories below the first one."""
MAX_FILES = 20_000
"""Files that are looked at; the list's largest submission has 200."""
MAX_ARCHIVE_BYTES = 1 << 30
"""Bytes that an archive may unpack to; bz2, the slowest, takes 20 s for that."""
MAX_HEADER_BYTES = 1 << 20
"""Bytes that tarfile may read at once: a header's extension is at most that long (a long name has some KiB)."""
PIECE_BYTES = 64 << 10
MAGICS = (b"\x1f\x8b", b"BZh")
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257


class ResultFilesError(Exception):
    """A directory or archive that cannot be read; the message says why."""


class FoundFile(NamedTuple):
    """A regular file; `pieces` can be called once, before the next file is taken."""

    name: str
    """Its path below the directory, or in the archive."""
    size: int
    changed: float
    """When it was last changed, in Unix seconds."""
    pieces: Callable[[], Iterator[bytes]]


def directory_files(root: Path, say: Callable[[str], None]) -> Iterator[FoundFile]:
    """Yield the files below a directory, in the order of their names; `say` is told what is left out.

    Raises ResultFilesError if the directory itself cannot be read.
    """
    left = MAX_FILES

    def walk(directory: Path, below: str, depth: int) -> Iterator[FoundFile]:
        nonlocal left
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            if not depth:
                raise ResultFilesError(f"{directory}: {error.strerror}") from error
            say(f"{directory}: {error.strerror}; it is left out")
            return
        for entry in entries:
            name = os.path.join(below, entry.name)
            if left <= 0:
                return
            left -= 1
            if not left:
                say(f"{root}: more than {MAX_FILES} files; the rest is left out")
                return
            if entry.is_symlink():
                say(f"{directory / entry.name}: a link; it is not followed")
            elif entry.is_dir(follow_symlinks=False):
                if depth >= MAX_DIRECTORY_DEPTH:
                    say(f"{directory / entry.name}: {MAX_DIRECTORY_DEPTH} directories deep; it is left out")
                else:
                    yield from walk(directory / entry.name, name, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield FoundFile(name, found.st_size, found.st_mtime, partial(_pieces, directory / entry.name))

    yield from walk(root, "", 0)


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while piece := file.read(PIECE_BYTES):
                yield piece


def is_archive(path: Path) -> bool:
    """Return whether a file begins like a tar archive, or like one that is compressed. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        head = file.read(TAR_MAGIC_AT + len(TAR_MAGIC))
    return head.startswith(MAGICS) or head[TAR_MAGIC_AT:] == TAR_MAGIC


def archive_files(path: Path, say: Callable[[str], None]) -> Iterator[FoundFile]:
    """Yield the regular files of a tar archive, in its order. Raises ResultFilesError."""
    left = MAX_FILES
    with (
        _reported(path),
        path.open("rb") as file,
        _unpacked(file) as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else it keeps every header
            left -= 1
            if left <= 0:
                say(f"{path}: more than {MAX_FILES} members; the rest is left out")
                return
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                say(f"{path}: {member.name!r} is a {_kind(member)}; it is left out")
                continue
            yield FoundFile(_safe(member.name), member.size, member.mtime, partial(_member, path, archive, member))


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn what a broken archive causes into ResultFilesError."""
    try:
        yield
    except _TooMuchError as error:
        raise ResultFilesError(f"{path}: {error}") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise ResultFilesError(
            f"{path}: not a tar archive that can be read ({why}); unpack it and name the directory"
        ) from error


def _kind(member: tarfile.TarInfo) -> str:
    return "link" if member.issym() or member.islnk() else "sparse file" if member.issparse() else "device or pipe"


def _safe(name: str) -> str:
    """Return a member's path without what leads out of the archive: it only names a file."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def _member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = archive.extractfile(member)
    while file is not None:
        with _reported(path):
            piece = file.read(PIECE_BYTES)
        if not piece:
            return
        yield piece


class _TooMuchError(Exception):
    """An archive beyond the limits."""


def _unpacked(file: IO[bytes]) -> _Forward:
    magic = file.read(len(MAGICS[1]))
    file.seek(0)
    if magic.startswith(MAGICS[0]):
        return _Forward(gzip.GzipFile(fileobj=file))
    return _Forward(bz2.BZ2File(file) if magic.startswith(MAGICS[1]) else file)


class _Forward(io.RawIOBase):
    """A stream that only goes forward, a bounded way: seeking reads."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile | bz2.BZ2File) -> None:
        super().__init__()
        self._stream = stream
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise _TooMuchError(f"a header of more than {MAX_HEADER_BYTES >> 20} MiB")
        found = self._stream.read(size)
        self._at += len(found)
        if self._at > MAX_ARCHIVE_BYTES:
            raise _TooMuchError(
                f"it unpacks to more than {MAX_ARCHIVE_BYTES >> 30} GiB; unpack it and name the directory"
            )
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or offset < self._at:
            raise _TooMuchError("its headers lead backwards")
        while self._at < offset and self.read(min(PIECE_BYTES, offset - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
