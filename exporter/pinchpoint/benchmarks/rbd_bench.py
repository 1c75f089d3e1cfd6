"""rbd bench, formerly rbd bench-write: one phase, named after the type of its operations.

Rows go through stdio's buffer, so that they come in pieces of 4 KiB if standard output is not a terminal; only the
header is flushed (``do_bench`` in src/tools/rbd/action/Bench.cc, Ceph 16.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.ceph_words import words
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["RbdBench", "RbdReader"]

SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
"""Of byte_u_t (src/include/types.h, Ceph 16.2): 22 MiB/s. Until Ceph 14 the figure is plain bytes."""
RATE = r"([-+.\de]+)(?:\s*([KMGTPE]?)i?B/s)?"
MAX_LINE_CHARACTERS = 1024
"""Lines longer than this, in characters, are not from rbd."""

HEADER = expression(
    r"\bbench(?:-write\s{0,8}?|\s+type (read|write|readwrite|rw)\b.{0,64}?)\sio_size (\d+) io_threads \d+ bytes (\d+)\b"
)
ROW = expression(rf"\s*\d+\s+(\d+)\s+([-+.\de]+)\s+{RATE}\s*$")
END = expression(rf"\belapsed:\s+(\d+)\s+ops:\s+(\d+)\s+ops/sec:\s+([-+.\de]+)\s+bytes/sec:\s+{RATE}\s*$")
PART = expression(
    rf"\b(read|write)_ops:\s+\d+\s+(?:read|write)_ops/sec:\s+([-+.\de]+)\s+(?:read|write)_bytes/sec:\s+{RATE}\s*$"
)
SIGNAL = expression(r"received\s+signal: \w+(?: \w+)?")
"""A line of Ceph's log on standard error, possibly after a ^C."""
PROBLEM = expression(r"(?:read|write) error: |bench failed: |rbd: (?:bench|failed to flush)|Error flushing data")

TYPES = {"read": "read", "write": "write", "readwrite": "readwrite", "rw": "readwrite"}


class RbdReader(OutputReader):
    """Reads the text; there is no other format."""

    def __init__(self) -> None:
        super().__init__()
        self._phase = ""
        """The current benchmark; empty if there is none."""
        self._size = 0.0
        """Bytes of one operation."""
        self._bytes = 0.0
        """Bytes of all of them."""
        self._failed = False
        self._ended: Ended | None = None
        """The ``elapsed`` line of reads and writes together: a line for each of them follows."""

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        if len(line) > MAX_LINE_CHARACTERS:
            return
        if self._ended is not None:
            if match := PART.search(line):
                self._ended = _with(self._ended, _results(match[1], match[2], match[3], match[4]))
                if match[1] == "write":
                    yield from self._complete()
                return
            if line.strip():
                yield from self._complete()
        if match := HEADER.search(line):
            yield from self._abandon()
            # bench-write has no type.
            self._phase = TYPES[match[1] or "write"]
            self._size, self._bytes = float(match[2][:18]), float(match[3][:18])
            yield RunBegan()
            yield Began(self._phase)
        elif not self._phase:
            return
        elif match := END.search(line):
            yield from self._over(match)
        elif match := ROW.match(line):
            done = float(match[1][:18])
            results = _results(self._phase, match[2], match[3], match[4])
            share = min(1.0, done * self._size / self._bytes) if self._bytes else None
            yield Rate(self._phase, results, share, done)
        elif (ended := SIGNAL.search(line)) or PROBLEM.match(line):
            if not self._failed:
                yield Failed(ended[0] if ended else line.strip(), ended is not None)
            self._failed = True

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        if self._ended is not None:
            yield from self._complete()
        yield from self._abandon()

    def _over(self, match: re.Match[str]) -> Iterator[Event]:
        done, rate = float(match[2][:18]), number(match[3])
        printed = float(match[1][:18])
        # Only whole seconds are printed; the operations and their rate are more exact.
        exact = done / rate if rate else printed
        seconds = exact if 0 <= exact - printed < 1 else printed
        self._ended = Ended(self._phase, _results(self._phase, match[3], match[4], match[5]), seconds)
        if not self._failed and done * self._size < self._bytes:
            self._failed = True
            yield Failed(f"interrupted after {done * self._size:.0f} of {self._bytes:.0f} bytes")
        if self._phase != "readwrite":
            yield from self._complete()

    def _complete(self) -> Iterator[Event]:
        ended, self._ended = self._ended, None
        failed, self._failed = self._failed, False
        self._phase = ""
        if ended is not None:
            yield ended
        if not failed:
            yield Completed()

    def _abandon(self) -> Iterator[Event]:
        if self._phase and not self._failed:
            yield Failed("the output ends before the result")
        self._phase, self._failed = "", False


def _with(ended: Ended, results: tuple[Result, ...]) -> Ended:
    return Ended(ended.phase, ended.results + results, ended.seconds)


def _results(operation: str, operations: str, figure: str, prefix: str | None) -> tuple[Result, ...]:
    found = []
    if (rate := number(figure)) is not None:
        unit = "bytes/sec" if prefix is None else f"{prefix}{'iB' if prefix else 'B'}/s"
        value = rate * (1 << SHIFTS[prefix or ""])
        found.append(Result(operation, "bytes_per_second", value, f"{figure} {unit}"))
    if (count := number(operations)) is not None:
        found.append(Result(operation, "operations_per_second", count, f"{operations} ops/sec"))
    return tuple(found)


class RbdBench(Benchmark):
    """One ``rbd bench``."""

    name = "rbd_bench"
    comms = frozenset({"rbd"})
    reader = RbdReader
    documented = (Documented("rbd bench", "`write`, `read`, `readwrite`", "command line", "rows and end"),)

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is the command."""
        return super().leads(tree, pid) and words(tree.argv(pid))[:1] in (["bench"], ["bench-write"])

    def __init__(self, tree: Tree, leader: int) -> None:
        self._phase = _phase(tree.argv(leader))

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the phase from the command line: nothing else about the process shows it."""
        if self._phase is None:
            return Sight(State.SETUP)
        return Sight(State.RUNNING, self._phase, PhaseSource.ARGV, number=1, total=1)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event of our own type of operations."""
        return event if event.phase == self._phase else None


def _phase(argv: Sequence[str]) -> str | None:
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == "--io-type":
            return TYPES.get(value if equals else "".join(argv[index + 1 : index + 2]))
    return "write" if "bench-write" in argv else None
