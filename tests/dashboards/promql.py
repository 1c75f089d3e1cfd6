"""PromQL as a tree, with Grafana's variables in it: what a query reads, through which functions, and its labels.

The grammar is that of Prometheus 2.42 (promql/parser), without its types: Prometheus itself checks whether a query is
valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "Aggregate",
    "Binary",
    "Call",
    "Literal",
    "Node",
    "PromqlError",
    "Selector",
    "Subquery",
    "labels_of",
    "parse",
    "shown",
    "walk",
]

TOKENS = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    | (?P<range>\[[^\]]*\])
    | (?P<number>(?:\d+(?:ms|[smhdwy]))+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? | \$\w+ | \$\{\w+(?::\w+)?\})
    | (?P<word>[a-zA-Z_:][\w:]*)
    | (?P<operator>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},@])
    """,
    re.VERBOSE,
)
AGGREGATIONS = {
    *("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"),
    *("topk", "bottomk", "quantile", "count_values"),
}
KEEPING = {"topk", "bottomk"}
"""Aggregations that select series and keep their labels."""
LEVELS = (
    ("or",),
    ("and", "unless"),
    ("==", "!=", "<=", "<", ">=", ">"),
    ("+", "-"),
    ("*", "/", "%", "atan2"),
)
"""Binary operators in order of increasing precedence; ``^`` is above them and right-associative."""
SETS = {"and", "or", "unless"}
VALUELESS = {"count", "group", "absent", "absent_over_time", "present_over_time", "count_over_time", "timestamp"}
"""Functions that ignore values."""
KEEPS_NAME = {"last_over_time", "sort", "sort_desc", "label_replace", "label_join"}
"""Functions whose result keeps the name of the metric."""
NAME = "__name__"


class PromqlError(ValueError):
    """Invalid PromQL; the message says where."""


@dataclass(frozen=True)
class Literal:
    """A number, a string, or a variable in place of one."""

    text: str


@dataclass(frozen=True)
class Selector:
    """Series by name and matchers (label, operator, value); `range` is the text in brackets, without them.

    `fixed` selectors end at the same time at every step (``@``).
    """

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()
    range: str = ""
    fixed: bool = False

    def names(self, known: Iterable[str]) -> list[str]:
        """Return the metrics that it reads: one, or those of `known` that match its matchers for the name."""
        if self.name:
            return [self.name]
        patterns = [
            value if operator == "=~" else re.escape(value) for label, operator, value in self.matchers if label == NAME
        ]
        return [name for name in known if patterns and all(re.fullmatch(pattern, name) for pattern in patterns)]


@dataclass(frozen=True)
class Call:
    """A function and its arguments."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Aggregate:
    """An aggregation; `grouping` is "by", "without" or empty."""

    name: str
    inner: Node
    parameter: Node | None = None
    grouping: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    """Two operands; `matching` is "on", "ignoring" or empty, `many` "group_left", "group_right" or empty."""

    operator: str
    left: Node
    right: Node
    matching: str = ""
    labels: tuple[str, ...] = ()
    many: str = ""
    included: tuple[str, ...] = ()
    bool: bool = False


@dataclass(frozen=True)
class Subquery:
    """The part in parentheses before a range."""

    inner: Node
    range: str


Node = Literal | Selector | Call | Aggregate | Binary | Subquery


def parse(text: str) -> Node:
    """Return the tree of an expression. Raises PromqlError."""
    parser = _Parser(text)
    node = parser.binary(0)
    if parser.kind:
        raise parser.error("an operator or the end")
    return node


def walk(node: Node, above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Yield each part of a tree with the parts that enclose it, the innermost last."""
    yield node, above
    for child in _children(node):
        yield from walk(child, (*above, node))


def _children(node: Node) -> Sequence[Node]:
    match node:
        case Call(arguments=arguments):
            return arguments
        case Aggregate(inner=inner, parameter=parameter):
            return (inner,) if parameter is None else (parameter, inner)
        case Binary(left=left, right=right):
            return (left, right)
        case Subquery(inner=inner):
            return (inner,)
    return ()


def shown(node: Node) -> Iterator[tuple[Selector, Node | None]]:
    """Yield each selector whose values can be in a result, with the parts that enclose it.

    Values that are only counted or made 0 are not, nor those that only select series (the right of ``and`` and
    ``unless``).
    """
    if isinstance(node, Selector):
        yield node, None
    elif isinstance(node, Binary) and node.operator in ("and", "unless"):
        yield from shown(node.left)
    elif isinstance(node, Binary) and node.operator == "*" and Literal("0") in (node.left, node.right):
        return
    elif not (isinstance(node, Aggregate | Call) and node.name in VALUELESS):
        for child in _children(node):
            for selector, inside in shown(child):
                yield selector, inside or node


def labels_of(node: Node, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return all labels that series of a result can have; `known` has those of each metric."""
    match node:
        case Selector():
            return frozenset({NAME}).union(*(known[name] for name in node.names(known)))
        case Subquery(inner=inner):
            return labels_of(inner, known)
        case Aggregate():
            return _labels_of_aggregate(node, known)
        case Binary():
            return _labels_of_binary(node, known)
        case Call(name=name, arguments=arguments):
            if name == "absent" and isinstance(arguments[0], Selector):
                return frozenset(label for label, operator, _ in arguments[0].matchers if operator == "=")
            found = frozenset[str]().union(*(labels_of(argument, known) for argument in arguments))
            if name in ("label_replace", "label_join") and isinstance(arguments[1], Literal):
                found |= {_unquoted(arguments[1].text)}
            if name == "histogram_quantile":
                found -= {"le"}
            return found if name in KEEPS_NAME else found - {NAME}
    return frozenset()


def _labels_of_aggregate(node: Aggregate, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    inner = labels_of(node.inner, known)
    if node.name in KEEPING:
        return inner
    kept = inner & set(node.labels) if node.grouping == "by" else inner - {*node.labels, NAME}
    if not node.grouping:
        kept = frozenset()
    if node.name == "count_values" and isinstance(node.parameter, Literal):
        kept |= {_unquoted(node.parameter.text)}
    return kept


def _labels_of_binary(node: Binary, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    left, right = labels_of(node.left, known), labels_of(node.right, known)
    if node.operator == "or":
        return left | right
    if node.operator in SETS:
        return left
    if node.many == "group_left":
        found = left | set(node.included)
    elif node.many == "group_right":
        found = right | set(node.included)
    elif is_number(node.right):
        found = left
    elif is_number(node.left):
        found = right
    elif node.matching == "on":
        found = (left | right) & set(node.labels)
    else:
        found = (left | right) - set(node.labels)
    # A comparison that filters keeps the name of its operand (promql/engine.go, shouldDropMetricName).
    filters = node.operator in LEVELS[2] and not node.bool
    return found if filters else found - {NAME}


def is_number(node: Node) -> bool:
    """Return whether it is a number rather than a series."""
    match node:
        case Literal():
            return True
        case Call(name=name):
            return name in ("scalar", "time", "pi")
        case Binary(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def _unquoted(text: str) -> str:
    return text[1:-1]


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._next = 0
        self.kind = ""
        self.token = ""
        self._advance()

    def error(self, wanted: str) -> PromqlError:
        return PromqlError(f"{wanted} is wanted at {self._text[self._place : self._place + 40]!r} of {self._text!r}")

    def binary(self, level: int) -> Node:
        if level == len(LEVELS):
            return self._signed()
        left = self.binary(level + 1)
        while self.kind and self.token.lower() in LEVELS[level]:
            operator = self._take().lower()
            modifiers = self._modifiers()
            left = Binary(operator, left, self.binary(level + 1), *modifiers)
        return left

    def _modifiers(self) -> tuple[str, tuple[str, ...], str, tuple[str, ...], bool]:
        to_bool = self.token == "bool"
        if to_bool:
            self._take()
        matching, many = "", ""
        labels: tuple[str, ...] = ()
        included: tuple[str, ...] = ()
        if self.token in ("on", "ignoring"):
            matching = self._take()
            labels = self._names()
            if self.token in ("group_left", "group_right"):
                many = self._take()
                included = self._names() if self.token == "(" else ()
        return matching, labels, many, included, to_bool

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        names = []
        while self.token != ")":
            names.append(self._take(kind="word"))
            if self.token != ")":
                self._take(",")
        self._take(")")
        return tuple(names)

    def _signed(self) -> Node:
        if self.token in ("+", "-"):
            return Binary(self._take(), Literal("0"), self._signed())
        base = self._ranged()
        if self.token == "^":
            operator = self._take()
            return Binary(operator, base, self._signed(), *self._modifiers())
        return base

    def _ranged(self) -> Node:
        node = self._atom()
        while True:
            if self.kind == "range":
                inside = self._take()[1:-1].strip()
                if isinstance(node, Selector):
                    node = Selector(node.name, node.matchers, inside)
                else:
                    node = Subquery(node, inside)
            elif self.token == "offset":
                self._take()
                if self.token == "-":
                    self._take()
                self._take(kind="number")
            elif self.token == "@":
                self._take()
                self._atom()
                if isinstance(node, Selector):
                    node = replace(node, fixed=True)
            else:
                return node

    def _atom(self) -> Node:
        if self.token == "(":
            self._take()
            node = self.binary(0)
            self._take(")")
            return node
        if self.kind in ("number", "string"):
            return Literal(self._take())
        if self.token == "{":
            return Selector("", self._matchers())
        name = self._take(kind="word")
        if name in AGGREGATIONS and self.token in ("(", "by", "without"):
            return self._aggregate(name)
        if self.token == "(":
            return Call(name, self._arguments())
        if name.lower() in ("inf", "nan"):
            return Literal(name)
        return Selector(name, self._matchers() if self.token == "{" else ())

    def _aggregate(self, name: str) -> Aggregate:
        grouping, labels = self._grouping()
        arguments = self._arguments()
        if not grouping:
            grouping, labels = self._grouping()
        if not arguments:
            raise self.error(f"what {name} is of")
        return Aggregate(name, arguments[-1], arguments[0] if len(arguments) > 1 else None, grouping, labels)

    def _grouping(self) -> tuple[str, tuple[str, ...]]:
        return (self._take(), self._names()) if self.token in ("by", "without") else ("", ())

    def _arguments(self) -> tuple[Node, ...]:
        self._take("(")
        found: list[Node] = []
        while self.token != ")":
            found.append(self.binary(0))
            if self.token != ")":
                self._take(",")
        self._take(")")
        return tuple(found)

    def _matchers(self) -> tuple[tuple[str, str, str], ...]:
        self._take("{")
        found = []
        while self.token != "}":
            label = self._take(kind="word")
            if self.token not in ("=", "!=", "=~", "!~"):
                raise self.error("a matcher")
            operator = self._take()
            found.append((label, operator, _unquoted(self._take(kind="string"))))
            if self.token != "}":
                self._take(",")
        self._take("}")
        return tuple(found)

    def _take(self, token: str = "", *, kind: str = "") -> str:
        if (token and self.token != token) or (kind and self.kind != kind) or not self.kind:
            raise self.error(token or f"a {kind or 'token'}")
        taken = self.token
        self._advance()
        return taken

    def _advance(self) -> None:
        self.kind = self.token = ""
        while self._next < len(self._text):
            self._place = self._next
            found = TOKENS.match(self._text, self._next)
            if found is None:
                raise self.error("a token")
            self._next = found.end()
            if found.lastgroup != "space":
                self.kind, self.token = str(found.lastgroup), found[0]
                return
        self._place = self._next
