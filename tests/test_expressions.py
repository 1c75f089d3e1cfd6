"""Expressions are compiled when they are first applied, and are then what `re.compile` returns."""

from __future__ import annotations

import copy
import re
import subprocess
import sys

import pytest

from pinchpoint.expressions import expression

COUNTED = """
from pinchpoint.expressions import Expression

used = []
take_over = Expression.__getattr__
Expression.__getattr__ = lambda self, name: used.append(vars(self)) or take_over(self, name)
import pinchpoint.exporter, pinchpoint.commands.exporter
import pinchpoint.commands.run
print(used)
"""


def test_it_does_all_that_a_compiled_pattern_does() -> None:
    words = expression(r"(?P<word>[a-z]+)", re.IGNORECASE)
    compiled = re.compile(r"(?P<word>[a-z]+)", re.IGNORECASE)

    assert words.findall("one Two") == compiled.findall("one Two")
    assert words.sub("x", "one Two") == "x x"
    assert [match["word"] for match in words.finditer("one Two")] == ["one", "Two"]
    assert (words.pattern, words.flags, words.groupindex) == (compiled.pattern, compiled.flags, compiled.groupindex)
    assert expression(rb"\d").match(b"1")


def test_after_the_first_use_its_methods_are_those_of_the_pattern() -> None:
    words = expression("[a-z]+")

    assert words.match("1") is None
    assert words.match == re.compile("[a-z]+").match


def test_an_error_in_it_is_raised_at_its_first_use() -> None:
    wrong = expression("(")

    with pytest.raises(re.error):
        wrong.match("")


def test_it_can_be_copied_and_has_no_other_attributes() -> None:
    words = expression("[a-z]+")

    assert copy.copy(words).fullmatch("one")
    assert not hasattr(words, "__length_hint__")
    with pytest.raises(AttributeError):
        words.matches  # type: ignore[attr-defined]  # noqa: B018


def test_a_command_compiles_none_of_them_when_it_starts() -> None:
    out = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True).stdout

    assert out == "[]\n"
