"""Where a run stands among public runs, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.benchmarks.io500_public import TOTAL
from pinchpoint.diagnosis.standing import MIN_KIN, Place, Stand
from pinchpoint.diagnosis.tail import weight
from pinchpoint.figures import bare_figure

__all__ = ["standing_parts"]

MAX_BEHIND = 3
"""Phases that are named as furthest behind."""
HOW_READ = "Each share is that of the public runs with a lower figure; equal ones count half."


def standing_parts(stands: Sequence[Stand], kind: str) -> Iterator[RenderableType]:
    """Yield what is printed: the table, then the phases that are furthest behind the same file system.

    `kind` is the name of that file system. A column without any place is left out.
    """
    columns = [
        ("all runs", [stand.among_all for stand in stands]),
        ("all, per node", [stand.among_all_per_node for stand in stands]),
        (kind, [stand.among_kin for stand in stands]),
        (f"{kind}, per node", [stand.among_kin_per_node for stand in stands]),
    ]
    columns = [(title, places) for title, places in columns if any(places)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("phase", no_wrap=True)
    table.add_column("result", justify="right", no_wrap=True)
    for title, places in columns:
        most = max((place.runs for place in places if place), default=0)
        table.add_column(f"{title} ({most})", justify="right")
    table.add_column("score with that median", justify="right")
    for number, stand in enumerate(stands):
        table.add_row(
            Text("score" if stand.figure == TOTAL else stand.figure),
            Text(bare_figure(stand.value, unit_of(stand.figure))),
            *(_share(places[number]) for _, places in columns),
            Text("" if stand.gain is None else f"+{stand.gain:.1%}"),
        )
    yield table
    yield Text(HOW_READ, style="dim")
    for line in behind_lines(stands, kind):
        yield Text(line)


def _share(place: Place | None) -> Text:
    return Text("-" if place is None else f"{place.below:.0%}")


def unit_of(figure: str) -> str:
    """Return the unit of a figure of IO500."""
    if figure == TOTAL:
        return "score"
    return "bytes_per_second" if figure.startswith("ior") else "operations_per_second"


def behind_lines(stands: Sequence[Stand], kind: str) -> Iterator[str]:
    """Yield which phases are furthest behind the runs of the same file system: where tuning pays most."""
    phases = [stand for stand in stands if weight(stand.figure) and stand.among_kin]
    if not any(stand.among_kin.runs >= MIN_KIN for stand in phases if stand.among_kin):
        return
    behind = sorted((stand for stand in phases if stand.gain), key=lambda stand: -(stand.gain or 0.0))
    if not behind:
        yield f"No phase is below the median of the runs with {kind}."
    for number, stand in enumerate(behind[:MAX_BEHIND]):
        per_node = " per node" if stand.among_kin_per_node else ""
        yield (
            f"{'Then' if number else 'Furthest'} behind {kind}: {stand.figure} has {stand.share:.0%} of the "
            f"median{per_node}; with the median the score would be {stand.gain:.1%} higher."
        )
