"""One run of a benchmark: its phases, what the hosts did in each, and what is saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import BinaryIO

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import State, ended_as
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.figures import format_result
from pinchpoint.runs import Result
from pinchpoint.session.follow import CommandFollower
from pinchpoint.session.keep import RunKeeper
from pinchpoint.session.phases import PhaseJudge, PhaseRecord
from pinchpoint.wire.prometheus import FiredAlert
from pinchpoint.wire.sources import Source

__all__ = ["Session"]

LOOK_INTERVAL_SECONDS = 0.2
"""Seconds between two looks at the command's processes: the resolution of a phase's start and end."""
MAX_LOOK_WAIT_SECONDS = 2.0
"""Seconds for which the end waits for a look in progress: it may hang in a file system."""


class Session:
    """Follows a command from its start to its end, judges its phases, and saves the run.

    `source` gives this host under the name `host`, and others. `kinds` are the benchmarks that it may be. `wall` gives
    Unix time in seconds; `say` takes a line for the user. Looks run in a separate thread: the command's signals and
    output must not wait for a file system that hangs.
    """

    def __init__(
        self,
        run: str,
        directory: Path,
        source: Source | None,
        markers: RunDirectory,
        *,
        host: str,
        kinds: Sequence[type[Benchmark]],
        tags: Mapping[str, str],
        procfs: Path = Path("/proc"),
        wall: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.warnings: list[str] = []
        self._output = directory / "stdout"
        self._wall = wall
        self._say = say
        self._follower = CommandFollower(self._output, kinds, procfs=procfs, wall=wall, warn=self._warn)
        self._judge = PhaseJudge(directory, source, run=run, host=host, wall=wall, warn=self._warn)
        self._keeper = RunKeeper(run, directory, markers, tags=tags, wall=wall, warn=self._warn)
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._follow, name="looks", daemon=True)

    def open_stdout(self) -> BinaryIO:
        """Return the file that keeps the command's output. Raises OSError."""
        return self._output.open("wb")

    def start(self, command: Sequence[str], pid: int) -> None:
        """Begin: the command runs as `pid`."""
        self._keeper.start(command, pid)
        self._follower.start(command, pid, self._keeper.marker.start)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception as error:  # whatever a foreign process or output causes, the run continues
                self._warn(f"a look at the command failed: {type(error).__name__}: {error}")
            self._stop.wait(LOOK_INTERVAL_SECONDS)

    def look(self) -> None:
        """Find the current phase, and take a snapshot for the recording when one is due."""
        with self._lock:
            self._follower.look()
            self._update()
            self._judge.take_when_due()

    def _update(self) -> None:
        """Judge and save what is new."""
        marker = self._keeper.marker
        state = self._follower.state(marker.run, marker.start)
        began, ended = self._judge.update(state.phases, state.benchmark or marker.benchmark)
        for mark in (record.mark for record in began):
            if mark.end is None and mark is not self._follower.whole:
                self._say(f"phase {mark.name} began")
        for mark in (record.mark for record in ended):
            result = f": {format_result(mark.results[0])}" if mark.results else ""
            self._say(f"phase {mark.name} ended after {(mark.end or mark.start) - mark.start:.1f} s{result}")
        self._keeper.record.facts = self._judge.facts
        self._keeper.update(state)

    def finish(self, exit_status: int, *, stopped: bool = False) -> None:
        """End the run: read the rest of the output and save what is known.

        `exit_status` is negative for a signal; `stopped` says that we were asked to stop the command before its end.
        """
        ended = State.STOPPED if stopped and exit_status else ended_as(exit_status)
        self._stop.set()
        self._thread.join(MAX_LOOK_WAIT_SECONDS)
        marker = self._keeper.marker
        self._keeper.record.exit_status = exit_status
        marker.end = self._wall()
        if self._lock.acquire(timeout=MAX_LOOK_WAIT_SECONDS):
            try:
                self._conclude(marker.end, ended)
            except Exception as error:  # as in _follow
                self._warn(f"the command's output could not be read: {type(error).__name__}: {error}")
        else:
            self._warn("a look at the command's files hangs: what they hold is not known")
        if exit_status and marker.state != State.STOPPED:
            marker.state = ended
        self._keeper.save()
        self._judge.close()

    def _conclude(self, now: float, ended: State) -> None:
        """Take in the last output."""
        marker = self._keeper.marker
        self._follower.end(now, ended)
        self._update()
        self._judge.judge_again(marker.benchmark)
        if marker.state == State.RUNNING:
            marker.state = State.FINISHED
        for line in self._follower.without_results():
            self._warn(line)

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)

    def add_alerts(self, fired: Sequence[FiredAlert]) -> None:
        """Save which alerts fired for each phase."""
        for mark in (record.mark for record in self.phases):
            start, end = mark.start, mark.end or self.span[1]
            mark.alerts = sorted({alert.name for alert in fired if alert.in_phase(start, end)})
        self._keeper.save()

    @property
    def phases(self) -> list[PhaseRecord]:
        """The phases so far, by their start."""
        return self._judge.phases

    @property
    def score(self) -> Result | None:
        """The score that the benchmark gave to the run."""
        scores = self._keeper.marker.scores
        return scores[-1] if scores else None

    @property
    def valid(self) -> bool:
        """False if the benchmark calls the run or one of its results invalid."""
        return self._keeper.marker.valid and all(record.mark.valid for record in self.phases)

    @property
    def run(self) -> str:
        """The run's id."""
        return self._keeper.marker.run

    @property
    def span(self) -> tuple[float, float]:
        """Start and end of the run in Unix seconds."""
        marker = self._keeper.marker
        return marker.start, marker.end or self._wall()
