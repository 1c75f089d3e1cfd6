"""The table at the end of a run: each phase, its result, what limited it, what was full, and which alerts fired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.usage import Fullness, ResourceUse, Usage
from pinchpoint.diagnosis.verdict import Verdict
from pinchpoint.figures import format_result
from pinchpoint.session.phases import PhaseRecord

__all__ = ["run_table"]

MIN_WAIT_SHARE = 0.1
"""Share of the time below which a wait class is not named."""
MAX_NAMED_RESOURCES = 3
"""Maximum number of resources named per phase."""
MIN_ALERTS_COLUMNS = 106
"""Columns from which alerts have their own column."""
MIN_PHASE_COLUMNS = 24
"""Minimum columns for the names of phases, as far as needed."""
MIN_BUSY_SHARE = 0.2
"""Busy share below which a resource gets no line."""


def run_table(phases: Sequence[PhaseRecord], *, alerts: bool, width: int) -> Table:
    """Return the table; `alerts` says whether a server was asked for them.

    In fewer columns than `MIN_ALERTS_COLUMNS` the alerts are below the resources, so that no name is broken.
    """
    beside = alerts and width >= MIN_ALERTS_COLUMNS
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    longest = max((len(phase.mark.name) for phase in phases), default=0)
    table.add_column("phase", overflow="fold", min_width=min(longest, MIN_PHASE_COLUMNS))
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    below = "" if beside or not alerts else "; alerts"
    table.add_column(f"verdict; busy, full for{below}", overflow="fold")
    if beside:
        table.add_column("alerts fired", no_wrap=True)
    for phase in phases:
        mark = phase.mark
        fired = [Text(name) for name in mark.alerts or ()]
        cells = [
            Text(mark.name),
            Text(f"{(mark.end or mark.start) - mark.start:.1f} s"),
            Text("\n".join(format_result(result) for result in mark.results) or "-"),
            Text("\n").join([*_verdict(phase.verdict), _resources(phase.usage, phase.verdict)]),
        ]
        if beside:
            cells.append(Text("\n").join(fired) if fired else Text("-"))
        elif fired:
            cells[-1] = Text("\n").join([cells[-1], *fired])
        table.add_row(*cells)
    table.caption = "! full for most of the phase"
    table.caption_justify = "left"
    return table


def _verdict(found: Verdict | None) -> Iterator[Text]:
    if found is None:
        return
    margin = f" ({found.margin.partition(':')[0]})" if found.margin else ""
    yield Text(f"{found.words}{margin}", style="bold")
    waits = ", ".join(f"{wait} {share:.0%}" for wait, share in found.waits.items() if share >= MIN_WAIT_SHARE)
    if waits:
        yield Text(f"  waits: {waits}")


def _resources(found: Usage | None, verdict: Verdict | None) -> Text:
    """Return the fullest resources of this host, those named by the verdict first."""
    if found is None:
        return Text("no samples")
    named = {(limit.resource, limit.owner) for limit in verdict.limits} if verdict is not None else set()
    busy = [use for use in found.resources if use.busy >= MIN_BUSY_SHARE or use.level is Fullness.FULL]
    shown = sorted(busy, key=lambda use: (use.resource, use.owner) not in named)[:MAX_NAMED_RESOURCES]
    return Text("\n").join([_resource(use) for use in shown]) if shown else Text("nothing above 20 %")


def _resource(use: ResourceUse) -> Text:
    full = use.level is Fullness.FULL
    line = f"{'!' if full else ' '} {use.resource} {use.owner} {use.busy:.0%}, {use.saturated:.0%}"
    return Text(line, style="bold" if full else "")
