"""IO500's words: what it prints (the C app and the shell driver before it), and the file of results that it writes.

Formats are those of src/main.c (io500-isc20 to io500-isc26_v2) and of utilities/io500_fixed.sh (isc20 and before).
No columns are fixed: blanks may be collapsed, and launchers insert a rank's name before a line and into the middle of
one (``mpirun.mpich -prepend-rank``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    RunBegan,
    Scored,
    State,
    phase_name,
)
from pinchpoint.benchmarks.output import OutputReader
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["STORED", "Io500Reader", "ResultFile", "bare_phase", "not_understood", "results_of"]

MAX_IO500_PHASES = 256
"""Phases of one run that are read; today's extended mode has 19."""
MAX_REASON_CHARACTERS = 300
"""Longest reason of a failure, in characters."""
MIN_PHASE_SECONDS = 0.001
"""A phase shorter than this, in seconds, did not run: times have three decimals, 0.000 with ``run = FALSE``."""
CUT_OFF = "the output ends before the score"
UNITS = {
    "gib/s": ("bytes_per_second", 1 << 30),
    # io500.sh of 2019 divides IOR's MiB/s by 1024 and calls that GB/s: submission 24 of the list has 836.649 GB/s where
    # IOR itself printed 856728.86 MiB/s.
    "gb/s": ("bytes_per_second", 1 << 30),
    "kiops": ("operations_per_second", 1000),
    "score": ("score", 1),
}
"""Unit and factor by the unit that is printed; ``score`` is that of the phase ``concurrent``. With any other unit the
phase is known but not its figure."""

GAP = r"(?>(?:\s|\[\d++(?:,\d++)?\](?:<\w++>:?)?)+)"
"""What may stand between two words: blanks, and a rank's name inserted by a launcher. It never backtracks: its colon
could also be the one that follows, and a line with many would take quadratic time. An atomic group, because Python
before 3.11.5 does not undo a possessive repetition of a group that fits in part (gh-106052)."""
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"
RESULT = expression(
    rf"\[(?P<label>RESULT(?:-invalid)?|\s+)\]{GAP}(?:(?:BW|IOPS){GAP}phase{GAP}\d+{GAP})?"
    rf"(?P<name>[A-Za-z][\w.-]*){GAP}(?P<value>{NUMBER})(?:{GAP}(?P<unit>[A-Za-z][A-Za-z/]{{0,15}}))?"
    rf"(?:{GAP})?:{GAP}time{GAP}(?P<seconds>{NUMBER}){GAP}seconds(?:{GAP}(?P<invalid>\[INVALID\]))?"
)
SCORE = expression(
    rf"\[SCORE(?P<label>X|-invalid|\s*)\]{GAP}Bandwidth{GAP}(?P<bandwidth>{NUMBER}){GAP}(?P<unit>Gi?B/s)"
    rf"(?:{GAP})?:{GAP}IOPS{GAP}(?P<iops>{NUMBER}){GAP}kiops"
    rf"(?:{GAP})?:{GAP}TOTAL{GAP}(?P<total>{NUMBER})(?:{GAP}(?P<invalid>\[INVALID\]))?",
)
LIKE = expression(r"\[(?:RESULT|SCORE)(?:-invalid|X|\s*+)\]\s*+\S")
VERSION = expression(r"IO500 version (?:io500\S+|[0-9a-f]{7,40}\S*|\S+(?= \((?:standard|extended)\)))")
DRIVER = "Running the IO500 Benchmark now"
STARTING = expression(r"\[Starting\]\s+(?P<name>[A-Za-z][\w-]*)")
SHELL_PHASE = expression(r"(?:ior|mdtest)_(?:easy|hard)_\w+|find|mdreal")
INVALID = "ERROR INVALID "
FATAL = expression(r"FATAL \((?:\S*/)?(?:main|util|ini-parse|verifier|phase_\w+)\.c:\d+\) .*")
ABORTED = expression(r"\b(?:mpirun|mpiexec|prterun) (?:noticed|detected) that\b.*|BAD TERMINATION OF ONE OF YOUR .*")
STORED = "The result files are stored in the directory:"


def results_of(phase: str, value: str, unit: str = "") -> tuple[Result, ...]:
    """Return the result of a phase, given its canonical name; if no unit is printed, the name gives it."""
    figure = float(value)
    unit = unit or bare_unit(phase)
    base, factor = UNITS.get(unit.lower(), ("", math.nan))
    if not math.isfinite(figure * factor):
        return ()
    operation = "find" if phase.startswith("find") else phase.rpartition("_")[2]
    return (Result(operation, base, figure * factor, f"{value} {unit}"),)


def not_understood(line: str) -> bool:
    """Return whether a line looks like a result or score, and cannot be read as one."""
    if LIKE.search(line) is None or "printf" in line:  # the shell driver, traced with bash -x
        return False
    if (found := RESULT.search(line)) is not None:
        return not results_of(phase_name(found["name"]), found["value"], found["unit"] or "")
    return SCORE.search(line) is None


def bare_unit(phase: str) -> str:
    """Return the unit of a phase: its first letter decides, as in main.c (isc21 and later)."""
    return "GiB/s" if phase.startswith("i") else "score" if phase == "concurrent" else "kIOPS"


def bare_phase(phase: str) -> bool:
    """Return whether a phase is not worth measuring: ``timestamp`` only creates the file that find needs."""
    return phase == "timestamp"


def scores_of(bandwidth: str, iops: str, total: str, unit: str = "GiB/s", prefix: str = "") -> tuple[Result, ...]:
    """Return the scores, the total last. isc20's ``GB/s`` are GiB/s too."""
    found = (
        Result(f"{prefix}bandwidth", "bytes_per_second", float(bandwidth) * (1 << 30), f"{bandwidth} {unit}"),
        Result(f"{prefix}iops", "operations_per_second", float(iops) * 1000, f"{iops} kiops"),
        Result(f"{prefix}total", "score", float(total), total),
    )
    return tuple(result for result in found if math.isfinite(result.value))


class _Io500Run(msgspec.Struct):
    """The current run in the text."""

    versioned: bool = False
    begun: set[str] = msgspec.field(default_factory=set)
    ended: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """Value and time as printed, by phase."""
    invalid: bool = False
    failed: bool = False

    @property
    def fresh(self) -> bool:
        return not self.begun and not self.ended and not self.failed


class Io500Reader(OutputReader):
    """Reads the standard output. isc20's io500.sh runs both drivers: two runs, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._run: _Io500Run | None = None
        self._scored: Scored | None = None
        """The score of the previous run, if the text reported it last."""

    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line."""
        if (found := RESULT.search(line)) is not None:
            return self._result(found)
        if (found := SCORE.search(line)) is not None:
            return self._score(found)
        if (found := STARTING.search(line)) is not None:
            return self._starting(found["name"])
        if (found := FATAL.search(line)) is not None:
            return self._fatal(found[0])
        if VERSION.search(line) is not None:
            return self._version()
        if DRIVER in line:
            return self._header()
        if INVALID in line:
            return self._invalid()
        if self._run is not None:
            return self._rest(self._run, line)
        return ()

    def end(self) -> Iterable[Event]:
        """Return the events at the end of the output: without a score the run failed."""
        return self._cut()

    def _cut(self) -> Iterator[Event]:
        run, self._run = self._run, None
        if run is not None and not run.failed:
            yield from self._failed(run, CUT_OFF)

    @staticmethod
    def _failed(run: _Io500Run, reason: str) -> Iterator[Event]:
        run.failed = True
        if run.invalid:
            yield Scored((), valid=False)
        yield Failed(reason.strip()[:MAX_REASON_CHARACTERS])

    def _begin(self) -> Iterator[Event]:
        yield from self._cut()
        self._run = _Io500Run()
        self._scored = None
        yield RunBegan()

    def _header(self) -> Iterator[Event]:
        if self._run is None or not self._run.fresh:
            yield from self._begin()

    def _version(self) -> Iterator[Event]:
        # Errors in the options are printed before the version (io500-sc20, main.c:296).
        if self._run is None or not self._run.fresh or self._run.versioned:
            yield from self._begin()
        if self._run is not None:
            self._run.versioned = True

    def _invalid(self) -> Iterator[Event]:
        if self._run is None:
            yield from self._begin()
        if self._run is not None:
            self._run.invalid = True

    def _starting(self, name: str) -> Iterator[Event]:
        phase = phase_name(name)
        if self._run is None and SHELL_PHASE.fullmatch(phase) is None:
            return
        if self._run is None or phase in self._run.begun or phase in self._run.ended:
            yield from self._begin()
        if self._run is not None and len(self._run.begun) < MAX_IO500_PHASES:
            self._run.begun.add(phase)
            yield Began(phase)

    def _result(self, found: re.Match[str]) -> Iterator[Event]:
        phase = phase_name(found["name"])
        scored = found["label"].startswith("RESULT")
        printed = found["value"], found["seconds"]
        if self._run is None and not scored:
            return
        if self._run is not None and self._run.ended.get(phase) == printed:
            return  # the shell driver prints every line again in its summary
        if self._run is None or phase in self._run.ended:
            yield from self._begin()
        run = self._run
        if run is None or len(run.ended) >= MAX_IO500_PHASES:
            return
        run.ended[phase] = printed
        value, seconds = map(float, printed)
        # The shell driver prints two decimals of a second: a shorter phase still has a result.
        ran = abs(value) > 0 or (seconds >= MIN_PHASE_SECONDS and not bare_phase(phase))
        valid = not found["invalid"] and not found["label"].endswith("invalid")
        run.invalid |= not valid
        results = results_of(phase, found["value"], found["unit"] or "") if scored or abs(value) > 0 else ()
        yield Ended(phase, results, seconds if math.isfinite(seconds) else None, valid=valid, ran=ran)

    def _score(self, found: re.Match[str]) -> Iterator[Event]:
        extended = found["label"] == "X"
        prefix = "extended_" if extended else ""
        scores = scores_of(found["bandwidth"], found["iops"], found["total"], found["unit"], prefix)
        valid = not found["invalid"] and found["label"] != "-invalid"
        if extended and self._run is None and self._scored is not None:
            # The standard score, which comes first, is the one that counts: the run is as valid as that.
            yield Scored((*scores, *self._scored.scores), self._scored.valid)
            return
        if self._run is None:
            if self._scored == Scored(scores, valid):
                return
            yield from self._begin()
        failed = self._run is not None and self._run.failed
        self._run = None
        self._scored = Scored(scores, valid)
        yield self._scored
        if not failed:
            yield Completed()

    def _fatal(self, reason: str) -> Iterator[Event]:
        if self._run is None and self._scored is None:
            yield from self._begin()
        if self._run is None:
            yield Failed(reason[:MAX_REASON_CHARACTERS])
        elif not self._run.failed:
            yield from self._failed(self._run, reason)

    def _rest(self, run: _Io500Run, line: str) -> Iterator[Event]:
        if STORED in line and not run.failed:
            self._run = None
            yield Completed()
        elif (found := ABORTED.search(line)) is not None and not run.failed:
            yield from self._failed(run, found[0])


SECTION = expression(r"\[\s*([\w.-]+)\s*\]$")
PAIR = expression(r"([\w.-]+)\s*=\s*(.*)$")
SHORTEST_WRITE = {"io500-isc20": 300.0, "io500-sc20": 30.0}
"""Seconds below which the output, but not this file, marks a write phase as invalid, by version; sc20 has 30 for
student clusters besides 300 (main.c of both)."""
HEADER = "run"
STANDARD = "SCORE"
EXTENDED = "SCOREX"


class ResultFile(OutputReader):
    """Reads result.txt as it grows: a section begins with its phase, or with a pause before it, and ends with a score.

    Use only `feed`: a line that has not ended is incomplete. With ``verbosity = 0`` there are no times.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: str | None = None
        """The current phase."""
        self.state = State.SETUP
        self.processes: int | None = None
        """Number of all ranks (isc21 and later)."""
        self.extended = False
        """Whether the run is in the extended mode."""
        self.command: tuple[str, ...] = ()
        """The command line of the phase."""
        self.phases: dict[str, tuple[Result, ...]] = {}
        """Phases that have ended, with their results."""
        self.complete = False
        """Whether the score is there."""
        self._section = HEADER
        self._awaited: str | None = None
        """The phase of the section, before it begins."""
        self._timed = False
        self._shortest_write = 0.0
        self._value = ""
        self._invalid = False
        self._figures: dict[str, str] = {}
        self._scored: Scored | None = None

    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line."""
        line = line.strip()
        if line.startswith(";"):
            self._comment(line)
        elif (found := SECTION.match(line)) is not None:
            return self._open(found[1])
        elif (found := PAIR.match(line)) is not None:
            return self._pair(found[1], found[2].strip())
        return ()

    def _open(self, section: str) -> Iterator[Event]:
        yield from self._leave()
        self._section = section
        self._value, self._invalid, self._timed = "", False, False
        self._figures.clear()
        self.command = ()
        if section not in (HEADER, STANDARD, EXTENDED):
            self._awaited = phase_name(section)

    def _comment(self, line: str) -> None:
        if INVALID.rstrip() in line:
            self._invalid = True
        elif self._awaited is not None and line.startswith("; Checking for pause file"):
            self.state = State.PAUSED

    def _pair(self, key: str, value: str) -> Iterator[Event]:
        if self._section in (STANDARD, EXTENDED):
            yield from self._figure(key, value)
        elif self._section == HEADER:
            self._fact(key, value)
        elif key == "t_pause":
            self.state = State.PAUSED
        else:
            if self._awaited is not None:
                self.phase, self._awaited, self.state = self._awaited, None, State.RUNNING
                yield Began(self.phase)
            if key == "t_start":
                self._timed = True
            elif key == "exe":
                self.command = tuple(value.split())
            elif key == "score" and re.fullmatch(NUMBER, value):
                self._value = value
                if not self._timed:
                    yield from self._leave()
            elif key == "t_delta" and re.fullmatch(NUMBER, value):
                yield from self._leave(float(value))

    def _fact(self, key: str, value: str) -> None:
        if key == "version":
            self._shortest_write = next((t for name, t in SHORTEST_WRITE.items() if value.startswith(name)), 0.0)
        elif key == "procs" and re.fullmatch("[1-9][0-9]{0,8}", value):
            self.processes = int(value)
        elif key == "mode":
            self.extended = value == "extended"

    def _leave(self, seconds: float | None = None) -> Iterator[Event]:
        phase, self.phase, self._awaited = self.phase, None, None
        if phase is None:
            return
        self.state = State.BETWEEN
        seconds = seconds if seconds is not None and math.isfinite(seconds) else None
        value = float(self._value or 0)
        ran = abs(value) > 0 or (seconds is not None and seconds >= MIN_PHASE_SECONDS and not bare_phase(phase))
        short = phase.endswith("_write") and seconds is not None and seconds < self._shortest_write
        results = results_of(phase, self._value) if self._value else ()
        if len(self.phases) < MAX_IO500_PHASES:
            self.phases[phase] = results
        yield Ended(phase, results, seconds, valid=not self._invalid and not short, ran=ran)

    def _figure(self, key: str, value: str) -> Iterator[Event]:
        number, _, flag = value.partition(" ")
        if key not in ("MD", "BW", "SCORE") or not re.fullmatch(NUMBER, number):
            return
        self._figures[key] = number
        if key != "SCORE":
            return
        extended = self._section == EXTENDED
        bandwidth, iops = self._figures.get("BW", "nan"), self._figures.get("MD", "nan")
        scores = scores_of(bandwidth, iops, number, prefix="extended_" if extended else "")
        scored = Scored(scores, "INVALID" not in flag)
        if not extended:
            self._scored = scored
        elif self._scored is not None:
            scored = Scored((*scores, *self._scored.scores), self._scored.valid)
        self.state = State.BETWEEN
        self.complete = True
        yield scored
        yield Completed()
