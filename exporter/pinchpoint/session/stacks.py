"""The stacks of full threads that are saved with a run, phase by phase.

A file of folded stacks: each line has phase, host, resource and the functions of a stack, the outermost first, with
semicolons between them, then the number of samples. FlameGraph, inferno and speedscope read it.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from pinchpoint.expressions import expression
from pinchpoint.regular import open_regular
from pinchpoint.wire.sources import SourceError

__all__ = [
    "STACKS_FILE",
    "SavedStack",
    "Seer",
    "StackKeeper",
    "parse_stacks",
    "read_stacks",
    "saved_stacks",
    "stacks_of",
]

STACKS_FILE = "stacks.folded.gz"
"""File name in a run's directory."""
MAX_SAVED_BYTES = 32 << 20
"""Bytes of all lines of a run, before they are packed."""
MAX_PHASE_STACKS = 20_000
"""Different stacks of a phase: the most frequent ones."""
MAX_ASKED_AT_ONCE = 16
"""Hosts that are asked at the same time."""
MAX_SAVED_LINE_CHARACTERS = 4000
MAX_FUNCTIONS_PER_STACK = 512
"""Functions of one stack that are read."""
LINE = expression(r"([^\x00-\x1f\x7f]{1,4000}) ([0-9]{1,12})")
ESCAPED = str.maketrans({";": ":", "\n": " ", "\r": " "})


class SavedStack(NamedTuple):
    """A stack of the threads of a resource, and how often it was seen in a phase."""

    phase: str
    host: str
    resource: str
    """Resource and owner: ``kv_sync of osd.0``."""
    functions: tuple[str, ...]
    """The outermost first."""
    samples: int

    @property
    def line(self) -> str:
        """The line of the file."""
        return f"{';'.join((self.phase, self.host, self.resource, *self.functions))} {self.samples}"


class Seer(Protocol):
    """Who has the stacks of a host."""

    name: str

    def stacks(self, seconds: float) -> str:
        """Return those of threads that were full in the last `seconds`, as folded text. Raises SourceError."""


def stacks_of(seers: Sequence[Seer], seconds: float) -> dict[str, str]:
    """Return the stacks by host, asked at the same time; a host that does not answer is left out."""
    found: dict[str, str] = {}

    def ask(seer: Seer) -> None:
        with suppress(SourceError):
            found[seer.name] = seer.stacks(seconds)

    if len(seers) < 2:  # no thread, which the host might refuse
        list(map(ask, seers))
        return found
    with ThreadPoolExecutor(min(MAX_ASKED_AT_ONCE, len(seers))) as pool:
        list(pool.map(ask, seers))
    return found


class StackKeeper:
    """Appends stacks to the file of a run; `warn` takes what could not be saved."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        self._path = directory / STACKS_FILE
        self._warn = warn
        self._left = MAX_SAVED_BYTES

    def add(self, phase: str, stacks: Mapping[str, str]) -> None:
        """Save what the hosts saw in a phase, in the folded format."""
        counts: Counter[str] = Counter()
        for host, text in stacks.items():
            head = f"{phase.translate(ESCAPED)};{host.translate(ESCAPED)}"
            for line in text.splitlines():
                if (match := LINE.fullmatch(line)) is not None and ";" in match[1]:
                    counts[f"{head};{match[1]}"[:MAX_SAVED_LINE_CHARACTERS]] += int(match[2])
        found = "".join(f"{stack} {count}\n" for stack, count in counts.most_common(MAX_PHASE_STACKS))
        raw = found.encode("utf-8", "replace")
        if not raw:
            return
        if len(raw) > self._left:
            self._warn(f"{self._path}: more than {MAX_SAVED_BYTES >> 20} MiB of stacks; those of later phases are lost")
            self._left = 0
            return
        self._left -= len(raw)
        try:
            with self._path.open("ab") as file:
                file.write(gzip.compress(raw))
        except OSError as error:
            self._warn(f"{self._path}: {error.strerror}: stacks of full threads are not saved")


def saved_stacks(directory: Path) -> list[SavedStack]:
    """Return the stacks of a run, those before the damage of a damaged file; empty without one. Raises OSError."""
    try:
        with open_regular(directory / STACKS_FILE) as file:
            return read_stacks(file.read(MAX_SAVED_BYTES))
    except FileNotFoundError:
        return []


def read_stacks(raw: bytes) -> list[SavedStack]:
    """Return the stacks in the bytes of such a file, those before the damage of a damaged one."""
    return list(parse_stacks(_unpacked(raw)))


def _unpacked(raw: bytes) -> str:
    """Return what the members of a gzip file hold, at most `MAX_SAVED_BYTES` of it."""
    found = bytearray()
    try:
        while raw and len(found) < MAX_SAVED_BYTES:
            member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            found += member.decompress(raw, MAX_SAVED_BYTES - len(found))
            raw = member.unused_data
    except zlib.error:
        pass  # what was unpacked so far counts
    return found.decode("utf-8", "replace")


def parse_stacks(text: str) -> Iterator[SavedStack]:
    """Yield the stacks in the text of such a file; what is not a line of it is left out."""
    for line in text.split("\n"):
        match = LINE.fullmatch(line)
        if match is None:
            continue
        names = match[1].split(";", MAX_FUNCTIONS_PER_STACK + 3)[: MAX_FUNCTIONS_PER_STACK + 3]
        if len(names) > 3:
            yield SavedStack(names[0], names[1], names[2], tuple(names[3:]), int(match[2]))
