"""What admin sockets answer: performance counters and options.

A release may lack any counter: asking for one that is not there is no error, and gives None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pinchpoint.procfs import FormatError

__all__ = ["Average", "PerfDump", "parse_option", "parse_version"]


LARGEST = 1 << 64
"""No counter is larger: they are 64 bits wide (src/common/perf_counters.h)."""


class Average(NamedTuple):
    """A PERFCOUNTER_LONGRUNAVG: how often something happened, and the sum of what it took (times are in seconds)."""

    number: float
    total: float


class PerfDump:
    """The answer to ``perf dump``: loggers with their counters.

    Written by ``PerfCountersCollectionImpl::dump_formatted_generic`` (src/common/perf_counters.cc).
    """

    def __init__(self, loggers: Mapping[str, Any]) -> None:
        self._loggers = loggers

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
            if isinstance(found, dict):
                number, total = _number(found.get("avgcount")), _number(found.get("sum"))
                if number is not None and total is not None:
                    return Average(number, total)
        return None

    def _get(self, logger: str, counter: str) -> Any:
        counters = self._loggers.get(logger)
        return counters.get(counter) if isinstance(counters, dict) else None


def parse_option(raw: bytes) -> str | None:
    """Return the value in an answer to ``config get``, None where there is none. Raises FormatError."""
    # Before Octopus an unknown option is answered by {"error": ...} (src/common/ceph_context.cc).
    values = [value for name, value in _object(raw).items() if isinstance(value, str) and name != "error"]
    return values[0] if values else None


def parse_version(raw: bytes) -> str:
    """Return the version in an answer to ``version``, "" where there is none. Raises FormatError."""
    version = _object(raw).get("version")
    return version if isinstance(version, str) else ""


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"not a JSON object: {raw[:80]!r}")
    return found


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= LARGEST:
        return None
    return found
