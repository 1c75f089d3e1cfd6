"""The processes of benchmarks and their threads, as those who look at them see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from pinchpoint.benchmarks.workloads import Member
from pinchpoint.host.procfs import FormatError, ProcessIo
from pinchpoint.threads.kernel_stacks import StackFile
from pinchpoint.threads.task_source import Task, TaskUse
from pinchpoint.units import SECONDS_PER_NANOSECOND
from pinchpoint.user_labels import user_of
from pinchpoint.waits.datafiles import DataPlace
from pinchpoint.waits.division import History, ProcessTime, ThreadTime, total
from pinchpoint.waits.ranks import RankSample, read_work
from pinchpoint.waits.spinning import Spin

__all__ = ["Place", "WaitSource", "WatchedProcess", "WatchedThread"]


class WatchedThread(ThreadTime):
    """A thread of a benchmark."""

    __slots__ = ("directory", "late", "main", "moved", "run", "seen", "slept", "stack")

    def __init__(self, directory: str, *, main: bool) -> None:
        super().__init__()
        self.directory = directory
        self.main = main
        self.seen = float("-inf")
        """When its stack was read, in monotonic seconds."""
        self.slept = 0
        """Looks since it last ran."""
        self.stack = StackFile(directory)
        self.run = self.late = 0.0
        """Seconds on a CPU, and of run-queue wait, since they were taken."""
        self.moved: ProcessIo | None = None
        """What it had moved when its progress was read."""

    def ran(self, use: TaskUse) -> None:
        """Add what it used."""
        self.run += use.run * SECONDS_PER_NANOSECOND
        self.late += use.wait * SECONDS_PER_NANOSECOND

    def used(self) -> tuple[float, float]:
        """Return its seconds on a CPU and of run-queue wait since the last call."""
        found = self.run, self.late
        self.run = self.late = 0.0
        return found


class WatchedProcess:
    """A process of a benchmark."""

    def __init__(self, member: Member, *, parent: int = 0) -> None:
        self.member = member
        self.process = member.process
        self.parent = parent
        self.number: int | None = None
        """Its rank in MPI, if known."""
        self.rank = False
        """Whether it is an MPI rank."""
        self.trusted = user_of(member.process.owner) is None
        """Whether its user is trusted."""
        self.time = ProcessTime()
        self.history = History()
        self.block: dict[str, float] = {}
        """Times of the last block."""
        self.since: dict[str, float] = {}
        """Times since its progress was read."""
        self.threads: dict[Task, WatchedThread] = {}
        self.library = False
        """Whether it has the threads of a Ceph library."""
        self.place: DataPlace | None = None
        self.mount: int | None = None
        """The ceph-fuse that it waits for, by pid."""
        self.looked = float("-inf")
        """When its files were read."""
        self.spin = Spin()

    def settle(self, block: dict[str, float]) -> None:
        """Take the times of a block."""
        self.block = block
        self.history.add(block)
        self.since = total((self.since, block))

    def progress(self, directory: str) -> RankSample | None:
        """Read how far it has come, None if it has gone or may not be read; `directory` is its own in procfs."""
        times, self.since = self.since, {}
        try:
            work = read_work(directory)
        except (OSError, FormatError):
            return None
        process = self.process
        return RankSample(process.pid, process.start, process.comm, self.parent, self.number, work, times)

    def close(self) -> None:
        """Close the descriptors."""
        for thread in self.threads.values():
            thread.stack.close()


Place = Callable[[WatchedProcess, str, float], str]
"""Returns the class of a process' wait for data at a monotonic time in seconds, by the file system it works on."""


class WaitSource(Protocol):
    """The interface of every way to find out what threads wait for: it fills `WatchedProcess.time` and ``spin``."""

    interval: float | None
    """Seconds between two looks; None means the sampler's own interval."""

    @property
    def how(self) -> tuple[str, str]:
        """Its name in ``pinchpoint_waits_source_info``, "" before the first look, and why it is not a better one."""

    def follow(self, processes: Collection[WatchedProcess], now: float) -> None:
        """Look at the threads of these processes from now on. Raises BpfError."""

    def look(
        self, processes: Mapping[int, WatchedProcess], tasks: Iterable[Task], used: Mapping[Task, TaskUse], now: float
    ) -> None:
        """Divide the time since the last look, of processes by pid.

        A procfs source says which `tasks` there are and, in `used`, which of them ran; `now` is a monotonic time.
        Raises BpfError.
        """

    @property
    def kernel_seconds(self) -> float:
        """Seconds of CPU that it used in the kernel, outside of this process."""

    def close(self) -> None:
        """Release everything but what processes keep open."""
