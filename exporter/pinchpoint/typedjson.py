"""Thread-safe decoders of typed JSON."""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = ["decoder"]

T = TypeVar("T")


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of JSON of one type, to be made when its module is imported.

    msgspec inspects a type when it is first decoded, without a lock: if two threads do so at once, one reads what the
    other has not written yet, and the process crashes (msgspec 0.22, StructInfo_Convert in src/msgspec/_core.c).
    So never use `msgspec.json.decode()` with a type.
    """
    return msgspec.json.Decoder(type_)
