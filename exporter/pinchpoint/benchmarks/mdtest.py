"""mdtest: the rows of its summary are its phases, ``file_creation``, ``directory_stat`` and so on.

Without -v it prints nothing between its start and the summary, where all phases come at once with their rates. With -v
each phase is announced, and the results of an iteration come after its directories or files; then the summary's rows
are not counted again.

Looks cannot distinguish phases without an open file (stat, removal, all of directories). Creation and reading open
``file.mdtest.RANK.NUMBER`` in turn; the number counts up, and reading starts over.

Formats: mdtest.c of 1.9.4-rc1, and src/mdtest.c of IOR 3.2.0 to 4.1.0+dev.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
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
    RunBegan,
    State,
    phase_name,
)
from pinchpoint.benchmarks.ior import error, options, size
from pinchpoint.benchmarks.mpi import is_first_rank, unprefixed
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Mdtest", "MdtestReader"]

MAX_MDTEST_LINE_CHARACTERS = 1200
"""Part of a line that is searched for words, in characters: ``VerboseMessage`` cuts its text at 1024."""
MAX_SUMMARY_ROWS = 32
"""Maximum number of rows read from a summary; there are 10 labels."""
MAX_UNSEEN_SECONDS = 2.0
"""Seconds for which a phase counts as active without a visible open file: files are open only for an instant."""

STARTED = expression(r"-- started at [^-]*+--")
FINISHED = expression(r"-- finished at [^-]*+--")
VERSION = expression(r"\bmdtest-(\d{1,4})\.(\d{1,4})\S{0,64} was launched with (\d{1,9}) total task")
COMMAND = "Command line used:"
ITEMS = expression(r"(\d{1,9}) tasks, (\d{1,18}) (files/directories|files|directories)\b")
SUMMARY = expression(r"\bSUMMARY(?: (rate|time))?(?: \(in [\w/]+\))?: \(of (\d{1,9}) iterations\)")
LABEL = r"((?:Directory|File|Tree) [a-z]+)(?: (\(stonewall\)))?(?:\s*+:)?\s++"
FIGURE = r"(?:\d+(?:\.\d+)?|NA|-?nan|-?inf)"
ROW = expression(rf"\b{LABEL}({FIGURE}(?:\s+{FIGURE}){{3}}(?:(?:\s+{FIGURE}){{3}})?)\s*$")
"""Four figures, or three more before them with --showRankStatistics: in any other row the figures are ambiguous."""
LIVE = expression(rf"\b{LABEL}(\d+\.\d+) sec,\s+(\d+\.\d+) ops/sec")
ENTERING = expression(
    r"\bEntering (directory_test|file_test|create_remove_directory_tree|create_remove_items|mdtest_\w+)\b"
)
ITERATION = expression(r"\bmain: \* iteration \d+ ")
STONEWALL = expression(r"\bContinue stonewall hit min: \d+ max: (\d{1,18}) ")
UNVERIFIED = "ERROR: verifying the data"
STEPS = {"mdtest_stat": "stat", "mdtest_read": "read", "mdtest_rename": "rename"}
PER_RANK_SINCE = (3, 4)
"""Version from which -v prints the rates of rank 0 only (3.4.0+dev; sums before)."""


class _Row(msgspec.Struct):
    """A phase in a summary: maximum, minimum, mean and deviation, as printed."""

    rates: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    stonewall: str = ""


class MdtestReader(OutputReader):
    """Reads the standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._running = self._failed = False
        self._finishes = True
        """Whether the output reports the end of the run: a summary alone doesn't."""
        self._reset()

    def _reset(self) -> None:
        self._tasks = 1
        self._per_rank = False
        self._plan = MdtestPlan((), ())
        self._clear()

    def _clear(self) -> None:
        """Begin a test: with -f and -s there are several, each with a different number of tasks."""
        self._items = 0
        self._hits: list[int] = []
        self._iterations = 0
        self._times = False
        self._rows: dict[str, _Row] = {}
        self._valid = True
        self._live: set[str] = set()
        self._kind = ""
        self._stage = 0
        self._begun = ""

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        line = unprefixed(line)
        head = line[:MAX_MDTEST_LINE_CHARACTERS]
        if STARTED.search(head):
            yield from self._flush()
            yield from self._begin()
        elif match := VERSION.search(head):
            if not self._running:
                yield from self._begin()
            self._per_rank = (int(match[1]), int(match[2])) >= PER_RANK_SINCE
            self._tasks = max(1, int(match[3]))
        elif match := SUMMARY.search(head):
            if not self._running:
                yield from self._begin()
                self._finishes = False
            self._times = match[1] == "time"
            self._iterations = int(match[2])
        elif self._running:
            yield from self._inside(line, head)

    def _begin(self) -> Iterator[Event]:
        self._reset()
        self._running = self._finishes = True
        self._failed = False
        yield RunBegan()

    def _inside(self, line: str, head: str) -> Iterator[Event]:
        if COMMAND in line:
            self._plan = MdtestPlan.of(_words(line.partition(COMMAND)[2]))
        elif match := ITEMS.search(head):
            yield from self._flush()
            self._clear()
            self._tasks, self._items = max(1, int(match[1])), int(match[2])
        elif match := LIVE.search(head):
            yield from self._live_result(match)
        elif match := ENTERING.search(head):
            yield from self._entering(match[1])
        elif ITERATION.search(head):
            self._kind, self._stage, self._begun = "", 0, ""
        elif match := STONEWALL.search(head):
            if len(self._hits) < MAX_SUMMARY_ROWS:
                self._hits.append(int(match[1]))
        elif self._iterations and (match := ROW.search(head)):
            self._row(match)
        elif UNVERIFIED in line:
            self._valid = False
        elif FINISHED.search(head):
            yield from self._flush()
            self._running = False
            if not self._failed:
                yield Completed()
        elif not self._failed and (reason := error(line)) is not None:
            self._failed = True
            yield Failed(reason)

    def _row(self, match: re.Match[str]) -> None:
        phase = "file_creation" if match[2] else phase_name(match[1])
        if phase not in self._rows and len(self._rows) >= MAX_SUMMARY_ROWS:
            return
        row = self._rows.setdefault(phase, _Row())
        # With --showRankStatistics three figures of single ranks come first.
        figures = tuple(match[3].split()[-4:])
        if match[2]:
            row.stonewall = figures[2]
        elif self._times:
            row.times = figures
        else:
            row.rates = figures

    def _flush(self) -> Iterator[Event]:
        """Yield the phases of a test, in the order in which they ran."""
        rows, self._rows = self._rows, {}
        for phase in sorted(rows, key=lambda phase: phase != "tree_creation"):
            if phase not in self._live and (event := self._ended(phase, rows[phase])) is not None:
                yield event

    def _ended(self, phase: str, row: _Row) -> Ended | None:
        operation = phase.rpartition("_")[2]
        seconds = _positive(row.times[2]) if row.times else None
        results = []
        # "SUMMARY time (in ms/op)" of 4.1.0+dev has seconds of the whole phase, like "SUMMARY time" before.
        for figures, unit, printed in (
            (row.rates, "operations_per_second", "ops/sec"),
            (row.times if not row.rates else (), "seconds", "s"),
        ):
            if not figures or (mean := _positive(figures[2])) is None:
                continue
            results.append(Result(operation, unit, mean, f"{figures[2]} {printed}"))
            if self._iterations > 1:
                for name, figure in zip(("max", "min", "stddev"), (*figures[:2], figures[3]), strict=True):
                    if (value := number(figure)) is not None:
                        results.append(Result(name, unit, value, f"{figure} {printed}"))
        if not results:
            return None
        if (value := _positive(row.stonewall)) is not None:
            results.append(Result("stonewall", "operations_per_second", value, f"{row.stonewall} ops/sec"))
        if seconds is None and results[0].unit == "operations_per_second":
            seconds = self._seconds(phase, results[0].value)
        return Ended(phase, tuple(results), seconds, valid=self._valid or phase != "file_read")

    def _seconds(self, phase: str, rate: float) -> float | None:
        """Return how long an iteration of a phase took, from its rate; None if the number of items isn't known."""
        if self._plan.continues:
            return None
        if phase.startswith("tree"):
            # Without -z the tree is one directory.
            items = 1 if self._plan.operations and not self._plan.depth else 0
        elif self._hits:
            # The number of items is determined again at each hit.
            known = self._iterations == 1 and len(self._hits) == 1 and phase.startswith("file")
            items = self._hits[0] * self._tasks if known else 0
        else:
            items = self._items
        return items / rate if items else None

    def _live_result(self, match: re.Match[str]) -> Iterator[Event]:
        phase, rate = phase_name(match[1]), _positive(match[4])
        if phase == "directory_removal":
            self._kind, self._stage = "file", 0
        if match[2] or rate is None or (phase not in self._live and len(self._live) >= MAX_SUMMARY_ROWS):
            return
        self._live.add(phase)
        self._begun = ""
        printed = f"{match[4]} ops/sec"
        if self._per_rank and self._tasks > 1 and not phase.startswith("tree"):
            rate, printed = rate * self._tasks, f"{printed} x {self._tasks} tasks"
        seconds = number(match[3]) or self._seconds(phase, rate)
        yield Ended(phase, (Result(phase.rpartition("_")[2], "operations_per_second", rate, printed),), seconds)

    def _entering(self, function: str) -> Iterator[Event]:
        if function == "directory_test":
            self._kind, self._stage = "directory", 0
        elif function == "file_test":
            self._kind, self._stage = "file", 0
        elif function == "create_remove_directory_tree":
            creates = not self._kind and ("creation" in self._plan.operations or not self._plan.operations)
            yield from self._began("tree_creation" if creates else "tree_removal")
        else:
            self._kind = self._kind or "file"
            if function in STEPS:
                self._stage += 1
                operation = STEPS[function]
            elif self._stage or (self._plan.operations and "creation" not in self._plan.operations):
                operation = "removal"
            else:
                operation = "creation"
            yield from self._began(f"{self._kind}_{operation}")

    def _began(self, phase: str) -> Iterator[Event]:
        # The functions call themselves for each directory of the tree.
        if phase != self._begun:
            self._begun = phase
            yield Began(phase)

    def end(self) -> Iterable[Event]:
        """Return the summary's events, and that the run is incomplete if its end never came."""
        yield from self._flush()
        if self._running and self._finishes and not self._failed:
            self._failed = True
            yield Failed("the output ends before mdtest says that it finished")


def _positive(figure: str) -> float | None:
    """Return a figure above zero: what didn't run has 0.000."""
    value = number(figure)
    return value if value is not None and value > 0 else None


def _words(text: str) -> list[str]:
    """Return a printed command line: bare words in 1.9 and before, quoted ones later."""
    return [word.strip("'\"") for word in re.findall(r"'[^']*'|\"[^\"]*\"|\S+", text)]


VALUED = frozenset("aAbdefGiIlnNpsVwWxz")
"""Options with a value: getopt of 1.9.4-rc1, ``mdtest_run`` of 4.0.0. The value of -B was never needed."""
OPERATIONS = {"C": "creation", "T": "stat", "U": "rename", "E": "read", "r": "removal"}
KINDS = {"D": "directory", "F": "file"}


class MdtestPlan(NamedTuple):
    """The plan in a command line."""

    operations: tuple[str, ...]
    """In the order in which they run; empty if nothing is known."""
    kinds: tuple[str, ...]
    items: int = 0
    """Of each rank; 0 if not known."""
    stonewall: int = 0
    """Seconds after which creation stops."""
    continues: bool = False
    """Whether the number of items comes from an earlier run (-x)."""
    depth: int = 0
    """Of the directories' tree."""
    ordered: bool = True
    """Whether files are created in the order of their numbers: not in a tree with branches."""

    @classmethod
    def of(cls, argv: Sequence[str]) -> MdtestPlan:
        """Return the plan of a command line."""
        found = dict(options(argv, VALUED))
        operations = tuple(operation for letter, operation in OPERATIONS.items() if letter in found)
        depth = size(found.get("z", ""))
        return cls(
            operations=operations or tuple(OPERATIONS.values()),
            kinds=tuple(kind for letter, kind in KINDS.items() if letter in found) or tuple(KINDS.values()),
            items=size(found.get("n", "")) if "c" not in found else 0,
            stonewall=size(found.get("W", "")),
            continues="x" in found,
            depth=depth,
            ordered=depth < 2 or size(found.get("b", "1")) < 2,
        )

    @property
    def phase(self) -> str | None:
        """The only phase, if there is only one."""
        phases = [
            f"{kind}_{operation}"
            for kind in self.kinds
            for operation in self.operations
            if (kind, operation) not in (("directory", "read"), ("file", "rename"))
        ]
        return phases[0] if len(phases) == 1 else None


DATA = expression(r"file\.mdtest\.(\w+)\.(\d{1,18})(?: \(deleted\))?")
"""Name of a data file: rank, number."""
DIRECTORY = expression(r"/#?test-dir\.(\d{1,9})(?:-\d+)?/")
"""Its directory: iteration."""


class _DataFile(NamedTuple):
    """An open data file."""

    iteration: int
    owner: str
    number: int
    writes: bool


class Mdtest(Benchmark):
    """One mdtest, seen at rank 0."""

    name: ClassVar[str] = "mdtest"
    comms: ClassVar[Collection[str]] = frozenset({"mdtest", "MDTEST"})
    reader: ClassVar[type[OutputReader]] = MdtestReader
    documented = (
        Documented(
            "mdtest",
            "`file_creation`, `file_stat`, ...",
            "options, number of the open file; `-v` lines",
            "its tables",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is rank 0."""
        return is_first_rank(tree, pid, cls.comms)

    def __init__(self, tree: Tree, leader: int) -> None:
        self._plan = MdtestPlan.of(tree.argv(leader))
        self._file: _DataFile | None = None
        self._when = 0.0
        self._since: tuple[float, int] | None = None
        """When the current phase began, as far as is known, and the file's number then."""
        self._phase: str | None = None
        """The current phase, as far as files show it."""
        self._done: str | None = None
        """The last phase they showed in this iteration."""
        self._work = 0

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return what can be seen now."""
        blind: tuple[str, ...] = ()
        file = None
        try:
            file = _data(tree, leader)
        except PermissionError:
            blind = ("descriptors",)
        if file is not None:
            # Creation comes first, and begins before there is any file.
            before = self._done or "file_creation"
            self._follow(file)
            if self._since is None or self._done != before or file.number < self._since[1]:
                self._since = now, file.number
            self._when = now
        else:
            self._since = self._since or (now, 0)
            if now - self._when > MAX_UNSEEN_SECONDS and not self._has_more(now):
                self._phase = None
        only = self._plan.phase
        phase = only or self._phase
        # With -Y each phase ends with a sync, in a child (``POSIX_Sync`` in src/aiori-POSIX.c).
        syncs = any(tree.comm(child) == "sync" for child in tree.descendants(leader))
        expected = float(self._plan.stonewall) if phase == "file_creation" and self._plan.stonewall else None
        return Sight(
            State.SYNCING if syncs else State.RUNNING,
            phase or self.name,
            PhaseSource.ARGV if only or not phase else PhaseSource.DATA_FD,
            vague=phase is None,
            progress=self._progress(),
            work=self._work if self._phase is not None else None,
            expected=expected,
            blind=blind,
        )

    def _follow(self, file: _DataFile) -> None:
        before, self._file = self._file, file
        if before is not None and file.iteration != before.iteration:
            before, self._done = None, None
        if before is not None and file.owner == before.owner and file.number >= before.number:
            self._work += file.number - before.number
        self._phase = self._done = self._named(file, before)

    def _named(self, file: _DataFile, before: _DataFile | None) -> str:
        operations = self._plan.operations
        if "read" not in operations or "creation" not in operations:
            return "file_read" if "read" in operations else "file_creation"
        anew = before is not None and (
            file.owner != before.owner or (file.number < before.number and self._plan.ordered)
        )
        # Files that are read were created before; up to IOR 3.3.0 they are opened for writing too.
        return "file_read" if anew or not file.writes or self._done == "file_read" else "file_creation"

    def _has_more(self, now: float) -> bool:
        """Return whether files remain at the pace seen so far: those of a slow file system are rarely seen open."""
        if self._progress() is None or self._file is None or self._since is None:
            return False
        began, first = self._since
        seen, gone = self._file.number - first, now - self._when
        return seen > 0 and self._file.number + 1 + seen / max(self._when - began, 0.1) * gone < self._plan.items

    def _progress(self) -> float | None:
        plan, file = self._plan, self._file
        if self._phase is None or file is None or not plan.items or plan.stonewall or plan.continues:
            return None
        return min(1.0, (file.number + 1) / plan.items)


def _data(tree: Tree, leader: int) -> _DataFile | None:
    """Return the data file that a process has open, if it has one. Raises PermissionError."""
    for file in tree.open_files(leader):
        directory, _, name = file.path.rpartition("/")
        match, iteration = DATA.fullmatch(name), DIRECTORY.search(f"{directory}/")
        if match is not None and iteration is not None:
            position = tree.position(leader, file.descriptor)
            return _DataFile(int(iteration[1]), match[1], int(match[2]), position is None or position.writes)
    return None
