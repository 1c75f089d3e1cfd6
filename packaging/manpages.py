"""Manual pages of `pinchpoint` and each of its commands, from the texts of ``--help``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone

import click

from pinchpoint import __version__
from pinchpoint.cli import COMMANDS, main
from pinchpoint.statuses import STATUSES

__all__ = ["manual_pages", "roff_line"]

WIDTH = 100
"""Columns at which click is not to wrap a usage line."""


def manual_pages(seconds: int) -> dict[str, str]:
    """Return the pages by file name, such as ``pinchpoint-run.1``; `seconds` is their date in Unix time."""
    whole = click.Context(main, info_name="pinchpoint", **main.context_settings)
    date = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")
    pages = {"pinchpoint.1": _page(main, whole, date)}
    for name in COMMANDS:
        command = main.get_command(whole, name)
        if command is not None:
            context = click.Context(command, info_name=name, parent=whole, **command.context_settings)
            pages[f"pinchpoint-{name}.1"] = _page(command, context, date)
    return pages


def _page(command: click.Command, context: click.Context, date: str) -> str:
    name = context.command_path.replace(" ", "-")
    summary = COMMANDS.get(context.info_name or "", "shows what limits a storage benchmark run")
    return "\n".join(
        [
            f'.TH {name.upper()} 1 {date} "Pinchpoint {__version__}" "User Commands"',
            ".SH NAME",
            rf"{roff_line(name)} \- {roff_line(summary[0].lower() + summary[1:].rstrip('.'))}",
            ".SH SYNOPSIS",
            f".B {roff_line(context.command_path)}",
            roff_line(" ".join(command.collect_usage_pieces(context))),
            *_described(command),
            *_options(command, context),
            *_commands(command, context),
            *_statuses(context),
            "",
        ]
    )


def _described(command: click.Command) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(re.split(r"\n\s*\n", (command.help or "").strip())):
        if number:
            yield ".PP"
        verbatim = paragraph.lstrip().startswith("\b")
        if verbatim:
            yield ".nf"
        yield from (roff_line(line.strip()) for line in paragraph.splitlines() if line.strip(" \b"))
        if verbatim:
            yield ".fi"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    return _listed("OPTIONS", records)


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        return iter(())
    names = command.list_commands(context)
    found = [(name, command.get_command(context, name)) for name in names]
    texts = COMMANDS if command is main else {name: one.get_short_help_str(WIDTH) for name, one in found if one}
    return _listed("COMMANDS", [(f"{context.command_path} {name}", texts[name]) for name in names])


def _statuses(context: click.Context) -> Iterator[str]:
    known = STATUSES.get(context.info_name or "", {})
    return _listed("EXIT STATUS", [(status, f"{meaning}.") for status, meaning in known.items()])


def _listed(title: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    if entries:
        yield f".SH {title}"
    for term, text in entries:
        yield from (".TP", rf"\fB{roff_line(term)}\fR", roff_line(text))


def roff_line(text: str) -> str:
    """Return a text on one line as roff: nothing in it is a command."""
    plain = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
