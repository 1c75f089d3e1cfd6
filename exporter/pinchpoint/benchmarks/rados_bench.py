"""rados bench: writes, reads, and the removal of what was written.

Its thread that prints the rows is named after the phase (``write_bench``, ``seq_read_bench`` and ``rand_read_bench`` in
src/common/obj_bencher.cc, Ceph 16.2) and ends with it: after that, a write without --no-cleanup does its clean-up. Both
kinds of read have the same rows and summary; only the command line distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.ceph_words import words
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["RadosBench", "RadosReader"]

MIB = 1 << 20
"""What rados calls MB (``status_printer`` in src/common/obj_bencher.cc, Ceph 16.2)."""
PRINTERS = {"write_stat": "write", "seq_read_stat": "seq", "rand_read_stat": "rand"}
"""Threads that print rows, and the phase of each."""
READS = ("seq", "rand")

DATE = expression(r"\s*(?:\d{4}-\d\d-\d\d[ T][\d:.]+(?:[+-]\d{4}|Z)?\s+)?")
"""What --show-time prints in front; newer releases have a T and a zone."""
MAINTAINING = expression(
    # "of N bytes for at least S seconds." in Ceph 0.47, "of N bytes for up to S seconds or M objects" in 0.80.
    r"Maintaining \d+ concurrent writes of \d+ bytes.* for (?:up to|at least) (\d+) seconds(?: or (\d+) objects)?"
)
HEADER = expression(r"sec\s+Cur ops\s+started\s+finished\s+avg MB/s\s+cur MB/s\s+last lat")
ROW = expression(r"(\d+)\s+\d+\s+\d+\s+(\d+)\s+[-\d.einfa+]+\s+([-\d.e+]+)\s+[-\d.e+]+\s+[-\d.einfa+]+$")
LATENCIES = expression(r"min lat:\s*+\S++\s++max lat:\s*+\S++\s++avg lat:")
SUMMARY = expression(r"([A-Z][A-Za-z]+(?: [A-Za-z]+){0,2})\s?(?:\((?:MB/sec|s)\))?(?:\s*+:)?\s++(\S+)$")
PAIR = expression(r'"(\w+):?"\s*:\s*"?([^",}\]]*)')
"""A key with its value; in Ceph 12 one of the keys is ``max_latency:`` (``write_bench``)."""
REMOVED = expression(r"Removed (\d+) objects?$")
CLEANED = expression(r"Clean up completed and total clean up time\s*:\s*(\S+)$")
PROBLEM = expression(r"error during (?:benchmark|cleanup): |Must write data before running a read benchmark!")
COMMAND = expression(r"\brados\b.*\b(bench|cleanup)\b")
MODE = expression(r"\b(?:write|seq|rand)\b")

MAX_COMMAND_CHARACTERS = 256
"""Characters of a line that are searched for a command line."""
MAX_RADOS_LINE_CHARACTERS = 4096
"""Lines longer than this, in characters, are not from rados (a row of the document: 200)."""
ROW_KEYS = frozenset({"sec", "cur_ops", "started", "finished", "cur_bw"})
PLAN_KEYS = frozenset({"concurrent_ios", "seconds_to_run", "max_objects"})
SUMMARY_KEYS = frozenset(
    {"total_time_run", "total_writes_made", "total_reads_made", "write_size", "read_size", "object_size"}
    | {"bandwidth", "stddev_bandwidth", "max_bandwidth", "min_bandwidth"}
    | {"average_iops", "stddev_iops", "max_iops", "min_iops"}
    | {"average_latency", "stddev_latency", "max_latency", "min_latency"}
)
"""Keys of the JSON document; the text has the same words."""


class RadosReader(OutputReader):
    """Reads text and ``--format json``.

    The document grows by a row per second and has no line ends, so here a brace also ends a line. Its clean-up is text
    in the middle of it, and its summary comes after that.
    """

    def __init__(self) -> None:
        super().__init__()
        self._phase = ""
        """The current benchmark: its summary has not come."""
        self._expected: float | None = None
        self._objects: float | None = None
        self._written = False
        """Whether a write has had its summary: only the end of the text rules out a clean-up."""
        self._cleaning = False
        self._removed: float | None = None
        self._pairs: dict[str, str] = {}
        """The content of the current JSON object so far."""
        self._summary: dict[str, str] = {}
        self._named = ""
        """What a command line in the text said about the next run."""
        self._headed = False
        """Whether the next header is the running benchmark's own."""
        self._expectant = False
        """Whether what comes next was announced: ``hints``, a slow search."""
        self._ran = False
        self._first = True

    def feed(self, data: bytes) -> list[Event]:
        """Return the events in these bytes."""
        return super().feed(data.replace(b"}", b"}\n"))

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        line = line[match.end() :] if (match := DATE.match(line)) else line
        line = line.rstrip()
        if not line or len(line) > MAX_RADOS_LINE_CHARACTERS:
            return
        first, self._first = self._first, False
        if '"' in line and (pairs := PAIR.findall(line)):
            yield from self._document(pairs)
        elif first and (match := REMOVED.match(line)):
            # This is all that `rados cleanup` prints.
            self._expectant = True
            yield from self._was_removed(match[1])
        elif (match := SUMMARY.match(line)) and (key := match[1].lower().replace(" ", "_")) in SUMMARY_KEYS:
            yield from self._summarize(key, match[2])
        else:
            yield from self._finish()
            yield from self._text(line)

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        yield from self._finish()
        yield from self._abandon()

    def _text(self, line: str) -> Iterator[Event]:
        if match := MAINTAINING.match(line):
            yield from self._begin("write", match[1], match[2])
            self._headed = True
        elif HEADER.match(line):
            if not (self._phase and self._headed):
                yield from self._begin(self._read())
            self._headed = False
        elif self._phase and (match := ROW.match(line)):
            yield from self._row(match[1], match[2], match[3])
        elif LATENCIES.match(line):
            self._headed = True
        elif line == "Cleaning up (deleting benchmark objects)":
            yield from self._known()
            self._cleaning, self._written = True, False
            self._removed = None
            yield Began("cleanup")
        elif match := REMOVED.match(line):
            yield from self._was_removed(match[1])
        elif self._cleaning and (match := CLEANED.match(line)):
            self._cleaning = False
            seconds = number(match[1])
            yield Ended("cleanup", _cleanup_results(self._removed, seconds, match[1]), seconds)
            if not self._phase:
                yield Completed()
        elif line == "hints = 1" or line == "Warning: using slow linear search":
            yield from self._abandon()
            self._expectant = True
        elif PROBLEM.match(line) and (self._phase or self._cleaning or self._expectant):
            yield from self._known()
            self._phase, self._cleaning, self._written = "", False, False
            yield Failed(line)
        elif match := COMMAND.search(line[:MAX_COMMAND_CHARACTERS]):
            # Prose names several modes.
            modes = {"cleanup"} if match[1] == "cleanup" else set(MODE.findall(line))
            self._named = modes.pop() if len(modes) == 1 else ""

    def _document(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Event]:
        for key, value in pairs:
            if key in PLAN_KEYS or key in ROW_KEYS:
                self._pairs[key] = value
            elif key in SUMMARY_KEYS and (self._summary or key == "total_time_run"):
                yield from self._summarize(key, value)
            if key == "datas" and self._pairs.keys() >= PLAN_KEYS:
                yield from self._begin("write", self._pairs["seconds_to_run"], self._pairs["max_objects"])
                self._pairs.clear()
            elif key == "avg_lat" and self._pairs.keys() >= ROW_KEYS:
                if not self._phase:
                    yield from self._begin(self._read())
                yield from self._row(self._pairs["sec"], self._pairs["finished"], self._pairs["cur_bw"])
                self._pairs.clear()

    def _begin(self, phase: str, seconds: str = "", objects: str | None = None) -> Iterator[Event]:
        yield from self._abandon()
        self._phase = phase
        self._expected, self._objects = _limit(seconds), _limit(objects)
        self._named = ""
        self._headed = self._expectant = False
        self._ran = True
        yield RunBegan()
        if phase not in READS:
            yield Began(phase, self._expected)

    def _read(self) -> str:
        return self._named if self._named in READS else READS[0]

    def _known(self) -> Iterator[Event]:
        if not self._ran:
            self._ran = True
            yield RunBegan()

    def _abandon(self) -> Iterator[Event]:
        if self._phase:
            yield Failed("the output ends before the summary")
        elif self._cleaning:
            yield Failed("the output ends before the clean-up does")
        elif self._written:
            yield Completed()
        self._phase, self._cleaning, self._written = "", False, False

    def _row(self, second: str, finished: str, rate: str) -> Iterator[Event]:
        passed, done, current = number(second), number(finished), number(rate)
        if passed is None or done is None:
            return
        shares = [passed / self._expected] if self._expected else []
        if self._objects:
            shares.append(done / self._objects)
        results: tuple[Result, ...] = ()
        # The first row is printed at once: there is no rate yet, so it shows 0 or -1.
        if passed > 0 and current is not None and current >= 0:
            results = (Result(_operation(self._phase), "bytes_per_second", current * MIB, f"{rate} MB/s"),)
        yield Rate(self._phase, results, min(1.0, max(0.0, *shares)) if shares else None, done)

    def _was_removed(self, objects: str) -> Iterator[Event]:
        if self._cleaning:
            self._removed = number(objects)
        elif self._expectant or self._named == "cleanup":
            yield from self._abandon()
            self._named, self._expectant, self._ran = "", False, True
            yield RunBegan()
            yield Ended("cleanup", _cleanup_results(number(objects), None, ""))
            yield Completed()

    def _summarize(self, key: str, value: str) -> Iterator[Event]:
        if key == "total_time_run":
            self._summary = {}
        elif not self._summary:
            return
        self._summary[key] = value
        if key == "min_latency":
            yield from self._finish()

    def _finish(self) -> Iterator[Event]:
        """Give the results of the summary that its last line, or another one, has ended."""
        summary, self._summary = self._summary, {}
        writes = "total_writes_made" in summary
        if "bandwidth" not in summary or not (writes or "total_reads_made" in summary):
            return
        if not self._phase:
            yield from self._abandon()
            self._ran = True
            yield RunBegan()
        phase = "write" if writes else self._phase if self._phase in READS else self._read()
        self._phase = self._named = ""
        self._written = writes
        yield Ended(phase, _results(summary, _operation(phase)), number(summary["total_time_run"]))
        if not writes:
            yield Completed()


def _limit(figure: str | None) -> float | None:
    """Return a limit of a run, None for 0, which means no limit."""
    return found if (found := number(figure)) is not None and found > 0 else None


def _operation(phase: str) -> str:
    return "write" if phase == "write" else "read"


def _results(summary: Mapping[str, str], operation: str) -> tuple[Result, ...]:
    wanted = (
        ("bandwidth", operation, "bytes_per_second", MIB, "MB/sec"),
        ("average_iops", operation, "operations_per_second", 1, "IOPS"),
        ("average_latency", "average_latency", "seconds", 1, "s"),
        ("max_latency", "max_latency", "seconds", 1, "s"),
    )
    found = []
    for key, name, unit, factor, printed in wanted:
        if (value := number(summary.get(key))) is not None:
            found.append(Result(name, unit, value * factor, f"{summary[key]} {printed}"))
    return tuple(found)


def _cleanup_results(objects: float | None, seconds: float | None, printed: str) -> tuple[Result, ...]:
    if objects is None:
        return ()
    count = Result("removed", "operations", objects, f"{objects:.0f} objects")
    if not seconds or (rate := number(objects / seconds)) is None:
        return (count,)
    return (Result("removed", "operations_per_second", rate, f"{objects:.0f} objects in {printed} s"), count)


class RadosBench(Benchmark):
    """One ``rados bench`` or ``rados cleanup``."""

    name = "rados_bench"
    comms = frozenset({"rados"})
    reader = RadosReader
    documented = (
        Documented(
            "rados bench",
            "`write`, `seq`, `rand`, `cleanup`",
            "names of its threads",
            "rows each second, summary, JSON",
            "standard output, also in JSON",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is one of the two commands."""
        return super().leads(tree, pid) and words(tree.argv(pid))[:1] in (["bench"], ["cleanup"])

    def __init__(self, tree: Tree, leader: int) -> None:
        argv = tree.argv(leader)
        found = words(argv)
        modes = ("cleanup",) if found[:1] == ["cleanup"] else ("write", *READS)
        self._mode = next((word for word in found if word in modes), None)
        self._expected = next((float(word) for word in found if word.isdecimal() and len(word) < 10), None) or None
        self._cleans = self._mode == "write" and "--no-cleanup" not in argv
        self._printed = False
        """Whether there was a thread that prints rows."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the phase: by the thread that prints, else by the command line."""
        total = 2 if self._cleans else 1
        if self._mode == "cleanup":
            return Sight(State.RUNNING, "cleanup", PhaseSource.ARGV, number=1, total=total)
        names = tree.thread_names(leader)
        phase = next((PRINTERS[name] for name in names.values() if name in PRINTERS), None)
        if phase is not None:
            self._printed = True
            return Sight(State.RUNNING, phase, PhaseSource.THREAD, expected=self._expected, number=1, total=total)
        if not names and not self._printed and self._mode is not None:
            return Sight(State.RUNNING, self._mode, PhaseSource.ARGV, vague=True, expected=self._expected, total=total)
        if self._printed and self._cleans:
            return Sight(State.RUNNING, "cleanup", PhaseSource.THREAD, number=2, total=total)
        return Sight(State.BETWEEN if self._printed else State.SETUP, total=total)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event under the name of our phase: its text doesn't distinguish the two reads."""
        if event.phase in READS and self._mode in READS:
            return msgspec.structs.replace(event, phase=str(self._mode))
        ours = event.phase == self._mode or (event.phase == "cleanup" and self._cleans)
        return event if ours else None
