"""The exporter's clock: calls each probe at its pace, and counts failures and costs.

Fast probes share one thread, which asks for a real-time priority: on a full host a sampler at nice 0 loses half of
its samples (measured: 43 to 55 % taken, SCHED_FIFO 99 %). The others share a thread too, since waking another thread
costs as much as a sample (cold caches, the interpreter's lock); only an urgent probe has its own. A probe that blocks
in the kernel keeps its thread and the rest continue in a new one, so that it blinds only itself; when it has been quick
for a while, it returns to them.

While nothing happens on the host, probes are sampled at their rest intervals. CPU time and busy time lose nothing by
that, since they are sums over all the time that has passed; what is full for less than an interval shows as busy only.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Lock, Thread

import msgspec

from pinchpoint.activity import Activity
from pinchpoint.clock import STEADY, Clock
from pinchpoint.cost_limit import CostLimit
from pinchpoint.host.threads import NamedThread
from pinchpoint.metrics import (
    PROBE_CPU_SECONDS,
    PROBE_DURATION_SECONDS,
    PROBE_INTERVAL_SECONDS,
    PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS,
    PROBE_PRESENT,
    PROBE_SUCCESS,
    SAMPLER_CLOCK_SET_SECONDS,
    SAMPLER_DEGRADED,
    SAMPLER_LATE_SAMPLES,
    SAMPLER_LOST_SAMPLES,
    SAMPLER_PRIORITY_INFO,
    SAMPLER_RESTING,
    SAMPLER_SAMPLES,
    SELF_DROPPED_SERIES,
    SELF_SERIES,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import NotPresent, Probe
from pinchpoint.wire.sampletext import can_be_written

__all__ = ["Sampler", "raise_priority"]

POINTS_TIMEOUT_SECONDS = 0.5
"""Seconds that an exposition waits for a probe's sample in progress."""
STOP_TIMEOUT_SECONDS = 0.3
"""Seconds that `stop` waits for samples in progress."""
MAX_BLOCKING_SECONDS = 0.25
"""Seconds that one sample may block its thread before the other probes move to a new one. Checked at this
interval, so at worst after twice as long; on a host at rest every `MAX_PAUSE_SECONDS`."""
APART_SECONDS = 10.0
"""Seconds after its last long sample at which a probe that hung shares a thread again: a full host delays any."""
THREAD_OFFSET_SECONDS = 0.004
"""Offset in seconds at which each thread samples after the previous one, starting with the fast one.

At once they would pass the interpreter's lock back and forth at each read; much later, CPU caches would be cold.
"""
ABSENT_INTERVAL_SECONDS = 1.0
"""Seconds between two looks for what a machine does not have."""
MIN_SLOW_INTERVAL_SECONDS = 1.0
"""Interval from which a probe keeps it although the exporter exceeds its limit of cost."""
MAX_PAUSE_SECONDS = 1.0
"""Longest pause of the thread that says that the sampler is alive, in seconds: even if all its probes are rare, the
service manager learns that in time."""
SHORT_PAUSE_SECONDS = 0.1
"""Pause that is slept through, in seconds: to wait for a bell as well takes twice the CPU time, 0.1 ms."""
LOG_AGAIN_SECONDS = 300.0
"""Seconds after which a continuing failure is logged again."""

log = logging.getLogger(__name__)


class _Entry(msgspec.Struct, eq=False):
    """A probe and its state."""

    probe: Probe
    base: float
    """The sampler's own interval in seconds."""
    due: float
    again: float = math.inf
    """When its probe wants an uncounted sample, in monotonic seconds."""
    interval: float = 0.0
    """Seconds between two samples now."""
    lock: Lock = msgspec.field(default_factory=Lock)
    began: float = math.inf
    """When the sample in progress began."""
    duration: float = 0.0
    cpu: float = 0.0
    """CPU seconds of all samples so far."""
    success: bool = False
    present: bool = True
    last_success: float = 0.0
    samples: int = 0
    late: int = 0
    lost: int = 0
    logged: float = float("-inf")
    error: str = ""

    def __post_init__(self) -> None:
        self.interval = self.full

    @property
    def full(self) -> float:
        """Seconds between two samples at the full rate; it changes where a probe's source fails."""
        return self.probe.interval or max(self.base, self.probe.min_interval)

    @property
    def next(self) -> float:
        """When the next sample is, counted or not."""
        return min(self.due, self.again)

    def skip(self, now: float) -> int:
        """Count the samples that were missed by now as lost, and return how many there were."""
        missed = max(0, int((now - self.due) / self.interval))
        self.lost += missed
        self.due += missed * self.interval
        return missed

    def set_pace(self, resting: bool, factor: int) -> None:
        """Sample at the rest interval, or at the full rate; what is absent, once a second.

        `factor` is that of `CostLimit`. It concerns probes that are sampled several times a second: the others cost
        little, and a phase of some seconds needs each of their samples.
        """
        often = self.full < MIN_SLOW_INTERVAL_SECONDS and not self.probe.steady
        self.interval = self.full * factor if often else self.full
        if resting:
            self.interval = max(self.interval, self.probe.rest_interval or 0.0)
        elif not self.present:
            self.interval = max(self.interval, ABSENT_INTERVAL_SECONDS)


class _Lane(msgspec.Struct, eq=False):
    """Probes that share a thread: one is sampled after the other."""

    entries: list[_Entry]
    lock: Lock = msgspec.field(default_factory=Lock)
    """Held while an entry is sampled or moved to another lane."""
    beats: bool = False
    """Whether its thread is the one that says that the sampler is alive."""
    behind: float = 0.0
    """Seconds by which its samples are later than those of the first lane."""
    resting: bool = False
    watched: bool = False
    """Whether a thread watches whether a probe hangs."""
    apart: float | None = None
    """When its probe, which once hung, had its last long sample, in monotonic seconds; None if it never did."""

    @property
    def due(self) -> float:
        """When the next sample is, in monotonic seconds."""
        return min(entry.next for entry in self.entries)


class Sampler:
    """Runs probes. `clock` is monotonic and `cpu` the CPU time of the calling thread, in seconds; `unix` has Unix time.

    `beat` is called at least every `MAX_PAUSE_SECONDS` while the most important thread takes samples: the one of the
    fast probes, if there are any. A slow probe that hangs does not stop it. `admit` returns the points that are shown.
    With `activity`, probes rest while nothing happens; with `limit`, they are sampled less often where they cost more.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        interval: float = 0.1,
        *,
        clock: Callable[[], float] = time.monotonic,
        unix: Clock = STEADY,
        cpu: Callable[[], float] = time.thread_time,
        priority: Callable[[], tuple[str, str]] = lambda: ("other", "not asked for"),
        beat: Callable[[], None] = lambda: None,
        admit: Callable[[Sequence[Point]], list[Point]] = list,
        activity: Activity | None = None,
        limit: CostLimit | None = None,
    ) -> None:
        self._clock = clock
        self._unix = unix
        self._cpu = cpu
        self._ask_priority = priority
        self._beat = beat
        self._admit = admit
        self._activity = activity
        self._bell = activity or Activity()
        self._limit = limit or CostLimit(math.inf)
        self._priority = ("other", "not started")
        self._stop = Event()
        self._threads: list[Thread] = []
        self._beginning = Lock()
        self._shared = _Lane([])
        """The lane of all probes that are neither fast nor urgent, and don't hang."""
        self._dropped = 0
        self._dropped_lock = Lock()
        """Scrapes are answered in threads of their own."""
        self._told: set[str] = set()
        """Metrics with a dropped series: each is logged once."""
        now = clock()
        self._entries = [_Entry(probe, interval, now) for probe in probes]
        self._whole = _Lane(self._entries, beats=True)

    def start(self) -> None:
        """Sample in threads until `stop`; each probe has its first sample at once.

        Raises RuntimeError if the host refuses a thread; then none is left.
        """
        if self._activity is not None:
            self._activity.note(self._clock())
        fast = [entry for entry in self._entries if entry.probe.fast]
        urgent = [entry for entry in self._entries if entry.probe.urgent and not entry.probe.fast]
        shared = [entry for entry in self._entries if not entry.probe.urgent and not entry.probe.fast]
        lanes = [("sampler", fast), *((f"probe-{entry.probe.name}"[:15], [entry]) for entry in urgent)]
        beats = True
        try:
            for place, (name, entries) in enumerate([*lanes, ("probes", shared)]):
                if entries:
                    lane = _Lane(entries, beats=beats, behind=place * THREAD_OFFSET_SECONDS)
                    if entries is shared:
                        self._shared = lane
                    self._begin(name, self._run, lane)
                    beats = False
        except RuntimeError:
            self.stop()
            raise

    def _begin(self, name: str, target: Callable[..., None], *arguments: object) -> None:
        thread = NamedThread(target=target, args=arguments, name=name, daemon=True)
        with self._beginning:
            thread.start()
            self._threads = [*filter(Thread.is_alive, self._threads), thread]

    def stop(self) -> None:
        """End the threads; one that hangs in the kernel is left behind and ends with the process."""
        self._stop.set()
        self._bell.wake()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for entry in self._entries:
            if entry.lock.acquire(blocking=False):
                entry.probe.close()
                entry.lock.release()

    def _run(self, lane: _Lane) -> None:
        if lane.entries[0].probe.fast:
            self._priority = self._ask_priority()
        elif lane.entries[0].probe.urgent:
            self._ask_priority()
        elif len(lane.entries) > 1:
            with lane.lock:
                self._watched(lane)
        self._step(lane)
        for entry in lane.entries:
            entry.due += lane.behind
        while not self._returned(lane) and not self._ended(lane):
            self._step(lane)
            if lane.beats:
                self._beat()

    def _watched(self, lane: _Lane) -> bool:
        """Watch over a lane, whose lock is held; return whether that is possible."""
        if not lane.watched:
            try:
                self._begin("probes-watch", self._watch, lane)
                lane.watched = True
            except RuntimeError as error:
                log.warning("%s: a probe that hangs will hold up the others", error)
        return lane.watched

    def _returned(self, lane: _Lane) -> bool:
        """Return whether the probe of a lane was given back to the shared lane, since it no longer hangs."""
        if lane.apart is None:
            return False
        now = self._clock()
        if any(entry.duration >= MAX_BLOCKING_SECONDS for entry in lane.entries):
            lane.apart = now
        if now - lane.apart < APART_SECONDS:
            return False
        shared = self._shared
        with shared.lock:
            # If it is another one by now, a probe hangs.
            if shared is not self._shared or not self._watched(shared):
                return False
            shared.entries = [*shared.entries, *lane.entries]
        self._bell.wake()
        return True

    def _ended(self, lane: _Lane) -> bool:
        """Wait for the next sample of a lane; return whether the sampler was stopped meanwhile."""
        pause = lane.due - self._clock()
        if lane.beats:
            pause = min(MAX_PAUSE_SECONDS, pause)
        if 0 < pause <= SHORT_PAUSE_SECONDS and not lane.resting:
            time.sleep(pause)
        elif pause > 0:
            self._bell.wait(pause, lambda: self._stop.is_set() or lane.resting != self._rests())
        return self._stop.is_set()

    def _rests(self) -> bool:
        return self._activity is not None and self._activity.rests(self._clock())

    def _watch(self, lane: _Lane) -> None:
        """Leave a lane to a probe that hangs, and move the others to a new one."""
        while not self._stop.wait(MAX_PAUSE_SECONDS if lane.resting else MAX_BLOCKING_SECONDS):
            with lane.lock:
                now = self._clock()
                hangs = [entry for entry in lane.entries if now - entry.began >= MAX_BLOCKING_SECONDS]
                remaining = [entry for entry in lane.entries if entry not in hangs]
                if not hangs or not remaining:
                    continue
                self._shared = others = _Lane(remaining, beats=lane.beats, resting=lane.resting)
                try:
                    self._begin("probes", self._run, others)
                except RuntimeError as error:
                    self._shared = lane
                    log.warning("%s: probes wait for %s", error, hangs[0].probe.name)
                    continue
                lane.entries, lane.beats, lane.apart = hangs, False, now
                return

    def hold_full_rate(self, seconds: float) -> None:
        """Sample at the full rate for the next `seconds`, whatever happens."""
        if self._activity is not None:
            self._activity.note(self._clock(), seconds)

    def step(self) -> float:
        """Sample every probe that is due and return when the next one will be, in monotonic seconds."""
        self._step(self._whole)
        return self._whole.due

    def _set_pace(self, lane: _Lane) -> None:
        """Let a lane rest, or let it sample all of its probes at once and go on at the full rate."""
        now, resting = self._clock(), self._rests()
        if resting == lane.resting:
            return
        lane.resting = resting
        if resting and lane.beats:
            self._limit.reset()
        with lane.lock:
            for entry in lane.entries:
                entry.skip(now)  # these were due at the interval until now
                entry.set_pace(resting, self._limit.factor)
                if not resting:
                    entry.due = now + lane.behind

    def _step(self, lane: _Lane) -> None:
        self._set_pace(lane)
        if lane.beats:  # one thread alone takes these steps
            self._limit.look(self._clock())
        for entry in lane.entries:
            if (now := self._clock()) < entry.next:
                continue
            with lane.lock:
                if entry not in lane.entries:
                    break  # others continue with it
            counted = now >= entry.due
            self._sample(entry, now, counted=counted)
            wanted = entry.probe.again if entry.success else None
            entry.again = math.inf if wanted is None else now + wanted
            if counted:
                entry.set_pace(lane.resting, self._limit.factor)
                entry.due += entry.interval

    def _sample(self, entry: _Entry, now: float, *, counted: bool) -> None:
        if counted and (entry.skip(now) or now - entry.due > entry.interval / 2):
            entry.late += 1
        used = self._cpu()
        with entry.lock:
            entry.began = now
            try:
                entry.probe.sample(now)
            except NotPresent as absence:
                entry.success, entry.present = True, False
                self._note(entry, now, f"not present: {absence}", logging.DEBUG)
            except Exception as error:  # one broken probe never stops another
                entry.success, entry.present = False, True
                self._note(entry, now, f"{type(error).__name__}: {error}", logging.WARNING)
            else:
                entry.success = entry.present = True
                entry.error = ""
            entry.samples += counted
            entry.began = math.inf
            if entry.success:
                entry.last_success = self._unix.now()
        entry.duration = self._clock() - now
        entry.cpu += self._cpu() - used

    def _note(self, entry: _Entry, now: float, message: str, level: int) -> None:
        if message != entry.error or now - entry.logged >= LOG_AGAIN_SECONDS:
            entry.error, entry.logged = message, now
            log.log(level, "probe %s: %s", entry.probe.name, message)

    def points(self) -> list[Point]:
        """Return every series now. A probe that hangs in a sample counts as failed, and has no series unless they last.

        What cannot be written is omitted and counted: one value that is not a float would fail the whole exposition and
        the recording.
        """
        found: list[Point] = []
        ahead = self._unix.ahead()
        for entry in self._entries:
            name = entry.probe.name
            # However many probes hang, do not wait for any that has already exceeded its time.
            idle = entry.lock.acquire(timeout=max(0.0, POINTS_TIMEOUT_SECONDS - max(0.0, self._clock() - entry.began)))
            # Read it only now: a first sample that we waited for has succeeded since.
            success = entry.success
            try:
                if entry.present and (idle or entry.probe.lasting):
                    found.extend(entry.probe.points())
            except Exception as error:  # see _sample
                success = False
                self._note(entry, self._clock(), f"{type(error).__name__}: {error}", logging.WARNING)
            finally:
                if idle:
                    entry.lock.release()
                else:
                    success = False
            found.append(PROBE_DURATION_SECONDS.point(entry.duration, name))
            found.append(PROBE_CPU_SECONDS.point(entry.cpu, name))
            found.append(PROBE_SUCCESS.point(float(success), name))
            found.append(PROBE_PRESENT.point(float(entry.present), name))
            if entry.last_success:
                found.append(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS.point(entry.last_success + ahead, name))
            found.append(PROBE_INTERVAL_SECONDS.point(entry.interval, name))
            found.append(SAMPLER_SAMPLES.point(entry.samples, name))
            found.append(SAMPLER_LATE_SAMPLES.point(entry.late, name))
            found.append(SAMPLER_LOST_SAMPLES.point(entry.lost, name))
        found.append(SAMPLER_CLOCK_SET_SECONDS.point(ahead))
        found.append(SAMPLER_PRIORITY_INFO.point(1, *self._priority))
        found.append(SAMPLER_RESTING.point(float(self._rests())))
        found.append(SAMPLER_DEGRADED.point(self._limit.factor if self._limit.factor > 1 else 0))
        found.extend(self.constants())
        kept = list(filter(can_be_written, found))
        dropped = self._drop(found, len(kept))
        kept = self._admit(kept)
        kept.append(SELF_DROPPED_SERIES.point(dropped))
        kept.append(SELF_SERIES.point(len(kept) + 1))
        return kept

    def _drop(self, found: Sequence[Point], kept: int) -> int:
        """Return how many series were dropped so far, given those of this exposition and how many of them are kept."""
        with self._dropped_lock:
            if kept < len(found):
                self._dropped += len(found) - kept
                for metric in {point.metric.name for point in found if not can_be_written(point)} - self._told:
                    self._told.add(metric)
                    log.warning("%s: a series is left out: its value or a label cannot be written", metric)
            return self._dropped

    def constants(self) -> Iterable[Point]:
        """Return the series that belong to no probe."""
        return ()


def raise_priority() -> tuple[str, str]:
    """Give the calling thread the best available priority; return the policy and why it is not better.

    SCHED_RESET_ON_FORK keeps children and new threads at a normal priority (man 7 sched).
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return "fifo", ""
    except OSError as error:
        reason = f"SCHED_FIFO: {error.strerror}"
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # in Linux the nice value belongs to the thread (man 2 setpriority)
        return "nice", reason
    except OSError as error:
        return "other", f"{reason}; nice: {error.strerror}"
