"""Threads of Ceph, of benchmarks and of the kernel, by what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pinchpoint.activity import Load
from pinchpoint.bpf.choice import choose_source
from pinchpoint.bpf.libbpf import BpfError
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.process_cost import CpuClocks
from pinchpoint.host.procfs import FormatError, decode, kworker_work, parse_stat, read_bytes
from pinchpoint.metrics import TASK_SOURCE_INFO, TASKS_FOLLOWED, TASKS_UNREADABLE, UNVERIFIED_PROCESSES
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.quotas import MAX_USER_THREADS, ThreadQuota
from pinchpoint.threads.processes import Process
from pinchpoint.threads.role_table import METRICS, RoleTable, RoleTotals
from pinchpoint.threads.roleless import METRICS as UNKNOWN_METRICS
from pinchpoint.threads.roleless import MIN_THREAD_SHARE, Hot, Name, UnknownThreads, hottest
from pinchpoint.threads.roleless import RESOURCE as UNKNOWN
from pinchpoint.threads.roles import BENCHMARK, KWORKER, UNVERIFIED
from pinchpoint.threads.task_source import Task, TaskSource, TaskUse
from pinchpoint.units import NANOSECONDS_PER_SECOND, TICKS_PER_SECOND

__all__ = ["Tasks"]

SLOW_EVERY_SAMPLES = 10
"""A thread whose role can't be full is read once in so many samples."""
CLOSE_INTERVAL_SECONDS = 5.0
"""Seconds between two comparisons of what was charged with what each process used."""
MIN_CLOSE_NANOSECONDS = 2 * NANOSECONDS_PER_SECOND // TICKS_PER_SECOND
"""Nanoseconds that a difference has to reach: two clock ticks, to which the totals of a process may be rounded."""
SHARED = ("lock", "pool")
"""Units whose busy time includes unseen threads."""
KERNEL = "kernel"
"""Process name of a kernel thread, which has none."""
NO_NAME = "?"
"""... and of a thread whose process was gone before the look."""
RECOUNT_INTERVAL_SECONDS = 5.0
"""Seconds after which the threads of known processes are listed even if nothing seems to have been forked."""


class Tasks(Probe):
    """CPU time and run-queue wait of every thread that has a role, and of the busiest one that has none."""

    name = "tasks"
    metrics = (*METRICS, *UNKNOWN_METRICS, TASK_SOURCE_INFO, TASKS_FOLLOWED, TASKS_UNREADABLE, UNVERIFIED_PROCESSES)
    capabilities = (Capability.BPF, Capability.PERFMON, Capability.SYS_NICE)
    interval = None
    rest_interval = 1.0
    fast = True

    def __init__(self, host: Host, source: TaskSource | None = None) -> None:
        super().__init__(host)
        self._source = source
        self._table = RoleTable()
        self._quota = ThreadQuota()
        self._clocks = CpuClocks(host.procfs)
        self._load = Load(host.activity)
        self._uses: dict[Task, tuple[str, Process, RoleTotals]] = {}
        self._processes: Mapping[int, Process] = {}
        self._turnover = -1
        self._counted = self._closed = float("-inf")
        self._charged: dict[int, int] = {}
        self._unknown: dict[int, tuple[Process, int]] = {}
        self._hottest = UnknownThreads(host.roles.thresholds[UNKNOWN], self._name)
        self._shared: list[int] = []
        """Processes whose sums are closed at each sample."""
        self._quick: list[Task] = []
        """Threads without a role that are read at each sample as long as they are hot."""
        self._last: float | None = None

    def sample(self, now: float) -> None:
        """Read every thread that is due."""
        try:
            self._sample(now)
        except BpfError:
            self.close()  # the next sample chooses anew
            raise

    def _sample(self, now: float) -> None:
        self._processes = self.host.processes.followed(now)
        if self._source is None:
            self._source = choose_source(self.host.procfs, self._period, self.host.task_source, self._most)
        source = self._source
        if self.host.processes.turnover != self._turnover or now - self._counted >= RECOUNT_INTERVAL_SECONDS:
            self._turnover = self.host.processes.turnover
            self._counted = now
            self._quota.share(process.owner for process in self._processes.values())
            source.follow(self._processes, now)
            self._count(source)
            if any(process.class_ == BENCHMARK for process in self._processes.values()):
                self.host.activity.note(now)
        closing = now - self._closed >= CLOSE_INTERVAL_SECONDS
        elapsed = 0.0 if self._last is None else now - self._last
        unknown: list[TaskUse] = []
        worth = MIN_THREAD_SHARE * elapsed * NANOSECONDS_PER_SECOND
        for used in source.sample(now, all_tasks=closing):
            task, run, wait = used
            use = self._use(task)
            if (use is None or use.role.fallback) and run + wait >= worth * task.sampled_every:
                unknown.append(used)
            if use is not None:
                self._table.charge(use, task.tgid, run, wait)
                if use.full:
                    use.ran[task] = run
                self._charged[task.tgid] = self._charged.get(task.tgid, 0) + run
        if elapsed:
            self._charge_unknown(unknown)
        self._close_sums(all_processes=closing)
        if closing:
            self._closed = now
            self._table.forget(now)
            self._slow_down()
        if self._last is not None:
            self._table.settle(elapsed, self.host.full.told(now))
            if self._table.full:
                self.host.full.note(now, elapsed, self._table.full)
            self._load.look(now, self._table.resources())
            self._hottest.settle(now, elapsed)
        self._last = now

    def _period(self, tgid: int, comm: str) -> int:
        process = self._processes.get(tgid)
        if process is None:
            return 1
        return 1 if self.host.roles.thread_role(process.class_, comm).role.unit is not None else SLOW_EVERY_SAMPLES

    def _most(self, tgid: int) -> int:
        process = self._processes.get(tgid)
        return MAX_USER_THREADS if process is None else self._quota.threads(process.owner)

    def _use(self, task: Task) -> RoleTotals | None:
        process = self._processes.get(task.tgid)
        if process is None:
            return None
        known = self._uses.get(task)
        if known is not None and known[0] == task.comm and known[1] is process:
            return known[2]
        role = self.host.roles.thread_role(process.class_, task.comm).role
        use = self._table.use(role, process.owner, daemon=process.daemon)
        self._uses[task] = (task.comm, process, use)
        return use

    def _charge_unknown(self, unknown: Sequence[TaskUse]) -> None:
        """Charge threads without a role; a hot one is read at every sample from now on."""
        for task, run, wait in hottest(unknown):
            period = task.sampled_every
            if (thread := self._unknown_thread(task)) is not None:
                self._hottest.charge(thread, run // period, wait // period)
            if period > 1:
                task.sampled_every = 1
                self._quick.append(task)

    def _unknown_thread(self, task: Task) -> Hot | None:
        """Return whom to charge for a thread; None for a worker whose work has a role."""
        if task.tgid not in self.host.processes.kworkers:
            return Hot(task)
        work = self._work(task) or KWORKER
        return Hot(task, work) if self.host.roles.thread_role(KWORKER, work).role.fallback else None

    def _slow_down(self) -> None:
        """Read cooled threads without a role as rarely as before."""
        hot = []
        for task in self._quick:
            if self._hottest.recent(Hot(task)):
                hot.append(task)
            else:
                task.sampled_every = self._period(task.tgid, task.comm)
        self._quick = hot

    def _work(self, worker: Task) -> str:
        """Return what a worker does; its comm in the kernel's tasks lacks that, and is cut."""
        if work := kworker_work(worker.comm):
            return work
        try:
            comm = read_bytes(f"{self.host.procfs}/{worker.tgid}/comm")
        except OSError:
            return ""
        return kworker_work(decode(comm.removesuffix(b"\n")))

    def _name(self, thread: Hot) -> Name | None:
        """Return the name of a thread without a role; None if it will have one at the next look."""
        task, work = thread
        if work:
            return Name(work, KWORKER)
        if (process := self._processes.get(task.tgid)) is not None:
            role = self.host.roles.thread_role(process.class_, task.comm).role
            named = process.owner if process.class_ == UNVERIFIED else process.comm
            return Name(task.comm, named) if role.fallback else None
        try:
            leader = parse_stat(read_bytes(f"{self.host.procfs}/{task.tgid}/stat"))
        except (OSError, FormatError):
            return Name(task.comm, task.comm if task.tid == task.tgid else NO_NAME)
        if leader.kernel_thread and leader.kworker:
            return None
        if self.host.roles.process(leader.comm, kernel=leader.kernel_thread) is not None:
            return None
        return Name(leader.comm, KERNEL) if leader.kernel_thread else Name(task.comm, leader.comm)

    def _count(self, source: TaskSource) -> None:
        """Count the threads of each role again; what has gone is forgotten here."""
        self._table.clear_threads()
        alive: dict[Task, tuple[str, Process, RoleTotals]] = {}
        for task in source.tasks():
            use = self._use(task)
            if use is not None:
                use.count(task.tgid)
                alive[task] = self._uses[task]
        self._uses = alive
        self._shared = [
            pid
            for pid, process in self._processes.items()
            if self.host.roles.thread_role(process.class_, process.comm).role.unit in SHARED
        ]

    def _close_sums(self, *, all_processes: bool) -> None:
        """Charge what unseen threads of a process used: those that lived between two looks.

        ceph-fuse went through 91 worker threads in 10 s; counting those that are seen twice finds a tenth of its CPU.
        The difference from the process' own total goes to the role of its leader's name. If that is a lock or a pool,
        it is charged at each sample, as busy time. Otherwise it is not busy time, since it is unknown when and by how
        many it was used.
        """
        for pid in self._processes if all_processes else self._shared:
            if (process := self._processes.get(pid)) is None:
                continue
            role = self.host.roles.thread_role(process.class_, process.comm).role
            try:
                left = self._clocks.nanoseconds(pid) - self._charged.get(pid, 0)
            except (OSError, FormatError):
                continue
            before = self._unknown.get(pid)
            if before is None or before[0] is not process:
                self._unknown[pid] = process, left
                continue
            lost = left - before[1]
            if lost < MIN_CLOSE_NANOSECONDS:
                continue  # or it belongs to threads only read once in `SLOW_EVERY_SAMPLES`
            self._unknown[pid] = process, left
            use = self._table.use(role, process.owner, daemon=process.daemon)
            if role.unit in SHARED:
                self._table.charge(use, pid, lost, 0)
            else:
                use.cpu += lost
        if all_processes:
            self._unknown = {pid: known for pid, known in self._unknown.items() if pid in self._processes}
            self._charged = {pid: charged for pid, charged in self._charged.items() if pid in self._processes}

    def points(self) -> Iterator[Point]:
        """Yield the series of every role."""
        yield from self._table.points()
        yield from self._hottest.points()
        if self._source is not None:
            yield TASK_SOURCE_INFO.point(1, self._source.name, self._source.file, self._source.reason)
            yield TASKS_FOLLOWED.point(len(self._uses))
            yield TASKS_UNREADABLE.point(self._source.unreadable + self.host.processes.unreadable)
        for class_, number in sorted(self.host.processes.unverified.items()):
            yield UNVERIFIED_PROCESSES.point(number, class_)

    def close(self) -> None:
        """Close the kept descriptors."""
        if self._source is not None:
            self._source.close()
            self._source = None
            self._turnover = -1
