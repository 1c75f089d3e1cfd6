"""One run of a benchmark: its phases, what the hosts did in each, and what is saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import BinaryIO

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import State, ended_as
from pinchpoint.benchmarks.io500 import Io500
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.clock import STEADY, Clock
from pinchpoint.figures import format_result
from pinchpoint.host.procfs import FormatError, parse_schedstat, read_bytes
from pinchpoint.limits import reason
from pinchpoint.runs import Result
from pinchpoint.session.follow import CommandFollower
from pinchpoint.session.keep import RunKeeper
from pinchpoint.session.phases import PhaseJudge, PhaseRecord
from pinchpoint.session.result_folder import folder_within
from pinchpoint.session.store import ClockStep, step_words
from pinchpoint.wire.prometheus import FiredAlert
from pinchpoint.wire.sources import Source

__all__ = ["Session"]

LOOK_INTERVAL_SECONDS = 0.2
"""Seconds between two looks at the command's processes: the resolution of a phase's start and end."""
MAX_CLOCK_STEPS = 100
"""Maximum number of steps of the wall clock that are saved: the last ones."""
MAX_FOLDER_SECONDS = 10.0
"""Seconds that reading IO500's result folder may take; 160 ranks take 0.1 s."""
MAX_LOOK_PAUSE_SECONDS = 2.0
"""Seconds without any CPU time after which a look in progress hangs, in a file system for instance."""
MAX_LOOK_WAIT_SECONDS = 60.0
"""Seconds for which the end waits for a look that works: on a full host it may take long."""


def cpu_nanoseconds(thread: Thread) -> int:
    """Return the CPU time of a thread of this process; -1 if that is not known, or if it has ended."""
    try:
        return parse_schedstat(read_bytes(f"/proc/self/task/{thread.native_id}/schedstat"))[0]
    except (OSError, FormatError):
        return -1


class Session:
    """Follows a command from its start to its end, judges its phases, and saves the run.

    `source` gives this host under the name `host`, and others. `kinds` are the benchmarks that it may be. All times
    are those of `clock`; `say` takes a line for the user; `stacks` is that of `PhaseJudge`. Looks run in a separate
    thread: the command's signals and output must not wait for a file system that hangs.
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
        clock: Clock = STEADY,
        say: Callable[[str], None] = lambda line: None,
        stacks: Callable[[float], Mapping[str, str]] = lambda seconds: {},
    ) -> None:
        self.warnings: list[str] = []
        self._output = directory / "stdout"
        self._clock = clock
        self._ahead = clock.ahead()
        self._say = say
        wall = clock.now
        self._follower = CommandFollower(self._output, kinds, procfs=procfs, wall=wall, warn=self._warn)
        self._judge = PhaseJudge(directory, source, run=run, host=host, wall=wall, warn=self._warn, stacks=stacks)
        self._keeper = RunKeeper(run, directory, markers, tags=tags, wall=wall, warn=self._warn)
        self._keeper.marker.offset = clock.offset
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._follow, name="looks", daemon=True)

    def open_stdout(self) -> BinaryIO | None:
        """Return the file that keeps the command's output, None if it cannot be made."""
        try:
            return self._output.open("wb")
        except OSError as error:
            self._warn(
                f"{self._output}: {error.strerror}: the output is not saved, and phases that only it shows are missing"
            )
            return None

    def start(self, command: Sequence[str], pid: int) -> None:
        """Begin: the command runs as `pid`."""
        with self._tolerated("exporters do not show the run"):
            self._keeper.start(command, pid)
        with self._tolerated("the command is not followed"):
            self._follower.start(command, pid, self._keeper.marker.start)
            self._thread.start()

    @contextmanager
    def _tolerated(self, consequence: str) -> Iterator[None]:
        """Turn any error into a warning: whatever the host refuses or a foreign process causes, the run continues."""
        try:
            yield
        except Exception as error:
            self._warn(f"{consequence}: {reason(error)}")

    def _follow(self) -> None:
        while not self._stop.is_set():
            with self._tolerated("a look at the command failed"):
                self.look()
            self._stop.wait(LOOK_INTERVAL_SECONDS)

    def release(self) -> None:
        """End the threads that measure, because the host has no room for the command beside them."""
        self._judge.release()
        self._warn("no samples: the host refused another process, so ours gave way")

    def look(self) -> None:
        """Find the current phase, and take a snapshot for the recording when one is due."""
        with self._lock:
            self._note_step()
            self._follower.look()
            self._update()
            self._judge.take_when_due()

    def _note_step(self) -> None:
        """Report and save that somebody has set the wall clock."""
        if (ahead := self._clock.ahead()) != self._ahead:
            step = ClockStep(self._clock.now(), ahead - self._ahead)
            self._ahead = self._judge.ahead = ahead
            self._keeper.record.steps = [*self._keeper.record.steps, step][-MAX_CLOCK_STEPS:]
            self._keeper.save()
            self._warn(f"{step_words(step.seconds)}: times of this run continue as if it had not been")

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
        self._keeper.update(state, self._follower.ranks.known)

    def finish(self, exit_status: int, *, stopped: bool = False) -> None:
        """End the run: read the rest of the output and save what is known.

        `exit_status` is negative for a signal; `stopped` says that we were asked to stop the command before its end.
        """
        ended = State.STOPPED if stopped and exit_status else ended_as(exit_status)
        self._stop.set()
        marker = self._keeper.marker
        self._keeper.record.exit_status = exit_status
        marker.end = self._clock.now()
        if self._last_look_is_over():
            with self._tolerated("phases may lack, or their verdicts"):
                self._conclude(marker.end, ended)
        else:
            self._warn("a look at the command's files hangs: what they hold is not known")
        if exit_status and marker.state != State.STOPPED:
            marker.state = ended
        self._keeper.close()
        self._judge.close()
        self._judge.release()

    def _last_look_is_over(self) -> bool:
        """Wait for the look in progress; return whether it has ended."""
        until = time.monotonic() + MAX_LOOK_WAIT_SECONDS
        used = cpu_nanoseconds(self._thread)
        while self._thread.is_alive() and time.monotonic() < until:
            self._thread.join(MAX_LOOK_PAUSE_SECONDS)
            before, used = used, cpu_nanoseconds(self._thread)
            if used == before:
                break
        return self._lock.acquire(blocking=False)

    def _conclude(self, now: float, ended: State) -> None:
        """Take in the last output."""
        marker = self._keeper.marker
        self._note_step()
        self._follower.end(now, ended)
        self._update()
        self._judge.judge_again(marker.benchmark)
        if marker.benchmark == Io500.name and marker.scores:
            self._keeper.record.folder = folder_within(MAX_FOLDER_SECONDS, self._output, Path.cwd(), marker)
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
    def kept(self) -> bool:
        """Whether the record on disk has all that is known."""
        return self._keeper.kept

    @property
    def run(self) -> str:
        """The run's id."""
        return self._keeper.marker.run

    @property
    def span(self) -> tuple[float, float]:
        """Start and end of the run in Unix seconds."""
        marker = self._keeper.marker
        return marker.start, marker.end or self._clock.now()
