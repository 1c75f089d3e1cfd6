"""The benchmarks of this host: those that `pinchpoint run` marks, and those started without it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping

from pinchpoint.benchmarks.events import FINAL_STATES, State
from pinchpoint.benchmarks.finder import FoundBenchmark, finder
from pinchpoint.benchmarks.jobs import job_id, job_name
from pinchpoint.benchmarks.markers import MAX_ALL_EXPORTED_RUNS, MAX_EXPORTED_RUNS, MAX_MARKED_RANKS
from pinchpoint.benchmarks.nursery import CAPABILITIES
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.workloads import Leader, UserProcess, Workload
from pinchpoint.clock import STEADY, Clock
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import FormatError, Stat, decode, parse_stat, read_bytes
from pinchpoint.metrics import (
    BENCHMARK_HELPER_RESTARTS,
    BENCHMARK_HELPERS,
    JOB_START_TIMESTAMP_SECONDS,
    KEEP_ENDED_SECONDS,
    PHASE_ACTIVE,
    PHASE_ELAPSED_SECONDS,
    PHASE_EXPECTED_SECONDS,
    PHASE_NUMBER,
    PHASE_PROGRESS_RATIO,
    PHASE_RATE,
    PHASE_RESULT,
    PHASE_SECOND_HALF_RATIO,
    PHASE_SOURCE_INFO,
    PHASE_STALLED_SECONDS,
    PHASE_START_TIMESTAMP_SECONDS,
    PHASE_VALID,
    RUN_BLIND_INFO,
    RUN_END_TIMESTAMP_SECONDS,
    RUN_JOB_INFO,
    RUN_PHASES,
    RUN_SCORE,
    RUN_START_TIMESTAMP_SECONDS,
    RUN_STATE,
    RUN_VALID,
)
from pinchpoint.model import Metric, Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.quotas import shared_out
from pinchpoint.runs import JOB_TAG, PhaseMark, Result, RunState, numbered, run_id, shifted
from pinchpoint.user_labels import MAX_LABEL_BYTES, user_of

__all__ = ["BenchmarkProbe", "as_label", "run_points"]

RUN = ("benchmark", "run")
PHASE = (*RUN, "phase")
RESULT = (*PHASE, "operation", "unit")


MAX_EXPORTED_PHASES = 64
"""Phases of one run that are exported: the newest ones ..."""
MAX_USER_PHASES = 8
"""... and of an untrusted user's run, so that its series fit in the user's quota."""
MAX_EXPORTED_RESULTS = 32
"""Results of one phase that are exported."""
MAX_GIVEN_NAMES = 240
"""Names given in an hour to runs of trusted users, and to those of each other user: each begins about twenty series."""
NAME_INTERVAL_SECONDS = 3600.0
NAMED_ANYHOW_SECONDS = 60.0
"""Seconds after which a run gets a name even above that limit."""
CANDIDATE_SECONDS = 20.0
"""Seconds for which a process with the name of a benchmark is worth a look: shells have such names, as they run the
scripts of some. A `Detector` decides sooner (`MAX_UNDECIDED_SECONDS`)."""
EVERYDAY_AGE_SECONDS = 5.0
"""Seconds after which an everyday program (ping, dd) is shown as a benchmark."""


class BenchmarkProbe(Probe):
    """Phases and results of the runs of this host."""

    name = "benchmark"
    metrics = (
        PHASE_ACTIVE,
        PHASE_START_TIMESTAMP_SECONDS,
        PHASE_ELAPSED_SECONDS,
        PHASE_EXPECTED_SECONDS,
        PHASE_PROGRESS_RATIO,
        PHASE_NUMBER,
        PHASE_STALLED_SECONDS,
        PHASE_SECOND_HALF_RATIO,
        PHASE_VALID,
        PHASE_SOURCE_INFO,
        PHASE_RATE,
        PHASE_RESULT,
        RUN_START_TIMESTAMP_SECONDS,
        RUN_END_TIMESTAMP_SECONDS,
        RUN_STATE,
        RUN_VALID,
        RUN_SCORE,
        RUN_PHASES,
        RUN_BLIND_INFO,
        RUN_JOB_INFO,
        JOB_START_TIMESTAMP_SECONDS,
        BENCHMARK_HELPERS,
        BENCHMARK_HELPER_RESTARTS,
    )
    capabilities = (Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE)
    helper_capabilities = CAPABILITIES
    interval = 0.5
    rest_interval = 1.0
    steady = True
    lasting = True  # a benchmark's files are on the file system that hangs: its phase must be seen to stall

    def __init__(self, host: Host, clock: Clock = STEADY) -> None:
        super().__init__(host)
        self._clock = clock
        self._finder = finder(host.benchmarks, host.procfs, host.nursery, host.users)
        self._everyday = {kind.name for kind in host.benchmarks if kind.everyday}
        self._comms = frozenset(comm for kind in host.benchmarks for comm in kind.comms)
        self._generation = -1
        self._candidates: dict[tuple[int, int, str], float] = {}
        """When each process with the name of a benchmark was first seen, by pid, start and name."""
        self._names: dict[int, str] = {}
        self._named: dict[int | None, deque[float]] = {}
        """When the last names were given to runs of each untrusted user, and of all others, in monotonic seconds."""
        self._runs: list[RunState] = []
        """By `_clock`."""
        self._ranks: dict[UserProcess, int] = {}
        self._jobs: dict[str, str] = {}
        """The id of the batch job of each run that has one, by the run's id."""

    def sample(self, now: float) -> None:
        """Read the run directory, and look at the benchmarks among the processes."""
        wall = self._clock.now()
        self._finder.look(Tree(self.host.procfs, self._processes(now)), now, wall)
        self._finder.forget(wall - KEEP_ENDED_SECONDS)
        self._jobs = {}
        marked = list(self._marked(wall))
        runs = [*marked, *self._found(now, wall, {run.run for run in marked})]
        # Short runs that came and went, or a few pings, must not displace a long run.
        runs.sort(key=lambda run: (run.state in FINAL_STATES, run.benchmark in self._everyday, -(run.end or run.start)))
        if any(run.state not in FINAL_STATES for run in runs):
            self.host.activity.note(now)
        self._runs = shared_out(((self._user(run), run) for run in runs), MAX_EXPORTED_RUNS, MAX_ALL_EXPORTED_RUNS)

    def _user(self, run: RunState) -> int | None:
        """Return the untrusted user whose run it is, None for a trusted one."""
        user = user_of(run.run)
        return None if user is None else self.host.users.account(user)

    def _processes(self, now: float) -> Mapping[int, Stat]:
        """Return all processes but those of marked runs, those of benchmarks read afresh.

        The mapping is empty if no benchmark runs.
        """
        generation = self.host.processes.generation  # read first: a scan by another thread makes it older, not newer
        everything = self.host.processes.everything(now)
        commands = self.host.runs.command_pids(self._clock.now() + self._clock.ahead())
        self._remember(everything, generation, now)
        if not self._finder.followed and not any(
            now - first < CANDIDATE_SECONDS for first in self._candidates.values()
        ):
            return {}
        tree = Tree(self.host.procfs, everything)
        adopted = {
            *self.host.processes.adopted,
            *commands,
            *tree.descendants(*commands),
        }
        self._finder.disown(adopted)
        found = {pid: stat for pid, stat in everything.items() if pid not in adopted}
        leaders = [followed.pid for followed in self._finder.followed if followed.ended is None]
        for pid in {*leaders, *tree.descendants(*leaders)}:
            if (stat := self._stat(pid)) is None:
                found.pop(pid, None)
            elif pid in found:
                found[pid] = stat
        return found

    def _remember(self, processes: Mapping[int, Stat], generation: int, now: float) -> None:
        """Remember which processes have the name of a benchmark; they are gone through once for each scan."""
        if generation != self._generation:
            self._generation = generation
            names = [(pid, stat.start, stat.comm) for pid, stat in processes.items() if stat.comm in self._comms]
            self._candidates = {name: self._candidates.get(name, now) for name in names}

    def _stat(self, pid: int) -> Stat | None:
        try:
            return parse_stat(read_bytes(f"{self.host.procfs}/{pid}/stat"))
        except (OSError, FormatError):
            return None

    def _marked(self, wall: float) -> Iterator[RunState]:
        runs = self.host.runs
        ahead = self._clock.ahead()
        self._ranks = dict(self._finder.ranks)
        for marker in runs.markers(wall + ahead):
            if marker.end is None and (user := runs.user(marker.run)) is not None:
                for mark in marker.ranks[:MAX_MARKED_RANKS]:
                    self._ranks[user, mark.pid, mark.start] = mark.number
            self._note_job(marker.run, job_id(marker.tags.get(JOB_TAG, "")))
            # The monotonic clock is the same for all processes of the host.
            shift = -ahead if marker.offset is None else self._clock.offset - marker.offset
            if marker.end is None and not runs.alive(marker):
                marker.state = State.FAILED
                for phase in marker.phases:
                    if phase.end is None:
                        phase.end, phase.state = wall - shift, State.FAILED
            yield shifted(marker, shift)

    def _found(self, now: float, wall: float, taken: Container[str]) -> Iterator[RunState]:
        """Yield the runs found among the processes; `taken` are the ids of others."""
        for user, given in list(self._named.items()):
            while given and now - given[0] > NAME_INTERVAL_SECONDS:
                given.popleft()
            if not given:
                del self._named[user]
        names: dict[int, str] = {}
        for followed in self._finder.followed:
            if followed.kind.everyday and (followed.ended or wall) - followed.began < EVERYDAY_AGE_SECONDS:
                continue
            name = self._names.get(id(followed))
            if name is None:
                given = self._named.setdefault(self.host.users.account(followed.owner), deque())
                if len(given) >= MAX_GIVEN_NAMES and (followed.ended or wall) - followed.began < NAMED_ANYHOW_SECONDS:
                    continue
                name = self._names[id(followed)] = self._name(followed, taken)
                given.append(now)
            names[id(followed)] = name
            self._note_job(name, followed.job)
            yield followed.state(name)
        self._names = names
        leaders = (
            Leader(followed.pid, followed.start, followed.kind.comms, Workload(followed.kind.name, names[id(followed)]))
            for followed in self._finder.followed
            if followed.ended is None and followed.pid and id(followed) in names
        )
        self.host.found.tell(leaders, self._ranks)

    def _note_job(self, run: str, job: str) -> None:
        if job:
            self._jobs[run] = job

    def _name(self, followed: FoundBenchmark, taken: Container[str]) -> str:
        began = max(0.0, followed.began + self._clock.ahead())
        name = run_id(job_name(followed.job, followed.kind.name), [], began, self.host.users.mark(followed.owner))
        number = 1
        while (unique := numbered(name, number)) in self._names.values() or unique in taken:
            number += 1
        return unique

    def points(self) -> Iterable[Point]:
        """Return the phases of each run; a phase that is repeated shows its last time."""
        # Two names may become one label.
        yield from {point[:2]: point for point in self._points(self._clock.now(), self._clock.ahead())}.values()
        yield from self._finder.points()
        for mark in self.host.runs.jobs.running():
            yield JOB_START_TIMESTAMP_SECONDS.point(mark.start, mark.job, as_label(mark.user))

    def _points(self, now: float, ahead: float) -> Iterator[Point]:
        for run in self._runs:
            limit = MAX_EXPORTED_PHASES if self._user(run) is None else MAX_USER_PHASES
            yield from run_points(shifted(run, ahead), now + ahead, limit)
            if job := self._jobs.get(run.run):
                yield RUN_JOB_INFO.point(1, as_label(run.benchmark), as_label(run.run), job)


def run_points(run: RunState, wall: float, limit: int = MAX_EXPORTED_PHASES) -> Iterator[Point]:
    """Yield the series of one run at a moment, in Unix seconds, with at most `limit` phases."""
    labels = (as_label(run.benchmark), as_label(run.run))
    yield RUN_START_TIMESTAMP_SECONDS.point(run.start, *labels)
    if run.end is not None:
        yield RUN_END_TIMESTAMP_SECONDS.point(run.end, *labels)
    for state in State:
        yield RUN_STATE.point(float(run.state == state), *labels, state)
    if run.scores or any(phase.results for phase in run.phases):
        valid = run.valid and all(phase.valid for phase in run.phases)
        yield RUN_VALID.point(float(valid), *labels)
    if run.total is not None:
        yield RUN_PHASES.point(run.total, *labels)
    for what in run.blind[:MAX_EXPORTED_RESULTS]:
        yield RUN_BLIND_INFO.point(1, *labels, as_label(what))
    yield from _figures(RUN_SCORE, labels, run.scores)
    phases = {as_label(phase.name): phase for phase in run.phases}
    # The newest first: those are kept where a user's quota of series is exceeded.
    for name, phase in list(reversed(phases.items()))[:limit]:
        yield from _phase(phase, (as_label(phase.benchmark or run.benchmark), as_label(run.run), name), wall)


def _phase(phase: PhaseMark, labels: tuple[str, ...], wall: float) -> Iterator[Point]:
    end = phase.end
    active = end is None
    yield PHASE_ACTIVE.point(float(active), *labels)
    yield PHASE_START_TIMESTAMP_SECONDS.point(phase.start, *labels)
    seen = max(0.0, (wall if end is None else end) - phase.start)
    yield PHASE_ELAPSED_SECONDS.point(seen if active or phase.seconds is None else phase.seconds, *labels)
    if phase.expected is not None:
        yield PHASE_EXPECTED_SECONDS.point(phase.expected, *labels)
    if phase.number is not None:
        yield PHASE_NUMBER.point(phase.number, *labels)
    if phase.pace is not None:
        yield PHASE_SECOND_HALF_RATIO.point(phase.pace, *labels)
    if active:
        if phase.progress is not None:
            yield PHASE_PROGRESS_RATIO.point(phase.progress, *labels)
        if phase.moved is not None:
            yield PHASE_STALLED_SECONDS.point(max(0.0, wall - phase.moved), *labels)
        yield PHASE_SOURCE_INFO.point(1, *labels, as_label(phase.source))
        yield from _figures(PHASE_RATE, labels, phase.rates)
    elif phase.results:
        yield PHASE_VALID.point(float(phase.valid), *labels)
    yield from _figures(PHASE_RESULT, labels, phase.results)


def _figures(metric: Metric, labels: tuple[str, ...], results: Iterable[Result]) -> Iterator[Point]:
    found = {(as_label(result.operation), as_label(result.unit)): result.value for result in results}
    for figure, value in list(found.items())[:MAX_EXPORTED_RESULTS]:
        yield metric.point(value, *labels, *figure)


def as_label(text: str) -> str:
    """Return the text of a marker or a benchmark as a label: anybody may have written it."""
    return decode(text.encode("utf-8", "replace")[:MAX_LABEL_BYTES])
