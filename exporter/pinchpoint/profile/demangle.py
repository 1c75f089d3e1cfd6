"""Short names of C++ functions: ``rocksdb::MemTable::Add`` for ``_ZN7rocksdb8MemTable3AddEm...``.

Parameters and template arguments are left out: nobody reads them in a profile, and no rule needs them. That also keeps
the work proportional to the length of the name. A complete demangler expands substitutions, which double at each step
in a name that somebody made for that (Itanium C++ ABI, 5.1.10), and the exporter reads names of any user's program.
"""

from __future__ import annotations

import re
from itertools import takewhile

from pinchpoint.expressions import expression

__all__ = ["short_name"]

MAX_NAME_DEPTH = 32
"""Names inside of names, or types inside of literals, that are followed."""
MAX_CHARACTERS = 4096
"""A longer name is shown as it is."""

ADDED = expression(r"isra|constprop|part|cold|llvm|lto_priv|\d+")
"""What compilers add to the names of functions that they have changed, after a dot; more may follow."""
VERSION = expression(r"@{1,2}[\w.]+$")
NUMBER = expression(r"\d{1,4}")
CALL_OFFSET = expression(r"hn?\d+_|vn?\d+_n?\d+_")
SEQUENCE = expression(r"[A-Za-z0-9]{0,12}_")
"""A number in base 36 with its end; also those of lambdas, and the size of an array."""
RUST_HASH = expression(r"h[0-9a-f]{16}")
STANDARD = {
    "a": "std::allocator", "b": "std::basic_string", "s": "std::string",
    "i": "std::istream", "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "aw": " co_await", "ps": "+", "ng": "-",
    "ad": "&", "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|",
    "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=",
    "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">",
    "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",",
    "pm": "->*", "pt": "->", "cl": "()", "ix": "[]", "qu": "?",
}  # fmt: skip
OPENERS = "NIJXFZ"
"""What an E closes, apart from literals and lambdas."""


class _StrangeNameError(Exception):
    """Not a name that this module can read."""


def short_name(mangled: str) -> str:
    """Return the name of a function without parameters and template arguments; a name of C as it is.

    Compiler suffixes and symbol versions are removed. What can't be read is returned without its suffix.
    """
    name, *parts = VERSION.sub("", mangled[:MAX_CHARACTERS]).split(".")
    name = ".".join([name, *takewhile(lambda part: not ADDED.fullmatch(part), parts)])
    if not name.startswith("_Z") or len(mangled) > MAX_CHARACTERS:
        return name
    try:
        return _Name(name).encoding()
    except (_StrangeNameError, IndexError):
        return name


class _Name:
    """A mangled name that is read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 2
        self._depth = 0

    def encoding(self) -> str:
        """Return the name of the function, or of the one that a thunk calls."""
        if self._text.startswith(("TH", "TW"), self._at):  # initialization of a variable of a thread
            self._at += 2
        elif self._text.startswith("T", self._at):
            self._at += 1
            if self._text.startswith("c", self._at):
                self._at += 1
                self._match(CALL_OFFSET)
            self._match(CALL_OFFSET)
        return "::".join(self._name())

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _StrangeNameError
        self._at = found.end()
        return found[0]

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_NAME_DEPTH:
            raise _StrangeNameError

    def _name(self) -> list[str]:
        self._enter()
        first = self._text[self._at]
        if first == "N":
            self._at += 1
            found = self._nested()
        elif first == "Z":
            self._at += 1
            found = self._local()
        elif first == "S":
            found = [self._standard()]
            if found == ["std"]:
                found.append(self._unqualified(""))
        else:
            found = [self._unqualified("")]
        self._arguments()
        self._depth -= 1
        return found

    def _arguments(self) -> None:
        if self._text.startswith("I", self._at):
            self._skip_to_end()

    def _nested(self) -> list[str]:
        while self._text[self._at] in "rVKROH":
            self._at += 1
        found: list[str] = []
        while (first := self._text[self._at]) != "E":
            if first == "I":
                self._skip_to_end()
            elif first == "S":
                found.append(self._standard())
            elif first == "M":  # the initializer of a member, in front of a lambda
                self._at += 1
            else:
                found.append(self._unqualified(found[-1] if found else ""))
        self._at += 1
        if len(found) > 1 and RUST_HASH.fullmatch(found[-1]):
            found.pop()
        if not found:
            raise _StrangeNameError
        return found

    def _local(self) -> list[str]:
        outer = self._name()
        self._skip_to_end(["Z"])
        if self._text.startswith("s", self._at):
            return outer
        if self._text.startswith("d", self._at):
            self._match(SEQUENCE)
        return outer + self._name()

    def _standard(self) -> str:
        code = self._text[self._at + 1]
        self._at += 2
        if code == "t":
            return "std"
        if code not in STANDARD:
            raise _StrangeNameError  # refers to an earlier part: none comes before the first name
        return STANDARD[code]

    def _unqualified(self, last: str) -> str:
        text = self._text
        if text[self._at] == "L":  # internal linkage
            self._at += 1
        first = text[self._at]
        if first.isdigit():
            found = self._source_name()
        elif first in "CD" and text[self._at + 1] in "I012345":
            if text[self._at + 1] == "I":  # an inherited constructor
                raise _StrangeNameError
            self._at += 2
            own = last.rpartition("::")[2]
            found = f"~{own}" if first == "D" else own
        elif text.startswith("Ul", self._at):
            self._skip_to_end()
            found = "{lambda}"
        elif text.startswith("Ut", self._at):
            self._at += 2
            self._match(SEQUENCE)
            found = "{unnamed}"
        elif text.startswith("cv", self._at):
            self._at += 2
            self._type()
            found = "operator (conversion)"
        elif text.startswith("li", self._at):
            self._at += 2
            found = 'operator""' + self._source_name()
        elif (operator := OPERATORS.get(text[self._at : self._at + 2])) is not None:
            self._at += 2
            found = f"operator{operator}"
        else:
            raise _StrangeNameError
        while text.startswith("B", self._at):  # tags of an ABI, as in [abi:cxx11]
            self._at += 1
            self._source_name()
        return found

    def _source_name(self) -> str:
        length = int(self._match(NUMBER))
        found = self._text[self._at : self._at + length]
        if not length or len(found) < length:
            raise _StrangeNameError
        self._at += length
        return "(anonymous namespace)" if found.startswith("_GLOBAL__N") else found

    def _type(self) -> None:
        """Skip a type."""
        self._enter()
        while self._text[self._at] in "KVRPOrCG":
            self._at += 1
        first = self._text[self._at]
        if first in "NF" or self._text.startswith(("Dt", "DT"), self._at):
            self._skip_to_end()
        elif first.isdigit():
            self._source_name()
        elif first in "ST":
            self._reference()
        elif first == "D":
            self._at += 2
        elif first.islower():
            self._at += 1
        else:
            raise _StrangeNameError
        self._arguments()
        self._depth -= 1

    def _reference(self) -> None:
        """Skip a substitution, a template parameter, or the name of something in std."""
        standard = self._text[self._at] == "S"
        code = self._text[self._at + 1]
        self._at += 2
        if standard and code == "t":
            self._unqualified("")
        elif not (standard and code in STANDARD):
            self._at -= 1
            self._match(SEQUENCE)

    def _literal(self) -> None:
        """Skip a literal, up to its E."""
        if self._text.startswith("_Z", self._at):
            self._at += 2
            self._skip_to_end(["L"])
            return
        self._type()
        while self._text[self._at] != "E":
            self._at += 1
        self._at += 1

    def _skip_to_end(self, opened: list[str] | None = None) -> None:
        """Skip to the end of what opens here, or is `opened` already."""
        text = self._text
        opened = opened if opened is not None else []
        while True:
            first = text[self._at]
            if first.isdigit():
                self._source_name()
                continue
            self._at += 1
            if first == "E":
                if opened.pop() == "U":
                    self._match(SEQUENCE)
            elif first == "L":
                self._enter()
                if self._in_name(opened) and text[self._at].isdigit():
                    self._source_name()  # internal linkage
                else:
                    self._literal()
                self._depth -= 1
            elif first in OPENERS:
                opened.append(first)
            elif first == "U" and text[self._at] == "l":
                opened.append("U")
            elif first == "D" and text[self._at] in "tTOw":
                opened.append("D")
                self._at += 1
            elif first in "DC" or (first == "S" and text[self._at] in "tabsiod"):
                self._at += 1
            elif first in "STA" or (first == "U" and text[self._at] == "t"):
                self._match(SEQUENCE)
            if not opened:
                return

    @staticmethod
    def _in_name(opened: list[str]) -> bool:
        return bool(opened) and opened[-1] == "N"
