"""Typed YAML files: every error names the file, the line, the key and the reason."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from pinchpoint.expressions import expression
from pinchpoint.tomlfile import ConfigError

__all__ = ["MAX_NESTING", "Document", "decode_yaml", "nesting"]

T = TypeVar("T")
Path = tuple[str | int, ...]
"""Keys, and numbers of the entries of a list from 0, from the top."""

MAX_NESTING = 64
"""Deepest nesting of brackets: at each token PyYAML looks at all that are open, 1.4 s for 2,000 of them."""
BRACKETS = expression(r"[\[{\]}]")
KINDS = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "array": "a list",
    "object": "a table of keys",
    "null": "nothing",
}
"""Types as msgspec calls them, in a user's words."""
NULL, MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"


class Document(Generic[T]):
    """The content of a file."""

    def __init__(self, value: T, origin: str, lines: dict[Path, int]) -> None:
        self.value = value
        self.origin = origin
        self._lines = lines

    def error(self, reason: str, *path: str | int) -> ConfigError:
        """Return the error of what stands at a path, or around it; without a path, of the whole file."""
        return _error(self.origin, self._lines, path, reason)


def nesting(text: str) -> int:
    """Return how many brackets of a text are open at most at one place."""
    return max(accumulate((1 if bracket in "[{" else -1 for bracket in BRACKETS.findall(text)), initial=0))


def decode_yaml(raw: bytes, type_: type[T], origin: str) -> Document[T]:
    """Return the content of a YAML file as `type_`; `origin` names it in errors. Raises ConfigError.

    As where Go reads the file (yaml.UnmarshalStrict), a key may stand only once, a key without a value counts as left
    out, and a scalar becomes what its place requires: text, if that. Anchors and merge keys are refused.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{origin}:{line}: not UTF-8") from error
    if nesting(text) > MAX_NESTING:
        raise ConfigError(f"{origin}: has more than {MAX_NESTING} brackets inside of each other")
    lines: dict[Path, int] = {}
    try:
        node = _Loader(text).get_single_node()
        plain = {} if node is None else _plain(node, (), lines, origin)
        return Document(msgspec.convert({} if plain is None else plain, type_, strict=False), origin, lines)
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"{origin}:{line}: not YAML: {error.problem}") from error
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        path = _path(where)
        if unknown := re.search("unknown field `(.+)`", reason):
            path, reason = (*path, unknown[1]), "unknown key"
        elif types := re.match(r"Expected `([^`]+)`, got `([^`]+)`", reason):
            wanted = " or ".join(KINDS.get(name, name) for name in types[1].split(" | ") if name != "null")
            reason = f"must be {wanted}; this is {KINDS.get(types[2], types[2])}"
        raise _error(origin, lines, path, reason) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{origin}: not YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases: ten lines of them can stand for any number of entries."""
        if self.check_event(yaml.AliasEvent):
            mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not supported", mark)
        return super().compose_node(parent, index)


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], origin: str) -> Any:
    """Return a node with texts as scalars, and note the lines of all that is in it."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, number), lines, origin) for number, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return None if node.tag == NULL else node.value
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for key_node, value_node in node.value:
        key = key_node.value
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == MERGE:
            raise ConfigError(f"{origin}:{line}: {_words(path)}: a key must be plain text")
        lines.setdefault((*path, key), line)
        if key in seen:
            raise ConfigError(f"{origin}:{line}: {_words((*path, key))}: stands here for the second time")
        seen.add(key)
        value = _plain(value_node, (*path, key), lines, origin)
        if value is not None:
            found[key] = value
    return found


def _path(where: str) -> Path:
    """Return the path that msgspec writes as `$.a[0].b`, in backticks; `[...]` stands for an unknown key of a table."""
    return tuple(int(number) if number else name for name, number in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", where))


def _error(origin: str, lines: dict[Path, int], path: Path, reason: str) -> ConfigError:
    line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), lines.get((), 1))
    return ConfigError(f"{origin}:{line}: {_words(path)}: {reason}")


def _words(path: Path) -> str:
    words = ""
    for part in path:
        words += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if words else part
    return words or "top level"
