"""Ways of taking one sample of all threads of a host: ours, psutil, and a bare loop in C as the limit of each method.

Each is a separate process that samples on request. They are measured in turns, so that other load on the machine
affects all of them alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from compiled import MissingError, compiled
from pinchpoint.bpf.libbpf import OBJECTS

__all__ = ["COMMANDS", "LIMIT_OF", "OURS", "Found", "Sampler", "in_turns", "sampler"]

INTERVAL = 0.1
"""Seconds between two samples."""
WARM = 1
"""Samples of a turn that do not count: the first covers another interval."""
OURS = ("bpf", "bpf-iter", "kept", "plain")
LIMIT_OF = {kind: f"C, {kind}" for kind in OURS}
"""The loop in C that reads the same way."""


def _ours(kind: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("one_sample.py")), kind]


def _bpf_loop(name: str) -> list[str]:
    """Return the command of a loop over one of our BPF objects. Raises MissingError."""
    path = OBJECTS / name
    if not path.exists():
        raise MissingError(f"no {name} (`make bpf`)")
    return [str(compiled("bpf_loop", "-lbpf")), str(path)]


COMMANDS: Mapping[str, Callable[[], list[str]]] = {
    **{kind: lambda kind=kind: _ours(kind) for kind in (*OURS, "psutil", "psutil-names")},  # type: ignore[misc]
    "C, bpf": lambda: _bpf_loop("tasks.bpf.o"),
    "C, bpf-iter": lambda: _bpf_loop("tasks_iter.bpf.o"),
    "C, kept": lambda: [str(compiled("procfs_loop")), "kept"],
    "C, plain": lambda: [str(compiled("procfs_loop")), "plain"],
}


class Found(NamedTuple):
    """The cost of a sample, or of the samples of a turn."""

    cpu: float
    """Milliseconds of CPU."""
    changed: float
    """Threads that had changed."""
    rss: float
    """Resident memory in MB."""


class Sampler:
    """A process that samples on request."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def sample(self) -> Found:
        """Take a sample."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()
        cpu, changed = self._process.stdout.readline().split()
        return Found(int(cpu) / 1e6, int(changed), psutil.Process(self._process.pid).memory_info().rss / 1e6)

    def turn(self, samples: int) -> Found:
        """Take some samples at their interval, and return their medians."""
        found = []
        due = time.monotonic()
        for _ in range(WARM + samples):
            found.append(self.sample())
            due += INTERVAL
            time.sleep(max(0.0, due - time.monotonic()))
        return Found(*map(statistics.median, zip(*found[WARM:], strict=True)))


@contextmanager
def sampler(kind: str) -> Iterator[Sampler]:
    """Run a sampler. Raises MissingError if it does not work here."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(COMMANDS[kind](), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()
                raise MissingError(said[-1] if said else f"{kind} does not start")
            yield Sampler(process)
        finally:
            process.kill()
            process.communicate()


def in_turns(kinds: Sequence[str], rounds: int, samples: int) -> tuple[dict[str, list[Found]], dict[str, str]]:
    """Return the results of each sampler in each round, and why others have none.

    One runs at a time: descriptors and BPF maps of another would enlarge the kernel's own structures. The order
    alternates from round to round.
    """
    found: dict[str, list[Found]] = {}
    missing: dict[str, str] = {}
    for number in range(rounds):
        for kind in kinds[:: -1 if number % 2 else 1]:
            if kind in missing:
                continue
            try:
                with sampler(kind) as one:
                    found.setdefault(kind, []).append(one.turn(samples))
            except MissingError as error:
                missing[kind] = str(error)
    return found, missing
