"""What iperf 2 and iperf3 have in common: rows of intervals, units and command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["ROW", "IperfFigure", "bandwidth", "options", "transfer"]

FIGURE = r"(\d{{1,18}}(?:\.\d{{1,9}})?)\s+([KMGT]?)({})s?"
ROW = expression(
    # report_bw_format and its relatives (src/Locale.c of iperf 2.0.5 to 2.1.8, src/iperf_locale.c of iperf 3.12).
    r"\[\s*+(?P<id>(?:\*\s*+)?\d+|SUM[^\[\]]*+)\]\s*+(?:\[(?P<role>[TR]X)-[CS]\])?"
    r"\s*+(?P<start>\d{1,9}(?:\.\d+)?)\s*-\s*(?P<end>\d{1,9}(?:\.\d+)?)\s+sec\s+"
    + FIGURE.format("Byte")
    + r"\s+"
    + FIGURE.format("bit|Byte")
    + r"/sec(?P<rest>.*)"
)
"""One row: stream, interval, amount transferred, rate."""
POWERS = "KMGT"


class IperfFigure(NamedTuple):
    """A figure in bytes or bytes per second, and as printed."""

    value: float
    printed: str = ""

    def result(self, operation: str, unit: str) -> Result:
        """Return it as a result."""
        return Result(operation, unit, self.value, self.printed)


def _figure(number: str, prefix: str, unit: str, per: str) -> IperfFigure:
    # Prefixes mean 1000 for bits and 1024 for bytes (unit_snprintf in src/units.c, iperf 3.12;
    # byte_snprintf in iperf 2).
    power = POWERS.find(prefix) + 1 if prefix else 0
    factor = 1000.0**power / 8 if unit == "bit" else 1024.0**power
    return IperfFigure(float(number) * factor, f"{number} {prefix}{unit}s{per}")


def transfer(row: re.Match[str]) -> IperfFigure:
    """Return the bytes in a `ROW`."""
    return _figure(row[5], row[6], row[7], "")


def bandwidth(row: re.Match[str]) -> IperfFigure:
    """Return the rate in a `ROW`."""
    return _figure(row[8], row[9], row[10], "/sec")


def options(argv: Sequence[str], short: str, long: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a command line, by letter, with their values.

    `short` is what getopt(3) takes; `long` gives the letters of the long ones that matter, with a colon if a value
    follows. A word that is not an option is the value of an irrelevant option.
    """
    valued = {letter for letter, after in zip(short, short[1:] + " ", strict=True) if after == ":"}
    words = list(reversed(argv[1:]))
    while words:
        word = words.pop()
        if word == "--":
            return
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            letter = long.get(name, "")
            if letter.endswith(":") and not equals and words:
                value = words.pop()
            if letter:
                yield letter.rstrip(":"), value
        elif word.startswith("-"):
            for at, letter in enumerate(word[1:], 2):
                if letter in valued:
                    yield letter, word[at:] or (words.pop() if words else "")
                    break
                yield letter, ""
