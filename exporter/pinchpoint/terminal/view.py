"""The live view: what is full on each host, as lines for a terminal of any size.

It draws three shades (normal, near the threshold, full) in the terminal's own colours, and shows the same in
characters, so that nothing is lost without colour. Names of threads, disks and runs come from any user: they are drawn
as plain text and cut to their column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pinchpoint.diagnosis import unknown
from pinchpoint.diagnosis.progress import ActivePhase, Run
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.diagnosis.usage import (
    BlindProbe,
    Clock,
    Fullness,
    Idle,
    MemoryUse,
    ResourceUse,
    RoleUse,
    SilentDaemon,
    Usage,
)
from pinchpoint.diagnosis.verdict import Kind, Verdict
from pinchpoint.figures import bare_figure, format_result
from pinchpoint.pages import command_for
from pinchpoint.text import counted, printable

__all__ = ["Down", "HostView", "Picture", "View", "duration"]

MAX_SCANNED_CHARACTERS = 1000
"""Maximum characters of a text: no terminal is wider."""
MIN_SHOWN_SHARE = 0.005
"""Share of the time, or CPUs, below which a resource or a role is not listed: it would show as 0 %."""
MIN_HOST_LINES = 9
"""Minimum lines for a host's tables; with fewer it shows only its fullest resources."""
MIN_STALLED_SECONDS = 3.0
"""Seconds without progress from which a phase is shown as hanging."""
MAX_ENDED_RUNS = 3
"""Maximum number of ended runs shown."""
MAX_TABLE_ROWS = 12
"""Rows of each table if the height is not limited, in text that is printed once."""
MAX_BAR_COLUMNS = 60
MAX_VERDICT_LINES = 7
"""Maximum lines on each benchmark's verdict."""
VERDICT_STYLES = {
    Kind.RESOURCE: "bold red",
    Kind.SEVERAL: "bold red",
    Kind.STRAGGLER: "bold red",
    Kind.STUCK: "bold red",
    Kind.IDLE: "dim",
}

STYLES = {Fullness.NORMAL: "", Fullness.NEAR: "yellow", Fullness.FULL: "bold red"}
WORDS = {Fullness.NORMAL: "", Fullness.NEAR: "near", Fullness.FULL: "FULL"}
HEADING = "underline"


class Down(msgspec.Struct, frozen=True):
    """A host that did not answer."""

    reason: str
    seconds: float
    """Seconds since its last answer."""


class HostView(msgspec.Struct, frozen=True):
    """One host: its name, how its data was obtained, and what is known about it; None until there are two samples."""

    name: str
    note: str
    state: Usage | Down | None


class Picture(NamedTuple):
    """Everything that is shown at once."""

    hosts: Sequence[HostView]
    verdicts: Sequence[Judged] = ()


class _Glyphs(NamedTuple):
    busy: str
    runqueue: str
    threshold: str
    cut: str


UNICODE = _Glyphs("█", "▒", "│", "…")
ASCII = _Glyphs("#", "+", "|", "~")


def duration(seconds: float) -> str:
    """Return ``M:SS``, or ``H:MM:SS`` from an hour on."""
    whole = int(max(0.0, seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


class View:
    """The hosts below each other, in the console's width.

    With a `height` they fill exactly that many lines, including the `footer` at the end, and show less if it is low;
    without, each table has up to `MAX_TABLE_ROWS` rows.
    """

    def __init__(self, picture: Picture, height: int | None = None, footer: str = "") -> None:
        self._hosts, self._verdicts = picture
        self._height = height
        self._footer = footer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        painter = _Painter(options.max_width, ASCII if options.ascii_only else UNICODE)
        if not self._hosts and not self._verdicts and self._height is None:
            yield Text("no benchmark runs")
            return
        if self._height is None:
            lines = [*painter.verdicts(self._verdicts, MAX_VERDICT_LINES), *painter.hosts(self._hosts, None)]
        else:
            height = max(0, self._height - 1)
            # The hosts need half of a low window; what limits the benchmark gets the rest.
            most = max(1, min(MAX_VERDICT_LINES, height // 2 // max(1, len(self._verdicts)) - 1))
            lines = list(painter.verdicts(self._verdicts, most))[:height]
            lines += list(painter.hosts(self._hosts, height - len(lines)))[: height - len(lines)]
            lines += [Text()] * (height - len(lines)) + [Text(painter.fit(self._footer, painter.width).rstrip(), "dim")]
        for line in lines:
            line.no_wrap, line.overflow = True, "crop"
            yield line


def _advice(found: Verdict) -> str:
    return f"{found.advice} (`{command_for(f'runbooks/{found.runbook}.md')}`)" if found.runbook else found.advice


class _Painter:
    """Draws lines that are at most `width` columns wide."""

    def __init__(self, width: int, glyphs: _Glyphs) -> None:
        self.width = max(1, width)
        self._glyphs = glyphs
        self._name = min(26, max(8, self.width * 18 // 80))
        self._owner = min(26, max(6, self.width * 14 // 80))

    def verdicts(self, judged: Sequence[Judged], most: int) -> Iterator[Text]:
        """Yield the lines on each benchmark, `most` of them at most, and a blank one below."""
        for one in judged:
            found = one.verdict
            # Runs of one benchmark are distinguished by their names.
            alike = sum(other.benchmark == one.benchmark for other in judged) > 1
            tail = "" if one.tail is None else "(tail)"
            name = " ".join(filter(None, (one.benchmark, one.run if alike else "", one.phase, tail)))
            style = VERDICT_STYLES.get(found.kind, "bold")
            margin = f"  ({found.margin})" if found.margin else ""
            yield self._line((f"{name}: ", "bold"), (found.words, style), (margin, "dim"))
            told = [*found.evidence, *found.blind, *(f"not the limit: {line}" for line in found.innocent)]
            # If a limit is known, the host's own line on such a thread is enough.
            strange = [] if found.limits else [f"no role: {line}" for line in found.no_role[:1]]
            advice = [f"what to do: {_advice(found)}"] if found.advice else []
            told[2:2] = [*strange, *found.ranks[:2], *found.peers[:1], *found.latency[:1], *advice]
            for line in told[: most - 1]:
                yield self._line((f"  {line}", ""))
        if judged:
            yield Text()

    def hosts(self, hosts: Sequence[HostView], height: int | None) -> Iterator[Text]:
        """Yield the lines of all hosts; with too little height, each host shows less."""
        if height is None:
            for index, host in enumerate(hosts):
                if index:
                    yield Text()
                yield from self.host(host, None)
            return
        # A blank line between hosts is the first thing to go, then whole hosts from the end.
        gap = int(height >= 3 * len(hosts))
        shown = hosts if len(hosts) <= height else hosts[: max(0, height - 1)]
        left = height - gap * (len(shown) - 1) - (len(shown) < len(hosts))
        for index, (host, lines) in enumerate(zip(shown, self._share(shown, left), strict=True)):
            if index and gap:
                yield Text()
            yield from self.host(host, lines)
        if len(shown) < len(hosts):
            yield self._line(
                (f"{len(hosts) - len(shown)} more do not fit: the window is too low", STYLES[Fullness.NEAR])
            )

    def _share(self, hosts: Sequence[HostView], height: int) -> list[int]:
        """Return how many of `height` lines each host gets: lines that one does not need go to the others."""
        needs = [_lines(host.state) if isinstance(host.state, Usage) else 1 for host in hosts]
        shares = [0] * len(hosts)
        waiting = len(hosts)
        for index in sorted(range(len(hosts)), key=needs.__getitem__):
            shares[index] = min(needs[index], height // waiting)
            height -= shares[index]
            waiting -= 1
        return shares

    def host(self, host: HostView, height: int | None) -> Iterator[Text]:
        """Yield the lines of one host, `height` of them at most."""
        use = host.state
        if not isinstance(use, Usage):
            yield self._no_usage(host)
            return
        busy, hot = _busy(use), _hot(use)
        yield self._header(host, use, busy if height is not None and height < 2 else [])
        if height is not None and height < min(MIN_HOST_LINES, _lines(use)):
            yield from (self._resource(entry) for entry in busy[: max(0, height - 1)])
            return
        runs = [line for run in _shown(use.runs) for line in self._run(run, use.time)]
        if height is not None:
            runs = runs[: max(0, height - MIN_HOST_LINES)]
            height -= len(runs)
        yield from runs
        foot = list(self._foot(use))
        for_resources, for_roles = max(1, len(busy[:MAX_TABLE_ROWS])), len(hot[:MAX_TABLE_ROWS])
        tables = 2 if hot else 1
        room = for_resources + for_roles + tables
        if height is not None:
            room = height - 1 - tables - len(foot)
            for_resources = max(1, min(len(busy), max((room + 1) // 2, room - len(hot))))
            for_roles = max(0, min(len(hot), room - for_resources))
        # Blank lines after tables come only if nothing else is left to show.
        gap = [Text()] if room - for_resources - for_roles >= tables else []
        yield self._resource_heading()
        yield from (self._resource(entry) for entry in busy[:for_resources])
        if not busy:
            yield self._line((" nothing is busy" if use.resources else " no resource has been measured", ""))
        if for_roles:
            yield from gap
            yield self._role_heading()
            yield from (self._role(entry) for entry in hot[:for_roles])
        yield from gap
        yield from foot

    def fit(self, text: str, width: int) -> str:
        """Return `text` in exactly `width` columns: padded, or cut and marked as cut."""
        text = self.clean(text)
        if cell_len(text) > width:
            text = set_cell_size(text, width - 1) + self._glyphs.cut if width > 0 else ""
        return text + " " * (width - cell_len(text))

    def clean(self, text: str) -> str:
        """Return `text` without unprintable, control and direction-changing characters."""
        text = printable(text[:MAX_SCANNED_CHARACTERS])
        return text.encode("ascii", "replace").decode() if self._glyphs is ASCII else text

    def _line(self, *parts: tuple[str, str]) -> Text:
        """Return a line of (text, style); what is too long is cut."""
        line = Text()
        for raw, style in parts:
            text, room = self.clean(raw), self.width - line.cell_len
            line.append(text if cell_len(text) <= room else self.fit(text, room), style)
        line.rstrip()
        return line

    def _no_usage(self, host: HostView) -> Text:
        if isinstance(host.state, Down):
            text = f"  DOWN for {duration(host.state.seconds)}: {host.state.reason}"
            return self._line((host.name, "bold"), (text, STYLES[Fullness.FULL]))
        return self._line((host.name, "bold"), (f" ({host.note})  waiting for the second sample", ""))

    def _header(self, host: HostView, use: Usage, fullest: Sequence[ResourceUse]) -> Text:
        """Return name and phases, or name and fullest resource, and on the right the sampling quality."""
        text = f"  {_work(use)}"
        if fullest:
            first = fullest[0]
            text = f"  {first.resource} {first.owner} {_percent(first.busy)} {WORDS[first.level]}"
        health, cost, level = _health(use)
        name, note = self.clean(host.name), f" ({host.note})"
        # Pinchpoint's cost is left out first, then the sampling quality.
        if cell_len(name + text + health + cost) + 2 <= self.width:
            health += cost
        room = max(0, self.width - cell_len(health) - 2)
        if cell_len(name) > room:
            name = self.fit(name, room)
        room -= cell_len(name)
        if cell_len(note + text) <= room:
            text = note + text
        return self._line((name, "bold"), (self.fit(text, room) + "  ", ""), (health, STYLES[level]))

    def _run(self, run: Run, now: float) -> Iterator[Text]:
        """Yield a line for each phase in progress, or for the run's state, and one with the results so far."""
        name = f"{run.benchmark:<6} "
        for phase in run.phases:
            words, stalled = _progress(phase, run, now)
            yield self._line((name, "bold"), (words, STYLES[Fullness.FULL if stalled else Fullness.NORMAL]))
        if not run.phases:
            state = run.state if run.valid or run.state != "finished" else "finished, and calls its result invalid"
            if run.end is not None:
                state += f", {duration(now - run.end)} ago"
            yield self._line(
                (name, "bold"), (state, STYLES[Fullness.FULL if run.state == "failed" else Fullness.NORMAL])
            )
        if run.results:
            # The newest comes first, so that the oldest are cut.
            done = [f"{phase} {bare_figure(result.value, result.unit)}" for phase, result in run.results[::-1]]
            yield self._line((" " * len(name), ""), (f"so far: {', '.join(done)}", ""))
        if run.blind:
            yield self._line(
                (" " * len(name), ""), (f"not allowed to see: {', '.join(run.blind)}", STYLES[Fullness.NEAR])
            )

    @property
    def _bar_width(self) -> int:
        # Between the columns: mark of the state (4), busy (4), saturated (9), and five blanks.
        return max(0, min(MAX_BAR_COLUMNS, self.width - self._name - self._owner - 22))

    def _names(self, name: str, owner: str) -> str:
        return f"{self.fit(name, self._name)} {self.fit(owner, self._owner)} "

    def _resource_heading(self) -> Text:
        legend = f"busy ({self._glyphs.runqueue} no CPU, {self._glyphs.threshold} limit)"
        bar = self.fit(legend if cell_len(legend) <= self._bar_width else "", self._bar_width)
        return self._line((f"{self._names('RESOURCE', 'OWNER')}{bar} BUSY SATURATED", HEADING))

    def _resource(self, use: ResourceUse) -> Text:
        style = STYLES[use.level]
        return self._line(
            (self._names(use.resource, use.owner), ""),
            (self._bar(use), style),
            (f" {_percent(use.busy):>4} {_percent(use.saturated):>9} ", ""),
            (WORDS[use.level], style),
        )

    def _bar(self, use: ResourceUse) -> str:
        width = self._bar_width
        filled = round(min(1.0, use.busy) * width)
        waiting = round(use.busy * (use.runqueue or 0.0) * width)
        bar = self._glyphs.busy * (filled - waiting) + self._glyphs.runqueue * waiting + " " * (width - filled)
        if use.threshold is not None and 0 < use.threshold <= 1 and width:
            mark = min(width - 1, int(use.threshold * width))
            bar = bar[:mark] + self._glyphs.threshold + bar[mark + 1 :]
        return bar

    def _role_heading(self) -> Text:
        return self._line((f"{self._names('ROLE', 'OWNER')}   CPUs  no CPU  threads", HEADING))

    def _role(self, use: RoleUse) -> Text:
        waits = "-" if use.runqueue is None else _figure(use.runqueue)
        figures = f"{_figure(use.cpu):>7} {waits:>7} {use.threads or '-':>8}"
        return self._line((self._names(use.role, use.owner) + figures, ""))

    def _foot(self, use: Usage) -> Iterator[Text]:
        for strange in filter(unknown.hot, use.unknown):
            style = STYLES[Fullness.FULL if unknown.full(strange) else Fullness.NEAR]
            yield self._line((unknown.short(strange), style))
        yield self._cpus(use)
        yield self._line(("memory " + _memory(use.memory), ""))
        if dark := [*map(_silent, use.silent), *map(_blind, use.blind)]:
            yield self._line(("blind  " + ", ".join(dark), STYLES[Fullness.FULL]))
        if use.absent:
            yield self._line(("absent " + ", ".join(use.absent), ""))

    def _cpus(self, use: Usage) -> Text:
        """Return idle states and clock; the states are cut where both do not fit."""
        idle = _idle(use.idle) if use.idle is not None else "idle states unknown"
        clock = _clock(use.clock) if use.clock is not None else "clock unknown"
        room = max(0, self.width - cell_len(f"CPUs   ; {clock}"))
        return self._line((f"CPUs   {idle if cell_len(idle) <= room else self.fit(idle, room)}; {clock}", ""))


def _busy(use: Usage) -> list[ResourceUse]:
    return [entry for entry in use.resources if max(entry.busy, entry.saturated) >= MIN_SHOWN_SHARE]


def _hot(use: Usage) -> list[RoleUse]:
    return [entry for entry in use.roles if entry.cpu + (entry.runqueue or 0.0) >= MIN_SHOWN_SHARE]


def _shown(runs: Sequence[Run]) -> list[Run]:
    """Return the runs in progress, oldest first, then those that ended last."""
    ended = sorted((run for run in runs if run.end is not None), key=lambda run: -(run.end or 0.0))
    return [*(run for run in runs if run.end is None), *ended[:MAX_ENDED_RUNS]]


def _lines(use: Usage) -> int:
    """Return how many lines a host needs to show everything, including blank ones."""
    hot = len(_hot(use))
    runs = sum(max(1, len(run.phases)) + bool(run.results) + bool(run.blind) for run in _shown(use.runs))
    tables = max(1, len(_busy(use))) + hot + (4 if hot else 2)
    strange = sum(map(unknown.hot, use.unknown))
    return 1 + runs + tables + 2 + strange + bool(use.blind or use.silent) + bool(use.absent)


def _work(use: Usage) -> str:
    """Return what benchmarks do on the host: their phases, else their runs, else how many of their processes it has.

    Other hosts of an MPI job only have its ranks: phases and runs are known where its output is.
    """
    if use.phases:
        return ", ".join(_phase(phase, use.time) for phase in use.phases)
    if running := [run for run in use.runs if run.end is None]:
        return ", ".join(f"{run.benchmark} {run.state}" for run in running)
    ranks = [(work.benchmark, sum(work.waits.values())) for work in use.workloads]
    found = [f"{counted(round(number), 'process')} of {name}" for name, number in ranks if number >= 0.5]
    return ", ".join(found) or "no benchmark runs"


def _phase(phase: ActivePhase, now: float) -> str:
    words = f"{phase.benchmark} {phase.phase}"
    return words if phase.start is None else f"{words} {duration(now - phase.start)}"


def _progress(phase: ActivePhase, run: Run, now: float) -> tuple[str, bool]:
    """Return what is known about a phase in progress, and whether it seems to hang."""
    words = [phase.phase]
    if phase.number is not None:
        words[0] += f" ({phase.number}{f' of {phase.total}' if phase.total else ''})"
    if run.state not in ("running", ""):
        words.append(run.state)
    waits = run.state in ("syncing", "paused")
    stalled = None if waits or phase.stalled is None or phase.stalled < MIN_STALLED_SECONDS else phase.stalled
    if stalled is not None:
        words.append(f"nothing done for {stalled:.0f} s")
    if phase.start is not None:
        meant = f" of {duration(phase.expected)}" if phase.expected is not None else ""
        words.append(duration(now - phase.start) + meant)
    if phase.tail is not None:
        words.append(f"tail for {duration(phase.tail)}")
    late = phase.start is not None and phase.expected is not None and now - phase.start > phase.expected
    if phase.progress is not None and not (late and phase.progress >= 1):
        words.append(f"{phase.progress:.0%} done")
    words += [format_result(rate) for rate in phase.rates]
    return ", ".join(words), stalled is not None


def _percent(share: float) -> str:
    return f"{share * 100:.0f}%"


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1000 or unit == "PiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def _memory(memory: MemoryUse) -> str:
    limit = "" if memory.dirty_threshold is None else f" of {_bytes(memory.dirty_threshold)}"
    stalls = "unknown" if memory.stalls is None else f"{memory.stalls:.0f}"
    return f"dirty {_bytes(memory.dirty)}{limit}, writeback {_bytes(memory.writeback)}, reclaim stalls {stalls}"


def _idle(idle: Idle) -> str:
    words: list[str] = []
    for state in idle.states:
        off = f" ({state.disabled_cpus} off)" if state.disabled_cpus else ""
        if off or state.share >= MIN_SHOWN_SHARE:
            words.append(f"{state.state} {_percent(state.share)}{off}")
    lost = "" if idle.lost is None else f", exits {idle.lost * 100:.1f}%"
    return (" ".join(words) or "never idle") + lost


def _clock(clock: Clock) -> str:
    limit = "" if clock.max is None else f"/{clock.max / 1e9:.1f}"
    busy = "" if clock.busy_ratio is None else f", busy {_percent(clock.busy_ratio)}"
    return ", ".join([f"{clock.mean / 1e9:.1f}{limit} GHz{busy}", *clock.governors])


def _blind(probe: BlindProbe) -> str:
    if probe.age is None:
        return f"{probe.probe} (never worked)"
    return f"{probe.probe} ({'failing' if probe.failing else 'no sample'} for {duration(probe.age)})"


def _silent(daemon: SilentDaemon) -> str:
    return f"{daemon.daemon} ({'stuck' if daemon.stuck else daemon.reason})"


def _health(use: Usage) -> tuple[str, str, Fullness]:
    """Return sampling quality and cost in a few words, and how bad they are."""
    cost = "" if use.own.cpu is None else f", costs {use.own.cpu * 100:.1f}% CPU"
    if use.seconds <= 0:
        return "no time between samples", "", Fullness.NEAR
    if dark := len(use.blind) + len(use.silent):
        return f"{dark} blind", cost, Fullness.FULL
    if use.own.lost_share >= MIN_SHOWN_SHARE:
        return f"{_percent(use.own.lost_share)} of samples lost", cost, Fullness.NEAR
    return "sampling ok", cost, Fullness.NORMAL
