"""A kind of benchmark: how its processes are recognised, how its phase is seen, and how its output is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar, NamedTuple

import msgspec

from pinchpoint.benchmarks.events import Ended, Event, PhaseSource, Rate, State
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tree import Tree

__all__ = ["Benchmark", "Documented", "Sight"]


class Documented(NamedTuple):
    """What the documentation says of a benchmark, in Markdown: a row of the tables in its pages."""

    title: str
    phases: str
    detected_from: str
    """How it is known which phase goes on."""
    results_from: str
    imported_from: str = "standard output"
    """What `pinchpoint import` understands."""
    variant: str = ""
    """Which of several of the same title it is."""


class Sight(msgspec.Struct, frozen=True):
    """What one look at a running benchmark showed."""

    state: State
    phase: str | None = None
    """The current phase; None in setup and between phases."""
    source: PhaseSource = PhaseSource.ARGV
    vague: bool = False
    """Whether `phase` only stands for the whole run, until something names its phases."""
    progress: float | None = None
    """Share of the phase that is done, 0 to 1."""
    work: float | None = None
    """What the phase has done so far, in any unit that only grows: a phase that hangs makes no progress."""
    expected: float | None = None
    """Expected duration of the phase in seconds."""
    number: int | None = None
    """Place of the phase among the run's phases, from 1."""
    total: int | None = None
    """Number of phases that the run will have."""
    events: tuple[Event, ...] = ()
    """Events from result files since the last look."""
    events_source: PhaseSource = PhaseSource.RESULT_FILE
    blind: tuple[str, ...] = ()
    """What we lack permission to read: ``descriptors``, ``environ``, ``result_file``."""


class Benchmark(ABC):
    """One running benchmark: made when its leader is first seen, and asked at each look."""

    name: ClassVar[str]
    """The ``benchmark`` label."""
    comms: ClassVar[Collection[str]]
    """Names of processes that may be its leader (15 characters at most, as the kernel keeps them)."""
    reader: ClassVar[type[OutputReader]]
    """Reads its standard output."""
    documented: ClassVar[tuple[Documented, ...]] = ()
    """Its rows in the documentation; those of the registry have one at least."""
    stopped_codes: ClassVar[Collection[int]] = ()
    """Its own exit codes for having been stopped by a signal."""
    hint: ClassVar[str] = ""
    """What to do where its output has no results."""
    everyday: ClassVar[bool] = False
    """Whether the program also runs on every host every day: then it is a benchmark only if it runs for a while."""

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process, which has one of the names, leads a run: by default the topmost one of the kind."""
        task = tree.processes[pid]
        return tree.comm(task.ppid) not in cls.comms

    @abstractmethod
    def __init__(self, tree: Tree, leader: int) -> None:
        """Take in the plan: command line, working directory, files that it names."""

    @abstractmethod
    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return what can be seen now; `now` is in monotonic seconds."""

    def last_words(self) -> tuple[Event, ...]:
        """Return the last events from its files after the leader and its /proc have gone, and close open files."""
        return ()

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event of the output as it applies to this run, None where it belongs to another run of the kind."""
        return event
