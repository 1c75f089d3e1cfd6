"""dd: one phase, named after what it does: write, read, or copy.

Formats of coreutils 9.1 (``print_xfer_stats`` in src/dd.c) and those before it, busybox' (coreutils/dd.c) and BSD's.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Dd", "DdReader", "size"]

PHASE = "copy"
"""The name of the phase where only its text is known."""
DEFAULT_BLOCK_BYTES = 512
"""Bytes of a block where none is given (``DEFAULT_BLOCKSIZE`` in src/dd.c, coreutils 9.1)."""
SOURCES = frozenset({"/dev/zero", "/dev/urandom", "/dev/random"})
SINKS = frozenset({"/dev/null", "/dev/zero"})

RECORDS = expression(r"\d+\+\d+ \w[\w ]*$")
"""``1024+0 records in``, ``1024+0 records out``, in any language."""
MAX_RECORDS_LINES = 2
"""Lines that the statistics come after the last of them at most: a number of truncated records may come between."""
STATISTICS = expression(
    # 1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.508462 s, 2.1 GB/s. Older releases have one size in the parentheses,
    # the oldest ones and busybox "seconds"; in other languages figures may have commas.
    r"(?P<bytes>\d+) \w+(?: \([^()]{1,40}\))? [^\W\d]+, "
    r"(?P<seconds>\d[\d.,e+-]*) s(?:econds?)?, (?P<rate>(?:\S{1,12} ?)?\S*B/s)$"
)
BSD = expression(r"(?P<bytes>\d+) bytes transferred in (?P<seconds>[\d.]+) secs? \((?P<rate>\d+ bytes/sec)\)$")
PROBLEM = expression(r"dd: (?:error |failed |fs?ync failed|can't |cannot |closing |reading |writing |opening ).+")
RETURN = b"\x1e"
"""Marks what follows a carriage return: each line of status=progress begins with one."""
MAX_LINE_CHARACTERS = 1024
"""Lines longer than this, in characters, are not from dd."""

SUFFIXES = (
    {"": 1, "c": 1, "w": 2, "b": 512, "B": 1, "k": 1 << 10}
    | {
        f"{letter}{ending}": base ** (power + 1)
        for power, letter in enumerate("KMGTPEZY")
        for ending, base in (("", 1024), ("iB", 1024), ("B", 1000))
    }
    | {"kB": 1000}
)
"""Suffixes of a number of bytes or blocks (``parse_integer`` in src/dd.c, coreutils 9.1)."""
MAX_SIZE_BYTES = 1 << 62


class DdReader(OutputReader):
    """Reads what dd prints on standard error.

    Lines of status=progress are like the last one. They begin with a carriage return, and except in old releases their
    seconds are whole; the last one comes after the numbers of records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open = False
        self._counted = 0
        """Number of lines within which the statistics may still follow the numbers of records."""
        self._failed = False
        self._last: Ended | None = None
        """The last line of statistics, while another one may still follow."""
        self._seen = 0

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in these bytes."""
        return super().feed(data.replace(b"\r", b"\r" + RETURN))

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        mark = RETURN.decode()
        returned = line.startswith(mark)
        line = line.lstrip(mark).strip()
        if not line or len(line) > MAX_LINE_CHARACTERS:
            return
        if match := STATISTICS.match(line) or BSD.match(line):
            yield from self._statistics(match, returned=returned)
        elif RECORDS.match(line):
            self._counted = MAX_RECORDS_LINES
        elif PROBLEM.match(line):
            yield from self._begin()
            self._failed = True
            yield Failed(line)
        else:
            self._counted = max(0, self._counted - 1)

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        if self._last is not None and self._seen == 1:
            yield from self._over(self._last)
        elif self._last is not None:
            yield Failed("the output ends before the summary")
        self._open = False

    def _begin(self) -> Iterator[Event]:
        if not self._open:
            self._open = True
            self._failed = False
            self._seen = 0
            yield RunBegan()

    def _statistics(self, match: re.Match[str], *, returned: bool) -> Iterator[Event]:
        yield from self._begin()
        figure = match["seconds"].replace(",", ".")
        done, seconds = number(match["bytes"]), number(figure)
        if done is None or seconds is None:
            return
        # The bytes and the time are exact, the rate has two digits.
        rate = number(done / seconds) if seconds > 0 else None
        results = () if rate is None else (Result(PHASE, "bytes_per_second", rate, match["rate"]),)
        self._seen += 1
        if self._counted or (not returned and not figure.isdecimal()):
            count = Result(PHASE, "bytes", done, f"{match['bytes']} bytes")
            yield from self._over(Ended(PHASE, (*results, count), seconds))
        else:
            self._last = Ended(PHASE, results, seconds)
            yield Rate(PHASE, results, work=done)

    def _over(self, ended: Ended) -> Iterator[Event]:
        self._last, self._open, self._counted = None, False, 0
        yield ended
        if not self._failed:
            yield Completed()


def size(text: str) -> int | None:
    """Return a number as dd takes it: ``4k``, ``1MB``, ``2x512``; None if it is not one."""
    product = 1
    for factor in text.split("x") if len(text) < 64 else [""]:
        match = re.fullmatch(r"([0-9]+)([A-Za-z]*)", factor)
        if match is None or match[2] not in SUFFIXES:
            return None
        product *= int(match[1]) * SUFFIXES[match[2]]
    return product if product < MAX_SIZE_BYTES else None


class Dd(Benchmark):
    """One ``dd``: its descriptor 0 is the input, and 1 the output, whatever their names (``main`` in src/dd.c)."""

    name = "dd"
    comms = frozenset({"dd"})
    reader = DdReader
    everyday = True
    hint = "dd prints its figures on standard error, which is not read: `dd ... 2>&1`"
    documented = (Documented("dd", "`write`, `read`, `copy`", "command line", "summary", "what it prints"),)

    def __init__(self, tree: Tree, leader: int) -> None:
        operands = dict(word.split("=", 1) for word in tree.argv(leader)[1:] if "=" in word)
        self._phase = _phase(operands.get("if", ""), operands.get("of", ""))
        both = operands.get("bs", "")
        blocks = size(both or operands.get("ibs", "")) or DEFAULT_BLOCK_BYTES
        skip = _bytes(operands, ("skip", "iseek"), blocks, "iflag", "skip_bytes")
        seek = _bytes(
            operands,
            ("seek", "oseek"),
            size(both or operands.get("obs", "")) or DEFAULT_BLOCK_BYTES,
            "oflag",
            "seek_bytes",
        )
        self._starts = (skip, seek)
        self._total = _bytes(operands, ("count",), blocks, "iflag", "count_bytes") or None
        if self._total is None and "if" in operands:
            self._total = _length(tree, leader, operands["if"], skip)
        if "append" in operands.get("oflag", ""):
            # Positions of the output begin at its old end.
            self._total = None
        self._syncs = bool({"fsync", "fdatasync"} & set(operands.get("conv", "").split(",")))

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return its progress from the positions in its two files; a device without one stays where it was."""
        places = [tree.position(leader, descriptor) for descriptor in (0, 1)]
        done = [place.offset - start for place, start in zip(places, self._starts, strict=True) if place is not None]
        work = float(max(0, *done)) if done else None
        state, progress = State.RUNNING, None
        if work is not None and self._total:
            progress = min(1.0, work / self._total)
            if progress == 1.0 and self._syncs:
                state = State.SYNCING
        return Sight(
            state,
            self._phase,
            PhaseSource.ARGV,
            progress=progress,
            work=work,
            number=1,
            total=1,
            blind=() if done else _blind(tree, leader),
        )

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event under the name of our phase, which the text doesn't contain."""
        results = tuple(msgspec.structs.replace(result, operation=self._phase) for result in event.results)
        claimed = msgspec.structs.replace(event, phase=self._phase, results=results)
        if isinstance(claimed, Rate) and claimed.work is not None and self._total:
            return msgspec.structs.replace(claimed, progress=min(1.0, claimed.work / self._total))
        return claimed


def _phase(source: str, sink: str) -> str:
    if sink in SINKS:
        return "read" if source not in SOURCES else PHASE
    return "write" if sink and source in SOURCES else PHASE


def _bytes(operands: Mapping[str, str], names: Sequence[str], block: int, flags: str, exact: str) -> int:
    """Return the bytes for which an operand stands; it counts blocks unless a flag or a B says bytes."""
    text = next((operands[name] for name in names if name in operands), "")
    found = size(text) or 0
    # scanargs in src/dd.c, coreutils 9.1: any B makes it bytes.
    counts_bytes = exact in operands.get(flags, "").split(",") or "B" in text
    return found if counts_bytes else found * block


def _length(tree: Tree, leader: int, path: str, skip: int) -> int | None:
    """Return how much of an input file is left to read; None if it is not a regular file, or not readable."""
    try:
        with tree.open_path(leader, path) as descriptor:
            found = os.fstat(descriptor)
    except (OSError, ValueError):
        return None
    return max(0, found.st_size - skip) or None if stat.S_ISREG(found.st_mode) else None


def _blind(tree: Tree, leader: int) -> tuple[str, ...]:
    try:
        tree.open_files(leader)
    except PermissionError:
        return ("descriptors",)
    return ()
