"""Which faults a seed makes, and when: a pure function of the seed and the time that there is."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CALM_SECONDS", "DAEMONS", "DELAY_SECONDS", "OSDS", "PARTS", "Fault", "Kind", "active", "plan"]

OSDS = 2
DAEMONS = ("mon.a", "mgr.a", "mds.a", *(f"osd.{number}" for number in range(OSDS)))
PARTS = ("pinchpoint", "judge", "prometheus")
"""Parts of the stack that faults hit; the first is the exporter."""
HOST = "host"
STORE = "store"
"""Where runs are saved."""
CLOCK = "clock"
"""The wall clock of the exporter, the judge and the runs."""
LAST_CPU = "last CPU"
"""The CPU with the highest number: the first one often cannot be taken away."""
FAKE = "osd.77"
"""A process that only says that it is this daemon."""
DELAY_SECONDS = 0.02
"""How long an OSD waits before each operation, without any fault."""
BEFORE_SECONDS = 8.0
"""Time before the first fault: the loads and the verdicts on them start."""
CALM_SECONDS = 15.0
"""Time after the last fault, and time after any fault in which the verdict may still name it: it covers 3 s, is judged
every 2 s, is replaced 2 s later, and a daemon that was away catches up."""
PAUSES_SECONDS = (0.5, 6.0)
"""Time between the beginnings of two faults: most overlap."""
DURATIONS_SECONDS = (2.0, 12.0)
"""How long a fault lasts. A monitor marks an OSD down after 20 s (osd_heartbeat_grace), an MDS after 15 s."""
REST_SECONDS = 3.0
"""Time between two faults of the same target."""


class Kind(StrEnum):
    """A kind of fault."""

    FREEZE_DAEMON = "freeze daemon"
    KILL_DAEMON = "kill daemon"
    QUOTA = "CPU quota"
    SLOW_OSD = "slow OSD"
    SLOW_ADMIN = "slow admin socket"
    LIES = "lying admin socket"
    FREEZE_PART = "freeze"
    KILL_PART = "kill"
    STEP = "clock step"
    FULL_DISK = "full disk"
    FORKS = "fork storm"
    HOGS = "CPU hogs"
    PIDS = "no more threads"
    DESCRIPTORS = "no more descriptors"
    MEMORY = "no more memory"
    BPF = "BPF denied half-way"
    OFFLINE = "CPU offline"


@dataclass(frozen=True)
class Choice:
    """What a kind of fault can hit, and how hard."""

    targets: Sequence[str]
    levels: Sequence[float] = (0.0,)


CHOICES: Mapping[Kind, Choice] = {
    Kind.FREEZE_DAEMON: Choice(DAEMONS),
    # A killed manager or monitor restarts all that the cluster knows of itself, which says nothing of Pinchpoint.
    Kind.KILL_DAEMON: Choice([name for name in DAEMONS if name.startswith(("mds", "osd"))]),
    Kind.QUOTA: Choice([name for name in DAEMONS if name.startswith(("mds", "osd"))], (0.05, 0.2)),  # CPUs
    Kind.SLOW_OSD: Choice([name for name in DAEMONS if name.startswith("osd")], (0.05, 0.1, 0.3)),  # s an operation
    Kind.SLOW_ADMIN: Choice(DAEMONS, (0.2, 0.8, 3.0)),  # s of each pause
    Kind.LIES: Choice([FAKE], (0, 1, 2, 3)),  # number of the lie
    Kind.FREEZE_PART: Choice(PARTS),
    Kind.KILL_PART: Choice(PARTS),
    Kind.STEP: Choice([CLOCK], (-86400.0, -3600.0, -1.5, 1.5, 3600.0, 86400.0)),  # s
    Kind.FULL_DISK: Choice([STORE]),
    Kind.FORKS: Choice([HOST], (1, 4)),  # processes that fork
    Kind.HOGS: Choice([HOST], (1, 2, 6)),  # processes that compute
    Kind.PIDS: Choice(PARTS[:1]),
    Kind.DESCRIPTORS: Choice(PARTS[:2], (0, 3)),  # descriptors that are left
    Kind.MEMORY: Choice(PARTS[:2], (1, 8)),  # MB that are left
    # Commands of bpf(2): BPF_MAP_CREATE, BPF_MAP_LOOKUP_ELEM, BPF_PROG_LOAD, BPF_LINK_CREATE, BPF_ITER_CREATE.
    Kind.BPF: Choice(PARTS[:1], (0, 1, 5, 28, 33)),
    Kind.OFFLINE: Choice([LAST_CPU]),
}


@dataclass(frozen=True)
class Fault:
    """A fault, with times in seconds since the plan began."""

    kind: Kind
    target: str
    begin: float
    end: float
    level: float = 0.0
    """How hard it is: see `CHOICES`."""

    def __str__(self) -> str:
        level = f" {self.level:g}" if self.level else ""
        return f"{self.begin:6.1f} to {self.end:6.1f} s: {self.kind} {self.target}{level}"


def plan(seed: int, seconds: float) -> Sequence[Fault]:
    """Return the faults of a seed in the order of their beginnings; never two of one target at once."""
    chance = random.Random(seed)
    free: defaultdict[str, float] = defaultdict(float)
    faults: list[Fault] = []
    begin = BEFORE_SECONDS
    while begin < seconds - CALM_SECONDS - DURATIONS_SECONDS[0]:
        kind = chance.choice(list(Kind))
        target, level = chance.choice(CHOICES[kind].targets), chance.choice(CHOICES[kind].levels)
        end = min(begin + chance.uniform(*DURATIONS_SECONDS), seconds - CALM_SECONDS)
        if begin >= free[target]:
            faults.append(Fault(kind, target, round(begin, 1), round(end, 1), level))
            free[target] = end + REST_SECONDS
        begin += chance.uniform(*PAUSES_SECONDS)
    return faults


def active(faults: Sequence[Fault], now: float, after: float = CALM_SECONDS) -> list[Fault]:
    """Return the faults that last at `now` seconds, or ended at most `after` seconds before."""
    return [fault for fault in faults if fault.begin <= now <= fault.end + after]
