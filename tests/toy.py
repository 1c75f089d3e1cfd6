"""A benchmark that a test controls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from pinchpoint.benchmarks.base import Benchmark, Sight
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.runs import Result


def rate(value: float, operation: str = "write") -> Result:
    """Return a throughput."""
    return Result(operation, "bytes_per_second", value)


class ToyReader(OutputReader):
    """Reads lines such as ``end write 5``."""

    def line(self, line: str) -> Iterable[Event]:
        """Return the event that a line reports."""
        match line.split():
            case ["start"]:
                yield RunBegan()
            case ["begin", phase]:
                yield Began(phase)
            case ["rate", phase, value]:
                yield Rate(phase, (rate(float(value)),))
            case ["end", phase, value]:
                yield Ended(phase, (rate(float(value)),), seconds=1.0)
            case ["complete"]:
                yield Completed()
            case ["fail", reason]:
                yield Failed(reason)


class Toy(Benchmark):
    """Its phase is the last word of its command line, and its threads don't matter."""

    name: ClassVar[str] = "toy"
    comms: ClassVar[Collection[str]] = ("toy",)
    reader: ClassVar[type[OutputReader]] = ToyReader
    hint: ClassVar[str] = "print something"

    def __init__(self, tree: Tree, leader: int) -> None:
        self.words: tuple[Event, ...] = ()

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the phase."""
        argv = tree.argv(leader)
        if len(argv) < 2:
            return Sight(State.SETUP)
        return Sight(State.RUNNING, argv[-1], PhaseSource.ARGV, vague=argv[-1] == "toy")

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Leave alone an event of a phase called "foreign"."""
        return None if event.phase == "foreign" else event

    def last_words(self) -> tuple[Event, ...]:
        """Return what the test has set."""
        return self.words
