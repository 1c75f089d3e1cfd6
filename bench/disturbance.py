"""What others on the machine did during a trial, so that a trial that they disturbed is not judged.

Ours are the processes that descend from one that the caller names, those with a mark in their environment, and what
descends from these. Every other process is somebody else's, except for threads of the kernel, which work for all.
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
"""Variable of the environment by which our processes are known after their parents ended."""
TICKS = os.sysconf("SC_CLK_TCK")
"""Clock ticks of a second in procfs (USER_HZ)."""
MOST_PROCESSES = 1 << 16
"""Processes that are looked at; a host with more of them is not one to measure on."""
NAMED = 3
"""Names of other processes that a reason has at most."""
WORTH_NAMING = 0.01
"""CPUs from which one is named."""
RESOURCES = ("cpu", "memory", "io")

Key = tuple[int, int]
"""Pid and start time in clock ticks: pids are used again."""


class Limits(NamedTuple):
    """From how much on a trial is disturbed.

    Pressure on CPUs and I/O has no limit: the loads of the trials themselves wait for CPUs and disks, many of them on
    purpose, and /proc/pressure does not say who waited. It is shown only. No load fills the memory, so that pressure
    there comes from others.
    """

    others: float = 0.15
    """CPUs that other processes use. A verdict's threshold is 0.8 of a CPU: what takes more than about 0.15 from a
    thread that would be full makes it look as if it was not."""
    steal: float = 0.05
    """The part of its CPUs that the hypervisor gives to somebody else."""
    memory: float = 0.1
    """The part of the time in which some process waits for memory."""


LIMITS = Limits()


class Process(NamedTuple):
    """What one process of somebody else had used when it was looked at."""

    name: str
    parent: int
    used: float
    """CPU seconds of its threads, those included that ended."""
    waited: float | None = 0.0
    """CPU seconds of its children that ended and that it waited for, and of theirs; None where ours are among them."""


@dataclass(frozen=True)
class Look:
    """One reading of procfs."""

    time: float
    """Seconds since boot, suspended time included, as start times count."""
    others: Mapping[Key, Process] = field(default_factory=dict)
    ours: frozenset[Key] = frozenset()
    steal: float = 0.0
    """Seconds since boot, over all CPUs."""
    cpus: int = 1
    """CPUs that are online."""
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Seconds since boot in which some process waited, by what it waited for; without what the kernel does not say."""


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
    """The part of the time in which some process waited for memory; nothing where the kernel does not say."""
    cpu: float | None = None
    io: float | None = None

    @classmethod
    def between(cls, before: Look, after: Look) -> Disturbance:
        """Return what others did between two looks. Raises ValueError where the second is not the later one.

        A process that was born in between counts from zero. One that is older and was not among the others before has
        lost its mark or its parents: what it used meanwhile is not known, and it doesn't count.

        What a process used that ended in between is found in its parent, if that waited for it (wait_task_zombie,
        kernel/exit.c): all of its life, of which the part before the first look is subtracted. It is subtracted from
        the nearest of its ancestors that is still there, as far as that one's children used anything, the rest from
        those above: one of them waited for it, or adopted it. What is used by a process for which nobody waits (its
        parent ignores SIGCHLD) is lost with it, and the subtraction then takes away time of others that ended. So the
        result may be too small, but counts nothing twice.
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
            max(0.0, after.steal - before.steal) / seconds,  # a CPU that went offline takes its sum along
            after.cpus,
            **some,
        )

    def numbers(self) -> dict[str, float]:
        """Return its figures by name, without those that are not known."""
        found = {"others": self.others, "steal": self.steal, "memory": self.memory, "cpu": self.cpu, "io": self.io}
        return {name: round(value, 4) for name, value in found.items() if value is not None}

    def reason(self, limits: Limits = LIMITS) -> str:
        """Return in words which limits were passed, and "" where none was."""
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
    """Return the CPU seconds that the children which each process waited for used between two looks."""
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
    """Return what is on the machine: ours are the descendants of `pid` and of whoever has ``PINCHPOINT_PROOF=mark``.

    What an ancestor of ours gets of its children is left out: it adopts processes of ours whose parents ended
    (find_new_reaper, kernel/exit.c), and what they used must not count as somebody else's. So processes that init
    adopted and that ended between two looks are not seen, nor is what procfs hides (hidepid).
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
            continue  # a zombie has no environment any more: one that was adopted may be ours
        else:
            used = (stat.utime + stat.stime) / TICKS
            others[key] = Process(stat.comm, stat.ppid, used, None if number in above else waited / TICKS)
    steal, cpus = _steal(procfs)
    return Look(moment, others, frozenset(ours), steal, cpus, _pressure(procfs))


def _processes(procfs: Path) -> Iterator[tuple[int, Stat, int]]:
    """Yield the pid of each process, what its stat says, and the ticks of its children (fields 16 and 17)."""
    for name in islice((name for name in os.listdir(procfs) if name.isdecimal()), MOST_PROCESSES):
        try:
            raw = read_bytes(procfs / name / "stat")
            stat, fields = parse_stat(raw), raw[raw.rfind(b")") + 1 :].split()
            yield int(name), stat, int(fields[13]) + int(fields[14])
        except (OSError, ValueError):
            continue


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield the parent of a process, its parent and so on; what was read at different times may go in circles."""
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        seen.add(pid)
        yield pid


def _family(pid: int, mark: str, procfs: Path, parents: Mapping[int, int]) -> set[int]:
    """Return the processes that are ours.

    An ancestor of `pid` with the mark is one, and what else descends from it is not: it might be init of a container.
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
    except OSError:  # it is gone, or somebody's whom we may not look at
        return False


def _steal(procfs: Path) -> tuple[float, int]:
    """Return the seconds that the hypervisor took from all CPUs, and how many there are."""
    try:
        times = parse_cpu_times(read_bytes(procfs / "stat"))
    except (OSError, FormatError):
        return 0.0, os.cpu_count() or 1
    return sum(one.steal for one in times.values()) / TICKS, len(times)


def _pressure(procfs: Path) -> dict[str, float]:
    """Return the seconds in which some process waited, of each file of /proc/pressure that can be read.

    ``psi_show`` (kernel/sched/psi.c, since Linux 4.20) writes microseconds. Where it was switched off at boot (psi=0),
    there are files that fail with EOPNOTSUPP.
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
