"""``pinchpoint metrics``: every metric that the exporter can serve, as the README's table."""

from __future__ import annotations

import click

from pinchpoint.catalogue import all_metrics
from pinchpoint.model import Metric

__all__ = ["command", "table"]


def table() -> str:
    """Return the table of metrics in Markdown."""
    lines = ["| metric | kind | what it says |", "|---|---|---|"]
    return "\n".join(lines + [_row(metric) for metric in all_metrics()]) + "\n"


def _row(metric: Metric) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.name}{labels}` | {metric.kind.value} | {metric.help} |"


@click.command()
def command() -> None:
    """List every metric that the exporter can serve, as a table in Markdown."""
    click.echo(table(), nl=False)
