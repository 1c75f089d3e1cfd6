"""Units as benchmarks spell them, and their base units.

A prefix with an i is a power of 2, one without is a power of 10: MiB is 2^20 bytes, MB 10^6. Some benchmarks differ
(rados bench: MB is 2^20, iozone: kB is 2^10, iperf: KByte is 2^10); their readers know that.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["base"]

DECIMAL = {"": 1e0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
BYTES = {"B": 1.0, "Byte": 1.0, "Bytes": 1.0, "byte": 1.0, "bytes": 1.0}
BITS = {"b": 1 / 8, "bit": 1 / 8, "bits": 1 / 8}
PER_SECOND = ("/s", "/sec", "/second", "ps")
COUNTS = ("op", "ops", "operations", "io", "ios", "req", "requests", "files", "creates")

EXACT: Mapping[str, tuple[float, str]] = {
    "": (1.0, "ratio"),
    "%": (0.01, "ratio"),
    "min": (60.0, "seconds"),
    "packets": (1.0, "packets"),
    **{
        prefix + second: (factor, "seconds")
        for prefix, factor in {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}.items()
        for second in ("s", "sec", "secs", "seconds")
    },
    **{prefix + byte: (factor, "bytes") for prefix, factor in (DECIMAL | BINARY).items() for byte in BYTES},
    **{
        prefix + word + per: (factor * size, "bytes_per_second")
        for prefix, factor in (DECIMAL | BINARY).items()
        for word, size in (BYTES | BITS).items()
        for per in PER_SECOND
    },
}
"""Size of each unit in its base unit, by its spelling: B is a byte, b a bit."""
COUNTED: Mapping[str, tuple[float, str]] = {
    **{(prefix + count).lower(): (factor, "operations") for prefix, factor in DECIMAL.items() for count in COUNTS},
    **{
        (prefix + count).lower(): (factor, "operations_per_second")
        for prefix, factor in DECIMAL.items()
        for count in ("iop", "iops", "tps", "qps", *(count + per for count in COUNTS for per in PER_SECOND[:3]))
    },
}
"""The same for counts, in lower case: kIOPS, KIOPS and kiops are equal."""


def base(value: float, unit: str) -> tuple[float, str] | None:
    """Return a figure in its base unit, None if its unit is not known; a figure without unit is a ratio."""
    word = unit.strip().replace("\N{GREEK SMALL LETTER MU}", "\N{MICRO SIGN}")
    if (found := EXACT.get(word) or COUNTED.get(word.lower())) is None:
        return None
    factor, name = found
    return value * factor, name
