"""``pinchpoint docs``: the documentation, in the terminal."""

from __future__ import annotations

import click

from pinchpoint.terminal.pages import show_list, show_page

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("page", required=False, metavar="[PAGE]")
def command(page: str | None) -> None:
    """Show a page of the documentation in the terminal.

    Without a PAGE it lists all of them, such as `install` and `verdict`. On a terminal the text is shown in
    $PINCHPOINT_PAGER, $PAGER or less; in a pipe it is plain. A judge serves the same pages on its port.
    """
    if page is None:
        show_list("docs")
    else:
        show_page("docs", page)
