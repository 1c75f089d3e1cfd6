"""The load of the demo's second phase: writes that fill the disk, as large and as many at a time as that takes.

Only the disk itself shows which load fills it, so loads are tried on it for a second each, with fio and the demo's own
job. A disk is full in the exporter's sense (probes/devices.py): it is never idle and requests queue in it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

JOB = Path(__file__).with_name("demo.fio")
SECTION = "disk_random_write"
"""Section of the job file that writes."""
SIZES = (16, 64, 256, 1024)
"""Sizes of writes in KiB, small ones first: those fill a slow disk, and a fast disk is not written more than needed."""
SHALLOW, DEEP = 16, 128
"""Fewest and most writes in flight that are tried with each size."""
TRIAL_SECONDS = 1
TRIAL_LIMIT = 60.0
"""Seconds after which a trial is abandoned: the last writes of a slow disk may take long."""
POLL_SECONDS = 0.1

ENOUGH_BUSY, ENOUGH_QUEUE = 0.9, 3.0
"""Share of time and mean number of requests at which a trial calls the disk full. They are well above the exporter's
0.8 and 1.5, since the phase lasts longer than the trial."""
MOST_CPU = 0.6
"""Share of a CPU above which the load's thread is too close to its own limit to show that of a disk."""
FULL_CPU = 0.8
"""Share from which one CPU, or all of them, are called the limit."""
GAIN = 1.2
"""A disk is the limit if it writes less than this much more with twice as many writes in flight."""
MOST_OF_BYTES = 0.5
"""Minimum share of fio's bytes that a device below its directory gets. Journals and other writers add to them."""
DELAY = 0.02
"""Seconds for which fio's thread may wait for a CPU: enough work is in flight that the disk does not run out of it."""
EDGE = 0.02
"""Share of a trial's bytes at either end that is left out: the disk waits while fio starts and ends."""
SECTOR = 512
"""Bytes; the kernel counts in these on every disk (Documentation/admin-guide/iostats.rst)."""


class LoadError(Exception):
    """No load can be tried; the message says why."""


class Load(NamedTuple):
    """Random writes of one size, and how many of them are in flight."""

    kib: int
    depth: int

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the job file."""
        return {"DEMO_BLOCK": f"{self.kib}k", "DEMO_DEPTH": str(self.depth)}

    def __str__(self) -> str:
        return f"{self.kib} KiB x {self.depth}"


class Counts(NamedTuple):
    """The kernel's counters of a disk."""

    written: int
    """Bytes."""
    busy: float
    """Seconds with a request in flight."""
    queued: float
    """Seconds in flight summed over requests. Since Linux 5.0 a request is added when it ends (blk_account_io_done)."""
    in_flight: int


class Sample(NamedTuple):
    """The counters of all disks at one moment."""

    time: float
    disks: Mapping[str, Counts]


@dataclass(frozen=True)
class Trial:
    """What a load did."""

    load: Load
    rate: float
    """Bytes per second."""
    cpu: float
    """Share of a CPU that its thread used."""
    host: float
    """Share of the host's CPUs that was in use, by anybody."""
    disk: str = ""
    """The disk that wrote it; "" if none did."""
    busy: float = 0.0
    queue: float = 0.0

    @property
    def fills(self) -> bool:
        """Return whether the disk was full, and the load's thread was not."""
        return bool(self.disk) and self.busy >= ENOUGH_BUSY and self.queue >= ENOUGH_QUEUE and self.cpu <= MOST_CPU


@dataclass(frozen=True)
class Choice:
    """The load of the second phase."""

    load: Load
    disk: str
    """The disk that it goes to; "" if there is none."""
    fills: bool
    """Whether it fills the disk, so that the alert about the disk is due."""
    reason: str
    crowded: bool = False
    """Whether the host's CPUs were full beside it."""


def next_load(trials: Sequence[Trial]) -> Load | None:
    """Return the load to try after these, or None if they are enough to choose from.

    A disk is the limit when it is full and deeper queues bring no more. One that is not full gets larger writes, which
    cost the host's CPUs less for each byte.
    """
    if not trials:
        return Load(SIZES[0], SHALLOW)
    last = trials[-1].load
    if _is_settled(trials) or not any(trial.disk for trial in trials):
        return None
    if trials[-1].fills and last.depth < DEEP:
        return Load(last.kib, 2 * last.depth)
    larger = [kib for kib in SIZES if kib > last.kib]
    return Load(larger[0], SHALLOW) if larger else None


def choose(trials: Sequence[Trial]) -> Choice:
    """Return the load for the second phase, and why.

    It is at least the one that filled the disk, and enough for the time in which fio has to wait for a CPU.
    """
    filling = [trial for trial in trials if trial.fills]
    best = (filling or sorted(trials, key=lambda trial: (bool(trial.disk), trial.rate)))[-1]
    if not best.disk:
        return Choice(best.load, "", False, "no disk writes it")
    load = _enough_for(best)
    phase = f"the second phase has {'the same' if load == best.load else load}"
    about = f"{_rate(best.rate)}, busy {best.busy:.0%}, by writes of {best.load}"
    if best.fills:
        if _is_settled(trials) and best is trials[-1]:
            about += f" (no more than x {trials[-2].load.depth})"
        return Choice(load, best.disk, True, f"{best.disk} is full at {about}; {phase}", best.host >= FULL_CPU)
    if best.cpu >= FULL_CPU:
        limit = f"the CPU limits first: fio's thread is busy for {best.cpu:.0%}"
    elif best.host >= FULL_CPU:
        limit = f"the CPU limits first: this host's CPUs are busy for {best.host:.0%}, fio needs {best.cpu:.0%} of one"
    else:
        limit = "something in front of the disk limits, a quota for example"
    return Choice(load, best.disk, False, f"{best.disk} is not full at {about}; {limit}; {phase}")


def find_disk(samples: Sequence[Sample], wrote: float) -> tuple[str, float, float] | None:
    """Return the disk that wrote most of `wrote` bytes, its busy share and its mean queue, or None if no disk did.

    A file system may lie on a stack of devices, or on one that its device number does not show (overlay, btrfs); all of
    them count the bytes. The fullest of them is the limit.
    """
    found = []
    for name, last in samples[-1].disks.items() if samples else ():
        known = [(sample.time, sample.disks[name]) for sample in samples if name in sample.disks]
        first = known[0][1]
        total = last.written - first.written
        if total <= 0 or total < MOST_OF_BYTES * wrote:
            continue
        start = [entry for entry in known if entry[1].written - first.written <= EDGE * total][-1]
        end = next(entry for entry in known if entry[1].written - first.written >= (1 - EDGE) * total)
        if (span := end[0] - start[0]) > 0:
            busy = (end[1].busy - start[1].busy) / span
            found.append((min(busy, 1.0), (end[1].queued - start[1].queued) / span, name))
    if not found:
        return None
    busy, queue, name = max(found)
    return name, busy, queue


def parse_disks(text: str) -> dict[str, Counts]:
    """Return the counters of ``/proc/diskstats`` (``diskstats_show``, block/genhd.c); other lines are left out."""
    disks = {}
    for line in text.splitlines():
        fields = line.split()
        with suppress(ValueError, IndexError):
            written, in_flight, busy, queued = (int(fields[number]) for number in (9, 11, 12, 13))
            disks[fields[2]] = Counts(written * SECTOR, busy / 1000, queued / 1000, in_flight)
    return disks


def read_disks() -> Sample:
    """Return the counters of whole disks now: a partition's bytes are counted for its disk too."""
    try:
        disks = parse_disks(Path("/proc/diskstats").read_text())
    except OSError:
        disks = {}
    whole = {name: counts for name, counts in disks.items() if Path("/sys/block", name.replace("/", "!")).exists()}
    # The exporter leaves out RAM disks (`Devices._is_whole`, probes/devices.py).
    return Sample(time.monotonic(), {name: counts for name, counts in whole.items() if not name.startswith("ram")})


class FullTime:
    """Adds up how long a disk is full by the kernel's counters, independently of the exporter."""

    busy, queue = 0.8, 1.5  # as in resources.toml and probes/devices.py

    def __init__(self, disk: str) -> None:
        self.seconds = 0.0
        self._disk = disk
        self._last: tuple[float, Counts] | None = None

    def add(self, sample: Sample) -> None:
        """Take the time since the last sample into account."""
        counts = sample.disks.get(self._disk)
        if counts is not None and self._last is not None:
            before, old = self._last
            span = sample.time - before
            queue = max(counts.queued - old.queued, counts.in_flight * span)
            if span > 0 and counts.busy - old.busy >= self.busy * span and queue >= self.queue * span:
                self.seconds += span
        self._last = None if counts is None else (sample.time, counts)


@contextmanager
def calibrated(candidates: Iterable[Path]) -> Iterator[tuple[Path, Choice, list[str]]]:
    """Yield a directory below the first candidate that is on a disk, the load for it, and what to print.

    If no candidate is on a disk, it is below the first that can be written. The directory is removed at the end.
    Raises LoadError if none can be written.
    """
    said: list[str] = []
    with ExitStack() as kept:
        usable: list[tuple[Path, Choice]] = []
        for candidate in _on_different_disks(candidates):
            with ExitStack() as stack:
                try:
                    name = tempfile.TemporaryDirectory(prefix="demo-", dir=candidate, ignore_cleanup_errors=True)
                    directory = Path(stack.enter_context(name))
                    choice = _calibrate(directory)
                except (LoadError, OSError) as problem:
                    said.append(f"cannot write in {candidate}: {getattr(problem, 'strerror', None) or problem}")
                    continue
                if choice.disk or not usable:
                    kept.push(stack.pop_all())
                    usable.append((directory, choice))
            if choice.disk:
                break
            said.append(f"no disk below {candidate}")
        if not usable:
            raise LoadError("; ".join(said))
        directory, choice = usable[-1]
        if not choice.disk:
            said.append("the second phase has no disk: its verdict is another, and DiskSaturated cannot come")
        elif said:
            said.append(f"the second phase writes below {directory.parent}")
        if choice.disk:
            said.append(choice.reason)
        if choice.crowded:
            said.append("this host's CPUs are full already, and the verdicts may name them")
        yield directory, choice, said


def variables(directory: Path, load: Load, cpu_seconds: int, disk_seconds: int) -> dict[str, str]:
    """Return the variables of the job file."""
    return {
        "DEMO_DIRECTORY": str(directory),
        "DEMO_DIRECT": str(int(_can_bypass_cache(directory))),
        "DEMO_CPU_SECONDS": str(cpu_seconds),
        "DEMO_DISK_SECONDS": str(disk_seconds),
    } | load.variables


def end(process: psutil.Process, patience: float) -> None:
    """Interrupt a process, which ends its children, and kill what is left of them after a while."""
    try:
        family = [process, *process.children(recursive=True)]
        process.send_signal(signal.SIGINT)
    except psutil.NoSuchProcess:
        return
    _, left = psutil.wait_procs(family, timeout=patience)
    for survivor in left:
        with suppress(psutil.NoSuchProcess):
            survivor.kill()


def _calibrate(directory: Path) -> Choice:
    trials: list[Trial] = []
    while (load := next_load(trials)) is not None:
        trials.append(_try(load, directory))
    return choose(trials)


def _try(load: Load, directory: Path) -> Trial:
    """Run fio with this load for a moment. Raises LoadError."""
    output = directory / "trial.json"
    command = ["fio", f"--section={SECTION}", "--eta=never", "--output-format=json", f"--output={output}", str(JOB)]
    environment = os.environ | variables(directory, load, 1, TRIAL_SECONDS)
    psutil.cpu_percent()
    # Under another name, so that the exporter of a running stack does not take a trial for a benchmark.
    program = directory / "trial"
    program.unlink(missing_ok=True)
    program.symlink_to(shutil.which("fio") or "fio")
    samples = [read_disks()]
    deadline = time.monotonic() + TRIAL_LIMIT
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            executable=program,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        ) as process,
    ):
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                samples.append(read_disks())
        finally:
            ended = process.poll() is not None
            if not ended:
                end(psutil.Process(process.pid), patience=2.0)
        host = psutil.cpu_percent() / 100
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
    if not ended:
        raise LoadError(f"fio did not end within {TRIAL_LIMIT:.0f} s")
    try:
        job = json.loads(output.read_bytes())["jobs"][0]
        wrote = job["write"]["io_bytes"]
        cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100
        rate = wrote / max(job["write"]["runtime"] / 1000, 0.001)
    except (OSError, ValueError, LookupError) as problem:
        raise LoadError(lines[0] if lines else f"fio ended with status {process.returncode}") from problem
    if process.returncode or not wrote:
        raise LoadError(lines[0] if lines else f"fio ended with status {process.returncode}")
    return Trial(load, rate, cpu, host, *(find_disk(samples, wrote) or ()))


def _is_settled(trials: Sequence[Trial]) -> bool:
    """Return whether the last trial, twice as deep and no faster, showed that the one before it filled the disk."""
    if len(trials) < 2:
        return False
    before, last = trials[-2:]
    twice = last.load == Load(before.load.kib, 2 * before.load.depth)
    return twice and before.fills and last.rate < GAIN * before.rate


def _on_different_disks(candidates: Iterable[Path]) -> Iterator[Path]:
    seen = set()
    for path in candidates:
        with suppress(OSError):
            if (device := path.stat().st_dev) not in seen:
                seen.add(device)
                yield path


def _can_bypass_cache(directory: Path) -> bool:
    """Return whether files here can be written with O_DIRECT, which for example tmpfs before Linux 6.6 refuses."""
    path = directory / "direct"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


def _enough_for(trial: Trial) -> Load:
    """Return the smallest load, starting with the trial's, that takes the disk `DELAY` to write."""
    loads = [Load(kib, depth) for kib in SIZES if kib >= trial.load.kib for depth in _depths(trial.load.depth)]
    needed = trial.rate * DELAY
    return next((load for load in loads if load.kib * load.depth << 10 >= needed), loads[-1])


def _depths(first: int) -> Iterator[int]:
    while first <= DEEP:
        yield first
        first *= 2


def _rate(rate: float) -> str:
    mib = rate / (1 << 20)
    return f"{mib / 1024:.1f} GiB/s" if mib >= 1024 else f"{mib:.0f} MiB/s" if mib >= 10 else f"{mib:.1f} MiB/s"
