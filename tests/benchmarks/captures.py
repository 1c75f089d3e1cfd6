"""The captures among the fixtures, and what is to be seen of each: its `expected.txt`.

The first line has the benchmark, the state in which its run ends, and optionally ``invalid``, ``unordered`` and
``score N``. A line for each phase follows: name, start and end in seconds from the begin of the run (``-`` where the
recorded bytes don't tell), figures with ``;`` between as they were printed, the main one first, and optionally
``invalid``.

Times and figures were read from the recorded bytes by hand: a phase ends when its result arrives. It begins as long
before as the result says that it took, or when its section of result.txt or its files appeared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"

FACTORS = {
    "B/s": ("bytes_per_second", 1.0),
    "kB/s": ("bytes_per_second", 1024.0),  # iozone's
    "kBytes/s": ("bytes_per_second", 1024.0),
    "KiB/s": ("bytes_per_second", 1024.0),
    "MiB/s": ("bytes_per_second", 2.0**20),
    "MB/sec": ("bytes_per_second", 2.0**20),  # rados'
    "GiB/s": ("bytes_per_second", 2.0**30),
    "bits/s": ("bytes_per_second", 1 / 8),
    "Gbits/s": ("bytes_per_second", 1e9 / 8),
    "IOPS": ("operations_per_second", 1.0),
    "ops/s": ("operations_per_second", 1.0),
    "kIOPS": ("operations_per_second", 1e3),
    "kiops": ("operations_per_second", 1e3),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "objects": ("operations", 1.0),
}


@dataclass(frozen=True)
class Phase:
    """One phase: times in seconds since the start of the capture, None if the recorded bytes don't show them."""

    name: str
    start: float | None
    end: float | None
    figures: tuple[tuple[str, float], ...]
    """Unit and value in base units; the first is the main one."""
    valid: bool


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a replay of a capture has to show."""

    benchmark: str
    state: str
    valid: bool
    score: float | None
    phases: tuple[Phase, ...]
    unordered: bool
    """Whether all results come at once, in no particular order."""


def _phase(line: str) -> Phase:
    name, start, end, *rest = line.split(None, 3)
    figures, invalid, _ = (rest[0] if rest else "").partition(" invalid")
    found = []
    for figure in filter(None, figures.split(";")):
        number, kilo, unit = re.fullmatch(r"\s*([\d.]+)(k?)\s*(\S+)", figure).groups()  # type: ignore[union-attr]
        base, factor = FACTORS[unit]
        found.append((base, float(number) * factor * (1000.0 if kilo else 1.0)))
    times = [None if word == "-" else float(word) for word in (start, end)]
    return Phase(name, times[0], times[1], tuple(found), not invalid)


def _expected(text: str) -> Expected:
    head, *lines = text.splitlines()
    benchmark, state, *rest = head.split()
    score = float(rest[-1]) if "score" in rest else None
    return Expected(
        benchmark=benchmark,
        state=state,
        valid="invalid" not in rest,
        score=score,
        phases=tuple(map(_phase, lines)),
        unordered="unordered" in rest,
    )


EXPECTED = {path.parent.name: _expected(path.read_text()) for path in sorted(CAPTURES.glob("*/expected.txt"))}
