"""Markers: how `pinchpoint run` tells an exporter on the same host the current phase.

A run writes a *marker*, one small JSON file in the run directory, and replaces it as a whole at each change. An
exporter reads the directory. A marker whose process is gone is a run that died: none of its phases is active any more.

Any user may write there: a marker is its file owner's, whatever it says, and each user has a quota of markers.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinchpoint.benchmarks.job_marks import JobMarks
from pinchpoint.benchmarks.shared_directory import (
    EVERYBODYS,
    MAX_DIRECTORY_ENTRIES,
    RUNS,
    Listing,
    SharedDirectory,
    replace_file,
)
from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes
from pinchpoint.host.users import ROOT, Users, own_users
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.quotas import shared_out
from pinchpoint.runs import Pid, RankMark, RunState, Step, Ticks, numbered
from pinchpoint.state import state_root
from pinchpoint.typedjson import decoder
from pinchpoint.units import NANOSECONDS_PER_SECOND
from pinchpoint.user_labels import marked

__all__ = ["Marker", "RunDirectory", "default_run_directory"]

MAX_MARKER_BYTES = 256 << 10
"""Size limit of a trusted user's marker, in bytes ..."""
MAX_USER_MARKER_BYTES = 64 << 10
"""... and of another user's: decoded, a marker takes up to thirteen times as much memory."""
MAX_MARKERS = 128
"""Markers of trusted users that are read: the newest ones."""
MAX_USER_MARKERS = 16
"""Markers of each other user that are read: the newest ones ..."""
MAX_USER_BYTES = 128 << 10
"""... as far as they have no more bytes together."""
MAX_MARKING_USERS = 32
"""Untrusted users whose markers are read."""
MAX_EXPORTED_RUNS = 8
"""Runs of trusted users that are exported at once, and of each other user: those in progress, then those that ended
last."""
MAX_ALL_EXPORTED_RUNS = 64
"""Runs of all users together that are exported at once."""
MAX_MARKED_RANKS = 512
"""Ranks of one run that a marker names: so many processes of an untrusted user are looked at."""
SUFFIX = ".json"


class Marker(RunState, kw_only=True):
    """What `pinchpoint run` reports about its run."""

    pid: Pid
    """The `pinchpoint run` process."""
    pid_start: Ticks
    """Its start in clock ticks since boot: with the pid, its identity."""
    command_pid: Pid
    """The command's process: its whole tree is the benchmark."""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    offset: Step | None = None
    """Its times minus those of the host's monotonic clock, in seconds; None if they are the wall clock's."""
    ranks: tuple[RankMark, ...] = ()
    """The ranks in MPI among its processes; empty in a saved run."""


DECODER = decoder(Marker)


class _Identity(NamedTuple):
    """Identifies one state of a marker's file, and who wrote it."""

    inode: int
    modified: int
    changed: int
    """Unlike `modified`, it cannot be set."""
    size: int
    owner: int


class _File(NamedTuple):
    """A marker's file."""

    identity: _Identity
    marker: Marker | None
    """None if the file holds none of that name."""


def _identity(found: os.stat_result) -> _Identity:
    return _Identity(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_uid)


def _ended(marker: Marker, identity: _Identity) -> float:
    """Return when a run that is over ended, in Unix seconds; for one that died, when it last wrote.

    Its file's last change is the upper bound, whatever the file says: otherwise it could be shown forever.
    """
    end = identity.modified / NANOSECONDS_PER_SECOND if marker.end is None else marker.end
    return min(end, identity.changed / NANOSECONDS_PER_SECOND)


def default_run_directory(shared: Path = RUNS) -> Path:
    """Return where markers are kept: `shared` if this user or every user may write there, else a directory of his own.

    The service's sandbox may have mounted the former read-only: the exporter only reads it.
    """
    try:
        everybodys = stat.S_IMODE(os.stat(shared).st_mode) == EVERYBODYS
    except OSError:
        everybodys = False
    if everybodys or os.access(shared if shared.exists() else shared.parent, os.W_OK):
        return shared
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "pinchpoint")
    try:
        return state_root() / "markers"
    except OSError:  # no home directory: writing a marker fails, and says so
        return shared


class RunDirectory(SharedDirectory):
    """The directory of markers; any user may write there, so its content is not trusted."""

    def __init__(self, path: Path, procfs: Path = Path("/proc"), users: Users | None = None) -> None:
        super().__init__(path)
        self.jobs = JobMarks(path)
        """The batch jobs that a prolog has marked."""
        self._procfs = procfs
        self._users = users or own_users()
        self._cache: dict[str, _File] = {}
        self._writers: dict[tuple[str, int], int | None] = {}
        """Who wrote a file, by its name and inode; None if it is not a regular file."""
        self._listing = Listing(self._names_by_user)
        self._owners: Mapping[str, int] = {}
        """Who wrote the marker of each run that was found, by the run's id."""
        self._names: dict[str, str] = {}
        """Names of the files of our own runs that have another one than their run."""
        self.commands: frozenset[int] = frozenset()
        """The pids of `command_pids`, as last read: using them reads no file."""

    def write(self, marker: Marker) -> None:
        """Replace the marker of a run; if it would be too long to be read, the first phases are left out.

        Raises OSError, also where another user could have made the directory.
        """
        if "/" in marker.run or "\0" in marker.run:
            raise OSError(errno.EINVAL, "a run's id can't be a path", marker.run)
        limit = MAX_MARKER_BYTES if os.geteuid() == ROOT else MAX_USER_MARKER_BYTES
        raw = msgspec.json.encode(marker)
        while len(raw) > limit and marker.phases:
            marker = msgspec.structs.replace(marker, phases=marker.phases[len(marker.phases) // 2 + 1 :])
            raw = msgspec.json.encode(marker)
        self.create()
        with self.opened() as directory:
            name = self._names.get(marker.run, f"{marker.run}{SUFFIX}")
            try:
                replace_file(directory, name, raw)
            except PermissionError:
                # In a sticky directory nobody replaces another user's file, which may have been put there for that.
                name = self._names[marker.run] = f"{marker.run}.{os.urandom(8).hex()}{SUFFIX}"
                replace_file(directory, name, raw)

    def prune(self, now: float) -> None:
        """Remove our markers of runs that are no longer shown; `now` in Unix seconds."""
        shown = {marker.run for marker in self.markers(now)}
        ours = [
            (name, marker)
            for name, (identity, marker) in self._cache.items()
            if identity.owner == os.geteuid() and marker is not None
        ]
        with suppress(OSError), self.opened() as directory:
            for name, marker in ours:
                if marker.run not in shown and not self.alive(marker):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=directory)

    def markers(self, now: float) -> Sequence[Marker]:
        """Return the markers of running runs, then of those that ended recently, last first; `now` in Unix seconds.

        Those of trusted users come first, then one of each other user in turn.
        """
        return self._look(now)[0]

    def _look(self, now: float) -> tuple[Sequence[Marker], frozenset[str]]:
        """Return `markers`, and which of their runs are in progress."""
        if self._listing.known(self.path) == {}:
            return (), frozenset()  # as most of the time
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._cache, self._owners = {}, {}
            return (), frozenset()
        try:
            self._cache = self._read_all(directory)
        finally:
            os.close(directory)
        found = [(identity, marker) for identity, marker in self._cache.values() if marker is not None]
        self._owners = {marker.run: identity.owner for identity, marker in found}
        running, ended = [], []
        for identity, marker in found:
            user = self._users.account(identity.owner)
            if self.alive(marker):
                running.append((user, marker))
            elif now - (end := _ended(marker, identity)) < KEEP_ENDED_SECONDS:
                ended.append((end, user, marker))
        running.sort(key=lambda entry: -entry[1].start)
        ended.sort(key=lambda entry: (-entry[0], -entry[2].start))
        best = [*running, *((user, marker) for _, user, marker in ended)]
        shown = shared_out(best, MAX_EXPORTED_RUNS, MAX_ALL_EXPORTED_RUNS)
        return shown, frozenset(marker.run for _, marker in running)

    def started(self, now: float) -> Sequence[Marker]:
        """Return the markers of active runs whose commands run; `now` in Unix seconds."""
        shown, running = self._look(now)
        found = [marker for marker in shown if marker.run in running and self._started(marker)]
        self.commands = frozenset(marker.command_pid for marker in found)
        return found

    def user(self, run: str) -> int | None:
        """Return the untrusted user who marked a run that was found, None for a trusted one."""
        return self._users.account(self._owners.get(run, ROOT))

    def alive(self, marker: Marker) -> bool:
        """Return whether the run that wrote the marker is in progress; markers for others' processes don't count."""
        if marker.end is not None:
            return False
        process = self._procfs / str(marker.pid)
        owner = self._owners.get(marker.run)
        try:
            if owner is not None and process.stat().st_uid != owner:
                return False
            found = parse_stat(read_bytes(process / "stat"))
        except (OSError, FormatError):
            return False
        return found.start == marker.pid_start and not found.ended

    def command_pids(self, now: float) -> frozenset[int]:
        """Return the pids of the commands of active runs."""
        self.started(now)
        return self.commands

    def _started(self, marker: Marker) -> bool:
        """Return whether the run is the parent of its command: a marker could name any user's process."""
        try:
            return parse_stat(read_bytes(f"{self._procfs}/{marker.command_pid}/stat")).ppid == marker.pid
        except (OSError, FormatError):
            return False

    def _read_all(self, directory: int) -> dict[str, _File]:
        """Return the markers within each user's quota by the names of their files, those of trusted users first."""
        names = self._listing.of(directory)
        files: dict[str, _File] = {}
        taken: set[str] = set()
        users = sorted(names, key=lambda user: -1 if user is None else user)
        for user in users[: 1 + MAX_MARKING_USERS]:
            room = MAX_MARKERS * MAX_MARKER_BYTES if user is None else MAX_USER_BYTES
            for name in names[user]:
                limit = min(room, MAX_MARKER_BYTES if user is None else MAX_USER_MARKER_BYTES)
                if (file := self._read(directory, name, user, limit)) is not None:
                    room -= file.identity.size
                    files[name] = _distinct(file, taken)
        return files

    def _names_by_user(self, directory: int) -> Mapping[int | None, Sequence[str]]:
        """Return the names of the newest markers by the user in whose quota they are."""
        names: dict[int | None, list[str]] = {}
        writers: dict[tuple[str, int], int | None] = {}
        with os.scandir(directory) as entries:
            for entry in islice(entries, MAX_DIRECTORY_ENTRIES):
                if not entry.name.endswith(SUFFIX):
                    continue
                key = entry.name, entry.inode()
                writer = writers[key] = self._writers[key] if key in self._writers else _writer(directory, entry.name)
                if writer is not None:
                    names.setdefault(self._users.account(writer), []).append(entry.name)
        self._writers = writers
        # A run's id begins with its start (`pinchpoint run`), so the last names are the newest runs.
        return {
            user: sorted(found, reverse=True)[: MAX_MARKERS if user is None else MAX_USER_MARKERS]
            for user, found in names.items()
        }

    def _read(self, directory: int, name: str, user: int | None, limit: int) -> _File | None:
        """Return a user's marker, None if it is too long or no longer that user's."""
        known = self._cache.get(name)
        try:
            # Most have not changed, and looking at a file costs less than opening it.
            if (
                known is not None
                and known.identity.size <= limit
                and self._users.account(known.identity.owner) == user
                and known.identity == _identity(os.stat(name, dir_fd=directory, follow_symlinks=False))
            ):
                return known
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            identity = _identity(found)
            if self._users.account(identity.owner) != user:
                self._writers = {}  # it was given to another user: the next look sees that
                self._listing.forget()
                return None
            if not stat.S_ISREG(found.st_mode) or identity.size > limit:
                return None
            raw = file.read(limit)
        return _File(identity, _decoded(raw, name, self._users.mark(identity.owner)))


def _writer(directory: int, name: str) -> int | None:
    """Return who owns a regular file: a link, a fifo or a device may have been put there, and is not opened."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    return found.st_uid if stat.S_ISREG(found.st_mode) else None


def _decoded(raw: bytes, name: str, mark: str) -> Marker | None:
    """Return the marker in a file of this name, None if it holds none; the run's id gets its user's mark."""
    try:
        marker = DECODER.decode(raw)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, not a marker, out of bounds, nested without end
        return None
    stem = name.removesuffix(SUFFIX)
    if marker.run not in (stem, stem.rpartition(".")[0]):
        return None
    return msgspec.structs.replace(marker, run=marked(marker.run, mark))


def _distinct(file: _File, taken: set[str]) -> _File:
    """Return a file whose run has an id that no run before it has."""
    if file.marker is None:
        return file
    number = 1
    while (run := numbered(file.marker.run, number)) in taken:
        number += 1
    taken.add(run)
    return file if number == 1 else _File(file.identity, msgspec.structs.replace(file.marker, run=run))
