"""Markers: how `pinchpoint run` tells an exporter on the same host the current phase.

A run writes a *marker*, one small JSON file in the run directory, and replaces it as a whole at each change. An
exporter reads the directory. A marker whose process is gone is a run that died: none of its phases is active any more.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.runs import Pid, RunState, Step, Ticks
from pinchpoint.typedjson import decoder
from pinchpoint.units import NANOSECONDS_PER_SECOND

__all__ = ["Marker", "RunDirectory", "default_run_directory"]

MAX_MARKER_BYTES = 256 << 10
"""Size limit of a marker that is read, in bytes."""
MAX_MARKERS = 128
"""Maximum number of markers that are read."""
MAX_EXPORTED_RUNS = 8
"""Maximum number of runs exported at once: those in progress, then those that ended last."""
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


DECODER = decoder(Marker)


class _Identity(NamedTuple):
    """Identifies one state of a marker's file, and who wrote it."""

    inode: int
    modified: int
    changed: int
    """Unlike `modified`, it cannot be set."""
    size: int
    owner: int


def _ended(marker: Marker, identity: _Identity) -> float:
    """Return when a run that is over ended, in Unix seconds; for one that died, when it last wrote.

    Its file's last change is the upper bound, whatever the file says: otherwise it could be shown forever.
    """
    end = identity.modified / NANOSECONDS_PER_SECOND if marker.end is None else marker.end
    return min(end, identity.changed / NANOSECONDS_PER_SECOND)


def default_run_directory() -> Path:
    """Return where markers are kept: ``/run/pinchpoint`` if writable, else a directory of the user."""
    shared = Path("/run/pinchpoint")
    if os.access(shared if shared.exists() else shared.parent, os.W_OK):
        return shared
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "pinchpoint")
    return Path(tempfile.gettempdir(), f"pinchpoint-{os.getuid()}")


class RunDirectory:
    """The directory of markers; any user may write there, so its content is not trusted."""

    def __init__(self, path: Path, procfs: Path = Path("/proc")) -> None:
        self.path = path
        self._procfs = procfs
        self._cache: dict[str, tuple[_Identity, Marker | None]] = {}
        self.commands: frozenset[int] = frozenset()
        """The pids of `command_pids`, as last read: using them reads no file."""

    def create(self) -> None:
        """Make the directory, open to every user as /tmp is. Raises OSError."""
        with suppress(FileExistsError):
            self.path.mkdir(parents=True)
            self.path.chmod(0o1777)

    def write(self, marker: Marker) -> None:
        """Replace the marker of a run; if it would be too long to be read, the first phases are left out.

        Raises OSError.
        """
        raw = msgspec.json.encode(marker)
        while len(raw) > MAX_MARKER_BYTES and marker.phases:
            marker = msgspec.structs.replace(marker, phases=marker.phases[len(marker.phases) // 2 + 1 :])
            raw = msgspec.json.encode(marker)
        self.create()
        handle, name = tempfile.mkstemp(dir=self.path, prefix=".marker-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
            os.chmod(name, 0o644)
            os.replace(name, self._file(marker.run))
        except OSError:
            with suppress(OSError):
                os.unlink(name)
            raise

    def prune(self, now: float) -> None:
        """Remove our markers of runs that are no longer shown; `now` in Unix seconds."""
        shown = {marker.run for marker in self.markers(now)}
        for name, (_, marker) in self._cache.items():
            if marker is not None and marker.run not in shown and not self.alive(marker):
                with suppress(OSError):
                    (self.path / name).unlink()

    def markers(self, now: float) -> Sequence[Marker]:
        """Return the markers of running runs, then of those that ended recently, last first; `now` in Unix seconds."""
        fresh: dict[str, tuple[_Identity, Marker | None]] = {}
        try:
            names = [name for name in os.listdir(self.path) if name.endswith(SUFFIX)]
        except OSError:
            return ()
        # A run's id begins with its start (`pinchpoint run`), so the last names are the newest runs.
        for name in sorted(names)[-MAX_MARKERS:]:
            if (entry := self._read(name)) is not None:
                fresh[name] = entry
        self._cache = fresh
        running, ended = [], []
        for identity, marker in fresh.values():
            if marker is not None and self.alive(marker):
                running.append(marker)
            elif marker is not None and now - (end := _ended(marker, identity)) < KEEP_ENDED_SECONDS:
                ended.append((end, marker))
        running.sort(key=lambda marker: -marker.start)
        ended.sort(key=lambda entry: (-entry[0], -entry[1].start))
        return [*running, *(marker for _, marker in ended)][:MAX_EXPORTED_RUNS]

    def alive(self, marker: Marker) -> bool:
        """Return whether the run that wrote the marker is in progress; markers for others' processes don't count."""
        if marker.end is not None:
            return False
        process = self._procfs / str(marker.pid)
        written = self._cache.get(f"{marker.run}{SUFFIX}")
        try:
            if written is not None and process.stat().st_uid != written[0].owner:
                return False
            return parse_stat(read_bytes(process / "stat")).start == marker.pid_start
        except (OSError, FormatError):
            return False

    def command_pids(self, now: float) -> frozenset[int]:
        """Return the pids of the commands of active runs."""
        running = (marker for marker in self.markers(now) if self.alive(marker) and self._started(marker))
        self.commands = frozenset(marker.command_pid for marker in running)
        return self.commands

    def _started(self, marker: Marker) -> bool:
        """Return whether the run is the parent of its command: a marker could name any user's process."""
        try:
            return parse_stat(read_bytes(self._procfs / str(marker.command_pid) / "stat")).ppid == marker.pid
        except (OSError, FormatError):
            return False

    def _file(self, run: str) -> Path:
        if "/" in run or "\0" in run:
            raise OSError(errno.EINVAL, "a run's id can't be a path", run)
        return self.path / f"{run}{SUFFIX}"

    def _read(self, name: str) -> tuple[_Identity, Marker | None] | None:
        """Return a marker and what identifies its file; the marker is None if the file holds none of that name."""
        try:
            # A marker may be a link, a fifo or a device put there by another user: only regular files are opened.
            found = os.lstat(self.path / name)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_MARKER_BYTES:
                return None
            identity = _Identity(found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_uid)
            if (cached := self._cache.get(name)) is not None and cached[0] == identity:
                return cached
            handle = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            raw = file.read(MAX_MARKER_BYTES)
        try:
            marker = DECODER.decode(raw)
        except (ValueError, RecursionError):  # not UTF-8, not JSON, not a marker, out of bounds, nested without end
            return identity, None
        return identity, marker if marker.run == name.removesuffix(SUFFIX) else None
