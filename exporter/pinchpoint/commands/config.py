"""``pinchpoint config check``: the mistakes of a configuration file, before a service reads it."""

from __future__ import annotations

from pathlib import Path

import click

from pinchpoint.config_check import mistakes
from pinchpoint.statuses import statuses
from pinchpoint.terminal.plain import fail, say
from pinchpoint.text import printable

__all__ = ["command"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Check a configuration file."""


@command.command(epilog=statuses("config check"))
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
def check(file: Path) -> None:
    """Name every mistake of a configuration file and of the files that it names.

    FILE is what --config.file takes. Each line of the output has the file, the line, the key, what is wrong, and what
    to write instead. Nothing is started, and no host is asked.
    """
    try:
        found = mistakes(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except ValueError as error:
        fail(f"{file}: {error}")
    for mistake in found:
        say(printable(str(mistake)))
    if found:
        fail(f"{len(found)} mistakes in {file}" if len(found) > 1 else f"1 mistake in {file}")
    say(f"{file}: no mistakes")
