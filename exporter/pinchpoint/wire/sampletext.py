"""Lines of samples, as expositions and recordings have them: ``name{label="value"} 1.5 1700000000.25``.

prometheus_client takes 13 ms for an exposition of 1,100 series and 20 ms for a document of OpenMetrics: 70 seconds for
an hour of a recording. Since the same series come again and again, what precedes the value (the head) is parsed once
and then looked up; the callers do that, each in its own way.
"""

from __future__ import annotations

import re

from pinchpoint.expressions import expression
from pinchpoint.model import Labels, Point

__all__ = [
    "MAX_HEADS",
    "can_be_written",
    "escaped",
    "most_heads",
    "parse_head",
    "render_head",
    "render_value",
    "split_sample",
]

MAX_HEADS = 100_000
"""Maximum number of heads that a reader remembers: a server may send new ones forever."""
SPARE_HEADS = 100
"""Heads that are remembered in addition to a quarter more than those in use: processes come and go with their series.

With many more, their memory would be freed all at once every few minutes, in pieces that nothing else fits into.
"""
MAX_QUOTED_CHARACTERS = 60
"""Length of a quoted line in messages, in characters."""
NAME = expression(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
LABEL = expression(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)', re.ASCII)
ESCAPE = expression(r'\\([\\n"])')
WORDS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
MEANS = {"\\": "\\", "n": "\n", '"': '"'}


def split_sample(line: str) -> tuple[str, list[str]]:
    """Return the head of a sample's line, and its value with the time that may follow. Raises ValueError."""
    # Neither a value nor a time has a brace; a label's value may have anything.
    end = line.rfind("}") + 1
    if end:
        head, fields = line[:end], line[end:].split()
    else:
        head, *fields = line.split() or [""]
    if not 1 <= len(fields) <= 2:
        raise ValueError(f"no sample: {line[:MAX_QUOTED_CHARACTERS]!r}")
    return head, fields


def most_heads(series: int) -> int:
    """Return how many heads are remembered where so many series are in use."""
    return SPARE_HEADS + series + series // 4


def parse_head(head: str) -> tuple[str, Labels]:
    """Return a metric's name and its labels. Raises ValueError."""
    name = NAME.match(head)
    if name is None:
        raise ValueError(f"no name of a metric: {head[:MAX_QUOTED_CHARACTERS]!r}")
    inside = head[name.end() :].lstrip(" \t")
    if not inside:
        return name[0], ()
    if not inside.startswith("{"):
        raise ValueError(f"no name of a metric: {head[:MAX_QUOTED_CHARACTERS]!r}")
    inside = inside[1:-1].rstrip(" \t")
    labels: dict[str, str] = {}
    at = 0
    while at < len(inside):
        found = LABEL.match(inside, at)
        if found is None or found[1] in labels or found[1] == "__name__":
            raise ValueError(f"no labels: {head[:MAX_QUOTED_CHARACTERS]!r}")
        labels[found[1]] = ESCAPE.sub(lambda escape: MEANS[escape[1]], found[2])
        at = found.end()
    return name[0], tuple(sorted(labels.items()))


def can_be_written(point: Point) -> bool:
    """Return whether a series can be written in these formats: its value fits in a float, its labels are UTF-8.

    Values and labels come from any user's files and programs, and Python accepts more than that: an integer of 400
    digits, a lone surrogate in a file's name.
    """
    metric, labels, value = point
    try:
        if value.__class__ is not float:
            if not isinstance(value, int | float):
                return False
            float(value)
        text = "".join(labels)
        return len(labels) == len(metric.labels) and (text.isascii() or bool(text.encode()))
    except (TypeError, OverflowError, UnicodeEncodeError):
        return False


def escaped(text: str) -> str:
    """Return a label's value, or a help text, as written in a line."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def render_head(name: str, labels: Labels) -> str:
    """Return the head of a series."""
    if not labels:
        return name
    pairs = ",".join(f'{label}="{escaped(value)}"' for label, value in labels)
    return f"{name}{{{pairs}}}"


def render_value(value: float) -> str:
    """Return a value as every reader of these formats accepts it, with all its digits."""
    text = repr(float(value))
    return text if text[-1] not in "fn" else WORDS[text]
