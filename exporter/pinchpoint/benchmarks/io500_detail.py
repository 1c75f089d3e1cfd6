"""What the files of one IO500 phase say beyond its result: stonewall, stages, ranks and hosts.

Each phase has what ior, mdtest or pfind printed (``ior-easy-write.txt``) and, since io500-isc21, the times of each rank
(``ior-easy-write.csv``). Formats: ``StoreRankInformation`` in src/ior.c and src/mdtest.c, src/ior-output.c (IOR 3.1.0
to 4.1.0+dev), ``pfind_aggregrate_results`` of pfind. All are read as streams, in memory bounded by the number of ranks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from statistics import median

import msgspec

from pinchpoint.benchmarks.ior import NUMBER, TABLE, WALL, ResultTable
from pinchpoint.benchmarks.mpi import unprefixed
from pinchpoint.benchmarks.output import Lines, number
from pinchpoint.benchmarks.reading import date_in
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Count, Figure, Share, Time
from pinchpoint.units import BYTES_PER_GIBIBYTE, BYTES_PER_MEBIBYTE

__all__ = ["Nodes", "PhaseDetail", "PhaseText", "RankTable", "RankTimes", "SlowNode", "SlowRank", "rank_times"]

MAX_RANKS = 1 << 20
"""Ranks whose times are kept; the list's largest run has 263,000."""
NO_TIME = array("d", [math.nan])
MAX_DETAIL_LINE_CHARACTERS = 2048
"""Part of a line that is searched, in characters."""
MAX_WALL_SECONDS = 10**6 - 1
"""Longest stonewall that is believed, in seconds."""
MAX_COUNT = (1 << 31) - 1
"""Most nodes and ranks that are believed."""
MAX_SLOW = 5
"""Slowest ranks and nodes that are kept."""
MAX_HOST_CHARACTERS = 64

RANK_WALL = expression(r"\b(\d{1,7}): stonewalling pairs accessed: (\d{1,18})\s*$")
"""With -vv (IOR 3.1 to 3.3): one line for each rank."""
ITEM_WALL = expression(rf"\bContinue stonewall hit min: (\d{{1,18}}) max: (\d{{1,18}}) avg: ({NUMBER})")
LAUNCHED = expression(r"\bmdtest-\S{1,64} was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node")
NODE_MAP = expression(r"\bNodemap: ([01]+)")
FIELD = expression(r"^\s*(nodes|tasks|clients per node|Participating tasks|clients|Machine)\s*[:=] (.*)$")
CLIENTS = expression(r"(\d{1,9}) \((\d{1,9}) per node\)")
TASK_HOST = expression(r"^\s*task (\d{1,7}) on (\S{1,255})\s*$")
COMMAND = expression(r"^Command line(?: used)?\s*: (.*)$")
BEGAN = expression(r"\s*(?:Began\s*:|-- started at )")
SUMMARY_TITLE = "Operation   Max(MiB)"
SUMMARY_WALL = ("Stonewall(s)", "Stonewall(MiB)")
ROW_WORDS = ("write", "read")


class SlowRank(msgspec.Struct, frozen=True, array_like=True):
    """A rank that needed longer than the others."""

    rank: Count
    seconds: Time
    host: str = ""
    """Empty where the files do not name its host."""


class SlowNode(msgspec.Struct, frozen=True, array_like=True):
    """A node whose ranks needed longer than those of the others."""

    node: Count
    """Its place, from 0, in the order of ranks."""
    first: Count
    """Its lowest rank."""
    seconds: Time
    """Median of its ranks."""
    host: str = ""


class Nodes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which ranks share a node, as far as the files say."""

    count: Count
    per_node: Count
    cyclic: bool = False
    """Ranks are dealt out one by one, not in blocks."""

    def of(self, rank: int) -> int:
        """Return the node of a rank."""
        return rank % self.count if self.cyclic else rank // self.per_node


class RankTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of a phase's ranks, in seconds."""

    count: Count
    fastest: Time
    median: Time
    mean: Time
    slowest: Time
    deviation: Time
    """Median of the absolute distances from the median."""
    ranks: tuple[SlowRank, ...] = ()
    """The slowest ones, slowest first."""
    nodes: tuple[SlowNode, ...] = ()
    """The slowest ones, slowest first; empty where the files do not say which ranks share a node."""
    node_count: Count = 0
    node_median: Time = 0.0
    """Median of the nodes' medians."""
    node_deviation: Time = 0.0


class PhaseDetail(msgspec.Struct, omit_defaults=True):
    """What the files of a phase say; None where they do not."""

    phase: str
    tasks: Count | None = None
    nodes: Count | None = None
    per_node: Count | None = None
    wall: Time | None = None
    """Seconds after which the option -D or -W stops the phase."""
    wall_hit: Time | None = None
    """Seconds after which ior stopped."""
    wall_fewest: Count | None = None
    """Transfers or items of the slowest rank by then."""
    wall_most: Count | None = None
    wall_rates: list[WallRate] = []
    """The rate until the stonewall as each file has it, the most exact one first."""
    opening: Time | None = None
    """Seconds from the first rank's open() to the last one's end; ior's stages overlap."""
    moving: Time | None = None
    """The same of transfers."""
    closing: Time | None = None
    """The same of close()."""
    seconds: Time | None = None
    """How long ior says that it took."""
    rate: Figure | None = None
    """What ior or mdtest printed, in base units."""
    rate_error: Share = 0.0
    """By how much, as a share, that may differ because it is rounded."""
    searching: Share | None = None
    """Part of the time of pfind's ranks in which they looked for work of other ranks."""
    ranks: RankTimes | None = None
    host: str = ""
    """Where rank 0 ran."""
    notes: list[str] = []
    """What is wrong with the files."""


class WallRate(msgspec.Struct, frozen=True, array_like=True):
    """A rate until the stonewall, in base units."""

    low: Figure
    high: Figure
    """It lies between both: files round it."""
    source: str
    """Where it stands."""

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """By how much it may differ, as a share."""
        return (self.high - self.low) / 2 / self.middle if self.middle else math.inf

    def agrees(self, other: WallRate) -> bool:
        """Return whether both may be the same rate, rounded."""
        return self.low <= other.high and other.low <= self.high


def rounded(low_text: str, factor: float, source: str) -> WallRate | None:
    """Return a rate from its figure as printed: its last digit is rounded. None for one that is not above 0."""
    value = number(low_text)
    if value is None or not 0 < value * factor < 2.0**62:
        return None
    decimals = len(low_text.partition(".")[2])
    half = 0.5 * 10.0**-decimals
    return WallRate(max(0.0, value - half) * factor, (value + half) * factor, source)


class PhaseText:
    """Reads what ior or mdtest printed for a phase.

    `name` is the file's name, for messages. Nothing that the text holds makes it raise or grow beyond `MAX_RANKS`.
    """

    def __init__(self, phase: str, name: str) -> None:
        self.detail = PhaseDetail(phase)
        self.hosts: dict[int, str] = {}
        """Host of each rank (ior -vv before 3.3)."""
        self.cyclic: bool | None = None
        """Whether ranks are dealt out to nodes one by one; None if not known."""
        self.began: float | None = None
        """When it began, in Unix seconds."""
        self._name = name
        self._lines = Lines()
        self._table: ResultTable | None = None
        self._columns: list[str] = []
        self._walls: dict[int, int] = {}

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        for line in self._lines.feed(data):
            self._line(line)

    def close(self) -> None:
        """Take in the last line."""
        for line in self._lines.close():
            self._line(line)

    def _line(self, line: str) -> None:
        line = unprefixed(line)
        detail = self.detail
        if (found := NODE_MAP.search(line)) is not None:
            self._node_map(found[1])
            return
        line = line[:MAX_DETAIL_LINE_CHARACTERS]
        if (found := RANK_WALL.search(line)) is not None:
            if len(self._walls) < MAX_RANKS:
                self._walls[int(found[1])] = int(found[2])
        elif (found := TASK_HOST.match(line)) is not None:
            if len(self.hosts) < MAX_RANKS:
                self.hosts[int(found[1])] = found[2].partition(".")[0][:MAX_HOST_CHARACTERS]
        elif (found := WALL.search(line)) is not None:
            self._wall(found)
        elif (found := ITEM_WALL.search(line)) is not None:
            detail.wall_fewest, detail.wall_most = int(found[1]), int(found[2])
            if detail.wall and detail.tasks and (rate := rounded(found[3], detail.tasks / detail.wall, "")):
                source = f"{self._name}: average of the ranks, over the {detail.wall:.0f} s of -W"
                detail.wall_rates.append(WallRate(rate.low * (1 - WALL_ERROR), rate.high * (1 + WALL_ERROR), source))
        elif (found := LAUNCHED.search(line)) is not None:
            self._launched(int(found[1]), int(found[2]))
        elif self.began is None and BEGAN.match(line) is not None:
            self.began = date_in(line.encode())
        elif (found := COMMAND.match(line)) is not None:
            self._command(found[1])
        elif (found := FIELD.match(line)) is not None:
            self._field(found[1], found[2].strip())
        elif TABLE.search(line[:512]) is not None:
            self._table = ResultTable(line[line.index("access") :].split())
        elif SUMMARY_TITLE in line:
            self._columns = line[line.index(SUMMARY_TITLE) :].split()
        elif self._columns and line.lstrip().startswith(ROW_WORDS):
            self._summary(line.split())
        elif self._table is not None:
            self._row(line)

    def _wall(self, found: re.Match[str]) -> None:
        detail = self.detail
        detail.wall_fewest, detail.wall_most = int(found[1]), int(found[2])
        hit = float(found[4])
        detail.wall_hit = hit
        if detail.tasks and hit > 0 and (rate := rounded(found[3], detail.tasks * BYTES_PER_GIBIBYTE / hit, "")):
            late = 0.05 / hit
            detail.wall_rates.append(
                WallRate(rate.low * (1 - late), rate.high * (1 + late), f"{self._name}: mean data of the ranks")
            )

    def _launched(self, tasks: int, nodes: int) -> None:
        if tasks and nodes:
            self.detail.tasks, self.detail.nodes = tasks, nodes
            self.detail.per_node = tasks // nodes if tasks % nodes == 0 else None

    def _node_map(self, bits: str) -> None:
        """Take in which ranks share the node of rank 0."""
        together = len(bits) - len(bits.lstrip("1"))
        step = bits.find("1", 1)
        if bits.count("1") == together > 1:
            self.cyclic = False
        elif step > 1 and all((bit == "1") == (place % step == 0) for place, bit in enumerate(bits)):
            self.cyclic = True

    def _command(self, text: str) -> None:
        words = [word.strip("'\"") for word in text.split()]
        for option in ("-D", "-W"):
            for word, after in zip_longest(words, words[1:], fillvalue=""):
                value = after if word == option else word[len(option) + 1 :] if word.startswith(f"{option}=") else ""
                if seconds := _count(value, MAX_WALL_SECONDS):
                    self.detail.wall = float(seconds)

    def _field(self, key: str, value: str) -> None:
        detail = self.detail
        if key == "Machine":
            words = value.split()
            detail.host = words[1].partition(".")[0][:MAX_HOST_CHARACTERS] if len(words) > 1 else ""
        elif key == "clients":
            if (found := CLIENTS.match(value)) is not None and int(found[1]) and int(found[2]):
                detail.tasks, detail.per_node = int(found[1]), int(found[2])
        elif count := _count(value, MAX_COUNT):
            if key == "nodes":
                detail.nodes = count
            elif key == "clients per node":
                detail.per_node = count
            else:
                detail.tasks = count
        if detail.tasks and detail.per_node and not detail.nodes and detail.tasks % detail.per_node == 0:
            detail.nodes = detail.tasks // detail.per_node

    def _summary(self, cells: Sequence[str]) -> None:
        """Take in a row of ior's summary, which has the stonewall with more digits."""
        columns, self._columns = self._columns, []
        if len(cells) != len(columns) or not set(SUMMARY_WALL) <= set(columns):
            return
        found = dict(zip(columns, cells, strict=True))
        rate = rounded(found[SUMMARY_WALL[1]], BYTES_PER_MEBIBYTE, f"{self._name}: Stonewall(MiB)")
        if rate is None:
            return
        # Of all ranks up to 3.3, of the mean rank since 4.0.0 (stonewall_avg_data_accessed, src/ior.c).
        known, tasks = self.detail.wall_rates, self.detail.tasks or 1
        whole = WallRate(rate.low * tasks, rate.high * tasks, rate.source)
        of_one = any(map(whole.agrees, known)) and not any(map(rate.agrees, known))
        known.append(whole if of_one else rate)

    def _row(self, line: str) -> None:
        if self._table is None or (row := self._table.row(line)) is None or row.access not in ROW_WORDS:
            return
        detail = self.detail
        detail.opening, detail.moving = _seconds(row.opening), _seconds(row.moving)
        detail.closing, detail.seconds = _seconds(row.closing), _seconds(row.seconds)
        if (rate := rounded(row.bandwidth, BYTES_PER_MEBIBYTE, "")) is not None:
            detail.rate, detail.rate_error = rate.middle, min(1.0, rate.error)

    def walls(self) -> Iterator[tuple[int, int]]:
        """Yield the transfers of each rank until the stonewall, by rank, where they are known."""
        yield from sorted(self._walls.items())


WALL_ERROR = 0.02
"""By how much, as a share, the time of mdtest's stonewall may differ from -W, as it looks at its clock after each item.
The time is not printed. `bench/io500_list.py` shows how many public runs with both figures differ by more."""


def _count(text: str, most: int) -> int:
    """Return a count from 1 to `most` that stands there in ASCII digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most else 0


def _seconds(text: str) -> float | None:
    value = number(text)
    return value if value is not None and 0 <= value < 2.0**37 else None


TREE_COLUMNS = 4
OPERATIONS = {"write": "File creation", "stat": "File stat", "read": "File read", "delete": "File removal"}


class RankTable:
    """Reads the times of each rank from a phase's CSV file.

    A table of another locale (``;`` between cells, decimal commas) is read too. Whatever is not a row is counted.
    """

    def __init__(self, phase: str) -> None:
        self._ranks = array("I")
        """Ranks that have a time, in the order of their rows."""
        self._seconds = array("d")
        """By rank; NaN for a rank without a time."""
        self.rows = 0
        self.foreign = 0
        """Lines that are not rows of the table."""
        self.twice = 0
        """Rows of ranks that had one before."""
        self.cut = False
        """Whether there are more ranks than are read."""
        self.searching = array("d")
        """Seconds in which each rank of pfind looked for work."""
        self.runtime: float | None = None
        self._phase = phase
        self._lines = Lines()
        self._separator = ","
        self._columns: list[str] = []
        self._rank = self._time = self._search = -1
        self._shorter = 0

    @property
    def known(self) -> bool:
        """Whether the table has a header that is understood."""
        return self._rank >= 0

    @property
    def seconds(self) -> Mapping[int, float]:
        """The time of each rank that has one."""
        return {rank: self._seconds[rank] for rank in sorted(self._ranks)}

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        for line in self._lines.feed(data):
            self._line(line)

    def close(self) -> None:
        """End: a row ends with its line, so a last line without an end was cut, maybe in the middle of a figure."""
        self.foreign += sum(not line.isspace() for line in self._lines.close())

    def _line(self, line: str) -> None:
        if not line or line.isspace():
            return
        if not self._columns:
            self._header(line)
            return
        cells = line.split(self._separator)
        # mdtest's rows of ranks lack the last four columns, those of the tree.
        whole = len(cells) in (len(self._columns), len(self._columns) - self._shorter)
        if not whole or len(cells) <= max(self._rank, self._time, self._search):
            self.foreign += 1
            return
        name = cells[self._rank].strip() if self.known else ""
        if name == "all":
            return
        seconds = self._cell(cells, self._time)
        if not name.isdecimal() or not name.isascii() or len(name) > 9 or (seconds is None and self._search < 0):
            self.foreign += 1
            return
        self._take(int(name), seconds, self._cell(cells, self._search))

    def _header(self, line: str) -> None:
        if (found := re.match(rf"runtime: ({NUMBER}) rate:", line)) is not None:  # pfind
            self.runtime = float(found[1])
            return
        self._separator = ";" if line.count(";") > line.count(",") else ","
        self._columns = [word.strip().lstrip("\ufeff") for word in line.split(self._separator)]
        places = {name: place for place, name in enumerate(self._columns)}
        operation = OPERATIONS.get(self._phase.rpartition("_")[2], "")
        time = next((name for name in (f"time-{operation}", "runtime") if name in places), None)
        search = "time spend in job stealing in s"
        if "rank" in places and (time is not None or search in places):
            self._rank = places["rank"]
            self._time = places[time] if time is not None else -1
            self._search = places.get(search, -1)
            self._shorter = TREE_COLUMNS if self._columns[-1] == "time-Tree removal" else 0

    def _cell(self, cells: Sequence[str], place: int) -> float | None:
        if place < 0:
            return None
        text = cells[place].strip().rstrip("s")
        if self._separator == ";":
            text = text.replace(",", ".")
        return _seconds(text) if re.fullmatch(r"\d+(?:\.\d*)?(?:[eE][-+]?\d{1,3})?", text) else None

    def _take(self, rank: int, seconds: float | None, searching: float | None) -> None:
        if rank >= MAX_RANKS:
            self.cut = True
            return
        self.rows += 1
        if searching is not None:
            self.searching.append(searching)
        if seconds is None:
            return
        if rank >= len(self._seconds):
            self._seconds.extend(NO_TIME * (rank + 1 - len(self._seconds)))
        if math.isnan(self._seconds[rank]):
            self._seconds[rank] = seconds
            self._ranks.append(rank)
        else:
            self.twice += 1

    def notes(self, name: str, tasks: int | None) -> Iterator[str]:
        """Yield what is wrong with the table, which is in the file `name`, of a run with so many ranks."""
        if not self.known:
            yield f"{name}: not a table of ranks: its first line has no columns `rank` and `runtime` or `time-...`"
            return
        if self.foreign:
            lines = self.foreign + self.rows
            yield f"{name}: {self.foreign} of {lines} lines are not rows of its table; they are left out"
        if self.twice:
            yield f"{name}: {self.twice} ranks have several rows; the first one counts"
        if self.cut:
            yield f"{name}: only the first {MAX_RANKS} ranks are read"
        ranks = len(self._ranks) if self._time >= 0 else self.rows
        if tasks is not None and ranks != tasks:
            yield f"{name}: it has {ranks} ranks, the run has {tasks}"


def rank_times(seconds: Mapping[int, float], nodes: Nodes | None, hosts: Mapping[int, str]) -> RankTimes | None:
    """Return the spread of the ranks' times, None for fewer than two ranks. `seconds` is by rank."""
    known = [(value, rank) for rank, value in seconds.items()]
    if len(known) < 2:
        return None
    values = sorted(value for value, _ in known)
    middle = median(values)
    slow = sorted(known, key=lambda one: (-one[0], one[1]))[:MAX_SLOW]
    of_nodes = _node_times(known, nodes, hosts)
    node_values = sorted(node.seconds for node in of_nodes)
    node_median = median(node_values) if node_values else 0.0
    return RankTimes(
        count=len(known),
        fastest=values[0],
        median=middle,
        mean=math.fsum(values) / len(values),
        slowest=values[-1],
        deviation=_deviation(values, middle),
        ranks=tuple(SlowRank(rank, value, hosts.get(rank, "")) for value, rank in slow),
        nodes=tuple(of_nodes[:MAX_SLOW]) if len(of_nodes) > 1 else (),
        node_count=len(of_nodes),
        node_median=node_median,
        node_deviation=_deviation(node_values, node_median) if node_values else 0.0,
    )


def _node_times(known: Iterable[tuple[float, int]], nodes: Nodes | None, hosts: Mapping[int, str]) -> list[SlowNode]:
    """Return the median of each node's ranks, the slowest first; `known` has seconds and ranks."""
    ranks_of: dict[int | str, list[tuple[float, int]]] = {}
    for seconds, rank in known:
        node = hosts.get(rank) if hosts else nodes.of(rank) if nodes is not None else None
        if node is not None:
            ranks_of.setdefault(node, []).append((seconds, rank))
    found = []
    for place, (first, node) in enumerate(sorted((min(r for _, r in ranks), str(n)) for n, ranks in ranks_of.items())):
        key = node if hosts else int(node)
        middle = median(seconds for seconds, _ in ranks_of[key])
        found.append(SlowNode(place, first, middle, node if hosts else ""))
    return sorted(found, key=lambda node: (-node.seconds, node.node))


def _deviation(values: Iterable[float], middle: float) -> float:
    return median(abs(value - middle) for value in values)
