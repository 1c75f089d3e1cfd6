"""fio's output: human-readable, JSON and terse status, each possibly several times, and the line of the running jobs.

Formats: stat.c, eta.c, init.c and backend.c of fio 2.0.5, 2.0.15, 2.16, 2.17, 3.7 and 3.33. A status may be the last
one or one of many (``--status-interval``), and nothing in it says which: the last one before the end of the output or
the next run counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pinchpoint.benchmarks.events import (
    MAX_PHASE_NAME_CHARACTERS,
    Completed,
    Ended,
    Event,
    Failed,
    Rate,
    RunBegan,
    phase_name,
)
from pinchpoint.benchmarks.output import Documents, OutputReader, number
from pinchpoint.compat import re
from pinchpoint.expressions import expression
from pinchpoint.runs import Result

__all__ = ["FioOutput", "group_name"]

MAX_JOBS = 4096
"""Maximum number of jobs of one status that are kept (REAL_MAX_JOBS in os/os.h, fio 3.33)."""
MAX_JOB_TEXT_CHARACTERS = 256
"""Characters of a job's name, of an error and of the present rates that are read."""
OPERATIONS = ("read", "write", "trim", "mixed")
NO_ETA = 2**31 - 1
"""What fio prints as the remaining seconds until it knows them (INT_MAX)."""
MAX_START_DIFFERENCE_SECONDS = 1.5
"""Seconds by which two statuses may differ in the start of one run: they give it in whole seconds."""
MIN_STATUS_INTERVAL_SECONDS = 0.4
"""Seconds between two statuses of a job at least; jobs that run together differ by less."""

# add_job (init.c)
HEADER = expression(r"(?:<\S+>\s+)?(?>(?P<name>\S.{0,999}?): \(g=)(?P<group>\d{1,9})\): rw=(?P<rw>\w+),")
VERSION = expression(r"fio[- ]\d+\.\d[\w.-]*\s*$")
# run_threads (backend.c)
STARTING = expression(r"Starting (?:\d+ threads?(?: and )?)?(?:\d+ process(?:es)?)?\s*$")
SIGNAL = expression(r"fio: (terminating on signal \d+)")
ERROR = expression(r"fio: pid=\d+, (err=\d+/.*)")
# parse_options, parse_jobs_ini (init.c) and parse_option (parse.c): fio ends after these.
REFUSAL = expression(
    r"fio: (?:failed parsing|unable to open '.*' job file|job .* dropped|.* is not a directory)"
    r"|\S*fio: unrecognized option |No jobs?\(?s?\)? defined|Bad option <"
)
# show_thread_status_normal (stat.c); a client puts the server's name in front (fio_client_text_op in client.c).
JOB = expression(
    r"(?:<\S+>\s+)?(?>(?P<name>\S.{0,999}?): \(groupid=)(?P<group>\d{1,9}), jobs=\d+\): "
    r"err=\s*(?P<error>\d+)(?:\s*\((?P<why>.*)\))?: pid=(?P<pid>\d+)"
)
# show_ddir_status (stat.c) from fio 2.17 on
FLOW = expression(
    r"\s*(?P<operation>read|write|trim|mixed)\s*: IOPS=(?P<iops>[\d.]++[a-zA-Z]?), BW=(?P<rate>[\d.]++\w*+(?:/s)?)"
    r"\s*+\([^()]*+\)\s*+\((?P<done>[\d.]++\w*+)/(?P<msec>\d+)msec\)"
)
# show_ddir_status (stat.c) up to fio 2.16
OLD_FLOW = expression(
    r"\s*(?P<operation>read|write|trim|mixed)\s*: io=\s*+(?P<done>[\d.]++\w*+), bw=\s*+(?P<rate>[\d.]++\w*+/s), "
    r"iops=\s*+(?P<iops>[\d.]++\w?), runt=\s*(?P<msec>\d+)msec"
)
GROUP = expression(r"(?:<\S+>\s+)?Run status group (\d{1,9}) ")
# display_thread_status (eta.c)
ETA = expression(r"Jobs: (?P<jobs>\d+) \(f=\d+\)(?:, [^:\[]*)?(?::\s*\[(?P<states>[^\]]*)\]\s*\[(?P<done>[-.\d]+)%)?")
RATES = expression(r"\[([rwt]=[^\[\]]*+)\]\s*+\[([rwt]=[^\[\]]*+)(?<=IOPS)\]")
OLD_RATES = expression(r"\[([^\[\]=]*+)(?<=/s)\]\s*+\[([^\[\]=]*+)(?<=iops)\]")
STATES = expression(r"([A-Za-z_/])(?:\((\d{1,4})\))?")
ETA_OPERATIONS = {"r": "read", "w": "write", "t": "trim"}

AMOUNT = expression(r"(?P<figure>[\d.]++)\s*+(?P<prefix>[kKMGTPE]?)(?P<binary>i?)(?P<unit>B|bit|b)?(?:/s)?\s*+$")
PREFIXES = " KMGTPE"
NOT_A_NUMBER = expression(r"(:\s*)-?(?:nan|inf(?:inity)?)(?=\s*+[,}\]]?\s*+$)", re.IGNORECASE)
JSON_LINE = expression(r'\s*(?:["{}\[\],\d-]|true|false|null|$)')

ACTIVE = {
    "read": "R", "randread": "r", "write": "W", "randwrite": "w", "trim": "D", "randtrim": "d",
    "rw": "MRW", "randrw": "mrw", "trimwrite": "WD", "randtrimwrite": "wd",
}  # fmt: skip
"""State letters of working jobs, by what they do (check_str_update in eta.c)."""
IDLE = frozenset("P_XKE")
"""State letters of jobs that have not begun or have ended."""
WORKING = frozenset("".join(ACTIVE.values()))

FIELDS, FIELDS_OF_5 = 41, 47
"""Fields of one operation in a terse line: version 5 has six more (show_ddir_status_terse in stat.c)."""
FIRST_PERCENTILE_FIELD = 12
"""Index of the first percentile among them."""


def group_name(names: Iterable[str]) -> str:
    """Return the name of the phase in which jobs of these names run together."""
    return "+".join(dict.fromkeys(phase_name(name) or "unnamed" for name in names))[:MAX_PHASE_NAME_CHARACTERS]


class _Flow(NamedTuple):
    """The totals of one operation of a job."""

    done: float
    """Bytes."""
    seconds: float
    rate: float
    """Bytes per second."""
    iops: float
    rate_printed: str
    iops_printed: str


class _Job(msgspec.Struct):
    """A job, or with group_reporting a group of jobs, in one status."""

    name: str
    group: int
    pid: str = ""
    """Empty if the format has none."""
    error: str = ""
    flows: dict[str, _Flow] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, str]:
        return self.name, self.group, self.pid

    def precedes(self, other: _Job) -> bool:
        """Return whether the other can be the same job later: its totals never decrease."""
        return all(
            (later := other.flows.get(operation)) is not None
            and later.done >= flow.done
            and later.seconds >= flow.seconds
            for operation, flow in self.flows.items()
        )


class _Status(msgspec.Struct):
    """The status of all jobs at one time."""

    jobs: list[_Job]
    start: float | None = None
    """When the run began, in Unix seconds; None if the format doesn't say."""
    progress: float | None = None
    """Share of the run that is done, if it is certainly still in progress."""

    def precedes(self, other: _Status) -> bool:
        """Return whether the other can be a later status of the same run."""
        if (
            self.start is not None
            and other.start is not None
            and abs(self.start - other.start) > MAX_START_DIFFERENCE_SECONDS
        ):
            return False
        if any(job.pid for job in [*self.jobs, *other.jobs]):
            # The human-readable status omits jobs that have done nothing.
            found = {job.key: job for job in other.jobs}
            pairs = [(job, found[job.key]) for job in self.jobs if job.key in found]
            return not self.jobs or not other.jobs or bool(pairs)
        if [job.key for job in self.jobs] != [job.key for job in other.jobs]:
            return False
        return all(job.precedes(later) for job, later in zip(self.jobs, other.jobs, strict=True))

    def groups(self) -> dict[int, list[_Job]]:
        groups: dict[int, list[_Job]] = {}
        for job in self.jobs:
            groups.setdefault(job.group, []).append(job)
        return dict(sorted(groups.items()))


class _Header(msgspec.Struct):
    """What fio prints about a job before it starts."""

    name: str
    group: int
    letters: str
    """State letters that the job can have in the line of the running jobs; empty: any."""
    least: int = 1
    """The number of its processes, or 2 for any higher number."""


class _FioRun(msgspec.Struct):
    """What the output has shown about one run so far."""

    headers: list[_Header] = msgspec.field(default_factory=list)
    launched: bool = False
    """Whether the line with the version came."""
    promised: bool = False
    """Whether this output must contain a status."""
    statuses: dict[str, _Status] = msgspec.field(default_factory=dict)
    """The last one by format, the most exact format first."""
    complaint: str = ""
    refused: bool = False
    """Whether fio didn't accept its options."""
    operations: Sequence[str] = ()
    """The jobs that were working when the line of the running jobs last showed any."""


class FioOutput(OutputReader):
    """Reads fio's standard output, or the file of ``--output``."""

    def __init__(self) -> None:
        super().__init__()
        self._run: _FioRun | None = None
        self._signal = ""
        self._blocks: list[_Job] | None = None
        """The human-readable status that is being read."""
        self._job: _Job | None = None
        self._terse: list[_Job] = []
        """The terse status that is being read."""
        self._terse_size = 0
        """Number of lines of a terse status; 0 until known."""
        self._documents = Documents()
        self._brace = ""
        """A line that may be the first one of a document."""

    def line(self, line: str) -> Iterator[Event]:
        """Return the events in one line."""
        brace, self._brace = self._brace, ""
        if line.strip() == "{":
            if brace and self._documents.inside:
                yield from self._document_line(brace)
            self._brace = line
            return
        if '"fio version"' in line and (brace or line.lstrip().startswith("{")):
            self._documents = Documents()
            if brace:
                yield from self._document_line("{")
            yield from self._document_line(line if brace else line.lstrip())
        elif self._documents.inside and JSON_LINE.match(line):
            if brace:
                yield from self._document_line(brace)
            yield from self._document_line(line)
        else:
            self._documents = Documents() if self._documents.inside else self._documents
            yield from self._text(line)

    def end(self) -> Iterator[Event]:
        """Return the events at the end of the output."""
        yield from self._close_statuses()
        if self._signal and self._run is None:
            yield from self._open()
        yield from self._finish()

    # Lines

    def _text(self, line: str) -> Iterator[Event]:
        start = line.lstrip()
        if start.startswith("Jobs: "):
            yield from self._eta(start)
        elif ": (g=" in line and (match := HEADER.match(start)):
            yield from self._header(match)
        elif line.startswith("...") and self._run is not None and self._run.headers and not self._run.launched:
            self._run.headers[-1].least = 2
        elif line.startswith("fio") and VERSION.match(line):
            yield from self._before_launch()
            self._launch()
        elif start.startswith("Starting ") and STARTING.match(start) and (run := self._run) is not None:
            run.promised = True
            if len({header.group for header in run.headers}) == 1:
                # In a pipe this comes when the files are laid out and the jobs are about to start.
                yield Rate(group_name(header.name for header in run.headers))
        elif ": (groupid=" in line and (match := JOB.match(start)):
            yield from self._block(match)
        elif self._job is not None and (match := FLOW.match(line)):
            self._add_flow(self._job, match)
        elif self._job is not None and (match := OLD_FLOW.match(line)):
            self._add_flow(self._job, match, old=True)
        elif "Run status group" in line and (match := GROUP.match(start)):
            yield from self._group_status(int(match[1]))
        elif line[:1] in ("2", "3", "4", "5") and line[1:2] == ";":
            if (job := _terse_job(line)) is not None:
                yield from self._terse_line(job)
        elif match := SIGNAL.match(start):
            self._signal = match[1]
        elif match := ERROR.match(start):
            yield from self._complain(match[1], refused=False)
        elif REFUSAL.match(start):
            yield from self._complain(start, refused=True)

    def _document_line(self, line: str) -> Iterator[Event]:
        for document in self._documents.feed(NOT_A_NUMBER.sub(r"\1null", line)):
            if "fio version" in document:
                yield from self._take("json", _document_status(document))

    def _header(self, match: re.Match[str]) -> Iterator[Event]:
        yield from self._before_launch()
        if self._run is not None and len(self._run.headers) < MAX_JOBS:
            letters = ACTIVE.get(match["rw"], "")
            self._run.headers.append(_Header(match["name"][:MAX_JOB_TEXT_CHARACTERS], int(match["group"]), letters))
            self._run.promised = True

    def _launch(self) -> None:
        if self._run is not None:
            self._run.launched = self._run.promised = True

    def _before_launch(self) -> Iterator[Event]:
        """Begin a run if the current one has already been launched: headers and version come before that."""
        yield from self._close_statuses()
        run = self._run
        if run is not None and (run.launched or run.statuses or run.refused):
            yield from self._finish()
        yield from self._open()

    def _block(self, match: re.Match[str]) -> Iterator[Event]:
        self._job = None
        if match["name"] == "All clients":
            return
        job = _Job(match["name"][:MAX_JOB_TEXT_CHARACTERS], int(match["group"]), match["pid"])
        if int(match["error"]):
            job.error = _limited(f"{job.name}: err={match['error']}" + (f" ({match['why']})" if match["why"] else ""))
        if self._blocks is not None and any(job.key == other.key for other in self._blocks):
            yield from self._close_blocks()
        if self._blocks is None:
            self._blocks = []
            yield from self._open()
        if len(self._blocks) < MAX_JOBS:
            self._blocks.append(job)
            self._job = job

    def _add_flow(self, job: _Job, match: re.Match[str], *, old: bool = False) -> None:
        rate, iops = _amount(match["rate"], binary=old), _amount(match["iops"])
        done, msec = _amount(match["done"], binary=old), number(match["msec"])
        if rate is not None and iops is not None and done is not None and msec is not None:
            printed = match["rate"] if match["rate"].endswith("/s") else f"{match['rate']}/s"
            job.flows[match["operation"]] = _Flow(
                done=done,
                seconds=msec / 1000,
                rate=rate,
                iops=iops,
                rate_printed=printed,
                iops_printed=f"{match['iops']} IOPS",
            )

    def _group_status(self, group: int) -> Iterator[Event]:
        if self._blocks is not None:
            yield from self._close_blocks()
        elif group == 0 and self._run is not None:
            # None of the jobs has done anything.
            yield from self._take("normal", _Status([]))

    def _close_blocks(self) -> Iterator[Event]:
        if (blocks := self._blocks) is not None:
            self._blocks = self._job = None
            yield from self._take("normal", _Status(blocks))

    def _terse_line(self, job: _Job) -> Iterator[Event]:
        pending = self._terse
        if not self._terse_size and pending and _repeats(pending, job):
            # The first status of several is over.
            self._terse_size = len(pending)
            yield from self._close_terse()
        run = self._run
        if self._terse_size and run is not None:
            last = run.statuses.get("terse")
            if last is None or last.jobs[len(self._terse)].key != job.key:
                self._terse_size = 0
                yield from self._make_way()
        elif run is not None and run.statuses and not self._terse and not _continues(run, "terse", _Status([job])):
            yield from self._make_way()
        yield from self._open()
        if len(self._terse) < MAX_JOBS:
            self._terse.append(job)
        if len(self._terse) == self._terse_size:
            yield from self._close_terse()

    def _close_terse(self) -> Iterator[Event]:
        jobs, self._terse = self._terse, []
        if jobs:
            yield from self._take("terse", _Status(jobs))

    def _close_statuses(self) -> Iterator[Event]:
        yield from self._close_terse()
        yield from self._close_blocks()
        self._terse_size = 0

    def _complain(self, text: str, *, refused: bool) -> Iterator[Event]:
        yield from self._open()
        if self._run is not None:
            self._run.complaint = self._run.complaint or _limited(text)
            self._run.refused = self._run.refused or refused

    # The line of the running jobs

    def _eta(self, line: str) -> Iterator[Event]:
        if (match := ETA.match(line)) is None:
            return
        yield from self._open()
        if self._run is None or match["states"] is None:
            return
        flows = _eta_flows(line[match.end("states") :][:MAX_JOB_TEXT_CHARACTERS])
        run = self._run
        # Operations that make no progress are omitted from the line, or 0 like those that no job has.
        moving = [flow for flow in flows if flow[1].value or flow[2].value]
        run.operations = [operation for operation, *_ in moving] or run.operations
        shown = moving or [(operation, *_still(operation)) for operation in run.operations]
        shown.sort(key=lambda flow: -flow[1].value)
        share = number(match["done"])
        alone = len({header.group for header in run.headers}) <= 1
        progress = min(share / 100, 1.0) if share is not None and alone else None
        results = tuple(result for _, rate, iops in shown for result in (rate, iops))
        if results or progress is not None:
            yield Rate(self._running(match["states"]), results, progress)

    def _running(self, states: str) -> str:
        """Return the group whose jobs run, by their positions and states; empty if that is not certain."""
        letters = [(letter, int(count or 1)) for letter, count in STATES.findall(states)]
        headers = self._run.headers if self._run is not None else []
        total = sum(count for _, count in letters)
        first = 0
        for letter, count in letters:
            if letter not in IDLE:
                break
            first += count
        working = {letter for letter, _ in letters} & WORKING
        found = []
        before, after = 0, sum(header.least for header in headers)
        for group in sorted({header.group for header in headers}):
            own = [header for header in headers if header.group == group]
            can = WORKING if any(not header.letters for header in own) else {c for h in own for c in h.letters}
            if before <= first <= total - after and working <= can:
                found.append(group_name(header.name for header in own))
            least = sum(header.least for header in own)
            before, after = before + least, after - least
        return found[0] if len(found) == 1 else ""

    # Runs

    def _open(self) -> Iterator[Event]:
        if self._run is None:
            self._run = _FioRun()
            yield RunBegan()

    def _make_way(self) -> Iterator[Event]:
        """End the current run: another one begins, and a signal that was reported since belongs to that one."""
        signal, self._signal = self._signal, ""
        yield from self._finish()
        self._signal = signal
        yield from self._open()

    def _take(self, form: str, status: _Status) -> Iterator[Event]:
        """Take in a status."""
        if (run := self._run) is not None and run.statuses and not _continues(run, form, status):
            yield from self._make_way()
        yield from self._open()
        if (run := self._run) is None:
            return
        last = run.statuses.get(form)
        run.statuses[form] = status
        yield from self._rate(run, form, last, status)

    def _rate(self, run: _FioRun, form: str, last: _Status | None, status: _Status) -> Iterator[Event]:
        """Yield the group that runs, if one certainly does; otherwise this may be the last status."""
        groups = status.groups()
        if status.progress is None:
            before = {group: _done(jobs) for group, jobs in last.groups().items()} if last is not None else {}
            groups = {group: jobs for group, jobs in groups.items() if group in before and _done(jobs) > before[group]}
        active = [(group, jobs) for group, jobs in groups.items() if any(job.flows for job in jobs)]
        if active:
            group, jobs = active[-1]
            progress = status.progress if len(status.groups()) == 1 else None
            # Human-readable bytes are rounded: a slow job would seem to make no progress.
            work = _done(jobs) if form != "normal" else None
            yield Rate(_phase(run, group, jobs), _results(jobs), progress, work)

    def _finish(self) -> Iterator[Event]:
        """End the current run."""
        run, self._run = self._run, None
        signal, self._signal = self._signal, ""
        if run is None:
            return
        form = next((form for form in ("json", "terse", "normal") if form in run.statuses), None)
        if form is None:
            if run.promised or run.refused or run.complaint or signal:
                reason = signal or run.complaint or "the output ends before any status of the jobs"
                yield Failed(reason, bool(signal))
            return
        status = run.statuses[form]
        errors = [job.error for found in run.statuses.values() for job in found.jobs if job.error]
        reason = signal or next(iter(sorted(errors, key=len, reverse=True)), "") or run.complaint
        if not reason and status.progress is not None:
            reason = "the output ends before the last status of the jobs"
        for group, jobs in status.groups().items():
            results = _results(jobs)
            # A job that does no I/O has no figures; nor does one that was never started.
            if results or not reason:
                seconds = [flow.seconds for job in jobs for flow in job.flows.values()]
                yield Ended(_phase(run, group, jobs), results, max(seconds, default=None))
        yield Failed(reason, bool(signal)) if reason else Completed()


def _continues(run: _FioRun, form: str, status: _Status) -> bool:
    """Return whether a status can belong to a run that has had others."""
    if (last := run.statuses.get(form)) is not None:
        return last.precedes(status)
    names = {job.name for found in run.statuses.values() for job in found.jobs}
    return not status.jobs or not names or bool(names & {job.name for job in status.jobs})


def _phase(run: _FioRun, group: int, jobs: Sequence[_Job]) -> str:
    """Return the name of a group: with group_reporting a status has only the first job's."""
    names = [job.name for job in jobs]
    headers = [header.name for header in run.headers if header.group == group]
    return group_name(headers if set(names) <= set(headers) else names)


def _results(jobs: Sequence[_Job]) -> tuple[Result, ...]:
    """Return the sums over jobs that run together; the operation with most bytes comes first."""
    found = []
    for operation in OPERATIONS:
        flows = [job.flows[operation] for job in jobs if operation in job.flows]
        if flows:
            alone = len(flows) == 1
            rate = Result(
                operation,
                "bytes_per_second",
                sum(flow.rate for flow in flows),
                flows[0].rate_printed if alone else "",
            )
            iops = Result(
                operation,
                "operations_per_second",
                sum(flow.iops for flow in flows),
                flows[0].iops_printed if alone else "",
            )
            found.append((sum(flow.done for flow in flows), rate, iops))
    found.sort(key=lambda entry: -entry[0])
    return tuple(result for _, rate, iops in found for result in (rate, iops))


def _done(jobs: Iterable[_Job]) -> float:
    return sum(flow.done for job in jobs for flow in job.flows.values())


def _repeats(status: Sequence[_Job], job: _Job) -> bool:
    """Return whether a terse line begins the next status, and is not another job of the same name in this one."""
    first = status[0]
    if job.key != first.key or not first.precedes(job):
        return False
    if status[-1].key != first.key:
        # Jobs of one name are adjacent.
        return True
    return any(
        job.flows[operation].seconds - flow.seconds >= MIN_STATUS_INTERVAL_SECONDS
        and job.flows[operation].done > flow.done
        for operation, flow in first.flows.items()
    )


def _limited(text: str) -> str:
    return text[:MAX_JOB_TEXT_CHARACTERS].strip()


def _amount(text: str, *, binary: bool = False) -> float | None:
    """Return a figure of num2str (lib/num2str.c): ``31.7k``, ``124MiB/s``, ``1049Mbit/s``.

    Up to fio 2.16 K means 1024 in amounts of bytes; `binary` selects that.
    """
    if (match := AMOUNT.match(text)) is None or (figure := number(match["figure"])) is None:
        return None
    base = 1024.0 if match["binary"] or binary else 1000.0
    value: float = figure * base ** PREFIXES.index(match["prefix"].upper() or " ")
    return value / 8 if (match["unit"] or "").startswith("b") else value


def _eta_flows(text: str) -> list[tuple[str, Result, Result]]:
    """Return operation, bytes and operations per second from the line of the running jobs."""
    pairs: list[tuple[str, str, str]] = []
    binary = False
    if match := RATES.search(text):
        rates, iops = (
            dict(part.split("=", 1) for part in found.split(",") if "=" in part)
            for found in (match[1], match[2].removesuffix("IOPS"))
        )
        pairs = [(ETA_OPERATIONS[c], rates[c], iops[c]) for c in ETA_OPERATIONS if c in rates and c in iops]
    elif match := OLD_RATES.search(text):
        binary = True
        columns = (match[1].removesuffix("/s").split("/"), match[2].removesuffix("iops").split("/"))
        pairs = [(name, *both) for name, both in zip(OPERATIONS, zip(*columns, strict=False), strict=False)]
    found = []
    for operation, rate, iops_text in pairs:
        value, count = _amount(rate.strip(), binary=binary), _amount(iops_text.strip())
        if value is not None and count is not None:
            printed = rate.strip() if rate.strip().endswith("/s") else f"{rate.strip()}/s"
            found.append(
                (
                    operation,
                    Result(operation, "bytes_per_second", value, printed),
                    Result(operation, "operations_per_second", count, f"{iops_text.strip()} IOPS"),
                )
            )
    return found


def _still(operation: str) -> tuple[Result, Result]:
    return Result(operation, "bytes_per_second", 0.0), Result(operation, "operations_per_second", 0.0)


def _terse_job(line: str) -> _Job | None:
    """Return the job of a terse line, None if it is not one (show_thread_status_terse_all in stat.c)."""
    fields = line.split(";")
    at = 2 if fields[0] != "2" else 1
    if len(fields) < at + 3 + FIELDS or (at == 2 and not fields[1].startswith("fio")):
        return None
    name, group, error = fields[at : at + 3]
    if not (group.isdecimal() and error.isdecimal() and len(group) < 10 and len(error) < 10):
        return None
    size = FIELDS_OF_5 if fields[0] == "5" else FIELDS
    sections = []
    start = at + 3
    while start + size <= len(fields) and "%=" in fields[start + FIRST_PERCENTILE_FIELD]:
        sections.append(fields[start : start + 4])
        start += size
    if not sections:
        return None
    # unified_rw_reporting=mixed has one section, =both has one more. Version 3 has no trims.
    three = ("read", "write", "mixed") if fields[0] == "3" else ("read", "write", "trim", "mixed")
    names = ("mixed",) if len(sections) == 1 else three
    job = _Job(name[:MAX_JOB_TEXT_CHARACTERS], int(group))
    if int(error):
        job.error = _error(job.name, int(error))
    for operation, section in zip(names, sections, strict=False):
        done, rate, iops, msec = (number(text) for text in section)
        if done is not None and rate is not None and iops is not None and msec is not None and msec > 0:
            printed = f"{section[1]} KiB/s", f"{section[2]} IOPS"
            job.flows[operation] = _Flow(done * 1024, msec / 1000, rate * 1024, iops, *printed)
    return job


def _document_status(document: Mapping[str, Any]) -> _Status:
    """Return the status in a JSON document (show_thread_status_json in stat.c, json_object_init in client.c)."""
    entries = document.get("jobs") or document.get("client_stats")
    jobs: list[_Job] = []
    elapsed = eta = 0.0
    for entry in entries[:MAX_JOBS] if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("jobname") != "All clients":
            jobs.append(_document_job(entry))
            elapsed = max(elapsed, number(entry.get("elapsed")) or 0.0)
            eta = max(eta, number(entry.get("eta")) or 0.0)
    status = _Status(jobs)
    milliseconds, seconds = number(document.get("timestamp_ms")), number(document.get("timestamp"))
    # Old versions don't print how long they have run.
    if elapsed and milliseconds is not None:
        status.start = milliseconds / 1000 - elapsed
    elif elapsed and seconds is not None:
        status.start = seconds - elapsed
    if 0 < eta < NO_ETA:
        status.progress = min(1.0, max(0.0, elapsed / (elapsed + eta)))
    return status


def _document_job(entry: Mapping[str, Any]) -> _Job:
    group = number(entry.get("groupid"))
    job = _Job(str(entry.get("jobname", ""))[:MAX_JOB_TEXT_CHARACTERS], int(group or 0))
    if (error := number(entry.get("error"))) is not None and error > 0:
        job.error = _error(job.name, int(error))
    for operation in OPERATIONS:
        figures = entry.get(operation)
        # A job that has not started counts up in job_runtime, but has no runtime of an operation.
        if not isinstance(figures, dict) or (msec := number(figures.get("runtime"))) is None or msec <= 0:
            continue
        rate, kib = number(figures.get("bw_bytes")), number(figures.get("bw"))
        printed = f"{figures.get('bw_bytes')} B/s"
        if rate is None and kib is not None:
            # Up to fio 2.21 there is no bw_bytes, and io_bytes is in KiB as bw is.
            rate, printed = kib * 1024, f"{figures.get('bw')} KiB/s"
        iops = number(figures.get("iops"))
        done = number(figures.get("io_bytes")) or 0.0
        if rate is not None and iops is not None:
            done *= 1 if "io_kbytes" in figures or "bw_bytes" in figures else 1024
            iops_printed = f"{figures.get('iops')} IOPS"
            job.flows[operation] = _Flow(
                done=done,
                seconds=msec / 1000,
                rate=rate,
                iops=iops,
                rate_printed=_limited(printed),
                iops_printed=_limited(iops_printed),
            )
    return job


def _error(name: str, error: int) -> str:
    text = f" ({os.strerror(error)})" if error < 1 << 16 else ""
    return _limited(f"{name}: err={error}{text}")
