"""``pinchpoint version``: what a report of a mistake should name."""

from __future__ import annotations

import json
from typing import Any

import click

from pinchpoint.about import about
from pinchpoint.terminal.plain import say
from pinchpoint.text import printable

__all__ = ["command"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def command(*, as_json: bool) -> None:
    """Show the version, and what of this host matters to Pinchpoint.

    That is the commit if it is known, Python, the kernel, how this user's exporter would read threads and kernel
    workers and why no better way works, and the versions of the libraries.
    """
    found = about()
    if as_json:
        say(json.dumps(found, indent=2))
        return
    rows = [(name, text) for name, value in found.items() if name != "libraries" and (text := _words(value))]
    rows += [("library", f"{name} {version or 'is not installed'}") for name, version in found["libraries"].items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        say(f"{name.replace('_', ' '):{width}}  {printable(text)}")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['name']} ({value['reason']})" if value["reason"] else str(value["name"])
    return str(value or "")
