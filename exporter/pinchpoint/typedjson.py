"""Decoders of typed JSON that any thread may use."""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = ["decoder"]

T = TypeVar("T")


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of JSON of one type, to be made when its module is imported.

    msgspec learns what a type consists of when it is decoded for the first time, and takes no lock for it: where two
    threads do so at once, one of them reads what the other has not written yet, and the process dies (msgspec 0.22,
    StructInfo_Convert in src/msgspec/_core.c). `msgspec.json.decode()` is therefore used for no type.
    """
    return msgspec.json.Decoder(type_)
