"""The service: queries the hosts, judges once a second, and keeps the answers for clients."""

from __future__ import annotations

import gc
import logging
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import msgspec

from pinchpoint import __version__
from pinchpoint.clock import STEADY, Clock
from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.inputs import INPUTS, STEADY_INPUTS
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.judge.client import ANSWER_SCHEMA
from pinchpoint.judge.engine import Engine, PhaseVerdict
from pinchpoint.judge.hosts import Hosts
from pinchpoint.judge.pace import Pace
from pinchpoint.judge.points import fact_points, judge_points, phase_points, run_points
from pinchpoint.judge.targets import Target, TargetFiles
from pinchpoint.metrics import (
    JUDGE_BEHIND_RUNS,
    JUDGE_BUILD_INFO,
    JUDGE_CPU_SECONDS,
    JUDGE_DATA_AGE_SECONDS,
    JUDGE_HTTP_REFUSED_CONNECTIONS,
    JUDGE_INTERVAL_SECONDS,
    JUDGE_RESIDENT_MEMORY_BYTES,
    JUDGE_ROUND_SECONDS,
    JUDGE_ROUNDS,
    JUDGE_RUNS,
)
from pinchpoint.model import Point
from pinchpoint.report.document import verdict_json
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.guard import Guard
from pinchpoint.wire.poller import Problem
from pinchpoint.wire.sources import LOST_AFTER_SECONDS, Demand, PrometheusSource, Source, TargetSource

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["Judgement", "Service"]

JUDGING_SHARE = 0.5
"""Share of the interval that may be spent on judging: serving the answers needs the interpreter too."""
LONGEST_ROUND = 1.5
"""Intervals after which a round begins though a source has not answered since the last one."""
REREAD_INTERVAL_SECONDS = 5.0
"""Seconds after which target files are checked again."""
SLOWED = ": more often would fill a core"
PAGE_BYTES = resource.getpagesize()

log = logging.getLogger(__name__)


class Judgement(msgspec.Struct, frozen=True):
    """The answers of one round."""

    time: float = 0.0
    """Its time in Unix seconds; 0 before the first one."""
    hosts: Mapping[str, float] = msgspec.field(default_factory=dict)
    """When each host that answers was last seen, in Unix seconds."""
    problems: Mapping[str, Problem] = msgspec.field(default_factory=dict)
    """What is wrong with hosts, sources and target files."""
    runs: Sequence[Judged] = ()
    phases: Sequence[PhaseVerdict] = ()
    facts: Mapping[str, Facts] = msgspec.field(default_factory=dict)
    behind: int = 0
    interval: float = 0.0
    """Seconds between two rounds."""
    slowed: bool = False
    """Whether that is more than asked."""
    seconds: float = 0.0
    rounds: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, as docs/judge.md describes it."""
        return {
            "schema": ANSWER_SCHEMA,
            "version": __version__,
            "time": self.time,
            "hosts": [{"host": host, "seen": seen} for host, seen in sorted(self.hosts.items())],
            "problems": [
                {"source": source, "reason": problem.reason, "since": problem.since}
                for source, problem in sorted(self.problems.items())
            ],
            "behind": self.behind,
            "interval": round(self.interval, 3),
            "runs": [
                {
                    "benchmark": one.benchmark,
                    "run": one.run,
                    "phase": one.phase,
                    "since": one.since,
                    "seconds": round(one.verdict.seconds, 3),
                    "tail": None if one.tail is None else round(one.tail, 3),
                    **verdict_json(one.verdict),
                }
                for one in self.runs
            ],
            "phases": [
                {
                    "benchmark": one.benchmark,
                    "run": one.run,
                    "phase": one.phase,
                    "start": one.start,
                    "end": one.end,
                    **verdict_json(one.verdict),
                }
                for one in self.phases
            ],
        }

    def points(self) -> Iterator[Point]:
        """Yield its metrics."""
        yield from run_points(self.runs)
        yield from phase_points(self.phases)
        yield from fact_points(self.facts)
        yield from judge_points(len(self.hosts), self.problems)
        yield JUDGE_RUNS.point(len(self.runs))
        yield JUDGE_BEHIND_RUNS.point(self.behind)
        yield JUDGE_ROUND_SECONDS.point(self.seconds)
        yield JUDGE_ROUNDS.point(self.rounds)
        if self.hosts:
            yield JUDGE_DATA_AGE_SECONDS.point(max(0.0, self.time - max(self.hosts.values())))


GC_THRESHOLDS = (200_000, 20, 20)
"""Python's garbage collection thresholds. Snapshots have no cycles and a million objects; the default thresholds scan
these several times a round: a third of the time that judging 100 hosts takes."""


class Service:
    """Queries targets, those in files, and Prometheus servers every `interval` seconds, and judges their answers.

    Both happen less often if they would fill a core: see `Pace`.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        files: TargetFiles,
        servers: Sequence[str],
        interval: float = 1.0,
        clock: Clock = STEADY,
        access: HttpAccess | None = None,
    ) -> None:
        self.said = Judgement()
        self._rounded: float | None = None
        """When the last round began, in monotonic seconds; None before the first."""
        self.refusals = Refusals(JUDGE_HTTP_REFUSED_CONNECTIONS)
        self.protection: Guard | None = None
        """What protects its server."""
        self._targets = targets
        self._files = files
        self._servers = servers
        self._pace = Pace(interval)
        self._clock = clock
        self._access = access
        self._hosts = Hosts(self._pace)
        self._engine = Engine(time.monotonic)
        self._seen: dict[str, float] = {}
        self._until: dict[str, float] = {}
        """Until when the last answer of each host counts, in monotonic seconds."""
        self._direct: set[str] = set()
        self._demand = Demand()
        """Hosts that are not asked for through a server: their snapshots have times of `clock`, which nobody sets."""
        self._malformed: dict[str, float] = {}
        """Since when a file of targets has been malformed, in Unix seconds."""
        self._told: set[str] = set()
        self._stop = Event()

    @property
    def patience(self) -> float:
        """Seconds without a round from which it is unhealthy."""
        return 5 * self._pace.interval

    @property
    def healthy(self) -> bool:
        """Whether the last round ended lately."""
        return self._rounded is not None and time.monotonic() - self._rounded <= self.patience

    def run(self) -> None:
        """Judge until `stop`."""
        gc.set_threshold(*GC_THRESHOLDS)
        reread = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            try:
                if now >= reread:
                    reread = now + REREAD_INTERVAL_SECONDS
                    self._hosts.set(self._sources())
                self.round()
            except Exception:  # one host's bad data must not silence the judge on all others
                log.exception("a round failed; the next one begins anew")
                self._engine = Engine(time.monotonic)
            self._hosts.wait(max(0.0, now + LONGEST_ROUND * self._pace.interval - time.monotonic()))
        self._hosts.stop()

    def round(self) -> None:
        """Take in the hosts' answers since the last round, and judge."""
        began = time.monotonic()
        collected = self._hosts.collect()
        problems = self._hosts.problems()
        self._until.update((host, began + snapshot.lasts + self._pace.interval) for host, snapshot in collected.items())
        # If several sources know a host, one may be behind the other.
        moment = {
            host: snapshot
            for host, snapshot in collected.items()
            if not 0 <= self._seen.get(host, 0.0) - snapshot.time < LOST_AFTER_SECONDS
        }
        self._seen.update((host, snapshot.time) for host, snapshot in moment.items())
        problems = {name: problem for name, problem in problems.items() if name not in collected}
        for host in [host for host, until in self._until.items() if host in problems or began > until]:
            self._seen.pop(host, None)
            del self._until[host]
            self._engine.lose(host)
        self._engine.take(moment)
        ahead = self._clock.ahead()
        now = self._clock.now() + ahead
        judged = self._engine.step(self._clock.now(), JUDGING_SHARE * self._pace.interval)
        runs = [msgspec.structs.replace(run, since=run.since + ahead) for run in judged]
        for source, problem in problems.items():
            if source not in self._told:
                log.warning("%s: %s", source, problem.reason)
        self._told = set(problems)
        if self._pace.slowed != self.said.slowed:
            log.warning("hosts are read every %.1f s%s", self._pace.interval, SLOWED if self._pace.slowed else "")
        problems = {
            name: msgspec.structs.replace(problem, since=problem.since + ahead) for name, problem in problems.items()
        }
        self._malformed = {name: self._malformed.get(name, now) for name in self._files.problems}
        problems |= {
            name: Problem(reason, self._malformed[name], unseen=False) for name, reason in self._files.problems.items()
        }
        self.said = Judgement(
            time=now,
            hosts={host: seen + self._shift(host) for host, seen in self._seen.items()},
            problems=problems,
            runs=tuple(runs),
            phases=tuple(self._shown(phase) for phase in self._engine.phases),
            facts=self._engine.facts,
            behind=self._engine.verdicts.behind,
            interval=self._pace.interval,
            slowed=self._pace.slowed,
            seconds=time.monotonic() - began,
            rounds=self.said.rounds + 1,
        )
        self._rounded = began
        self._demand.full = bool(runs)

    def _shift(self, host: str) -> float:
        """Return by how many seconds the times of a host's snapshots are behind the wall clock."""
        return self._clock.ahead() if host in self._direct else 0.0

    def _shown(self, phase: PhaseVerdict) -> PhaseVerdict:
        """Return a phase with the times of the wall clock."""
        shift = self._shift(phase.host)
        return msgspec.structs.replace(phase, start=phase.start + shift, end=phase.end + shift) if shift else phase

    def _sources(self) -> dict[str, Callable[[], Source]]:
        found: dict[str, Callable[[], Source]] = {}
        targets = [*self._targets, *self._files.read()]
        self._direct = {target.host for target in targets}
        for target in targets:
            found[f"{target.host} {target.url}"] = partial(
                TargetSource,
                target.url,
                name=target.host,
                clock=self._clock.now,
                access=self._access,
                demand=self._demand,
            )
        for url in self._servers:
            found[url] = partial(
                PrometheusSource,
                url,
                lambda host: host in self._direct,
                10.0,
                names=INPUTS,
                steady=STEADY_INPUTS,
                access=self._access,
            )
        return found

    def points(self) -> Iterator[Point]:
        """Yield the metrics of the last round, the judge's own cost, and what its HTTP server refused."""
        yield from self.said.points()
        yield JUDGE_CPU_SECONDS.point(time.process_time())
        with open("/proc/self/statm", "rb") as file:
            yield JUDGE_RESIDENT_MEMORY_BYTES.point(int(file.read().split()[1]) * PAGE_BYTES)
        yield JUDGE_INTERVAL_SECONDS.point(self._pace.asked)
        yield JUDGE_BUILD_INFO.point(1, __version__)
        yield from self.refusals.points()
        if self.protection is not None:
            yield from self.protection.points()

    def stop(self) -> None:
        """End after the current round."""
        self._stop.set()
        self._hosts.wake()
