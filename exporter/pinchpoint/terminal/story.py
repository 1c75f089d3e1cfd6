"""Comparisons in a few lines each: the score, the phases that moved it, what limited them, and what was changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.comparison import CLAIMS, Assessment, ComparedFigure, Comparison, RunGroup
from pinchpoint.diagnosis.score import score_factors
from pinchpoint.figures import bare_figure
from pinchpoint.terminal.comparison import STYLES, notes, row_label, share
from pinchpoint.terminal.shifts import difference_words, move_words
from pinchpoint.text import counted, printable

__all__ = ["story_parts"]

MAX_SHOWN_PER_STEP = 3
"""Maximum number of phases, bottlenecks and settings per step."""
MAX_RUN_LABEL_COLUMNS = 28
"""Maximum columns to which names of runs are padded."""
GROUPS = (("beyond noise", CLAIMS), ("changed", {Assessment.UNKNOWN}))
"""Headings for the phases of a step; those that may be noise get no line."""


def story_parts(comparisons: Sequence[Comparison]) -> Iterator[RenderableType]:
    """Yield what is printed: the first base, then each step, then how many steps changed what, and what words mean."""
    rows = [row for comparison in comparisons for row in comparison.rows]
    named = len({row.key.benchmark for row in rows}) > 1
    groups = [comparisons[0].base, *(comparison.other for comparison in comparisons)]
    longest = min(MAX_RUN_LABEL_COLUMNS, max(len(printable(group.label)) for group in groups))
    first = comparisons[0].headline
    figure = f"  {_figure(first, base=True)}" if first is not None else ""
    yield Text(f"{printable(groups[0].label):<{longest}}{figure}")
    yield from _details([("text", note) for note in _notes(groups[0])])
    for comparison in comparisons:
        yield _head(comparison, longest)
        yield from _details(_lines(comparison, named=named))
    yield Text()
    yield from _summary(comparisons)
    yield from notes(comparisons)


def _head(comparison: Comparison, longest: int) -> Text:
    label = f"{printable(comparison.other.label):<{longest}}"
    row = comparison.headline
    if row is None:
        counts = Counter(str(row.verdict) for row in comparison.rows)
        return Text(
            f"{label}  {', '.join(f'{number} {verdict}' for verdict, number in counts.items()) or 'no figures'}"
        )
    change = f"  {share(row.change, sign=True):>7}  "
    between = " of" if row.verdict is Assessment.NOISE else ", noise"
    words = str(row.verdict) if row.noise is None else f"{row.verdict}{between} {share(row.noise)}"
    marks = f"; {', '.join(row.marks)}" if row.marks else ""
    return Text.assemble(f"{label}  {_figure(row)}{change}", (words + marks, STYLES.get(row.verdict, "")))


def _figure(row: ComparedFigure, *, base: bool = False) -> str:
    figure = row.base if base else row.other
    value = "-" if figure is None else printable(bare_figure(figure.mean, row.key.unit))
    return f"{value:>10}"


def _lines(comparison: Comparison, *, named: bool) -> Iterator[tuple[str, str]]:
    factors = score_factors(comparison)
    headline = comparison.headline
    rows = [row for row in comparison.rows if row is not headline and not row.key.score and row.change is not None]
    rows.sort(key=lambda row: -abs(math.log(factors.get(row.key, 1.0))) if factors else -abs(row.change or 0))
    for word, verdicts in GROUPS:
        words = []
        for row in (row for row in rows if row.verdict in verdicts):
            factor = f" (score {share(factors[row.key] - 1, sign=True)})" if row.key in factors else ""
            words.append(f"{row_label(row, comparison.rows, named=named)} {share(row.change, sign=True)}{factor}")
        yield from _some(word, words)
    yield from _some("limit", [move_words(move, named=named) for move in comparison.moves if move.moved], "; ")
    yield from _some("differs", [difference_words(found) for found in comparison.knobs.differences], "; ")
    for note in _notes(comparison.other):
        yield "text", note


def _some(word: str, words: Sequence[str], between: str = ", ") -> Iterator[tuple[str, str]]:
    """Yield the first ones in one line, and how many more there are."""
    if words:
        more = f" and {len(words) - MAX_SHOWN_PER_STEP} more" if len(words) > MAX_SHOWN_PER_STEP else ""
        yield word, between.join(words[:MAX_SHOWN_PER_STEP]) + more


def _notes(group: RunGroup) -> list[str]:
    return [printable(settings.note) for settings in group.settings if settings.note]


def _details(lines: Sequence[tuple[str, str]] | Iterator[tuple[str, str]]) -> Iterator[RenderableType]:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=16, justify="left")
    grid.add_column(overflow="fold")
    for word, text in lines:
        # A note may be a page long: one line is enough to recognise it.
        cut = word == "text"
        cell = Text(text, style="dim" if cut else "", no_wrap=cut, overflow="ellipsis" if cut else "fold")
        grid.add_row(Text(f"    {word}", style="dim"), cell)
    if grid.row_count:
        yield grid


def _summary(comparisons: Sequence[Comparison]) -> Iterator[Text]:
    counts = Counter(comparison.headline.verdict for comparison in comparisons if comparison.headline is not None)
    if counts:
        words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Assessment if counts[verdict])
        yield Text(f"{counted(sum(counts.values()), 'step')}: {words}")
