"""iperf3: a client's transfer is its only phase, ``send``, ``receive`` or ``bidirectional``.

On a pipe everything is printed at the end, unless ``--forceflush`` or ``--json-stream`` is given. A client prints
``iperf Done.`` after its result. Errors are on standard error; in JSON they are under ``error``, and then iperf3 may
exit with 0 (3.12).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import structs

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.iperf import ROW, IperfFigure, bandwidth, options, transfer
from pinchpoint.benchmarks.output import Documents, OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Iperf3", "Iperf3Reader"]

SUM = "SUM"
MAX_STREAMS = 1024
"""Maximum number of streams in one direction."""
MAX_ERROR_CHARACTERS = 200
"""Longest error message that is kept, in characters."""
SHORT = "p:f:i:D1VJvsc:ub:t:n:k:l:P:Rw:B:M:N46S:L:ZO:F:A:T:C:dI:mhX:"
"""Options of one letter (iperf_parse_arguments in src/iperf_api.c, iperf 3.19)."""
LONG = {
    "client": "c:",
    "server": "s",
    "time": "t:",
    "bytes": "n:",
    "blockcount": "k:",
    "omit": "O:",
    "reverse": "R",
    "bidir": "both",
}
DEFAULT_SECONDS = 10.0
"""A client's default duration in seconds (DURATION in src/iperf.h)."""

CLIENT = expression(r"Connecting to host \S+, port \d")
SERVER = expression(r"Accepted connection from \S+, port \d")
LISTENING = expression(r"Server listening on \d+")
REVERSE = expression(r"Reverse mode, remote host \S+ is sending")
CONNECTED = expression(r"\[\s*\d+\] local \S+ port \d+ connected (?:to|with) \S+ port \d")
HEADER = expression(r"\[ ID\](\[Role\])?\s+Interval\s+Transfer\s+(?:Bitrate|Bandwidth)")
DONE = expression(r"(?:^|\s)iperf Done\.")
ERROR = expression(r"iperf3: ((?:error|interrupt) - .*)")
SIDE = expression(r"(sender|receiver)\s*$")
RETRANSMITS = expression(r"\s+(\d{1,18})\s+sender")
LOSS = expression(r"\s+(\d{1,9}(?:\.\d+)?)\s+ms\s+(\d{1,18})/\s*(\d{1,18})\s")


class Way(msgspec.Struct):
    """What was reported for one direction at the end."""

    sent: dict[str, IperfFigure] = msgspec.field(default_factory=dict)
    """Rate of each stream, and of their sum, as the sender saw it."""
    received: dict[str, IperfFigure] = msgspec.field(default_factory=dict)
    """The same, as the receiver saw it."""
    transferred: dict[str, IperfFigure] = msgspec.field(default_factory=dict)
    """Bytes that arrived."""
    more: dict[str, Result] = msgspec.field(default_factory=dict)
    """Retransmits, jitter, losses: from the last row, which is the sum."""

    def results(self, operation: str, prefix: str) -> list[Result]:
        """Return it as results, the main one first: what arrived. `prefix` precedes the names of the others."""
        sent, received, transferred = (_sum(each) for each in (self.sent, self.received, self.transferred))
        if received is not None and received.value == 0 and sent is not None:
            # An interrupted client never learns what arrived, and prints 0.
            received = transferred = None
        main = sent if received is None else received
        found = [] if main is None else [main.result(operation, "bytes_per_second")]
        if sent is not None:
            found.append(sent.result(f"{prefix}sent", "bytes_per_second"))
        if transferred is not None:
            found.append(transferred.result(f"{prefix}transferred", "bytes"))
        return [*found, *(structs.replace(each, operation=f"{prefix}{name}") for name, each in self.more.items())]


def _sum(figures: Mapping[str, IperfFigure]) -> IperfFigure | None:
    if SUM in figures or len(figures) <= 1:
        return figures.get(SUM, next(iter(figures.values()), None))
    return IperfFigure(sum(figure.value for figure in figures.values()))


class Iperf3Reader(OutputReader):
    """Reads the output of iperf3, as text, as one JSON document or as a stream of them."""

    def __init__(self) -> None:
        super().__init__()
        self._documents = Documents()
        self._streamed = ""
        """The cookie of the last run in a JSON stream."""
        self._reset()

    def _reset(self) -> None:
        self._open = self._server = self._json = False
        self._began = False
        """Whether the transfer has begun."""
        self._phase = "send"
        self._ways = {"send": Way(), "receive": Way()}
        self._rates: dict[str, Result] = {}
        self._seconds = 0.0
        self._connections = 0
        self._first: set[str] = set()
        """Streams that have had a row starting at 0."""

    def line(self, line: str) -> Iterable[Event]:
        """Return the events in one line."""
        for document in self._documents.feed(line):
            yield from self._document(document)
        if CLIENT.search(line) is not None:
            yield from self._begin("send")
        elif SERVER.search(line) is not None:
            # A server may write to the same file as a client that has just begun: then the client counts.
            if not self._open or self._server or self._seconds:
                yield from self._begin("receive")
                self._server = True
        elif (found := ERROR.search(line)) is not None:
            if not self._open:
                yield from self._begin("send")
            yield from self._finish(found[1][:MAX_ERROR_CHARACTERS].strip())
        elif self._open and not self._json:
            yield from self._text(line)

    def end(self) -> Iterable[Event]:
        """Return the events at the end of the output."""
        return self._finish("" if self._server else "the output ends before the result")

    def _begin(self, phase: str) -> Iterator[Event]:
        yield from self.end()
        self._reset()
        self._open, self._phase = True, phase
        yield RunBegan()

    def _finish(self, failure: str) -> Iterator[Event]:
        """Report the result as far as it is known, and how it ended: regularly, if there is no failure."""
        if not self._open:
            return
        self._open = False
        both = self._phase == "bidirectional"
        if self._server and self._phase == "receive" and not self._ways["receive"].received:
            # A server prints only its own measurements.
            self._phase, self._ways = "send", {"send": self._ways["receive"]}
        results = [
            result for name, way in self._ways.items() for result in way.results(name, f"{name}_" if both else "")
        ]
        if results:
            # The main figure of each direction comes first.
            results.sort(key=lambda result: result.operation not in self._ways)
            yield Ended(self._phase, tuple(results), self._seconds or None)
        elif not failure and not self._server:
            failure = "there is no result"
        if failure:
            yield Failed(failure)
        elif results:
            yield Completed()

    def _text(self, line: str) -> Iterator[Event]:
        if REVERSE.search(line) is not None:
            self._phase = "receive"
        elif CONNECTED.search(line) is not None:
            self._connections += 1
        elif (found := HEADER.search(line)) is not None:
            if found[1]:
                self._phase = "bidirectional"
            if not self._began:
                self._began = True
                yield Rate(self._phase)
        elif DONE.search(line) is not None:
            yield from self._finish("")
        elif LISTENING.search(line) is not None:
            if self._server:
                yield from self._finish("")
        elif (found := ROW.search(line)) is not None:
            yield from self._row(found)

    def _row(self, row: re.Match[str]) -> Iterator[Event]:
        rest = row["rest"]
        if rest.rstrip().endswith("(omitted)"):
            return
        both = self._phase == "bidirectional"
        summed = row["id"].startswith(SUM)
        stream = f"{row['role']}{SUM if summed else row['id'].strip()}"
        way = {"TX": "send", "RX": "receive"}.get(row["role"] or "", "receive" if self._phase == "receive" else "send")
        side = SIDE.search(rest)
        first = float(row["start"]) == 0
        if side is not None or (first and stream in self._first):
            # For UDP, iperf 3.0 and 3.1 do not say whose row it is.
            self._whole(self._ways[way], SUM if summed else stream, row, side is not None and side[1] == "sender")
            return
        if first and len(self._first) < MAX_STREAMS:
            self._first.add(stream)
        if summed or self._connections <= (2 if both else 1):
            yield self._now(way, bandwidth(row))

    def _whole(self, way: Way, stream: str, row: re.Match[str], sender: bool) -> None:
        figures = way.sent if sender else way.received
        if len(figures) >= MAX_STREAMS and stream not in figures:
            return
        figures[stream] = bandwidth(row)
        self._seconds = max(self._seconds, float(row["end"]))
        if not sender:
            way.transferred[stream] = transfer(row)
            if (found := LOSS.match(row["rest"])) is not None:
                way.more["jitter"] = Result("jitter", "seconds", float(found[1]) / 1000, f"{found[1]} ms")
                way.more["lost"] = Result("lost", "packets", float(found[2]), f"{found[2]}/{found[3]}")
        elif (found := RETRANSMITS.match(row["rest"])) is not None:
            way.more["retransmits"] = Result("retransmits", "packets", float(found[1]), found[1])

    def _now(self, way: str, rate: IperfFigure) -> Rate:
        self._rates[way] = rate.result(way, "bytes_per_second")
        return Rate(self._phase, tuple(self._rates[name] for name in self._ways if name in self._rates))

    def _document(self, document: Mapping[str, Any]) -> Iterator[Event]:
        event = document.get("event")
        if event is None:
            start, end, error = _object(document, "start"), _object(document, "end"), document.get("error")
            if _is_start(start) and not (self._streamed and start.get("cookie") == self._streamed):
                yield from self._json_begin(start)
                yield from self._json_end(end, error)
        elif event == "start":
            start = _object(document, "data")
            if _is_start(start):
                yield from self._json_begin(start)
                cookie = start.get("cookie")
                self._streamed = cookie[:MAX_ERROR_CHARACTERS] if isinstance(cookie, str) else ""
                yield Rate(self._phase)
        elif not (self._open and self._json):
            return
        elif event == "interval":
            for way, key in self._keys("sum").items():
                each = _object(_object(document, "data"), key)
                bits = number(each.get("bits_per_second"))
                if bits is not None and each.get("omitted") is not True:
                    yield self._now(way, _bits(bits))
        elif event == "error":
            yield from self._finish(str(document.get("data"))[:MAX_ERROR_CHARACTERS])
        elif event == "end":
            yield from self._json_end(_object(document, "data"), None)

    def _json_begin(self, start: Mapping[str, Any]) -> Iterator[Event]:
        test = _object(start, "test_start")
        self_sends = bool(test.get("reverse")) == ("accepted_connection" in start)
        yield from self._begin("bidirectional" if test.get("bidir") else "send" if self_sends else "receive")
        self._json, self._server = True, "accepted_connection" in start

    def _json_end(self, end: Mapping[str, Any], error: object) -> Iterator[Event]:
        if "sum_sent_bidir_reverse" in end:  # before 3.17 nothing else shows it
            self._phase = "bidirectional"
        for way, key in self._keys("sum_sent").items():
            self._json_way(self._ways[way].sent, _object(end, key))
            if (again := number(_object(end, key).get("retransmits"))) is not None:
                self._ways[way].more["retransmits"] = Result("retransmits", "packets", again, f"{again:.0f}")
        for way, key in self._keys("sum_received").items():
            # For UDP there is only one sum before 3.12.
            each = _object(end, key) or _object(end, key.replace("_received", ""))
            self._json_way(self._ways[way].received, each)
            if (moved := number(each.get("bytes"))) is not None:
                self._ways[way].transferred[SUM] = IperfFigure(moved, f"{moved:.0f} Bytes")
            if (jitter := number(each.get("jitter_ms"))) is not None:
                self._ways[way].more["jitter"] = Result("jitter", "seconds", jitter / 1000, f"{jitter:g} ms")
            if (lost := number(each.get("lost_packets"))) is not None:
                self._ways[way].more["lost"] = Result("lost", "packets", lost, f"{lost:.0f}")
        yield from self._finish("" if error is None else str(error)[:MAX_ERROR_CHARACTERS])

    def _json_way(self, figures: dict[str, IperfFigure], each: Mapping[str, Any]) -> None:
        bits, seconds = number(each.get("bits_per_second")), number(each.get("seconds"))
        if bits is not None:
            figures[SUM] = _bits(bits)
            self._seconds = max(self._seconds, seconds or 0.0)

    def _keys(self, key: str) -> Mapping[str, str]:
        """Return the keys of the sum of each direction."""
        if self._phase == "bidirectional":
            reverse = f"{key}_bidir_reverse"
            return {"send": reverse, "receive": key} if self._server else {"send": key, "receive": reverse}
        return {self._phase: key}


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _is_start(start: Mapping[str, Any]) -> bool:
    return str(start.get("version", "")).startswith("iperf 3")


def _bits(bits: float) -> IperfFigure:
    return IperfFigure(bits / 8, f"{bits:.0f} bits/sec")


class Iperf3(Benchmark):
    """A client of iperf3; a server only waits for clients and does not count."""

    name = "iperf3"
    comms: ClassVar = frozenset({"iperf3"})
    reader = Iperf3Reader
    hint = "a client prints its result when it ends; --forceflush shows its rows at once"
    documented = (
        Documented(
            "iperf 3",
            "`send`, `receive`, `bidirectional`",
            "command line",
            "rows, summary, JSON",
            "what it prints",
        ),
    )

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Return whether a process is a client."""
        return super().leads(tree, pid) and any(letter == "c" for letter, _ in options(tree.argv(pid), SHORT, LONG))

    def __init__(self, tree: Tree, leader: int) -> None:
        given = dict(options(tree.argv(leader), SHORT, LONG))
        self._phase = "bidirectional" if "both" in given else "receive" if "R" in given else "send"
        seconds = number(given.get("t", DEFAULT_SECONDS))
        endless = {"n", "k"} & given.keys() or not seconds
        self._expected = None if endless or seconds is None else seconds + (number(given.get("O", 0)) or 0.0)

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return the phase given by the command line."""
        return Sight(State.RUNNING, self._phase, PhaseSource.ARGV, expected=self._expected)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event of a transfer in this one's direction, None for any other."""
        return event if event.phase == self._phase else None
