"""Job marks: how the prolog and the epilog of a batch system say which job runs on this host, from when to when.

The host of rank 0 knows the job of a run from the environment of its processes. The other hosts of the job know neither
run nor job: with a mark, they know the job. A mark is a small JSON file of root in the run directory, where any user
may write: files of other users do not count.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from pinchpoint.benchmarks.jobs import JobId
from pinchpoint.benchmarks.shared_directory import MAX_DIRECTORY_ENTRIES, Listing, SharedDirectory, replace_file
from pinchpoint.host.users import ROOT
from pinchpoint.runs import Time
from pinchpoint.typedjson import decoder

__all__ = ["JobMark", "JobMarks"]

SUFFIX = ".job"
MAX_MARKED_JOBS = 64
"""Jobs of one host: those that began last."""
MAX_MARK_BYTES = 1024
MAX_USER_CHARACTERS = 64


class JobMark(msgspec.Struct, frozen=True):
    """A batch job that runs on this host."""

    job: JobId
    uid: Annotated[int, Meta(ge=0, lt=1 << 32)]
    """Whose processes it consists of."""
    user: Annotated[str, Meta(max_length=MAX_USER_CHARACTERS)]
    """The name of that user."""
    start: Time
    """When its prolog ran on this host, in Unix seconds."""


DECODER = decoder(JobMark)


class JobMarks:
    """The marks in a run directory."""

    def __init__(self, path: Path) -> None:
        self._directory = SharedDirectory(path)
        self._listing = Listing(self._read_all)

    def begin(self, mark: JobMark) -> None:
        """Mark a job as running on this host. Raises OSError."""
        self._directory.create()
        with self._directory.opened() as directory:
            replace_file(directory, f"{mark.job}{SUFFIX}", msgspec.json.encode(mark))

    def end(self, job: str) -> bool:
        """Remove the mark of a job; return whether there was one. Raises OSError."""
        try:
            with self._directory.opened() as directory:
                os.unlink(f"{job}{SUFFIX}", dir_fd=directory)
        except FileNotFoundError:
            return False
        return True

    def running(self) -> Sequence[JobMark]:
        """Return the marked jobs, the last one that began first; the directory is listed only after a change."""
        try:
            directory = os.open(self._directory.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return ()
        try:
            return self._listing.of(directory)
        finally:
            os.close(directory)

    def by_user(self) -> Mapping[int, str]:
        """Return the id of the job of each user, by uid, that has exactly one here."""
        marks = self.running()
        numbers = Counter(mark.uid for mark in marks)
        return {mark.uid: mark.job for mark in marks if numbers[mark.uid] == 1}

    def _read_all(self, directory: int) -> Sequence[JobMark]:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, MAX_DIRECTORY_ENTRIES) if entry.name.endswith(SUFFIX)]
        marks = [mark for name in names if (mark := self._read(directory, name)) is not None]
        return sorted(marks, key=lambda mark: (-mark.start, mark.job))[:MAX_MARKED_JOBS]

    def _read(self, directory: int, name: str) -> JobMark | None:
        """Return the mark in a file, None if it holds none of that name or is not root's."""
        with suppress(OSError):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != ROOT:
                return None
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(handle)
                if stat.S_ISREG(found.st_mode) and found.st_uid == ROOT and found.st_size <= MAX_MARK_BYTES:
                    return _decoded(file.read(MAX_MARK_BYTES), name)
        return None


def _decoded(raw: bytes, name: str) -> JobMark | None:
    try:
        mark = DECODER.decode(raw)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, not a mark, out of bounds, nested without end
        return None
    return mark if mark.job and name == f"{mark.job}{SUFFIX}" else None
