"""Blame: how much of a benchmark's time each resource answers for.

Suppose a share of the benchmark's time waits for the MDS, and the MDS's lock is busy. Time that the lock's threads
spend on a CPU is blamed on the lock; time they wait for a full CPU is blamed on that CPU (or its quota), and time they
wait for a full disk on that disk. Otherwise a lock would be blamed whenever its host is short of CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pinchpoint.diagnosis.usage import ResourceUse, Usage, whole_use
from pinchpoint.resources import ELSEWHERE, all_resources, entry_of
from pinchpoint.runs import belongs, is_stray
from pinchpoint.threads.roles import UNVERIFIED_ROLE

__all__ = ["FULL_SAMPLES_SHARE", "BenchmarkWork", "Limit", "blame", "is_full", "jobs_of_runs", "serving", "workloads"]

FULL_SAMPLES_SHARE = 0.3
"""Share of the time in samples at or above the threshold from which a resource is full, if its mean is there too.

By the mean alone, a disk that is busy without a queue would be full: its samples count only if there is one.
"""
CPU_GIVERS = {name: entry for name, entry in all_resources().items() if entry.gives == "cpu" and name != "cpu"}
IO_GIVERS = tuple(name for name, entry in all_resources().items() if entry.gives == "io")
DEFAULT_THRESHOLD = 0.8
"""Threshold of a resource whose exporter does not export one."""
DAEMONS = ("mds", "osd")
"""Wait classes served by daemons; they are the prefixes of the daemons' names."""
STUCK_SERVES = {"osd": ("osd", "mds", "client", "ceph"), "mds": ("mds", "client", "ceph")}
"""Wait classes affected by a frozen daemon: an MDS answers nothing while its journal waits for an OSD."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One resource in the ranking. Shares are of the interval, 0 to 1."""

    resource: str
    owner: str
    host: str
    """Where it was measured, by the source's name."""
    serves: tuple[str, ...]
    """The wait classes for which it is blamed, largest first."""
    busy: float
    runqueue: float
    """The part of `busy` in which it waited for a CPU."""
    blocked: float
    """The part of `busy` in which it waited for something below it."""
    saturated: float
    """Share of the interval in samples at or above its threshold."""
    threshold: float
    full: bool
    blame: float
    """The share of the benchmark's time that it answers for."""
    reach: float
    """The share of the benchmark's time that waits for what it serves, times how busy it was."""

    @property
    def kind(self) -> tuple[str, str]:
        """Identifies limits that are one answer: the commit threads of eight OSDs are one limit."""
        prefix = (self.owner.partition(ELSEWHERE)[2] or self.owner).partition(".")[0]
        return self.resource, prefix if prefix in DAEMONS else self.owner


class BenchmarkWork(NamedTuple):
    """What the processes of one run did with their time, on all hosts."""

    benchmark: str
    run: str
    seconds: Mapping[str, float]
    """Processes in each wait class, on average."""
    owners: Mapping[str, tuple[str, ...]]
    """The owner labels of its processes in resources, by host."""
    clients: tuple[str, ...]
    """The Ceph clients that serve it."""
    clusters: frozenset[str] = frozenset()
    """The clusters (fsid) that these talk to; empty if one of them does not report it."""
    job: str = ""
    """The batch job of the run; empty for none, or if it is not known."""

    def includes(self, run: str) -> bool:
        """Return whether work with this run label, on any host, counts towards the run."""
        return belongs(run, self.run, self.job)

    @property
    def total(self) -> float:
        """Processes, on average."""
        return sum(self.seconds.values())

    @property
    def shares(self) -> dict[str, float]:
        """Share of the processes' time by wait class, the largest first; empty without processes."""
        total = self.total
        ordered = sorted(self.seconds.items(), key=lambda item: (-item[1], item[0]))
        return {wait: seconds / total for wait, seconds in ordered if seconds > 0} if total > 0 else {}


def jobs_of_runs(hosts: Mapping[str, Usage]) -> dict[str, str]:
    """Return the batch job of each run that has one, as its host says."""
    return {run: job for host in hosts.values() for run, job in host.jobs.items()}


def workloads(hosts: Mapping[str, Usage]) -> list[BenchmarkWork]:
    """Return what runs on the hosts, the busiest first.

    Ranks on hosts that don't know their run count towards each run of their benchmark; of their batch job, where that
    is known.
    """
    # A judge also knows the integrals of runs that have ended.
    keys = {(use.benchmark, use.run) for host in hosts.values() for use in host.workloads if any(use.waits.values())}
    jobs = jobs_of_runs(hosts)
    runs = [(benchmark, run) for benchmark, run in keys if not is_stray(run)]
    taken = {
        (benchmark, stray)
        for benchmark, run in runs
        for kind, stray in keys
        if kind == benchmark and is_stray(stray) and belongs(stray, run, jobs.get(run, ""))
    }
    found = []
    for benchmark, run in keys:
        if (benchmark, run) in taken:
            continue
        seconds: dict[str, float] = {}
        owners: dict[str, tuple[str, ...]] = {}
        clients: set[str] = set()
        clusters: list[frozenset[str]] = []
        for name, host in hosts.items():
            for use in host.workloads:
                if use.benchmark == benchmark and belongs(use.run, run, jobs.get(run, "")):
                    owners[name] = (*owners.get(name, ()), *use.owners)
                    clients.update(use.clients)
                    clusters += [host.clusters.get(client, frozenset()) for client in use.clients]
                    for wait, value in use.waits.items():
                        seconds[wait] = seconds.get(wait, 0.0) + value
        known = frozenset().union(*clusters) if all(clusters) else frozenset()
        found.append(
            BenchmarkWork(
                benchmark=benchmark,
                run=run,
                seconds=seconds,
                owners=owners,
                clients=tuple(sorted(clients)),
                clusters=known,
                job=jobs.get(run, ""),
            )
        )
    return sorted(found, key=lambda work: (work.seconds.get("idle", 0.0) - work.total, work.benchmark, work.run))


def is_full(use: ResourceUse) -> bool:
    """Return whether a resource was full in an interval."""
    return use.busy >= (use.threshold or DEFAULT_THRESHOLD) and use.saturated >= FULL_SAMPLES_SHARE


_Key = tuple[str, str]
"""A resource of one host: its name and its owner."""


class _Stage(msgspec.Struct, frozen=True):
    """A resource with parts: its own work, waiting for a CPU, waiting for what is below."""

    use: ResourceUse
    runqueue: float
    blocked: float


HOST_CPU: _Key = ("cpu", "host")
NOTHING = ResourceUse(resource="", owner="", serves=(), busy=0.0, saturated=0.0, runqueue=None, threshold=None)


class _Host:
    """One host as blame looks at it."""

    def __init__(self, name: str, use: Usage) -> None:
        self.name = name
        self.usage = use
        self.uses = {(found.resource, found.owner): found for found in use.resources}
        self.threads: dict[str, tuple[float, float]] = {}
        for role in use.roles:
            if role.role == UNVERIFIED_ROLE:
                continue  # its owner is a name that anybody may choose
            cpu, waited = self.threads.get(role.owner, (0.0, 0.0))
            self.threads[role.owner] = cpu + role.cpu, waited + (role.runqueue or 0.0)
        self._cpus: dict[str, tuple[_Key, float]] = {}
        self._disks: dict[str, tuple[_Key, float]] = {}
        self.stages = dict(self._stages())

    def _stages(self) -> Iterator[tuple[_Key, _Stage]]:
        for key, use in self.uses.items():
            if use.runqueue is None:
                continue
            whole = whole_use(use, self.uses)
            yield key, _Stage(whole, whole.busy * (whole.runqueue or 0.0), whole.busy - use.busy)

    def waited(self, stage: _Stage | None, owner: str) -> tuple[float, float]:
        """Return the parts of its threads' time in which a stage, or any of an owner, waited for a CPU and a disk."""
        if stage is not None and stage.use.busy:
            return stage.runqueue / stage.use.busy, stage.blocked / stage.use.busy
        cpu, waited = self.threads.get(owner, (0.0, 0.0))
        return (waited / (cpu + waited) if waited else 0.0), 0.0

    def full(self, key: _Key) -> float:
        """Return how busy a resource was, 0 where it was not full."""
        use = self.uses.get(key, NOTHING)
        return use.busy if is_full(use) else 0.0

    def cpu_of(self, owner: str) -> tuple[_Key, float]:
        """Return the full resource that gives the owner's threads CPU time, and how full it is; 0 if none is."""
        if owner not in self._cpus:
            self._cpus[owner] = self._cpu_of(owner)
        return self._cpus[owner]

    def _cpu_of(self, owner: str) -> tuple[_Key, float]:
        for resource, entry in CPU_GIVERS.items():
            key = resource, owner
            if (full := self.full(key)) and not (entry.unless and self.full((entry.unless, "host"))):
                return key, full
        return HOST_CPU, self.full(HOST_CPU)

    def disk_of(self, owner: str) -> tuple[_Key, float]:
        """Return the full resource that limits the owner's I/O, and how full it is; 0 if none is full."""
        if owner not in self._disks:
            self._disks[owner] = self._disk_of(owner)
        return self._disks[owner]

    def _disk_of(self, owner: str) -> tuple[_Key, float]:
        for resource in IO_GIVERS:
            key = resource, owner
            if full := self.full(key):
                return key, full
        found = [(self.full(("disk", disk)), disk) for disk in self.disks((owner,))]
        full, disk = max(found, default=(0.0, ""))
        return ("disk", disk), full

    def disks(self, owners: Iterable[str]) -> set[str]:
        """Return the disks under the files that these owners have open."""
        return {device.device for device in self.usage.devices if device.owner in owners and device.device}

    def backings(self, owners: Iterable[str]) -> set[str]:
        """Return their backing devices, as writeback names them."""
        return {device.bdi for device in self.usage.devices if device.owner in owners and device.bdi}


class _Tally:
    """What each resource of one host answers for, by wait class: it counts once per class."""

    def __init__(self) -> None:
        self.classes: dict[_Key, dict[str, float]] = {}
        self.reach: dict[_Key, float] = {}

    def add(self, key: _Key, wait: str, share: float) -> None:
        classes = self.classes.setdefault(key, {})
        classes[wait] = max(classes.get(wait, 0.0), share)

    def reaches(self, key: _Key, share: float) -> None:
        self.reach[key] = max(self.reach.get(key, 0.0), share)


def serving(hosts: Mapping[str, Usage], workload: BenchmarkWork, wait: str) -> bool:
    """Return whether any resource of a daemon that serves this wait class of the workload is known on any host."""
    return any(
        wait in use.serves and _serves(host, workload, use.owner, wait)
        for host in hosts.values()
        for use in host.resources
    )


def _serves(host: Usage, workload: BenchmarkWork, daemon: str, kind: str) -> bool:
    """Return whether a daemon is of this kind, and not of a cluster unrelated to the workload."""
    if not daemon.startswith(f"{kind}."):
        return False
    known = host.clusters.get(daemon)
    return not known or not workload.clusters or not known.isdisjoint(workload.clusters)


def blame(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> tuple[Limit, ...]:
    """Return every resource that serves what the workload waits for, the most blamed first."""
    shares = workload.shares
    limits: list[Limit] = []
    for name, use in hosts.items():
        host, tally = _Host(name, use), _Tally()
        _blame_stages(host, workload, shares, tally)
        _blame_daemons(host, workload, shares, tally)
        _blame_others(host, workload, shares, tally)
        limits += _limits(host, tally)
    return tuple(
        sorted(limits, key=lambda limit: (-limit.blame, not limit.full, limit.resource, limit.owner, limit.host))
    )


def blame_nodes(hosts: Mapping[str, Usage], shares: Mapping[tuple[str, str], float]) -> tuple[Limit, ...]:
    """Return the full resources behind threads that answer for a benchmark's time, the most blamed first.

    `shares` are by owner and role. What threads waited for a CPU or a disk that is full is blamed on that.
    """
    limits: list[Limit] = []
    for name, use in hosts.items():
        host, tally = _Host(name, use), _Tally()
        for (owner, role), share in shares.items():
            stage = host.stages.get((role, owner))
            if stage is None and owner not in host.threads:
                continue
            node = f"{owner} {role}"  # stands for a wait class: the parts of nodes add up
            queued, blocked = host.waited(stage, owner)
            cpu_key, cpu_full = host.cpu_of(owner)
            disk_key, disk_full = host.disk_of(owner)
            for key, part in ((cpu_key, queued * cpu_full), (disk_key, blocked * disk_full)):
                tally.add(key, node, share * part)
            if stage is not None:
                tally.add((role, owner), node, share * (1 - queued * cpu_full - blocked * disk_full))
        limits += _limits(host, tally)
    full = [msgspec.structs.replace(limit, serves=()) for limit in limits if limit.full and limit.blame]
    return tuple(sorted(full, key=lambda limit: (-limit.blame, limit.resource, limit.owner, limit.host)))


def _classes(host: _Host, workload: BenchmarkWork, use: ResourceUse, shares: Mapping[str, float]) -> Iterator[str]:
    """Yield the wait classes of the workload that a stage serves and in which time was spent."""
    own = workload.owners.get(host.name, ())
    for wait in use.serves:
        if not shares.get(wait):
            continue
        if wait in DAEMONS:
            if _serves(host.usage, workload, use.owner, wait):
                yield wait
        elif not own:
            continue
        elif wait == "client":
            if not workload.clients or use.owner in workload.clients:
                yield wait
        elif wait == "writeback":
            backings = host.backings(own)
            if not backings or use.owner in backings:
                yield wait
        elif wait == "cpu":
            if use.owner in own:
                yield wait
        elif wait != "runqueue":
            yield wait


def _blame_stages(host: _Host, workload: BenchmarkWork, shares: Mapping[str, float], tally: _Tally) -> None:
    served: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
    for key, stage in host.stages.items():
        use, runqueue, blocked = stage.use, stage.runqueue, stage.blocked
        # A daemon has many stages that serve the same.
        if (waits := served.get((use.owner, use.serves))) is None:
            waits = served[use.owner, use.serves] = tuple(_classes(host, workload, use, shares))
        if not waits:
            continue
        cpu_key, cpu_full = host.cpu_of(use.owner)
        disk_key, disk_full = host.disk_of(use.owner)
        own = max(0.0, use.busy - runqueue - blocked)
        below = blocked * (1 - disk_full)
        held = cpu_full if cpu_full and entry_of(cpu_key[0]).holds_all else 0.0
        for wait in waits:
            share = shares[wait]
            tally.add(key, wait, share * (own + runqueue * (1 - cpu_full) + below * (1 - held)))
            tally.reaches(key, share * use.busy)
            if cpu_full:
                tally.add(cpu_key, wait, share * (runqueue * cpu_full + below * held))
            if disk_full:
                tally.add(disk_key, wait, share * blocked * disk_full)


def _blame_daemons(host: _Host, workload: BenchmarkWork, shares: Mapping[str, float], tally: _Tally) -> None:
    """Blame the CPU of a daemon for what all of its threads wait for it, and a daemon that is frozen."""
    for owner, (cpu, waited) in host.threads.items():
        wait = owner.partition(".")[0]
        key, full = host.cpu_of(owner)
        used = cpu + waited
        waiting = workload.seconds.get(wait, 0.0)
        if wait in DAEMONS and full and used > 0 and waiting > 0 and _serves(host.usage, workload, owner, wait):
            # One request at a time can't wait for longer than the threads ran and waited.
            tally.add(key, wait, shares.get(wait, 0.0) * full * waited / used * min(1.0, used / min(1.0, waiting)))
    for daemon in host.usage.silent:
        kind = daemon.daemon.partition(".")[0]
        if daemon.stuck and kind in STUCK_SERVES and _serves(host.usage, workload, daemon.daemon, kind):
            idle = ("idle",) if workload.clients else ()
            for wait in (*STUCK_SERVES[kind], *idle):
                if shares.get(wait):
                    tally.add(("stuck", daemon.daemon), wait, shares[wait])


def _blame_others(host: _Host, workload: BenchmarkWork, shares: Mapping[str, float], tally: _Tally) -> None:
    """Blame what has no parts."""
    owners = workload.owners.get(host.name, ())
    if (waited := shares.get("runqueue", 0.0)) and owners:
        for owner in owners:
            key, full = host.cpu_of(owner)
            # CPUs that are nearly full answer for it as any other resource does that is not full.
            if busy := full or host.uses.get(key, NOTHING).busy:
                tally.add(key, "runqueue", waited * busy)
    disks = host.disks(owners)
    # What reclaims the dirty pages of its own cgroup waits for the disk (shrink_folio_list, mm/vmscan.c, Linux 6.18).
    if (reclaims := shares.get("memory", 0.0)) and any(host.full(("memory_quota", owner)) for owner in owners):
        for disk in disks:
            if full := host.full(("disk", disk)):
                tally.add(("disk", disk), "memory", reclaims * full)
    for key, use in host.uses.items():
        if use.runqueue is not None or not (waits := [wait for wait in use.serves if shares.get(wait)]):
            continue
        entry = entry_of(use.resource)
        if entry.gives == "cpu" or entry.inside:
            continue
        whose = use.owner.partition(ELSEWHERE)[2] or use.owner
        kind = whose.partition(".")[0]
        if kind in DAEMONS and not _serves(host.usage, workload, whose, kind):
            continue
        if whose != use.owner and kind not in DAEMONS and whose not in owners:
            continue  # any user may have a full link in his own network
        if entry.concerns == "files" and (not owners or (disks and use.owner not in disks)):
            continue
        if entry.concerns == "owner" and use.owner not in owners:
            continue
        if entry.unless and any(host.full((entry.unless, owner)) for owner in owners):
            continue
        for wait in waits:
            if wait != "memory" or owners:
                tally.add(key, wait, shares[wait] * use.busy)


def _limits(host: _Host, tally: _Tally) -> Iterator[Limit]:
    for key, classes in tally.classes.items():
        yield _limit(host, key, classes, tally)


def _limit(host: _Host, key: _Key, classes: Mapping[str, float], tally: _Tally) -> Limit:
    serves = tuple(sorted(classes, key=lambda wait: (-classes[wait], wait)) if len(classes) > 1 else classes)
    total = sum(classes.values())
    resource, owner = key
    if resource == "stuck":
        return Limit(
            resource=resource,
            owner=owner,
            host=host.name,
            serves=serves,
            busy=1.0,
            runqueue=0.0,
            blocked=0.0,
            saturated=1.0,
            threshold=1.0,
            full=True,
            blame=total,
            reach=total,
        )
    stage = host.stages.get(key)
    use = stage.use if stage is not None else host.uses.get(key, NOTHING)
    return Limit(
        resource=resource,
        owner=owner,
        host=host.name,
        serves=serves,
        busy=use.busy,
        runqueue=stage.runqueue if stage is not None else 0.0,
        blocked=stage.blocked if stage is not None else 0.0,
        saturated=use.saturated,
        threshold=use.threshold or DEFAULT_THRESHOLD,
        full=is_full(use),
        blame=total,
        reach=tally.reach.get(key, total),
    )
