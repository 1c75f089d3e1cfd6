"""ping: round trips, one line each as it is answered, and their summary.

Formats of iputils 20221126 (``finish`` in ping/ping_common.c), BSD's ping and busybox' (networking/ping.c).
"""

from __future__ import annotations

import getopt
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pinchpoint.benchmarks.base import Benchmark, Documented, Sight
from pinchpoint.benchmarks.events import Began, Completed, Ended, Event, Failed, PhaseSource, Rate, RunBegan, State
from pinchpoint.benchmarks.output import OutputReader, number
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["Ping", "PingReader"]

PHASE = "ping"
OPTIONS = "h?4bRT:6F:N:3aABc:CdDe:fHi:I:l:Lm:M:nOp:qQ:rs:S:t:UvVw:W:"
"""Of getopt in ping/ping.c, iputils 20221126; BSD's and busybox' -c, -i and -w take a value too."""

HEADER = expression(r"PING6? ?\S.*\b(?:data bytes|bytes of data|bytes\) )")
"""``PING host (address) 56(84) bytes of data.``, ``PING host (address): 56 data bytes``, ``PING6(56=40+8+8 bytes)``."""
STAMP = expression(r"\[\d+\.\d+\] ")
"""What -D prints in front."""
ANSWER = expression(r"\d+ bytes from [^=]*\b(?:icmp_)?seq=\d+\b.*\btime[=<]([\d.]+)\s*(ms|us|usec|s)\b(.*)")
STATISTICS = expression(r"-{3,4} ?\S+ ping6? statistics ?-{3,4}", re.IGNORECASE)
COUNTS = expression(r"(\d+) packets transmitted, (\d+) (?:packets )?received")
LOSS = expression(r"(?<![\d.])([\d.]++)% packet loss")
TIME = expression(r"\btime (\d+)ms")
TRIPS = expression(r"(?:rtt|round-trip)\s+min/avg/max(/[\w-]+)?\s*=\s*([\d.]+)/([\d.]+)/([\d.]+)(?:/([\d.]+))?\s*(\w+)")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "usec": 1e-6}
MAX_LINE_CHARACTERS = 1024
"""Lines longer than this, in characters, are not from ping."""


class PingReader(OutputReader):
    """Reads the text; in languages other than English only the answers."""

    def __init__(self) -> None:
        super().__init__()
        self._open = False
        self._answers = 0
        self._counts: tuple[Result, ...] | None = None
        """Packets and loss, once known: the round trips follow if there were any."""
        self._seconds: float | None = None

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        if len(line) > MAX_LINE_CHARACTERS:
            return
        line = line.strip()
        if match := STAMP.match(line):
            line = line[match.end() :]
        if self._counts is not None:
            match = TRIPS.match(line)
            yield from self._over(_trips(match) if match else ())
        elif HEADER.match(line):
            yield from self._abandon()
            yield from self._begin()
        elif STATISTICS.match(line):
            if not self._open:
                yield from self._begin()
        elif not self._open:
            return
        elif match := ANSWER.match(line):
            if (time := number(match[1])) is not None and "DUP!" not in match[3]:
                self._answers += 1
                trip = Result("round_trip", "seconds", time * SECONDS[match[2]], f"{match[1]} {match[2]}")
                yield Rate(PHASE, (trip,), work=float(self._answers))
        elif match := COUNTS.match(line):
            sent, received = number(match[1]) or 0.0, number(match[2]) or 0.0
            self._counts = _counts(sent, received, line)
            time_match = TIME.search(line)
            milliseconds = number(time_match[1]) if time_match else None
            self._seconds = None if milliseconds is None else milliseconds * 1e-3
            if not received:
                yield from self._over(())

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        if self._counts is not None:
            yield from self._over(())
        yield from self._abandon()

    def _begin(self) -> Iterator[Event]:
        self._open, self._answers = True, 0
        yield RunBegan()
        yield Began(PHASE)

    def _over(self, trips: tuple[Result, ...]) -> Iterator[Event]:
        counts, self._counts = self._counts or (), None
        self._open = False
        yield Ended(PHASE, trips + counts, self._seconds)
        yield Completed()

    def _abandon(self) -> Iterator[Event]:
        if self._open:
            yield Failed("the output ends before the statistics")
        self._open = False


def _counts(sent: float, received: float, line: str) -> tuple[Result, ...]:
    found = []
    match = LOSS.search(line)
    share = number(match[1]) if match else None
    if match and share is not None:
        found.append(Result("loss", "ratio", share / 100, f"{match[1]}%"))
    found.append(Result("transmitted", "packets", sent, f"{sent:.0f} packets"))
    found.append(Result("received", "packets", received, f"{received:.0f} packets"))
    return tuple(found)


def _trips(match: re.Match[str]) -> tuple[Result, ...]:
    """Return the average, the figure people quote, first; busybox has no fourth figure."""
    factor = SECONDS.get(match[6])
    if factor is None:
        return ()
    figures = {"average": match[3], "min": match[2], "max": match[4], "mdev": match[5]}
    return tuple(
        Result(f"{name}_round_trip", "seconds", value * factor, f"{figure} {match[6]}")
        for name, figure in figures.items()
        if figure is not None and (value := number(figure)) is not None
    )


class Ping(Benchmark):
    """One ``ping``."""

    name = "ping"
    comms = frozenset({"ping", "ping4", "ping6"})
    reader = PingReader
    everyday = True
    documented = (Documented("ping", "`ping`", "command line", "summary", "what it prints"),)

    def __init__(self, tree: Tree, leader: int) -> None:
        options = _options(tree.argv(leader))
        count, interval, deadline = (number(options.get(name, "")) for name in ("-c", "-i", "-w"))
        if interval is None:
            interval = 1.0
        self._count = count if count and count > 0 else None
        ends = [deadline] if deadline and deadline > 0 else []
        # Flooding and -A go as fast as answers come.
        if self._count and interval > 0 and not {"-f", "-A"} & options.keys():
            # The last packet is not followed by a pause.
            ends.append((self._count - 1) * interval)
        self._expected = min(ends, default=0.0) or None
        self._seen = False

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Return its only phase, from the second look on: at the first one it may still fail over its options."""
        if not self._seen:
            self._seen = True
            return Sight(State.SETUP, total=1)
        return Sight(State.RUNNING, PHASE, PhaseSource.ARGV, expected=self._expected, number=1, total=1)

    def claim(self, event: Ended | Rate) -> Ended | Rate | None:
        """Return an event, with the share of all packets that were answered."""
        if isinstance(event, Rate) and event.work is not None and self._count:
            return msgspec.structs.replace(event, progress=min(1.0, event.work / self._count))
        return event


def _options(argv: Sequence[str]) -> Mapping[str, str]:
    try:
        return dict(getopt.gnu_getopt(list(argv[1:]), OPTIONS)[0])
    except getopt.GetoptError:
        return {}
