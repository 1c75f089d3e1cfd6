"""Flame graphs of full threads, as pictures without scripts: each function's width is its share of the samples."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pinchpoint.session.stacks import SavedStack
from pinchpoint.text import printable

__all__ = ["Flame", "flames"]

WIDTH, ROW = 1000.0, 17.0
"""Width of a picture and height of a row, in the picture's own units."""
MIN_WIDTH = 2.0
"""Functions that are narrower are not drawn."""
CHARACTER = 6.2
"""Width of a character of the labels."""
MAX_DRAWN_ROWS = 60
MAX_CELLS = 1500
"""Functions of a picture: the widest ones, so that a report stays small."""
MIN_SAMPLES = 100
"""Samples from which a picture is drawn, as for shares of classes."""
MAX_FLAMES = 2
"""Pictures of a phase: the resources with most samples."""
COLOURS = ("#e8743b", "#ec8b4a", "#f0a35c", "#e3663f", "#f2b56b", "#d95a3a")


class Flame(NamedTuple):
    """The picture of one resource in one phase."""

    title: str
    samples: int
    picture: str


class _Node(msgspec.Struct):
    samples: int = 0
    callees: dict[str, _Node] = msgspec.field(default_factory=dict)


def flames(stacks: Iterable[SavedStack], phase: str) -> list[Flame]:
    """Return the pictures of a phase: of the resources with enough samples, those with most first."""
    groups: dict[tuple[str, str], list[SavedStack]] = {}
    for stack in stacks:
        if stack.phase == phase:
            groups.setdefault((stack.resource, stack.host), []).append(stack)
    counts = {key: sum(stack.samples for stack in group) for key, group in groups.items()}
    shown = sorted((key for key in groups if counts[key] >= MIN_SAMPLES), key=lambda key: (-counts[key], key))
    return [
        Flame(printable(f"{resource} on {host}"), counts[resource, host], _picture(groups[resource, host]))
        for resource, host in shown[:MAX_FLAMES]
    ]


def _picture(stacks: Sequence[SavedStack]) -> str:
    """Return the picture: the outermost functions at the top."""
    root = _Node()
    for stack in stacks:
        root.samples += stack.samples
        node = root
        for name in stack.functions[:MAX_DRAWN_ROWS]:
            node = node.callees.setdefault(name, _Node())
            node.samples += stack.samples
    cells = sorted(_cells(root), key=lambda cell: (-cell[2], cell[0]))[:MAX_CELLS]
    rows = 1 + max((row for row, *_ in cells), default=0)
    drawn = "".join(_cell(row, x, width, name, node, root.samples) for row, x, width, name, node in cells)
    return (
        f'<svg class="flame" role="img" aria-label="flame graph" viewBox="0 0 {WIDTH:.0f} {rows * ROW:.0f}" '
        f'xmlns="http://www.w3.org/2000/svg">{drawn}</svg>'
    )


def _cells(root: _Node) -> Iterator[tuple[int, float, float, str, _Node]]:
    """Yield row, left end, width and name of each function that is wide enough; without recursion."""
    todo = [(0, 0.0, root)]
    while todo:
        row, left, node = todo.pop()
        for name, callee in sorted(node.callees.items()):
            width = callee.samples / root.samples * WIDTH
            if width >= MIN_WIDTH:
                yield row, left, width, name, callee
                todo.append((row + 1, left, callee))
            left += width


def _cell(row: int, left: float, width: float, name: str, node: _Node, samples: int) -> str:
    name = printable(name)
    letters = int((width - 4) / CHARACTER)
    label = name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 3 else ""
    text = f'<text x="{left + 3:.1f}" y="{row * ROW + 12:.0f}">{html.escape(label)}</text>' if label else ""
    colour = COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]
    told = html.escape(f"{name}: {node.samples / samples:.1%}, {node.samples} samples")
    return (
        f'<g><title>{told}</title><rect x="{left:.1f}" y="{row * ROW:.0f}" width="{max(width - 0.5, 0.5):.1f}" '
        f'height="{ROW - 1:.0f}" rx="1" fill="{colour}"/>{text}</g>'
    )
