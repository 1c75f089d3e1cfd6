"""What a command does: the phases and results that its processes and its output show."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector, merged
from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.mpi import Ranks
from pinchpoint.benchmarks.tree import Tree, stats_below
from pinchpoint.runs import PhaseMark, RunState
from pinchpoint.threads.slurm import SRUN, SlurmSteps, find_slurmstepds

__all__ = ["CommandFollower"]

WHOLE = "run"
"""The only phase of a command that is not a known benchmark."""
PIECE_BYTES = 64 << 10
"""Bytes of the command's output read at once."""
MAX_OUTPUT_CPU_SECONDS = 0.04
"""CPU seconds that one look spends on the output: copying it needs the interpreter too."""
MAX_LAST_OUTPUT_CPU_SECONDS = 5.0
"""CPU seconds spent at the end on the rest of it (measured: 1 MiB takes 0.03 to 0.9 s)."""
MAX_BACKLOG_BYTES = 16 << 20
"""If more bytes than this are unread, all but the last ones are skipped."""
SUMMARY_BYTES = 1 << 20
"""Bytes that are always read: a benchmark's summary comes last."""
MAX_COMMAND_WORDS = 64
"""Words of the command line that are searched for a benchmark."""


class CommandFollower:
    """Follows a command's processes and `output`, the file that keeps what it prints.

    `kinds` are the benchmarks that it may be. `wall` gives Unix time in seconds; `warn` takes what could not be read.
    """

    def __init__(
        self,
        output: Path,
        kinds: Sequence[type[Benchmark]],
        *,
        procfs: Path,
        wall: Callable[[], float],
        warn: Callable[[str], None],
    ) -> None:
        self._output = output
        self._procfs = procfs
        self._wall = wall
        self._warn = warn
        self._detector = Detector(kinds)
        self.ranks = Ranks()
        """The ranks among the command's processes."""
        self._steps = SlurmSteps(procfs)
        self._no_steps: set[int] = set()
        self._named: list[type[Benchmark]] = []
        self._pid = 0
        self._offset = 0
        self.whole: PhaseMark | None = None
        """The phase of a command that is not a benchmark so far."""

    def start(self, command: Sequence[str], pid: int, now: float) -> None:
        """Begin: the command runs as `pid` since `now`, in Unix seconds."""
        self._pid = pid
        self._named = self._detector.kinds(os.path.basename(word) for word in command[:MAX_COMMAND_WORDS])
        self.whole = PhaseMark(WHOLE, now, vague=True)

    def look(self) -> None:
        """Look at the processes, and read some of the output since the last look."""
        tree = self._tree()
        self._detector.look(tree, time.monotonic(), self._wall())
        self.ranks.look(tree, tree.processes)
        self._hear(MAX_OUTPUT_CPU_SECONDS)

    def _tree(self) -> Tree:
        """Return the command and all below it, also what Slurm started on this host for an srun of it."""
        found = stats_below(self._procfs, self._pid)
        if all(stat.comm != SRUN for stat in found.values()):
            return Tree(self._procfs, found)
        for pid in find_slurmstepds(self._procfs, self._no_steps):
            found |= stats_below(self._procfs, pid)
        found = self._steps.attached(found)
        known = {self._pid, *Tree(self._procfs, found).descendants(self._pid)}
        return Tree(self._procfs, {pid: stat for pid, stat in found.items() if pid in known})

    def end(self, now: float, ended: State) -> None:
        """Read what the command printed last: it ended at `now`, in Unix seconds, as `ended`."""
        self._hear(MAX_LAST_OUTPUT_CPU_SECONDS)
        with suppress(OSError), self._open() as file:
            self._skip(file, SUMMARY_BYTES)
        self._hear(float("inf"))
        self._detector.end(now, ended)
        if self.whole is not None:
            self.whole.end = now
            self.whole.state = ended

    def state(self, run: str, start: float) -> RunState:
        """Return what is known about the run, which began at `start`, in Unix seconds."""
        followed = self._detector.followed
        state = merged(followed, run, start)
        if not followed:
            state.state = State.RUNNING
        if self.whole is not None:
            if any(found.pid for found in followed) or any(not mark.vague for mark in state.phases):
                # The command turned out to be a benchmark: the time before was its start, not a phase.
                self.whole = None
            else:
                state.phases = [self.whole]
        return state

    def without_results(self) -> list[str]:
        """Return a line for each benchmark that ended regularly without a result that was understood."""
        lines = []
        for followed in self._detector.followed:
            timeline = followed.timeline
            explained = timeline.complete is not None or timeline.state in (State.FAILED, State.STOPPED)
            if not explained and not any(mark.results for mark in timeline.phases):
                hint = f": {followed.kind.hint}" if followed.kind.hint else ""
                lines.append(f"no results in the output of {followed.kind.name}{hint}")
        return lines

    def _open(self) -> FileIO:
        return self._output.open("rb", buffering=0)

    def _hear(self, seconds: float) -> None:
        """Read the command's new output, for so many CPU seconds; the rest waits."""
        until = time.thread_time() + seconds
        with suppress(OSError), self._open() as file:
            self._skip(file, MAX_BACKLOG_BYTES)
            file.seek(self._offset)
            while time.thread_time() < until and (piece := file.read(PIECE_BYTES)):
                self._offset += len(piece)
                self._detector.hear(piece, self._wall(), named=self._named)

    def _skip(self, file: FileIO, limit: int) -> None:
        """Skip to the last bytes if more than `limit` are unread."""
        size = os.fstat(file.fileno()).st_size
        if size - self._offset > limit:
            self._offset = size - SUMMARY_BYTES
            self._detector.hear(b"\n", self._wall(), named=self._named)
            self._warn("the command printed more than could be read meanwhile: phases and results may lack")
