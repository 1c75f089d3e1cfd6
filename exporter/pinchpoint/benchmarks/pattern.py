"""Any command: the lines of its output that a regular expression finds name its phases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pinchpoint.benchmarks.base import Benchmark, Sight
from pinchpoint.benchmarks.events import Began, Ended, Event, State, phase_name
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.units import base
from pinchpoint.runs import Result

__all__ = ["pattern"]

MAX_COMM_CHARACTERS = 15
"""Characters that the kernel keeps of a process' name (TASK_COMM_LEN, include/linux/sched.h)."""
MAX_SEARCHED_CHARACTERS = 1024
"""Characters of a line that are searched: an innocent expression (``\\w+ done``) takes their square, in any thread."""


def pattern(name: str, processes: Collection[str], regex: re.Pattern[str]) -> type[Benchmark]:
    """Return a benchmark called `name` whose processes have one of those names.

    A line that `regex` finds begins the phase that its group ``phase`` names; without that group the first one does
    that is neither ``value`` nor ``unit``, or else all that was found. A line on which the group ``value`` found
    something says that the phase is over and what it gave, in the unit of the group ``unit`` (see `units.base`); a
    figure in an unknown unit is left out.
    """

    class PatternReader(OutputReader):
        """Reads what the command prints."""

        def line(self, line: str) -> Iterable[Event]:
            if (found := regex.search(line[:MAX_SEARCHED_CHARACTERS])) is not None and (phase := _phase(found)):
                groups = found.groupdict()
                yield Began(phase) if groups.get("value") is None else Ended(phase, _results(phase, groups))

    class Pattern(Benchmark):
        """A command whose phases only its output tells."""

        comms = frozenset(process[:MAX_COMM_CHARACTERS] for process in processes)
        reader = PatternReader
        hint = "no line of its output matched the pattern with a group named value"

        def __init__(self, tree: Tree, leader: int) -> None:
            """Nothing of a command is known beforehand."""

        def look(self, tree: Tree, leader: int, now: float) -> Sight:
            return Sight(State.RUNNING, name, vague=True)

    Pattern.name = name
    return Pattern


def _phase(found: re.Match[str]) -> str:
    groups = found.re.groupindex
    named = groups.get("phase")
    others = (
        group for group in range(1, found.re.groups + 1) if group not in (groups.get("value"), groups.get("unit"))
    )
    which = named if named is not None else next(others, 0)
    return phase_name(found[which] or found[0])


def _results(operation: str, groups: dict[str, str | None]) -> tuple[Result, ...]:
    figure, unit = groups.get("value") or "", groups.get("unit") or ""
    value = number(figure.replace(",", ""))
    if value is None or (converted := base(value, unit)) is None:
        return ()
    return (Result(operation, converted[1], converted[0], f"{figure} {unit}".strip()),)
