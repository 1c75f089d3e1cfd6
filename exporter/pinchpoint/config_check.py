"""Every mistake of a configuration file, with its line and the way out: `pinchpoint config check`."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, get_args, get_origin

import msgspec

from pinchpoint.compat import tomllib
from pinchpoint.config import Config, ConfigError, problems
from pinchpoint.expressions import expression
from pinchpoint.host.users import named_uids
from pinchpoint.profile.classes import load_costs
from pinchpoint.threads.roles import load_roles
from pinchpoint.tomllines import Path as KeyPath
from pinchpoint.tomllines import line_of, lines_of
from pinchpoint.waits.stack_rules import load_waits

__all__ = ["MAX_CHECKED_BYTES", "Mistake", "mistakes"]

MAX_CHECKED_BYTES = 1 << 20
"""Longest file that is checked, in bytes; one that names every key has about a thousand."""
SYNTAX_LINE = expression(r" \(at (?:line (\d+), column \d+|end of document)\)$")
"""How tomllib's message ends (_parser.py of Python 3.11)."""
PART = expression(r"[^.\[\]()]+")
KINDS: Mapping[str, str] = {
    "str": "text in quotes",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "array": "a list in [brackets]",
    "object": "a table",
}
"""Types as msgspec calls them, in a user's words."""
FAULTLESS = {"name": "left_out", "processes": ["left_out"], "phase-pattern": ""}
"""A [[benchmark]] in place of one with a wrong type."""


class Mistake(NamedTuple):
    """A mistake in a file."""

    file: str
    line: int
    reason: str
    """The key, what is wrong with it, and what to write instead."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def mistakes(path: Path) -> list[Mistake]:
    """Return the mistakes of a configuration file and of the files that it names, in the order of their lines.

    One error of syntax hides all others of its file. Raises OSError or ValueError if the file cannot be read.
    """
    text = _text(path)
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        return [_syntax(str(path), text, error)]
    lines = lines_of(text)
    found: list[Mistake] = []

    def add(where: KeyPath, reason: str) -> None:
        found.append(Mistake(str(path), line_of(where, lines), f"{_words(where)}: {reason}"))

    wrong = list(_types(document, Config, ()))
    for where, reason in wrong:
        add(where, reason)
    config = _usable(document, wrong)
    for problem in problems(config):
        add(problem.path, problem.reason)
    _check_users(config, add)
    for key, name, load in (
        ("roles-file", config.roles_file, load_roles),
        ("waits-file", config.waits_file, load_waits),
        ("costs-file", config.costs_file, load_costs),
    ):
        if name is not None:
            found += _other(path, lines, key, path.parent / name, load)
    if config.web.config_file is not None:
        found += _web_config(path, lines, path.parent / config.web.config_file)
    return sorted(found, key=lambda mistake: (mistake.file != str(path), mistake.file, mistake.line))


def _text(path: Path) -> str:
    """Return a file's text. Raises OSError, or ValueError if it is too long, not a file, or not UTF-8."""
    # A fifo would block until someone writes to it.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        raw = file.read(MAX_CHECKED_BYTES + 1)
    if len(raw) > MAX_CHECKED_BYTES:
        raise ValueError(f"longer than {MAX_CHECKED_BYTES >> 20} MiB")
    try:
        return raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8: save the file in this encoding") from error


def _syntax(origin: str, text: str, error: Exception) -> Mistake:
    said = str(error)
    place = SYNTAX_LINE.search(said)
    line = int(place[1]) if place is not None and place[1] else text.count("\n") + (not text.endswith("\n")) or 1
    reason = said[: place.start()] if place is not None else said
    return Mistake(origin, line, f"not TOML: {reason}; text stands in quotes, and each key on a line of its own")


def _types(value: Any, kind: type[msgspec.Struct], where: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield what of a table is unknown, missing or of another type."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, entry in value.items():
        if key not in fields:
            yield (*where, key), _unknown(key, fields)
        else:
            yield from _entry(entry, fields[key].type, (*where, key))
    for name, field in fields.items():
        if name not in value and field.required:
            yield where, f"{name} is missing"


def _entry(value: Any, kind: Any, where: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield what is wrong with a value; of tables, with each of their keys."""
    if _is_struct(kind) and isinstance(value, dict):
        yield from _types(value, kind, where)
        return
    items = get_args(kind)
    if get_origin(kind) is list and isinstance(value, list) and _is_struct(items[0]):
        for index, item in enumerate(value):
            yield from _entry(item, items[0], (*where, index))
        return
    if get_origin(kind) is dict and isinstance(value, dict):
        for key, item in value.items():
            yield from _entry(item, items[1], (*where, key))
        return
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        yield where, _type_words(str(error))


def _is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _type_words(said: str) -> str:
    """Return msgspec's message in words, with what to write."""
    types = re.match(r"Expected `([^`]+)`, got `([^`]+)`", said)
    if types is None:
        return said
    wanted = " or ".join(KINDS.get(name, name) for name in types[1].split(" | ") if name != "null")
    return f"must be {wanted}; this is {KINDS.get(types[2], types[2])}"


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(key.replace("_", "-"), known, 1)
    return f"unknown key; did you mean {close[0]}?" if close else f"unknown key; known are {', '.join(known)}"


def _usable(document: dict[str, Any], wrong: list[tuple[KeyPath, str]]) -> Config:
    """Return the configuration without the parts whose types are wrong."""
    # A table of an array with a mistake is left out as a whole, but only after the paths of the others are known.
    kept = deepcopy(document)
    for where, _ in wrong:
        _drop(kept, where)
    return msgspec.convert(kept, Config)


def _drop(document: Any, where: KeyPath) -> None:
    """Remove the innermost thing on a path that the configuration can do without."""
    *outer, last = where
    for key in outer:
        if isinstance(document, list) and isinstance(key, int):
            # Its place is kept by one that has no mistake, so that the numbers of the others stay right.
            document[key] = dict(FAULTLESS)
            return
        document = document.get(key) if isinstance(document, dict) else None
        if document is None:
            return
    if isinstance(document, list) and isinstance(last, int):
        document[last] = dict(FAULTLESS)
    elif isinstance(document, dict):
        document.pop(last, None)


def _check_users(config: Config, add: Callable[[KeyPath, str], None]) -> None:
    rootfs = Path(config.path.rootfs)
    for index, user in enumerate(config.trusted_users):
        try:
            named_uids([user], rootfs)
        except LookupError as error:
            add(("trusted-users", index), f"{rootfs / 'etc' / 'passwd'} has no {error.args[0]!r}: give the uid")


def _other(
    origin: Path, lines: Mapping[KeyPath, int], key: str, path: Path, load: Callable[[Path], object]
) -> Iterator[Mistake]:
    """Yield the first mistake of a file that the configuration names."""
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        yield Mistake(str(origin), line_of((key,), lines), f"{key}: {path}: {reason}")
        return
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        yield _syntax(str(path), text, error)
        return
    try:
        load(path)
    except ConfigError as error:
        reason = str(error).removeprefix(f"{path}: ")
        yield Mistake(str(path), line_of(_path_in(reason, document), lines_of(text)), reason)


def _web_config(origin: Path, lines: Mapping[KeyPath, int], path: Path) -> Iterator[Mistake]:
    """Yield the first mistake of a file with TLS and passwords, or of what it names."""
    from pinchpoint.wire.protection import check_files

    try:
        check_files(path)
    except ConfigError as error:
        if place := re.fullmatch(rf"{re.escape(str(path))}:(\d+): (.*)", str(error), re.DOTALL):
            yield Mistake(str(path), int(place[1]), place[2])
        else:
            yield Mistake(str(origin), line_of(("web", "config-file"), lines), f"web.config-file: {error}")


def _path_in(reason: str, document: Any) -> KeyPath:
    """Return the path that a message begins with, such as `role[3] (name).threads: ...`, as far as it exists."""
    head = re.sub(r" \([^()]*\)", "", reason.partition(": ")[0])
    path: list[str | int] = []
    for part in PART.findall(head):
        key: str | int = int(part) if isinstance(document, list) and part.isdecimal() else part
        try:
            document = document[key]
        except (LookupError, TypeError):
            # An unknown key stands in quotation marks behind the path.
            break
        path.append(key)
    unknown = re.search(r"unknown field `([^`]+)`", reason)
    return (*path, *([unknown[1]] if unknown is not None else []))


def _words(where: KeyPath) -> str:
    """Return a path as a user writes it, with tables of an array counted from 1."""
    words = ""
    for part in where:
        words += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if words else part
    return words or "top level"
