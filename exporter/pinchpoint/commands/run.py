"""``pinchpoint run``: runs a benchmark, marks its phases, records it, and says what was full."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console

from pinchpoint.benchmarks.pattern import pattern
from pinchpoint.build import benchmark_kinds, local_sampler
from pinchpoint.config import Config, load_config, phase_pattern
from pinchpoint.prometheus import PrometheusError, fired_alerts
from pinchpoint.runs import RunDirectory, default_run_directory
from pinchpoint.session import Session
from pinchpoint.sources import LocalSource, Source, SourceError, TargetSource
from pinchpoint.store import new_run_directory, run_id
from pinchpoint.supervise import Command, CommandError, end_like
from pinchpoint.terminal.table import run_table
from pinchpoint.tomlfile import ConfigError

__all__ = ["command"]

DEFAULT_TARGET = "127.0.0.1:9748"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option("--name", help="Name of the run. [default: the command's]")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A note that is kept with the run; repeatable.")
@click.option("--target", metavar="HOST:PORT", help=f"Exporter of this host. [default: {DEFAULT_TARGET} if it answers]")
@click.option("--prometheus", metavar="URL", help="Prometheus server to ask which alerts fired.")
@click.option("--phase-pattern", "phase_regex", metavar="REGEX", help="Lines of the output that begin a phase.")
@click.option("--path.runs", "runs", type=click.Path(path_type=Path), metavar="DIR", help="Directory of markers.")
@click.option("--config.file", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="TOML file.")
@click.option("--quiet", is_flag=True, help="Say nothing but the table at the end.")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    name: str | None,
    tags: tuple[str, ...],
    target: str | None,
    prometheus: str | None,
    phase_regex: str | None,
    runs: Path | None,
    config_file: Path | None,
    quiet: bool,
    argv: tuple[str, ...],
) -> None:
    """Run a benchmark, mark its phases, record it, and say what was full.

    The command's output and exit status pass through unchanged; what Pinchpoint says goes to standard error. Where
    standard output can't be written (a full disk) the command goes on, and a status of 0 becomes 1.
    Runs are kept under $XDG_STATE_HOME/pinchpoint/runs.
    """
    try:
        child = Command()
    except OSError as error:
        _fail(f"no pipe or pseudo-terminal for the command: {error.strerror}")
    console = Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        if not quiet:
            _tell(f"pinchpoint: {line}\n")

    pairs = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not key or not equals:
            _fail(f"--tag {tag!r} is not KEY=VALUE")
        pairs[key] = value
    try:
        config = load_config(config_file)
        config.path.runs = str(runs or config.path.runs or default_run_directory())
        kinds = benchmark_kinds(config)
        if phase_regex is not None:
            program = os.path.basename(argv[0])
            kinds = (pattern(program, [program], phase_pattern(phase_regex, "--phase-pattern")),)
        source = _source(target, config)
    except (ConfigError, SourceError) as error:
        _fail(str(error))
    run, directory = _directory(name, argv)
    markers = RunDirectory(Path(config.path.runs))
    session = Session(run, directory, source, markers, kinds=kinds, tags=pairs, say=say)
    say(f"run {run}, samples from {source.name}")
    with session.open_stdout() as keep:
        try:
            child.start(argv, keep)
        except CommandError as error:
            directory.joinpath("stdout").unlink(missing_ok=True)
            _fail(str(error), error.status)
        session.start(argv, child.pid)
        status = child.wait()
    session.warnings += child.warnings
    session.finish(os.waitstatus_to_exitcode(status))
    source.close()
    if prometheus is not None:
        try:
            _add_alerts(session, prometheus)
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
    _tell(f"pinchpoint: kept in {directory}\n")
    end_like(status or child.failure)


def _source(target: str | None, config: Config) -> Source:
    """Return the exporter of this host, or a sampler of our own where none runs. Raises SourceError, ConfigError."""
    exporter = TargetSource(target or DEFAULT_TARGET)
    try:
        if "pinchpoint_build_info" in exporter.snapshot().values:
            return exporter
    except SourceError:
        if target is not None:
            raise
    if target is not None:
        raise SourceError(f"{target}: serves metrics, but is no exporter of Pinchpoint")
    return LocalSource(local_sampler(config))


def _directory(name: str | None, argv: tuple[str, ...]) -> tuple[str, Path]:
    try:
        return new_run_directory(run_id(name, argv, time.time()))
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}; set XDG_STATE_HOME to a directory that can be written")


def _add_alerts(session: Session, url: str) -> None:
    fired = fired_alerts(url, *session.span)
    for phase in session.phases:
        start, end = phase.mark.start, phase.mark.end or session.span[1]
        phase.alerts = sorted({alert.name for alert in fired if alert.in_phase(start, end)})


def _tell(text: str) -> None:
    """Write to standard error; where nobody reads it or it is full, that is no failure of the command."""
    with suppress(OSError):
        click.echo(text, err=True, nl=False)


def _fail(message: str, status: int = 2) -> NoReturn:
    _tell(f"pinchpoint: {message}\n")
    sys.exit(status)
