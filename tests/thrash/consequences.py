"""What a verdict may name while a fault lasts, and shortly after: the truth, by how the fault is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from thrash.plan import Fault, Kind

__all__ = ["NO_ANSWER", "Use", "allowed", "restarted", "short", "silencing"]

NO_ANSWER = "stuck"
"""A verdict without a name: no request is answered."""
NAMES: Mapping[Kind, tuple[str, ...]] = {
    # It still counts as stuck until it answers; what waited for it arrives at once.
    Kind.FREEZE_DAEMON: ("stuck {target}", NO_ANSWER),
    # It starts, recovers, and the clients' requests are sent again.
    Kind.KILL_DAEMON: (r"\S+ {target}", NO_ANSWER),
    Kind.QUOTA: ("cpu_quota {target}", NO_ANSWER),
    Kind.FORKS: ("cpu host",),
    Kind.HOGS: ("cpu host",),
    Kind.OFFLINE: ("cpu host",),
}
"""Patterns of RESOURCE OWNER by the fault. A fault that is not here limits no benchmark: a slow OSD gives latency, and
what hits Pinchpoint itself may only make it blind."""
SILENCING = {Kind.FREEZE_PART, Kind.KILL_PART, Kind.PIDS, Kind.DESCRIPTORS, Kind.MEMORY, Kind.BPF}
"""Faults of a part of the stack after which it need not answer."""
WINDOW_SECONDS = 2.0
"""Shortest time over which the use of the machine is measured."""
FULL_SHARE = 0.5
"""Use of the CPUs or of a disk, by anybody, from which a verdict may name them: for a part of the time it is more."""


class Use(NamedTuple):
    """What everybody has used of the machine since its start, in seconds."""

    time: float
    """When, in monotonic seconds."""
    cpu: float
    """Of all CPUs together."""
    total: float
    """The same with the time that they were idle."""
    disks: Mapping[str, float]
    """Time in which each disk was busy."""


def allowed(faults: Iterable[Fault]) -> set[str]:
    """Return the patterns of limits that these faults explain."""
    return {name.format(target=re.escape(fault.target)) for fault in faults for name in NAMES.get(fault.kind, ())}


def short(uses: Sequence[Use]) -> set[str]:
    """Return the patterns of limits that others than the faults explain, given the uses of the last seconds."""
    found = set()
    for place, before in enumerate(uses):
        after = next((one for one in uses[place:] if one.time - before.time >= WINDOW_SECONDS), None)
        if after is None:
            break
        if after.cpu - before.cpu > FULL_SHARE * (after.total - before.total):
            found.add("cpu host")
        most = FULL_SHARE * (after.time - before.time)
        full = (name for name, busy in after.disks.items() if busy - before.disks.get(name, busy) > most)
        found |= {f"disk {re.escape(name)}" for name in full}
    return found


def restarted(faults: Iterable[Fault]) -> set[str]:
    """Return the daemons whose own counters these faults reset."""
    return {fault.target for fault in faults if fault.kind is Kind.KILL_DAEMON}


def silencing(faults: Iterable[Fault], part: str) -> bool:
    """Return whether one of these faults explains that a part of the stack does not answer."""
    return any(fault.kind in SILENCING and fault.target == part for fault in faults)
