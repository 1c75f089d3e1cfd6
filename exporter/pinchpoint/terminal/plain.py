"""Shared by the commands: tables of the right width, clear failures."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import TYPE_CHECKING, NoReturn

import click

from pinchpoint.limits import LIMITS, is_limit, reason
from pinchpoint.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["fail", "limits_reported", "say", "show", "warn", "width", "write"]

UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of write(2) that say that an open file takes no more."""
PIPE_COLUMNS = 400
"""Columns without a terminal: a table is as wide as it needs, so that other programs can read it."""


def say(text: str) -> None:
    """Write a line to standard output."""
    _write(f"{text}\n", err=False)


def write(text: str) -> None:
    """Write a text as it is to standard output."""
    _write(text, err=False)


def warn(text: str) -> None:
    """Write a line to standard error."""
    _write(f"pinchpoint: {printable(text)}\n", err=True)


def fail(text: str, status: int = 1) -> NoReturn:
    """Write why the command failed, and exit."""
    warn(text)
    sys.exit(status)


def width() -> int | None:
    """Return how many columns a table may have; None in a pipe, where no terminal sets a limit."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return None
    return shutil.get_terminal_size().columns


def show(*parts: RenderableType) -> None:
    """Write tables and lines to standard output."""
    from rich.console import Console  # the exporter, which uses `fail` alone, would carry it in memory for months

    page = _Page()
    console = Console(file=page, width=width() or PIPE_COLUMNS, highlight=False, force_terminal=sys.stdout.isatty())
    for part in parts:
        console.print(part)
    _write("".join(f"{line.rstrip(' ')}\n" for line in page.getvalue().rstrip().splitlines()), err=False)


class _Page(StringIO):
    """The future standard output: a table is drawn in characters that its encoding has."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "utf-8"


def _write(text: str, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        click.echo(text.encode(encoding, "replace").decode(encoding), err=err, nl=False)
    except OSError:
        if not err:  # what is full or has no reader can report nothing
            raise


@contextmanager
def limits_reported() -> Iterator[None]:
    """End the command with one line if its output cannot be written or a limit of this host stops it."""
    try:
        yield
    except LIMITS as error:
        if not is_limit(error):
            raise
        with suppress(OSError):
            sys.stdout.close()  # what is left in its buffer would fail again at the interpreter's end
        refused = isinstance(error, OSError) and error.filename is None and error.errno in UNWRITTEN
        fail(f"standard output: {reason(error)}" if refused else reason(error))
