"""The names of the package's constants say their units, and one name stands for one value."""

from __future__ import annotations

import ast
import io
import operator
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pinchpoint

SOURCES = Path(pinchpoint.__file__).parent
UNITS = {
    unit: (
        re.compile(rf"(?:[\w']+ )?{unit}\b", re.IGNORECASE),
        re.compile(rf"\bin {unit}\b|\bmany {unit}\b(?!['\w])", re.IGNORECASE),
    )
    for unit in ("nanoseconds", "seconds", "bytes", "characters", "columns", "lines")
}
"""How a docstring or a comment gives a unit: in its first two words, or as `in seconds` or `this many seconds`."""
Number = int | float
OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: lambda left, right: int(left) << int(right),
    ast.BitOr: lambda left, right: int(left) | int(right),
}


class Constant(NamedTuple):
    """A number, or a tuple of numbers, that a module gives a name."""

    name: str
    value: Number | tuple[Number, ...]
    said: str
    """Its docstring and its comments."""


def number(node: ast.expr, known: dict[str, Number]) -> Number | None:
    """Return the value of an expression of numbers and of earlier constants; None for any other."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = number(operand, known)
            return None if found is None else -found
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            first, second = number(left, known), number(right, known)
            return None if first is None or second is None else OPERATORS[type(op)](first, second)
    return None


def comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if "#" in source else ()
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def constants(source: str) -> Iterator[Constant]:
    body = ast.parse(source).body
    remarks, known = comments(source), dict[str, Number]()
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                continue
        said = [remarks.get(node.end_lineno or node.lineno, "")]
        if (above := node.lineno - 1) in remarks and above not in {other.end_lineno for other in body}:
            said.append(remarks[above])
        match after:
            case ast.Expr(value=ast.Constant(value=str() as docstring)):
                said.append(docstring)
        match target, value:
            case ast.Name(id=name), ast.Tuple(elts=parts):
                numbers = [found for part in parts if (found := number(part, known)) is not None]
                if numbers and len(numbers) == len(parts):
                    yield Constant(name, tuple(numbers), "\n".join(said))
            case ast.Name(id=name), _:
                if (found := number(value, known)) is not None:
                    known[name] = found
                    yield Constant(name, found, "\n".join(said))
            case ast.Tuple(elts=names), ast.Tuple(elts=parts):
                for named, part in zip(names, parts, strict=True):
                    if isinstance(named, ast.Name) and (found := number(part, known)) is not None:
                        known[named.id] = found
                        yield Constant(
                            named.id, found, ""
                        )  # one docstring for several: it can't be said whose unit it has


def without_unit(constant: Constant) -> str | None:
    """Return the unit that a constant's docstring or comment gives it, if its name does not have it."""
    for unit, (first, inside) in UNITS.items():
        if any(first.match(line) for line in constant.said.split("\n")) or inside.search(constant.said):
            return None if unit.upper() in constant.name.upper() or "_PER_" in constant.name else unit
    return None


def modules() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCES.rglob("*.py")):
        yield str(file.relative_to(SOURCES)), file.read_text()


def clashes(sources: Iterator[tuple[str, str]]) -> list[str]:
    homes: dict[str, dict[Number | tuple[Number, ...], list[str]]] = {}
    for module, source in sources:
        for constant in constants(source):
            if not constant.name.startswith("_"):
                homes.setdefault(constant.name, {}).setdefault(constant.value, []).append(module)
    return [
        f"{name}: " + "; ".join(f"{value} in {', '.join(found)}" for value, found in values.items())
        for name, values in homes.items()
        if len(values) > 1
    ]


def test_a_constant_with_a_unit_has_it_in_its_name() -> None:
    found = [
        f"{module}: {constant.name} is in {unit}"
        for module, source in modules()
        for constant in constants(source)
        if (unit := without_unit(constant)) is not None
    ]
    assert not found, "\n".join(found)


def test_one_name_stands_for_one_value_in_all_modules() -> None:
    found = clashes(modules())
    assert not found, "\n".join(found)


def test_units_are_found_where_docstrings_and_comments_say_them() -> None:
    source = '''
LATE = 5.0
"""Seconds after which nobody waits any more."""
COST = 2 * LATE
"""CPU seconds of one look."""
LONGEST = 1 << 20
"""Longest file that is read, in bytes."""
STALE = -2.0
"""... and than this many seconds."""
# Bytes of a piece.
PIECE = 64 << 10
PAUSE: float = 0.1  # seconds
STEPS = (1, 2)
"""Seconds between two marks."""
PAUSE_SECONDS = 0.1
"""Seconds between two looks."""
MARGIN_NANOSECONDS = 1
"""Nanoseconds by which a thread may be older."""
ROUNDS = 3
"""Looks that take many seconds' worth of work."""
FLAG = True
"""Seconds are shown."""
'''
    found = {constant.name: unit for constant in constants(source) if (unit := without_unit(constant)) is not None}
    seconds = dict.fromkeys(("LATE", "COST", "STALE", "PAUSE", "STEPS"), "seconds")
    assert found == seconds | {"LONGEST": "bytes", "PIECE": "bytes"}


def test_a_name_with_two_values_is_found() -> None:
    sources = [("a.py", "LEAST = 1\nLEFT, RIGHT = 1.0, 2.0\n"), ("b.py", "LEAST = 1.0\nRIGHT = 3.0\n_OWN = 1\n")]
    assert clashes(iter(sources)) == ["RIGHT: 2.0 in a.py; 3.0 in b.py"]
