"""What admin sockets answer: performance counters and options.

A release may lack any counter: asking for a missing one returns None, not an error. Only what is asked for is decoded:
4 MB of ``[],[],`` as objects blocked every other thread for a second and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pinchpoint.host.procfs import FormatError

__all__ = ["Average", "PerfDump", "parse_option", "parse_version"]


MAX_COUNTER = 1 << 64
"""No counter is larger: they are 64 bits wide (src/common/perf_counters.h)."""


class Average(NamedTuple):
    """A PERFCOUNTER_LONGRUNAVG: how often something happened, and the sum of what it took (times are in seconds)."""

    number: float
    total: float


class _Average(msgspec.Struct):
    avgcount: int | float | None = None
    sum: int | float | None = None


OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
COUNTER = msgspec.json.Decoder(int | float | _Average | None)
TEXT = msgspec.json.Decoder(str)
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class PerfDump:
    """The answer to ``perf dump``: loggers with their counters.

    Written by ``PerfCountersCollectionImpl::dump_formatted_generic`` (src/common/perf_counters.cc).
    """

    def __init__(self, loggers: Mapping[str, msgspec.Raw]) -> None:
        self._loggers = loggers
        self._counters: dict[str, Mapping[str, msgspec.Raw]] = {}

    @classmethod
    def parse(cls, raw: bytes) -> PerfDump:
        """Return the counters of an answer. Raises FormatError."""
        return cls(_object(raw))

    def loggers(self, prefix: str = "") -> list[str]:
        """Return the names of the loggers that begin with `prefix`."""
        return [name for name in self._loggers if name.startswith(prefix)]

    def value(self, logger: str, *counters: str) -> float | None:
        """Return the first of the counters that this release has, None where it has none of them."""
        for counter in counters:
            if (number := _number(self._get(logger, counter))) is not None:
                return number
        return None

    def average(self, logger: str, *counters: str) -> Average | None:
        """Return the first of the counters that this release has, None where it has none of them."""
        for counter in counters:
            found = self._get(logger, counter)
            if isinstance(found, _Average):
                number, total = _number(found.avgcount), _number(found.sum)
                if number is not None and total is not None:
                    return Average(number, total)
        return None

    def _get(self, logger: str, counter: str) -> int | float | _Average | None:
        if logger not in self._counters:
            try:
                self._counters[logger] = OBJECT.decode(self._loggers.get(logger, b"{}"))
            except NOT_JSON:
                self._counters[logger] = {}
        try:
            found: int | float | _Average | None = COUNTER.decode(self._counters[logger].get(counter, b"null"))
        except NOT_JSON:
            found = None
        return found


def parse_option(raw: bytes) -> str | None:
    """Return the value in an answer to ``config get``, None where there is none. Raises FormatError."""
    # Before Octopus an unknown option is answered by {"error": ...} (src/common/ceph_context.cc).
    values = [_text(value) for name, value in _object(raw).items() if name != "error"]
    return next((value for value in values if value is not None), None)


def parse_version(raw: bytes) -> str:
    """Return the version in an answer to ``version``, "" where there is none. Raises FormatError."""
    version = _object(raw).get("version")
    return "" if version is None else _text(version) or ""


def _object(raw: bytes) -> dict[str, msgspec.Raw]:
    try:
        return OBJECT.decode(raw)
    except NOT_JSON as error:
        raise FormatError(f"not a JSON object: {error}") from error


def _text(raw: msgspec.Raw) -> str | None:
    try:
        return TEXT.decode(raw)
    except NOT_JSON:
        return None


def _number(found: object) -> float | None:
    # No counter is negative: they are unsigned (PerfCounters::dump_formatted_generic, src/common/perf_counters.cc).
    return found if isinstance(found, int | float) and 0 <= found <= MAX_COUNTER else None
