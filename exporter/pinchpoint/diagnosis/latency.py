"""Where the time of a request goes in a latency-bound phase.

Nothing that serves the benchmark is full then. What counts is the number of requests in flight and how long each takes:
in the daemon, in its commit, on the network, in CPUs that have to wake up or run slowly. Mean latencies come from sums
of clients and daemons, so they cover every request; a TCP round trip is a sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from pinchpoint.diagnosis.blame import DEFAULT_THRESHOLD, BenchmarkWork, workloads
from pinchpoint.diagnosis.series import label, series
from pinchpoint.diagnosis.usage import Usage
from pinchpoint.expressions import expression
from pinchpoint.figures import format_figure
from pinchpoint.metrics import (
    CEPH_CLIENT_INFLIGHT_SECONDS,
    CEPH_CLIENT_REQUESTS,
    CPU_IDLE_STATE_EXIT_LATENCY_SECONDS,
    MDS_REPLIES,
    MDS_REPLY_SECONDS,
    OSD_KV_FLUSH_SECONDS,
    OSD_KV_SYNC_SECONDS,
    OSD_KV_SYNCS,
    OSD_OP_SECONDS,
    OSD_OPS,
    TCP_RETRANSMITS,
    TCP_RTT_MIN_SECONDS,
    TCP_RTT_SECONDS,
)
from pinchpoint.model import Labels, Metric, Snapshot, Snapshots

__all__ = ["Depth", "Inside", "LatencyBreakdown", "Path", "RoundTrip", "ShallowDisk", "Sleep", "SlowClock", "latency"]

MAX_SERIAL_REQUESTS = 1.5
"""Requests in flight per process up to which each waits for the previous one."""
MIN_REPORTED_SHARE = 0.05
"""Share of the benchmark's time from which a target is reported, and share of a request's time from which a part is."""
MIN_SEEN_SHARE = 0.5
"""Share of a client's requests that the daemons must have had; otherwise most daemons were not seen.

Daemons are asked once a second: over 3 s both may cover 2 to 4 s.
"""
MAX_DAEMON_REQUESTS_RATIO = 2.0
"""Ratio of daemons' to client's requests from which the daemons' mean mostly covers other clients."""
MAX_SHALLOW_QUEUE_SHARE = 0.3
"""Share of the time in which a disk was busy with a queue up to which the queue is negligible."""
MIN_CLOCK_RATIO = 0.8
"""Clock that work saw, relative to the maximum, below which it is reported (as for the alert GovernorPowersave)."""
MIN_IDLE_STATE_SHARE = 0.01
"""Share of its time from which a CPU counts as using an idle state."""
MIN_IDLE_EXIT_SHARE = 0.005
"""Share of a CPU's time lost leaving idle states from which it is reported, whatever a request takes."""
MIN_RETRANSMITS_PER_SECOND = 0.1
"""Retransmitted segments per second from which they are reported: a healthy network loses none."""
MAX_NAMED_HOSTS = 3
"""Maximum number of hosts in a sentence."""
KERNEL = "kernel"
"""Owner of the TCP connections of the kernel's own Ceph clients (probe tcp)."""
NAMES = {"mds": "MDS", "osd": "OSD"}
KERNEL_CLIENT = expression(r"ceph-(?:\d+|more)|krbd")
"""Client names of the kernel's mounts and RBD devices (probe ceph_kernel)."""


class RoundTrip(msgspec.Struct, frozen=True):
    """TCP round trips in seconds; None if not measured."""

    now: float
    least: float | None
    """The shortest of the last minutes."""


class Inside(msgspec.Struct, frozen=True):
    """Mean time of a request inside the daemons over all their clients; times in seconds."""

    rate: float
    """Requests of all clients per second, over the daemons that were seen."""
    seconds: float
    commit: float | None = None
    """One commit of BlueStore; a write waits for at least one."""
    flush: float | None = None
    """The part of a commit in which the data device is flushed."""


class Depth(msgspec.Struct, frozen=True):
    """Mean number of requests in flight, as counted by the clients."""

    target: str
    requests: float
    processes: float
    """Processes of the benchmark, without their idle time."""

    @property
    def one_by_one(self) -> bool:
        """Whether each process has at most one request in flight."""
        return self.requests <= MAX_SERIAL_REQUESTS * max(1.0, self.processes)


class ShallowDisk(msgspec.Struct, frozen=True):
    """A disk that the benchmark waits for but that never has much to do at a time."""

    host: str
    disk: str
    busy: float
    always: bool
    """Whether it is busy up to its threshold: if so it has almost no queue, otherwise it has pauses."""


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The time of requests to one kind of daemon."""

    target: str
    """``mds`` or ``osd``."""
    rate: float | None = None
    """Requests of the benchmark's clients per second."""
    seconds: float | None = None
    """Mean time of one at the client."""
    unanswered: float | None = None
    """Mean number of requests in flight, if none was answered."""
    inside: Inside | None = None
    round_trip: RoundTrip | None = None
    """Of the clients' connections; of those to other daemons too, as connections tell no target."""

    @property
    def outside(self) -> float | None:
        """The part of `seconds` outside the daemon; None if not known."""
        if self.seconds is None or self.inside is None or not self.matching:
            return None
        return max(0.0, self.seconds - self.inside.seconds)

    @property
    def rest(self) -> float | None:
        """The part of `outside` not explained by one round trip: messengers, wake-ups, waiting in the client."""
        if self.outside is None or self.round_trip is None:
            return None
        return max(0.0, self.outside - self.round_trip.now)

    @property
    def inside_share(self) -> float:
        """The share of a request's time inside the daemon, 0 if not known.

        Where the client does not tell its time, a round trip stands for it, if it is longer than the daemon's time:
        replies carry acknowledgements, so that a round trip often has the daemon's time in it.
        """
        if self.inside is None or (self.seconds is not None and not self.matching):
            return 0.0
        if self.seconds is not None:
            return min(1.0, self.inside.seconds / self.seconds)
        whole = max(self.inside.seconds, 0.0 if self.round_trip is None else self.round_trip.now)
        return self.inside.seconds / whole if whole > 0 else 0.0

    @property
    def matching(self) -> bool:
        """Whether the daemons worked mostly for these clients."""
        if self.rate is None or self.inside is None:
            return False
        return MIN_SEEN_SHARE * self.rate <= self.inside.rate <= MAX_DAEMON_REQUESTS_RATIO * self.rate


class Sleep(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of leaving idle states on one host."""

    host: str
    state: str
    """The deepest that its CPUs use."""
    share: float
    """Share of the time spent in it."""
    exit_latency: float
    """Longest time to leave it, in seconds."""
    lost: float | None
    """Mean share of the CPUs' time lost leaving idle states."""
    lost_worst: float | None
    """The same for the CPU that lost most."""


class SlowClock(msgspec.Struct, frozen=True):
    """A host whose CPUs ran below their speed."""

    host: str
    ratio: float
    """Clock that work saw, relative to the maximum."""
    governors: tuple[str, ...]


class LatencyBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of a request goes."""

    depths: tuple[Depth, ...] = ()
    disks: tuple[ShallowDisk, ...] = ()
    paths: tuple[Path, ...] = ()
    sleeps: tuple[Sleep, ...] = ()
    """Hosts on the way of a request whose idle states matter, the worst first."""
    clocks: tuple[SlowClock, ...] = ()
    """Hosts on the way whose clock is low, the slowest first."""
    retransmits: float | None = None
    """Segments retransmitted by the clients and the daemons per second; None if not counted."""
    unknown: tuple[str, ...] = ()
    """What is not measured."""
    sentences: tuple[str, ...] = ()
    """The same in words, with numbers."""


def latency(
    hosts: Mapping[str, Usage],
    before: Snapshots,
    after: Snapshots,
    *,
    benchmark: str,
    run: str,
    waits: Mapping[str, float],
) -> LatencyBreakdown:
    """Return where the time of a benchmark's requests goes; `waits` are its time shares by wait class.

    `hosts` is what they did between the two moments (`usages`).
    """
    hosts = {name: use for name, use in hosts.items() if use.seconds}
    work = next((work for work in workloads(hosts) if (work.benchmark, work.run) == (benchmark, run)), None)
    if work is None:
        return LatencyBreakdown()
    window = _HostSnapshots({name: (before[name], after[name]) for name in hosts}, hosts, work)
    paths = tuple(window.path(target) for target in NAMES if window.concerns(target, waits))
    daemons = {host for path in paths for host in window.hosts_of(path.target)}
    way = {name: use for name, use in hosts.items() if name in work.owners or name in daemons}
    request = min((path.seconds for path in paths if path.seconds), default=None)
    found = LatencyBreakdown(
        depths=tuple(window.depths(paths)),
        disks=tuple(_shallow(hosts, work)) if waits.get("disk", 0.0) >= MIN_REPORTED_SHARE else (),
        paths=paths,
        sleeps=tuple(sorted(_sleeps(way, after, request), key=lambda sleep: -sleep.exit_latency * sleep.share)),
        clocks=tuple(sorted(_clocks(way), key=lambda clock: clock.ratio)),
        retransmits=window.retransmits(path.target for path in paths),
        unknown=tuple(_unknown(paths, way)),
    )
    return msgspec.structs.replace(found, sentences=tuple(_sentences(found)))


class _HostSnapshots:
    """The snapshots of all hosts, and the workload."""

    def __init__(
        self, pairs: Mapping[str, tuple[Snapshot, Snapshot]], hosts: Mapping[str, Usage], work: BenchmarkWork
    ) -> None:
        self.pairs = pairs
        self.seconds = max(use.seconds for use in hosts.values())
        self.work = work
        self.clients = set(work.clients) or {
            label(labels, "client") for host in work.owners for labels, _ in self._gains(host, CEPH_CLIENT_REQUESTS)
        }

    def concerns(self, target: str, waits: Mapping[str, float]) -> bool:
        """Return whether the benchmark, or its clients on its behalf, waits for daemons of this kind."""
        if waits.get(target, 0.0) >= MIN_REPORTED_SHARE:
            return True
        return waits.get("client", 0.0) + waits.get("ceph", 0.0) >= MIN_REPORTED_SHARE and bool(self._client(target)[0])

    def hosts_of(self, target: str) -> set[str]:
        """Return the hosts with daemons of this kind."""
        metric = MDS_REPLIES if target == "mds" else OSD_OPS
        return {host for host, (_, after) in self.pairs.items() if any(series(after, metric))}

    def path(self, target: str) -> Path:
        """Return the time of requests to daemons of one kind."""
        requests, waited = self._client(target)
        inside = self._mds() if target == "mds" else self._osd()
        round_trip = self._round_trip()
        if requests < 1 or waited <= 0:
            held = waited / self.seconds if requests == 0 and waited > MIN_REPORTED_SHARE * self.seconds else None
            return Path(target=target, unanswered=held, inside=inside, round_trip=round_trip)
        return Path(
            target=target,
            rate=requests / self.seconds,
            seconds=waited / requests,
            unanswered=None,
            inside=inside,
            round_trip=round_trip,
        )

    def depths(self, paths: Iterable[Path]) -> Iterator[Depth]:
        """Yield the number of requests in flight, where a client reports it."""
        working = self.work.total - self.work.seconds.get("idle", 0.0)
        for path in paths:
            if path.seconds is not None:
                yield Depth(path.target, self._client(path.target)[1] / self.seconds, working)

    def _client(self, target: str) -> tuple[float, float]:
        """Return the answered requests of the benchmark's clients, and their time in flight."""
        found = []
        for metric in (CEPH_CLIENT_REQUESTS, CEPH_CLIENT_INFLIGHT_SECONDS):
            found.append(
                sum(
                    gain
                    for host in self.work.owners
                    for labels, gain in self._gains(host, metric)
                    if label(labels, "target") == target and self._serves(label(labels, "client"))
                )
            )
        return found[0], found[1]

    def _serves(self, client: str) -> bool:
        return client in self.clients or (KERNEL in self.clients and bool(KERNEL_CLIENT.fullmatch(client)))

    def _mds(self) -> Inside | None:
        replies = self._sum(MDS_REPLIES)
        seconds = self._mean(MDS_REPLY_SECONDS, replies)
        return None if replies is None or seconds is None else Inside(replies / self.seconds, seconds)

    def _osd(self) -> Inside | None:
        operations = self._sum(OSD_OPS)
        seconds = self._mean(OSD_OP_SECONDS, operations)
        if operations is None or seconds is None:
            return None
        found = Inside(operations / self.seconds, seconds)
        reads = self._sum(OSD_OPS, type="read") or 0.0
        if operations - reads < MIN_REPORTED_SHARE * operations:
            return found  # no request waits for commits
        commits = self._sum(OSD_KV_SYNCS)
        return msgspec.structs.replace(
            found,
            commit=self._mean(OSD_KV_SYNC_SECONDS, commits),
            flush=self._mean(OSD_KV_FLUSH_SECONDS, commits),
        )

    def _round_trip(self) -> RoundTrip | None:
        """Return the round trips of the clients' connections, averaged over their hosts."""
        found, least = [], []
        for host in self.work.owners:
            if host not in self.pairs:
                continue
            _, after = self.pairs[host]
            least_of = {label(labels, "owner"): value for labels, value in series(after, TCP_RTT_MIN_SECONDS)}
            for labels, value in series(after, TCP_RTT_SECONDS):
                owner = label(labels, "owner")
                if owner in self._connected():
                    found.append(value)
                    least += [least_of[owner]] if owner in least_of else []
        return RoundTrip(sum(found) / len(found), min(least, default=None)) if found else None

    def retransmits(self, targets: Iterable[str]) -> float | None:
        """Return the segments retransmitted per second by the clients and their daemons."""
        daemons = tuple(f"{target}." for target in targets)
        gains = [
            gain
            for host in self.pairs
            for labels, gain in self._gains(host, TCP_RETRANSMITS)
            if label(labels, "owner").startswith(daemons)
            or (host in self.work.owners and label(labels, "owner") in self._connected())
        ]
        return sum(gains) / self.seconds if gains else None

    def _connected(self) -> Collection[str]:
        """Return the owners of the connections that carry the requests."""
        mounted = any(KERNEL_CLIENT.fullmatch(client) for client in self.clients)
        return self.clients | {KERNEL} if mounted else self.clients

    def _sum(self, metric: Metric, **labels: str) -> float | None:
        """Return by how much a counter rose, over all series with these labels; None if there are none."""
        gains = [
            gain
            for host in self.pairs
            for found, gain in self._gains(host, metric)
            if labels.items() <= dict(found).items()
        ]
        return sum(gains) if gains else None

    def _mean(self, total: Metric, number: float | None) -> float | None:
        """Return by how much a counter of seconds rose per item; None if it or the number of items is not known."""
        seconds = self._sum(total)
        return None if seconds is None or number is None or number < 1 else seconds / number

    def _gains(self, host: str, metric: Metric) -> Iterator[tuple[Labels, float]]:
        """Yield by how much each series in both snapshots rose, except those that were reset."""
        if host not in self.pairs:
            return
        before, after = self.pairs[host]
        earlier = dict(series(before, metric))
        if after.time <= before.time:
            return
        # A host that was seen for a part of the time counts as if it had gone on like that.
        whole = self.seconds / (after.time - before.time)
        for labels, value in series(after, metric):
            if labels in earlier and value >= earlier[labels]:
                yield labels, (value - earlier[labels]) * whole


def _shallow(hosts: Mapping[str, Usage], work: BenchmarkWork) -> Iterator[ShallowDisk]:
    """Yield the disks under the benchmark's files that are busy and not full."""
    for host, owners in work.owners.items():
        if host not in hosts:
            continue
        disks = {device.device for device in hosts[host].devices if device.owner in owners}
        for use in hosts[host].resources:
            if (
                use.resource == "disk"
                and use.owner in disks
                and use.saturated < MAX_SHALLOW_QUEUE_SHARE
                and use.busy >= MIN_REPORTED_SHARE
            ):
                yield ShallowDisk(host, use.owner, use.busy, use.busy >= (use.threshold or DEFAULT_THRESHOLD))


def _sleeps(way: Mapping[str, Usage], after: Snapshots, request: float | None) -> Iterator[Sleep]:
    """Yield the hosts on which leaving an idle state takes a relevant part of a request's time, or a CPU's."""
    for name, use in way.items():
        if use.idle is None:
            continue
        latencies = {
            label(labels, "state"): value for labels, value in series(after[name], CPU_IDLE_STATE_EXIT_LATENCY_SECONDS)
        }
        used = [
            state for state in use.idle.states if state.share >= MIN_IDLE_STATE_SHARE and latencies.get(state.state)
        ]
        if not used:
            continue
        deepest = max(used, key=lambda state: latencies[state.state])
        exit_latency = latencies[deepest.state]
        long = request is not None and exit_latency >= MIN_REPORTED_SHARE * request
        if long or (use.idle.lost_worst or 0.0) >= MIN_IDLE_EXIT_SHARE:
            yield Sleep(
                host=name,
                state=deepest.state,
                share=deepest.share,
                exit_latency=exit_latency,
                lost=use.idle.lost,
                lost_worst=use.idle.lost_worst,
            )


def _clocks(way: Mapping[str, Usage]) -> Iterator[SlowClock]:
    for name, use in way.items():
        if use.clock is not None and use.clock.busy_ratio is not None and use.clock.busy_ratio < MIN_CLOCK_RATIO:
            yield SlowClock(name, use.clock.busy_ratio, use.clock.governors)


def _unknown(paths: Iterable[Path], way: Mapping[str, Usage]) -> Iterator[str]:
    round_trips = True
    for path in paths:
        name = NAMES[path.target]
        round_trips = round_trips and path.round_trip is not None
        if path.seconds is None and path.unanswered is None:
            yield f"what an {name} request takes at the client, and how many are in flight (the client does not tell)"
        if path.inside is None:
            yield f"what a request takes inside of the {name} (no exporter on its host, or no admin socket)"
        elif path.rate is not None and path.inside.rate < MIN_SEEN_SHARE * path.rate:
            share = path.inside.rate / path.rate
            yield f"what most requests take inside of their {name}: those that were seen had {share:.0%} of them"
    if not round_trips:
        yield "TCP round trips of the clients"
    for what, hosts in (
        ("idle states", [name for name, use in way.items() if use.idle is None]),
        ("clocks", [name for name, use in way.items() if use.clock is None]),
    ):
        if hosts:
            yield f"{what} of {_listed(hosts)}"


def _sentences(found: LatencyBreakdown) -> Iterator[str]:
    """Yield the findings in words: how many requests, how long each takes and where, what makes the path slow."""
    for depth in found.depths:
        start = f"{depth.requests:.1f} {NAMES[depth.target]} requests in flight on average"
        if depth.one_by_one:
            working = "process" if depth.processes < MAX_SERIAL_REQUESTS else f"{depth.processes:.0f} processes"
            each = "the" if depth.processes < MAX_SERIAL_REQUESTS else "each of the"
            yield f"{start}: {each} {working} waits for one request after the other"
        else:
            yield f"{start}, {depth.requests / max(1.0, depth.processes):.1f} for each process that works"
    for disk in found.disks:
        why = "without a queue: one I/O after the other" if disk.always else "and waits for the next I/O in the rest"
        yield f"{disk.disk} on {disk.host} is busy for {disk.busy:.0%} of the time {why}"
    for path in found.paths:
        yield from _path_sentences(path)
    trip = next((path.round_trip for path in found.paths if path.outside is None), None)
    if trip is not None:
        yield f"a TCP round trip of the clients takes {_trip(trip)}"
    if found.retransmits is not None and found.retransmits >= MIN_RETRANSMITS_PER_SECOND:
        yield f"TCP has to send {found.retransmits:.1f} segments a second again, and each holds a request up"
    if found.sleeps:
        yield _sleep_sentence(found)
    if found.clocks:
        slowest = found.clocks[0]
        governors = f" (governor {', '.join(slowest.governors)})" if slowest.governors else ""
        yield f"CPUs of {slowest.host} work at {slowest.ratio:.0%} of their clock{governors}{_more(found.clocks)}"
    if found.unknown:
        yield f"not known: {'; '.join(found.unknown)}"


def _path_sentences(path: Path) -> Iterator[str]:
    name, inside = NAMES[path.target], path.inside
    if path.unanswered is not None:
        yield (
            f"of {path.unanswered:.1f} requests to the {name}s in flight none was answered: they are held back, by "
            "what `ceph health detail` says (an OSD or pool that is full, a placement group that is not active)"
        )
    within = f"inside of the {name}" + (" (with its replicas)" if path.target == "osd" else "")
    if path.seconds is not None and inside is not None and path.outside is not None:
        yield (
            f"an {name} request takes {_time(path.seconds)} at the client and {_time(inside.seconds)} {within}: "
            f"{_time(path.outside)} ({path.outside / path.seconds:.0%}) are {_outside(path)}"
        )
    elif path.seconds is not None:
        yield f"an {name} request takes {_time(path.seconds)} at the client"
    if inside is None:
        return
    if path.outside is None:
        yield f"an {name} request takes {_time(inside.seconds)} {within}, on average over all clients"
    if inside.commit is not None and inside.commit >= MIN_REPORTED_SHARE * inside.seconds:
        flush = f", {_time(inside.flush)} of it to flush the device" if inside.flush else ""
        yield f"a commit of BlueStore takes {_time(inside.commit)}{flush}: a write waits for one at least"


def _outside(path: Path) -> str:
    if path.round_trip is None or path.outside is None:
        return "network, messengers and the client"
    if path.rest is not None and path.rest < MIN_REPORTED_SHARE * path.outside:
        return f"the network: a TCP round trip takes {_trip(path.round_trip)}"
    return f"network (one TCP round trip: {_trip(path.round_trip)}), messengers, wake-ups and the client"


def _trip(trip: RoundTrip) -> str:
    """Return a round trip, with the shortest if that is much shorter: then the path is slower than necessary."""
    least = f", at best {_time(trip.least)}" if trip.least is not None and 2 * trip.least <= trip.now else ""
    return f"{_time(trip.now)}{least}"


def _sleep_sentence(found: LatencyBreakdown) -> str:
    worst = found.sleeps[0]
    lost = f", and leaving idle states takes {worst.lost_worst:.1%} of a CPU's time" if worst.lost_worst else ""
    return (
        f"CPUs of {worst.host} are in {worst.state} for {worst.share:.0%} of the time: a wake-up from it takes up to "
        f"{_time(worst.exit_latency)}{lost}{_more(found.sleeps)}"
    )


def _more(found: Sequence[Sleep | SlowClock]) -> str:
    return f"; it is alike on {_listed([entry.host for entry in found[1:]])}" if len(found) > 1 else ""


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:MAX_NAMED_HOSTS]) + (
        f" and {len(hosts) - MAX_NAMED_HOSTS} more" if len(hosts) > MAX_NAMED_HOSTS else ""
    )


def _time(seconds: float) -> str:
    return format_figure(seconds, "seconds")
