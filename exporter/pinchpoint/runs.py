"""Runs: how `pinchpoint run` tells an exporter on the same host which phase is going on.

A run writes a *marker*, one small JSON file in the run directory, and replaces it whole at each change. An exporter
reads the directory. A marker whose process is gone is a run that died: none of its phases is active any more.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pinchpoint.procfs import FormatError, parse_stat, read_bytes

__all__ = ["Marker", "PhaseMark", "Result", "RunDirectory", "default_run_directory"]

MARKER_LIMIT = 256 << 10
"""Longest marker that is read, in bytes."""
RUN_LIMIT = 8
"""Runs that are exported at once: the newest ones."""
KEEP_ENDED = 900.0
"""Seconds for which the results of an ended run are still exported."""


class Result(msgspec.Struct, frozen=True):
    """One figure that a benchmark gave for a phase, in base units: ``bytes_per_second``, ``operations_per_second``."""

    operation: str
    """What was measured, in the benchmark's own words: ``write``, ``read``."""
    unit: str
    value: float


class PhaseMark(msgspec.Struct):
    """One phase of a run: times in Unix seconds; `end` is None while it is going on."""

    name: str
    start: float
    end: float | None = None
    results: list[Result] = []


class Marker(msgspec.Struct):
    """What a run says of itself."""

    run: str
    benchmark: str
    pid: int
    """The `pinchpoint run` process."""
    pid_start: int
    """Its start in clock ticks since boot: with the pid, its identity."""
    command_pid: int
    """The command's process: its whole tree is the benchmark."""
    start: float
    end: float | None = None
    tags: dict[str, str] = {}
    phases: list[PhaseMark] = []


def default_run_directory() -> Path:
    """Return where markers stand: ``/run/pinchpoint`` where we may write there, else a directory of the user's."""
    shared = Path("/run/pinchpoint")
    if os.access(shared if shared.exists() else shared.parent, os.W_OK):
        return shared
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "pinchpoint")
    return Path(tempfile.gettempdir(), f"pinchpoint-{os.getuid()}")


class RunDirectory:
    """The directory of markers; anybody may write there, so nothing that is read from it is believed blindly."""

    def __init__(self, path: Path, procfs: Path = Path("/proc")) -> None:
        self.path = path
        self._procfs = procfs
        self._cache: dict[str, tuple[tuple[int, int, int], Marker | None]] = {}

    def create(self) -> None:
        """Make the directory, open to every user as /tmp is. Raises OSError."""
        with suppress(FileExistsError):
            self.path.mkdir(parents=True)
            self.path.chmod(0o1777)

    def write(self, marker: Marker) -> None:
        """Replace the marker of a run. Raises OSError."""
        self.create()
        handle, name = tempfile.mkstemp(dir=self.path, prefix=".marker-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(marker))
            os.chmod(name, 0o644)
            os.replace(name, self._file(marker.run))
        except OSError:
            with suppress(OSError):
                os.unlink(name)
            raise

    def remove(self, run: str) -> None:
        """Remove the marker of a run, if there is one."""
        with suppress(OSError):
            self._file(run).unlink()

    def markers(self, now: float) -> Sequence[Marker]:
        """Return the markers of running runs and of those that ended lately, newest first; `now` in Unix seconds."""
        fresh: dict[str, tuple[tuple[int, int, int], Marker | None]] = {}
        try:
            names = [entry.name for entry in os.scandir(self.path) if entry.name.endswith(".json")]
        except OSError:
            return ()
        for name in sorted(names)[: 16 * RUN_LIMIT]:
            if (entry := self._read(name)) is not None:
                fresh[name] = entry
        self._cache = fresh
        markers = [marker for _, marker in fresh.values() if marker is not None]
        markers = [marker for marker in markers if marker.end is None or now - marker.end < KEEP_ENDED]
        return sorted(markers, key=lambda marker: -marker.start)[:RUN_LIMIT]

    def alive(self, marker: Marker) -> bool:
        """Return whether the run that wrote the marker still goes on."""
        if marker.end is not None:
            return False
        try:
            return parse_stat(read_bytes(self._procfs / str(marker.pid) / "stat")).start == marker.pid_start
        except (OSError, FormatError):
            return False

    def command_pids(self, now: float) -> set[int]:
        """Return the pids of the commands of the runs that go on."""
        return {marker.command_pid for marker in self.markers(now) if self.alive(marker)}

    def _file(self, run: str) -> Path:
        return self.path / f"{run}.json"

    def _read(self, name: str) -> tuple[tuple[int, int, int], Marker | None] | None:
        """Return a marker and what identifies its file; the marker is None where the file holds none."""
        try:
            # A marker may be a link, a fifo or a device that somebody put there: only regular files are opened.
            found = os.lstat(self.path / name)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MARKER_LIMIT:
                return None
            identity = (found.st_ino, found.st_mtime_ns, found.st_size)
            if (cached := self._cache.get(name)) is not None and cached[0] == identity:
                return cached
            handle = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            raw = file.read(MARKER_LIMIT)
        try:
            return identity, msgspec.json.decode(raw, type=Marker)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            return identity, None
