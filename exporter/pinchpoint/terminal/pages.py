"""The pages of the package in the terminal: lists of them, one of them, and the nearest to a name that none has."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches

from pinchpoint import pages
from pinchpoint.terminal.page import rendered
from pinchpoint.terminal.pager import show_paged
from pinchpoint.terminal.plain import fail, write

__all__ = ["nearest", "page_name", "show_list", "show_page"]

NOUNS = {"runbooks": "runbook", "docs": "page"}
"""What a page of a folder is called."""
MAX_NEAREST = 3
MIN_LIKENESS = 0.5
"""Least share of letters that a name has in common with a nearest one (difflib's ratio)."""
PIPED_COLUMNS = 100
"""Width in columns of a page that is not shown on a terminal."""
MAX_COLUMNS = 120
"""Width in columns beyond which lines are hard to read."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that are like `name`: those that contain it, or else those spelled alike."""
    lower = {one.lower(): one for one in known}
    wanted = name.lower()
    holding = [one for one in lower if wanted and wanted in one]
    alike = holding or get_close_matches(wanted, lower, MAX_NEAREST, cutoff=MIN_LIKENESS)
    return [lower[one] for one in alike[:MAX_NEAREST]]


def page_name(folder: str, asked: str) -> str | None:
    """Return the name of the page that a user asked for, in any case and with or without folder and ending."""
    wanted = asked.strip("/").removesuffix(".md").rpartition("/")[2].lower()
    return next((name for name in pages.names(folder) if name.lower() == wanted), None)


def show_list(folder: str) -> None:
    """Print the name of each page of a folder, with its first sentence."""
    names = pages.names(folder)
    width = max(map(len, names))
    columns = _columns()
    lines = (f"{name:{width}}  {_sentence(pages.summary(pages.text(folder, name)))}" for name in names)
    _show("".join(f"{_shortened(line, columns)}\n" for line in lines))


def show_page(folder: str, asked: str) -> None:
    """Show a page; exit with 1 and the nearest names if no page has that name."""
    name = page_name(folder, asked)
    if name is None:
        fail(_unknown(folder, asked))
    colour = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    encoding = (sys.stdout.encoding or "utf-8").lower()
    _show(rendered(pages.text(folder, name), _columns(), colour=colour, encoding=encoding))


def _unknown(folder: str, asked: str) -> str:
    found = [f"pinchpoint {pages.COMMANDS[folder]} {name}" for name in nearest(asked, pages.names(folder))]
    others = ((command, page_name(other, asked)) for other, command in pages.COMMANDS.items() if other != folder)
    found = [f"pinchpoint {command} {name}" for command, name in others if name is not None] or found
    offer = f"nearest: {', '.join(f'`{command}`' for command in found)}; " if found else ""
    return f"no {NOUNS[folder]} is called {asked!r}; {offer}`pinchpoint {pages.COMMANDS[folder]}` lists all"


def _sentence(text: str) -> str:
    head, dot, _ = text.partition(". ")
    return head + dot.strip()


def _shortened(line: str, columns: int) -> str:
    return line if len(line) <= columns or not sys.stdout.isatty() else f"{line[: columns - 1]}…"


def _columns() -> int:
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return PIPED_COLUMNS
    return min(shutil.get_terminal_size().columns, MAX_COLUMNS)


def _show(text: str) -> None:
    if not show_paged(text):
        write(text)
