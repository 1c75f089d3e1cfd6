"""One run of a benchmark: its phases as they go, what the host did in each, and what is kept of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from pinchpoint.benchmarks import Benchmark, Tree, leaders
from pinchpoint.catalogue import all_metrics
from pinchpoint.diagnosis.usage import Usage, usage
from pinchpoint.model import Snapshot
from pinchpoint.procfs import parse_stat, read_bytes
from pinchpoint.recording import Recorder
from pinchpoint.runs import Marker, PhaseMark, Result, RunDirectory
from pinchpoint.sources import Source, SourceError

__all__ = ["PhaseRecord", "RunRecord", "Session", "new_run_directory", "run_id", "state_directory"]

WHOLE = "run"
"""The one phase of a command that is no benchmark we know."""
LOOK_INTERVAL = 0.2
"""Seconds between two looks at the command's processes: the resolution of a phase's start and end."""
RECORD_INTERVAL = 1.0
"""Seconds between two snapshots of the recording."""
STDOUT_LIMIT = 64 << 20
"""Bytes of the command's output, from its end, in which results are looked for."""


@dataclass(slots=True)
class PhaseRecord:
    """A phase and what the host did in it; `usage` is None where no snapshot could be taken."""

    mark: PhaseMark
    usage: Usage | None = None
    alerts: list[str] = field(default_factory=list)


class RunRecord(msgspec.Struct):
    """What ``run.json`` in a run's directory holds."""

    marker: Marker
    command: list[str]
    exit_status: int | None = None
    """Exit status of the command, minus the signal's number where one ended it; None while it runs or after a crash."""


def state_directory() -> Path:
    """Return where runs are kept: ``$XDG_STATE_HOME/pinchpoint/runs``."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "pinchpoint" / "runs"


def run_id(name: str | None, command: Sequence[str], now: float) -> str:
    """Return a run's id: its start in UTC and its name, in characters that are safe in a path and a label."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name or os.path.basename(command[0])).strip("-.")[:48] or "run"
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{word}"


def new_run_directory(run: str) -> tuple[str, Path]:
    """Make a directory for the run; a second run in the same second gets a number. Raises OSError."""
    for number in range(1000):
        name = run if number == 0 else f"{run}-{number + 1}"
        path = state_directory() / name
        with suppress(FileExistsError):
            path.mkdir(parents=True, mode=0o700)
            return name, path
    raise FileExistsError(17, "too many runs with this name in one second", str(state_directory() / run))


class Session:
    """Follows a command from its start to its end.

    `wall` gives Unix time in seconds; `say` takes a line for the person who looks on.
    """

    def __init__(
        self,
        run: str,
        directory: Path,
        source: Source | None,
        markers: RunDirectory,
        *,
        tags: Mapping[str, str],
        procfs: Path = Path("/proc"),
        wall: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory
        self.phases: list[PhaseRecord] = []
        self.warnings: list[str] = []
        self._procfs = procfs
        self._source = source
        self._markers = markers
        self._wall = wall
        self._say = say
        self._known: dict[int, Benchmark] = {}
        self._before: Snapshot | None = None
        self._latest: Snapshot | None = None
        self._recorded = float("-inf")
        self._recorder = Recorder(directory / "samples.om.gz") if source is not None else None
        self._kinds = {metric.name: (metric.kind.value, metric.help) for metric in all_metrics()}
        self._record = RunRecord(Marker(run, "command", 0, 0, 0, wall(), tags=dict(tags)), [])

    def open_stdout(self) -> BinaryIO:
        """Return the file that keeps the command's output. Raises OSError."""
        return (self.directory / "stdout").open("wb")

    def start(self, command: Sequence[str], pid: int) -> None:
        """Begin: the command runs as `pid`."""
        own = os.getpid()
        marker = self._record.marker
        marker.pid, marker.command_pid, marker.start = own, pid, self._wall()
        self._markers.prune(marker.start)
        marker.pid_start = parse_stat(read_bytes(f"/proc/{own}/stat")).start
        self._record.command = list(command)
        self._save()
        self._snapshot()
        self.look()

    def look(self) -> None:
        """See which phase goes on, and take a snapshot for the recording when one is due."""
        tree = Tree(self._procfs, self._record.marker.command_pid)
        for pid, kind in leaders(tree):
            if pid not in self._known:
                self._known[pid] = kind(tree.argv(pid), tree.cwd(pid))
                self._record.marker.benchmark = kind.name
        alive = {pid: benchmark for pid, benchmark in self._known.items() if pid in tree.processes}
        if not self._known:
            self._enter(WHOLE)
        else:
            phases = [phase for pid, benchmark in alive.items() if (phase := benchmark.look(tree, pid))]
            self._enter("+".join(phases) or None)
        if self._wall() - self._recorded >= RECORD_INTERVAL:
            self._snapshot()

    def _enter(self, phase: str | None) -> None:
        """Be in a phase, or in none: end the one before and begin this one where it is another."""
        current = self.phases[-1] if self.phases and self.phases[-1].mark.end is None else None
        if (current.mark.name if current else None) == phase:
            return
        now = self._wall()
        snapshot = self._snapshot()
        if current is not None:
            if current.mark.name == WHOLE and phase is not None and len(self.phases) == 1:
                # The command turned out to be a benchmark: what went before was its start, not a phase.
                self.phases.clear()
            else:
                current.mark.end = now
                # An exporter that has gone since was there for the most part: its last samples still count.
                last = snapshot or self._latest
                if last is not None and self._before is not None and last.time > self._before.time:
                    current.usage = usage(self._before, last)
                self._say(f"phase {current.mark.name} ended after {now - current.mark.start:.1f} s")
        if phase is not None:
            self.phases.append(PhaseRecord(PhaseMark(phase, now)))
            self._before = snapshot
            if phase != WHOLE:
                self._say(f"phase {phase} began")
        self._save()

    def _snapshot(self) -> Snapshot | None:
        if self._source is None or self._recorder is None:
            return None
        self._recorded = self._wall()
        try:
            snapshot = self._source.snapshot()
        except SourceError as error:
            self._warn(f"no samples: {error}")
            return None
        try:
            self._recorder.add(snapshot, self._kinds)
        except OSError as error:
            self._warn(f"samples are not recorded: {error.strerror}")
        self._latest = snapshot
        self._before = self._before or snapshot
        return snapshot

    def finish(self, exit_status: int) -> None:
        """End the run: read the results and keep what is known of it."""
        self._enter(None)
        self._record.exit_status = exit_status
        self._record.marker.end = self._wall()
        stdout = self._stdout()
        results: dict[str, list[Result]] = {}
        taken: dict[str, set[int]] = {}
        for benchmark in self._known.values():
            own = benchmark.results(stdout, taken.setdefault(benchmark.name, set()))
            if not own:
                self._warn(f"no results in the output of {benchmark.name}: {benchmark.hint}")
            for phase, found in own.items():
                results.setdefault(phase, []).extend(found)
        for record in self.phases:
            record.mark.results = results.get(record.mark.name, [])
        self._save()
        if self._recorder is not None:
            self._recorder.close()

    def _stdout(self) -> str:
        try:
            with (self.directory / "stdout").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - STDOUT_LIMIT))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _save(self) -> None:
        marker = self._record.marker
        marker.phases = [phase.mark for phase in self.phases]
        try:
            self._markers.write(marker)
        except OSError as error:
            self._warn(f"{self._markers.path}: {error.strerror}: an exporter will not show the phases")
        whole = self.directory / "run.json"
        part = whole.with_suffix(".part")
        try:
            part.write_bytes(msgspec.json.format(msgspec.json.encode(self._record)))
            part.replace(whole)
        except OSError as error:
            self._warn(f"{whole}: {error.strerror}: the run is not kept")

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)

    @property
    def run(self) -> str:
        """The run's id."""
        return self._record.marker.run

    @property
    def span(self) -> tuple[float, float]:
        """Start and end of the run in Unix seconds."""
        marker = self._record.marker
        return marker.start, marker.end or self._wall()
