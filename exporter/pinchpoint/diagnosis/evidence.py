"""The words of a verdict: sentences with the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pinchpoint.diagnosis.blame import BenchmarkWork, Limit

__all__ = ["MAX_LISTED", "blind", "evidence", "name", "owner", "some", "words"]

WAITS = {
    "cpu": "works on a CPU",
    "runqueue": "is ready to work and has no CPU",
    "mds": "waits for the MDS",
    "osd": "waits for OSDs",
    "client": "waits for the Ceph client itself",
    "writeback": "waits for writeback",
    "disk": "waits for disks",
    "network": "waits for the network",
    "memory": "waits for memory",
    "lock": "waits for locks in the kernel",
    "other": "waits in places that no rule knows",
    "idle": "sleeps or polls",
    "ceph": "waits for Ceph, and no admin socket says for what",
}
UNANSWERED = "passes without an answer to any of its requests"
MIN_SENTENCE_SHARE = 0.1
"""Share of the time under which a wait class is not worth a sentence."""
MIN_PART_SHARE = 0.05
"""Share of the time under which a part of a resource's busy time is not worth a word."""
MAX_LISTED = 3
"""Maximum number of sentences on wait classes, and on runners-up."""


def owner(name: str, host: str) -> str:
    """Return the owner of a resource: for what belongs to the whole host, the host."""
    return host if name == "host" else name


def name(limit: Limit) -> str:
    """Return the name of a resource: ``mds_lock of mds.a``, ``cpu of osd1:9748``."""
    if limit.resource == "stuck":
        return f"{limit.owner}, which is stuck"
    return f"{limit.resource} of {owner(limit.owner, limit.host)}"


def words(kind: str, limits: Sequence[Limit], straggler: str = "") -> str:
    """Return a verdict in a few words."""
    named = " and ".join(
        name(group[0]) if len(group) == 1 else f"{group[0].resource} of {_owners(group)}" for group in _groups(limits)
    )
    if straggler:
        return f"held by {straggler}" + (f", limited by {named}" if named else "")
    return f"limited by {named}" if named else kind


def _groups(limits: Sequence[Limit]) -> list[list[Limit]]:
    """Return the limits, grouped into answers."""
    groups: dict[tuple[str, str], list[Limit]] = {}
    for limit in limits:
        groups.setdefault(limit.kind, []).append(limit)
    return list(groups.values())


def _owners(group: Sequence[Limit]) -> str:
    return some([owner(limit.owner, limit.host) for limit in group])


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")


def evidence(kind: str, workload: BenchmarkWork, limits: Sequence[Limit], ranking: Sequence[Limit]) -> tuple[str, ...]:
    """Return the sentences with the evidence for a verdict."""
    whose = "the slowest rank" if kind == "straggler" else "the benchmark"
    return (*_waits(kind, workload), *_limits(limits, whose), *_nearest(kind, limits, ranking))


def _waits(kind: str, workload: BenchmarkWork) -> Iterator[str]:
    told = [(wait, share) for wait, share in workload.shares.items() if share >= MIN_SENTENCE_SHARE][:MAX_LISTED]
    for wait, share in told:
        # A client's requests are counted when they are answered: until then it seems to have none.
        what = UNANSWERED if (kind, wait) == ("stuck", "idle") else WAITS.get(wait, f"is spent on {wait}")
        line = f"{share:.0%} of {workload.benchmark or 'the benchmark'}'s time {what}"
        count = workload.seconds[wait]
        yield line if wait in ("idle", "cpu") else f"{line} ({count:.1f} of {workload.total:.1f} processes at a time)"


def _limits(limits: Sequence[Limit], whose: str) -> Iterator[str]:
    """Yield a sentence on each limit, or on the first of many similar ones: a cluster has hundreds of OSDs."""
    for group in _groups(limits):
        yield from (_busy(limit, whose) for limit in group[:MAX_LISTED])
        if more := group[MAX_LISTED:]:
            least, most = min(limit.busy for limit in more), max(limit.busy for limit in more)
            yield f"{len(more)} more of this resource are busy for {least:.0%} to {most:.0%}"


def _busy(limit: Limit, whose: str) -> str:
    if limit.resource == "stuck":
        return f"{limit.owner} on {limit.host} is stopped or hangs: nothing moves in it"
    parts = []
    own = limit.busy - limit.runqueue - limit.blocked
    if limit.runqueue >= MIN_PART_SHARE or limit.blocked >= MIN_PART_SHARE:
        parts = [
            f"{share:.0%} {what}"
            for share, what in (
                (own, "on a CPU"),
                (limit.runqueue, "waiting for a CPU"),
                (limit.blocked, "waiting for what is below it"),
            )
            if share >= MIN_PART_SHARE
        ]
    detail = f" ({', '.join(parts)})" if parts else ""
    return (
        f"{name(limit)} is busy for {limit.busy:.0%} of the time{detail}, full from {limit.threshold:.0%} on, "
        f"and answers for {limit.blame:.0%} of {whose}'s time"
    )


def _nearest(kind: str, limits: Sequence[Limit], ranking: Sequence[Limit]) -> Iterator[str]:
    """Yield the runners-up, so that readers need not wonder."""
    named = {(limit.resource, limit.owner, limit.host) for limit in limits}
    rest = [
        limit
        for limit in ranking
        if limit.blame >= MIN_SENTENCE_SHARE and (limit.resource, limit.owner, limit.host) not in named
    ]
    for limit in rest[: 1 if limits else MAX_LISTED]:
        state = "full too" if limit.full else "not full"
        yield f"{name(limit)} serves it as well and is {state}: busy for {limit.busy:.0%} of the time"
    if kind == "latency-bound" and not rest:
        yield "nothing that serves it is busy for a tenth of the time"


def blind(shares: Mapping[str, float], unseen: Mapping[str, float]) -> tuple[str, ...]:
    """Return what could not be seen, and the remedy."""
    found = [
        f"{share:.0%} of the time waits for {'the MDS' if wait == 'mds' else 'OSDs'}, and no exporter is on "
        f"{'its host' if wait == 'mds' else 'their hosts'}, or it was not asked"
        for wait, share in unseen.items()
    ]
    if (share := shares.get("ceph", 0.0)) >= MIN_PART_SHARE:
        found.append(
            f"{share:.0%} of the time is inside of a Ceph library without an admin socket: "
            "set admin_socket for [client] in ceph.conf"
        )
    return tuple(found)
