"""``pinchpoint metrics``: every metric that the exporter or the judge can serve, as the tables of the documentation."""

from __future__ import annotations

from collections.abc import Iterable

import click

from pinchpoint.metrics import EXPORTER, JUDGE
from pinchpoint.model import Metric

__all__ = ["command", "table"]


def table(metrics: Iterable[Metric]) -> str:
    """Return the table of metrics in Markdown."""
    lines = ["| metric | kind | what it says |", "|---|---|---|"]
    return "\n".join(lines + [_row(metric) for metric in metrics]) + "\n"


def _row(metric: Metric) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.name}{labels}` | {metric.kind.value} | {metric.help} |"


@click.command()
@click.option("--judge", "of_judge", is_flag=True, help="List the judge's metrics instead.")
def command(*, of_judge: bool) -> None:
    """List every metric that the exporter can serve, as a Markdown table."""
    click.echo(table(JUDGE if of_judge else EXPORTER), nl=False)
