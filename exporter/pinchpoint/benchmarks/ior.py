"""IOR: each row of its table is a phase, ``write``, ``read`` or ``remove``; repetitions and tests repeat them.

A row comes when its phase is over. Until then the data file that rank 0 has open shows what goes on: its access mode
shows the operation, its position the progress. Before 4.0 files to be read are opened for writing too (``POSIX_Open``
in src/aiori-POSIX.c, 3.3.0): then it is a read if the write's row has been printed, or the only write is over.

Formats: src/C/IOR.c (2.10.3), src/ior.c (3.0.1), src/ior-output.c (3.2.0 to 4.1.0+dev).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, NamedTuple

import msgspec

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    PhaseSource,
    Rate,
    RunBegan,
    State,
    phase_name,
)
from pinchpoint.benchmarks.mpi import is_first_rank, unprefixed
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tail import Tail
from pinchpoint.benchmarks.tree import OpenFile, Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result
from pinchpoint.units import BYTES_PER_GIBIBYTE, BYTES_PER_MEBIBYTE

__all__ = [
    "NUMBER",
    "TABLE",
    "WALL",
    "Ior",
    "IorPlan",
    "IorReader",
    "ResultRow",
    "ResultTable",
    "error",
    "options",
    "plans",
    "size",
]

MAX_ROW_CHARACTERS = 512
"""Longest row in characters (12 columns of about 10); words are searched for only in this part of a line."""
ROWS = frozenset({"write", "read", "remove"})
MAX_BREAK_LINES = 8
"""Lines of other ranks that may come within a row."""
MAX_SCRIPT_BYTES = 1 << 20
"""Longest script that is read, in bytes."""
MAX_TESTS = 1024
"""Tests that are read from one script."""
MAX_ERROR_LINE_CHARACTERS = 4096
"""Part of a line that is searched for an error, in characters: it holds a path."""
MAX_REASON_CHARACTERS = 300
"""Longest reason of a failure, in characters."""

VERSION = expression(r"\bIOR-\d[\w.+-]*: MPI Coordinated Test of Parallel I/O")
ENVIRONMENT, ENVIRONMENT_END = "STARTING ENVIRON LOOP", "ENDING ENVIRON LOOP"
"""Everything between (with -vvv) is ignored."""
TABLE = expression(r"^(?>.*?\b(?=access\s+bw\(MiB/s\)))(.*\biter\b)")
CSV = "access,bw(MiB/s),"
FIGURE = r"(?:\d+(?:\.\d+)?|-?inf|-?nan|-)"
COMMENCING = expression(r"\bCommencing (\w+) performance test")
CHECKS = (
    ("Verifying contents of the file(s) just written.", "writecheck"),
    ("Re-reading the file(s) twice to verify", "readcheck"),
)
"""Phases that give no row; the second one is of 3.1 and before."""
BEST = expression(r"\bMax (Write|Read):\s+(\d[\d.]*) MiB/sec")
SUMMARY = expression(r"\b(write|read)\s+(?:\d+\.\d\d\s*){4}(\d+\.\d\d)\s*(?:\d+\.\d\d\s*){3}(\d+\.\d{5})\s.*EXCEL")
"""``SummarizeResults`` of 2.10.3: maximum, minimum, mean and deviation of MiB/s and of operations, mean seconds."""
TASKS = expression(r"\s*(?:tasks\s*:|clients\s*=)\s*([1-9]\d{0,8})\b")
"""How many ranks there are: ``tasks : 2`` (3.2 and later), ``clients = 2 (2 per node)`` (before)."""
NUMBER = r"\d{1,18}(?:\.\d{1,12})?"
WALL = expression(
    rf"\bstonewalling pairs accessed min: (\d{{1,18}}) max: (\d{{1,18}}) -- min data: {NUMBER} GiB "
    rf"mean data: ({NUMBER}) GiB time: ({NUMBER})s"
)
"""What the ranks had written at the stonewall if they go on after it (``WriteOrRead``, src/ior.c, 3.1 and later)."""
MIN_WALL_GIBIBYTES = 1.0
MIN_WALL_SECONDS = 5.0
"""Mean data and time from which they give a rate: both have one decimal."""
FINISHED = expression(r"\b(?:Run finished|Finished\s*): ")
JSON_BEGAN = expression(r'"Began"\s*:\s*"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}"')
JSON_FIELD = expression(r'"(access|bwMiB|iops|totalTime|Finished)"\s*:\s*(?:"([^"\\]{0,64})"|([-+.\w]{1,64}))')
ACCESSES = frozenset({"file-per-process", "single-shared-file"})
"""Values of the option ``access``."""
ERRORS = (
    # ERR and MPI_CHECK: iordef.h (2.10.3 and later), aiori-debug.h (4.0.0); FAIL: utilities.h, utilities.c
    # Only the text after the first one is searched: what ends a later one ends this one, too.
    expression(r"^(?>.*?\bERROR: )(.*\([\w./-]++(?<=\.c):\d+\))"),
    expression(r"\bERROR in ([\w./-]+\.c \(line \d+\): .*)"),
    expression(r"\bProcess \d+(?:\([^()]*+\))?: (FAILED (?:in|at) .*)"),
)


def error(line: str) -> str | None:
    """Return why IOR or mdtest stops, if a line says so, in the program's own words."""
    if "ERROR" not in line and "FAILED" not in line:
        return None
    line = line[:MAX_ERROR_LINE_CHARACTERS]
    found = next((match for pattern in ERRORS if (match := pattern.search(line)) is not None), None)
    return None if found is None else found[1].strip()[:MAX_REASON_CHARACTERS]


class IorReader(OutputReader):
    """Reads the standard output, be it the table, CSV or JSON.

    The JSON is read field by field as it comes: 3.2.0 writes invalid JSON (``[ ]`` in an object), and every version
    prints warnings in the middle of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running = False
        self._finishes = True
        """Whether the output reports the end of the run: CSV doesn't."""
        self._failed = False
        self._begun = ""
        self._hidden = False
        self._table: ResultTable | None = None
        self._rows = False
        self._summary: dict[str, tuple[str, str]] = {}
        self._document = False
        self._access = ""
        self._figures: dict[str, str] = {}
        self._tasks = 0
        self._wall: Result | None = None
        """The rate until the stonewall of the phase whose row comes next."""

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        line = unprefixed(line)
        head = line[:MAX_ROW_CHARACTERS]
        if self._hidden:
            self._hidden = ENVIRONMENT_END not in line and not TABLE.search(head)
            if self._hidden:
                return
        if VERSION.search(head):
            yield from self._begin()
        elif JSON_BEGAN.search(line):
            if not (self._running and not self._rows and self._table is None):
                yield from self._begin()
            self._document = True
            yield from self._fields(line)
        elif line.startswith(CSV):
            if not self._running:
                yield from self._begin()
            self._finishes = False
            self._table = ResultTable(line.strip().split(","), ",")
        elif match := TABLE.search(head):
            if not self._running:
                yield from self._begin()
                self._finishes = False
            self._table = ResultTable(match[1].split())
        elif self._running:
            yield from self._inside(line, head)

    def _begin(self) -> Iterator[Event]:
        self._running = self._finishes = True
        self._failed = self._rows = self._document = self._hidden = False
        self._begun = self._access = ""
        self._table = None
        self._summary = {}
        self._tasks, self._wall = 0, None
        yield RunBegan()

    def _inside(self, line: str, head: str) -> Iterator[Event]:
        if ENVIRONMENT in line:
            self._hidden = True
        elif "summaryFormat=CSV" in line:
            self._finishes = False
        elif self._table is not None and (row := self._table.row(line)) is not None:
            self._rows = True
            ended, wall = _ended(row.access, row.bandwidth, row.operations, row.seconds), self._wall
            self._wall = None
            yield from self._ended(
                ended if wall is None else msgspec.structs.replace(ended, results=(*ended.results, wall))
            )
        elif match := WALL.search(head):
            self._wall = _wall(match, self._tasks)
        elif match := TASKS.match(head):
            self._tasks = int(match[1])
        elif self._document and '"' in line:
            yield from self._fields(line)
        elif match := COMMENCING.search(head):
            yield from self._began(phase_name(match[1]))
        elif check := next((phase for text, phase in CHECKS if text in line), None):
            yield from self._began(check)
        elif match := SUMMARY.search(head):
            self._summary[match[1]] = (match[2], match[3])
        elif match := BEST.search(head):
            if not self._rows:
                operations, seconds = self._summary.get(access := match[1].lower(), ("", ""))
                yield from self._ended(_ended(access, match[2], operations, seconds))
        elif FINISHED.search(head):
            yield from self._finish()
        elif not self._failed and (reason := error(line)) is not None:
            self._failed = True
            yield Failed(reason)

    def _fields(self, line: str) -> Iterator[Event]:
        for match in JSON_FIELD.finditer(line):
            key, value = match[1], match[2] if match[2] is not None else match[3]
            if key == "Finished":
                yield from self._finish()
            elif key == "access":
                self._access = "" if value in ACCESSES else phase_name(value)
                self._figures = {}
            elif key != "totalTime":
                self._figures[key] = value
            elif self._access:
                self._rows = True
                figures = self._figures
                yield from self._ended(_ended(self._access, figures.get("bwMiB", ""), figures.get("iops", ""), value))
                self._access = ""

    def _began(self, phase: str) -> Iterator[Event]:
        if self._begun in _CHECKED:
            yield Ended(self._begun)
        self._begun = phase
        yield Began(phase)

    def _ended(self, event: Ended) -> Iterator[Event]:
        if self._begun in _CHECKED:
            yield Ended(self._begun)
        self._begun = ""
        yield event

    def _finish(self) -> Iterator[Event]:
        if self._begun in _CHECKED:
            yield Ended(self._begun)
        self._begun = ""
        self._running = False
        if not self._failed:
            yield Completed()

    def end(self) -> Iterable[Event]:
        """Return that the run is incomplete if the expected report of its end never came."""
        if self._running and self._finishes and not self._failed:
            self._failed = True
            yield Failed("the output ends before IOR says that it finished")


_CHECKED = frozenset(phase for _, phase in CHECKS)


class ResultRow(NamedTuple):
    """A row of the table, as printed; empty where its version has no such column."""

    access: str
    bandwidth: str
    """MiB/s."""
    operations: str
    """Transfers per second."""
    opening: str
    """Seconds from the beginning of the first rank's open() to the end of the last one's (``ReduceIterResults``)."""
    moving: str
    """The same of the transfers."""
    closing: str
    """The same of close()."""
    seconds: str


class ResultTable:
    """Rows under a header, which names the columns."""

    def __init__(self, columns: Sequence[str], separator: str = "") -> None:
        self._columns = {name: index for index, name in enumerate(columns)}
        self._separator = separator
        count = max(len(columns), 3) - 2
        # Exactly this many figures: rows of the summary begin with the same words. 2.10.3 ends each row with a mark.
        self._row = re.compile(rf"\b(write|read|remove)((?:\s+{FIGURE}){{{count}}})\s+(\d+)\s*(?:XXCEL\s*)?$")
        self._piece = ""
        self._breaks = 0

    def row(self, line: str) -> ResultRow | None:
        """Return a line as a row, None for any other line."""
        if len(line) > MAX_ROW_CHARACTERS:
            return None
        if self._separator:
            words = [word.strip() for word in line.split(self._separator)]
            if len(words) != len(self._columns) or words[0] not in ROWS:
                return None
            return self._cells(words)
        match = self._row.search(line) or self._mended(line)
        return None if match is None else self._cells([match[1], *match[2].split(), match[3]])

    def _mended(self, line: str) -> re.Match[str] | None:
        """Return a row interrupted by lines of other ranks: all that was printed of it since its beginning."""
        start = re.match(r"\s*(?:write|read|remove)\s[\s\d.-]*", line)
        more = re.match(r"[\s\d.-]+", line) if self._piece else None
        if start is not None:
            rest = line[start.end() :]
            self._piece, self._breaks = (start[0], 0) if rest[:1].isalpha() else ("", 0)
        elif more is not None:
            self._piece += more[0]
            if (match := self._row.search(self._piece[:MAX_ROW_CHARACTERS])) is not None:
                self._piece = ""
                return match
        self._breaks += 1
        if self._breaks > MAX_BREAK_LINES or len(self._piece) > MAX_ROW_CHARACTERS:
            self._piece = ""
        return None

    def _cells(self, cells: Sequence[str]) -> ResultRow:
        names = ("bw(MiB/s)", "IOPS", "open(s)", "wr/rd(s)", "close(s)", "total(s)")
        found = (cells[self._columns[name]] if name in self._columns else "" for name in names)
        return ResultRow(cells[0], *found)


def _ended(access: str, bandwidth: str, operations: str, seconds: str) -> Ended:
    phase = phase_name(access)
    results = []
    for figure, unit, factor, printed in (
        (bandwidth, "bytes_per_second", BYTES_PER_MEBIBYTE, "MiB/s"),
        (operations, "operations_per_second", 1, "IOPS"),
    ):
        if (value := number(figure)) is not None:
            results.append(Result(phase, unit, value * factor, f"{figure} {printed}"))
    length = number(seconds)
    if not results and length is not None:
        # For the removal only its time is printed.
        results.append(Result(phase, "seconds", length, f"{seconds} s"))
    return Ended(phase, tuple(results), length)


def _wall(found: re.Match[str], tasks: int) -> Result | None:
    """Return the rate until the stonewall, None if its figures are too small to give one."""
    data, seconds = float(found[3]), float(found[4])
    if not tasks or data < MIN_WALL_GIBIBYTES or seconds < MIN_WALL_SECONDS:
        return None
    printed = f"{found[3]} GiB of {tasks} ranks each in {found[4]} s"
    return Result("stonewall", "bytes_per_second", data * tasks * BYTES_PER_GIBIBYTE / seconds, printed)


def options(argv: Sequence[str], valued: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the short options of a command line with their values; those of `valued` have one.

    As ``option_parse_token`` (src/option.c, IOR 4.0.0) and getopt before it: ``-b 4m``, ``-b4m``, ``-b=4m``, ``-wr``.
    """
    words = deque(argv[1:])
    while words:
        word = words.popleft()
        if not word.startswith("-") or word.startswith("--"):
            continue
        for index, letter in enumerate(word[1:], 1):
            if letter not in valued:
                yield letter, ""
                continue
            rest = word[index + 1 :].removeprefix("=")
            if not rest and not word.endswith("=") and words:
                rest = words.popleft()
            yield letter, rest
            break


def size(text: str) -> int:
    """Return a number with its unit, as ``string_to_bytes`` (src/option.c, IOR 4.0.0); 0 without one."""
    match = re.match(r"\s*(\d{1,18})\s*([kmgtp]?)", text, re.IGNORECASE)
    return 0 if match is None else int(match[1]) << " kmgtp".index(match[2].lower() or " ") * 10


class IorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one test."""

    phases: tuple[str, ...]
    """Its phases that move data, in order."""
    api: str
    """Its backend, in lower case."""
    files: tuple[str, ...]
    """Names of the data files, without directories and what ranks add."""
    block: int
    segments: int
    per_process: bool
    random: bool
    fsync: bool
    stonewall: int
    """Seconds after which a write or read stops."""
    repetitions: int

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> IorPlan:
        """Return the plan that these settings make, by their names in lower case."""

        def number_of(key: str, default: int) -> int:
            return size(settings[key]) if key in settings else default

        def whether(key: str) -> bool:
            return number_of(key, 0) != 0

        write, read = whether("writefile"), whether("readfile") or whether("checkread")
        if not (write or read or whether("checkwrite")):
            write = read = True  # CheckRunSettings (src/parse_options.c)
        phases = (("write", write), ("writecheck", whether("checkwrite")), ("read", read))
        return cls(
            phases=tuple(phase for phase, planned in phases if planned),
            api=settings.get("api", "POSIX").lower(),
            files=tuple(os.path.basename(path) for path in settings.get("testfile", "testFile").split("@")),
            block=number_of("blocksize", 1 << 20),
            segments=number_of("segmentcount", 1),
            per_process=whether("fileperproc"),
            random=whether("randomoffset"),
            fsync=whether("fsync"),
            stonewall=number_of("deadlineforstonewalling", 0),
            repetitions=number_of("repetitions", 1),
        )


VALUED = frozenset("aAbdDfGijJlMNoOQstTUX")
"""Options with a value: ``ParseCommandLine`` (src/parse_options.c), 3.0.1 and 4.0.0."""
LETTERS = {
    "a": "api",
    "b": "blocksize",
    "D": "deadlineforstonewalling",
    "e": "fsync",
    "F": "fileperproc",
    "i": "repetitions",
    "o": "testfile",
    "r": "readfile",
    "R": "checkread",
    "s": "segmentcount",
    "w": "writefile",
    "W": "checkwrite",
    "z": "randomoffset",
}
"""Relevant options by their names in a script or -O (``DecodeDirective``), in lower case."""


def _directives(line: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a line, as ``ParseLine`` reads them: ``KEY=VALUE,KEY=VALUE # comment``."""
    for directive in line.partition("#")[0].split(","):
        key, equals, value = directive.partition("=")
        if equals:
            yield key.strip().lower(), value.strip()


def settings(argv: Sequence[str]) -> dict[str, str]:
    """Return the relevant settings of a command line."""
    found: dict[str, str] = {}
    for letter, value in options(argv, VALUED):
        if letter == "O":
            found.update(_directives(value))
        elif letter in LETTERS:
            found[LETTERS[letter]] = value if letter in VALUED else "1"
    return found


def plans(argv: Sequence[str], script: str = "") -> list[IorPlan]:
    """Return the tests of a command line, or of the script that it names (``ReadConfigScript``)."""
    current = settings(argv)
    found: list[IorPlan] = []
    inside = begun = False
    for line in map(str.strip, script.splitlines()):
        word = line.lower()
        if not inside:
            inside = word == "ior start"
        elif word == "ior stop" or len(found) >= MAX_TESTS:
            break
        elif word == "run":
            found.append(IorPlan.of(current))
            begun = False
        elif line and not line.startswith("#"):
            # Settings carry over from one test to the next.
            current.update(_directives(line))
            begun = True
    return [*found, IorPlan.of(current)] if begun or not found else found


class _Pass(NamedTuple):
    """One pass through a file, from open to close."""

    file: OpenFile
    offset: int
    writes: bool


FILE_APIS = frozenset({"posix", "mpiio", "mmap", "hdf5", "ncmpi", "aio"})
"""Backends that use the kernel's files."""


class Ior(Benchmark):
    """One ior, seen at rank 0."""

    name: ClassVar[str] = "ior"
    comms: ClassVar[Collection[str]] = frozenset({"ior", "IOR"})
    reader: ClassVar[type[OutputReader]] = IorReader
    hint: ClassVar[str] = "with -O summaryFile its results go into that file, which root can read"
    documented = (
        Documented(
            "ior",
            "`write`, `read`, `remove`",
            "mode and position of the data file",
            "its rows, JSON, CSV, `summaryFile`",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is rank 0."""
        return is_first_rank(tree, pid, cls.comms)

    def __init__(self, tree: Tree, leader: int) -> None:
        argv = tree.argv(leader)
        script = next((value for letter, value in options(argv, VALUED) if letter == "f"), "")
        tests = plans(argv, _script(tree, leader, script))
        phases = {test.phases for test in tests}
        self._phases = phases.pop() if len(phases) == 1 else ()
        """The phases of a repetition, if all tests have the same."""
        self._test = tests[0] if len(tests) == 1 else None
        self._files = {name for test in tests for name in test.files if name}
        self._opens = any(test.api in FILE_APIS for test in tests)
        self._positioned = all(test.api == "posix" for test in tests)
        """Whether positions show progress: other backends read and write at their own offsets."""
        self._jumps = any(test.random for test in tests)
        self._results = os.path.basename(settings(argv).get("summaryfile", ""))
        """The file into which its results go instead of its output (-O summaryFile)."""
        self._tail: Tail | None = None
        self._reader = IorReader()
        self._pass: _Pass | None = None
        self._seen = False
        self._told = ""
        """The phase whose row was printed last."""
        self._by_mode = False
        """Whether files to be read are opened for reading only."""
        self._writes = self._reads = 0
        """Passes seen of a file open for writing, and of one open for reading since."""
        self._work = 0

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event of the output unchanged, and note the run's progress."""
        if isinstance(event, Ended):
            self._told = event.phase
        return event

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return what can be seen now."""
        try:
            files = tree.open_files(leader) if self._opens or self._results else []
        except PermissionError:
            return self._by_plan(("descriptors",))
        sight = self._seen_by(tree, leader, files) if self._opens else self._by_plan()
        return msgspec.structs.replace(sight, events=tuple(self._written(tree, leader, files)))

    def last_words(self) -> tuple[Event, ...]:
        """Return the last events from the result file."""
        if self._tail is None:
            return ()
        tail, self._tail = self._tail, None
        return (*self._reader.feed(tail.close()), *self._reader.close())

    def _written(self, tree: Tree, leader: int, files: Sequence[OpenFile]) -> Iterator[Event]:
        """Yield the events from the result file since the last look."""
        if self._tail is None and self._results:
            # Until rank 0 opens it, it may belong to an earlier run.
            path = next((file.path for file in files if os.path.basename(file.path) == self._results), None)
            if path is not None:
                with suppress(OSError):
                    self._tail = Tail(tree, leader, path)
        if self._tail is not None:
            yield from self._reader.feed(self._tail.read())

    def _seen_by(self, tree: Tree, leader: int, files: Sequence[OpenFile]) -> Sight:
        file = next((file for file in files if self._holds_data(file.path)), None)
        if file is None:
            self._pass = None
            return Sight(State.BETWEEN if self._seen else State.SETUP)
        if (position := tree.position(leader, file.descriptor)) is None:
            return self._by_plan(("descriptors",))
        self._seen = True
        self._follow(file, position.offset, writes=position.writes)
        phase = self._named(writes=position.writes)
        progress = self._progress(position.offset)
        test = self._test
        state = State.RUNNING
        if test is not None and phase == "write" and test.fsync and progress == 1.0:
            state = State.SYNCING
        return Sight(
            state,
            phase,
            PhaseSource.DATA_FD,
            progress=progress,
            work=self._work if self._positioned else None,
            expected=self._expected(phase),
        )

    def _by_plan(self, blind: tuple[str, ...] = ()) -> Sight:
        """Return what the command line alone shows."""
        phase = self._phases[0] if len(self._phases) == 1 else None
        expected = self._expected(phase) if phase else None
        return Sight(State.RUNNING, phase or self.name, vague=phase is None, expected=expected, blind=blind)

    def _expected(self, phase: str | None) -> float | None:
        stonewall = self._test.stonewall if self._test is not None else 0
        return float(stonewall) if phase == "write" and stonewall > 0 else None

    def _holds_data(self, path: str) -> bool:
        # Ranks add .00000001, repetitions .1 to the name, and a directory of their own (``GetTestFileName``).
        name = os.path.basename(path.removesuffix(" (deleted)"))
        return path.startswith("/") and any(name == own or name.startswith(f"{own}.") for own in self._files)

    def _follow(self, file: OpenFile, offset: int, *, writes: bool) -> None:
        before, self._pass = self._pass, _Pass(file, offset, writes)
        goes_on = before is not None and (before.file, before.writes) == (file, writes)
        if before is not None and goes_on and (offset >= before.offset or self._jumps):
            self._work += abs(offset - before.offset)
        else:
            self._writes += writes
            self._reads = 0 if writes else self._reads + 1

    def _named(self, *, writes: bool) -> str:
        phases = self._phases
        reading = [phase for phase in phases if phase != "write"] or ["read"]
        self._by_mode |= not writes
        if not writes:
            return reading[min(self._reads, len(reading)) - 1]
        if "write" not in phases and phases:
            return reading[-1]
        if self._by_mode or self._test is None or len(phases) < 2:
            return "write"
        if self._told in phases:
            return phases[(phases.index(self._told) + 1) % len(phases)] if self._told in ("write", "read") else "write"
        if self._test.repetitions == 1 and self._writes > 1:
            return phases[min(self._writes, len(phases)) - 1]
        return "write"

    def _progress(self, offset: int) -> float | None:
        test = self._test
        if test is None or test.random or test.stonewall or not test.block or not self._positioned:
            return None
        if test.per_process:
            return min(1.0, offset / (test.block * max(1, test.segments)))
        if test.segments != 1:
            return None
        # In a shared file each rank has a block; with -C it reads another one than it wrote.
        return ((offset - 1) % test.block + 1) / test.block if offset > 0 else 0.0


def _script(tree: Tree, leader: int, path: str) -> str:
    if not path:
        return ""
    try:
        return tree.read_file(leader, path, MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
