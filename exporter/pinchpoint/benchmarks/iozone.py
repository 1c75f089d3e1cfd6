"""iozone: its tests are its phases.

One process prints a row of rates for each size of file and record, a value as soon as its test has ended and without
ending the line; skipped tests are blanks. So a value's position identifies its test, and the text so far shows which
test is running. With ``-t`` several processes run each test together, and a block of lines follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    PhaseSource,
    RunBegan,
    State,
    phase_name,
)
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Iozone", "IozoneReader"]


class Cells(NamedTuple):
    """The cells that one test prints in a row."""

    phases: tuple[str, ...]
    widths: tuple[int, ...]
    blank: int
    """Width of the blanks that replace it if it is skipped."""


# begin, func, test_output and the *_perf_test functions (iozone.c, 3.398 to 3.487); the place in the list is the number
# for -i. The mixed workload (8) runs only with -t.
TESTS = (
    Cells(("write", "rewrite"), (9, 9), 18),
    Cells(("read", "reread"), (9, 9), 18),
    Cells(("random_read", "random_write"), (9, 9), 18),
    Cells(("bkwd_read",), (9,), 9),
    Cells(("record_rewrite",), (10,), 10),
    Cells(("stride_read",), (10,), 10),
    Cells(("fwrite", "frewrite"), (9, 9), 18),
    Cells(("fread", "freread"), (9, 9), 17),
    Cells((), (), 0),
    Cells(("pwrite", "repwrite"), (9, 9), 18),
    Cells(("pread", "repread"), (8, 9), 18),
    Cells(("pwritev", "repwritev"), (9, 10), 18),
    Cells(("preadv", "repreadv"), (10, 9), 18),
)
PLAIN_TESTS = 9
"""Tests that run without -E and -t."""
MAPPED_TESTS = 6
"""Tests that run with -B, -H or -k, without -t (begin in iozone.c)."""
SIZE_ENDS = (16, 24)
"""Column at which the sizes of file and record end in a row."""
HEADER_ENDS = (16, 24, 33, 42, 50, 60)
"""Column at which the first names end in a header whose rows have those widths (CONTROL_STRING2 to 4 in iozone.c)."""
MAX_WORKERS = 32
"""Maximum number of processes per look."""
MAX_ROW_CHARACTERS = 512
"""Characters of a row; the longest has 216."""
THROUGHPUT = (
    # throughput_test (iozone.c): in this order, each with its number for -i.
    ("write", 0),
    ("rewrite", 0),
    ("read", 1),
    ("reread", 1),
    ("bkwd_read", 3),
    ("stride_read", 5),
    ("random_read", 2),
    ("mixed_workload", 8),
    ("random_write", 2),
    ("pwrite", 9),
    ("pread", 10),
    ("fwrite", 6),
    ("fread", 7),
)
WORKERS = {
    "initial_writers": "write",
    "rewriters": "rewrite",
    "re_writers": "rewrite",
    "readers": "read",
    "re_readers": "reread",
    "reverse_readers": "bkwd_read",
    "stride_readers": "stride_read",
    "random_readers": "random_read",
    "random_writers": "random_write",
    "pwrite_writers": "pwrite",
    "pread_readers": "pread",
    "fwriters": "fwrite",
    "freaders": "fread",
}
"""Process names that differ from their test's name, with the test."""

BEGINNING = expression(r"Iozone: Performance Test of File I/O")
COMMAND = expression(r"Command line used:(.*)")
INCLUDED = expression(r"\s-(?!\+)[A-Za-z]*?i\s*(\d{1,2})(?=\s|$)")
EXTENDED = expression(r"\s-[A-Za-z]*E")
MAPPED = expression(r"\s-[A-Za-z]*[BHk]")
NO_RETEST = expression(r"\s-\+n(?=\s|$)")
OUTPUT_IN = expression(r"Output is in (kbytes|op|microseconds)", re.IGNORECASE)
HEADER = expression(r"\s*kB\s+reclen\s+write\s+rewrite\s+read\s", re.IGNORECASE)
EACH = expression(r"Each (?:process|thread) writes a ")
CHILDREN = expression(r"(Children|Parent) sees? throughput for\s++\d++\s++([a-z -]++)\s*+=\s*+(.*)")
PER_PROCESS = expression(r"(Min|Max|Avg) throughput per (?:process|thread)(?:es|s)?\s*=\s*(.*)")
LAST = expression(r"Min xfer\s*=")
RATE = expression(r"(\d{1,18}(?:\.\d{1,9})?)\s+(kB|ops)/sec", re.IGNORECASE)
ROW = expression(r"[ \t]*(\d{1,15})[ \t]+(\d{1,15})(?:[ \t]+\d{1,15})*[ \t]*$")
FAILURE = expression(
    r"(iozone: interrupted|Can ?not (?:f?d?open|create) temp.*|Error f?p?(?:read|writ)[a-z]* block.*|Error in file: .*)"
)
COMPLETE = expression(r"iozone test complete\.")
OPS = "operations_per_second"


class IozoneReader(OutputReader):
    """Reads the output of iozone, the unfinished line included."""

    def __init__(self) -> None:
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        self._open = False
        """Whether a run has begun and not ended."""
        self._unit = "kBytes"
        self._included: frozenset[int] | None = None
        """Numbers of the tests that run; None if the command line is not known."""
        self._named: frozenset[int] = frozenset()
        """The tests named on the command line; none if all run."""
        self._retest = True
        self._columns = 0
        """Columns of a row after the sizes; 0 outside a table."""
        self._live = False
        """Whether the rows have the widths of `TESTS`."""
        self._pending: tuple[str, list[Result]] | None = None
        """The block of lines that is being read: its phase and results."""
        self._phase = ""
        self._row_begins()

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in these bytes."""
        events = super().feed(data)
        if self._live:
            # The last character may be incomplete.
            events += self._cells(self._lines.rest.rstrip("\N{REPLACEMENT CHARACTER}"))
        return events

    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line."""
        events = list(self._cells(line)) if self._live else []
        self._row_begins()
        return [*events, *self._line(line)]

    def end(self) -> Iterable[Event]:
        """Return the events at the end of the output."""
        yield from self._block_ends()
        if self._open:
            self._open = False
            yield Failed("the output ends before the test is complete")

    def _line(self, line: str) -> Iterator[Event]:
        if BEGINNING.search(line) is not None:
            yield from self.end()
            self._reset()
            self._open = True
            yield RunBegan()
        if not self._open:
            return
        if (found := COMMAND.search(line)) is not None:
            self._plan(found[1])
        elif (found := OUTPUT_IN.search(line)) is not None:
            self._unit = found[1].lower()
        elif HEADER.match(line) is not None:
            self._columns = len(line.split()) - 2
            ends = tuple(word.end() for word in re.finditer(r"\S+", line))
            self._live = ends[: len(HEADER_ENDS)] == HEADER_ENDS
        elif COMPLETE.search(line) is not None:
            yield from self._block_ends()
            self._open = self._live = False
            self._columns = 0
            yield Completed()
        elif (found := FAILURE.search(line)) is not None:
            yield from self._block_ends()
            self._open = self._live = False
            yield Failed(found[1].strip()[:MAX_ROW_CHARACTERS])
        elif self._columns and not self._live and (found := ROW.match(line)) is not None:
            yield from self._whole_row(line.split(), float(found[1]))
        else:
            yield from self._throughput(line)

    def _plan(self, command: str) -> None:
        self._named = frozenset(int(number) for number in INCLUDED.findall(command))
        known = len(TESTS) if EXTENDED.search(command) else PLAIN_TESTS
        self._included = self._named or frozenset(range(MAPPED_TESTS if MAPPED.search(command) else known))
        self._retest = NO_RETEST.search(command) is None

    def _runs(self, test: int) -> bool:
        return self._included is None or test in self._included

    # Rows of one process.

    def _row_begins(self) -> None:
        self._at = 0
        """How far the line has been read."""
        self._test = -1
        """The test whose cells come next; -1 before the sizes."""
        self._cell = 0
        self._kilobytes = 0.0

    def _cells(self, line: str) -> Iterator[Event]:
        """Continue reading a row as far as its cells are complete; anything but a row stays unread."""
        if self._at < 0 or len(line) > MAX_ROW_CHARACTERS:
            return
        if self._test < 0:
            if len(line) < SIZE_ENDS[1]:
                return
            found = ROW.match(line[: SIZE_ENDS[1]])
            if found is None or found.end(1) != SIZE_ENDS[0] or found.end(2) != SIZE_ENDS[1]:
                self._at = -1
                return
            self._at, self._test, self._kilobytes = SIZE_ENDS[1], 0, float(found[1])
            yield from self._next()
        while self._test < len(TESTS):
            cells = TESTS[self._test]
            if self._cell == len(cells.widths):
                self._test, self._cell = self._test + 1, 0
                if cells.phases:
                    yield from self._next()
                continue
            cell = line[self._at : self._at + cells.widths[self._cell]]
            if len(cell) < cells.widths[self._cell]:
                return
            if cell.isspace() and self._cell == 0:
                self._at += cells.blank
                self._test += 1
            elif re.fullmatch(r" *[0-9]+", cell) is not None:
                self._at += len(cell)
                self._cell += 1
                yield self._value(cells.phases[self._cell - 1], cell.strip())
            else:
                self._at = -1
                return

    def _next(self) -> Iterator[Event]:
        """Yield the phase that begins when those before `_test` are over, if the command line identifies it."""
        if self._included is not None:
            columns = 0
            for number, cells in enumerate(TESTS):
                columns += len(cells.phases)
                if number >= self._test and cells.phases and number in self._included and columns <= self._columns:
                    yield Began(cells.phases[0])
                    return

    def _value(self, phase: str, figure: str) -> Ended:
        value = float(figure)
        if value == 0:  # not run again (-+n)
            return Ended(phase, ran=False)
        if self._unit == "op":
            return Ended(phase, (Result(phase, OPS, value, f"{figure} ops/sec"),))
        if self._unit == "microseconds":
            return Ended(phase, (Result(phase, "seconds", value / 1e6, f"{figure} microseconds/op"),))
        rate = Result(phase, "bytes_per_second", value * 1024, f"{figure} kBytes/sec")
        return Ended(phase, (rate,), self._kilobytes / value)

    def _whole_row(self, words: Sequence[str], kilobytes: float) -> Iterator[Event]:
        """Read a row whose blanks have no meaning: all columns, or those of the tests named on the command line."""
        self._kilobytes = kilobytes
        columns = [(number, phase) for number, cells in enumerate(TESTS) for phase in cells.phases][: self._columns]
        included = [phase for number, phase in columns if len(words) - 2 == len(columns) or self._runs(number)]
        if len(included) == len(words) - 2:
            for phase, word in zip(included, words[2:], strict=True):
                yield self._value(phase, word)

    # Blocks of several processes.

    def _throughput(self, line: str) -> Iterator[Event]:
        if EACH.search(line) is not None:
            yield from self._next_of_several(-1)
        elif (found := CHILDREN.search(line)) is not None and (rate := RATE.match(found[3])) is not None:
            workers = phase_name(found[2])
            phase = WORKERS.get(workers, workers)
            if found[1] == "Children":
                yield from self._block_ends()
                self._pending = (phase, [_rate(phase, rate)])
            elif self._pending is not None:
                self._pending[1].append(_rate("parent", rate))
        elif self._pending is not None and (found := PER_PROCESS.search(line)) is not None:
            if (rate := RATE.match(found[2])) is not None:
                self._pending[1].append(_rate(found[1].lower(), rate))
        elif LAST.search(line) is not None:
            yield from self._block_ends()

    def _block_ends(self) -> Iterator[Event]:
        if self._pending is None:
            return
        phase, results = self._pending
        self._pending = None
        yield Ended(phase, tuple({result.operation: result for result in results}.values()))
        done = next((place for place, (name, _) in enumerate(THROUGHPUT) if name == phase), None)
        if done is not None:
            yield from self._next_of_several(done)

    def _next_of_several(self, done: int) -> Iterator[Event]:
        if self._included is None:
            return
        for phase, number in THROUGHPUT[done + 1 :]:
            if (not self._named or number in self._named) and (self._retest or phase not in ("rewrite", "reread")):
                yield Began(phase)
                return


def _rate(operation: str, found: re.Match[str]) -> Result:
    value = float(found[1])
    if found[2].lower() == "ops":
        return Result(operation, OPS, value, found[0])
    return Result(operation, "bytes_per_second", value * 1024, found[0])


class Iozone(Benchmark):
    """A running iozone: only its output shows which test is running."""

    name = "iozone"
    comms: ClassVar = frozenset({"iozone"})
    reader = IozoneReader
    hint = "iozone prints its results to standard output as its tests end"
    documented = (
        Documented(
            "iozone",
            "`write`, `rewrite`, `read`, ...",
            "standard output",
            "standard output, `-R`, `-t`",
            "what it prints",
        ),
    )

    def __init__(self, tree: Tree, leader: int) -> None:
        # Mapped files, and positional reads and writes, leave no trace in a descriptor's position.
        self._shows = not any(re.match(r"-[A-Za-z]*[BHkE]", word) for word in tree.argv(leader))
        self._positions: dict[tuple[int, int], int] = {}
        self._work = 0.0
        self._began = False

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return that a test is running, once the first file is open."""
        try:
            busy = self._moves(tree, [leader, *tree.children(leader)][:MAX_WORKERS])
        except PermissionError:
            return Sight(State.RUNNING, self.name, PhaseSource.ARGV, vague=True, blind=("descriptors",))
        self._began = self._began or busy
        if not self._began:
            return Sight(State.SETUP)
        return Sight(
            State.RUNNING, self.name, PhaseSource.DATA_FD, vague=True, work=self._work if self._shows else None
        )

    def _moves(self, tree: Tree, pids: Iterable[int]) -> bool:
        """Record the processes' positions in their files; return whether any file is open."""
        positions: dict[tuple[int, int], int] = {}
        for pid in pids:
            for file in tree.open_files(pid):
                if file.descriptor > 2 and file.path.startswith("/") and not file.path.startswith(("/dev/", "/proc/")):
                    found = tree.position(pid, file.descriptor)
                    if found is not None:
                        positions[pid, file.descriptor] = found.offset
        for key, offset in positions.items():
            self._work += abs(offset - self._positions.get(key, 0))
        self._positions = positions
        return bool(positions)
