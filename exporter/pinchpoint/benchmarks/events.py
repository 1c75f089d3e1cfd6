"""What can be learned about a benchmark run: states, sources, and the events that an output shows."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.host.exitstatus import STOPPING
from pinchpoint.runs import MAX_FIGURE, MAX_TIME_SECONDS, Result

__all__ = [
    "FINAL_STATES",
    "Began",
    "Completed",
    "Ended",
    "Event",
    "Failed",
    "PhaseSource",
    "Rate",
    "RunBegan",
    "Scored",
    "State",
    "as_figure",
    "as_seconds",
    "as_share",
    "bounded",
    "ended_as",
    "phase_name",
]

MAX_PHASE_NAME_CHARACTERS = 64
"""Longest name of a phase, in characters."""


class State(StrEnum):
    """What a run does at a moment."""

    SETUP = "setup"
    """Before its first phase: starting ranks, laying out files."""
    RUNNING = "running"
    SYNCING = "syncing"
    """At the end of a phase: its data is written back, nothing new is written."""
    PAUSED = "paused"
    BETWEEN = "between"
    """Between two phases, or after the last one before its end."""
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended early by a signal: Ctrl-C, kill, the scheduler."""


FINAL_STATES = (State.FINISHED, State.FAILED, State.STOPPED)
"""The states of a run that has ended."""


def ended_as(code: int) -> State:
    """Return how a process ended, given its exit code: negative for a signal, or 128 plus the signal from a shell."""
    if (-code if code < 0 else code - 128) in STOPPING:
        return State.STOPPED
    return State.FAILED if code else State.FINISHED


class PhaseSource(StrEnum):
    """How a phase is detected, most exact first."""

    FD = "fd"
    """A file named after the phase that the run holds open."""
    RESULT_FILE = "result_file"
    """A file of results that grows during the run."""
    STDOUT = "stdout"
    THREAD = "thread"
    """Names or number of threads and child processes."""
    DATA_FD = "data_fd"
    """Open data files: their names, positions and access modes."""
    ARGV = "argv"


class RunBegan(msgspec.Struct, frozen=True):
    """A run of this benchmark begins in the text; what came before belongs to another run."""


class Began(msgspec.Struct, frozen=True):
    """A phase begins."""

    phase: str
    expected: float | None = None
    """Expected duration in seconds."""
    state: State = State.RUNNING


class Rate(msgspec.Struct, frozen=True):
    """The benchmark's current rate or progress, as printed."""

    phase: str
    """Empty: the current phase."""
    results: tuple[Result, ...] = ()
    progress: float | None = None
    """Share of the phase that is done, 0 to 1."""
    work: float | None = None
    """What the phase has done so far, in any unit that only grows."""


class Ended(msgspec.Struct, frozen=True):
    """A phase has ended, with these results."""

    phase: str
    results: tuple[Result, ...] = ()
    seconds: float | None = None
    """How long it took, as the benchmark says."""
    valid: bool = True
    """False where the benchmark itself calls the result invalid."""
    ran: bool = True
    """False for a phase that was printed and left out (``run = FALSE`` of IO500)."""


class Scored(msgspec.Struct, frozen=True):
    """The run's score."""

    scores: tuple[Result, ...]
    valid: bool = True


class Completed(msgspec.Struct, frozen=True):
    """The run came to its regular end."""


class Failed(msgspec.Struct, frozen=True):
    """The output says that the run failed, or that it was interrupted; the reason is the program's own words."""

    reason: str
    stopped: bool = False
    """Whether it was stopped by a signal."""


Event = RunBegan | Began | Rate | Ended | Scored | Completed | Failed


def phase_name(text: str) -> str:
    """Return the canonical name of a phase: lower case, each run of non-alphanumeric characters as ``_``."""
    word = "".join(c if c.isalnum() else " " for c in text.lower())
    return "_".join(word.split())[:MAX_PHASE_NAME_CHARACTERS]


def as_figure(value: float | None) -> float | None:
    """Return a plausible figure, None for any other: a text may have a number of a thousand digits."""
    return float(value) if value is not None and 0 <= value <= MAX_FIGURE else None


def as_seconds(value: float | None) -> float | None:
    """Return a plausible duration, None for any other."""
    return float(value) if value is not None and 0 <= value <= MAX_TIME_SECONDS else None


def as_share(value: float | None) -> float | None:
    """Return the share that is done, at most 1; None for an implausible value."""
    return min(value, 1.0) if value is not None and value >= 0 else None


def bounded(event: Event) -> Event:
    """Return an event without the numbers that a marker can't hold (`pinchpoint.runs`): the text is not trusted.

    A result or score that loses one (a negative figure or duration) is invalid.
    """
    match event:
        case Began():
            return msgspec.structs.replace(event, expected=as_seconds(event.expected))
        case Rate():
            return msgspec.structs.replace(
                event, results=_figures(event.results), progress=as_share(event.progress), work=as_figure(event.work)
            )
        case Ended():
            results, seconds = _figures(event.results), as_seconds(event.seconds)
            whole = len(results) == len(event.results) and seconds == event.seconds
            return event if whole else msgspec.structs.replace(event, results=results, seconds=seconds, valid=False)
        case Scored():
            # The others would be taken for the total, which comes last.
            whole = len(_figures(event.scores)) == len(event.scores)
            return event if whole else Scored((), valid=False)
    return event


def _figures(results: Iterable[Result]) -> tuple[Result, ...]:
    return tuple(result for result in results if as_figure(result.value) is not None)
