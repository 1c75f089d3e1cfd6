"""Text to runs: reads the runs in text that benchmarks printed some time ago, possibly mixed with other text.

Every reader is given the whole text, as a stream. A run lasts from the start that its reader sees to the start of the
next run of the same benchmark; texts of different benchmarks may be mixed. If the text has runs that measured
something, whatever measures nothing is not a run, such as a refused command or the removal of objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import NamedTuple

from pinchpoint.benchmarks.events import (
    Began,
    Completed,
    Ended,
    Event,
    Failed,
    PhaseSource,
    Rate,
    RunBegan,
    Scored,
    State,
    bounded,
)
from pinchpoint.benchmarks.io500 import Io500
from pinchpoint.benchmarks.io500_output import ResultFile, not_understood
from pinchpoint.benchmarks.output import Lines, OutputReader, text
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.timeline import MAX_PHASES
from pinchpoint.expressions import expression
from pinchpoint.runs import MAX_TIME_SECONDS, PhaseMark, RunState

__all__ = ["KINDS", "FoundRun", "Io500Text", "ReaderKind", "TextReader", "date_in"]

INI_HEADER = expression(r"\s*(?:version\s*=\s*io500|config-hash\s*=\s*[0-9A-Fa-f]{1,8}\s*$)")
"""What a result.txt begins with (``[run]`` comes before it since isc21, and is not a name that only IO500 uses)."""
INI_LINE = expression(r"\s*(?:;|\[\s*[\w.-]+\s*\]\s*$|[\w.-]+\s*=|$)")
MAX_RUNS = 1000
"""Maximum number of runs kept from one text: the first ones."""
MAX_UNREAD_LINES = 20
"""Lines kept that look like a result and are not understood."""
MAX_DATE_LINE_BYTES = 4096
"""Bytes of a line that are searched for a date."""
MAX_NOTE_CHARACTERS = 400
"""Characters of the line before a run that are kept."""
CLEANUP = "cleanup"
"""The phase that measures nothing: ``rados cleanup`` prints the same as the end of ``rados bench``."""
CUT_OFF = "the output ends before the benchmark does"
"""Why a run without an end failed, if its reader says nothing."""
DAY = r"(?P<year>20\d\d)[-./](?P<month>\d\d)[-./](?P<day>\d\d)"
CLOCK = r"(?P<hour>\d\d)[:.](?P<minute>\d\d)[:.](?P<second>\d\d)"
DATES = tuple(
    expression(pattern.encode())
    for pattern in (
        # rados bench, result.txt and the result directory of IO500: 2026-11-21 00:02:55, 2026.11.21-00.02.55;
        # a log line of Ceph's that interrupts a row: ^C2020-10-13 16:26:10.357
        rf"(?<!\d){DAY}[-T ]{CLOCK}(?:\.\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?",
        # ior and fio (ctime): Sat Nov 21 00:20:17 2026; date(1): Sat Nov 21 00:20:17 UTC 2026
        rf"\b(?P<name>[A-Z][a-z]{{2}}) +(?P<day>\d\d?) {CLOCK} (?:[A-Z]{{3,5}} )?(?P<year>20\d\d)\b",
        # mdtest: -- started at 11/21/2026 00:20:17 --
        rf"\b(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>20\d\d) {CLOCK}\b",
        # JSON of fio and of iperf3
        r'"time(?:stamp|secs)"\s*:\s*(?P<unix>\d{10})\b',
    )
)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
JSON = expression(rb'\s*(?:["{}\[\],\d-]|true|false|null|$)')
"""The beginning of a line of a JSON document."""
BRACES = expression(rb'"(?>(?:[^"\\]|\\.)*)"?|([{}])')


class ReaderKind(NamedTuple):
    """A reader that a text is given to."""

    benchmark: str
    reader: Callable[[], OutputReader]


class Io500Text(OutputReader):
    """Reads IO500's output and its file result.txt."""

    def __init__(self) -> None:
        super().__init__()
        self._printed = Io500.reader()
        self._file: ResultFile | None = None
        self._headed = False
        """Whether there is nothing of the file but its header so far."""
        self._complete = False

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        if INI_HEADER.match(line) and not (self._file is not None and self._headed):
            yield from self._close()
            self._file, self._headed, self._complete = ResultFile(), True, False
            yield RunBegan()
        elif self._file is not None and not INI_LINE.match(line):
            yield from self._close()
        if self._file is None:
            yield from self._printed.line(line)
            return
        if line.lstrip().startswith("["):
            self._headed = False
        for event in self._file.line(line):
            self._complete = self._complete or isinstance(event, Completed)
            yield event

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the text."""
        yield from self._close()
        yield from self._printed.end()

    def _close(self) -> Iterator[Event]:
        """End the file if the text is inside one: without a score the run failed."""
        if self._file is not None and not self._complete:
            yield Failed("the file ends before the score")
        self._file = None


KINDS = tuple(
    ReaderKind(benchmark.name, Io500Text if benchmark is Io500 else benchmark.reader) for benchmark in BENCHMARKS
)
"""The readers of all formats."""


class FoundRun(NamedTuple):
    """A run that a text contains."""

    line: int
    """Its first line, counted from 1."""
    state: RunState
    """Without an id; its phases follow each other in the text's order, each as long as it took."""
    note: str = ""
    """The last line before it that belongs to no run: a sentence of the author, a command."""


def date_in(line: bytes) -> float | None:
    """Return the first date with a time of day in a line, in Unix seconds; one without a zone is local time."""
    found = [match for pattern in DATES if (match := pattern.search(line[:MAX_DATE_LINE_BYTES])) is not None]
    for match in sorted(found, key=lambda match: match.start()):
        if (date := _date({name: text.decode() for name, text in match.groupdict().items() if text})) is not None:
            return date
    return None


def _date(words: dict[str, str]) -> float | None:
    if "unix" in words:
        return float(words["unix"])
    if (name := words.get("name", MONTHS[0])) not in MONTHS:
        return None
    month = int(words["month"]) if "month" in words else MONTHS.index(name) + 1
    day, hour, minute, second = (int(words[key]) for key in ("day", "hour", "minute", "second"))
    try:
        date = datetime(int(words["year"]), month, day, hour, minute, second, tzinfo=timezone.utc)
        if zone := words.get("zone"):
            offset = 0 if zone == "Z" else int(zone[:3]) * 3600 + int(zone[0] + zone[-2:]) * 60
            return date.timestamp() - offset
        return time.mktime((*date.timetuple()[:8], -1))
    except (ValueError, OverflowError):  # no such day; the file may say 2026-13-99
        return None


class TextReader:
    """Reads a text that comes in arbitrary pieces; it keeps no more than a line of it."""

    def __init__(self, kinds: Iterable[ReaderKind]) -> None:
        self.left_out = 0
        """Runs beyond `MAX_RUNS`."""
        self.unread: list[tuple[int, str]] = []
        """Lines that look like a result and are not understood: their numbers and what they say."""
        self.unread_count = 0
        """How many there are; only the first ones are kept."""
        readers = [(kind, kind.reader()) for kind in kinds]
        # Most readers take lines: for them the text is cut once. The others cut it in their own way.
        self._by_line = [entry for entry in readers if _lives_on_lines(type(entry[1]))]
        self._by_piece = [entry for entry in readers if not _lives_on_lines(type(entry[1]))]
        self._lines = Lines()
        self._open: dict[ReaderKind, _RunReading] = {}
        self._done: list[_RunReading] = []
        self._line = 1
        self._head = bytearray()
        self._prose = b""
        """The last line that belongs to no run, is not empty, and is not in a JSON document."""
        self._document = _JsonDocument()

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        for piece, ends in _lines(data):
            self._head += piece[: MAX_DATE_LINE_BYTES - len(self._head)]
            inside = ends and self._document.take(bytes(self._head), self._line)
            self._tell(self._lines.feed(piece))
            for kind, reader in self._by_piece:
                for event in reader.feed(piece):
                    self._hear(kind, event)
            if ends:
                self._date(bytes(self._head), inside=inside)
                told = any(run.last == self._line for run in self._open.values())
                if told:
                    self._prose = b""
                elif not inside and not self._head.isspace():
                    self._prose = bytes(self._head)
                self._head.clear()
                self._line += 1

    def close(self, start: float) -> list[FoundRun]:
        """Return the runs, by their first lines. One without a date of its own began at `start`, in Unix seconds."""
        inside = self._document.take(bytes(self._head), self._line)
        self._tell(self._lines.close())
        for kind, reader in self._by_line:
            for event in reader.end():
                self._hear(kind, event)
        for kind, reader in self._by_piece:
            for event in reader.close():
                self._hear(kind, event)
        self._date(bytes(self._head), inside=inside)
        for kind in [*self._open]:
            self._end(kind)
        found = [run for run in self._done if run.measures] or self._done
        return [FoundRun(run.line, run.state(start), run.note) for run in sorted(found, key=lambda run: run.line)]

    def _tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            if not_understood(line):
                self.unread_count += 1
                if len(self.unread) < MAX_UNREAD_LINES:
                    self.unread.append((self._line, _note(line.encode("utf-8", "replace"))))
            for kind, reader in self._by_line:
                for event in reader.line(line):
                    self._hear(kind, event)

    def _date(self, line: bytes, *, inside: bool) -> None:
        """Use the line's date for the runs it belongs to, and for the JSON document that it is `inside`."""
        document = self._document
        undated = [
            run
            for run in self._open.values()
            if run.date is None and (run.line == document.line if inside else not run.over or run.last == self._line)
        ]
        if not undated and not (inside and document.date is None):
            return
        date = date_in(line)
        if inside and document.date is None:
            document.date = date
        for run in undated:
            run.date = date

    def _hear(self, kind: ReaderKind, event: Event) -> None:
        run = self._open.get(kind)
        if run is None or isinstance(event, RunBegan) or (run.over and run.has(event)):
            self._end(kind)
            document = self._document
            line, date = (document.line, document.date) if document.covers(self._line) else (self._line, None)
            run = self._open[kind] = _RunReading(kind, line, date, _note(self._prose))
        run.last = self._line
        run.hear(event)

    def _end(self, kind: ReaderKind) -> None:
        run = self._open.pop(kind, None)
        if run is None or run.empty:
            return
        if len(self._done) < MAX_RUNS:
            self._done.append(run)
        else:
            self.left_out += 1


def _lives_on_lines(reader: type[OutputReader]) -> bool:
    return reader.feed is OutputReader.feed and reader.close is OutputReader.close


def _lines(data: bytes) -> Iterator[tuple[bytes, bool]]:
    r"""Yield the lines of a piece, and whether each is complete: only ``\n`` ends a counted line."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        yield data[at : end + 1], True
        at = end + 1
    if at < len(data):
        yield data[at:], False


class _JsonDocument:
    """The current or last JSON document of the text: a reader reports it only at its end."""

    def __init__(self) -> None:
        self.line = self._last = 0
        self.date: float | None = None
        self._depth = 0

    def take(self, line: bytes, number: int) -> bool:
        """Take in a line; return whether it is in a document."""
        if self._depth <= 0:
            if not line.startswith(b"{"):
                return False
            self.line, self.date, self._depth = number, None, 0
        elif not JSON.match(line):
            self._depth = 0
            return False
        self._last = number
        for match in BRACES.finditer(line):
            self._depth += {b"{": 1, b"}": -1}.get(match[1], 0)
        if len(line) >= MAX_DATE_LINE_BYTES:
            self._depth = 0  # the line's beginning doesn't show where it ends: it is taken for the whole
        return True

    def covers(self, number: int) -> bool:
        """Return whether a line belongs to the document."""
        return self._depth > 0 or self.line <= number <= self._last


class _RunReading:
    """A run, as its events come."""

    def __init__(self, kind: ReaderKind, line: int, date: float | None, note: str) -> None:
        self.line = self.last = line
        self.date = date
        self.note = note
        self.over = False
        """Whether its end was reported; anything after it is clean-up."""
        self._kind = kind
        self._phases: list[PhaseMark] = []
        self._current: PhaseMark | None = None
        self._scored: Scored | None = None
        self._failed = False
        self._stopped = False
        self._reason = ""

    @property
    def empty(self) -> bool:
        """Whether nothing at all is known about it."""
        if self.measures:
            return False
        return not any(mark.results for mark in self._phases) if self._phases else not self.over

    @property
    def measures(self) -> bool:
        """Whether it has a score, or a phase that isn't only the removal of what another run left."""
        return self._scored is not None or any(mark.name != CLEANUP for mark in self._phases)

    def has(self, event: Event) -> bool:
        """Return whether the run has had this phase, so that another run must have begun."""
        name = event.phase if isinstance(event, Began | Ended) else ""
        return any(mark.name == name and mark is not self._current for mark in self._phases)

    def hear(self, event: Event) -> None:
        event = bounded(event)
        match event:
            case Began() if self._current is None or self._current.name != event.phase:
                self._begin(event.phase).expected = event.expected
            case Rate() if event.phase and (self._current is None or self._current.name != event.phase):
                self._begin(event.phase)
            case Ended() if event.ran:
                self._ended(event)
            case Scored():
                self._scored = event
                self.over = True
            case Completed():
                self._failed, self._stopped, self._reason = False, False, ""
                self.over = True
                self._current = None
            case Failed():
                self._failed = self.over = True
                self._stopped |= event.stopped
                self._reason = self._reason or event.reason

    def _begin(self, phase: str) -> PhaseMark:
        mark = PhaseMark(phase, 0.0, benchmark=self._kind.benchmark, source=PhaseSource.STDOUT, state=State.FINISHED)
        if len(self._phases) < MAX_PHASES:
            self._phases.append(mark)
        self._current = mark
        return mark

    def _ended(self, event: Ended) -> None:
        mark = next((mark for mark in reversed(self._phases) if mark.name == event.phase and not mark.results), None)
        mark = mark or self._begin(event.phase)
        if self._current is mark:
            self._current = None
        mark.results = list(event.results)
        mark.seconds = event.seconds
        mark.valid = event.valid

    def state(self, start: float) -> RunState:
        """Return the whole run; `start` is when it began, in Unix seconds, if its text doesn't say."""
        failed, reason = self._failed, self._reason
        if not self.over and self._current is not None:
            failed, reason = True, CUT_OFF
        ended = State.FINISHED if not failed else State.STOPPED if self._stopped else State.FAILED
        if self._current is not None and failed:
            self._current.state = ended
        start = self.date if self.date is not None else start
        end = start
        for place, mark in enumerate(self._phases, 1):
            mark.number, mark.start = place, end
            mark.end = end = min(MAX_TIME_SECONDS, end + (mark.seconds or 0.0))
        scored = self._scored or Scored(())
        return RunState(
            run="",
            benchmark=self._kind.benchmark,
            start=start,
            end=end,
            state=ended,
            phases=self._phases,
            scores=list(scored.scores),
            valid=scored.valid,
            reason=reason,
        )


def _note(line: bytes) -> str:
    """Return a line as text, with single blanks."""
    words = " ".join(text(line).split())
    return words if len(words) <= MAX_NOTE_CHARACTERS else f"{words[: MAX_NOTE_CHARACTERS - 3]}..."
