"""What limits every run now, and what limited each ended phase, from the snapshots of all hosts.

It has no clock, network or thread of its own: the service that queries the hosts feeds it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence, Set

import msgspec

from pinchpoint.diagnosis.facts import Facts, facts, merged
from pinchpoint.diagnosis.pair import clock_set
from pinchpoint.diagnosis.progress import ActivePhase, active_phases
from pinchpoint.diagnosis.recent import Judged, Recent, RecentVerdicts
from pinchpoint.diagnosis.series import finite, forget_series
from pinchpoint.diagnosis.verdict import Verdict, judge_phase
from pinchpoint.diagnosis.window import Sightings, Stream, Window, Windows
from pinchpoint.metrics import PHASE_ELAPSED_SECONDS
from pinchpoint.model import Snapshot, Snapshots, time_of
from pinchpoint.report.document import ranking

__all__ = ["Engine", "PhaseVerdict"]

MAX_PHASE_VERDICTS = 256
"""Maximum number of verdicts on ended phases: the last ones are kept."""
MAX_OPEN_PHASES = 256
"""Maximum number of phases followed at once; a host that shows more than a benchmark has is not credible."""
MAX_JUDGED_RUNS = 64
"""Maximum number of runs judged at once."""
START_DIGITS = 2
"""Digits of a phase's start that tell phases apart: the sums that make it up differ in the last ones."""
SETTINGS_INTERVAL_SECONDS = 15.0
"""Seconds between two looks at settings: exporters read most of them less often."""
KEEP_ENDED_SECONDS = 900.0
"""Seconds for which moments, and the verdict on an ended phase, are kept ..."""
FORGET_SECONDS = 60.0
"""... and between two times at which older moments are forgotten."""


class PhaseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What limited a phase that has ended."""

    benchmark: str
    run: str
    phase: str
    start: float
    end: float
    """Unix seconds, by the clock of its host's snapshots."""
    verdict: Verdict
    host: str
    """Where the phase was seen."""


_Key = tuple[str, str, str, float]
"""Identity of a phase: benchmark, run, name, and start by its host's clock as it was when the exporter started."""


class _Open(msgspec.Struct):
    window: Window
    host: str
    """Where it is seen."""
    seen: float
    """When it was last seen, in Unix seconds."""


class Engine:
    """Takes moments, oldest first, and judges the runs on all hosts."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        """Begin; `elapsed` gives monotonic seconds."""
        self.verdicts = RecentVerdicts(MAX_JUDGED_RUNS, elapsed)
        self.phases: deque[PhaseVerdict] = deque(maxlen=MAX_PHASE_VERDICTS)
        self.facts: dict[str, Facts] = {}
        """The settings of the hosts during each active run."""
        self._recent: dict[str, Recent] = {}
        self._stream = Stream()
        self._windows = Windows()
        self._sightings = Sightings()
        self._open: dict[_Key, _Open] = {}
        self._settled = 0.0
        """When settings were last read, in Unix seconds."""
        self._forgotten = 0.0
        """When ended phases were last forgotten, in Unix seconds."""

    def take(self, moment: Snapshots) -> None:
        """Take in the hosts that have answered since the last moment."""
        moment = self._stream.take(moment)
        if not moment:
            return
        self._windows.take(moment)
        self._sightings.take(moment)
        for host, snapshot in moment.items():
            self._recent.setdefault(host, Recent()).add(snapshot)
        began = self._begin(moment)
        ended = self._end(moment)
        if ended and self._open.keys() <= began:
            self._stream.forget()
        self._forget(time_of(moment))

    def _forget(self, now: float) -> None:
        """Regularly forget what belongs to no active phase: the service runs for months."""
        if now - self._forgotten > FORGET_SECONDS:
            self._forgotten = now
            forget_series()
            oldest = min([now, *(phase.window.start for phase in self._open.values())]) - KEEP_ENDED_SECONDS
            self._stream.expire(now, oldest)
            self._windows.forget(oldest)
            self._sightings.forget(oldest)

    def _begin(self, moment: Snapshots) -> set[_Key]:
        """Open the windows of phases that are seen for the first time, and return these phases."""
        began = set()
        for host, snapshot in moment.items():
            for phase in active_phases(snapshot):
                start = round((phase.start or 0.0) - clock_set(snapshot), START_DIGITS)
                key = phase.benchmark, phase.run, phase.phase, start
                if (known := self._open.get(key)) is not None:
                    known.seen = snapshot.time
                elif len(self._open) < MAX_OPEN_PHASES:
                    # By our clock: that of its host may differ.
                    window = self._windows.open(snapshot.time - (_elapsed(snapshot, phase) or 0.0))
                    self._open[key] = _Open(window, host, snapshot.time)
                    began.add(key)
        return began

    def _end(self, moment: Snapshots) -> bool:
        """Judge the phases that are over, and return whether there are any."""
        now = time_of(moment)
        over = [
            (key, phase)
            for key, phase in self._open.items()
            if (phase.host in moment and phase.seen < moment[phase.host].time)
            or now - phase.seen > self._stream.latest[phase.host].lasts
        ]
        for key, phase in over:
            del self._open[key]
            end = phase.seen
            if (snapshot := moment.get(phase.host)) is not None:
                elapsed = _elapsed(snapshot, ActivePhase(*key))
                end = snapshot.time if elapsed is None else min(snapshot.time, max(end, phase.window.start + elapsed))
            self._judge(key, phase, end)
        return bool(over)

    def _judge(self, key: _Key, ended: _Open, end: float) -> None:
        benchmark, run, phase, _ = key
        window = ended.window
        self._windows.close(window, end)
        if window.after:
            seen = self._sightings.hottest(window.start, end)
            _, found = judge_phase(window, benchmark=benchmark, run=run, seen=seen)
            # Of thousands of resources of a cluster only those are kept that anybody is shown.
            found = msgspec.structs.replace(found, ranking=tuple(limit for limit, _ in ranking(found)))
            self.phases.append(
                PhaseVerdict(
                    benchmark=benchmark,
                    run=run,
                    phase=phase,
                    start=window.start,
                    end=end,
                    verdict=found,
                    host=ended.host,
                )
            )

    def lose(self, host: str) -> None:
        """Forget the recent data of a host that does not answer: it may do something else now."""
        self._recent.pop(host, None)

    def step(self, now: float, budget: float = math.inf) -> Sequence[Judged]:
        """Return what limits each run at `now`, in Unix seconds, the one with the most processes first.

        It spends `budget` seconds on them: see `RecentVerdicts.take`.
        """
        while self.phases and self.phases[0].end < now - KEEP_ENDED_SECONDS:
            self.phases.popleft()
        found = self.verdicts.take(now, self._recent, budget)
        self._settle(now, {one.run for one in found if one.run})
        return found

    def _settle(self, now: float, runs: Set[str]) -> None:
        """Read the settings of the hosts when a run begins, and regularly after that."""
        if not runs:
            self.facts = {}
            return
        if runs <= self.facts.keys() and 0 <= now - self._settled < SETTINGS_INTERVAL_SECONDS:
            self.facts = {run: known for run, known in self.facts.items() if run in runs}
            return
        self._settled = now
        latest = self._stream.latest
        present = facts({host: latest[host] for host in self._recent if host in latest})
        self.facts = {run: merged(self.facts.get(run, {}), present) for run in runs}


def _elapsed(snapshot: Snapshot, phase: ActivePhase) -> float | None:
    """Return the duration of a phase so far in seconds, by the clock of its host."""
    names = {"benchmark": phase.benchmark, "run": phase.run, "phase": phase.phase}
    return finite(snapshot.value(PHASE_ELAPSED_SECONDS.name, **names))
