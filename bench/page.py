"""Pages of results. Each script owns a section of docs/performance.md and can be run again alone.

A section stands between two Markdown comments; the prose around them is written by hand. A section ends with a table of
goals, whose rows the README repeats.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["FRACTION", "PAGE", "Goal", "goal_rows", "machine", "parser", "publish", "readme_table", "replaced", "table"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
LOAD = os.getloadavg()[0]
"""The load before this script measures anything: its own load adds to it."""
GOALS = ("goal", "at most", "measured", "")
FRACTION = "1/n"
"""The unit of a small part of something else."""
IN_README = ("a sample by `bpf`, of", "exporter beside", "loss of", "judge")


class Goal(NamedTuple):
    """A limit, and the value measured for it."""

    what: str
    limit: float
    unit: str
    measured: float | str
    """The value, or the reason why there is none."""
    inside: bool = False
    """Whether it counts as met although it is missed, by less than the spread."""

    @property
    def broken(self) -> bool:
        """Whether it was measured and missed."""
        return not isinstance(self.measured, str) and not self.inside and self.measured > self.limit

    def row(self) -> tuple[str, ...]:
        """Return its row of the table."""
        if isinstance(self.measured, str):
            return self.what, self._text(self.limit), f"not measured: {self.measured}", ""
        verdict = "**missed**" if self.broken else "inside the spread" if self.measured > self.limit else "met"
        return self.what, self._text(self.limit), self._text(self.measured), verdict

    def _text(self, value: float) -> str:
        if self.unit == FRACTION:
            return f"1/{1 / value:.3g}" if value else "0"
        return f"{value:.3g} {self.unit}".strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n" for cells in lines)


def goal_table(goals: Iterable[Goal]) -> str:
    """Return the table of goals of a section."""
    return table(GOALS, (goal.row() for goal in goals))


def goal_rows(text: str) -> list[list[str]]:
    """Return the cells of the goals in the sections of a page, in their order."""
    head = f"| {' | '.join(GOALS)} |\n"
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for found in text.split(head)[1:]
        for line in re.match(r"\|[-| ]+\n((?:\|.*\n)*)", found)[1].splitlines()  # type: ignore[index]
    ]


def readme_table(text: str) -> str:
    """Return the README's table of a page's goals: those that matter to somebody who decides whether to run it."""
    return table(GOALS, (row for row in goal_rows(text) if row[0].startswith(IN_README)))


def machine() -> str:
    """Return the machine on which a section is measured, and when."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = int(re.findall(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[0])
    return (
        f"Linux {platform.release().partition('-')[0]}, {os.cpu_count()} CPUs ({models[0] if models else 'unknown'}), "
        f"{memory / 1e6:.0f} GB, Python {platform.python_version()}, load {LOAD:.1f} before, "
        f"{time.strftime('%Y-%m-%d')}"
    )


def replaced(text: str, name: str, body: str, by: str = "make bench") -> str:
    """Return the text of a page with its section of that name replaced. Raises ValueError if it has none.

    `by` is the command that makes the section.
    """
    begin, end = f"<!-- {name}: made by `{by}` -->\n", f"<!-- end of {name} -->"
    head, found, rest = text.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"no section between {begin.strip()} and {end}")
    return head + begin + "\n" + body.strip() + "\n\n" + end + rest.partition(end)[2]


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of a script's command line, with the options of all scripts."""
    found = argparse.ArgumentParser(description=text)
    found.add_argument("--page", type=Path, default=PAGE, help="file with the section; /dev/null only prints it")
    found.add_argument("--check", action="store_true", help="fail where a goal is not met")
    return found


def publish(
    name: str, body: str, arguments: argparse.Namespace, goals: Sequence[Goal] = (), by: str = "make bench"
) -> None:
    """Print a section and write it into its page; with ``--check``, exit with 1 if a goal is missed."""
    if goals:
        body = f"{body.strip()}\n\n{goal_table(goals)}"
    print(body)
    if arguments.page.is_file():
        arguments.page.write_text(replaced(arguments.page.read_text(), name, body, by))
    broken = [goal.what for goal in goals if goal.broken]
    if arguments.check and broken:
        sys.exit(f"missed: {'; '.join(broken)}")
