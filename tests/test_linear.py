"""Every expression applied to foreign text takes time at most proportional to its length."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import pinchpoint
from linear import LENGTH, costs_more_than_its_length, hostile
from pinchpoint.expressions import Expression

SOURCES = Path(pinchpoint.__file__).parent
OWN = {"charts"}
"""Modules whose expressions are applied only to text that this process itself has written."""
parser: Any = importlib.import_module("re._parser")
constants: Any = importlib.import_module("re._constants")
ONE_CHARACTER = {constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN, constants.CATEGORY}
METHODS = ("match", "search", "fullmatch", "sub", "findall", "finditer")
MENTION = re.compile(rf"^import re$|\.(?:{'|'.join(METHODS)})\(", re.MULTILINE)


Uses = dict[tuple[str, str], set[str]]
"""How expressions are applied, by their module and their name there."""


@cache
def nodes_of_modules() -> dict[str, list[ast.Call | ast.ImportFrom]]:
    """Return the calls and imports of each module that defines or applies an expression."""
    found = {}
    for module in pkgutil.walk_packages(pinchpoint.__path__, "pinchpoint."):
        if module.name.rpartition(".")[2] not in {*OWN, "__main__"} and not module.ispkg:
            text = (SOURCES.parent / f"{module.name.replace('.', '/')}.py").read_text()
            if MENTION.search(text):
                nodes = ast.walk(ast.parse(text))
                found[module.name] = [node for node in nodes if isinstance(node, ast.Call | ast.ImportFrom)]
    return found


def uses() -> Uses:
    found: Uses = {}
    for module, nodes in nodes_of_modules().items():
        imported = {
            alias.name: node.module
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
        }
        for node in nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in METHODS:
                    found.setdefault((imported.get(name, module), name), set()).add(method)
    return found


def expressions() -> Iterator[tuple[str, str, Any]]:
    """Yield the location of an expression, how it is applied, and the expression."""
    applied = uses()
    for module, nodes in nodes_of_modules().items():
        for name, value in vars(importlib.import_module(module)).items():
            for number, pattern in enumerate(value if isinstance(value, tuple | list) else [value]):
                if isinstance(pattern, re.Pattern | Expression):
                    # Those in a sequence are applied in a loop, under another name.
                    for method in sorted(applied.get((module, name), set() if pattern is value else {"search"})):
                        yield f"{module}.{name}[{number}]", method, pattern
        for node in nodes:
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                    args=[ast.Constant(value=str() | bytes() as text), *_],
                ) if method in METHODS:
                    yield f"{module}:{node.lineno}", method, re.compile(text)


def possessive_groups(pattern: re.Pattern[Any]) -> Iterator[Any]:
    """Yield what each possessive quantifier of `pattern` repeats, if that is more than one character."""
    todo: list[Any] = [parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)]
    while todo:
        node = todo.pop()
        if isinstance(node, tuple) and node and node[0] is constants.POSSESSIVE_REPEAT:
            _, _, repeated = node[1]
            if len(repeated) > 1 or repeated[0][0] not in ONE_CHARACTER:
                yield repeated
        if isinstance(node, parser.SubPattern | tuple | list):
            todo.extend(node)


UNIQUE = {
    (pattern.pattern, pattern.flags, method): (where, method, pattern) for where, method, pattern in expressions()
}


def test_the_expressions_are_found() -> None:
    places = {where.rpartition(".")[2] for where, _, _ in UNIQUE.values()}

    assert len(UNIQUE) > 120
    assert {"RESULT[0]", "JOB[0]", "ERRORS[2]", "ANSWER[0]"} <= places


@pytest.mark.parametrize(
    ("method", "pattern"),
    [(method, pattern) for _, method, pattern in UNIQUE.values()],
    ids=[f"{where}-{method}" for where, method, _ in UNIQUE.values()],
)
def test_an_expression_takes_no_longer_than_the_text_is_long(method: str, pattern: re.Pattern[Any]) -> None:
    def apply(text: str) -> None:
        subject = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
        if method == "sub":
            pattern.sub(type(subject)(), subject)
        elif method == "finditer":
            list(pattern.finditer(subject))
        else:
            getattr(pattern, method)(subject)

    # The first one is enough: where there is one there are many, and each takes time.
    assert next((text for text in hostile(pattern) if costs_more_than_its_length(apply, *text)), None) is None


def test_no_expression_repeats_a_group_possessively() -> None:
    """Before Python 3.11.5 a partly matched repetition is not undone (gh-106052), and Debian 12 has 3.11.2."""
    assert {where for where, _, pattern in UNIQUE.values() if any(possessive_groups(pattern))} == set()


@pytest.mark.parametrize("expression", [r"(?:ab)++", r"x(?:(?:\s|ab?)*+y)?", r"(?:ab|c)?+"])
def test_a_group_that_is_repeated_possessively_is_found(expression: str) -> None:
    assert any(possessive_groups(re.compile(expression)))


@pytest.mark.parametrize(
    ("expression", "length"),  # as short as shows it: half the length takes a quarter of the time, or an eighth
    [
        *[(expression, LENGTH // 8) for expression in (r"\s*\s*x", r"x\s*\s*\s*x")],
        *[(expression, LENGTH // 2) for expression in (r"\[\s*:?\s*\d", r"\d+$")],
        *[(expression, LENGTH) for expression in (r"\$\{[^}]*\}", r"a.*b.*c")],
    ],
)
def test_an_expression_that_takes_the_square_is_found(expression: str, length: int) -> None:
    search = re.compile(expression).search

    assert any(costs_more_than_its_length(search, *text, length=length) for text in hostile(re.compile(expression)))
