"""The results of a configuration over its runs: levels, and what was set differently where one ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.comparison import Key
from pinchpoint.diagnosis.knobs import Settings, knobs
from pinchpoint.diagnosis.trend import MIN_TREND_RUNS, Trend
from pinchpoint.figures import bare_figure
from pinchpoint.runs import RunState
from pinchpoint.terminal.shifts import difference_words
from pinchpoint.text import counted, printable

__all__ = ["figure_name", "trend_parts"]

FASTER, SLOWER = "green", "red"
MAX_DIFFERENCES = 8
"""Settings that are named at a change."""


def trend_parts(
    trends: Sequence[Trend], runs: Sequence[RunState], settings: Sequence[Settings]
) -> Iterator[RenderableType]:
    """Yield what is printed: the table of figures, then each change of them with what was set differently then."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("figure", overflow="fold")
    for title in ("runs", "level", "since", "change", "before"):
        table.add_column(title, justify="right" if title != "since" else "left", no_wrap=True)
    for trend in trends:
        level = trend.levels[-1]
        change, before = Text("none"), ""
        if trend.changes:
            share = trend.changes[-1][1]
            better = (share > 0) != (trend.key.unit == "seconds")
            change = Text(f"{share:+.1%}", style=FASTER if better else SLOWER)
            before = bare_figure(trend.levels[-2].mean, trend.key.unit)
        table.add_row(
            Text(figure_name(trend.key)),
            str(sum(len(one.values) for one in trend.levels)),
            bare_figure(level.mean, trend.key.unit),
            Text(_day(runs[level.first]) if trend.changes else ""),
            change,
            before,
        )
    yield table
    places = sorted({place for trend in trends for place, _ in trend.changes})
    for place in places:
        yield from _change(place, trends, runs, settings)
    if not places:
        few = max((len(level.values) for trend in trends for level in trend.levels), default=0) < MIN_TREND_RUNS
        yield Text(
            f"No change can be told from chance with fewer than {MIN_TREND_RUNS} runs." if few else "No figure changed "
            "by more than chance explains."
        )  # fmt: skip


def _change(
    place: int, trends: Sequence[Trend], runs: Sequence[RunState], settings: Sequence[Settings]
) -> Iterator[RenderableType]:
    changed = [
        f"{figure_name(trend.key)} {share:+.1%}" for trend in trends for first, share in trend.changes if first == place
    ]
    yield Text(printable(f"{_day(runs[place])}, {runs[place].run}: {', '.join(changed)}"), style="bold")
    found = knobs([settings[place - 1]], [settings[place]]).differences
    for difference in found[:MAX_DIFFERENCES]:
        yield Text(f"  {difference_words(difference)}")
    if len(found) > MAX_DIFFERENCES:
        yield Text(f"  {counted(len(found) - MAX_DIFFERENCES, 'more setting')} differ")
    if not found:
        yield Text("  no setting that is known differs from the run before")
    if settings[place].note:
        yield Text(f"  note: {printable(settings[place].note)}")


def _day(run: RunState) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(run.start))


def figure_name(key: Key) -> str:
    """Return the name of a figure: ``find``, ``score total``."""
    words = f"score {key.operation}" if key.score else key.phase
    return printable(words if key.occurrence == 1 else f"{words} ({key.occurrence})")
