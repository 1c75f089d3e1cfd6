"""``pinchpoint runbook``: what to do about an alert, in the terminal."""

from __future__ import annotations

import click

from pinchpoint.terminal.pages import show_list, show_page

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("alert", required=False, metavar="[ALERT]")
def command(alert: str | None) -> None:
    """Show the runbook of an alert in the terminal.

    Without an ALERT it lists all of them, such as MdsLockSaturated. On a terminal the text is shown in
    $PINCHPOINT_PAGER, $PAGER or less; in a pipe it is plain. A judge serves the same pages on its port.
    """
    if alert is None:
        show_list("runbooks")
    else:
        show_page("runbooks", alert)
