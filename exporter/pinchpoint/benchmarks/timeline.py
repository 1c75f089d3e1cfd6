"""One run as it unfolds: looks and output events become phases with their times, results and state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile

from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    PhaseSource,
    Rate,
    RunBegan,
    Scored,
    State,
    as_figure,
    as_seconds,
    as_share,
    bounded,
)
from pinchpoint.benchmarks.pace import Pace
from pinchpoint.runs import PhaseMark, Result

__all__ = ["Timeline"]

STALE_SIGHT_SECONDS = 2.0
"""Seconds for which looks may show a phase that has ended, until they show another run of it."""
MAX_PHASES = 4096
"""Maximum number of phases kept per run: the first ones (``ior -i 1000`` has 2,000)."""


class Timeline:
    """The phases of one run of one benchmark. Times that come in and go out are Unix seconds.

    A phase is known from looks at the processes, from events of an output or a result file, or from both: an event that
    ends a phase is matched with the one seen, or represents one too short to be seen.
    """

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.phases: list[PhaseMark] = []
        """By start."""
        self.state = State.SETUP
        self.scores: tuple[Result, ...] = ()
        self.valid = True
        self.total: int | None = None
        self.reason = ""
        self.blind: tuple[str, ...] = ()
        self.complete: bool | None = None
        """Whether the benchmark itself reported a regular end or a failure; None until it reports either."""
        self._end: float | None = None
        self._failed = False
        self._stopped = False
        self._tellers: dict[int, set[PhaseSource]] = {}
        """The sources that reported the end of a phase, by the mark's identity."""
        self._current: PhaseMark | None = None
        self._last: PhaseMark | None = None
        """The phase in progress when the run ended."""
        self._over = ""
        """A phase that has ended according to its output, though looks may still show it for a moment."""
        self._over_since = 0.0
        self._looked: float | None = None
        self._looked_before: float | None = None
        """When the look before the last one was made."""
        self._unseen: dict[int, float] = {}
        """The latest known time before each phase began, by the mark's identity."""
        self._pace = Pace()

    def see(self, sight: Sight, now: float) -> None:
        """Take in a look."""
        self.hear(sight.events, now, sight.events_source)
        self.blind = sight.blind
        self.total = sight.total or self.total
        self._looked_before, self._looked = self._looked, now
        by_argv = sight.source is PhaseSource.ARGV
        if sight.phase != self._over or (now - self._over_since > STALE_SIGHT_SECONDS and not by_argv):
            self._over = ""
        phase = sight.phase if sight.phase != self._over else None
        if phase is not None and sight.vague and any(not mark.vague for mark in self.phases):
            phase = None
        if (
            (heard := self._current) is not None
            and heard.source == PhaseSource.STDOUT
            and sight.state is not State.PAUSED
        ):
            # Looks don't see the phase named by the output, so they can't end it. A command line never changes.
            if phase is None and (sight.vague or sight.phase is None):
                return
            if by_argv and phase != heard.name:
                return
        self.state = sight.state if phase is not None or sight.phase is None else State.BETWEEN
        if (current := self._enter(phase, now, sight.source)) is None:
            return
        current.vague = sight.vague
        if not sight.vague:
            current.source = sight.source
        current.state = sight.state
        current.number = sight.number
        expected, progress = as_seconds(sight.expected), as_share(sight.progress)
        current.expected = expected if expected is not None else current.expected
        current.progress = progress if progress is not None else current.progress
        if sight.work is not None:
            self._move(current, now, sight.work)

    def hear(self, events: Iterable[Event], now: float, source: PhaseSource) -> None:
        """Take in events from an output or a result file at `now`."""
        batch = [bounded(event) for event in events]
        # Phases that ended unseen and are reported at once ended one after another, the last one at most now.
        ends: dict[int, float] = {}
        lost: set[int] = set()
        end = now
        seen = False
        for index in range(len(batch) - 1, -1, -1):
            event = batch[index]
            if isinstance(event, Ended):
                ends[index] = end
                end = max(0.0, end - (event.seconds or 0.0))
                current = self._current
                waiting = next((mark for mark in self.phases if mark.name == event.phase and not mark.results), None)
                if current is not None and current.name == event.phase and current.source != PhaseSource.ARGV:
                    # Any phase reported before it had ended when it was seen to begin.
                    end = min(end, current.start)
                elif waiting is not None and event.seconds is None:
                    end = min(end, waiting.start)
                if not seen and waiting is not None and waiting is self._newest:
                    lost.add(index)
                seen = seen or waiting is not None
        floor = -math.inf
        told = {event.phase for event in batch if isinstance(event, Began)}
        for index, event in enumerate(batch):
            match event:
                case RunBegan():
                    self.complete, self._stopped = None, False
                case Began():
                    # A phase that has ended by now doesn't end the one seen in progress.
                    if not self._passed(event, batch[index + 1 :]):
                        self._began(event, now, source)
                case Rate():
                    self._rate(event, now)
                case Ended():
                    mark = self._ended(event, now, max(ends[index], floor), source, lost=index in lost)
                    if mark is not None and mark.end is not None:
                        if mark.source == PhaseSource.ARGV and mark.start < floor and mark.name not in told:
                            # It was assumed to last as long as its process, but another phase came first.
                            mark.start = min(floor, mark.end)
                            self._sort()
                        floor = mark.end
                case Scored():
                    # A second driver in one run (IO500's shell script and its program) may fail without a score.
                    self.scores = event.scores or self.scores
                    self.valid = self.valid and event.valid
                case Completed():
                    self.complete, self.reason, self._stopped = True, "", False
                    self._leave(now)
                    self.state = State.BETWEEN
                case Failed():
                    self.complete = False
                    self.reason = self.reason or event.reason
                    self._stopped |= event.stopped
        if batch and self._end is not None:
            self.end(self._end)

    def end(self, now: float, ended: State = State.FINISHED) -> None:
        """End the run: as failed or stopped if `ended` or the benchmark's own output, which may be late, says so."""
        self._end = now
        self._stopped |= ended is State.STOPPED
        self._failed = failed = ended is not State.FINISHED or self._failed or self.complete is False
        state = State.FINISHED if not failed else State.STOPPED if self._stopped else State.FAILED
        self._last = self._current or self._last
        self._leave(now)
        if not failed:
            self._forget_slow_end()
        if self._last is not None and failed and not self._last.results:
            self._last.state = state
        if any(not mark.vague for mark in self.phases):
            self.phases = [mark for mark in self.phases if not mark.vague or mark.results]
        self.state = state

    def _forget_slow_end(self) -> None:
        """Forget a last phase begun by looks alone after one of that name had reported its results.

        It is only its process exiting, which may take longer than `STALE_SIGHT_SECONDS`: clients of a busy cluster
        do.
        """
        if len(self.phases) < 2:
            return
        before, last = self.phases[-2:]
        only_seen = last.source != PhaseSource.STDOUT and not last.results
        if only_seen and before.name == last.name and before.results:
            self.phases.pop()
            self._last = before

    def awaits(self, phase: str) -> int:
        """Return the number of phases of that name without known results."""
        return sum(mark.name == phase and not mark.results for mark in self.phases)

    def knows(self, event: Ended) -> bool:
        """Return whether there is a phase of that name with exactly these results."""
        return any(mark.name == event.phase and mark.results == list(event.results) for mark in self.phases)

    def _enter(self, phase: str | None, now: float, source: PhaseSource) -> PhaseMark | None:
        if self._current is not None and self._current.name == phase:
            return self._current
        self._leave(now)
        if phase is None or len(self.phases) >= MAX_PHASES:
            return None
        self._current = PhaseMark(phase, now, benchmark=self.benchmark, source=source)
        self._unseen[id(self._current)] = now if self._looked_before is None else self._looked_before
        self._pace = Pace()
        self._insert(self._current)
        return self._current

    def _leave(self, now: float) -> None:
        if (current := self._current) is None:
            return
        current.end = max(now, current.start)
        if current.state not in (State.FAILED, State.STOPPED):
            current.state = State.FINISHED
        current.rates = []
        self._current = None

    def _insert(self, mark: PhaseMark) -> None:
        self.phases.append(mark)
        self._sort()

    def _sort(self) -> None:
        self.phases.sort(key=lambda mark: (mark.start, math.inf if mark.end is None else mark.end))

    def _began(self, event: Began, now: float, source: PhaseSource) -> None:
        self._over = ""
        if (current := self._enter(event.phase, now, source)) is not None:
            current.expected = event.expected if event.expected is not None else current.expected
            current.state = event.state
            self.state = event.state

    def _rate(self, event: Rate, now: float) -> None:
        current = self._current
        unseen = current is None or current.vague or current.source == PhaseSource.STDOUT
        if event.phase and unseen:
            current = self._enter(event.phase, now, PhaseSource.STDOUT)
            self.state = State.RUNNING
        if current is None or (event.phase and event.phase != current.name):
            return
        current.rates = list(event.results) or current.rates
        current.progress = event.progress if event.progress is not None else current.progress
        if event.work is not None:
            self._move(current, now, event.work)
        elif event.results:
            self._pace.flows(now, event.results[0].value)
            self._paced(current)

    def _move(self, current: PhaseMark, now: float, work: float) -> None:
        self._pace.reaches(now, work)
        self._paced(current)

    def _paced(self, current: PhaseMark) -> None:
        current.moved = self._pace.moved
        current.pace = as_figure(self._pace.second_half)

    def _ended(self, event: Ended, now: float, end: float, source: PhaseSource, *, lost: bool) -> PhaseMark | None:
        """Take in the end of a phase; `lost`: not seen since, though others have ended meanwhile."""
        if not event.ran:
            return None
        mark = self._meant(event, now, end, source)
        if mark is not None and mark.results:
            # Another source has reported it: this one only adds whether it is valid.
            mark.seconds = event.seconds if mark.seconds is None else mark.seconds
            mark.valid = mark.valid and event.valid
            self._tellers[id(mark)].add(source)
            return mark
        if mark is None:
            if len(self.phases) >= MAX_PHASES:
                return None
            mark = PhaseMark(event.phase, end, end, benchmark=self.benchmark, source=source, state=State.FINISHED)
            self.phases.append(mark)
        elif mark is self._current:
            self._leave(now)
            self.state = State.BETWEEN
            self._over, self._over_since = event.phase, now
            # Phases known before it had ended when it began.
            end = max([end, *(other.end for other in self._before(mark) if other.end is not None)])
            # If it began and ended in the same batch, its start is not known.
            mark.start = min(mark.start, end)
            mark.end = end
        elif mark.end is not None and (lost or mark.end in (self._looked, self._end)):
            # It had ended by then; its output gives the exact time.
            mark.end = max(mark.start, min(mark.end, end))
        mark.results = list(event.results)
        mark.seconds = event.seconds
        mark.valid = event.valid
        mark.vague = False
        self._tellers[id(mark)] = {source}
        self._join(mark, event.seconds or 0.0)
        self._stretch(mark, event.seconds or 0.0, end)
        self._sort()
        return mark

    @property
    def _newest(self) -> PhaseMark | None:
        return next((mark for mark in reversed(self.phases) if not mark.vague), None)

    def _passed(self, began: Began, later: Sequence[Event]) -> bool:
        """Return whether, according to later events, a phase ended before the one that looks show."""
        current = self._current
        if current is None or current.source == PhaseSource.STDOUT:
            return False
        names = [event.phase for event in later if isinstance(event, Ended)]
        return current.name in names and began.phase in names[: names.index(current.name)]

    def _before(self, mark: PhaseMark) -> list[PhaseMark]:
        return [other for other in takewhile(lambda other: other is not mark, self.phases) if not other.vague]

    def _meant(self, event: Ended, now: float, end: float, source: PhaseSource) -> PhaseMark | None:
        """Return the phase that has ended: one that only another source has reported, or one without results."""
        named = [mark for mark in self.phases if mark.name == event.phase]
        for mark in reversed(named):
            if mark.results and source not in self._tellers.get(id(mark), {source}):
                return mark
        waiting = [mark for mark in named if not mark.results]
        if source is PhaseSource.RESULT_FILE:
            # It reports an end at once, or all at the end: one of long before was of another run, about which it
            # said nothing.
            lately = min(now if self._looked_before is None else self._looked_before, end) - STALE_SIGHT_SECONDS
            waiting = [mark for mark in waiting if mark.end is None or mark.end >= lately]
        for mark in reversed(waiting):
            # A phase that has just begun cannot be one that took longer.
            longest = (now if mark.end is None else mark.end) - self._unseen.get(id(mark), mark.start)
            if event.seconds is None or event.seconds <= longest:
                return mark
        return waiting[0] if waiting else None

    def _join(self, mark: PhaseMark, seconds: float) -> None:
        """Merge all sightings of a phase of so many seconds: looks may have lost it in between.

        Files of a slow file system are mostly still being opened, and then no descriptor shows the phase.
        """
        known = [other for other in self.phases if not other.vague]
        place = next(index for index, other in enumerate(known) if other is mark)
        for others in (known[place + 1 :], known[:place][::-1]):
            for other in others:
                start, end = min(mark.start, other.start), max(mark.end or mark.start, other.end or math.inf)
                only_seen = other.source != PhaseSource.STDOUT and not other.results
                if other.name != mark.name or not only_seen or end - start > seconds + STALE_SIGHT_SECONDS:
                    break
                mark.start, mark.end = start, end
                self.phases = [kept for kept in self.phases if kept is not other]

    def _stretch(self, mark: PhaseMark, seconds: float, latest: float) -> None:
        """Set a phase's duration to the one its benchmark reports: it may have been seen late, or lost early."""
        others = [other for other in self.phases if other is not mark and not other.vague]
        end = mark.start if mark.end is None else mark.end
        after = min((other.start for other in others if other.start >= end), default=latest)
        mark.end = end = max(end, min(mark.start + seconds, latest, after))
        before = [other.end for other in others if other.end is not None and other.end <= end]
        if self._current is not None and self._current.vague:
            before.append(self._current.start)
        mark.start = min(mark.start, max(0.0, end - seconds, *before))
