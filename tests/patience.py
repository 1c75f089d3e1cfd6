"""How long a test waits: longer on a slow machine, and longer while other programs use its CPUs.

The seconds that a test names are those of an idle machine as fast as `REFERENCE`. The limit of a wait here follows from
a short calibration and from the load during the wait, so that a busy machine is not mistaken for a broken change. If
the patience runs out nevertheless, the test's report says what it waited for, for how long, and what the machine did.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from memory import available

__all__ = ["Deadline", "Load", "Stopwatch", "Wait", "Waits", "calibrated", "patience"]

REFERENCE = 0.010
"""CPU seconds of `_work` on the machine for which the tests' seconds were chosen: a Xeon of 2.1 GHz, Python 3.11."""
ROUNDS = 5
MARGIN = 4.0
"""How much wider a limit that cannot be extended later, such as that of a subprocess, is than a wait that can."""
TICK = 0.1
"""Seconds between two readings of the machine's state."""
MAX_SLOWNESS = 20.0
"""Longest wait as a multiple of the seconds that a test names: beyond that, something else is wrong."""


def _work() -> int:
    total = 0
    for number in range(100_000):
        total += number & 7
    return total


@functools.cache
def calibrated() -> float:
    """Return how many times slower than the reference a CPU of this machine is: the best of some rounds, at least 1."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = time.thread_time()
        _work()
        best = min(best, time.thread_time() - before)
    return max(1.0, best / REFERENCE)


class Load(NamedTuple):
    """One reading of what a machine has done since boot."""

    time: float
    """Seconds of the monotonic clock."""
    total: float
    """CPU time of all CPUs, in ticks."""
    idle: float
    stolen: float
    """Time that the hypervisor gave to others (proc(5), "steal")."""
    runnable: int
    """Threads that run or wait for a CPU now (/proc/loadavg, fourth field), including this one."""
    disk: float = 0.0
    """Seconds in which some thread waited for a disk (PSI, since Linux 4.20) ..."""
    disk_lately: float = 0.0
    """... and the share of the last 10 s, 0 to 1."""

    @classmethod
    def read(cls, procfs: Path = Path("/proc")) -> Load:
        """Read /proc/stat, /proc/loadavg (proc(5)) and /proc/pressure/io (Documentation/accounting/psi.rst)."""
        ticks = [int(word) for word in (procfs / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        _, _, _, idle, iowait, _, _, stolen = ticks
        runnable = int((procfs / "loadavg").read_text().split()[3].partition("/")[0])
        disk = _pressure("io", procfs)
        waited, lately = float(disk.get("total", 0)) / 1e6, float(disk.get("avg10", 0)) / 100
        return cls(
            time=time.monotonic(),
            total=sum(ticks),
            idle=idle + iowait,
            stolen=stolen,
            runnable=runnable,
            disk=waited,
            disk_lately=lately,
        )

    def stolen_share(self, since: Load) -> float:
        """Return the share of CPU time that the hypervisor has taken since an earlier reading, 0 to 1."""
        return (self.stolen - since.stolen) / max(1, self.total - since.total)

    def slowness(self, since: Load | None = None) -> float:
        """Return by what factor everything is slower now: 1 if nothing waits for a CPU of this machine or a disk."""
        cpu = max(1.0, self.runnable / (os.cpu_count() or 1))
        disk = self.disk_lately
        if since is not None:
            cpu /= max(0.1, 1 - self.stolen_share(since))
            disk = (self.disk - since.disk) / max(TICK, self.time - since.time)
        return max(cpu, 1 / max(0.1, 1 - disk))

    def words(self, since: Load) -> str:
        """Describe what the machine did since an earlier reading."""
        ticks = max(1.0, self.total - since.total)
        load = " ".join(f"{load:.1f}" for load in os.getloadavg())
        pressure = [f"{what} {found['avg10']}%" for what in ("cpu", "memory", "io") if (found := _pressure(what))]
        shortages = f", pressure {' '.join(pressure)}" if pressure else ""
        return (
            f"{self.time - since.time:.0f} s: CPUs {1 - (self.idle - since.idle) / ticks:.0%} busy, "
            f"{self.stolen_share(since):.0%} stolen; now {self.runnable} threads want "
            f"{os.cpu_count()} CPUs, load {load}, {available() >> 20} MiB available{shortages}"
        )


def _pressure(what: str, procfs: Path = Path("/proc")) -> dict[str, str]:
    """Return the kernel's pressure figures for a resource (``avg10``, ``total`` of "some"), if it has any."""
    try:
        words = (procfs / "pressure" / what).read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words)


class Stopwatch:
    """Counts seconds of an idle reference machine; a second here is a fraction of one."""

    def __init__(self) -> None:
        self.began = self._last = Load.read()
        self.passed = 0.0
        """Seconds of the reference machine."""

    def tick(self) -> float:
        """Count the time since the last call; return the sum."""
        if time.monotonic() - self._last.time < TICK:
            return self.passed
        now = Load.read()
        slowness = min(MAX_SLOWNESS, calibrated() * max(now.slowness(self._last), self._last.slowness()))
        self.passed += (now.time - self._last.time) / slowness
        self._last = now
        return self.passed

    @property
    def seconds(self) -> float:
        """Seconds that have passed on this machine."""
        return self._last.time - self.began.time


class Deadline:
    """The end of the patience for a number of seconds of an idle reference machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._clock = Stopwatch()

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self._clock.tick() >= self.seconds

    @property
    def waited(self) -> float:
        """Seconds that have passed on this machine."""
        return self._clock.seconds


@dataclass(frozen=True)
class Wait:
    """A wait whose condition never became true."""

    what: str
    seconds: float
    """Seconds as the test named them."""
    waited: float
    """Seconds that passed on this machine."""

    def __str__(self) -> str:
        return f"waited {self.waited:.1f} s (patience for {self.seconds:g} s on an idle machine) for: {self.what}"


@dataclass
class Waits:
    """The failed waits of the current test, and the state of the machine at its start."""

    began: Load = field(default_factory=Load.read)
    vain: list[Wait] = field(default_factory=list)

    def begin(self) -> None:
        """Forget the waits of an earlier test."""
        self.began = Load.read()
        self.vain.clear()

    def report(self) -> Mapping[str, str]:
        """Return the sections for the report of a failed test."""
        sections = {"this machine meanwhile": Load.read().words(self.began)}
        if self.vain:
            sections["waits that timed out"] = "\n".join(map(str, self.vain))
        return sections


def patience(seconds: float = 60.0) -> float:
    """Return a limit for what takes this many seconds on an idle machine, and cannot be extended later."""
    return seconds * MARGIN * min(MAX_SLOWNESS / MARGIN, calibrated() * Load.read().slowness())
