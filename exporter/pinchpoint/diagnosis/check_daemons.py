"""Checks of each single host: its Ceph daemons and clients, and what its exporter does not see.

Each function is one check of ``check.toml``, by its name: it takes a snapshot of the host and yields what it found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pinchpoint.diagnosis.check_host import LookAtHost
from pinchpoint.diagnosis.findings import Check, Level, Outcome, alert_threshold, fact, fine, found, listed
from pinchpoint.diagnosis.series import label, series
from pinchpoint.figures import format_figure
from pinchpoint.metrics import (
    CEPH_CLIENT_BLIND_INSTANCES,
    CEPH_CLIENT_BLOCKLISTED,
    CEPH_CLIENT_INSTANCES,
    CEPH_DAEMON_STUCK,
    CEPH_SOCKET_PROBLEM_INFO,
    CEPH_SOCKET_UP,
    CGROUP_CPU_QUOTA_CPUS,
    CGROUP_IO_LIMIT,
    MDS_CACHE_BYTES,
    MDS_CACHE_LIMIT_BYTES,
    MDS_CACHE_PEAK_BYTES,
    MDS_INODES,
    OSD_SLOW_OPS,
    PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS,
    PROBE_MISSING_CAPABILITY_INFO,
    PROBE_PRESENT,
    PROBE_SUCCESS,
    SAMPLER_LOST_SAMPLES,
    SAMPLER_PRIORITY_INFO,
    SAMPLER_SAMPLES,
    TASK_SOURCE_INFO,
    TASKS_UNREADABLE,
    UNVERIFIED_PROCESSES,
    WAITS_SOURCE_INFO,
)
from pinchpoint.model import Metric, Snapshot

__all__ = ["DAEMONS"]

GIBIBYTE = 1 << 30
MIN_DUE_SAMPLES = 20
"""Number of due samples from which the share of lost ones is meaningful."""
MIN_INODES = 1000
"""Number of inodes from which their mean size shows how many more fit."""
ROOMY_FACTOR = 4
"""A host has memory for a larger cache if it could hold this many times the present limit."""


def _by(host: Snapshot, metric: Metric, by: str) -> dict[str, float]:
    """Return the value of every series of a metric, by one label."""
    return {label(labels, by): value for labels, value in series(host, metric)}


def probe_failing(host: Snapshot, check: Check) -> Iterator[Outcome]:
    probes = _by(host, PROBE_SUCCESS, "probe")
    if failing := sorted(probe for probe, success in probes.items() if not success):
        yield found(probes=listed(failing))
    elif probes:
        yield fine(number=len(probes))


def unreadable(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for _, number in series(host, TASKS_UNREADABLE):
        yield found(number=f"{number:.0f}") if number else fine()


def unverified(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if numbers := _by(host, UNVERIFIED_PROCESSES, "class"):
        yield found(processes=listed(f"{number:.0f} of {class_}" for class_, number in sorted(numbers.items())))


def capabilities(host: Snapshot, check: Check) -> Iterator[Outcome]:
    present = _by(host, PROBE_PRESENT, "probe")
    lacking: dict[str, list[str]] = {}
    for labels, _ in series(host, PROBE_MISSING_CAPABILITY_INFO):
        if present.get(probe := label(labels, "probe")):
            lacking.setdefault(probe, []).append(label(labels, "capability"))
    if lacking:
        yield found(probes=listed(f"{probe} ({', '.join(needed)})" for probe, needed in lacking.items()))
    elif present:
        yield fine()


def schedstat(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for labels, _ in series(host, TASK_SOURCE_INFO):
        yield found(reason=label(labels, "reason")) if label(labels, "file") == "stat" else fine()


def stacks(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for labels, _ in series(host, WAITS_SOURCE_INFO):
        source = label(labels, "source")
        if source in ("stack", "bpf"):
            yield fine()
        else:
            words = {"source": "nowhere" if source == "none" else source, "reason": label(labels, "reason")}
            yield Outcome(Level.PROBLEM if source == "none" else None, words)


def sampler_priority(host: Snapshot, check: Check) -> Iterator[Outcome]:
    for labels, _ in series(host, SAMPLER_PRIORITY_INFO):
        policy, reason = label(labels, "policy"), label(labels, "reason")
        yield fine() if policy == "fifo" else found(policy=policy, reason=f"; {reason}" if reason else "")


def lost_samples(host: Snapshot, check: Check) -> Iterator[Outcome]:
    lost = _by(host, SAMPLER_LOST_SAMPLES, "probe")
    shares = {
        probe: lost.get(probe, 0.0) / due
        for probe, taken in _by(host, SAMPLER_SAMPLES, "probe").items()
        if (due := taken + lost.get(probe, 0.0)) >= MIN_DUE_SAMPLES
    }
    limit = alert_threshold(host, check)
    if many := sorted((probe for probe, share in shares.items() if share > limit), key=lambda probe: -shares[probe]):
        yield found(probes=listed(f"{probe} {shares[probe]:.0%}" for probe in many))
    elif shares:
        yield fine(worst=f"{max(shares.values()):.0%}")


def clock_skew(host: Snapshot, check: Check) -> Iterator[Outcome]:
    times = _by(host, PROBE_LAST_SUCCESS_TIMESTAMP_SECONDS, "probe").values()
    if newest := max(times, default=0.0):
        away = abs(host.time - newest)
        yield (found if away > (check.threshold or 0.0) else fine)(seconds=max(1, math.ceil(away)))


def daemon_stuck(host: Snapshot, check: Check) -> Iterator[Outcome]:
    stuck = _by(host, CEPH_DAEMON_STUCK, "daemon")
    if daemons := sorted(daemon for daemon, value in stuck.items() if value):
        yield found(daemons=listed(daemons))
    elif stuck:
        yield fine()


def socket_silent(host: Snapshot, check: Check) -> Iterator[Outcome]:
    sockets = _by(host, CEPH_SOCKET_UP, "daemon")
    stuck = _by(host, CEPH_DAEMON_STUCK, "daemon")
    reasons = {
        label(labels, "daemon"): label(labels, "reason")
        for labels, value in series(host, CEPH_SOCKET_PROBLEM_INFO)
        if value
    }
    silent = sorted(daemon for daemon, up in sockets.items() if not up and not stuck.get(daemon))
    if silent:
        yield found(daemons=listed(f"{daemon} ({reasons.get(daemon, 'no answer')})" for daemon in silent))
    elif any(sockets.values()):
        yield fine(number=sum(1 for up in sockets.values() if up))


def client_blind(host: Snapshot, check: Check) -> Iterator[Outcome]:
    every = _by(host, CEPH_CLIENT_INSTANCES, "client")
    blind = _by(host, CEPH_CLIENT_BLIND_INSTANCES, "client")
    words = [f"{number:.0f} of {every.get(client, number):.0f} {client}" for client, number in blind.items() if number]
    if words:
        yield found(clients=listed(sorted(words)))
    elif any(every.values()):
        yield fine()


def blocklisted(host: Snapshot, check: Check) -> Iterator[Outcome]:
    clients = _by(host, CEPH_CLIENT_BLOCKLISTED, "client")
    if out := sorted(client for client, value in clients.items() if value):
        yield found(clients=listed(out))
    elif clients:
        yield fine()


def slow_ops(host: Snapshot, check: Check) -> Iterator[Outcome]:
    osds = _by(host, OSD_SLOW_OPS, "daemon")
    if slow := sorted(osd for osd, number in osds.items() if number):
        yield found(daemons=listed(f"{osd} has {osds[osd]:.0f}" for osd in slow))
    elif osds:
        yield fine()


def mds_cache_ram(host: Snapshot, check: Check) -> Iterator[Outcome]:
    limits, memory = _cache_limits(host), _memory(host)
    if not limits or memory is None:
        return
    total = sum(limits.values())
    need = total * (check.threshold or 1.0)
    words = {"limit": _size(total), "memory": _size(memory)}
    yield found(daemons=listed(limits), need=_size(need), **words) if need > memory else fine(**words)


def mds_cache_peak(host: Snapshot, check: Check) -> Iterator[Outcome]:
    limits, peaks = _cache_limits(host), _by(host, MDS_CACHE_PEAK_BYTES, "daemon")
    limit = alert_threshold(host, check)
    known = {daemon: peaks[daemon] for daemon in limits if daemon in peaks}
    if full := [daemon for daemon, peak in known.items() if peak >= limit * limits[daemon]]:
        yield found(daemons=listed(f"{daemon} {_size(known[daemon])} of {_size(limits[daemon])}" for daemon in full))
    elif known:
        yield fine()


def mds_cache_small(host: Snapshot, check: Check) -> Iterator[Outcome]:
    limits, memory = _cache_limits(host), _memory(host)
    if memory is None or ROOMY_FACTOR * sum(limits.values()) > memory:
        return
    sizes = _by(host, MDS_CACHE_BYTES, "daemon")
    inodes = _by(host, MDS_INODES, "daemon")
    for daemon, limit in limits.items():
        if limit <= (check.threshold or 0.0) * GIBIBYTE:
            room = ""
            if inodes.get(daemon, 0.0) >= MIN_INODES and sizes.get(daemon):
                each = sizes[daemon] / inodes[daemon]
                room = f" (room for about {_count(limit / each)} inodes of {_size(each)}, as they are now)"
            yield found(daemons=daemon, limit=_size(limit), room=room, memory=_size(memory))


def _cache_limits(host: Snapshot) -> dict[str, float]:
    return dict(sorted(_by(host, MDS_CACHE_LIMIT_BYTES, "daemon").items()))


def _memory(host: Snapshot) -> float | None:
    gib = fact(host, "memory_gib")
    return float(gib) * GIBIBYTE if gib.isdecimal() and gib != "0" else None


def _size(size: float) -> str:
    return format_figure(size, "bytes")


def _count(number: float) -> str:
    """Return a large number in two digits: ``1.3 million``."""
    for name, unit in (("million", 1e6), ("thousand", 1e3)):
        if number >= unit:
            return f"{float(f'{number / unit:.2g}'):g} {name}"
    return f"{number:.0f}"


def quota(host: Snapshot, check: Check) -> Iterator[Outcome]:
    quotas = _by(host, CGROUP_CPU_QUOTA_CPUS, "owner")
    if quotas:
        yield found(owners=listed(f"{owner} {cpus:.3g} CPUs" for owner, cpus in sorted(quotas.items())))


def io_limit(host: Snapshot, check: Check) -> Iterator[Outcome]:
    if owners := sorted({label(labels, "owner") for labels, _ in series(host, CGROUP_IO_LIMIT)}):
        yield found(owners=listed(owners))


DAEMONS: Mapping[str, LookAtHost] = {
    look.__name__: look
    for look in (
        probe_failing, unreadable, unverified, capabilities, schedstat, stacks, sampler_priority, lost_samples,
        clock_skew, daemon_stuck, socket_silent, client_blind, blocklisted, slow_ops, mds_cache_ram, mds_cache_peak,
        mds_cache_small, quota, io_limit,
    )
}  # fmt: skip
