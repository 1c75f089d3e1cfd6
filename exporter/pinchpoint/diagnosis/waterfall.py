"""Where the time of the mean operation of OSDs and MDSs goes: one step after the other.

The daemons count the seconds of each step and its occurrences (docs/ceph.md lists Ceph's counters), so a window shows
the mean over every operation that ended in it, of all clients. Times are in seconds.

An OSD's steps before BlueStore are those of client operations; those in BlueStore are means over its transactions,
which replicas and the OSD itself cause too. If such transactions take longer than a client's write leaves for them, its
steps are scaled to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from pinchpoint.diagnosis.series import MAX_VALUE, label, picked
from pinchpoint.figures import format_figure
from pinchpoint.metrics import (
    MDS_REPLIES,
    MDS_REPLY_SECONDS,
    OSD_OP_SECONDS,
    OSD_OPS,
    OSD_STEP_SECONDS,
    OSD_STEPS,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_RUNQUEUE_SECONDS,
)
from pinchpoint.model import Labels, Metric, Snapshot, Snapshots

__all__ = [
    "Shift",
    "Step",
    "Waterfall",
    "has_moved",
    "shift",
    "shift_words",
    "throttle_doubt",
    "waterfall_words",
    "waterfalls",
]

MIN_OPERATIONS = 10
"""Operations below which a window has no mean."""
MIN_TYPE_SHARE = 0.05
"""Share of all operations from which a kind of operation is shown."""
MIN_NAMED_STEP_SHARE = 0.05
"""Share of an operation's time from which a step is named."""
SLOW_DAEMON_RATIO = 2.0
"""Ratio of a daemon's mean to that of all daemons from which it is shown by itself."""
HELD = frozenset({"metadata", "prepare", "throttle", "store prepare", "data read"})
"""Steps for which an operation holds a worker of an OSD, since BlueStore's throttles and reads block: others queue."""
MOVED_RATIO = 1.5
"""Ratio between two means of a step from which it has moved ..."""
MIN_MOVED_SHARE = 0.1
"""... if their difference is this share of the longer operation."""


class Step(msgspec.Struct, frozen=True):
    """One step of an operation."""

    name: str
    seconds: float
    """Mean time per operation."""


class Waterfall(msgspec.Struct, frozen=True):
    """The mean operation of one kind."""

    operation: str
    """``OSD write``, ``OSD read``, ``MDS request``."""
    daemon: str
    """Empty for all daemons together."""
    rate: float
    """Operations per second."""
    seconds: float
    """Mean time of one, inside the daemon."""
    steps: tuple[Step, ...]
    """In the order in which they happen; they add up to `seconds`."""

    @property
    def kind(self) -> str:
        """The kind of daemon: ``OSD`` or ``MDS``."""
        return self.operation.partition(" ")[0]

    @property
    def largest(self) -> Step:
        """The longest step."""
        return max(self.steps, key=lambda step: step.seconds)

    @property
    def cause(self) -> Step:
        """The longest step, if the queue for a worker counts for the longest one that holds workers."""
        steps = {step.name: step.seconds for step in self.steps}
        if held := steps.keys() & HELD:
            steps[max(held, key=steps.__getitem__)] += steps.pop("queue", 0.0)
        return max((Step(name, seconds) for name, seconds in steps.items()), key=lambda step: step.seconds)


class Shift(msgspec.Struct, frozen=True):
    """A step that takes another time than before."""

    operation: str
    step: str
    before: float
    after: float


_Gains = Mapping[tuple[str, str], float]
"""By how much a daemon's counters rose, by counter and label."""
COUNTERS: Mapping[str, tuple[Metric, str]] = {
    "ops": (OSD_OPS, "type"),
    "op_seconds": (OSD_OP_SECONDS, "type"),
    "steps": (OSD_STEPS, "step"),
    "step_seconds": (OSD_STEP_SECONDS, "step"),
    "replies": (MDS_REPLIES, ""),
    "reply_seconds": (MDS_REPLY_SECONDS, ""),
}
LOCK_LABEL = ("resource", "mds_lock")
"""Marks the series of an MDS's lock."""


def waterfalls(before: Snapshots, after: Snapshots) -> tuple[Waterfall, ...]:
    """Return the mean operations between two moments: over all daemons, then those of the slowest daemon if it differs.

    What a release does not count has no step, and is part of the rest.
    """
    daemons, seconds = _gains(before, after)
    if seconds <= 0:
        return ()
    found = []
    for prefix, builders in BUILDERS.items():
        own = {daemon: gains for daemon, gains in daemons.items() if daemon.startswith(prefix)}
        for build in builders:
            total = build("", _sum(own.values()), seconds)
            if total is None:
                continue
            found.append(total)
            each = [one for daemon, gains in own.items() if (one := build(daemon, gains, seconds)) is not None]
            slowest = max(each, key=lambda one: one.seconds, default=None)
            if len(each) > 1 and slowest is not None and slowest.seconds >= SLOW_DAEMON_RATIO * total.seconds:
                found.append(slowest)
    return tuple(found)


def shift(before: Sequence[Waterfall], after: Sequence[Waterfall]) -> tuple[Shift, ...]:
    """Return the steps of all daemons that moved between two windows, the largest difference first."""
    earlier = {one.operation: one for one in before if not one.daemon}
    found = []
    for later in (one for one in after if not one.daemon and one.operation in earlier):
        first = earlier[later.operation]
        times = {step.name: step.seconds for step in first.steps}
        for step in later.steps:
            if step.name not in times:
                continue
            if has_moved(times[step.name], step.seconds, max(first.seconds, later.seconds)):
                found.append(Shift(later.operation, step.name, times[step.name], step.seconds))
    return tuple(sorted(found, key=lambda one: -abs(one.after - one.before)))


def has_moved(before: float, after: float, whole: float) -> bool:
    """Return whether the mean of a step has moved; `whole` is the longer of the two operations."""
    low, high = sorted((before, after))
    return high >= MOVED_RATIO * low and high - low >= MIN_MOVED_SHARE * whole


def throttle_doubt(found: Iterable[Waterfall]) -> str:
    """Return why a full commit thread may not be the limit; empty if writes wait longer for something but a throttle.

    BlueStore's throttle holds the workers until earlier writes are committed. Below its default it lets only a few
    writes into each commit, and the thread is full of small ones.
    """
    for one in found:
        if one.operation == "OSD write" and not one.daemon and one.cause.name == "throttle":
            share = one.cause.seconds / one.seconds
            return (
                f"writes wait for a throttle of the OSDs for {share:.0%} of their time: a low one makes commits small"
            )
    return ""


def waterfall_words(found: Waterfall) -> str:
    """Return a waterfall in one sentence: ``an OSD write takes 4.1 ms, most of it kv commit: 0.2 queue, ...``."""
    total = format_figure(found.seconds, "seconds")
    where = f" in {found.daemon}" if found.daemon else ""
    largest = found.largest
    head = f"an {found.operation}{where} takes {total} inside the daemon"
    named = [step for step in found.steps if step.seconds >= MIN_NAMED_STEP_SHARE * found.seconds]
    if len(found.steps) < 2 or not named:
        return head
    share = largest.seconds / found.seconds
    unit = total.rpartition(" ")[2]
    parts = ", ".join(f"{_in_unit(step.seconds, unit)} {step.name}" for step in named)
    return f"{head}, {share:.0%} of it {largest.name}: {parts}"


def shift_words(found: Shift, before: str, after: str) -> str:
    """Return in one sentence how a step moved; `before` and `after` say when."""
    first, last = (format_figure(seconds, "seconds") for seconds in (found.before, found.after))
    return f"{found.step} of an {found.operation} takes {first} {before} and {last} {after}"


def _in_unit(seconds: float, unit: str) -> str:
    scaled = seconds * {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    return f"{scaled:.0f}" if scaled >= 10 else f"{scaled:.2g}"


def _gains(before: Snapshots, after: Snapshots) -> tuple[dict[str, dict[tuple[str, str], float]], float]:
    """Return how much each daemon's counters rose, and the seconds between the moments.

    A series that was reset in between is left out. The gains of a host that was seen for a part of the time are
    extrapolated to all of it.
    """
    daemons: dict[str, dict[tuple[str, str], float]] = {}
    spans = {host: after[host].time - before[host].time for host in before.keys() & after.keys()}
    seconds = max(spans.values(), default=0.0)
    for host, span in spans.items():
        if span <= 0:
            continue
        first, last, whole = before[host], after[host], seconds / span
        for key, (metric, name) in COUNTERS.items():
            for labels, gain in _rises(first, last, metric):
                daemon, kind = picked(labels, "daemon", name)
                daemons.setdefault(daemon, {})[key, kind] = gain * whole
        if MDS_REPLIES.name not in last.values:
            continue  # without an MDS there is no lock, and every resource would be looked at
        for key, metric in (("lock", RESOURCE_BUSY_SECONDS), ("lock_runqueue", RESOURCE_RUNQUEUE_SECONDS)):
            for labels, gain in _rises(first, last, metric, LOCK_LABEL):
                daemons.setdefault(label(labels, "owner"), {})[key, ""] = gain * whole
    return daemons, seconds


def _rises(
    first: Snapshot, last: Snapshot, metric: Metric, which: tuple[str, str] | None = None
) -> Iterator[tuple[Labels, float]]:
    """Yield by how much each series of a counter rose, or each that has the label `which`; what was reset has none."""
    earlier = first.values.get(metric.name, {})
    for labels, value in last.values.get(metric.name, {}).items():
        # Most series are those of other resources.
        if which is not None and which not in labels:
            continue
        old = earlier.get(labels)
        if old is not None and 0 <= old <= value < MAX_VALUE:
            yield labels, value - old


def _sum(daemons: Iterable[_Gains]) -> _Gains:
    total: dict[tuple[str, str], float] = {}
    for gains in daemons:
        for key, gain in gains.items():
            total[key] = total.get(key, 0.0) + gain
    return total


def _mean(gains: _Gains, step: str) -> float | None:
    """Return the mean time of one step; None if it is not counted or did not occur."""
    number, seconds = gains.get(("steps", step), 0.0), gains.get(("step_seconds", step))
    return seconds / number if number >= 1 and seconds is not None else None


def _client_operation(gains: _Gains, kind: str) -> tuple[float, float, float] | None:
    """Return the number of operations of one kind, their mean time, and its part before a worker has them.

    None if there are too few, or the OSD does not count that part.
    """
    number = gains.get(("ops", kind), 0.0)
    total = sum(gain for (key, _), gain in gains.items() if key == "ops")
    spent, process = gains.get(("op_seconds", kind), 0.0), gains.get(("step_seconds", f"{kind}_process"))
    if number < max(MIN_OPERATIONS, MIN_TYPE_SHARE * total) or spent <= 0 or process is None:
        return None
    return number, spent / number, max(0.0, spent - process) / number


def _queue(gains: _Gains, waited: float) -> list[Step]:
    """Return the time before an operation has its worker: until its message is complete, then in the queue."""
    if (received := _mean(gains, "receive")) is None:
        return [Step("queue", waited)]
    received = min(waited, received)
    return [Step("receive", received), Step("queue", waited - received)]


def _prepare(gains: _Gains, prepared: float) -> list[Step]:
    """Return the OSD's own preparation, and the part of it that looks up objects in RocksDB."""
    if (lookups := _lookups(gains)) is None:
        return [Step("prepare", prepared)]
    lookups = min(prepared, lookups)
    return [Step("metadata", lookups), Step("prepare", prepared - lookups)]


def _lookups(gains: _Gains) -> float | None:
    """Return the time of lookups in RocksDB per operation that arrived, of replicas too; None if not counted.

    Operations that fail are not among those that the OSD counts as done, but look up their object: a purge queue
    deletes 700 objects a second that do not exist (16.2.15).
    """
    spent, operations = gains.get(("step_seconds", "rocksdb_get")), gains.get(("steps", "receive"), 0.0)
    return None if spent is None or operations < 1 else spent / operations


def _fitted(steps: Sequence[Step], left: float, rest: str) -> list[Step]:
    """Return steps that fit into the time `left`, with the rest of it as a last step."""
    spent = sum(step.seconds for step in steps)
    scale = left / spent if spent > left else 1.0
    return [*(Step(step.name, step.seconds * scale) for step in steps), Step(rest, max(0.0, left - spent))]


def _write(daemon: str, gains: _Gains, seconds: float) -> Waterfall | None:
    if (found := _client_operation(gains, "write")) is None:
        return None
    number, whole, waited = found
    prepared, in_store, throttled = (_mean(gains, step) for step in ("write_prepare", "store_prepare", "throttle"))
    steps = []
    if prepared is not None:
        # It ends when the transaction is queued: what that took is BlueStore's, and so is the throttle.
        steps += _prepare(gains, max(0.0, prepared - (in_store or 0.0)))
    if throttled is not None:
        steps.append(Step("throttle", throttled))
    if in_store is not None:
        steps.append(Step("store prepare", max(0.0, in_store - (throttled or 0.0))))
    for name, step in (("data write", "data_write"), ("kv queue", "kv_queue"), ("kv commit", "kv_commit")):
        if (mean := _mean(gains, step)) is not None:
            steps.append(Step(name, mean))
    fitted = _fitted(steps, whole - waited, "replicas and reply")
    return Waterfall("OSD write", daemon, number / seconds, whole, (*_queue(gains, waited), *fitted))


def _read(daemon: str, gains: _Gains, seconds: float) -> Waterfall | None:
    if (found := _client_operation(gains, "read")) is None:
        return None
    number, whole, waited = found
    steps = [Step("metadata", lookups)] if (lookups := _lookups(gains)) is not None else []
    if (data := _mean(gains, "read_data")) is not None:
        steps.append(Step("data read", data))
    fitted = _fitted(steps, whole - waited, "process and reply")
    return Waterfall("OSD read", daemon, number / seconds, whole, (*_queue(gains, waited), *fitted))


def _request(daemon: str, gains: _Gains, seconds: float) -> Waterfall | None:
    number, spent = gains.get(("replies", ""), 0.0), gains.get(("reply_seconds", ""), 0.0)
    busy, runqueue = gains.get(("lock", "")), gains.get(("lock_runqueue", ""))
    if number < MIN_OPERATIONS or spent <= 0 or busy is None or runqueue is None:
        return None
    steps = [Step("work under mds_lock", max(0.0, busy - runqueue) / number), Step("without a CPU", runqueue / number)]
    fitted = _fitted(steps, spent / number, "queue, caps and OSDs")
    return Waterfall("MDS request", daemon, number / seconds, spent / number, tuple(fitted))


BUILDERS: Mapping[str, Sequence[Callable[[str, _Gains, float], Waterfall | None]]] = {
    "osd.": (_write, _read),
    "mds.": (_request,),
}
