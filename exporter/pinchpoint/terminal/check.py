"""The findings before a run, worst first: each with its value, why it matters, when it does not, what to read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from pinchpoint.diagnosis.findings import Finding, Level
from pinchpoint.pages import command_for
from pinchpoint.text import counted, printable

__all__ = ["check_parts"]

MAX_LINE_COLUMNS = 80
"""Maximum width of a line in columns."""
MIN_LINE_COLUMNS = 20
HEADS = {Level.PROBLEM: ("PROBLEM", "bold red"), Level.HINT: ("hint", "yellow")}
INDENT = "  "
MAX_HEADING_HOSTS = 4
"""Maximum number of hosts in a heading."""


def check_parts(findings: Sequence[Finding], hosts: Sequence[str], *, every: bool) -> Iterator[RenderableType]:
    """Yield what is printed, from top to bottom; with `every`, also the checks that passed."""
    named = len(hosts) > 1
    for group in _groups(findings):
        yield _FindingGroup(group, named)
    lines = [_line(finding, named) for finding in findings if finding.level is Level.UNSEEN]
    if lines:
        yield _List("not seen", lines)
    fine = [finding for finding in findings if finding.level is Level.OK]
    if every and fine:
        yield _List("fine", [_line(finding, named) for finding in fine])
    elif fine:
        names = dict.fromkeys(finding.what for finding in fine)
        yield _List("fine", [f"{', '.join(names)} (--all says what was found)"])
    yield Text(_summary(findings, hosts), style="bold")


def _groups(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return problems and hints, grouped by check where their texts agree."""
    groups: dict[tuple[str, Level, str, str], list[Finding]] = {}
    for finding in findings:
        if finding.level in HEADS:
            key = finding.check, finding.level, finding.matters, finding.harmless
            groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _hosts(names: Sequence[str]) -> str:
    shown = (
        names
        if len(names) <= MAX_HEADING_HOSTS
        else [*names[: MAX_HEADING_HOSTS - 1], f"and {len(names) - MAX_HEADING_HOSTS + 1} more"]
    )
    return printable(", ".join(shown))


def _line(finding: Finding, named: bool) -> str:
    hosts = f" ({_hosts(finding.hosts)})" if named and finding.hosts else ""
    return f"{finding.what}{hosts}: {printable(finding.text)}"


def _summary(findings: Sequence[Finding], hosts: Sequence[str]) -> str:
    numbers = {level: sum(finding.level is level for finding in findings) for level in Level}
    words = [
        counted(numbers[Level.PROBLEM], "problem"),
        counted(numbers[Level.HINT], "hint"),
        *([f"{numbers[Level.UNSEEN]} not seen"] if numbers[Level.UNSEEN] else []),
        f"{numbers[Level.OK]} fine",
    ]
    return f"{counted(len(hosts), 'host')}: {', '.join(words)}"


def _filled(text: str, options: ConsoleOptions, first: str, rest: str) -> str:
    width = max(MIN_LINE_COLUMNS, min(MAX_LINE_COLUMNS, options.max_width))
    # A path or a name is never broken, so that it can be copied.
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


class _FindingGroup(msgspec.Struct, frozen=True):
    """One kind of finding, possibly several times."""

    findings: Sequence[Finding]
    named: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        first = self.findings[0]
        head, style = HEADS[first.level]
        hosts = f" on {_hosts(first.hosts)}" if self.named and first.hosts and len(self.findings) == 1 else ""
        yield Text.assemble((head, style), f" {first.what}{hosts}")
        for finding in self.findings:
            text = printable(finding.text)
            if len(self.findings) > 1:
                told = all(printable(host) in text for host in finding.hosts)
                owner = f"{_hosts(finding.hosts)}: " if self.named and not told else ""
                yield Text(_filled(owner + text, options, f"{INDENT}- ", f"{INDENT}  "))
            else:
                yield Text(_filled(text, options, INDENT, INDENT))
        for label, words in (("why", first.matters), ("harmless", first.harmless), ("read", command_for(first.page))):
            if words:
                yield Text(_filled(printable(words), options, f"{INDENT}{label:<9}", f"{INDENT}{'':<9}"), style="dim")
        yield Text()


class _List(msgspec.Struct, frozen=True):
    """Short lines under one heading."""

    head: str
    lines: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        yield Text(self.head)
        for line in self.lines:
            yield Text(_filled(line, options, f"{INDENT}- ", f"{INDENT}  "), style="dim")
        yield Text()
