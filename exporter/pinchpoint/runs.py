"""What is known of a run and its phases: plain data that benchmarks, exporters, verdicts and kept runs share."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["MAX_FIGURE", "MAX_TIME_SECONDS", "LimitMark", "PhaseMark", "Result", "RunState", "VerdictMark", "run_id"]

MAX_RUN_NAME_CHARACTERS = 48
"""Longest name in a run's id, in characters."""

MAX_TIME_SECONDS = 2.0**37
"""Unix seconds (in the year 6325) and seconds beyond which nothing is a time: dates can still be made of all below."""
MAX_FIGURE = 2.0**63
"""Beyond this nothing is a figure: it is 8 EiB/s."""

# JSON has integers of any length, and any user may write a marker: what is read holds in a float, and in a date.
Time = Annotated[float, Meta(ge=0.0, le=MAX_TIME_SECONDS)]
Figure = Annotated[float, Meta(ge=0.0, le=MAX_FIGURE)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Pid = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Ticks = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure that a benchmark gave for a phase, in base units: ``bytes_per_second``, ``operations_per_second``."""

    operation: str
    """What was measured, in the benchmark's own words: ``write``, ``read``."""
    unit: str
    value: Figure
    printed: str = ""
    """The figure with its unit as the benchmark printed it: ``0.367381 GiB/s``."""


class LimitMark(msgspec.Struct, frozen=True, array_like=True):
    """One resource that a verdict names."""

    resource: str
    owner: str
    blame: Figure
    """The share of the benchmark's time that it answers for, 0 to 1."""


class VerdictMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What limited a phase, in short: see `pinchpoint.diagnosis.verdict`."""

    kind: str
    """A `pinchpoint.diagnosis.verdict.Kind`."""
    limits: tuple[LimitMark, ...] = ()
    """The most blamed first."""
    confidence: str = ""
    """A `pinchpoint.diagnosis.verdict.Confidence`; empty where that was not kept."""


class PhaseMark(msgspec.Struct):
    """One phase of a run: times in Unix seconds; `end` is None while it is going on."""

    name: str
    start: Time
    end: Time | None = None
    results: list[Result] = []
    benchmark: str = ""
    """Which benchmark it is of; empty: the run's."""
    state: str = "running"
    source: str = ""
    """How it is known: see `pinchpoint.benchmarks.events.PhaseSource`."""
    seconds: Time | None = None
    """How long it took, as the benchmark says."""
    valid: bool = True
    """False where the benchmark calls its result invalid."""
    vague: bool = False
    """Whether it only stands for the whole run."""
    rates: list[Result] = []
    """What the benchmark printed last as its present rate."""
    progress: Share | None = None
    """Share that is done, 0 to 1."""
    moved: Time | None = None
    """When it was last seen to do anything, in Unix seconds; None where that can't be seen."""
    pace: Figure | None = None
    """Throughput of its second half so far over that of its first half."""
    expected: Time | None = None
    """Seconds that it is meant to take."""
    number: Count | None = None
    """Its place among the run's phases, from 1."""
    verdict: VerdictMark | None = None
    """What limited it; None where that wasn't judged."""
    alerts: list[str] | None = None
    """Names of the alerts that fired for it; None where nobody was asked."""


class RunState(msgspec.Struct):
    """What is known of a run, be it our own or one that somebody else started; times in Unix seconds."""

    run: str
    benchmark: str
    start: Time
    end: Time | None = None
    state: str = "setup"
    phases: list[PhaseMark] = []
    total: Count | None = None
    """Number of phases that it will have."""
    scores: list[Result] = []
    valid: bool = True
    """False where the benchmark calls the whole run invalid."""
    reason: str = ""
    """Why it failed, in the program's own words."""
    blind: list[str] = []
    """What we have no right to see of it."""


def run_id(name: str | None, command: Sequence[str], now: float) -> str:
    """Return a run's id: its start in UTC and its name, in characters that are safe in a path and a label."""
    word = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", name or os.path.basename(command[0])).strip("-.")[:MAX_RUN_NAME_CHARACTERS]
        or "run"
    )
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{word}"
