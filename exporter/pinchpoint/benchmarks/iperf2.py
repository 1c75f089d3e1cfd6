"""iperf 2: a client's transfer is its only phase, ``send``, ``receive`` or ``bidirectional``.

Rows are printed as they come: one per interval and, at the end, one from 0 for the whole time; several streams have a
row each and one for their sum. Nothing is printed after the last row: without one the run has failed, though iperf
exits with 0 (a refused connection, iperf 2.1.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

import msgspec
from msgspec import structs

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.iperf import ROW, IperfFigure, bandwidth, options, transfer
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Iperf2", "Iperf2Reader"]

SUM = "SUM"
MAX_STREAMS = 1024
"""Maximum number of streams in one direction."""
MAX_START_SPREAD_SECONDS = 0.01
"""Seconds by which the starts of one interval may differ from stream to stream."""
SHORT = "1b:c:def:hi:l:mn:o:p:rst:uvw:x:y:zA:B:CDF:H:IL:M:NP:RS:T:UVWXZ:"
"""Options of one letter (Settings.cpp, iperf 2.0.13 and 2.1.8)."""
LONG = {
    "client": "c:",
    "server": "s",
    "time": "t:",
    "num": "n:",
    "reverse": "R",
    "full-duplex": "d",
    "dualtest": "d",
    "tradeoff": "r",
}
DEFAULT_SECONDS = 10.0
"""A client's default duration in seconds."""
MIN_COMPLETE_SHARE = 0.9
"""Share of its time below which a transfer did not come to its regular end."""

CLIENT = expression(r"Client connecting to \S+, (TCP|UDP) port (\d{1,5})")
SERVER = expression(r"Server listening on (?:TCP|UDP) ports? \d")
CONNECTED = expression(r"\[\s*+(?:\*\s*+)?\d+\] local \S+ port (\d{1,5}) connected with \S+ port (\d{1,5})(.*)")
REPORT = expression(r"\[\s*\d+\] Server Report:")
LOSS = expression(r"\s+(\d{1,9}(?:\.\d+)?)\s+ms\s+(\d{1,18})/\s*(\d{1,18})\s")
CSV = expression(
    # reportCSV_bw_format behind CSV_timestamp and reportCSV_peer (src/Locale.c, iperf 2.0.5 to 2.1.8).
    r"(?<!\S)(?:[+-]\d{4}:)?\d{14}(?:\.\d+)?,[^,\s]+,\d{1,5},[^,\s]+,\d{1,5},(?P<id>-?\d+),"
    r"(?P<start>\d{1,9}\.\d+)[-,](?P<end>\d{1,9}\.\d+),(?P<bytes>\d{1,18}),(?P<bits>\d{1,18})(?P<rest>(?>(?:,[^,\s]*+)*))$"
)


class IntervalRow(NamedTuple):
    """What a row says."""

    start: float
    end: float
    transferred: IperfFigure
    rate: IperfFigure


class Side(msgspec.Struct):
    """What was printed for one direction."""

    whole: dict[str, IntervalRow] = msgspec.field(default_factory=dict)
    """The last row that starts at 0, per stream and for their sum."""
    again: set[str] = msgspec.field(default_factory=set)
    """Streams with a second row that starts at 0: the whole time, after all intervals."""
    intervals: bool = False
    """Whether there is any row of a later interval."""
    rate: Result | None = None
    """The current rate."""
    interval: dict[str, float] = msgspec.field(default_factory=dict)
    """Rates of the streams in the current interval."""
    start: float = 0.0
    """Start of that interval."""

    def takes(self, stream: str, row: IntervalRow) -> bool:
        """Take in a row; return whether it covers the whole time, after those of the intervals."""
        if row.start > 0:
            self.intervals = True
            return False
        known = stream in self.whole
        if known:
            self.again.add(stream)
        if known or len(self.whole) < MAX_STREAMS:
            self.whole[stream] = row
        return known

    def adds(self, stream: str, row: IntervalRow) -> IperfFigure | None:
        """Take in a row of an interval; return the sum over the streams in the previous interval once that is over."""
        done = None
        if abs(row.start - self.start) > MAX_START_SPREAD_SECONDS and self.interval:
            done = IperfFigure(sum(self.interval.values()))
            self.interval.clear()
        self.start = row.start
        if stream in self.whole:
            self.interval[stream] = row.rate.value
        return done

    @property
    def streams(self) -> set[str]:
        """Streams that were reported."""
        return self.whole.keys() - {SUM}

    @property
    def total(self) -> IntervalRow | None:
        """The row for the whole time; None if it was not printed, or only its first interval was."""
        told = self.again if self.intervals or self.again else self.whole.keys()
        if SUM in told:
            return self.whole[SUM]
        rows = [self.whole[stream] for stream in self.streams & told]
        if not rows or len(rows) < len(self.streams):
            return None
        if len(rows) == 1:
            return rows[0]
        transferred = IperfFigure(sum(row.transferred.value for row in rows))
        rate = IperfFigure(sum(row.rate.value for row in rows))
        return IntervalRow(0.0, max(row.end for row in rows), transferred, rate)


class Iperf2Reader(OutputReader):
    """Reads the output of iperf 2, as text or as CSV."""

    def __init__(self) -> None:
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        self._open = False
        """Whether a run has begun and its result has not been reported."""
        self._port = ""
        """The server's port; empty in a server's own output."""
        self._udp = self._listens = self._csv = False
        self._streams = 0
        self._phase = "send"
        self._foreign: set[str] = set()
        """Streams that the other side opens to a port we listen on."""
        self._sides = {"send": Side(), "receive": Side()}
        self._reported = False
        """Whether the server's report follows: what arrived in a UDP test."""
        self._report: tuple[Result, ...] = ()
        self._one_by_one = False
        """Whether the other direction began only after the first had ended."""

    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line."""
        if (found := CLIENT.search(line)) is not None:
            # With -d and -r a client listens too, and says so first.
            both = self._listens and not self._open
            yield from self._begin("bidirectional" if both else "send")
            self._udp, self._port = found[1] == "UDP", found[2]
        elif SERVER.search(line) is not None:
            # A server may write to the same file as a client that has just begun: then the client counts.
            if not self._open or not self._port or self._rows:
                yield from self._finish()
                self._reset()
                self._listens = True
        elif (found := CONNECTED.search(line)) is not None:
            yield from self._connect(line, found)
        elif (found := CSV.search(line)) is not None:
            if not self._open:
                yield from self._begin("send")
                self._csv = True
            if self._csv:
                yield from self._row(found["id"].replace("-1", SUM), _csv_row(found))
        elif self._open and REPORT.search(line) is not None:
            self._reported = True
        elif self._open and (found := ROW.search(line)) is not None:
            row = IntervalRow(float(found["start"]), float(found["end"]), transfer(found), bandwidth(found))
            if self._reported:
                self._report = (row.rate.result("received", "bytes_per_second"), *_lost(found["rest"]))
            else:
                stream = "".join(found["id"].split())
                yield from self._row(SUM if stream.startswith(SUM) else stream, row)

    def end(self) -> Iterable[Event]:
        """Return the events at the end of the output."""
        return self._finish()

    @property
    def _rows(self) -> bool:
        return any(side.whole for side in self._sides.values())

    def _begin(self, phase: str) -> Iterator[Event]:
        yield from self._finish()
        self._reset()
        self._open, self._phase = True, phase
        yield RunBegan()

    def _finish(self) -> Iterator[Event]:
        if not self._open:
            return
        self._open = False
        totals = {name: total for name, side in self._sides.items() if (total := side.total) is not None}
        if not totals or any(side.whole and name not in totals for name, side in self._sides.items()):
            yield Failed("the output ends before the result")
            return
        results = [total.rate.result(name, "bytes_per_second") for name, total in totals.items()]
        for name, total in totals.items():
            results.append(total.transferred.result(name if len(totals) > 1 else "transferred", "bytes"))
        ends = [total.end for total in totals.values()]
        yield Ended(self._phase, (*results, *self._report), sum(ends) if self._one_by_one else max(ends))
        yield Completed()

    def _connect(self, line: str, found: re.Match[str]) -> Iterator[Event]:
        local, remote, rest = found.groups()
        if "0" in (local, remote):  # it is not: the server refused (iperf 2.1.8)
            return
        rows = self._rows
        if self._listens and not self._port and (rows or not self._open):
            # A server's first client, or its next one.
            yield from self._begin("receive")
            self._listens = True
        elif not self._open:
            return
        self._one_by_one |= rows
        self._streams += 1
        if self._port and remote != self._port and len(self._foreign) < MAX_STREAMS:
            self._foreign.add(line[line.index("[") + 1 : line.index("]")].strip())
        if "(full-duplex)" in rest:
            self._phase = "bidirectional"
        elif "(reverse)" in rest and self._phase == "send":
            self._phase = "receive"
        yield Rate(self._phase)

    def _row(self, stream: str, row: IntervalRow) -> Iterator[Event]:
        both = self._phase == "bidirectional"
        if both and stream == SUM:  # of both directions (iperf 2.1.8)
            return
        back = (stream.startswith("*") or stream in self._foreign) if both else self._phase == "receive"
        side = self._sides["receive" if back else "send"]
        many = len(side.streams) > 1 or (self._streams > 1 and not both)
        rate: IperfFigure | None = row.rate
        if side.takes(stream, row):
            if not (both or self._udp or self._csv) and (stream == SUM or not many):
                yield from self._finish()
            return
        if self._csv or (both and many):
            rate = side.adds(stream, row)
        elif many and stream != SUM:
            rate = None
        if rate is not None:
            side.rate = rate.result("receive" if back else "send", "bytes_per_second")
            yield Rate(self._phase, tuple(other.rate for other in self._sides.values() if other.rate is not None))


def _csv_row(found: re.Match[str]) -> IntervalRow:
    transferred = IperfFigure(float(found["bytes"]), f"{found['bytes']} Bytes")
    rate = IperfFigure(float(found["bits"]) / 8, f"{found['bits']} bits/sec")
    return IntervalRow(float(found["start"]), float(found["end"]), transferred, rate)


def _lost(rest: str) -> Iterator[Result]:
    if (found := LOSS.match(rest)) is not None:
        yield Result("jitter", "seconds", float(found[1]) / 1000, f"{found[1]} ms")
        yield Result("lost", "packets", float(found[2]), f"{found[2]}/{found[3]}")


class Iperf2(Benchmark):
    """A client of iperf 2; a server only waits for clients and does not count."""

    name = "iperf2"
    comms: ClassVar = frozenset({"iperf"})
    reader = Iperf2Reader
    hint = "a client prints its result when it ends"
    documented = (
        Documented(
            "iperf 2",
            "`send`, `receive`, `bidirectional`",
            "command line",
            "rows, summary, CSV",
            "what it prints",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is a client."""
        return super().leads(tree, pid) and any(letter == "c" for letter, _ in options(tree.argv(pid), SHORT, LONG))

    def __init__(self, tree: Tree, leader: int) -> None:
        given = dict(options(tree.argv(leader), SHORT, LONG))
        self._phase = "bidirectional" if {"d", "r"} & given.keys() else "receive" if "R" in given else "send"
        self._expected = None if {"n", "F", "I"} & given.keys() else number(given.get("t", DEFAULT_SECONDS))
        if self._expected is not None and self._expected <= 0:
            self._expected = None
        elif self._expected is not None and "r" in given:
            self._expected *= 2

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the phase given by the command line."""
        return Sight(State.RUNNING, self._phase, PhaseSource.ARGV, expected=self._expected)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event with the phase that the command line names: CSV does not show the direction.

        A transfer that ended early was interrupted; iperf then exits with 0 (2.1.8).
        """
        if isinstance(event, Ended) and event.seconds is not None and self._expected is not None:
            event = msgspec.structs.replace(
                event, valid=event.valid and event.seconds > MIN_COMPLETE_SHARE * self._expected
            )
        if event.phase == self._phase:
            return event
        results = event.results
        if {event.phase, self._phase} == {"send", "receive"}:
            results = tuple(
                structs.replace(result, operation=self._phase) if result.operation == event.phase else result
                for result in results
            )
        return msgspec.structs.replace(event, phase=self._phase, results=results)
