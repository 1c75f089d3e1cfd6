"""Stacks in the format of pprof: a gzip file of the message Profile (proto/profile.proto of google/pprof, 2024).

It is written without a library: the message has few fields of two kinds, integers and bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from pinchpoint.session.stacks import SavedStack

__all__ = ["pprof"]

INTEGER, BYTES = 0, 2
"""Kinds of a field on the wire (protobuf.dev/programming-guides/encoding)."""


def pprof(stacks: Iterable[SavedStack]) -> bytes:
    """Return a profile of the stacks; phase, host and resource are labels of each sample."""
    texts: dict[str, int] = {"": 0}
    functions: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    samples = bytearray()
    for stack in stacks:
        # The innermost function comes first; location and function have the same id.
        places = [functions.setdefault(name, len(functions) + 1) for name in reversed(stack.functions)]
        labels = (("phase", stack.phase), ("host", stack.host), ("resource", stack.resource))
        sample = _message(1, b"".join(map(_varint, places))) + _message(2, _varint(stack.samples))
        for key, value in labels:
            sample += _message(3, _integer(1, text(key)) + _integer(2, text(value)))
        samples += _message(2, sample)
    kind = _integer(1, text("samples")) + _integer(2, text("count"))
    named = {number: text(name) for name, number in functions.items()}
    return gzip.compress(b"".join((_message(1, kind), bytes(samples), *_places(named), *_texts(texts))), mtime=0)


def _places(named: dict[int, int]) -> Iterator[bytes]:
    for number in named:
        yield _message(4, _integer(1, number) + _message(4, _integer(1, number)))
    for number, name in named.items():
        yield _message(5, _integer(1, number) + _integer(2, name) + _integer(3, name))


def _texts(texts: Iterable[str]) -> Iterator[bytes]:
    for value in texts:
        yield _message(6, value.encode("utf-8", "replace"))


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | INTEGER) + _varint(value)


def _message(number: int, raw: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
