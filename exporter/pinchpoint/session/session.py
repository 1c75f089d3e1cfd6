"""One run of a benchmark: its phases as they go, what the hosts did in each, and what is kept of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from threading import Event, Lock, Thread
from typing import BinaryIO, NamedTuple

import msgspec

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector, merged
from pinchpoint.benchmarks.events import State, ended_as
from pinchpoint.benchmarks.markers import Marker, RunDirectory
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.diagnosis.facts import facts
from pinchpoint.diagnosis.facts import merged as merged_facts
from pinchpoint.diagnosis.marks import verdict_mark
from pinchpoint.diagnosis.usage import Usage
from pinchpoint.diagnosis.verdict import Verdict, judge_phase
from pinchpoint.diagnosis.window import Sightings, Stream, Window, Windows
from pinchpoint.figures import format_result
from pinchpoint.host.procfs import parse_stat, read_bytes
from pinchpoint.metrics import EXPORTER
from pinchpoint.runs import PhaseMark, Result
from pinchpoint.session import store
from pinchpoint.session.samples import Samples
from pinchpoint.wire import recording
from pinchpoint.wire.prometheus import FiredAlert
from pinchpoint.wire.recording import Recorder
from pinchpoint.wire.sources import Source, SourceError

__all__ = ["PhaseRecord", "Session"]

WHOLE = "run"
"""The only phase of a command that Pinchpoint does not know as a benchmark."""
LOOK_INTERVAL = 0.2
"""Seconds between two looks at the command's processes: the resolution of a phase's start and end."""
RECORD_INTERVAL = 1.0
"""Seconds between two snapshots of the recording, and between two markers of a phase that goes on."""
PIECE = 64 << 10
"""Bytes of the command's output that are read at once."""
SHARE = 0.04
"""Seconds of CPU that one look spends on the output: whoever copies it needs the interpreter too."""
LAST_SHARE = 5.0
"""Seconds of CPU that are spent at the end on what is left of it (measured: 1 MiB takes 0.03 to 0.9 s)."""
BACKLOG = 16 << 20
"""When more bytes than this are unread, all but the last ones are left out."""
LAST = 1 << 20
"""Bytes that are read in any case: a benchmark's summary stands at the end."""
WORDS = 64
"""Words of the command line among which a benchmark is looked for."""
MARKED_PHASES = 128
"""Phases that the marker holds: the last ones; an exporter shows at most half of them."""
PATIENCE = 2.0
"""Seconds for which the end waits for a look that is under way: it may hang in a file system."""


@dataclass(slots=True)
class PhaseRecord:
    """A phase and what the hosts did in it; `usage` is of this host, None where no snapshot of it could be taken."""

    mark: PhaseMark
    usage: Usage | None = None
    verdict: Verdict | None = None
    window: Window | None = None
    """Where its snapshots are cut out; None when it is judged."""
    judged: _Basis | None = None
    """What it was judged by; None while its end has not been seen."""


class _Basis(NamedTuple):
    """What decides on the snapshots that a phase is judged by: times in Unix seconds."""

    start: float
    end: float | None
    moments: tuple[float, float] | None
    """Of the two moments around it; None where there aren't two."""
    parted: tuple[float, ...]
    """Of those that part it."""


class Session:
    """Follows a command from its start to its end.

    `source` gives this host under the name `host`, and others. `kinds` are the benchmarks that it may be. `wall` gives
    Unix time in seconds; `say` takes a line for the person who looks on. Looks are made in a thread of their own: the
    command's signals and output must not wait for a file system that hangs.
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
        self.directory = directory
        self.phases: list[PhaseRecord] = []
        self.warnings: list[str] = []
        self._procfs = procfs
        self._source = source
        self._markers = markers
        self._wall = wall
        self._say = say
        self._detector = Detector(kinds)
        self._named: list[type[Benchmark]] = []
        self._whole: PhaseMark | None = None
        self._host = host
        self._stream = Stream()
        self._windows = Windows()
        self._sightings = Sightings()
        self._silent: set[str] = set()
        self._recorded = self._marked = float("-inf")
        self._signature: object = None
        self._offset = 0
        self._recorder = Recorder(directory / recording.FILE) if source is not None else None
        self._kinds = {metric.name: (metric.kind.value, metric.help) for metric in EXPORTER}
        marker = Marker(run, "command", wall(), pid=0, pid_start=0, command_pid=0, tags=_texts(tags))
        self._record = store.RunRecord(marker, [])
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._follow, name="looks", daemon=True)

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
        self._record.command = [_text(word) for word in command]
        self._named = self._detector.kinds(os.path.basename(word) for word in command[:WORDS])
        self._whole = PhaseMark(WHOLE, marker.start, vague=True)
        self._mark()  # at once: what an exporter finds before, it takes for somebody else's
        self._thread.start()

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except Exception as error:  # whatever a foreign process or output makes us stumble on, the run goes on
                self._warn(f"a look at the command failed: {type(error).__name__}: {error}")
            self._stop.wait(LOOK_INTERVAL)

    def look(self) -> None:
        """See which phase goes on, and take a snapshot for the recording when one is due."""
        with self._lock:
            tree = Tree.below(self._procfs, self._record.marker.command_pid)
            self._detector.look(tree, time.monotonic(), self._wall())
            self._hear(SHARE)
            self._update()
            if self._wall() - self._recorded >= RECORD_INTERVAL:
                self._snapshot()

    def _hear(self, seconds: float) -> None:
        """Read what the command has printed since the last time, for so many seconds of CPU; the rest waits."""
        until = time.thread_time() + seconds
        with suppress(OSError), (self.directory / "stdout").open("rb", buffering=0) as file:
            self._skip(file, BACKLOG)
            file.seek(self._offset)
            while time.thread_time() < until and (piece := file.read(PIECE)):
                self._offset += len(piece)
                self._detector.hear(piece, self._wall(), named=self._named)

    def _hear_last(self) -> None:
        """Read what the command printed last."""
        self._hear(LAST_SHARE)
        with suppress(OSError), (self.directory / "stdout").open("rb", buffering=0) as file:
            self._skip(file, LAST)
        self._hear(float("inf"))

    def _skip(self, file: FileIO, limit: int) -> None:
        """Leave out what comes before the last bytes where more than `limit` are unread."""
        size = os.fstat(file.fileno()).st_size
        if size - self._offset > limit:
            self._offset = size - LAST
            self._detector.hear(b"\n", self._wall(), named=self._named)
            self._warn("the command printed more than could be read meanwhile: phases and results may lack")

    def _update(self) -> None:
        """Bring the phases up to date: those that began get a snapshot, those that ended what was used meanwhile."""
        marker = self._record.marker
        state = merged(self._detector.followed, marker.run, marker.start)
        marks = state.phases
        if self._whole is not None:
            if any(followed.pid for followed in self._detector.followed) or any(not mark.vague for mark in marks):
                # The command turned out to be a benchmark: what went before was its start, not a phase.
                self._whole = None
            else:
                marks = [self._whole]
        known = {id(record.mark): record for record in self.phases}
        self.phases = [known.get(id(mark)) or PhaseRecord(mark) for mark in marks]
        began = [record for record in self.phases if id(record.mark) not in known]
        ended = [record for record in self.phases if record.judged is None and record.mark.end is not None]
        if began or ended:
            self._snapshot()
            self._record.facts = merged_facts(self._record.facts, facts(self._stream.fresh))
        for record in began:
            record.window = self._windows.open(record.mark.start)
            if record.mark.end is None and record.mark is not self._whole:
                self._say(f"phase {record.mark.name} began")
        for record in ended:
            self._close(record)
        if ended and all(record.judged or record in began for record in self.phases):
            self._stream.forget()
        if state.benchmark:
            marker.benchmark = state.benchmark
        marker.state = state.state if self._detector.followed else State.RUNNING
        marker.total, marker.scores, marker.valid = state.total, state.scores, state.valid
        marker.reason, marker.blind = state.reason, state.blind
        marker.phases = marks
        signature = [(mark.name, mark.start, mark.end, len(mark.results)) for mark in marks], marker.state
        if signature != self._signature:
            self._signature = signature
            self._save()
        elif self._wall() - self._marked >= RECORD_INTERVAL:
            self._mark()

    def _close(self, record: PhaseRecord) -> None:
        mark, window = record.mark, record.window
        if window is None or window.start != mark.start:
            window = self._windows.open(mark.start)
        self._windows.close(window, mark.end)
        window.hottest = self._sightings.hottest(window.start, mark.end or window.start)
        self._judge(record, window)
        result = f": {format_result(mark.results[0])}" if mark.results else ""
        self._say(f"phase {mark.name} ended after {(mark.end or mark.start) - mark.start:.1f} s{result}")

    def _judge(self, record: PhaseRecord, window: Window) -> None:
        mark, marker = record.mark, self._record.marker
        record.window, record.judged = None, _Basis(window.start, window.end, window.moments, window.parted)
        record.usage = record.verdict = mark.verdict = None
        if window.after:
            name = mark.benchmark or marker.benchmark
            hosts, record.verdict = judge_phase(window, benchmark=name, run=marker.run, seen=window.hottest)
            record.usage = hosts.get(self._host)
            mark.verdict = verdict_mark(record.verdict)

    def _judge_again(self) -> None:
        """Judge the phases whose start or end was told so late that other moments are nearer to it.

        They are in the recording, so that its report says the same.
        """
        late = []
        for record in self.phases:
            span = record.mark.start, record.mark.end
            basis = _Basis(*span, self._windows.moments(*span), self._windows.parted(*span))
            if record.judged is not None and record.judged != basis:
                late.append(record)
        if not late:
            return
        try:
            samples = Samples(self.directory / recording.FILE)
            windows = samples.windows([record.mark for record in late])
        except OSError as error:
            self._warn(f"phases that were told late are not judged: {error.filename}: {error.strerror}")
            return
        for record, window in zip(late, windows, strict=True):
            self._judge(record, window)

    def _snapshot(self) -> None:
        """Ask all hosts, and record what they say."""
        if self._source is None or self._recorder is None:
            return
        self._recorded = self._wall()
        try:
            fresh = self._source.snapshots()
            problems = self._source.problems
        except SourceError as error:
            fresh, problems = {}, {error.source: error.reason}
        for name in problems.keys() - self._silent:
            self._silent.add(name)
            self._warn(f"no samples: {name}: {problems[name]}")
        moment = self._stream.take(fresh)
        if not moment:
            return
        self._windows.take(moment)
        self._sightings.take(moment)
        try:
            self._recorder.add(moment, self._kinds)
        except OSError as error:
            self._warn(f"samples are not recorded: {error.strerror}")

    def finish(self, exit_status: int, *, stopped: bool = False) -> None:
        """End the run: read the rest of the output and keep what is known of it.

        `exit_status` is negative for a signal; `stopped` says that we were asked to stop the command before its end.
        """
        ended = State.STOPPED if stopped and exit_status else ended_as(exit_status)
        self._stop.set()
        self._thread.join(PATIENCE)
        self._record.exit_status = exit_status
        self._record.marker.end = self._wall()
        if self._lock.acquire(timeout=PATIENCE):
            try:
                self._conclude(self._record.marker.end, ended)
            except Exception as error:  # as in _follow
                self._warn(f"the command's output could not be read: {type(error).__name__}: {error}")
        else:
            self._warn("a look at the command's files hangs: what they hold is not known")
        if exit_status and self._record.marker.state != State.STOPPED:
            self._record.marker.state = ended
        self._save()
        if self._recorder is not None:
            self._recorder.close()

    def _conclude(self, now: float, ended: State) -> None:
        """Take in the last that can be known."""
        self._hear_last()
        self._detector.end(now, ended)
        if self._whole is not None:
            self._whole.end = now
            self._whole.state = ended
        self._update()
        self._judge_again()
        if self._record.marker.state == State.RUNNING:
            self._record.marker.state = State.FINISHED
        for followed in self._detector.followed:
            timeline = followed.timeline
            explained = timeline.complete is not None or timeline.state in (State.FAILED, State.STOPPED)
            if not explained and not any(mark.results for mark in timeline.phases):
                hint = f": {followed.kind.hint}" if followed.kind.hint else ""
                self._warn(f"no results in the output of {followed.kind.name}{hint}")

    def _save(self) -> None:
        self._mark()
        try:
            store.save(self.directory, self._record)
        except OSError as error:
            self._warn(f"{self.directory / store.FILE}: {error.strerror}: the run is not kept")

    def _mark(self) -> None:
        self._marked = self._wall()
        try:
            marker = self._record.marker
            self._markers.write(msgspec.structs.replace(marker, phases=marker.phases[-MARKED_PHASES:]))
        except OSError as error:
            self._warn(f"{self._markers.path}: {error.strerror}: an exporter will not show the phases")

    def _warn(self, message: str) -> None:
        if message not in self.warnings:
            self.warnings.append(message)

    def add_alerts(self, fired: Sequence[FiredAlert]) -> None:
        """Keep which alerts fired for each phase."""
        for record in self.phases:
            start, end = record.mark.start, record.mark.end or self.span[1]
            record.mark.alerts = sorted({alert.name for alert in fired if alert.in_phase(start, end)})
        self._save()

    @property
    def score(self) -> Result | None:
        """The score that the benchmark gave to the run."""
        scores = self._record.marker.scores
        return scores[-1] if scores else None

    @property
    def valid(self) -> bool:
        """False where the benchmark calls the run or one of its results invalid."""
        return self._record.marker.valid and all(record.mark.valid for record in self.phases)

    @property
    def run(self) -> str:
        """The run's id."""
        return self._record.marker.run

    @property
    def span(self) -> tuple[float, float]:
        """Start and end of the run in Unix seconds."""
        marker = self._record.marker
        return marker.start, marker.end or self._wall()


def _text(word: str) -> str:
    """Return a word of a command line without what JSON can't hold: bytes that are not UTF-8."""
    return word.encode("utf-8", "replace").decode()


def _texts(words: Mapping[str, str]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in words.items()}
