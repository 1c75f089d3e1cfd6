"""How the benchmarks of a host are found: by helper processes with their users' rights, or in this process."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.detector import Detector
from pinchpoint.benchmarks.helper import helper
from pinchpoint.benchmarks.nursery import CAPABILITIES, Nursery, start_nursery
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.user_helpers import UserHelpers
from pinchpoint.benchmarks.workloads import UserProcess
from pinchpoint.host.capabilities import effective, missing, names
from pinchpoint.host.confine import can_confine
from pinchpoint.host.exitstatus import ExitWatch, own_pids
from pinchpoint.host.users import Users
from pinchpoint.model import Point
from pinchpoint.runs import RunState

__all__ = ["Finder", "FoundBenchmark", "find_in_helpers", "finder"]

log = logging.getLogger(__name__)


class FoundBenchmark(Protocol):
    """One benchmark. Times are Unix seconds."""

    @property
    def kind(self) -> type[Benchmark]:
        """What it is."""

    @property
    def pid(self) -> int:
        """Its leader."""

    @property
    def start(self) -> int:
        """Start of its leader in clock ticks since boot."""

    @property
    def owner(self) -> int:
        """The uid of its leader."""

    @property
    def began(self) -> float:
        """When it began."""

    @property
    def job(self) -> str:
        """The id of the batch system's job that it is part of; empty for none."""

    @property
    def ended(self) -> float | None:
        """When its leader ended; None while it runs."""

    def state(self, run: str) -> RunState:
        """Return what is known about its run under this name."""


class Finder(Protocol):
    """Finds benchmarks among processes, and follows each to its end."""

    @property
    def followed(self) -> Sequence[FoundBenchmark]:
        """The benchmarks, including those that have ended, by their start."""

    @property
    def ranks(self) -> Mapping[UserProcess, int]:
        """The ranks in MPI of untrusted users' processes, which only their own helpers may read."""

    def points(self) -> Iterable[Point]:
        """Yield the series about the finding itself."""

    def look(self, tree: Tree, now: float, wall: float) -> None:
        """Take a look; `now` is in monotonic seconds, `wall` in Unix seconds."""

    def disown(self, pids: Container[int]) -> None:
        """Forget the benchmarks that these processes lead: they are followed elsewhere."""

    def forget(self, before: float) -> None:
        """Forget the benchmarks that ended before this time, in Unix seconds."""


def finder(kinds: Iterable[type[Benchmark]], procfs: Path, nursery: Nursery | None, users: Users) -> Finder:
    """Return what finds these kinds of benchmark; without a nursery, this process reads users' files itself."""
    if nursery is not None:
        return UserHelpers(kinds, nursery, users)
    return Detector(kinds, watch=ExitWatch if own_pids(procfs) else None)


def find_in_helpers(kinds: Sequence[type[Benchmark]], procfs: Path) -> Nursery | None:
    """Fork a nursery for helpers that look for these kinds, None where there can be none, which is logged once.

    This process must have a single thread.
    """
    reason = ""
    if lacks := missing(CAPABILITIES, effective()):
        reason = f"lacks {names(lacks)}"
    elif not can_confine():
        reason = "the kernel has no seccomp, or this architecture's system calls are not known"
    else:
        try:
            return start_nursery(helper(kinds, procfs, own_pids=own_pids(procfs)))
        except OSError as error:
            reason = f"fork: {error.strerror}"
    log.info("files of benchmarks are read in this process, not by helpers with their users' rights: %s", reason)
    return None
