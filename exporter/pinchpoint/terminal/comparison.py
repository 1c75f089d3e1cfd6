"""Two groups of runs side by side: each figure, how it changed, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.comparison import Comparison, Figure, Group, Row, Verdict
from pinchpoint.figures import format_figure
from pinchpoint.runs import RunState
from pinchpoint.terminal.plain import clean

__all__ = ["bare_figure", "comparison_parts"]

STYLES = {
    Verdict.FASTER: "green",
    Verdict.BETTER: "green",
    Verdict.SLOWER: "red",
    Verdict.WORSE: "red",
    Verdict.NOISE: "dim",
    Verdict.UNKNOWN: "dim",
}
SINGLE = (
    "one run each: spread unknown, so nothing is said to be faster or slower. Repeat the runs\n"
    "and compare groups of repeats, or give the spread that you know as --noise PERCENT."
)
NOISE = (
    "noise: a difference up to it is no news. It is the largest of the spread of the repeats,\n"
    "their 95 % interval (from 3 runs in each group on), and --noise."
)
SHORT = "short: under 30 s, so it may not repeat well."
UNITLESS = frozenset({"", "ratio", "score"})
LABEL_WIDTH = 24
"""Columns that the names of phases get at least, as far as they need them."""


def bare_figure(value: float, unit: str) -> str:
    """Return a figure without what it is of: ``1.21 GiB/s``, ``10.7`` for a score."""
    return f"{value:.4g}" if unit in UNITLESS else format_figure(value, unit)


def comparison_parts(comparisons: Sequence[Comparison]) -> Iterator[RenderableType]:
    """Yield what is printed, from top to bottom: for each comparison its groups and its table, then what words mean."""
    rows = [row for comparison in comparisons for row in comparison.rows]
    # Where all figures are of one benchmark its name is said once, above the table.
    benchmarks = {row.key.benchmark for row in rows}
    for comparison in comparisons:
        yield from _group("base", comparison.base)
        yield from _group("other", comparison.other)
        yield _table(comparison.rows, named=len(benchmarks) > 1)
    verdicts = {row.verdict for row in rows}
    if Verdict.UNKNOWN in verdicts:
        yield Text(SINGLE)
    if any(row.noise is not None for row in rows):
        yield Text(NOISE)
    if any("short" in mark for row in rows for mark in row.marks):
        yield Text(SHORT)


def _group(side: str, group: Group) -> Iterator[Text]:
    for index, run in enumerate(group.runs):
        yield Text(f"{side if index == 0 else '':<5} {clean(run.run)}  {_standing(run)}", no_wrap=False)


def _standing(run: RunState) -> str:
    words = [run.benchmark, run.state, *([] if run.valid else ["INVALID"])]
    reason = f": {run.reason}" if run.reason else ""
    return clean(" ".join(words) + reason)


def _table(rows: Sequence[Row], *, named: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    labels = [_label(row, rows, named=named) for row in rows]
    longest = max((len(label) for label in labels), default=0)
    table.add_column("phase", overflow="fold", min_width=min(longest, LABEL_WIDTH))
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
            Text(_share(row.change, sign=True)),
            Text(_share(row.noise)),
            Text("; ".join([_verdict(row), *row.marks]), style=STYLES.get(row.verdict, "")),
        )
    return table


def _label(row: Row, rows: Sequence[Row], *, named: bool) -> str:
    key = row.key
    words = [key.benchmark] if named else []
    words += ["score", key.operation] if key.score else [key.phase]
    if key.occurrence > 1:
        words.append(f"({key.occurrence})")
    same = [other.key for other in rows if other.key.place == key.place and not key.score]
    if len(same) > 1:
        words.append(key.operation)
    return clean(" ".join(words))


def _value(row: Row, figure: Figure | None) -> str:
    return "-" if figure is None else clean(bare_figure(figure.mean, row.key.unit))


def _share(share: float | None, *, sign: bool = False) -> str:
    if share is None:
        return "-"
    percent = share * 100
    if abs(percent) >= 999.5:
        return f"{percent / 100 + 1:.3g}x" if sign else f"{percent:.0f}%"
    return f"{percent:+.1f}%" if sign else f"{percent:.1f}%"


def _verdict(row: Row) -> str:
    if row.verdict is Verdict.ONE_SIDED:
        return "only in base" if row.other is None else "only in other"
    return str(row.verdict)
