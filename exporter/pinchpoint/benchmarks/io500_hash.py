"""The two checksums in IO500's result.txt: of the options, and of the figures.

They are those of src/util.c and src/ini-parse.c, the same from io500-isc20 to io500-isc26_v2. Both are an exclusive or
over pairs of key and value, so the order of the lines does not matter, and two equal pairs cancel.
"""

from __future__ import annotations

from collections.abc import Iterable

from pinchpoint.benchmarks.events import phase_name
from pinchpoint.benchmarks.io500_plan import SHELL_PHASES, ini_pairs

__all__ = ["config_hash", "score_hash"]

HASH_MASK = (1 << 32) - 1
EMPTY_DEFAULTS = frozenset({"external-mpi-args", "external-extra-args"})
"""Options whose default is an empty text, not absent (src/phase_find.c): they count with an empty value."""


def config_hash(config: str) -> str:
    """Return the hash of the options in config.ini, as printed after ``config-hash`` (``u_ini_gen_hash``)."""
    pairs = ((key, value) for _, key, value in ini_pairs(config) if key and (value or key in EMPTY_DEFAULTS))
    return f"{_total(pairs):X}"


def score_hash(result: str, *, valid: bool = True) -> str:
    """Return the hash of version, scores of the standard phases and totals, as printed after ``hash`` (``hash_func``).

    `result` is the text of result.txt. A run that IO500 calls invalid has another hash.
    """
    pairs: list[tuple[str, str]] = [] if valid else [("valid", "NO")]
    for section, key, value in ini_pairs(result):
        if key == "version":
            pairs.append((key, value))
        elif section == "SCORE" and key in ("MD", "BW", "SCORE"):
            pairs.append((key, value.partition(" ")[0]))
        elif key == "score" and phase_name(section) in SHELL_PHASES:
            pairs.append((section, value))
    return f"{_total(pairs):X}"


def _total(pairs: Iterable[tuple[str, str]]) -> int:
    total = 0
    for key, value in pairs:
        total ^= _rotated(key + value)
    return total


def _rotated(text: str) -> int:
    """Return ``rotladd`` over a text: rotate by 2, add the next character, which is signed."""
    found = 0
    for byte in text.encode("utf-8", "replace"):
        found = ((found << 2 & HASH_MASK | found >> 30) + byte - (byte >> 7 << 8)) & HASH_MASK
    return found
