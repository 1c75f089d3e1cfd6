"""What hosts do now, and what limits the benchmarks on them: snapshots of the last seconds, as they come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce

import msgspec

from pinchpoint.diagnosis.blame import BenchmarkWork, workloads
from pinchpoint.diagnosis.chains import MIN_COUNTED_SECONDS, WaitGraph, counted_chains, only_chains, wait_graph
from pinchpoint.diagnosis.pair import restarted
from pinchpoint.diagnosis.progress import active_phases
from pinchpoint.diagnosis.series import label
from pinchpoint.diagnosis.served import Served
from pinchpoint.diagnosis.usage import Usage, usage
from pinchpoint.diagnosis.verdict import Judge, Kind, Verdict, judge
from pinchpoint.diagnosis.window import with_ended
from pinchpoint.metrics import WORKLOAD_SECONDS
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.quotas import shared_out
from pinchpoint.user_labels import user_of

__all__ = ["MIN_WINDOW_SECONDS", "Judged", "Recent", "RecentVerdicts"]

MIN_WINDOW_SECONDS = 3.0
"""Minimum seconds covered by a picture: 3.3 % of 2 s windows and 2.2 % of 3 s windows differ from the whole."""
NEWEST_SECONDS = 1.0
"""Seconds at the end of a picture that tell a change from a blip."""
MIN_JUDGED_SECONDS = 0.9
"""Seconds after which a new phase is judged, with low confidence: one scrape."""
CHAIN_STEP_SECONDS = 8.0
"""Seconds between two snapshots from which the chains of the last 16 to 24 s are counted."""
GRAPH_INTERVAL_SECONDS = 8.0
"""Seconds for which a wait-for graph is kept: to make it takes all chains of all hosts."""
MAX_JUDGED_BENCHMARKS = 3
"""Maximum number of benchmarks judged at once: the busiest ones."""


class Recent:
    """The recent snapshots of one host, for a picture of its present."""

    def __init__(self, seconds: float = MIN_WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._history: deque[Snapshot] = deque()
        self._chains: deque[Snapshot] = deque()
        """Earlier ones, with the series of chains alone."""
        self._span: tuple[Snapshot, Snapshot] | None = None
        self._usage: Usage | None = None
        self._cost: float | None = None

    def add(self, snapshot: Snapshot) -> None:
        """Take the next snapshot; a known one changes nothing."""
        history = self._history
        if history and snapshot.time == history[-1].time:
            return
        if history and (snapshot.time < history[-1].time or restarted(history[-1], snapshot)):
            self.clear()  # the clock was set back, or the counters began anew: earlier snapshots cannot be compared
        history.append(snapshot)
        while len(history) > 2 and snapshot.time - history[1].time >= self._seconds:
            history.popleft()
        self._span = self._usage = None
        chains = self._chains
        if not chains or snapshot.time - chains[-1].time >= CHAIN_STEP_SECONDS:
            chains.append(only_chains(snapshot))
        while len(chains) > 1 and snapshot.time - chains[1].time >= MIN_COUNTED_SECONDS:
            chains.popleft()

    def clear(self) -> None:
        """Forget the snapshots."""
        self._history.clear()
        self._chains.clear()
        self._span = self._usage = None

    @property
    def chain_span(self) -> tuple[Snapshot, Snapshot] | None:
        """A snapshot of 16 to 24 s ago, with the series of chains alone, and the last one; None until there is one."""
        if not self._history or self._history[-1].time - self._chains[0].time < MIN_COUNTED_SECONDS:
            return None
        return self._chains[0], self._history[-1]

    @property
    def span(self) -> tuple[Snapshot, Snapshot] | None:
        """The first and the last snapshot, with what ended in between; None until there are two."""
        if self._span is None and len(self._history) > 1:
            first, *others = self._history
            self._span = first, reduce(with_ended, others)
        return self._span

    def began(self, work: BenchmarkWork, phase: str) -> float | None:
        """Return when work was first seen in a phase, in Unix seconds; None if it was there before, or never."""
        first, *others = self._history or [Snapshot(0.0)]
        if _goes_on(first, work, phase):
            return None
        return next((snapshot.time for snapshot in others if _goes_on(snapshot, work, phase)), None)

    def newest(self, began: float) -> tuple[Snapshot, Snapshot] | None:
        """Return the snapshots around the last `NEWEST_SECONDS`, or those since a Unix time if it is later.

        None if that is the whole picture, or there is only one.
        """
        found = self.since(max(began, self._history[-1].time - NEWEST_SECONDS)) if self._history else None
        return None if found is None or found[0] is self._history[0] else found

    def since(self, time: float) -> tuple[Snapshot, Snapshot] | None:
        """Return the snapshot that is nearest to a Unix time, and the last one, as `span` does."""
        history = list(self._history)
        if not history:
            return None
        first = min(range(len(history)), key=lambda place: abs(history[place].time - time))
        return (history[first], reduce(with_ended, history[first:])) if first < len(history) - 1 else None

    def usage(self) -> Usage | None:
        """Return what the host did between them; None until there are two."""
        if self._usage is None and self.span is not None:
            self._usage = usage(*self.span)
            if self._usage.own.cpu is None:
                # An exporter reads its own cost less often than we look: keep showing the last value.
                self._usage = msgspec.structs.replace(
                    self._usage, own=msgspec.structs.replace(self._usage.own, cpu=self._cost)
                )
            self._cost = self._usage.own.cpu
        return self._usage


class Judged(msgspec.Struct, frozen=True):
    """A running benchmark, and what limits it."""

    benchmark: str
    run: str
    phase: str
    """Empty if it is in none, or not known."""
    verdict: Verdict
    since: float = 0.0
    """Since when this is the answer, in the seconds of `RecentVerdicts.take`."""
    tail: float | None = None
    """Seconds since the stonewall of the phase; None before it, and for a phase without one."""


class _FollowedRun(msgspec.Struct):
    judge: Judge
    shown: Judged | None = None
    graph: WaitGraph | None = None
    graphed: float = -math.inf
    """When that was made, in the seconds of `RecentVerdicts.take`."""
    silent: float | None = None
    """Since when no request was answered, in the seconds of `RecentVerdicts.take`; None if one was."""
    in_tail: bool = False


class RecentVerdicts:
    """The verdicts on running benchmarks, without flicker: see `Judge`."""

    def __init__(self, most: int = MAX_JUDGED_BENCHMARKS, elapsed: Callable[[], float] = lambda: 0.0) -> None:
        """Judge `most` runs, the busiest ones; `elapsed` gives monotonic seconds."""
        self.behind = 0
        """Runs that the last `take` left out."""
        self._most = most
        self._elapsed = elapsed
        self._runs: dict[tuple[str, str, str], _FollowedRun] = {}
        self._waiting: list[tuple[str, str, str]] = []

    def take(self, now: float, hosts: Mapping[str, Recent], budget: float = math.inf) -> list[Judged]:
        """Return what limits the busiest benchmarks; `now` is a time in seconds, and `hosts` are those that answer.

        At least one run is judged. After `budget` seconds the others keep their last verdicts and come first the next
        time.
        """
        until = self._elapsed() + budget
        spans = {name: recent.span for name, recent in hosts.items()}
        uses = {name: use for name, recent in hosts.items() if (use := recent.usage()) is not None}
        present = {name: span for name, span in spans.items() if span is not None}
        works = {(*work[:2], _phase(work, uses)): work for work in _most(workloads(uses), self._most) if work.total > 0}
        self._runs = {key: self._runs.get(key) or _FollowedRun(Judge()) for key in works}
        waiting = [key for key in self._waiting if key in works]
        self._waiting = []
        for place, key in enumerate([*waiting, *(key for key in works if key not in waiting)]):
            run = self._runs[key]
            if place and self._elapsed() > until:
                self._waiting.append(key)
                continue
            began = [time for recent in hosts.values() if (time := recent.began(works[key], key[2])) is not None]
            tail, wall = _tail(key, uses)
            if wall is not None:
                began.append(wall)
                if not run.in_tail:
                    run.judge, run.in_tail = Judge(), True  # no answer of before is held
            if began:
                # What came before belongs to another phase, to its part before the stonewall, or to none.
                young = {name: span for name, recent in hosts.items() if (span := recent.since(max(began))) is not None}
                seen = {name: usage(*span) for name, span in young.items()}
            else:
                seen, young = uses, present
            unanswered = 0.0 if run.silent is None else now - run.silent
            found = _judged(seen, young, key, unanswered)
            if not found.unanswered:
                run.silent = None
            elif run.silent is None:
                run.silent = now - found.seconds
            if found.kind is Kind.BLIND and found.seconds < MIN_WINDOW_SECONDS:
                continue  # the exporter need not have sampled the benchmark's processes in this phase yet
            found = run.judge.take(now, found, partial(_newest, hosts, key, max(began, default=0.0), unanswered))
            if found.kind is not Kind.TOO_SHORT:
                if not 0 <= now - run.graphed < GRAPH_INTERVAL_SECONDS:
                    run.graph, run.graphed = _graph(hosts, works[key]), now
                found = msgspec.structs.replace(found, graph=run.graph)
                same = run.shown is not None and run.shown.verdict.answer == found.answer
                since = run.shown.since if same and run.shown is not None else now
                run.shown = Judged(*key, found, since, tail)
        self.behind = len(self._waiting)
        return [run.shown for run in self._runs.values() if run.shown is not None]


def _most(works: Sequence[BenchmarkWork], limit: int) -> Iterable[BenchmarkWork]:
    """Return so many runs in the same order, the busiest first; no untrusted user's run is in place of another one."""
    kept = set(shared_out(((user_of(work.run), place) for place, work in enumerate(works)), limit, limit))
    return (work for place, work in enumerate(works) if place in kept)


def _sides(spans: Mapping[str, tuple[Snapshot, Snapshot]]) -> tuple[Snapshots, Snapshots]:
    before, after = ({name: span[place] for name, span in spans.items()} for place in (0, 1))
    return before, after


def _graph(hosts: Mapping[str, Recent], work: BenchmarkWork) -> WaitGraph | None:
    spans = {name: span for name, recent in hosts.items() if (span := recent.chain_span) is not None}
    before, after = _sides(spans)
    return wait_graph(counted_chains(before, after, work, Served(before, after)))


def _newest(hosts: Mapping[str, Recent], key: tuple[str, str, str], began: float, unanswered: float) -> Verdict | None:
    """Return the verdict of the newest part of the picture; None if a host has not answered often enough for one."""
    spans = {name: span for name, recent in hosts.items() if (span := recent.newest(began)) is not None}
    if spans.keys() < hosts.keys():
        return None
    return _judged({name: usage(*span) for name, span in spans.items()}, spans, key, unanswered, MIN_JUDGED_SECONDS)


def _judged(
    uses: Mapping[str, Usage],
    spans: Mapping[str, tuple[Snapshot, Snapshot]],
    key: tuple[str, str, str],
    unanswered: float,
    trusted: float = MIN_WINDOW_SECONDS,
) -> Verdict:
    benchmark, run, _ = key
    before, after = _sides(spans)
    return judge(
        uses,
        before,
        after,
        benchmark=benchmark,
        run=run,
        shortest=MIN_JUDGED_SECONDS,
        trusted=trusted,
        unanswered=unanswered,
    )


def _goes_on(snapshot: Snapshot, work: BenchmarkWork, phase: str) -> bool:
    """Return whether a run is in a phase, if it has any, as far as a host knows it by name."""
    if phase:
        return any((one.run, one.phase) == (work.run, phase) for one in active_phases(snapshot))
    times = snapshot.values.get(WORKLOAD_SECONDS.name, {})
    return any((label(labels, "benchmark"), label(labels, "run")) == work[:2] for labels in times)


def _tail(key: tuple[str, str, str], hosts: Mapping[str, Usage]) -> tuple[float | None, float | None]:
    """Return for how many seconds a phase has been in its tail, and when that began; None if it is in none."""
    for use in hosts.values():
        for phase in use.phases:
            if (phase.benchmark, phase.run, phase.phase) == key and phase.tail is not None:
                return phase.tail, use.time - phase.tail
    return None, None


def _phase(work: BenchmarkWork, hosts: Mapping[str, Usage]) -> str:
    return next((phase.phase for use in hosts.values() for phase in use.phases if phase.run == work.run), "")
