"""``pinchpoint exporter``: serves this host's metrics to Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pinchpoint import __version__
from pinchpoint.choices import KWORKER_SOURCES, LOG_LEVELS, PROBE_HELP, TASK_SOURCES, WAIT_SOURCES
from pinchpoint.commands.web_options import web_options
from pinchpoint.terminal.plain import fail

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    ("--web.telemetry-path", "telemetry_path", "PATH", "Path of the metrics. [default: /metrics]"),
    ("--path.procfs", "procfs", "DIR", "Mount point of the observed host's procfs. [default: /proc]"),
    ("--path.sysfs", "sysfs", "DIR", "Mount point of the observed host's sysfs. [default: /sys]"),
    ("--path.rootfs", "rootfs", "DIR", "Mount point of the observed host's root file system. [default: /]"),
    ("--path.runs", "runs", "DIR", "Directory where `pinchpoint run` leaves its markers. [default: /run/pinchpoint]"),
)


def _flags(function: F) -> F:
    for name, text in reversed(PROBE_HELP.items()):
        flags = f"--probe.{name}/--no-probe.{name}"
        function = click.option(flags, f"probe_{name}", default=None, help=text)(function)
    for flag, name, metavar, text in reversed(_OPTIONS):
        function = click.option(flag, name, metavar=metavar, help=text)(function)
    return web_options(":9748")(function)


class _Command(click.Command):
    """A command whose usage errors are one line, which suits a service's log."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            fail(f"{error.format_message().rstrip('.')}; see {ctx.command_path} --help", 2)


@click.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config.file", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="TOML file.")
@_flags
@click.option("--sample-interval", type=float, metavar="SECONDS", help="Interval of the fast probes. [default: 0.1]")
@click.option(
    "--rest/--no-rest",
    default=None,
    help="Sample less often while no benchmark runs and nothing is busy. [default: on]",
)
@click.option(
    "--cost-limit",
    type=float,
    metavar="CPUS",
    help="CPU time per second above which the exporter samples less often. [default: 0.1]",
)
@click.option(
    "--task-source",
    type=click.Choice(TASK_SOURCES),
    help="Method used to read threads. [default: auto, the best available]",
)
@click.option(
    "--kworker-source",
    type=click.Choice(KWORKER_SOURCES),
    help="Method used to tell kernel workers apart. [default: auto, the best available]",
)
@click.option(
    "--wait-source",
    type=click.Choice(WAIT_SOURCES),
    help="Method used to determine what benchmarks wait for. [default: auto, the best available]",
)
@click.option("--log.level", "log_level", type=click.Choice(LOG_LEVELS), help="Lowest severity to log. [default: info]")
@click.version_option(__version__, prog_name="pinchpoint")
def command(config_file: Path | None, **flags: Any) -> None:
    """Serve this host's metrics to Prometheus."""
    # Only here: `--help` and a completion need none of them, nor what they import.
    from pinchpoint.config import ConfigError, load_config, with_flags
    from pinchpoint.exporter import serve
    from pinchpoint.wire.addresses import AddressError, ListenError

    try:
        config = with_flags(load_config(config_file), flags)
        serve(config, flags["listen"] or [config.web.listen_address])
    except (ConfigError, AddressError, ListenError) as error:
        fail(str(error), 2)
