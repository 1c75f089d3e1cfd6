"""What the exporter and a helper process say to each other: typed JSON, each message behind its length.

What a helper says is not trusted: the user whose files it reads may have found a hole in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from pinchpoint.benchmarks.jobs import JobId
from pinchpoint.host.procfs import FormatError
from pinchpoint.runs import Count, Pid, RankMark, RunState, Ticks, Time
from pinchpoint.typedjson import decoder

__all__ = [
    "MAX_SAID_BYTES",
    "MAX_TOLD_PHASES",
    "MAX_TOLD_PROCESSES",
    "Answer",
    "Ask",
    "Done",
    "Found",
    "Said",
    "Task",
    "answers",
    "ask_in",
    "message",
]

MAX_TOLD_PROCESSES = 1024
"""Processes of one user that a helper is shown: a message about them fits into the buffer of a socket."""
MAX_TOLD_PHASES = 64
"""Phases of one run that are told: no more are exported."""
MAX_SAID_BYTES = 256 << 10
"""Length of all that a helper says at one look."""
MAX_ASK_BYTES = 1 << 20
LENGTH = struct.Struct("=I")


class Task(msgspec.Struct, array_like=True, frozen=True):
    """A process that a helper is shown."""

    pid: int
    comm: str
    state: str
    ppid: int
    start: int
    own: bool
    """Whether it is the user's; of the others, which are above those, only the name matters."""
    syncs: bool = False
    """Whether it is inside a call that writes its data back, which the user may not see (Yama)."""


class Ask(msgspec.Struct, array_like=True, frozen=True):
    """Asks for a look."""

    number: int
    now: float
    """Monotonic seconds."""
    wall: float
    """Unix seconds."""
    tasks: tuple[Task, ...]
    disowned: tuple[int, ...] = ()
    """Pids that are followed elsewhere from now on."""


class Found(msgspec.Struct, tag="found", frozen=True):
    """A benchmark: in progress, or ended since the last look."""

    pid: Pid
    start: Ticks
    """Start of its leader in clock ticks since boot: with the pid, its identity."""
    kind: str
    began: Time
    ended: Time | None
    run: RunState
    job: JobId = ""
    """The batch system's job that it is part of."""


class Said(msgspec.Struct, tag="said", frozen=True):
    """A line for the log."""

    text: str


class Done(msgspec.Struct, tag="done", frozen=True):
    """The look is over."""

    number: Count
    ranks: tuple[RankMark, ...] = ()
    """Those that were not said before."""


Answer = Found | Said | Done

ANSWERS: msgspec.json.Decoder[Answer] = decoder(Answer)  # type: ignore[arg-type]
ASKS = decoder(Ask)


def message(said: Ask | Answer) -> bytes:
    """Return a message as it is sent."""
    raw = msgspec.json.encode(said)
    return LENGTH.pack(len(raw)) + raw


def _pieces(buffer: bytearray, limit: int) -> Iterator[bytes]:
    """Take the complete messages out of a buffer. Raises FormatError for one that is longer than `limit`."""
    while len(buffer) >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer)
        if length > limit:
            raise FormatError(f"a message of {length} bytes")
        end = LENGTH.size + length
        if len(buffer) < end:
            return
        raw = bytes(buffer[LENGTH.size : end])
        del buffer[:end]
        yield raw


def ask_in(buffer: bytearray) -> Ask | None:
    """Take what the exporter asks out of a buffer, None while it is not complete. Raises FormatError."""
    return next((ASKS.decode(raw) for raw in _pieces(buffer, MAX_ASK_BYTES)), None)


def answers(buffer: bytearray) -> Iterator[Answer]:
    """Take what a helper says out of a buffer. Raises FormatError for anything else."""
    for raw in _pieces(buffer, MAX_SAID_BYTES):
        try:
            yield ANSWERS.decode(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(str(error)) from error
