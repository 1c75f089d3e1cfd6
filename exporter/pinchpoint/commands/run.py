"""``pinchpoint run``: runs a benchmark, marks its phases, records it, and reports what was full."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from pinchpoint.benchmarks.jobs import job_name, job_of
from pinchpoint.benchmarks.markers import RunDirectory, default_run_directory
from pinchpoint.benchmarks.pattern import pattern
from pinchpoint.build import LocalSource, benchmark_kinds, local_sampler, trusted_users
from pinchpoint.clock import STEADY
from pinchpoint.commands.options import (
    http_config_option,
    load_access,
    name_option,
    prometheus_option,
    tags_option,
    targets_option,
)
from pinchpoint.config import Config, load_config, phase_pattern
from pinchpoint.host.capabilities import without_rights
from pinchpoint.limits import LIMITS, is_limit, reason
from pinchpoint.metrics import BUILD_INFO
from pinchpoint.model import THIS_HOST, Snapshot
from pinchpoint.runs import JOB_TAG, run_id
from pinchpoint.session.session import Session
from pinchpoint.session.stacks import Seer, stacks_of
from pinchpoint.session.store import discard, new_run_directory
from pinchpoint.session.supervise import Command, CommandError, end_like
from pinchpoint.terminal.plain import fail
from pinchpoint.terminal.table import run_table
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.poller import Together
from pinchpoint.wire.prometheus import PrometheusError, fired_alerts
from pinchpoint.wire.sources import Demand, PrometheusSource, Source, SourceError, TargetSource, is_here

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["command"]

DEFAULT_TARGET = "127.0.0.1:9748"
FIRST_ANSWER_SECONDS = 10.0
"""Seconds within which a named target has to answer first: its host may be busy."""
BUILD = BUILD_INFO.name
"""A metric that only a Pinchpoint exporter has."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@name_option("Name of the run. [default: the command's name, in a batch job after the job's id]")
@tags_option("Note to save with the run; repeatable.")
@targets_option("Exporters of the cluster's hosts; repeatable. [default: the hosts of --prometheus]")
@prometheus_option("Prometheus server to query for fired alerts and other hosts.")
@http_config_option
@click.option("--phase-pattern", "phase_regex", metavar="REGEX", help="Output lines that begin a phase.")
@click.option("--path.runs", "runs", type=click.Path(path_type=Path), metavar="DIR", help="Directory for markers.")
@click.option("--config.file", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="TOML file.")
@click.option("--quiet", is_flag=True, help="Print only the table at the end.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    name: str | None,
    tags: dict[str, str],
    targets: list[str],
    prometheus: str | None,
    http_config: Path | None,
    phase_regex: str | None,
    runs: Path | None,
    config_file: Path | None,
    quiet: bool,
    argv: tuple[str, ...],
) -> None:
    """Run a benchmark, mark its phases, record it, and report what was full.

    The command's output and exit status pass through unchanged; Pinchpoint writes to standard error. If standard output
    cannot be written (a full disk), the command continues, and a status of 0 becomes 1. Runs are saved under
    $XDG_STATE_HOME/pinchpoint/runs.

    Samples of this host come from a --target on it, otherwise from its exporter on port 9748, otherwise from a sampler
    in this process. The other hosts are the --targets or, without any, those that the --prometheus server scrapes.
    """
    access = load_access(http_config)
    try:
        child = Command()
    except OSError as error:
        fail(f"no pipe or pseudo-terminal for the command: {error.strerror}", 2)
    console = Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        if not quiet:
            _tell(f"pinchpoint: {line}\n")

    source: Source | None = None
    seers: Sequence[Seer] = ()
    host = refused = ""
    try:
        config = load_config(config_file)
        config.path.runs = str(runs or config.path.runs or default_run_directory())
        # The name that an exporter gives to the run of a user it does not trust.
        mark = trusted_users(config).mark(os.getuid())
        kinds = benchmark_kinds(config)
        if phase_regex is not None:
            program = os.path.basename(argv[0])
            kinds = (pattern(program, [program], phase_pattern(phase_regex, "--phase-pattern")),)
        try:
            source, host, seers = _sources(targets, prometheus, config, access)
        except LIMITS as error:
            if not is_limit(error):
                raise
            refused = f"no samples: {reason(error)}"
    except (ConfigError, SourceError) as error:
        fail(str(error), 2)
    if job := job_of(os.environ):
        tags.setdefault(JOB_TAG, job)
        name = name or job_name(job, os.path.basename(argv[0]))
    run, directory = _directory(name, argv, mark)
    markers = RunDirectory(Path(config.path.runs))
    session = Session(
        run, directory, source, markers, host=host, kinds=kinds, tags=tags, say=say, stacks=partial(stacks_of, seers)
    )
    say(f"run {run}, samples from {source.name}" if source is not None else f"run {run}, {refused}")
    if host == THIS_HOST and without_rights():
        say("this user's own processes are seen in full, others in part; `pinchpoint docs users` says what is missing")
    if refused:
        session.warnings.append(refused)
    keep = session.open_stdout()
    if number := child.asked_to_stop():
        discard(directory)
        end_like(number)
    try:
        child.start(argv, keep, session.release)
    except CommandError as error:
        discard(directory)
        fail(str(error), error.status)
    session.start(argv, child.pid)
    status = child.wait()
    session.warnings += child.warnings
    try:
        session.finish(os.waitstatus_to_exitcode(status), stopped=child.stopped)
        _report(session, directory, prometheus, access, console)
    except Exception as error:  # whatever fails here, the command's status counts
        _tell(f"pinchpoint: warning: the report ends here: {reason(error)}\n")
    end_like(status or child.failure)


def _report(
    session: Session, directory: Path, prometheus: str | None, access: HttpAccess | None, console: Console
) -> None:
    """Print the table and what the user has to know."""
    if prometheus is not None:
        try:
            session.add_alerts(fired_alerts(prometheus, session.run, *session.span, access=access))
        except PrometheusError as error:
            session.warnings.append(f"no alerts: {error}")
    with suppress(OSError):  # a capture ends with an empty write, which /dev/full refuses too
        with console.capture() as table:
            console.print(run_table(session.phases, alerts=prometheus is not None, width=console.width))
        _tell(table.get())
    if session.score is not None:
        _tell(f"pinchpoint: score {session.score.value:.6g}\n")
    if not session.valid:
        _tell("pinchpoint: the benchmark calls this run invalid\n")
    for warning in session.warnings:
        _tell(f"pinchpoint: warning: {warning}\n")
    if session.kept:
        _tell(
            f"pinchpoint: saved in {directory}; `pinchpoint report {session.run}` shows the evidence for the verdicts\n"
        )
    else:
        _tell(f"pinchpoint: not saved; what could be written is in {directory}\n")


def _sources(
    targets: Sequence[str], prometheus: str | None, config: Config, access: HttpAccess | None
) -> tuple[Source, str, Sequence[Seer]]:
    """Return the source of samples, this host's name in it, and who has stacks. Raises SourceError, ConfigError."""
    exporters = [TargetSource(target, access=access, demand=Demand(full=True)) for target in targets]
    _require(exporters, access)
    own = next((exporter for exporter in exporters if is_here(exporter.name)), None) or _this_host(config, access)
    others: list[Source] = [exporter for exporter in exporters if exporter is not own]
    seers = [own, *(exporter for exporter in exporters if exporter is not own)]
    if not targets and prometheus is not None:
        others.append(PrometheusSource(prometheus, lambda instance: is_here(instance, prometheus), access=access))
    return (Together([own, *others]) if others else own), own.name, seers


def _require(exporters: Sequence[TargetSource], access: HttpAccess | None) -> None:
    """Query the named targets, so that mistakes show before the run. Raises SourceError."""
    with ThreadPoolExecutor(max(1, len(exporters))) as pool:
        for exporter, snapshot in zip(
            exporters, pool.map(partial(_first_snapshot, access=access), exporters), strict=True
        ):
            if BUILD not in snapshot.values:
                raise SourceError(exporter.name, "serves metrics, but is not a Pinchpoint exporter")


def _first_snapshot(exporter: TargetSource, access: HttpAccess | None) -> Snapshot:
    with closing(TargetSource(exporter.name, FIRST_ANSWER_SECONDS, access=access)) as patient:
        return patient.snapshot()


def _this_host(config: Config, access: HttpAccess | None) -> TargetSource | LocalSource:
    """Return this host's exporter, or our own sampler if none is running. Raises ConfigError."""
    exporter = TargetSource(DEFAULT_TARGET, access=access)
    with suppress(SourceError):
        if BUILD in exporter.snapshot().values:
            return exporter
    exporter.close()
    return LocalSource(local_sampler(config))


def _directory(name: str | None, argv: tuple[str, ...], mark: str) -> tuple[str, Path]:
    try:
        return new_run_directory(run_id(name, argv, STEADY.now(), mark))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; set XDG_STATE_HOME to a directory that can be written", 2)


def _tell(text: str) -> None:
    """Write to standard error; if it has no reader or is full, the command does not fail."""
    with suppress(OSError):
        click.echo(text, err=True, nl=False)
