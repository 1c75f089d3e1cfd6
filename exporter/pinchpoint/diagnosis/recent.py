"""What hosts do at present, and what limits the benchmarks on them: snapshots of the last seconds, as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pinchpoint.diagnosis.blame import Workload, workloads
from pinchpoint.diagnosis.usage import Usage, usage
from pinchpoint.diagnosis.verdict import Judge, Kind, Verdict, judge
from pinchpoint.model import Snapshot

__all__ = ["WINDOW", "Judged", "Recent", "RecentVerdicts"]

WINDOW = 3.0
"""Seconds that a picture covers at least: of windows of 2 s 3.3 % judge otherwise than the whole, of 3 s 2.2 %."""
SHOWN = 3
"""Benchmarks that are judged at once: the busiest ones."""


class Recent:
    """The snapshots of one host that a picture of its present is made of."""

    def __init__(self, seconds: float = WINDOW) -> None:
        self._seconds = seconds
        self._history: deque[Snapshot] = deque()
        self._usage: Usage | None = None
        self._cost: float | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; one that was there already changes nothing."""
        history = self._history
        if history and snapshot.time == history[-1].time:
            return
        if history and snapshot.time < history[-1].time:
            history.clear()  # the clock was set back: nothing that came before can be compared
        history.append(snapshot)
        while len(history) > 2 and snapshot.time - history[1].time >= self._seconds:
            history.popleft()
        self._usage = None

    def clear(self) -> None:
        """Forget the snapshots."""
        self._history.clear()
        self._usage = None

    @property
    def span(self) -> tuple[Snapshot, Snapshot] | None:
        """The first and the last snapshot; None while there is only one."""
        return (self._history[0], self._history[-1]) if len(self._history) > 1 else None

    def usage(self) -> Usage | None:
        """Return what the host did between them; None while there is only one."""
        if self._usage is None and self.span is not None:
            self._usage = usage(*self.span)
            if self._usage.own.cpu is None:
                # An exporter reads its own cost more rarely than we look: what it last was stays in sight.
                self._usage = replace(self._usage, own=replace(self._usage.own, cpu=self._cost))
            self._cost = self._usage.own.cpu
        return self._usage


@dataclass(frozen=True, slots=True)
class Judged:
    """A benchmark that runs now, and what limits it."""

    benchmark: str
    run: str
    phase: str
    """Empty where it is in none, or nobody knows."""
    verdict: Verdict


class RecentVerdicts:
    """The verdicts on what runs now, which don't flicker: see `Judge`."""

    def __init__(self) -> None:
        self._judges: dict[tuple[str, str, str], Judge] = {}

    def take(self, now: float, hosts: Mapping[str, Recent]) -> list[Judged]:
        """Return what limits the busiest benchmarks; `now` is a time in seconds, and `hosts` are those that answer."""
        spans = {name: recent.span for name, recent in hosts.items()}
        uses = {name: use for name, recent in hosts.items() if (use := recent.usage()) is not None}
        before = {name: span[0] for name, span in spans.items() if span is not None}
        after = {name: span[1] for name, span in spans.items() if span is not None}
        found: list[Judged] = []
        judges: dict[tuple[str, str, str], Judge] = {}
        for work in workloads(uses)[:SHOWN]:
            if work.total <= 0:
                continue
            phase = _phase(work, uses)
            key = work.benchmark, work.run, phase
            one = judges[key] = self._judges.get(key) or Judge()
            verdict = one.take(now, judge(uses, before, after, benchmark=work.benchmark, run=work.run))
            if verdict.kind is not Kind.TOO_SHORT:
                found.append(Judged(*key, verdict))
        self._judges = judges
        return found


def _phase(work: Workload, hosts: Mapping[str, Usage]) -> str:
    return next((phase.phase for use in hosts.values() for phase in use.phases if phase.run == work.run), "")
