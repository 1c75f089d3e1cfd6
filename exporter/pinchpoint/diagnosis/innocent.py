"""What looks like the limit and is not: the usual suspects, each with the reason that clears it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from pinchpoint.diagnosis.blame import Limit, is_full
from pinchpoint.diagnosis.series import label, series
from pinchpoint.diagnosis.usage import ResourceUse, Usage
from pinchpoint.metrics import MDS_CACHE_BYTES, MDS_CACHE_LIMIT_BYTES
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.resources import entry_of

__all__ = ["innocent"]

MIN_SUSPECT_BUSY_SHARE = 0.5
"""Busy share from which a resource is a suspect."""
MIN_SUSPECT_FILL_SHARE = 0.95
"""Fill from which an MDS cache is a suspect: from here on the MDS trims (mds_cache_reservation)."""
MIN_SUSPECT_LINK_SHARE = 0.25
"""Busy share from which a link is a suspect."""
MIN_GUILTY_BLAME = 0.1
"""Blame from which a resource is not cleared."""
MIN_LITTLE_BLAME = 0.01
"""Blame from which what is cleared serves the benchmark a little."""
MIN_OWED_SHARE = 0.5
"""Share of busy time spent waiting for something below it from which a resource is cleared."""
MAX_CLEARED = 6


def innocent(hosts: Mapping[str, Usage], after: Snapshots, ranking: Sequence[Limit]) -> tuple[str, ...]:
    """Return a sentence for each resource that is busy, or looks full, and answers for nothing."""
    guilty = {(limit.host, limit.resource, limit.owner) for limit in ranking if limit.blame >= MIN_GUILTY_BLAME}
    owing = {(limit.host, limit.resource, limit.owner): limit for limit in ranking if limit.full}
    found: list[tuple[float, str]] = []
    for name, host in hosts.items():
        for use in host.resources:
            key = name, use.resource, use.owner
            if key in guilty:
                continue
            limit = owing.get(key)
            # Of a limit, what it waited for below it is part of its busy time.
            busy = use.busy if limit is None else limit.busy
            if reason := _owes(limit) or _little(limit) or _reason(use, host):
                found.append((busy, f"{use.resource} of {use.owner} on {name} is busy for {busy:.0%}: {reason}"))
    found += [(fill, sentence) for name in hosts for fill, sentence in _caches(name, after[name], guilty)]
    return tuple(sentence for _, sentence in sorted(found, key=lambda item: -item[0])[:MAX_CLEARED])


def _caches(host: str, after: Snapshot, guilty: Set[tuple[str, str, str]]) -> Iterator[tuple[float, str]]:
    limits = {label(labels, "daemon"): limit for labels, limit in series(after, MDS_CACHE_LIMIT_BYTES)}
    for labels, size in series(after, MDS_CACHE_BYTES):
        daemon = label(labels, "daemon")
        fill = size / limits[daemon] if limits.get(daemon) else 0.0
        if fill > MIN_SUSPECT_FILL_SHARE and (host, "mds_cache", daemon) not in guilty:
            reason = "nobody waits for a directory that it had to read again, so its fill costs nothing"
            yield fill, f"the cache of {daemon} on {host} is at {fill:.0%} of its limit: {reason}"


def _owes(limit: Limit | None) -> str:
    """Return why a resource that is full because of something below it is cleared."""
    if limit is None or limit.reach < MIN_GUILTY_BLAME or limit.runqueue + limit.blocked < MIN_OWED_SHARE * limit.busy:
        return ""
    what = "a CPU" if limit.runqueue >= limit.blocked else "its disk"
    return f"for {max(limit.runqueue, limit.blocked):.0%} it only waits for {what}, and that is full"


def _little(limit: Limit | None) -> str:
    """Return why a full resource that answers for a little of the benchmark's time is cleared."""
    if limit is None or limit.blame < MIN_LITTLE_BLAME:
        return ""
    return f"full, but it answers for only {limit.blame:.0%} of the benchmark's time"


def _reason(use: ResourceUse, host: Usage) -> str:
    """Return why a busy resource is not the limit, empty if it is not a suspect."""
    special = SUSPECTS.get(use.resource)
    if special is not None:
        return special(use, host)
    entry = entry_of(use.resource)
    if entry.harmless:
        return entry.harmless if use.busy >= MIN_SUSPECT_BUSY_SHARE else ""
    # The whole stands for its part, and what a thread without a role serves is unknown.
    unknown = entry.threshold is not None and not entry.serves
    return "" if entry.inside or unknown else _full(use)


def _full(use: ResourceUse) -> str:
    return "full, but nothing that the benchmark waits for is served by it" if is_full(use) else ""


def _kswapd(use: ResourceUse, host: Usage) -> str:
    if use.busy < MIN_SUSPECT_BUSY_SHARE or host.memory.stalls is None:
        return ""
    if host.memory.stalls > 0:
        times = f"{host.memory.stalls:.0f} times"
        return f"tasks had to reclaim memory themselves {times}, but the benchmark does not wait for it"
    return "it keeps up: no task had to reclaim memory itself"


def _disk(use: ResourceUse, host: Usage) -> str:
    if use.busy < MIN_SUSPECT_BUSY_SHARE:
        return ""
    if is_full(use):
        return "full, but it holds no file that the benchmark waits for"
    return "work is in it, but hardly ever waits in front of it: a queue makes a disk full, not busy time"


def _link(use: ResourceUse, host: Usage) -> str:
    return "below its speed, and without a queue" if use.busy >= MIN_SUSPECT_LINK_SHARE and not is_full(use) else ""


def _cpu_set(use: ResourceUse, host: Usage) -> str:
    full = is_full(use) and any(is_full(other) for other in host.resources if other.resource == "cpu")
    return "as full as all other CPUs of the host" if full else _full(use)


def _memory(use: ResourceUse, host: Usage) -> str:
    own = is_full(use) and any(is_full(other) for other in host.resources if other.resource == "memory_quota")
    return "tasks reclaim pages of their own cgroup, which is at its limit" if own else _full(use)


SUSPECTS: Mapping[str, Callable[[ResourceUse, Usage], str]] = {
    "kswapd": _kswapd,
    "disk": _disk,
    "link": _link,
    "cpu_set": _cpu_set,
    "memory": _memory,
}
