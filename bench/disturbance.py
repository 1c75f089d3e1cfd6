"""What other processes did during a trial, so that a trial that they disturbed is not judged.

Ours are the descendants of a process that the caller names, the processes with a mark in their environment, and their
descendants. All others are somebody else's, except kernel threads, which work for everybody.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.procfs import FormatError, Stat, parse_cpu_times, parse_stat, read_bytes

__all__ = ["LIMITS", "MARK", "Disturbance", "Limits", "Look", "Process", "look"]

MARK = "PINCHPOINT_PROOF"
"""Environment variable that identifies our processes after their parents have ended."""
TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks per second in procfs (USER_HZ)."""
MOST_PROCESSES = 1 << 16
"""Maximum number of processes that are looked at; nobody should measure on a host with more."""
NAMED = 3
"""Maximum number of other processes named in a reason."""
WORTH_NAMING = 0.01
"""CPUs that a process must use to be named."""
RESOURCES = ("cpu", "memory", "io")

Key = tuple[int, int]
"""Pid and start time in clock ticks: pids are reused."""


class Limits(NamedTuple):
    """Limits above which a trial is disturbed.

    Pressure on CPUs and I/O has no limit and is only shown: the trials' own loads wait for CPUs and disks, many of them
    on purpose, and /proc/pressure does not say who waited. Hardly a load fills the memory, so pressure there comes from
    others.
    """

    others: float = 0.15
    """CPUs that other processes use. A verdict's threshold is 0.8 of a CPU: a full thread that loses more than
    about 0.15 to others looks as if it were not full."""
    steal: float = 0.05
    """Share of the CPUs that the hypervisor gives to others."""
    memory: float = 0.1
    """Share of the time in which some process waits for memory."""


LIMITS = Limits()


class Process(NamedTuple):
    """What another's process had used when it was looked at."""

    name: str
    parent: int
    used: float
    """CPU seconds of its threads, including those that have ended."""
    waited: float | None = 0.0
    """CPU seconds of its ended children that it waited for, and of theirs; None if ours are among them."""


@dataclass(frozen=True)
class Look:
    """One reading of procfs."""

    time: float
    """Seconds since boot including suspended time, as in start times."""
    others: Mapping[Key, Process] = field(default_factory=dict)
    ours: frozenset[Key] = frozenset()
    steal: float = 0.0
    """Seconds since boot, over all CPUs."""
    cpus: int = 1
    """CPUs that are online."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Seconds since boot in which some process waited, by what it waited for, as far as the kernel reports it."""


@dataclass(frozen=True)
class Disturbance:
    """What others did between two looks."""

    seconds: float
    others: float = 0.0
    """CPUs that other processes used, on average."""
    most: tuple[tuple[str, float], ...] = ()
    """Names of those that used most, and how many CPUs."""
    steal: float = 0.0
    """CPUs that the hypervisor took, on average."""
    cpus: int = 1
    memory: float | None = None
    """Share of the time in which some process waited for memory; 0 if the kernel does not report it."""
    cpu: float | None = None
    io: float | None = None

    @classmethod
    def between(cls, before: Look, after: Look) -> Disturbance:
        """Return what others did between two looks. Raises ValueError if the second is not the later one.

        A process that started in between counts from zero. An older one that was not among the others before has lost
        its mark or its parents: its use in between is unknown, and it doesn't count.

        The use of a process that ended in between is found in its parent, if that waited for it (wait_task_zombie,
        kernel/exit.c). It covers the whole life of the process, so its use before the first look is subtracted: from
        the nearest ancestor that still exists, up to what that one's children used, and the rest from those above,
        since one of them waited for it or adopted it. The use of a process for which nobody waits (its parent ignores
        SIGCHLD) is lost, and the subtraction then takes time of others that ended. So the result may be too small,
        but nothing counts twice.
        """
        seconds = after.time - before.time
        if seconds <= 0:
            raise ValueError(f"the second look is {-seconds:g} s before the first")
        spare = _waited(before, after)
        used: defaultdict[str, float] = defaultdict(float)
        for key, process in after.others.items():
            used[process.name] += _used(before, key, process) + spare.get(key, 0.0)
        cpus = sorted(((name, amount / seconds) for name, amount in used.items()), key=lambda one: -one[1])
        some = {
            name: min(1.0, max(0.0, (total - before.pressure[name]) / seconds))
            for name, total in after.pressure.items()
            if name in before.pressure
        }
        return cls(
            seconds,
            sum(amount for _, amount in cpus),
            tuple((name, amount) for name, amount in cpus[:NAMED] if amount >= WORTH_NAMING),
            max(0.0, after.steal - before.steal) / seconds,  # the sum of a CPU that went offline disappears with it
            after.cpus,
            **some,
        )

    def numbers(self) -> dict[str, float]:
        """Return its known figures by name."""
        found = {"others": self.others, "steal": self.steal, "memory": self.memory, "cpu": self.cpu, "io": self.io}
        return {name: round(value, 4) for name, value in found.items() if value is not None}

    def reason(self, limits: Limits = LIMITS) -> str:
        """Return in words which limits were exceeded, "" if none was."""
        found = []
        if self.others > limits.others:
            named = ", ".join(f"{name} {amount:.2f}" for name, amount in self.most)
            found.append(f"other processes used {self.others:.2f} CPUs{f' (most: {named})' if named else ''}")
        if self.steal > limits.steal * self.cpus:
            found.append(f"the hypervisor took {self.steal:.2f} of {self.cpus} CPUs")
        if (self.memory or 0.0) > limits.memory:
            found.append(f"processes waited for memory in {self.memory:.0%} of the time")
        return "; ".join(found)


def _used(before: Look, key: Key, process: Process) -> float:
    """Return the CPU seconds that a process used itself."""
    then = before.others.get(key)
    if then is not None:
        return max(0.0, process.used - then.used)
    return process.used if _newborn(before, key) else 0.0


def _newborn(before: Look, key: Key) -> bool:
    """Return whether a process started after a look; its start time is cut to whole ticks."""
    return (key[1] + 1) / TICKS >= before.time


def _waited(before: Look, after: Look) -> dict[Key, float]:
    """Return, for each process, the CPU seconds that the children it waited for used between two looks."""
    spare = {}
    for key, process in after.others.items():
        then = before.others.get(key)
        earlier = then.waited if then is not None else 0.0 if _newborn(before, key) else None
        if process.waited is not None and earlier is not None:
            spare[key] = max(0.0, process.waited - earlier)
    keys = {key[0]: key for key in before.others}
    for key in before.others.keys() - after.others.keys() - after.ours:
        process = before.others[key]
        left, seen = process.used + (process.waited or 0.0), {key[0]}
        while left > 0 and process.parent in keys and process.parent not in seen:
            seen.add(process.parent)
            above = keys[process.parent]
            taken = min(left, spare.get(above, 0.0))
            if taken:
                spare[above] -= taken
                left -= taken
            process = before.others[above]
    return spare


def look(mark: str, pid: int, procfs: Path = Path("/proc"), now: float | None = None) -> Look:
    """Look at the machine: ours are the descendants of `pid` and of processes with ``PINCHPOINT_PROOF=mark``.

    The children's use of our ancestors is left out: they adopt processes of ours whose parents ended (find_new_reaper,
    kernel/exit.c), and that use must not count as somebody else's. So processes that init adopted and that ended
    between two looks are not seen, nor are those that procfs hides (hidepid).
    """
    moment = time.clock_gettime(time.CLOCK_BOOTTIME) if now is None else now
    found = {number: (stat, waited) for number, stat, waited in _processes(procfs)}
    parents = {number: stat.ppid for number, (stat, _) in found.items()}
    mine = _family(pid, mark, procfs, parents)
    above = {ancestor for number in mine for ancestor in _ancestors(number, parents)}
    others, ours = {}, set()
    for number, (stat, waited) in found.items():
        key = number, stat.start
        if number in mine:
            ours.add(key)
        elif stat.kernel_thread or (stat.state in "ZX" and stat.ppid in above):
            continue  # a zombie no longer has an environment: one that was adopted may be ours
        else:
            used = (stat.utime + stat.stime) / TICKS
            others[key] = Process(stat.comm, stat.ppid, used, None if number in above else waited / TICKS)
    steal, cpus = _steal(procfs)
    return Look(moment, others, frozenset(ours), steal, cpus, _pressure(procfs))


def _processes(procfs: Path) -> Iterator[tuple[int, Stat, int]]:
    """Yield the pid of each process, its stat, and the ticks of its children (fields 16 and 17)."""
    for name in islice((name for name in os.listdir(procfs) if name.isdecimal()), MOST_PROCESSES):
        try:
            raw = read_bytes(procfs / name / "stat")
            stat, fields = parse_stat(raw), raw[raw.rfind(b")") + 1 :].split()
            yield int(name), stat, int(fields[13]) + int(fields[14])
        except (OSError, ValueError):
            continue


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield the parent of a process, its parent and so on; read at different times, they may form a circle."""
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        seen.add(pid)
        yield pid


def _family(pid: int, mark: str, procfs: Path, parents: Mapping[int, int]) -> set[int]:
    """Return the processes that are ours.

    An ancestor of `pid` with the mark is one, but its other descendants are not: it might be the init of a container.
    """
    children = defaultdict(list)
    for number, parent in parents.items():
        children[parent].append(number)
    found: set[int] = set()

    def add(first: int) -> None:
        waiting = [first]
        while waiting:
            if (number := waiting.pop()) not in found:
                found.add(number)
                waiting += children[number]

    add(pid)
    wanted, above = f"{MARK}={mark}".encode(), set(_ancestors(pid, parents))
    for number in parents:
        if number not in found and _has(procfs / str(number) / "environ", wanted):
            if number in above:
                found.add(number)
            else:
                add(number)
    return found


def _has(environ: Path, wanted: bytes) -> bool:
    try:
        return wanted in read_bytes(environ).split(b"\0")
    except OSError:  # it is gone, or we may not look at it
        return False


def _steal(procfs: Path) -> tuple[float, int]:
    """Return the seconds that the hypervisor took from all CPUs, and the number of CPUs."""
    try:
        times = parse_cpu_times(read_bytes(procfs / "stat"))
    except (OSError, FormatError):
        return 0.0, os.cpu_count() or 1
    return sum(one.steal for one in times.values()) / TICKS, len(times)


def _pressure(procfs: Path) -> dict[str, float]:
    """Return the seconds in which some process waited, of each file of /proc/pressure that can be read.

    ``psi_show`` (kernel/sched/psi.c, since Linux 4.20) writes microseconds. With psi=0 at boot the
    files exist and fail with EOPNOTSUPP.
    """
    found = {}
    for name in RESOURCES:
        try:
            raw = read_bytes(procfs / "pressure" / name)
        except OSError:
            continue
        if total := re.search(rb"^some .*\btotal=(\d{1,20})$", raw, re.MULTILINE):
            found[name] = int(total[1]) / 1e6
    return found
