"""What is known about a run and its phases: plain data that benchmarks, exporters, verdicts and saved runs share."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from pinchpoint.expressions import expression
from pinchpoint.user_labels import marked, split_user, with_end

__all__ = [
    "HASH_TAG",
    "JOB_PATTERN",
    "JOB_TAG",
    "MAX_FIGURE",
    "MAX_RUN_NAME_CHARACTERS",
    "MAX_SEVERAL_NAME_CHARACTERS",
    "MAX_TIME_SECONDS",
    "OWN_TAGS",
    "LimitMark",
    "PhaseMark",
    "RankMark",
    "Result",
    "RunState",
    "Step",
    "StepMark",
    "Time",
    "VerdictMark",
    "belongs",
    "is_stray",
    "numbered",
    "run_id",
    "shifted",
    "stray",
]

MAX_RUN_NAME_CHARACTERS = 48
"""Longest name in a run's id, in characters."""
MAX_SEVERAL_NAME_CHARACTERS = MAX_RUN_NAME_CHARACTERS - 8
"""The same where each of several runs gets a number behind it."""

HASH_TAG = "sha256"
"""The tag that identifies the text an imported run was read from; it is not shown to people."""
JOB_TAG = "job"
"""The tag with the id of the batch job that a run was in."""
JOB_PATTERN = r"[0-9]{1,20}(?:\[[0-9]{0,10}\])?"
"""The id of a batch job: its number, with that of a part of an array of jobs."""
STRAY = expression(rf"(?:job{JOB_PATTERN})?")
"""The label of work whose run is not known, without its user's mark: see `stray`."""
OWN_TAGS = frozenset({HASH_TAG, JOB_TAG})
"""Tags that `pinchpoint import` and `pinchpoint run` set by themselves."""

MAX_TIME_SECONDS = 2.0**37
"""Largest valid Unix time (in the year 6325) or duration, in seconds: everything below converts to a date."""
MAX_FIGURE = 2.0**63
"""Largest valid figure: 8 EiB/s."""

# JSON has integers of any length, and any user may write a marker: what is read fits in a float and in a date.
Time = Annotated[float, Meta(ge=0.0, le=MAX_TIME_SECONDS)]
Step = Annotated[float, Meta(ge=-MAX_TIME_SECONDS, le=MAX_TIME_SECONDS)]
Figure = Annotated[float, Meta(ge=0.0, le=MAX_FIGURE)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Pid = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Ticks = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure that a benchmark printed for a phase, in base units, such as ``bytes_per_second``."""

    operation: str
    """What was measured, in the benchmark's own words: ``write``, ``read``."""
    unit: str
    value: Figure
    printed: str = ""
    """The figure with its unit as printed by the benchmark: ``0.367381 GiB/s``."""


class LimitMark(msgspec.Struct, frozen=True, array_like=True):
    """One resource that a verdict names."""

    resource: str
    owner: str
    blame: Figure
    """The share of the benchmark's time attributed to it, 0 to 1."""


class StepMark(msgspec.Struct, frozen=True, array_like=True):
    """One step of the mean operation of a phase, see `pinchpoint.diagnosis.waterfall`."""

    operation: str
    step: str
    seconds: Figure
    """Mean time per operation."""


class VerdictMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What limited a phase, in short: see `pinchpoint.diagnosis.verdict`."""

    kind: str
    """A `pinchpoint.diagnosis.verdict.Kind`."""
    limits: tuple[LimitMark, ...] = ()
    """The most blamed first."""
    confidence: str = ""
    """A `pinchpoint.diagnosis.verdict.Confidence`; empty if that was not kept."""
    steps: tuple[StepMark, ...] = ()
    """Where the time of the mean operation went, over all daemons."""


class PhaseMark(msgspec.Struct):
    """One phase of a run: times in Unix seconds; `end` is None while it is in progress."""

    name: str
    start: Time
    end: Time | None = None
    results: list[Result] = []
    benchmark: str = ""
    """Its benchmark; empty: the run's."""
    state: str = "running"
    source: str = ""
    """How it was detected: see `pinchpoint.benchmarks.events.PhaseSource`."""
    seconds: Time | None = None
    """How long it took, as the benchmark says."""
    valid: bool = True
    """False if the benchmark calls its result invalid."""
    vague: bool = False
    """Whether it only stands for the whole run."""
    rates: list[Result] = []
    """The current rate that the benchmark last printed."""
    progress: Share | None = None
    """Share that is done, 0 to 1."""
    moved: Time | None = None
    """When it was last seen to make progress, in Unix seconds; None if that can't be seen."""
    pace: Figure | None = None
    """Throughput of its second half so far over that of its first half."""
    expected: Time | None = None
    """Expected duration in seconds."""
    number: Count | None = None
    """Its position in the run, from 1."""
    verdict: VerdictMark | None = None
    """What limited it; None if it wasn't judged."""
    alerts: list[str] | None = None
    """Names of the alerts that fired for it; None if no server was asked."""


class RankMark(msgspec.Struct, frozen=True, array_like=True):
    """The rank of a process in MPI."""

    pid: Pid
    start: Ticks
    """Clock ticks from boot to its start; with the pid, this identifies it."""
    number: Count


class RunState(msgspec.Struct):
    """What is known about a run, our own or one started without us; times in Unix seconds."""

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
    """False if the benchmark calls the whole run invalid."""
    reason: str = ""
    """Why it failed, in the program's own words."""
    blind: list[str] = []
    """What we lack permission to read."""


def shifted(state: RunState, seconds: float) -> RunState:
    """Return a run with all its times later by so many seconds."""
    if not seconds:
        return state
    phases = [
        msgspec.structs.replace(
            mark,
            start=max(0.0, mark.start + seconds),
            end=None if mark.end is None else max(0.0, mark.end + seconds),
            moved=None if mark.moved is None else max(0.0, mark.moved + seconds),
        )
        for mark in state.phases
    ]
    end = None if state.end is None else max(0.0, state.end + seconds)
    return msgspec.structs.replace(state, start=max(0.0, state.start + seconds), end=end, phases=phases)


def run_id(name: str | None, command: Sequence[str], now: float, mark: str = "") -> str:
    """Return a run's id: its start in UTC and its name, in characters that are safe in a path and a label.

    `mark` is its user's: see `pinchpoint.user_labels`.
    """
    word = (
        re.sub(r"[^A-Za-z0-9._-]+", "-", name or os.path.basename(command[0])).strip("-.")[:MAX_RUN_NAME_CHARACTERS]
        or "run"
    )
    return marked(f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{word}", mark)


def numbered(run: str, number: int) -> str:
    """Return the id of one of several runs that would have the same: the second one gets a 2."""
    name, mark = split_user(run)
    return run if number == 1 else with_end(name, f"-{number}{mark}")


def stray(mark: str, job: str = "") -> str:
    """Return what work is called whose run is not known where it is done: by the batch job, as far as that is known.

    `mark` is its user's, so that it is in no other user's run.
    """
    return marked(f"job{job}", mark) if job else mark


def is_stray(work: str) -> bool:
    """Return whether work with this run label belongs to a run that is not known where the work is done."""
    return STRAY.fullmatch(split_user(work)[0]) is not None


def belongs(work: str, run: str, job: str = "") -> bool:
    """Return whether work with this run label may be a run's: its own, or that of a run that is not known there.

    `job` is the batch job of the run; without one, work in any job of the run's user counts, as does work in none.
    """
    if work == run:
        return True
    mark = split_user(run)[1]
    named, marked_as = split_user(work)
    return is_stray(work) and marked_as in ("", mark) and (not job or named in ("", stray("", job)))
