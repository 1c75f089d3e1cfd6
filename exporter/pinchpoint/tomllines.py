"""The lines of a TOML file in which its keys stand: Python's parser does not say (tomllib, 3.11).

The text has to be valid, which tomllib has found by then: this only has to find where a value ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pinchpoint.compat import tomllib
from pinchpoint.expressions import expression

__all__ = ["Path", "line_of", "lines_of"]

Path = tuple[str | int, ...]
"""Keys, and numbers of the tables of an array, from the top."""
BLANK = expression(r"(?:[ \t\r\n]|#[^\n]*)*")
KEY = expression(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
DOT = expression(r"[ \t]*\.[ \t]*")
STRING = expression(
    r'''"""(?:[^\\]|\\.)*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:\'{0,2})|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
"""Any string; two quotation marks more may end a long one."""
PLAIN = expression(r"""[^\[\]{}"'#\n]+""")


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, from 1, of each key and table of a valid TOML text.

    What is inside an array or an inline table has the line of its key: it is not listed.
    """
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at = _skipped(text, 0)
    line, seen = 1, 0
    while at < len(text):
        line, seen = line + text.count("\n", seen, at), at
        if text[at] == "[":
            array = text.startswith("[[", at)
            keys, at = _keys(text, at + (2 if array else 1))
            table = _place(keys, counts)
            if array:
                number = counts[table] = counts.get(table, -1) + 1
                table = (*table, number)
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
            found.setdefault(table, line)
        else:
            keys, after = _keys(text, at)
            if after == at:
                break  # not valid TOML
            for end in range(1, len(keys) + 1):
                found.setdefault((*table, *keys[:end]), line)
            at = _value_end(text, after)
        at = _skipped(text, at)
    return found


def line_of(path: Path, lines: Mapping[Path, int]) -> int:
    """Return the line of a path, or of the innermost that has one around it; 1 if there is none."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


def _place(keys: tuple[str, ...], counts: Mapping[Path, int]) -> Path:
    """Return the path of a table below the last tables of the arrays that its name goes through."""
    path: Path = ()
    for key in keys[:-1]:
        path = (*path, key)
        if path in counts:
            path = (*path, counts[path])
    return (*path, *keys[-1:])


def _keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    keys = []
    while True:
        at = _blanks_skipped(text, at)
        part = KEY.match(text, at)
        if part is None:
            break
        keys.append(_unquoted(part[0]))
        at = part.end()
        if (dot := DOT.match(text, at)) is None:
            break
        at = dot.end()
    return tuple(keys), at


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] == '"':
        return str(tomllib.loads(f"key = {key}")["key"])
    return key


def _value_end(text: str, at: int) -> int:
    """Return where the line ends on which a value ends that begins behind the `=` at or after `at`."""
    depth = 0
    while at < len(text):
        letter = text[at]
        if letter == "\n" and depth <= 0:
            return at
        if letter == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        depth += (letter in "[{") - (letter in "]}")
        matched = STRING.match(text, at) if letter in "\"'" else PLAIN.match(text, at)
        at = matched.end() if matched is not None else at + 1
    return at


def _skipped(text: str, at: int) -> int:
    matched = BLANK.match(text, at)
    return at if matched is None else matched.end()


def _blanks_skipped(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at
