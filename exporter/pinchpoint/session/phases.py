"""What limited each phase of a run: takes the hosts' snapshots, records them, and judges each phase at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from pinchpoint.diagnosis.facts import Facts, facts, merged
from pinchpoint.diagnosis.marks import verdict_mark
from pinchpoint.diagnosis.usage import Usage
from pinchpoint.diagnosis.verdict import Verdict, judge_phase
from pinchpoint.diagnosis.window import Sightings, Stream, Window, Windows
from pinchpoint.metrics import COST_SAMPLES, EXPORTER
from pinchpoint.runs import PhaseMark
from pinchpoint.session.samples import Samples
from pinchpoint.session.stacks import StackKeeper
from pinchpoint.wire import recording
from pinchpoint.wire.recording import Recorder
from pinchpoint.wire.sources import Source, SourceError

__all__ = ["PhaseJudge", "PhaseRecord"]

RECORD_INTERVAL_SECONDS = 1.0
"""Seconds between two snapshots of the recording."""

MIN_STACKS_SECONDS = 5.0
"""Seconds of a phase from which stacks of full threads are saved: one window of samples."""


class PhaseRecord(msgspec.Struct):
    """A phase and what the hosts did in it; `usage` is of this host, None if no snapshot of it could be taken."""

    mark: PhaseMark
    usage: Usage | None = None
    verdict: Verdict | None = None
    window: Window | None = None
    """Cuts out its snapshots; None once it is judged."""
    judged: _Basis | None = None
    """What it was judged by; None while its end has not been seen."""


class _Basis(NamedTuple):
    """What determines the snapshots of a phase: times in Unix seconds."""

    start: float
    end: float | None
    moments: tuple[float, float] | None
    """Times of the two moments around it; None unless there are two."""
    parted: tuple[float, ...]
    """Times of those that divide it."""


class PhaseJudge:
    """Takes snapshots of all hosts of the run `run`, records them in `directory`, and judges its phases by them.

    `source` gives this host under the name `host`, and others; without a source nothing is judged. `wall` gives Unix
    time in seconds; `warn` takes what could not be seen or saved. `stacks` gives, by host, those of threads that were
    full in the last seconds.
    """

    def __init__(
        self,
        directory: Path,
        source: Source | None,
        *,
        run: str,
        host: str,
        wall: Callable[[], float],
        warn: Callable[[str], None],
        stacks: Callable[[float], Mapping[str, str]] = lambda seconds: {},
    ) -> None:
        self.phases: list[PhaseRecord] = []
        self.ahead = 0.0
        """By how many seconds the wall clock is ahead of all times, because it was set."""
        self.facts: Facts = {}
        """Settings of each host, as seen when phases began or ended."""
        self._path = directory / recording.FILE
        self._source = source
        self._run = run
        self._host = host
        self._wall = wall
        self._warn = warn
        self._stacks = stacks
        self._keeper = StackKeeper(directory, warn)
        self._stream = Stream()
        self._windows = Windows()
        self._sightings = Sightings()
        self._silent: set[str] = set()
        self._recorded = float("-inf")
        self._recorder: Recorder | None = None
        if source is not None:
            try:
                self._recorder = Recorder(self._path)
            except OSError as error:
                warn(f"samples are not recorded: {error.strerror}")
        self._kinds = {metric.name: (metric.kind.value, metric.help) for metric in EXPORTER}

    def update(self, marks: Iterable[PhaseMark], benchmark: str) -> tuple[list[PhaseRecord], list[PhaseRecord]]:
        """Bring the phases up to date, and return those that began and those that ended.

        Those that began get a snapshot, those that ended are judged. `benchmark` applies to phases without one of their
        own.
        """
        known = {id(record.mark): record for record in self.phases}
        self.phases = [known.get(id(mark)) or PhaseRecord(mark) for mark in marks]
        began = [record for record in self.phases if id(record.mark) not in known]
        ended = [record for record in self.phases if record.judged is None and record.mark.end is not None]
        if began or ended:
            self.take()
            self.facts = merged(self.facts, facts(self._stream.fresh))
        for record in began:
            record.window = self._windows.open(record.mark.start)
        for record in ended:
            self._close(record, benchmark)
        if ended and all(record.judged or record in began for record in self.phases):
            self._stream.forget()
        return began, ended

    def take_when_due(self) -> None:
        """Take a snapshot for the recording when one is due."""
        if self._wall() - self._recorded >= RECORD_INTERVAL_SECONDS:
            self.take()

    def take(self) -> None:
        """Query all hosts, and record their answers."""
        if self._source is None:
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
        if self._recorder is not None:
            try:
                self._recorder.add(moment, self._kinds, self.ahead)
            except OSError as error:
                self._warn(f"samples are not recorded: {error.strerror}")

    def release(self) -> None:
        """Take no more snapshots, and end the threads of the source."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def judge_again(self, benchmark: str) -> None:
        """Judge the phases whose start or end was reported so late that other moments are nearer to it.

        These are in the recording, so that its report agrees.
        """
        late = []
        for record in self.phases:
            span = record.mark.start, record.mark.end
            basis = _Basis(*span, self._windows.moments(*span), self._windows.parted(*span))
            if record.judged is not None and record.judged != basis:
                late.append(record)
        if not late or self._recorder is None:
            return
        try:
            windows = Samples(self._path).windows([record.mark for record in late])
        except OSError as error:
            self._warn(f"phases that were reported late are not judged: {error.filename}: {error.strerror}")
            return
        for record, window in zip(late, windows, strict=True):
            self._judge(record, window, benchmark)

    def close(self) -> None:
        """End the recording."""
        if self._recorder is not None:
            self._recorder.close()

    def _close(self, record: PhaseRecord, benchmark: str) -> None:
        mark, window = record.mark, record.window
        if window is None or window.start != mark.start:
            window = self._windows.open(mark.start)
        self._windows.close(window, mark.end)
        window.hottest = self._sightings.hottest(window.start, mark.end or window.start)
        self._judge(record, window, benchmark)
        lasted = self._wall() - mark.start
        if lasted >= MIN_STACKS_SECONDS and any(COST_SAMPLES.name in found.values for found in window.after.values()):
            self._keeper.add(mark.name, self._stacks(lasted))

    def _judge(self, record: PhaseRecord, window: Window, benchmark: str) -> None:
        mark = record.mark
        record.window, record.judged = None, _Basis(window.start, window.end, window.moments, window.parted)
        record.usage = record.verdict = mark.verdict = None
        if window.after:
            name = mark.benchmark or benchmark
            hosts, record.verdict = judge_phase(window, benchmark=name, run=self._run, seen=window.hottest)
            record.usage = hosts.get(self._host)
            mark.verdict = verdict_mark(record.verdict)
