"""Any command: lines of its output that match a regular expression name its phases."""

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
"""Characters of a line that are searched: even a harmless expression (``\\w+ done``) takes quadratic time."""


def pattern(name: str, processes: Collection[str], regex: re.Pattern[str]) -> type[Benchmark]:
    """Return a benchmark called `name` whose processes have one of those names.

    A line that `regex` matches begins the phase named by its group ``phase``; without that group, by the first one that
    is neither ``value`` nor ``unit``, or else by the whole match. A line in which the group ``value`` matches ends the
    phase with that result, in the unit of the group ``unit`` (see `units.base`); figures in unknown units are left out.
    """

    class PatternReader(OutputReader):
        """Reads the command's output."""

        def line(self, line: str) -> Iterable[Event]:
            if (found := regex.search(line[:MAX_SEARCHED_CHARACTERS])) is not None and (phase := _phase(found)):
                groups = found.groupdict()
                yield Began(phase) if groups.get("value") is None else Ended(phase, _results(phase, groups))

    class Pattern(Benchmark):
        """A command whose phases are known only from its output."""

        comms = frozenset(process[:MAX_COMM_CHARACTERS] for process in processes)
        reader = PatternReader
        hint = "no line of its output matched the pattern with a group named value"

        def __init__(self, tree: Tree, leader: int) -> None:
            """Nothing is known about a command beforehand."""

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
