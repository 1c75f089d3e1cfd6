"""What one host did between two snapshots: how full its resources were, and who used its CPUs.

Everything is derived from the two snapshots alone, so that a live view, the table of a run and a verdict from a
recording agree. A share is a fraction of the time between the snapshots, from 0 to 1.

A snapshot may come from an untrusted HTTP server: a value that no series of Pinchpoint can have (negative, infinite,
not a number) is treated as missing, and missing values are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

import msgspec

from pinchpoint.diagnosis.pair import SnapshotPair
from pinchpoint.diagnosis.progress import ActivePhase, Run, active_phases, current_runs
from pinchpoint.diagnosis.series import MAX_VALUE, label, picked
from pinchpoint.metrics import (
    CEPH_CLIENT_CLUSTER_INFO,
    CEPH_DAEMON_INFO,
    CEPH_DAEMON_STUCK,
    CEPH_SOCKET_PROBLEM_INFO,
    CPU_CLOCK_RATIO,
    CPU_FREQUENCY_HERTZ,
    CPU_FREQUENCY_MAX_HERTZ,
    CPU_GOVERNOR_INFO,
    CPU_IDLE_EXIT_SECONDS,
    CPU_IDLE_STATE_DISABLED_CPUS,
    CPU_IDLE_STATE_EXIT_LATENCY_SECONDS,
    CPU_IDLE_STATE_SECONDS,
    MEMORY_ALLOCATION_STALLS,
    MEMORY_DIRTY_BYTES,
    MEMORY_DIRTY_THRESHOLD_BYTES,
    MEMORY_WRITEBACK_BYTES,
    NETWORK_NAMESPACE_HIDDEN_INFO,
    OSD_KV_SYNC_SECONDS,
    OSD_KV_SYNCS,
    OSD_OP_SECONDS,
    OSD_OPS,
    PROBE_INTERVAL_SECONDS,
    PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS,
    PROBE_PRESENT,
    PROBE_SUCCESS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_RUNQUEUE_SECONDS,
    RESOURCE_SATURATED_SECONDS,
    RESOURCE_THRESHOLD_RATIO,
    RUN_JOB_INFO,
    SAMPLER_DEGRADED,
    SAMPLER_LOST_SAMPLES,
    SAMPLER_SAMPLES,
    SELF_CPU_SECONDS,
    STORAGE_DEVICE_INFO,
    THREAD_CPU_SECONDS,
    THREAD_RUNQUEUE_SECONDS,
    THREADS,
    UNKNOWN_THREAD_BUSY_RATIO,
    UNVERIFIED_PROCESSES,
    WORKLOAD_CLIENT_INFO,
    WORKLOAD_OWNER_INFO,
    WORKLOAD_RANK_RATE,
    WORKLOAD_RANK_SECONDS,
    WORKLOAD_RANK_WORK,
    WORKLOAD_RANKS,
    WORKLOAD_RANKS_WAITED_RATIO,
    WORKLOAD_SECONDS,
    WORKLOAD_SLOWEST_RANK,
    WORKLOAD_SLOWEST_RANK_SECONDS,
)
from pinchpoint.model import Labels, Metric, Snapshot, Snapshots
from pinchpoint.resources import all_resources, entry_of
from pinchpoint.threads.roleless import RESOURCE as UNKNOWN_THREAD

__all__ = [
    "BlindProbe",
    "Clock",
    "Fullness",
    "Idle",
    "IdleState",
    "MemoryUse",
    "Own",
    "RankUse",
    "RequestTime",
    "ResourceUse",
    "RoleUse",
    "SeenThreads",
    "SilentDaemon",
    "StorageDevice",
    "UnknownThread",
    "Usage",
    "WorkloadUse",
    "unknown_threads",
    "usage",
    "usages",
    "whole_use",
]

PARTS = {entry.inside: name for name, entry in all_resources().items() if entry.inside}
"""Parts of a stage that are measured separately."""
MIN_SPAN_SECONDS = 1e-3
"""Minimum distance of two usable snapshots in seconds."""
MAX_CPUS = 8192
"""Largest number of CPUs of a host (the largest NR_CPUS of x86, arch/x86/Kconfig, Linux 6.1)."""
FULL_TIME_SHARE = 0.5
"""A resource that was saturated for this share of an interval was full in it."""
NEAR_THRESHOLD_RATIO = 0.75
"""A resource is near its threshold from this share of the threshold ..."""
NEAR_SATURATED_SHARE = 0.05
"""... or when it was saturated for this share of the interval, however idle otherwise."""
STALE_INTERVALS = 3.0
"""A probe is blind when its last success is older than this many of its intervals ..."""
MIN_STALE_SECONDS = 2.0
"""... and than this many seconds: a probe that samples 20 times a second is late on a full host, but not blind."""
MAX_PROBE_INTERVAL_SECONDS = 60.0
"""Assumed interval in seconds of a probe whose exporter does not report it: none is longer."""


class Fullness(IntEnum):
    """A resource's state relative to its threshold, over one interval."""

    NORMAL = 0
    NEAR = 1
    FULL = 2


class ResourceUse(msgspec.Struct, frozen=True):
    """How full one resource was."""

    resource: str
    owner: str
    serves: tuple[str, ...]
    busy: float
    """Share of the time in which it could take no more work."""
    saturated: float
    """Share of the time in samples at or above its threshold."""
    runqueue: float | None
    """The share of `busy` spent waiting for a CPU; None if not measured."""
    threshold: float | None
    """Busy share from which it counts as full; None if the exporter does not say."""

    @property
    def level(self) -> Fullness:
        """Normal, near its threshold, or full.

        Fullness is judged by `saturated` and not by mean busy: a disk that is busy without a queue is not full, and a
        thread that is full for a tenth of the time is worth a look although its mean is low.
        """
        if self.saturated >= FULL_TIME_SHARE:
            return Fullness.FULL
        near = self.threshold is not None and self.busy >= NEAR_THRESHOLD_RATIO * self.threshold
        return Fullness.NEAR if near or self.saturated >= NEAR_SATURATED_SHARE else Fullness.NORMAL


class RoleUse(msgspec.Struct, frozen=True):
    """What the threads of one role used."""

    role: str
    owner: str
    cpu: float
    """CPUs: seconds on a CPU per second."""
    runqueue: float | None
    """Mean number of threads waiting for a CPU; None if not measured."""
    threads: int


class IdleState(msgspec.Struct, frozen=True):
    """One idle state of the CPUs."""

    state: str
    share: float
    """Share of the time that the CPUs spent in it, on average."""
    disabled_cpus: int


class Idle(msgspec.Struct, frozen=True):
    """How the CPUs slept."""

    states: tuple[IdleState, ...]
    """Shallowest first, as far as their exit latencies are known."""
    lost: float | None
    """Mean share of the CPUs' time lost leaving idle states (entries x exit latency)."""
    lost_worst: float | None
    """The same for the CPU that lost most."""


class Clock(msgspec.Struct, frozen=True):
    """How fast the CPUs ran at the later snapshot."""

    mean: float
    """Hertz."""
    max: float | None
    """The hardware's maximum in hertz, mean over the CPUs (they may differ)."""
    ratio: float | None
    """`mean` divided by `max`."""
    busy_ratio: float | None
    """The clock that work saw divided by the maximum: CPUs weighted by their busy time."""
    governors: tuple[str, ...]


class MemoryUse(msgspec.Struct, frozen=True):
    """Page cache that waits for writeback, in bytes at the later snapshot, and stalls; None if not known."""

    dirty: float | None
    writeback: float | None
    dirty_threshold: float | None
    stalls: float | None
    """Allocations that had to wait for reclaim, in the interval."""


class BlindProbe(msgspec.Struct, frozen=True):
    """A probe that sees nothing although its source exists."""

    probe: str
    failing: bool
    """Whether its last sample failed; else it has stopped sampling."""
    age: float | None
    """Seconds since its last success; None if it never had one."""


class SilentDaemon(msgspec.Struct, frozen=True):
    """A Ceph daemon whose admin socket does not answer."""

    daemon: str
    reason: str
    stuck: bool
    """Whether the daemon itself is stuck."""


class RankUse(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of one benchmark on the host got on beside each other."""

    working: int
    done: int
    """Ranks at the later snapshot."""
    worked: float
    waited: float
    """Ranks that worked, and that waited for the others, on average."""
    since: float
    """Share of their time in which they waited, since they last began together."""
    rates: Mapping[str, float]
    """Units per second of the slowest, the median and the fastest rank, and their deviation."""
    work: Mapping[str, float]
    """What the slowest, the median and the furthest rank have done, in units."""
    unit: str
    """``bytes`` or ``waits``; empty if no rank works."""
    slowest: int | None
    """Its number; None if none works."""
    numbered: str
    """What gives the number: ``mpi``, ``start``, or ``thread``."""
    waits: Mapping[str, float]
    """Seconds per second of the slowest rank, by wait class."""


class WorkloadUse(msgspec.Struct, frozen=True):
    """What the processes of one benchmark did with their time on the host."""

    benchmark: str
    run: str
    """Empty if not known here, as on hosts that only have ranks of it."""
    waits: Mapping[str, float]
    """Processes in each wait class, on average."""
    owners: tuple[str, ...]
    """The owner labels of its processes in resources."""
    clients: tuple[str, ...]
    """The Ceph clients that serve it."""
    ranks: RankUse | None = None
    """None if only one process works."""


class RequestTime(msgspec.Struct, frozen=True):
    """How long one daemon took for requests of one kind."""

    what: str
    """``commit``, ``read``."""
    daemon: str
    count: float
    seconds: float
    """Mean of one of them."""


class StorageDevice(msgspec.Struct, frozen=True):
    """A disk under an owner's open files."""

    owner: str
    device: str
    bdi: str
    """The backing device, as writeback names it."""


class Own(msgspec.Struct, frozen=True):
    """What Pinchpoint itself did on the host."""

    cpu: float | None
    """CPUs: seconds on a CPU per second."""
    samples: float
    """Samples taken in the interval, by all probes."""
    lost: float
    """Samples that were due in the interval but not taken."""
    degraded: float = 0.0
    """How many times rarer than configured samples are, because the exporter exceeded its cost limit; 0 if not so."""

    @property
    def lost_share(self) -> float:
        """Share of the due samples that were lost."""
        due = self.samples + self.lost
        return self.lost / due if due > 0 else 0.0


SeenThreads: TypeAlias = Mapping[str, Sequence[tuple[str, str, float]]]
"""Thread, process and busy share of the hottest threads without a role, hottest first, by host."""


class UnknownThread(msgspec.Struct, frozen=True):
    """A hot thread that no role names."""

    thread: str
    process: str
    busy: float
    """Share of the last seconds (or of a whole phase) in which it ran or waited for a CPU."""
    saturated: float
    """Share of the time in samples in which it was at its threshold. Of the hottest thread, also those in which another
    thread without a role was; of others, at least so much."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on one host between two snapshots."""

    time: float
    """Unix time of the later snapshot, in seconds."""
    seconds: float
    """Time between the snapshots; 0 where they have no time between them, and then nothing else is known."""
    resources: tuple[ResourceUse, ...] = ()
    """Fullest first."""
    roles: tuple[RoleUse, ...] = ()
    """Hottest first."""
    phases: tuple[ActivePhase, ...] = ()
    """Those in progress, oldest first."""
    runs: tuple[Run, ...] = ()
    """Those in progress, or ended less than `RECENT_END_SECONDS` ago; oldest first."""
    idle: Idle | None = None
    clock: Clock | None = None
    memory: MemoryUse = MemoryUse(None, None, None, None)
    blind: tuple[BlindProbe, ...] = ()
    silent: tuple[SilentDaemon, ...] = ()
    absent: tuple[str, ...] = ()
    """Probes whose source this machine does not have."""
    own: Own = Own(None, 0.0, 0.0)
    workloads: tuple[WorkloadUse, ...] = ()
    """Busiest first."""
    clusters: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """The Ceph clusters (fsid) of daemons and clients, by their names as owners of resources; of those that say it."""
    jobs: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The batch jobs of the runs that began on the host, by run."""
    devices: tuple[StorageDevice, ...] = ()
    requests: tuple[RequestTime, ...] = ()
    """What OSDs had to do, and how long it took."""
    unknown: tuple[UnknownThread, ...] = ()
    """Threads without a role that did much, hottest first."""
    hidden: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Owners whose links are in another network namespace and cannot be seen, with the reason."""
    unverified: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Processes at the later snapshot that only have the name of a daemon, by the class that this would have."""


def usage(before: Snapshot, after: Snapshot) -> Usage:
    """Return what happened between two snapshots of one host; an empty Usage if `after` is not later."""
    seconds = after.time - before.time
    if not MIN_SPAN_SECONDS <= seconds < MAX_VALUE:
        return Usage(time=after.time, seconds=0.0)
    window = SnapshotPair(before, after, seconds)
    phases = active_phases(after)
    resources = _resources(window)
    return Usage(
        time=after.time,
        seconds=seconds,
        resources=resources,
        roles=_roles(window),
        phases=phases,
        runs=current_runs(after, phases),
        idle=_idle(window),
        clock=_clock(window),
        memory=_memory(window),
        blind=_blind(window),
        silent=_silent(window),
        absent=tuple(sorted(probe for probe, present in window.by(PROBE_PRESENT, "probe") if not present)),
        own=_own(window),
        workloads=_workloads(window),
        clusters=_clusters(window),
        jobs={label(labels, "run"): label(labels, "job_id") for labels, _ in window.now(RUN_JOB_INFO)},
        devices=_devices(window),
        requests=tuple(_requests(window)),
        unknown=_unknown(window, resources),
        hidden={
            label(labels, "owner"): label(labels, "reason") for labels, _ in window.now(NETWORK_NAMESPACE_HIDDEN_INFO)
        },
        unverified=dict(window.by(UNVERIFIED_PROCESSES, "class")),
    )


def whole_use(use: ResourceUse, others: Mapping[tuple[str, str], ResourceUse]) -> ResourceUse:
    """Return a stage as full as a part of it that is measured separately, if that says more.

    BlueStore's commits wait for the disk inside the time of their thread, which CPU and run-queue time do not show.
    `others` has what is known of the host, by resource and owner.
    """
    part = others.get((PARTS.get(use.resource, ""), use.owner))
    if part is None or part.busy <= use.busy:
        return use
    waited = None if use.runqueue is None else use.runqueue * use.busy / part.busy
    return msgspec.structs.replace(use, busy=part.busy, saturated=part.saturated, runqueue=waited)


def usages(before: Snapshots, after: Snapshots, seen: SeenThreads | None = None) -> dict[str, Usage]:
    """Return what happened on each host that both moments have.

    `seen` has thread, process and busy share of the hottest threads without a role in between, by host; otherwise the
    later snapshot's count.
    """
    found = {host: usage(before[host], after[host]) for host in before.keys() & after.keys()}
    if seen is None:
        return found
    return {
        host: msgspec.structs.replace(use, unknown=unknown_threads(use.resources, seen.get(host, ())))
        for host, use in found.items()
    }


def _by_tasks(_: Labels) -> str:
    return "tasks"


def _by_waits(_: Labels) -> str:
    return "waits"


def _by_its_probe(labels: Labels) -> str:
    return entry_of(label(labels, "resource")).probe or "tasks"


def _resources(window: SnapshotPair) -> tuple[ResourceUse, ...]:
    # A resource's first sample may have begun before the interval.
    most = 2 * window.seconds
    saturated = dict(window.gains(RESOURCE_SATURATED_SECONDS, most, _by_its_probe))
    runqueue = {
        picked(labels, "owner", "resource"): gain
        for labels, gain in window.gains(RESOURCE_RUNQUEUE_SECONDS, most, _by_its_probe)
    }
    thresholds = dict(window.by(RESOURCE_THRESHOLD_RATIO, "resource"))
    sampled = {"": window.seconds}
    found = []
    for labels, busy in window.gains(RESOURCE_BUSY_SECONDS, most, _by_its_probe):
        owner, name, serves = picked(labels, "owner", "resource", "serves")
        probe = entry_of(name).probe
        if (seconds := sampled.get(probe)) is None:
            seconds = sampled[probe] = window.sampled(probe)
        if seconds < MIN_SPAN_SECONDS:
            continue
        waited = runqueue.get((owner, name))
        found.append(
            ResourceUse(
                resource=name,
                owner=owner,
                serves=_words(serves),
                busy=min(1.0, busy / seconds),
                saturated=min(1.0, saturated.get(labels, 0.0) / seconds),
                runqueue=None if waited is None else min(1.0, waited / busy) if busy > 0 else 0.0,
                threshold=thresholds.get(name),
            )
        )
    return tuple(sorted(found, key=_fullness))


@lru_cache(1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _fullness(use: ResourceUse) -> tuple[float, float, str, str]:
    return -use.saturated, -use.busy / (use.threshold or 1.0), use.resource, use.owner


def _roles(window: SnapshotPair) -> tuple[RoleUse, ...]:
    most = MAX_CPUS * window.seconds
    waits = dict(window.gains(THREAD_RUNQUEUE_SECONDS, most, _by_tasks))
    threads = dict(window.now(THREADS))
    found = []
    for labels, cpu in window.gains(THREAD_CPU_SECONDS, most, _by_tasks):
        owner, role = picked(labels, "owner", "role")
        waited = waits.get(labels)
        runqueue = None if waited is None else waited / window.seconds
        found.append(RoleUse(role, owner, cpu / window.seconds, runqueue, int(threads.get(labels, 0))))
    return tuple(sorted(found, key=_heat))


def _heat(use: RoleUse) -> tuple[float, str, str]:
    return -use.cpu - (use.runqueue or 0.0), use.role, use.owner


def _idle(window: SnapshotPair) -> Idle | None:
    seconds = window.sampled("cpuidle")
    if seconds < MIN_SPAN_SECONDS:
        return None
    totals: dict[str, float] = {}
    cpus: set[str] = set()
    for labels, gain in window.gains(CPU_IDLE_STATE_SECONDS, seconds, None):
        cpus.add(label(labels, "cpu"))
        state = label(labels, "state")
        totals[state] = totals.get(state, 0.0) + gain
    latency = dict(window.by(CPU_IDLE_STATE_EXIT_LATENCY_SECONDS, "state"))
    disabled = dict(window.by(CPU_IDLE_STATE_DISABLED_CPUS, "state"))
    states = tuple(
        IdleState(state, min(1.0, totals[state] / len(cpus) / seconds), int(disabled.get(state, 0)))
        for state in sorted(totals, key=lambda state: (latency.get(state, 0.0), state))
    )
    lost = [min(1.0, gain / seconds) for _, gain in window.gains(CPU_IDLE_EXIT_SECONDS, seconds, None)]
    if not states and not lost:
        return None
    return Idle(states, sum(lost) / len(lost) if lost else None, max(lost, default=None))


def _clock(window: SnapshotPair) -> Clock | None:
    hertz = [value for _, value in window.now(CPU_FREQUENCY_HERTZ)]
    if not hertz:
        return None
    limits = [value for _, value in window.now(CPU_FREQUENCY_MAX_HERTZ)]
    mean = sum(hertz) / len(hertz)
    limit = sum(limits) / len(limits) if limits else None
    governors = {governor for governor, used in window.by(CPU_GOVERNOR_INFO, "governor") if used}
    # A maximum under 1 Hz is not a clock, and dividing by it gives no ratio.
    ratio = mean / limit if limit is not None and limit >= 1 else None
    busy = window.value(CPU_CLOCK_RATIO, cpus="busy")
    return Clock(mean, limit, ratio, busy, tuple(sorted(governors)))


def _memory(window: SnapshotPair) -> MemoryUse:
    return MemoryUse(
        window.value(MEMORY_DIRTY_BYTES),
        window.value(MEMORY_WRITEBACK_BYTES),
        window.value(MEMORY_DIRTY_THRESHOLD_BYTES),
        window.gain(MEMORY_ALLOCATION_STALLS),
    )


def _blind(window: SnapshotPair) -> tuple[BlindProbe, ...]:
    last = dict(window.by(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS, "probe"))
    intervals = dict(window.by(PROBE_INTERVAL_SECONDS, "probe"))
    # The times are by the exporter's clock, not ours: its present is the newest of them, or, if all
    # its probes stand still, the earlier newest one plus the time between the snapshots.
    earlier = [value for _, value in window.then(PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS)]
    passed = window.seconds + window.set_forward
    now = max([*last.values(), *(value + passed for value in earlier)], default=0.0)
    found = []
    for probe, success in sorted(window.by(PROBE_SUCCESS, "probe")):
        age = max(0.0, now - last[probe]) if probe in last else None
        limit = max(MIN_STALE_SECONDS, STALE_INTERVALS * intervals.get(probe, MAX_PROBE_INTERVAL_SECONDS))
        if not success or (age is not None and age > limit):
            found.append(BlindProbe(probe, not success, age))
    return tuple(found)


def _silent(window: SnapshotPair) -> tuple[SilentDaemon, ...]:
    stuck = dict(window.by(CEPH_DAEMON_STUCK, "daemon"))
    reasons = {label(labels, "daemon"): label(labels, "reason") for labels, _ in window.now(CEPH_SOCKET_PROBLEM_INFO)}
    return tuple(SilentDaemon(daemon, reason, bool(stuck.get(daemon))) for daemon, reason in sorted(reasons.items()))


def _own(window: SnapshotPair) -> Own:
    seconds = window.sampled("self")
    cpu = window.gain(SELF_CPU_SECONDS)
    return Own(
        None if cpu is None or seconds < MIN_SPAN_SECONDS else cpu / seconds,
        window.gain(SAMPLER_SAMPLES) or 0.0,
        window.gain(SAMPLER_LOST_SAMPLES) or 0.0,
        window.value(SAMPLER_DEGRADED) or 0.0,
    )


def _workloads(window: SnapshotPair) -> tuple[WorkloadUse, ...]:
    seconds = window.sampled("waits")
    if seconds < MIN_SPAN_SECONDS:
        return ()
    waits: dict[tuple[str, str], dict[str, float]] = {}
    most = MAX_CPUS * window.seconds
    for labels, gain in window.gains(WORKLOAD_SECONDS, most, _by_waits):
        key = label(labels, "benchmark"), label(labels, "run")
        waits.setdefault(key, {})[label(labels, "wait")] = gain / seconds
    owners = _names(window, WORKLOAD_OWNER_INFO, "owner")
    clients = _names(window, WORKLOAD_CLIENT_INFO, "client")
    ranks = _ranks(window, seconds)
    found = [
        WorkloadUse(*key, time, owners.get(key, ()), clients.get(key, ()), ranks.get(key))
        for key, time in waits.items()
    ]
    return tuple(sorted(found, key=lambda use: (use.waits.get("idle", 0.0) - sum(use.waits.values()), use.run)))


def _ranks(window: SnapshotPair, seconds: float) -> dict[tuple[str, str], RankUse]:
    """Return the ranks of each benchmark and run that has several."""

    def by(found: Iterable[tuple[Labels, float]], name: str) -> dict[tuple[str, str], dict[str, float]]:
        figures: dict[tuple[str, str], dict[str, float]] = {}
        for labels, value in found:
            benchmark, run, which = picked(labels, "benchmark", "run", name)
            figures.setdefault((benchmark, run), {})[which] = value
        return figures

    most = MAX_CPUS * window.seconds
    numbers = by(window.now(WORKLOAD_RANKS), "state")
    times = by(window.gains(WORKLOAD_RANK_SECONDS, most, _by_waits), "state")
    waits = by(window.gains(WORKLOAD_SLOWEST_RANK_SECONDS, 2 * window.seconds, _by_waits), "wait")
    rates, work = by(window.now(WORKLOAD_RANK_RATE), "which"), by(window.now(WORKLOAD_RANK_WORK), "which")
    units = {picked(labels, "benchmark", "run"): label(labels, "unit") for labels, _ in window.now(WORKLOAD_RANK_RATE)}
    since = {picked(labels, "benchmark", "run"): value for labels, value in window.now(WORKLOAD_RANKS_WAITED_RATIO)}
    slowest = by(window.now(WORKLOAD_SLOWEST_RANK), "numbered")
    found = {}
    for key, states in numbers.items():
        numbered, number = next(iter(slowest.get(key, {}).items()), ("", None))
        time = times.get(key, {})
        found[key] = RankUse(
            working=int(states.get("working", 0)),
            done=int(states.get("done", 0)),
            worked=time.get("working", 0.0) / seconds,
            waited=time.get("done", 0.0) / seconds,
            since=min(1.0, since.get(key, 0.0)),
            rates=rates.get(key, {}),
            work=work.get(key, {}),
            unit=units.get(key, ""),
            slowest=None if number is None else int(number),
            numbered=numbered,
            waits={wait: value / seconds for wait, value in waits.get(key, {}).items()},
        )
    return found


def _names(window: SnapshotPair, metric: Metric, by: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return one label of an info metric's series, by benchmark and run."""
    found: dict[tuple[str, str], set[str]] = {}
    for labels, _ in window.now(metric):
        found.setdefault((label(labels, "benchmark"), label(labels, "run")), set()).add(label(labels, by))
    return {key: tuple(sorted(names)) for key, names in found.items()}


def _clusters(window: SnapshotPair) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for metric, by in ((CEPH_DAEMON_INFO, "daemon"), (CEPH_CLIENT_CLUSTER_INFO, "client")):
        for labels, _ in window.now(metric):
            if cluster := label(labels, "cluster"):
                found.setdefault(label(labels, by), set()).add(cluster)
    return {owner: frozenset(clusters) for owner, clusters in found.items()}


def _devices(window: SnapshotPair) -> tuple[StorageDevice, ...]:
    found = {
        StorageDevice(label(labels, "owner"), label(labels, "device"), label(labels, "bdi"))
        for labels, _ in window.now(STORAGE_DEVICE_INFO)
    }
    return tuple(sorted(found, key=lambda device: (device.owner, device.device, device.bdi)))


def _requests(window: SnapshotPair) -> Iterator[RequestTime]:
    """Yield how long the OSDs took for what depends on no other OSD: commits to their own disk, and reads."""
    for what, times, counts in (("commit", OSD_KV_SYNC_SECONDS, OSD_KV_SYNCS), ("read", OSD_OP_SECONDS, OSD_OPS)):
        seconds = dict(window.gains(times, MAX_VALUE, None))
        for labels, count in window.gains(counts, MAX_VALUE, None):
            if count > 0 and labels in seconds and label(labels, "type") in ("", what):
                yield RequestTime(what, label(labels, "daemon"), count, seconds[labels] / count)


def _unknown(window: SnapshotPair, resources: tuple[ResourceUse, ...]) -> tuple[UnknownThread, ...]:
    found = [
        (label(labels, "thread"), label(labels, "process"), busy)
        for labels, busy in window.now(UNKNOWN_THREAD_BUSY_RATIO)
    ]
    return unknown_threads(resources, found)


def unknown_threads(
    resources: Iterable[ResourceUse], found: Iterable[tuple[str, str, float]]
) -> tuple[UnknownThread, ...]:
    """Return threads without a role, hottest first, given how full such threads were."""
    use = next((use for use in resources if use.resource == UNKNOWN_THREAD), None)
    saturated, threshold = (0.0, 1.0) if use is None else (use.saturated, use.threshold or 1.0)
    threads: list[UnknownThread] = []
    for thread, process, busy in sorted(found, key=lambda one: -one[2]):
        busy = min(1.0, busy)
        # If it was busy for 0.9 of the time, it was above 0.8 for half of it or longer: no sample has more than 1.
        least = (busy - threshold) / (1 - threshold) if busy > threshold else 0.0
        threads.append(UnknownThread(thread, process, busy, min(saturated, least) if threads else saturated))
    return tuple(threads)
