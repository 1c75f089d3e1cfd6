"""What else differs between two groups of runs, in words: what limited each phase, and the settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.comparison import Comparison, Move, PhasePlace
from pinchpoint.diagnosis.knobs import Difference, Knobs, Origin
from pinchpoint.diagnosis.marks import Bottleneck
from pinchpoint.diagnosis.verdict import Kind
from pinchpoint.diagnosis.waterfall import shift_words
from pinchpoint.runs import VerdictMark
from pinchpoint.text import printable

__all__ = ["bottleneck_words", "difference_words", "move_words", "phase_name", "shift_parts"]

NOT_JUDGED = "not judged"
NOT_SET = "-"
MAX_NAMED_HOSTS = 3
"""Maximum number of named hosts; the others are counted."""
MAX_NAMED_STEPS = 3
"""Maximum number of steps that are named for a phase."""
NAMED = frozenset({Kind.RESOURCE, Kind.SEVERAL})
"""Kinds for which naming the resources is enough."""


def shift_parts(comparison: Comparison, *, named: bool) -> Iterator[RenderableType]:
    """Yield what limited each phase on both sides, and the settings that differ; `named` shows the benchmark."""
    if comparison.moves:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("limited by", overflow="fold")
        table.add_column("base", overflow="fold")
        table.add_column("other", overflow="fold")
        for move in comparison.moves:
            other = Text(bottleneck_words(move.other), style="bold" if move.moved else "")
            table.add_row(Text(phase_name(move.place, named=named)), Text(bottleneck_words(move.base)), other)
        yield table
        yield from _steps(comparison, named=named)
    yield from _knobs(comparison.knobs)


def _steps(comparison: Comparison, *, named: bool) -> Iterator[RenderableType]:
    """Yield the steps of operations that moved, by phase."""
    lines = [
        printable(f"{phase_name(move.place, named=named)}: {shift_words(shift, 'in base', 'in other')}")
        for move in comparison.moves
        for shift in move.steps[:MAX_NAMED_STEPS]
    ]
    for line in lines:
        yield Text(line)
    if lines:
        yield Text()


def _knobs(knobs: Knobs) -> Iterator[RenderableType]:
    if knobs.differences:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True, min_width=7)
        grid.add_column(overflow="fold")
        for index, difference in enumerate(knobs.differences):
            grid.add_row(Text("" if index else "differs"), Text(difference_words(difference)))
        yield grid
        yield Text()


def phase_name(place: PhasePlace, *, named: bool) -> str:
    """Return the name of a phase; `named` puts its benchmark before it."""
    words = [place.benchmark] if named else []
    words.append(place.phase)
    if place.occurrence > 1:
        words.append(f"({place.occurrence})")
    return printable(" ".join(words))


def move_words(move: Move, *, named: bool) -> str:
    """Return how the bottleneck of a phase moved: ``find: mds_lock of mds.a 82% -> latency-bound``."""
    return f"{phase_name(move.place, named=named)}: {bottleneck_words(move.base)} -> {bottleneck_words(move.other)}"


def bottleneck_words(found: Bottleneck | None) -> str:
    """Return what limited a phase, and how many repeats say so if they disagree."""
    if found is None:
        return NOT_JUDGED
    words = _words(VerdictMark(found.kind, found.limits))
    if found.agreeing == found.runs:
        return words
    dissent = ", ".join(_words(mark, blame=False) for mark in found.dissent)
    return f"{words} ({found.agreeing} of {found.runs} runs; else {dissent})"


def _words(mark: VerdictMark, *, blame: bool = True) -> str:
    limits = [
        " ".join(
            [limit.resource, *(["of", limit.owner] if limit.owner else []), *([f"{limit.blame:.0%}"] if blame else [])]
        )
        for limit in mark.limits
    ]
    named = " + ".join(limits)
    if mark.kind in NAMED and named:
        return printable(named)
    return printable(f"{mark.kind}: {named}" if named else mark.kind)


def difference_words(difference: Difference) -> str:
    """Return a setting that differs: ``mtu: 1500 -> 9000 (all 7 hosts)``."""
    base, other = difference.base, difference.other
    if difference.origin is Origin.COMMAND and not difference.varies:
        base, other = _changed(base[0], other[0])
    words = f"{difference.name}: {_values(base)} -> {_values(other)}"
    if set(base) == set(other):
        words = f"{difference.name}: {_values(base)}"
    remarks = []
    if difference.varies:
        sides = [side for side, values in (("base", base), ("other", other)) if len(values) > 1]
        remarks.append(f"varies in {' and '.join(sides)}")
    hosts = difference.hosts
    if len(hosts) == difference.among > 1:
        remarks.append(f"all {len(hosts)} hosts")
    elif hosts:
        remarks.append(
            ", ".join(hosts) if len(hosts) <= MAX_NAMED_HOSTS else f"{len(hosts)} of {difference.among} hosts"
        )
    return printable(f"{words} ({'; '.join(remarks)})" if remarks else words)


def _values(values: Sequence[str]) -> str:
    return " | ".join(value or NOT_SET for value in values)


def _changed(base: str, other: str) -> tuple[tuple[str], tuple[str]]:
    """Return the words in which two command lines differ, each after its option."""
    before, after = shlex.split(base), shlex.split(other)
    first: list[str] = []
    second: list[str] = []
    for tag, low, high, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            option = low > 0 and before[low - 1].startswith("-") and "=" not in before[low - 1]
            first += before[low - option : high]
            second += after[start - option : end]
    return (shlex.join(first),), (shlex.join(second),)
