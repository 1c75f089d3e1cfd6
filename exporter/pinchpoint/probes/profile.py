"""What full threads spend their CPU time on, from samples of their stacks.

Only the threads of resources that are full are sampled, for `SAMPLING_SECONDS` at a time, and the cost of that is paid
from a budget: each sample costs 0.1 to 0.4 ms, mostly for unwinding in Python.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pinchpoint.clock import STEADY
from pinchpoint.host.capabilities import Capability
from pinchpoint.metrics import COST_LOST_SAMPLES, COST_RATIO, COST_SAMPLES, COST_SOURCE_INFO, KEEP_ENDED_SECONDS
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, Probe
from pinchpoint.profile.binaries import Binaries, Image
from pinchpoint.profile.classes import Frame
from pinchpoint.profile.collected import Collector, Profile
from pinchpoint.profile.kernel import Kernel
from pinchpoint.profile.perf_events import PerfError, RawSample, ThreadEvent, parse_records
from pinchpoint.profile.unwind import unwind
from pinchpoint.threads.full import FullResource, FullThread

__all__ = ["ProfileProbe"]

FREQUENCY_HERTZ = 49.0
"""Samples of a thread a second: no divisor of what the kernel and daemons do 100 or 1,000 times a second."""
MIN_FREQUENCY_HERTZ = 11.0
"""If the budget is not enough for this many, fewer threads are sampled."""
SAMPLES_INTERVAL_SECONDS = 0.1
"""Seconds between two looks at samples: the memory that the kernel writes a thread's to holds those of 0.3 s."""
IDLE_INTERVAL_SECONDS = 0.5
"""Seconds between two looks whether anything is full."""
MAX_THREADS = 8
"""Threads that are sampled at once."""
SAMPLING_SECONDS = 5.0
PAUSE_SECONDS = 5.0
"""Shortest time between two windows."""
LIST_SECONDS = 1.0
"""Seconds between two looks for threads that were born during a window."""
BUDGET_CPUS = 0.005
"""CPUs that may be used, on average ..."""
MAX_SAVED_SECONDS = 0.3
"""... but no more CPU seconds at once: the first window also reads symbol tables."""
MIN_SAVED_SECONDS = 0.1
"""CPU seconds with which a window begins."""
FIRST_COST_SECONDS = 0.0004
"""CPU seconds that a sample is taken to cost before the first was taken."""
NAMING_SECONDS = 0.03
"""CPU seconds after which naming functions goes on in the next sample, so that other probes are not late."""
MIN_COST_SECONDS = 0.0001
"""... and afterwards at least."""
MIN_SHOWN_SAMPLES = 100
"""Samples from which shares are shown: 95 of 100 are then right to within 10 points (binomial distribution)."""
MAX_SHOWN_SAMPLES = 1000
"""Samples after which older ones no longer count in the shares."""
MAX_PROFILES = 32
"""Profiles that are kept, one for each resource and window."""
MAX_RESOURCES = 16
"""Resources that have series."""
KERNEL_FILE = ""


class _Group(NamedTuple):
    """The stacks of one resource in the window."""

    collector: Collector
    stacks: Counter[_Stack]


class _Stack(NamedTuple):
    pid: int
    kernel: tuple[int, ...]
    user: tuple[int, ...]


class _Sampled(NamedTuple):
    event: ThreadEvent
    resource: tuple[str, str]
    pid: int


class _Window:
    """A window in progress."""

    def __init__(self, now: float, frequency: float, threads: int) -> None:
        self.began = now
        self.start = STEADY.now()
        self.end = self.start
        self.frequency = frequency
        self.threads = threads
        """How many may be sampled at once."""
        self.listed = now
        self.events: dict[int, _Sampled] = {}
        self.images: dict[int, tuple[Image, tuple[int, int]]] = {}
        self.groups: dict[tuple[str, str], _Group] = {}
        self.samples = 0


class _Series:
    """The samples of one resource."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.shares: dict[str, float] = {}
        """The share of each class in the last samples; empty if they are too few."""
        self._recent: deque[Profile] = deque()
        self.seen = 0.0
        """When a window with it ended last, in monotonic seconds."""

    def add(self, profile: Profile, now: float) -> None:
        self.seen = now
        self.total.update(profile.classes)
        self._recent.append(profile)
        samples = sum(one.samples for one in self._recent)
        while samples - self._recent[0].samples >= MAX_SHOWN_SAMPLES:
            samples -= self._recent.popleft().samples
        if samples >= MIN_SHOWN_SAMPLES:
            recent = sum((Counter(one.classes) for one in self._recent), Counter[str]())
            self.shares = {cost: recent[cost] / samples for cost in sorted(self.total)}


class ProfileProbe(Probe):
    """Stack samples of the threads of full resources."""

    name = "profile"
    metrics = (COST_SAMPLES, COST_RATIO, COST_LOST_SAMPLES, COST_SOURCE_INFO)
    capabilities = (Capability.PERFMON, Capability.BPF, Capability.SYS_PTRACE, Capability.SYS_ADMIN)
    start_capabilities = (Capability.SYSLOG,)
    interval = IDLE_INTERVAL_SECONDS
    rest_interval = 1.0
    lasting = True

    def __init__(self, host: Host, cpu: Callable[[], float] = time.thread_time) -> None:
        super().__init__(host)
        self._cpu = cpu
        self._binaries = Binaries(host.procfs, host.rootfs)
        self._kernel = Kernel(host.procfs / "kallsyms")
        self._window: _Window | None = None
        self._naming: Iterator[None] | None = None
        self._saved = MAX_SAVED_SECONDS
        self._last: float | None = None
        self._next = float("-inf")
        self._used = float("-inf")
        """When files were last needed, in monotonic seconds."""
        self._cost = FIRST_COST_SECONDS
        """CPU seconds that a sample costs, as measured."""
        self._spent = 0.0
        """CPU seconds since the window began."""
        self._series: dict[tuple[str, str], _Series] = {}
        self._lost = 0
        self._refusal: str | None = None
        """Why threads can't be sampled, "" if they can, None before the first try."""
        self._profiles: deque[Profile] = deque(maxlen=MAX_PROFILES)

    def sample(self, now: float) -> None:
        """Begin a window, read the samples of one, or name its functions."""
        began = self._cpu()
        if self._last is not None:
            self._saved = min(MAX_SAVED_SECONDS, self._saved + BUDGET_CPUS * (now - self._last))
        self._last = now
        try:
            self._go_on(now)
        finally:
            works = self._window is not None or self._naming is not None
            self.interval = SAMPLES_INTERVAL_SECONDS if works else IDLE_INTERVAL_SECONDS
            spent = self._cpu() - began
            self._saved -= spent
            self._spent += spent

    def _go_on(self, now: float) -> None:
        if self._naming is not None:
            if next(self._naming, self) is self:
                self._naming = None
                self._next = now + PAUSE_SECONDS
        elif self._window is not None:
            self._read(self._window, now)
        elif now >= self._next and self._saved >= MIN_SAVED_SECONDS:
            if full := self.host.full.resources(now):
                self._begin(now, full)
            elif now - self._used > KEEP_ENDED_SECONDS:
                self._forget(now)

    def _begin(self, now: float, full: Sequence[FullResource]) -> None:
        threads = min(MAX_THREADS, sum(len(resource.threads) for resource in full))
        if not threads:
            return
        affordable = self._saved / self._cost / SAMPLING_SECONDS
        threads = max(1, min(threads, int(affordable / MIN_FREQUENCY_HERTZ)))
        window = _Window(now, min(FREQUENCY_HERTZ, affordable / threads), threads)
        try:
            self._list(window, full)
        except PerfError as error:
            self._refusal = str(error)
            self._end_events(window)
            self._next = now + KEEP_ENDED_SECONDS
            return
        if window.events:
            self._refusal = ""
            self._spent = 0.0
            self._window, self._used = window, now
        else:
            self._next = now + PAUSE_SECONDS

    def _list(self, window: _Window, full: Sequence[FullResource]) -> None:
        """Sample further threads. Raises PerfError if none is sampled, and none can be."""
        for resource, thread in _in_turn(full):
            if len(window.events) >= window.threads:
                return
            if thread.tid in window.events:
                continue
            try:
                if thread.pid not in window.images:
                    image = Image(self.host.procfs, thread.pid, self._binaries)
                    window.images[thread.pid] = image, _program(self.host.procfs, thread.pid)
                event = ThreadEvent(thread.tid, window.frequency)
            except OSError:
                continue  # the thread, or its process, has ended
            except PerfError:
                if window.events:
                    return  # no more memory may be locked
                raise
            key = resource.resource, resource.owner
            window.groups.setdefault(key, _Group(Collector(self.host.costs), Counter()))
            window.events[thread.tid] = _Sampled(event, key, thread.pid)

    def _read(self, window: _Window, now: float) -> None:
        for sampled in list(window.events.values()):
            records = parse_records(sampled.event.read())
            self._lost += records.lost
            image = window.images[sampled.pid][0]
            stacks = window.groups[sampled.resource].stacks
            window.samples += len(records.samples)
            while records.samples:
                stacks[_addresses(sampled.pid, image, records.samples.pop())] += 1
        full = self.host.full.resources(now)
        if not full or now - window.began >= SAMPLING_SECONDS:
            window.end = STEADY.now()
            self._end_events(window)
            self._window, self._naming = None, self._name(window, now)
        elif now - window.listed >= LIST_SECONDS:
            window.listed = now
            for image, _ in window.images.values():
                with suppress(OSError):
                    image.look()
            self._list(window, full)

    def _end_events(self, window: _Window) -> None:
        for sampled in window.events.values():
            sampled.event.close()
        window.events.clear()

    def _name(self, window: _Window, now: float) -> Iterator[None]:
        """Name the functions of a window, a part at a time."""
        began = self._cpu()
        replaced = {
            pid for pid, (_, program) in window.images.items() if _program(self.host.procfs, pid) not in (program, GONE)
        }
        for group in window.groups.values():
            for stack, count in group.stacks.items():
                if stack.pid in replaced:
                    continue  # addresses of a program that no longer runs
                image = window.images[stack.pid][0]
                kernel = [Frame(self._kernel.name(address) or "[kernel]", KERNEL_FILE) for address in stack.kernel]
                group.collector.add([*kernel, *(self._user_frame(image, address) for address in stack.user)], count)
                if self._cpu() - began > NAMING_SECONDS:
                    yield
                    began = self._cpu()
        for (resource, owner), group in window.groups.items():
            if group.collector.samples:
                profile = group.collector.profile(resource, owner, window.start, window.end, 1 / window.frequency)
                self._keep(profile, now)
        if window.samples:
            self._cost = max(MIN_COST_SECONDS, (self._cost + self._spent / window.samples) / 2)

    def _keep(self, profile: Profile, now: float) -> None:
        self._profiles.append(profile)
        key = profile.resource, profile.owner
        if key not in self._series and len(self._series) >= MAX_RESOURCES:
            self._series.pop(min(self._series, key=lambda known: self._series[known].seen))
        self._series.setdefault(key, _Series()).add(profile, now)

    def _user_frame(self, image: Image, address: int) -> Frame:
        place = image.place(address)
        if place is None:
            return Frame("[unknown]", "[unknown]")
        name = None
        with suppress(OSError):
            name = self._binaries.name(place)
        return Frame(name or f"[{place.file.strip('[]')}]", place.file)

    def _forget(self, now: float) -> None:
        """Forget what is needed only while something is full."""
        self._binaries.close()
        self._kernel.forget()
        self._series = {key: one for key, one in self._series.items() if now - one.seen <= KEEP_ENDED_SECONDS}
        self._used = now

    @property
    def profiles(self) -> Sequence[Profile]:
        """The profiles of the last windows, oldest first."""
        return tuple(self._profiles)

    def points(self) -> Iterator[Point]:
        """Yield the samples and shares of each resource that was full."""
        if self._refusal is not None:
            lack = self._refusal or self._kernel.lack
            yield COST_SOURCE_INFO.point(1, "none" if self._refusal else "perf_events", lack)
        yield COST_LOST_SAMPLES.point(self._lost)
        for (resource, owner), one in list(self._series.items()):
            for cost, samples in sorted(one.total.items()):
                yield COST_SAMPLES.point(samples, resource, owner, cost)
            for cost, share in one.shares.items():
                yield COST_RATIO.point(share, resource, owner, cost)

    def close(self) -> None:
        """End the window, and close the files."""
        if self._window is not None:
            self._end_events(self._window)
            self._window = None
        self._binaries.close()
        self._kernel.close()


GONE = (0, 0)
"""The program of a process that has ended."""


def _program(procfs: Path, pid: int) -> tuple[int, int]:
    """Return which file a process runs, by device and inode."""
    try:
        found = os.stat(procfs / str(pid) / "exe")
    except OSError:
        return GONE
    return found.st_dev, found.st_ino


def _in_turn(full: Sequence[FullResource]) -> Iterator[tuple[FullResource, FullThread]]:
    """Yield the busiest thread of each resource, then the second one of each, and so on."""
    for place in range(max(len(resource.threads) for resource in full)):
        for resource in full:
            if place < len(resource.threads):
                yield resource, resource.threads[place]


def _addresses(pid: int, image: Image, sample: RawSample) -> _Stack:
    """Return the addresses of a sample: the copied stack, which holds the program's data, goes no further."""
    user: tuple[int, ...] = ()
    if sample.registers:
        user = unwind(sample.registers, sample.stack, image.row, image.is_code).frames
    return _Stack(pid, sample.kernel, user)
