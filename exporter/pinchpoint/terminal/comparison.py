"""Two groups of runs side by side: each figure, its change, and whether that exceeds the noise."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.comparison import Assessment, ComparedFigure, Comparison, GroupFigure, RunGroup
from pinchpoint.figures import bare_figure
from pinchpoint.runs import RunState
from pinchpoint.terminal.shifts import shift_parts
from pinchpoint.text import printable

__all__ = ["STYLES", "comparison_parts", "notes", "row_label", "share"]

STYLES = {
    Assessment.FASTER: "green",
    Assessment.BETTER: "green",
    Assessment.SLOWER: "red",
    Assessment.WORSE: "red",
    Assessment.NOISE: "dim",
    Assessment.UNPROVED: "dim",
    Assessment.UNKNOWN: "dim",
}
SINGLE = (
    "one run each: spread unknown, so nothing is said to be faster or slower. Repeat the runs and compare groups of "
    "repeats, name repeats of another run (--repeats RUNS), or give the spread that you know (--noise PERCENT)."
)
NOISE = (
    "noise: what a difference has to exceed. It is the largest of the spread of the repeats, their interval, and "
    "--noise."
)
UNPROVED = "not proved: more than the repeats differ by, but with so few of them it may be chance."
NO_FACTS = "No settings of hosts are known of "
SHORT = "short: under 30 s, so it may not repeat well."
MIN_PHASE_COLUMNS = 24
"""Minimum columns for the names of phases, as far as needed."""
MIN_TABLE_COLUMNS = 76
"""Columns from which a figure is a table row; with fewer it takes two lines."""
MAX_NOTE_COLUMNS = 90
"""Maximum width of a note in columns."""


def comparison_parts(comparisons: Sequence[Comparison]) -> Iterator[RenderableType]:
    """Yield what is printed, from top to bottom: for each comparison its groups and tables, then what words mean."""
    # If all figures belong to one benchmark, its name appears once, above the table.
    named = len({row.key.benchmark for comparison in comparisons for row in comparison.rows}) > 1
    for comparison in comparisons:
        yield from _group("base", comparison.base)
        yield from _group("other", comparison.other)
        yield _Rows(comparison.rows, named=named)
        yield from shift_parts(comparison, named=named)
    yield from notes(comparisons)


def notes(comparisons: Sequence[Comparison]) -> Iterator[RenderableType]:
    """Yield the meaning of the words in the comparisons."""
    rows = [row for comparison in comparisons for row in comparison.rows]
    verdicts = {row.verdict for row in rows}
    if Assessment.UNKNOWN in verdicts:
        yield _Note(SINGLE)
    if any(row.noise is not None for row in rows):
        yield _Note(NOISE)
    if Assessment.UNPROVED in verdicts:
        yield _Note(UNPROVED)
    if any("short" in mark for row in rows for mark in row.marks):
        yield _Note(SHORT)
    runs = {run.run for comparison in comparisons for run in (*comparison.base.runs, *comparison.other.runs)}
    unknown = {run for comparison in comparisons for run in comparison.knobs.unknown}
    if unknown and len(unknown) < len(runs):
        yield _Note(f"{NO_FACTS}{printable(', '.join(sorted(unknown)))}.")


def _group(side: str, group: RunGroup) -> Iterator[RenderableType]:
    for index, run in enumerate(group.runs):
        yield Text(f"{side if index == 0 else '':<5} {printable(run.run)}  {_standing(run)}", no_wrap=False)
        note = group.settings[index].note if index < len(group.settings) else ""
        if note:
            yield _Line(f"      {printable(note)}")


def _standing(run: RunState) -> str:
    words = [run.benchmark, run.state, *([] if run.valid else ["INVALID"])]
    reason = f": {run.reason}" if run.reason else ""
    return printable(" ".join(words) + reason)


class _Line(msgspec.Struct, frozen=True):
    """A text that is truncated at the end of the line."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the line; it is a separate renderable, since the console joins texts and wraps them."""
        yield Text(self.text, style="dim", no_wrap=True, overflow="ellipsis")


class _Note(msgspec.Struct, frozen=True):
    """The meaning of a word."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield Text(textwrap.fill(self.text, min(MAX_NOTE_COLUMNS, options.max_width)))


class _Rows(msgspec.Struct, frozen=True):
    """The figures of a comparison."""

    rows: Sequence[ComparedFigure]
    named: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table, or, if that does not fit, two lines per figure."""
        labels = [row_label(row, self.rows, named=self.named) for row in self.rows]
        if options.max_width >= MIN_TABLE_COLUMNS:
            yield _table(self.rows, labels)
            return
        yield Text()
        for label, row in zip(labels, self.rows, strict=True):
            yield Text.assemble(f"{label}: ", (_words(row), STYLES.get(row.verdict, "")))
            figures = [f"{_value(row, row.base)} -> {_value(row, row.other)}"]
            if row.change is not None:
                figures.append(share(row.change, sign=True))
            if row.noise is not None:
                figures.append(f"noise {share(row.noise)}")
            yield Text(f"  {', '.join(figures)}")
        yield Text()


def _table(rows: Sequence[ComparedFigure], labels: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    longest = max((len(label) for label in labels), default=0)
    table.add_column("phase", overflow="fold", min_width=min(longest, MIN_PHASE_COLUMNS))
    table.add_column("base", justify="right", no_wrap=True)
    table.add_column("other", justify="right", no_wrap=True)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("noise", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for label, row in zip(labels, rows, strict=True):
        table.add_row(
            Text(label),
            Text(_value(row, row.base)),
            Text(_value(row, row.other)),
            Text(share(row.change, sign=True)),
            Text(share(row.noise)),
            Text(_words(row), style=STYLES.get(row.verdict, "")),
        )
    return table


def row_label(row: ComparedFigure, rows: Sequence[ComparedFigure], *, named: bool) -> str:
    """Return the name of a row; `named` puts its benchmark before it."""
    key = row.key
    words = [key.benchmark] if named else []
    words += ["score", key.operation] if key.score else [key.phase]
    if key.occurrence > 1:
        words.append(f"({key.occurrence})")
    same = [other.key for other in rows if other.key.place == key.place and not key.score]
    if len(same) > 1:
        words.append(key.operation)
    return printable(" ".join(words))


def _value(row: ComparedFigure, figure: GroupFigure | None) -> str:
    return "-" if figure is None else printable(bare_figure(figure.mean, row.key.unit))


def share(value: float | None, *, sign: bool = False) -> str:
    """Return a share as a percentage; a change (`sign`) from tenfold is a factor."""
    if value is None:
        return "-"
    percent = value * 100
    if abs(percent) >= 999.5:
        return f"{percent / 100 + 1:.3g}x" if sign else f"{percent:.0f}%"
    return f"{percent:+.1f}%" if sign else f"{percent:.1f}%"


def _words(row: ComparedFigure) -> str:
    verdict = str(row.verdict)
    if row.verdict is Assessment.ONE_SIDED:
        verdict = "only in base" if row.other is None else "only in other"
    return "; ".join([verdict, *row.marks])
