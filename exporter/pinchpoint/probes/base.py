"""What a probe is: one source, read at a steady pace and turned into counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from pinchpoint.activity import Activity
from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.workloads import FoundRuns
from pinchpoint.ceph.asker import Asker
from pinchpoint.choices import AUTO
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.users import Users, own_users
from pinchpoint.model import Metric, Point
from pinchpoint.profile.classes import CostRules, load_costs
from pinchpoint.threads.full import FullThreads
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import Roles
from pinchpoint.waits.stack_rules import WaitRules, load_waits

__all__ = ["Host", "NotPresent", "Probe"]


class NotPresent(Exception):  # noqa: N818 - it is an answer, not an error
    """This machine does not have what the probe reads. That is not a failure."""


class Host(msgspec.Struct, frozen=True):
    """The machine that the probes look at: a test points it at a folder.

    `procfs`, `sysfs` and `rootfs` are the mount points of the observed host's /proc, /sys and /.
    """

    procfs: Path
    sysfs: Path
    rootfs: Path
    roles: Roles
    processes: Processes
    runs: RunDirectory
    benchmarks: Sequence[type[Benchmark]] = ()
    """The kinds of benchmark that are looked for."""
    found: FoundRuns = msgspec.field(default_factory=FoundRuns)
    """The runs that were found among the processes: one probe finds them, others need them."""
    users: Users = msgspec.field(default_factory=own_users)
    """Whom the exporter trusts."""
    waits: WaitRules = msgspec.field(default_factory=load_waits)
    """What kernel stacks mean."""
    task_source: str = AUTO
    """How threads are read, one of `pinchpoint.choices.TASK_SOURCES`."""
    kworker_source: str = AUTO
    """How the time of workqueue workers is attributed, one of `pinchpoint.choices.KWORKER_SOURCES`."""
    wait_source: str = AUTO
    """How it is found out what threads wait for, one of `pinchpoint.choices.WAIT_SOURCES`."""
    nursery: Nursery | None = None
    """Starts the helper processes that read users' files; None where this process reads them."""
    costs: CostRules = msgspec.field(default_factory=load_costs)
    """What functions cost."""
    full: FullThreads = msgspec.field(default_factory=FullThreads)
    """The threads of what is full: the probe of threads notes them, that of profiles samples them."""
    activity: Activity = msgspec.field(default_factory=Activity)
    """Probes note in it that something happens."""
    daemons: Asker = msgspec.field(default_factory=Asker)
    """Asks the admin sockets of daemons."""
    clients: Asker = msgspec.field(default_factory=Asker)
    """Asks those of clients, whose users choose the paths: one that hangs delays no daemon's."""


class Probe(ABC):
    """One source of one machine.

    The sampler calls `sample` every `interval` seconds and `points` at each scrape, never both at once unless it is
    `lasting`.
    """

    name: ClassVar[str]
    """Name on the command line (``--no-probe.NAME``), in `pinchpoint.choices.PROBE_HELP` and in the ``probe`` label."""
    metrics: ClassVar[tuple[Metric, ...]]
    """Every metric that `points` may yield."""
    capabilities: ClassVar[tuple[Capability, ...]] = ()
    """What it needs to see everything, with uid 0 too. Without one of them it sees less, and its series say so."""
    helper_capabilities: ClassVar[tuple[Capability, ...]] = ()
    """What only the processes need that work for it: they have it before this process drops it."""
    start_capabilities: ClassVar[tuple[Capability, ...]] = ()
    """What it needs only to be made: what it opens then is open when this process drops it."""
    interval: float | None = 1.0
    """Seconds between two samples; None means the sampler's own ``--sample-interval``, or `min_interval`."""
    min_interval: ClassVar[float] = 0.0
    rest_interval: ClassVar[float | None] = None
    """Seconds between two samples while nothing happens on the host; None means as ever."""
    again: float | None = None
    """Seconds after a sample at which it wants another one, which is not counted, before the next is due."""
    steady: ClassVar[bool] = False
    """Whether it keeps its interval whatever the exporter costs: phases begin and end by it."""
    fast: ClassVar[bool] = False
    """Whether it belongs on the sampling thread (microseconds, never blocks); the others share another one."""
    urgent: ClassVar[bool] = False
    """Whether it gets a thread of its own, of the sampling thread's priority, since lost samples cost it accuracy."""

    lasting: ClassVar[bool] = False
    """Whether `points` may also be called during a sample that hangs, and then returns what the last one found."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @abstractmethod
    def sample(self, now: float) -> None:
        """Read the source once; `now` is a monotonic time in seconds.

        Raises NotPresent where the machine lacks the source, any other exception where reading failed; either way
        the next call tries again.
        """

    @abstractmethod
    def points(self) -> Iterable[Point]:
        """Return the present value of every series of this probe."""

    def close(self) -> None:  # noqa: B027 - most probes keep nothing open
        """Release what the probe keeps open."""
