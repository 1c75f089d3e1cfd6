"""Texts that make a regular expression backtrack, and their cost: the author of a text must not block anything else.

Python's engine holds the interpreter's lock for the whole search, so an expression whose cost grows with the square of
a text stops the whole exporter. That can happen only where a part of the expression repeats. The texts therefore
consist of a beginning that matches, one part of the expression again and again, and an end that matches nothing.
"""

from __future__ import annotations

import gc
import importlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["costs_more_than_its_length", "hostile"]

LENGTH = 1000
"""Length of the shorter text in characters."""
TIMES = 4
"""How many times longer the other text is; quadratic work costs 16 times as much."""
BOUND = 8.0
"""Between 4, which is linear, and 16."""
NOTHING = 0.002
"""Seconds too short to show how the cost grows: one pass over the longer text takes a tenth of that."""
ENOUGH = 0.05
"""Seconds that the shorter text may take: with a cubic cost the longer one would take minutes."""
REPEATS = 30
"""How often both texts are timed before one is said to cost too much."""
END = "\x02"

# The names of an expression's parts are public only as `sre_constants`, which is deprecated and warns.
_parser: Any = importlib.import_module("re._parser")
_names: Any = importlib.import_module("re._constants")
REPEAT = (_names.MAX_REPEAT, _names.MIN_REPEAT, _names.POSSESSIVE_REPEAT)
CATEGORIES = {
    _names.CATEGORY_DIGIT: "1",
    _names.CATEGORY_SPACE: " ",
    _names.CATEGORY_WORD: "a",
    _names.CATEGORY_NOT_DIGIT: "a",
    _names.CATEGORY_NOT_SPACE: "a",
    _names.CATEGORY_NOT_WORD: ".",
}
INNOCENT = "a1 x.:-[(<'\""


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Yield beginnings of texts, each with the part to repeat after it."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    flags = pattern.flags if isinstance(pattern.pattern, str) else pattern.flags & ~re.UNICODE
    items = _opened(_parser.parse(source, flags))
    examples = [_example(item) for item in items]
    found: dict[tuple[str, str], None] = {}
    for at in range(len(items) + 1):
        near = sorted({char for item in items[max(0, at - 1) : at + 2] for char in _chars(item)})
        ends = {*range(at + 1, min(at + 4, len(items) + 1)), len(items)}
        parts = [*near, *(f"{char} " for char in near), *("".join(examples[at:end]) for end in sorted(ends))]
        for part in filter(None, parts):
            found["".join(examples[:at]), part] = None
        # A repeated beginning of the expression makes the search begin again and again.
        if beginning := "".join(examples[:at]):
            found["", beginning] = None
    yield from found


def costs_more_than_its_length(
    work: Callable[[str], object],
    start: str,
    part: str,
    end: str = END,
    *,
    length: int = LENGTH,
    enough: float = ENOUGH,
) -> bool:
    """Return whether the time for a text grows faster than its length, from `length` characters to a multiple of them.

    It compares the CPU time of this thread, the lowest of several measurements: other load on the machine can only
    increase it. A text of `length` that takes more than `enough` seconds costs too much by itself, and so does the
    longer one if it takes more than `BOUND` times that: both are then timed twice only.
    """
    text, longer = (start + part * (size // len(part)) + end for size in (length, TIMES * length))
    if (once := _seconds(work, text, 1)) > enough:
        return _seconds(work, text, 2) > enough
    if (once_longer := _seconds(work, longer, 1)) <= max(NOTHING, BOUND * once):
        return False
    if once_longer > BOUND * enough:
        return _seconds(work, longer, 1) > BOUND * enough
    # Growth is there each time; what other load adds to a short time is not.
    short = long = float("inf")
    for _ in range(REPEATS):
        short, long = min(short, _seconds(work, text, 1)), min(long, _seconds(work, longer, 1))
        if long <= max(NOTHING, BOUND * short):
            return False
    return True


def _seconds(work: Callable[[str], object], text: str, repeats: int) -> float:
    times = []
    collects = gc.isenabled()
    gc.disable()  # it would go through everything that the whole test run has created
    try:
        for _ in range(repeats):
            began = time.thread_time()
            work(text)
            times.append(time.thread_time() - began)
    finally:
        if collects:
            gc.enable()
    return min(times)


def _opened(items: Any) -> list[Any]:
    """Return the items of an expression, with groups and alternatives (the longest) replaced by their items."""
    found: list[Any] = []
    for name, value in items:
        if name is _names.SUBPATTERN:
            found += _opened(value[3])
        elif name is _names.ATOMIC_GROUP:
            found += _opened(value)
        elif name is _names.BRANCH:
            found += _opened(max(value[1], key=len))
        elif name in REPEAT and len(value[2]) == 1 and value[2][0][0] in (_names.SUBPATTERN, _names.BRANCH):
            found += _opened(value[2])
        else:
            found.append((name, value))
    return found


def _example(item: Any) -> str:
    """Return a text that matches an item, with one repetition of what repeats."""
    name, value = item
    if name is _names.LITERAL:
        return chr(value)
    if name is _names.NOT_LITERAL:
        return "a" if chr(value) != "a" else "b"
    if name is _names.ANY:
        return "x"
    if name is _names.IN:
        return _chars(item)[0]
    if name in REPEAT:
        return "".join(map(_example, _opened(value[2]))) * int(min(max(value[0], 1), LENGTH // 100))
    return ""


def _chars(item: Any) -> Sequence[str]:
    """Return characters that match an item of a single character."""
    name, value = item
    if name in REPEAT and len(value[2]) == 1:
        return _chars(value[2][0])
    if name is not _names.IN:
        return [text] if len(text := _example(item)) == 1 else []
    if value[0][0] is _names.NEGATE:
        fits = re.compile("|".join(f"(?:{_class(part)})" for part in value[1:]))
        return [char for char in INNOCENT if not fits.match(char)][:3]
    return [char for part in value for char in _ends(part)]


def _ends(part: Any) -> str:
    name, value = part
    if name is _names.LITERAL:
        return chr(value)
    return chr(value[0]) + chr(value[1]) if name is _names.RANGE else CATEGORIES[value]


def _class(part: Any) -> str:
    name, value = part
    if name is _names.LITERAL:
        return re.escape(chr(value))
    if name is _names.RANGE:
        return f"[{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}]"
    classes = {
        _names.CATEGORY_DIGIT: r"\d",
        _names.CATEGORY_SPACE: r"\s",
        _names.CATEGORY_WORD: r"\w",
        _names.CATEGORY_NOT_DIGIT: r"\D",
        _names.CATEGORY_NOT_SPACE: r"\S",
        _names.CATEGORY_NOT_WORD: r"\W",
    }
    return classes[value]
