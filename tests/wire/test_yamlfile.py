from __future__ import annotations

import msgspec
import pytest

from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.yamlfile import MAX_NESTING, decode_yaml


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""
    number: int = 0
    yes: bool = False
    texts: list[str] = []


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: Inner = msgspec.field(default_factory=Inner)
    named: dict[str, str] = {}


def decoded(text: str) -> Outer:
    return decode_yaml(text.encode(), Outer, "f.yml").value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Outer()),
        ("# nothing\n", Outer()),
        ("inner:\n", Outer()),
        ("inner:\n  text: 1\n  number: 2\n  yes: true\n", Outer(Inner("1", 2, True))),
        ("inner: {text: yes, texts: [a, 0x1]}", Outer(Inner("yes", texts=["a", "0x1"]))),
        ("inner:\n  text: |\n    a\n    b\n", Outer(Inner("a\nb\n"))),
        ("named: {1: 2, a: null}", Outer(named={"1": "2"})),
    ],
)
def test_a_scalar_is_what_its_place_requires_and_an_empty_key_is_left_out(text: str, expected: Outer) -> None:
    assert decoded(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\n", "f.yml:1: top level: must be a table of keys; this is text"),
        ("[]", "f.yml:1: top level: must be a table of keys; this is a list"),
        ("inner:\n  txt: a\n", "f.yml:2: inner.txt: unknown key"),
        ("inner:\n\n  number: x\n", "f.yml:3: inner.number: must be a whole number; this is text"),
        ("inner:\n  yes: maybe\n", "f.yml:2: inner.yes: must be true or false; this is text"),
        ("inner:\n  texts:\n  - a\n  - {}\n", "f.yml:4: inner.texts[2]: must be text; this is a table of keys"),
        ("named:\n  a: b\n  a: c\n", "f.yml:3: named.a: stands here for the second time"),
        ("inner: &x {}\nnamed: *x\n", "f.yml:2: not YAML: aliases (*name) are not supported"),
        ("named:\n  <<: {a: b}\n", "f.yml:2: named: a key must be plain text"),
        ("? [a]\n: b\n", "f.yml:1: top level: a key must be plain text"),
        ("inner: [\n", "f.yml:2: not YAML: "),
        ("inner:\n\ttext: a\n", "f.yml:2: not YAML: "),
        ("inner: {}\n---\ninner: {}\n", "f.yml:2: not YAML: "),
        ("[" * (MAX_NESTING + 1), "f.yml: has more than 64 brackets inside of each other"),
    ],
)
def test_an_error_names_the_line_and_the_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decoded(text)

    assert str(caught.value).startswith(message)


def test_an_error_of_encoding_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yml:2: not UTF-8$"):
        decode_yaml(b"inner:\n  text: \xff\n", Outer, "f.yml")


def test_an_error_found_later_has_the_line_of_its_place_or_of_the_nearest_around_it() -> None:
    document = decode_yaml(b"\ninner:\n  texts:\n  - a\n  - b\n", Outer, "f.yml")

    assert str(document.error("wrong", "inner", "texts", 1)) == "f.yml:5: inner.texts[2]: wrong"
    assert str(document.error("missing", "inner", "number")) == "f.yml:2: inner.number: missing"
