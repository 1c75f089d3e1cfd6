"""``pinchpoint report``: what limited each phase of a saved run, and the evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pinchpoint.benchmarks.io500_public import TOTAL, io500_figures
from pinchpoint.commands.options import complete_runs, http_config_option, load_access, prometheus_option
from pinchpoint.diagnosis.facts import Facts, facts, merged
from pinchpoint.diagnosis.tail import planned_tail, tails
from pinchpoint.diagnosis.window import Window
from pinchpoint.experiment.ledger import LedgerError, experiments
from pinchpoint.experiment.suggest import tried
from pinchpoint.model import Snapshots
from pinchpoint.report.document import Document, StageWindow, build, document_json, settings
from pinchpoint.report.pprof import pprof as profile_of
from pinchpoint.report.submission import SubmissionFileError, submission_lines, submission_texts, write_submission
from pinchpoint.report.timeline import RunLines, Tracer, step_of
from pinchpoint.runs import PhaseMark
from pinchpoint.session import store
from pinchpoint.session.samples import Samples
from pinchpoint.session.stacks import SavedStack, saved_stacks
from pinchpoint.session.store import RunRecord, StoreError
from pinchpoint.terminal.plain import fail, say, show, warn, write
from pinchpoint.terminal.report import report_parts
from pinchpoint.terminal.runs import standing
from pinchpoint.terminal.view import duration
from pinchpoint.text import printable
from pinchpoint.wire.prometheus import PrometheusError, fired_alerts

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["command"]

RECORDING = "samples.om.gz"
ALONE = ("--io500", "--folded", "--pprof")
"""Options instead of the report."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON (docs/report.md).")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report with charts as one self-contained HTML page.",
)
@click.option(
    "--folded", is_flag=True, help="Print the stacks of threads that were full, as folded stacks for flame graphs."
)
@click.option(
    "--pprof",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the stacks of threads that were full for pprof.",
)
@click.option(
    "--io500",
    "submission",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a draft of what the IO500 list asks for into DIR, and say what is missing (docs/io500.md).",
)
@click.option(
    "--against",
    metavar="RUN",
    shell_complete=complete_runs,
    help="Earlier run to compare settings with. [default: the previous one of the same kind]",
)
@prometheus_option("Prometheus server to query for the alerts that fired.")
@http_config_option
@click.argument("run", metavar="RUN", shell_complete=complete_runs)
def command(
    as_json: bool,
    html: Path | None,
    folded: bool,
    pprof: Path | None,
    submission: Path | None,
    against: str | None,
    prometheus: str | None,
    http_config: Path | None,
    run: str,
) -> None:
    """Report what limited each phase of a saved run, the evidence, what to do, and what was changed.

    RUN is an id, its beginning, a name or a part of it, or "last"; see `pinchpoint runs`. The report uses only the
    recording that `pinchpoint run` made. An imported run has results but no samples, so it has no verdict.
    """
    asked = {"--io500": submission, "--folded": folded, "--pprof": pprof, "--json": as_json, "--html": html}
    flags = [flag for flag, value in asked.items() if value]
    if len(flags) > 1 and flags[0] in ALONE:
        raise click.UsageError(f"{flags[0]} writes something else than {flags[1]}: leave out one")
    if html is not None and find_spec("matplotlib") is None:
        fail("--html draws charts with matplotlib, which is not installed: pip install 'pinchpoint[report]'", 2)
    access = load_access(http_config)
    try:
        kept = store.runs(warn)
        record = store.find(run, kept)
        earlier = store.find(against, kept) if against is not None else _before(record, kept)
    except StoreError as error:
        fail(str(error))
    if submission is not None:
        _submit(submission, record, kept)
        return
    if folded or pprof is not None:
        _write_stacks(record, pprof)
        return
    warnings = [
        f"{store.step_words(step.seconds)}, {duration(max(0.0, step.time - record.marker.start))} after the start: "
        "times are as if it had not been"
        for step in record.steps
    ]
    alerts = _alerts(record, prometheus, access, warnings) if prometheus is not None else []
    read = _read(record, warnings, pictures=html is not None)
    document = build(
        record,
        read.windows,
        read.facts,
        state=standing(record),
        recorded=read.recorded,
        earlier=settings(earlier, _facts(earlier)) if earlier is not None else None,
        alerts=alerts,
        warnings=warnings,
        stages=read.stages,
    )
    if html is not None:
        _write(html, document, read.timeline, _stacks(record))
    if as_json:
        say(json.dumps(document_json(document), indent=2))
    elif html is None:
        show(*report_parts(document))
        _tell_tried(record)


def _submit(directory: Path, record: RunRecord, kept: Sequence[RunRecord]) -> None:
    """Write the draft of a submission, and print what is missing."""
    if record.folder is None:
        fail(
            f"{record.marker.run}: its result folder was not read; "
            "`pinchpoint import DIR` reads one, and `pinchpoint run` that of the IO500 that it runs"
        )
    known = _facts(record)
    name = store.name_of(record.marker.run)
    scores = [io500_figures(each.marker).get(TOTAL) for each in kept if store.name_of(each.marker.run) == name]
    texts = submission_texts(record, record.folder, known, [score for score in scores if score is not None])
    try:
        write_submission(directory, texts)
    except SubmissionFileError as error:
        fail(str(error))
    for line in submission_lines(record.folder, known):
        say(printable(line))
    warn(f"the draft is in {directory}: {', '.join(texts)}")


def _stacks(record: RunRecord) -> list[SavedStack]:
    directory = store.state_directory() / record.marker.run
    try:
        return saved_stacks(directory)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")


def _write_stacks(record: RunRecord, path: Path | None) -> None:
    """Write the stacks for pprof, or print them as folded stacks."""
    stacks = _stacks(record)
    if not stacks:
        fail(f"{record.marker.run}: no stacks are saved with it: no thread was full for long, or stacks were not seen")
    if path is None:
        write("".join(f"{printable(stack.line)}\n" for stack in stacks))
        return
    try:
        path.write_bytes(profile_of(stacks))
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    warn(f"the stacks are in {path}; `go tool pprof -http=: {path}` shows them")


def _tell_tried(record: RunRecord) -> None:
    """Print which experiments met the same verdict and did not help."""
    verdicts = {mark.name: mark.verdict for mark in record.marker.phases if mark.verdict is not None}
    try:
        for line in tried(verdicts, experiments()):
            say(line)
    except LedgerError as error:
        warn(str(error))


def _before(record: RunRecord, kept: Sequence[RunRecord]) -> RunRecord | None:
    """Return the previous run of the same name, or else of the same benchmark."""
    earlier = [other for other in kept if other.marker.start < record.marker.start]
    name = store.name_of(record.marker.run)
    for alike in (
        [other for other in earlier if store.name_of(other.marker.run) == name],
        [other for other in earlier if other.marker.benchmark == record.marker.benchmark],
    ):
        if alike:
            return alike[-1]
    return None


class _Read(NamedTuple):
    """What a report needs from a run's recording."""

    windows: list[Window]
    """One per phase; empty without a recording."""
    facts: Facts
    timeline: RunLines
    recorded: bool
    stages: dict[int, list[StageWindow]]
    """Those of each phase that has a tail, by its place."""


def _read(record: RunRecord, warnings: list[str], *, pictures: bool) -> _Read:
    marker, known = record.marker, record.facts
    samples = _samples(record, warnings)
    if samples is None:
        windows = [Window(mark.start, marker.end if mark.end is None else mark.end) for mark in marker.phases]
        return _Read(windows, known, RunLines(), recorded=False, stages={})
    times = samples.times
    step = step_of((marker.end or max(times, default=marker.start)) - marker.start)
    tracer = Tracer(marker.run, _benchmarks(record), step)

    def also(moment: Snapshots) -> None:
        nonlocal known
        if not record.facts:
            known = merged(known, facts(moment))
        if pictures:
            tracer.take(moment)

    stages = _stages(record)
    marks = [*marker.phases, *(PhaseMark(stage, start, end) for _, stage, start, end in stages)]
    windows = samples.windows(marks, marker.end, step=step if pictures else float("inf"), also=also)
    parts: dict[int, list[StageWindow]] = {}
    for (place, stage, start, end), window in zip(stages, windows[len(marker.phases) :], strict=True):
        parts.setdefault(place, []).append(StageWindow(stage, start, end, window))
    tracer.finish()
    if samples.damage:
        warnings.append(f"the recording is damaged; what comes before that counts: {samples.damage}")
    return _Read(windows[: len(marker.phases)], known, tracer.timeline, recorded=True, stages=parts)


def _stages(record: RunRecord) -> list[tuple[int, str, float, float]]:
    """Return the stages of the phases that went on after their stonewall: place of the phase, name, start and end."""
    phases = record.marker.phases
    found = {} if record.folder is None else tails(record.folder.details, phases)
    return [
        (place, stage, start, end)
        for place, mark in enumerate(phases)
        if (tail := found.get(mark.name) or planned_tail(mark, mark.benchmark or record.marker.benchmark)) is not None
        and tail.kind == "stonewall"
        and tail.until
        and mark.end is not None
        if mark.start + tail.until < mark.end
        for stage, start, end in (
            ("stonewall", mark.start, mark.start + tail.until),
            ("tail", mark.start + tail.until, mark.end),
        )
    ]


def _samples(record: RunRecord, warnings: list[str]) -> Samples | None:
    try:
        samples = Samples(store.state_directory() / record.marker.run / RECORDING)
    except FileNotFoundError:
        why = "it was imported" if record.origin else "it was not recorded"
        warnings.append(f"the run has no samples, as {why}: its results are all that is known, and there is no verdict")
        return None
    except OSError as error:
        warnings.append(f"{error.filename}: {error.strerror}: there is no verdict")
        return None
    return samples


def _benchmarks(record: RunRecord) -> Iterator[str]:
    yield record.marker.benchmark
    for mark in record.marker.phases:
        yield mark.benchmark


def _facts(record: RunRecord) -> Facts:
    """Return the settings of a run's hosts: those saved with it, or else those in its recording."""
    known: Facts = record.facts
    if not known and (samples := _samples(record, [])) is not None:
        # Settings are exported slowly, and daemons are found one after the other: the end has most of them.
        last = len(samples.times) - 1
        for moment in samples.moments({0, last // 2, last}):
            known = merged(known, facts(moment))
    return known


def _alerts(record: RunRecord, url: str, access: HttpAccess | None, warnings: list[str]) -> list[list[str] | None]:
    marker = record.marker
    end = marker.end or max([marker.start, *(mark.end or mark.start for mark in marker.phases)])
    try:
        fired = fired_alerts(url, marker.run, marker.start, end, access=access)
    except PrometheusError as error:
        warnings.append(f"no alerts: {error}")
        return []

    def during(mark: PhaseMark) -> list[str]:
        return sorted({alert.name for alert in fired if alert.in_phase(mark.start, mark.end or end)})

    return [during(mark) for mark in marker.phases]


def _write(path: Path, document: Document, timeline: RunLines, stacks: Sequence[SavedStack]) -> None:
    from pinchpoint.report.page import page  # matplotlib takes half a second to import

    text = page(document, timeline, stacks)
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    warn(f"the report is in {path}")
