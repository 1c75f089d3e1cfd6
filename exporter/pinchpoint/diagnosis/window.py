"""Windows: the two moments between which a phase is judged.

All windows are cut here, from live snapshots or from a recording, so that all verdicts on a phase agree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pinchpoint.diagnosis.pair import restarted
from pinchpoint.diagnosis.series import finite, label
from pinchpoint.diagnosis.usage import SeenThreads
from pinchpoint.metrics import STORAGE_DEVICE_INFO, UNKNOWN_THREAD_BUSY_RATIO
from pinchpoint.model import STALE_SECONDS, Labels, Snapshot, Snapshots, time_of
from pinchpoint.runs import PhaseMark
from pinchpoint.threads.roleless import MAX_UNKNOWN_NAMES, ROLELESS_WINDOW_SECONDS, Name

__all__ = ["Sighting", "Sightings", "Stream", "Window", "Windows", "needed", "parting", "with_ended"]

ENDING = (
    "pinchpoint_resource_",
    "pinchpoint_workload_",
    "pinchpoint_thread_",
    STORAGE_DEVICE_INFO.name,
)
"""Prefixes of series that end with their process: what it used still belongs to the phase."""
MIN_PART_SECONDS = 3.0
"""Minimum seconds of a part of a phase: a verdict on less has low confidence."""
MAX_PARTED_PHASES = 8
"""Maximum concurrent phases whose parts are kept: any user may begin many, and each part is a moment of all hosts."""
MAX_PARTS = 5
"""Maximum parts of a phase; a long one has parts of 6, 12, 24 ... seconds."""
MAX_MOMENTS = 4
"""Moments kept for phase ends that are reported late."""
MIN_SIGHTINGS = 100_000
"""Minimum number of sightings kept: those of one host over a day."""


class Stream:
    """The moments of live hosts, each with the series that ended since the last phase did."""

    def __init__(self) -> None:
        self.fresh: Snapshots = {}
        """The hosts that answered last, as they answered."""
        self.latest: dict[str, Snapshot] = {}
        """Each host as it answered last, with what ended on it as it was last."""
        self._answered: dict[str, Snapshot] = {}
        """Each host as it answered last."""
        self._ended: dict[str, dict[tuple[str, Labels], float]] = {}
        """When `expire` first saw that a series had ended, in Unix seconds, by host."""

    def take(self, moment: Snapshots) -> dict[str, Snapshot]:
        """Return the hosts that answered, with what ended on them as it was last."""
        self.fresh = moment
        self._answered.update(moment)
        found = {host: with_ended(self.latest.get(host), snapshot) for host, snapshot in moment.items()}
        self.latest.update(found)
        return found

    def forget(self) -> None:
        """Forget hosts of what has ended; integrals stay, since hosts that return continue them."""
        for host, snapshot in self.fresh.items():
            self.latest[host] = with_ended(self.latest[host], snapshot, gauges=False)

    def expire(self, now: float, before: float) -> None:
        """Forget series that had ended before a Unix time, and hosts that have not answered since; `now` is one too."""
        for host in [host for host, snapshot in self._answered.items() if snapshot.time < before]:
            del self._answered[host], self.latest[host]
            self._ended.pop(host, None)
        for host, answered in self._answered.items():
            earlier, values = self._ended.get(host, {}), dict(self.latest[host].values)
            self._ended[host] = ended = {}
            for name, series in self.latest[host].values.items():
                gone = series.keys() - answered.values.get(name, {}).keys()
                since = {labels: earlier.get((name, labels), now) for labels in gone}
                ended.update({(name, labels): time for labels, time in since.items() if time >= before})
                if any(time < before for time in since.values()):
                    values[name] = {
                        labels: value for labels, value in series.items() if since.get(labels, now) >= before
                    }
            self.latest[host] = msgspec.structs.replace(self.latest[host], values=values)


def with_ended(earlier: Snapshot | None, later: Snapshot, *, gauges: bool = True) -> Snapshot:
    """Return the later snapshot of a host, with the series of processes that ended in between as they were last."""
    if earlier is None or earlier is later or restarted(earlier, later):
        return later
    values = dict(later.values)
    for name, series in earlier.values.items():
        if name.startswith(ENDING) and (gauges or name.endswith("_total")):
            now = later.values.get(name, {})
            # Comparing lists of identical objects is cheap; looking each of them up is not.
            if list(series) != list(now) and series.keys() - now.keys():
                values[name] = {**series, **now}
    return Snapshot(later.time, values, later.lasts)


class _Moment(msgspec.Struct):
    time: float
    hosts: dict[str, Snapshot]
    """Each host as it was last seen."""

    def fresh(self) -> dict[str, Snapshot]:
        return {host: snapshot for host, snapshot in self.hosts.items() if self.time - snapshot.time <= snapshot.lasts}


class Window(msgspec.Struct):
    """A phase and the snapshots of each host around it; those are empty until there are any.

    It lies between the moments nearest to its start and to its end, or, if one moment is nearest to both,
    between the last one before it and the first one after it. Nothing is interpolated.
    """

    start: float
    end: float | None = None
    """Unix seconds; None for a phase whose end was not seen."""
    before: dict[str, Snapshot] = msgspec.field(default_factory=dict)
    """Each host at the start, or when it was first seen after it, or since its exporter was started anew."""
    after: dict[str, Snapshot] = msgspec.field(default_factory=dict)
    """Each host of `before` at the end, or when it was last seen before it, if it was seen again."""
    moments: tuple[float, float] | None = None
    """The times of the two moments, in Unix seconds."""
    inner: list[dict[str, Snapshot]] = msgspec.field(default_factory=list)
    """The hosts at the moments that divide the phase, oldest first; see `parting`."""
    parted: tuple[float, ...] = ()
    """Their times, in Unix seconds."""
    hottest: SeenThreads | None = None
    """The threads without a role that were hottest in the phase."""
    _anew: dict[str, Snapshot] = msgspec.field(default_factory=dict)
    """Hosts whose exporter was started anew after the first moment, as they were first seen since."""
    _around: list[_Moment] = msgspec.field(default_factory=list)
    """The last moment before the start, and the first one not before it, if there are any."""
    _later: dict[str, Snapshot] = msgspec.field(default_factory=dict)
    """The hosts as they were first seen after these."""
    _grid: float = MIN_PART_SECONDS
    _kept: dict[int, _Moment] = msgspec.field(default_factory=dict)
    """The first moment that is not before each multiple of `_grid` seconds after the start."""

    @property
    def begun(self) -> bool:
        """Whether moments of the phase itself were seen."""
        return len(self._around) > 1

    def see(self, moment: _Moment, *, parted: bool = True) -> None:
        """Take in the next moment; `parted` says whether to keep it as a possible division of the phase."""
        if not self._around or moment.time < self.start:
            self._around, self._later = [moment], {}
            return
        if parted:
            self._keep(moment)
        if len(self._around) == 1:
            self._around.append(moment)
        else:
            since = self._around[1].time
            for host, snapshot in moment.hosts.items():
                if snapshot.time > since:
                    self._later.setdefault(host, snapshot)

    def restart(self, hosts: Snapshots) -> None:
        """Take in the hosts whose exporters were started anew before the next moment, which has these snapshots."""
        self._anew.update(hosts)

    def _keep(self, moment: _Moment) -> None:
        """Keep a moment at which the phase may be divided; its duration is not known yet."""
        length = moment.time - self.start
        while length > 2 * MAX_PARTS * self._grid:
            self._grid *= 2
            self._kept = {place // 2: kept for place, kept in self._kept.items() if place % 2 == 0}
        place = int(length / self._grid)
        while place > 0 and place not in self._kept:
            self._kept[place] = moment
            place -= 1

    def cut(self, first: float, last: _Moment) -> None:
        """Take the snapshots at the moment `first`, or the nearest one that is kept, and at `last`."""
        begin = min(self._around, key=lambda moment: abs(moment.time - first))
        came = {**self._later, **self._around[-1].fresh()}
        self.before = {host: snapshot for host, snapshot in came.items() if begin.time < snapshot.time < last.time}
        self.before.update(begin.fresh())
        self.before.update(
            (host, snapshot) for host, snapshot in self._anew.items() if begin.time < snapshot.time < last.time
        )
        self.after = {
            host: last.hosts[host]
            for host, snapshot in self.before.items()
            if host in last.hosts and last.hosts[host].time > snapshot.time
        }
        self.moments = begin.time, last.time
        kept = {moment.time: moment for moment in self._kept.values()}
        self.parted = tuple(parting(sorted(kept), self.start, self.end, self.moments))
        self.inner = [kept[time].fresh() for time in self.parted]
        self._around, self._later, self._kept, self._anew = [], {}, {}, {}


class Windows:
    """Takes moments one after the other, oldest first, and cuts the windows of phases out of them."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._recent: deque[_Moment] = deque(maxlen=MAX_MOMENTS)
        self._hosts: dict[str, Snapshot] = {}
        self._open: list[Window] = []

    def open(self, start: float, end: float | None = None) -> Window:
        """Return the window of a phase that began at `start`, in Unix seconds.

        If `end` is already known, it is cut at the first moment that is not before it.
        """
        window = Window(start, end)
        for moment in self._recent:
            window.see(moment)
        self._open.append(window)
        return window

    def take(self, moment: Snapshots) -> None:
        """Take the next moment; one in which no host answered is ignored."""
        if not moment:
            return
        now = time_of(moment)
        anew = {
            host: snapshot
            for host, snapshot in moment.items()
            if (known := self._hosts.get(host)) is not None and restarted(known, snapshot)
        }
        self._hosts = {**self._hosts, **moment}
        self._times.append(now)
        self._recent.append(_Moment(now, self._hosts))
        begun = 0
        for window in self._open:
            window.restart(anew)
            window.see(self._recent[-1], parted=begun < MAX_PARTED_PHASES)
            begun += window.begun
        for window in [window for window in self._open if window.end is not None and now >= window.end]:
            self.close(window, window.end)

    def close(self, window: Window, end: float | None) -> None:
        """Cut the window of a phase that ended at `end`, in Unix seconds; None if not known."""
        if window in self._open:
            self._open.remove(window)
        window.end = end
        if (found := self.moments(window.start, end)) is not None:
            first, last = found
            window.cut(first, min(self._recent, key=lambda moment: abs(moment.time - last)))

    def finish(self, end: float | None = None) -> None:
        """Cut all open windows: no more moments come.

        `end`, in Unix seconds, applies to phases without one, of a run that died; the default is the last moment.
        """
        for window in [*self._open]:
            self.close(window, window.end)
            if window.end is None:
                window.end = end if end is not None or window.moments is None else window.moments[1]

    def forget(self, before: float) -> None:
        """Forget moments, and hosts last seen, before this Unix time; no uncut phase begins earlier."""
        del self._times[: bisect_left(self._times, before)]
        self._hosts = {host: snapshot for host, snapshot in self._hosts.items() if snapshot.time >= before}

    def moments(self, start: float, end: float | None) -> tuple[float, float] | None:
        """Return the times of the two moments around such a phase; None unless there are two."""
        places = _borders(self._times, start, end)
        return None if places is None else (self._times[places[0]], self._times[places[1]])

    def parted(self, start: float, end: float | None) -> tuple[float, ...]:
        """Return the times of the moments that divide such a phase."""
        moments = self.moments(start, end)
        return () if moments is None else tuple(parting(self._times, start, end, moments))


def parting(times: Sequence[float], start: float, end: float | None, moments: tuple[float, float]) -> Iterator[float]:
    """Yield the times of the moments that divide a phase, given all times, oldest first, and those of its window.

    Each is the first one after a multiple of the part length, which gives at most `MAX_PARTS` parts. A part shorter
    than half of that is left out.
    """
    before, last = moments
    length = (last if end is None else end) - start
    for place in _firsts(times, start, length):
        if last - times[place] < _grid(length) / 2:
            return
        if times[place] - before >= _grid(length) / 2:
            before = times[place]
            yield before


def _grid(length: float) -> float:
    """Return the part length in seconds of a phase of that duration."""
    grid = MIN_PART_SECONDS
    while length > MAX_PARTS * grid:
        grid *= 2
    return grid


def _firsts(times: Sequence[float], start: float, length: float) -> Iterator[int]:
    """Yield the index of the first moment not before the start of each part except the first."""
    for number in range(1, int(length / _grid(length)) + 1):
        place = bisect_left(times, start + number * _grid(length))
        if place < len(times):
            yield place


def _borders(times: Sequence[float], start: float, end: float | None) -> tuple[int, int] | None:
    """Return the indexes of the moments around a phase, given all times, oldest first."""
    last = len(times) - 1
    first, final = _nearest(times, start), last if end is None else _nearest(times, end)
    if first >= final:
        first = bisect_left(times, start)
        first -= first > last or (times[first] > start and first > 0)
        final = last if end is None else min(last, bisect_left(times, end))
    return (first, final) if 0 <= first < final else None


def _nearest(times: Sequence[float], time: float) -> int:
    """Return the index of the nearest time, the earlier one of two; -1 if there is none."""
    place = bisect_left(times, time)
    beside = range(max(0, place - 1), min(len(times), place + 1))
    return min(beside, key=lambda near: abs(times[near] - time), default=-1)


def needed(
    times: Sequence[float], changes: Collection[int], marks: Iterable[PhaseMark], step: float = float("inf")
) -> set[int]:
    """Return the indexes of a recording's moments that have to be read, given their times, oldest first.

    These are the moments around each phase's start and end, and those at which a host was first or last seen: `changes`
    has the indexes at which the hosts differ from the previous moment. From the rest, charts need one per `step`
    seconds.
    """
    found = set(_paced(times, step)) | {0, len(times) - 1}
    for mark in marks:
        first, last = (len(times) - 1 if time is None else bisect_left(times, time) for time in (mark.start, mark.end))
        for place in (first, last):
            found.update(range(place - 1, place + 2))
        if (places := _borders(times, mark.start, mark.end)) is not None:
            found.update(_firsts(times, mark.start, (times[places[1]] if mark.end is None else mark.end) - mark.start))
        stale = bisect_left(times, min([mark.start, *times[max(0, first - 1) : first]]) - 2 * STALE_SECONDS)
        found.update(near for place in changes if stale <= place <= last + 1 for near in (place - 1, place))
    return {place for place in found if 0 <= place < len(times)}


def _paced(times: Sequence[float], step: float) -> Iterator[int]:
    last = float("-inf")
    for place, time in enumerate(times):
        if time - last >= step:
            last = time
            yield place


class Sighting(NamedTuple):
    """A thread without a role that was hot at one moment."""

    time: float
    """Time of the moment, in Unix seconds."""
    host: str
    thread: str
    process: str
    busy: float


class Sightings:
    """The threads without a role that were seen hot, at any moment, not only those of a window."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """The time of each moment, in Unix seconds, oldest first."""
        self._found: list[Sighting] = []

    def __iter__(self) -> Iterator[Sighting]:
        """Iterate over what was seen, oldest first."""
        return iter(self._found)

    def take(self, moment: Snapshots) -> None:
        """Take the next moment."""
        self.times.append(time_of(moment))
        for host, snapshot in moment.items():
            for labels, value in snapshot.values.get(UNKNOWN_THREAD_BUSY_RATIO.name, {}).items():
                self.add(host, label(labels, "thread"), label(labels, "process"), value)

    def add(self, host: str, thread: str, process: str, value: float) -> None:
        """Add what was seen at the last moment."""
        if (busy := finite(value)) is not None:
            self._found.append(Sighting(self.times[-1], host, thread, process, busy))
            if len(self._found) > 2 * MIN_SIGHTINGS:
                del self._found[:MIN_SIGHTINGS]

    def forget(self, before: float) -> None:
        """Forget what was seen before this Unix time."""
        del self.times[: bisect_left(self.times, before)]
        del self._found[: bisect_left(self._found, before, key=_when)]

    def hottest(self, start: float, end: float) -> dict[str, list[tuple[str, str, float]]]:
        """Return thread, process and mean busy share of the threads that were hottest from `start` to `end`, by host.

        The hottest comes first, and of a pool only the one that was seen most. The end is the first moment after it.
        """
        # An earlier value also covers time before the phase.
        start += min(ROLELESS_WINDOW_SECONDS, (end - start) / 2)
        first, last = bisect_right(self.times, start), bisect_left(self.times, end)
        moments = len(self.times[first : last + 1])
        if not moments:
            return {}
        until = self.times[min(last, len(self.times) - 1)]
        sums: dict[str, dict[tuple[str, str], float]] = {}
        found = self._found
        for place in range(bisect_right(found, start, key=_when), bisect_right(found, until, key=_when)):
            _, host, thread, process, busy = found[place]
            names = sums.setdefault(host, {})
            names[thread, process] = names.get((thread, process), 0.0) + busy
        return {host: _hottest(names, moments) for host, names in sums.items()}


def _hottest(sums: Mapping[tuple[str, str], float], moments: int) -> list[tuple[str, str, float]]:
    pools: dict[tuple[str, str], tuple[str, str, float]] = {}
    for (thread, process), busy in sorted(sums.items(), key=lambda one: -one[1]):
        pools.setdefault(Name(thread, process).pool, (thread, process, busy / moments))
    return list(pools.values())[:MAX_UNKNOWN_NAMES]


def _when(sighting: Sighting) -> float:
    return sighting.time
