"""ceph tell osd.N bench: an OSD writes to its own store while the command waits for the answer.

The OSD does the work: none of it shows in the command's process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.ceph_words import words
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, RunBegan, State
from pinchpoint.benchmarks.output import Documents, OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["OsdBench", "OsdBenchReader"]

PHASE = "write"
PREFIX = expression(r"osd\.\d+: (?=\{)")
"""In front of each answer to `ceph tell osd.* bench` (``main`` in src/ceph.in, Ceph 16.2)."""
SENTENCE = expression(
    # In the cluster log of old releases (Ceph 0.47), whose prettybyte_t writes 2^20 as MB.
    r"\bbench: wrote (?P<bytes>\d+) (?P<unit>[kKMGT]?B|bytes) in blocks of \S+ \w+"
    r" in (?P<seconds>[\d.e+-]+) sec at (?P<rate>\d+) (?P<rate_unit>[kKMGT]?B|bytes)/sec"
)
SHIFTS = {"B": 0, "BYTES": 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}
FIGURE = expression(r'"(bytes_per_sec|iops)"\s*:\s*"?([-+.\deE]+)')
MAX_OSD_LINE_CHARACTERS = 4096
"""Lines longer than this, in characters, are not from an OSD."""


class OsdBenchReader(OutputReader):
    """Reads JSON documents, including crimson's (``osd_bench_results``), and the sentence of old releases."""

    def __init__(self) -> None:
        super().__init__()
        self._documents = Documents()
        self._ours = False
        """Whether the current document is an answer to `bench`."""
        self._printed: dict[str, str] = {}
        """The figures of the current document, as printed."""
        self._prefixed = self._follows = False
        """Whether the document has an OSD's name in front, and whether it follows another such document."""

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        if not self._documents.inside and line.strip():
            prefix = PREFIX.match(line)
            line = line[prefix.end() :] if prefix else line
            self._prefixed = prefix is not None
            self._follows = self._follows and self._prefixed
        self._printed.update(FIGURE.findall(line))
        for document in self._documents.feed(line):
            nested = document.get("osd_bench_results")
            answer = nested if isinstance(nested, dict) else document
            if results := _results(answer, self._printed):
                if not self._follows:
                    yield RunBegan()
                self._follows = self._prefixed
                yield Ended(PHASE, results, _seconds(answer))
                yield Completed()
        inside = self._documents.inside
        if not inside:
            self._printed.clear()
        self._ours = inside and (self._ours or '"bytes_written"' in line)
        if not inside and len(line) <= MAX_OSD_LINE_CHARACTERS and (match := SENTENCE.search(line)):
            yield RunBegan()
            value = float(match["rate"][:18]) * (1 << SHIFTS[match["rate_unit"].upper()])
            printed = f"{match['rate']} {match['rate_unit']}/sec"
            yield Ended(PHASE, (Result(PHASE, "bytes_per_second", value, printed),), number(match["seconds"]))
            yield Completed()

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        if self._documents.inside and self._ours:
            yield RunBegan()
            yield Failed("the output ends before the result does")


def _results(answer: Mapping[str, Any], figures: Mapping[str, str]) -> tuple[Result, ...]:
    # Older releases print figures as strings, "97843263.000000".
    if not answer.keys() >= {"bytes_written", "blocksize", "bytes_per_sec"}:
        return ()
    found = []
    for key, unit, printed in (
        ("bytes_per_sec", "bytes_per_second", "bytes/s"),
        ("iops", "operations_per_second", "IOPS"),
    ):
        if (value := number(answer.get(key))) is not None:
            found.append(Result(PHASE, unit, value, f"{figures.get(key, value)} {printed}"))
    return tuple(found)


def _seconds(answer: Mapping[str, Any]) -> float | None:
    """Return how long it took; in older releases the answer has only the bytes and their rate."""
    if (seconds := number(answer.get("elapsed_sec"))) is not None:
        return seconds
    written, rate = number(answer.get("bytes_written")), number(answer.get("bytes_per_sec"))
    return number(written / rate) if written and rate else None


class OsdBench(Benchmark):
    """One ``ceph tell osd.N bench``, or ``ceph daemon osd.N bench`` on the OSD's own host."""

    name = "ceph_osd_bench"
    comms = frozenset({"ceph", "python3"})
    """A script started through its ``#!`` line has its own name; ``python3 ceph`` has not."""
    reader = OsdBenchReader
    documented = (Documented("`ceph tell osd.N bench`", "`write`", "command line", "JSON; old releases: a sentence"),)

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is the command, and was not started by the command itself."""
        parent = tree.processes[pid].ppid
        if tree.comm(parent) in cls.comms and _benches(tree.argv(parent)):
            return False
        return _benches(tree.argv(pid))

    def __init__(self, tree: Tree, leader: int) -> None:
        """There is nothing to plan."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return its only phase."""
        return Sight(State.RUNNING, PHASE, PhaseSource.ARGV, number=1, total=1)


def _benches(argv: Sequence[str]) -> bool:
    # python3 /usr/bin/ceph ...
    start = next((index for index, word in enumerate(argv[:4]) if word.rpartition("/")[2] == "ceph"), None)
    if start is None:
        return False
    command = words(argv[start:])[:3]
    return (
        len(command) == 3
        and command[0] in ("tell", "daemon")
        and command[1].startswith("osd.")
        and command[2] == "bench"
    )
