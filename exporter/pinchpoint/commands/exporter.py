"""``pinchpoint exporter``: serves this host's metrics to Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pinchpoint import __version__
from pinchpoint.bpf import choice as tasksources
from pinchpoint.commands.options import web_options
from pinchpoint.config import LOG_LEVELS, Config, ConfigError, check_config, load_config
from pinchpoint.probes import PROBES, kworkers
from pinchpoint.terminal.plain import fail
from pinchpoint.waits import choice as waitsources
from pinchpoint.wire.addresses import AddressError, ListenError, parse_address

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
    for probe in reversed(PROBES):
        flags = f"--probe.{probe.name}/--no-probe.{probe.name}"
        function = click.option(flags, f"probe_{probe.name}", default=None, help=probe.help)(function)
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
    type=click.Choice(tasksources.SOURCES),
    help="Method used to read threads. [default: auto, the best available]",
)
@click.option(
    "--kworker-source",
    type=click.Choice(kworkers.SOURCES),
    help="Method used to tell kernel workers apart. [default: auto, the best available]",
)
@click.option(
    "--wait-source",
    type=click.Choice(waitsources.SOURCES),
    help="Method used to determine what benchmarks wait for. [default: auto, the best available]",
)
@click.option("--log.level", "log_level", type=click.Choice(LOG_LEVELS), help="Lowest severity to log. [default: info]")
@click.version_option(__version__, prog_name="pinchpoint")
def command(config_file: Path | None, **flags: Any) -> None:
    """Serve this host's metrics to Prometheus."""
    # Only here: the server, and what it imports, is a sixth of the instructions of `--help` or a completion.
    from pinchpoint.exporter import serve

    try:
        config = _with_flags(load_config(config_file), flags)
        serve(config, flags["listen"] or [config.web.listen_address])
    except (ConfigError, AddressError, ListenError) as error:
        fail(str(error), 2)


def _with_flags(config: Config, flags: dict[str, Any]) -> Config:
    """Return the configuration with the flags from the command line. Raises ConfigError."""
    if flags["web_config_file"] is not None:
        config.web.config_file = flags["web_config_file"]
    if flags["systemd_socket"] is not None:
        config.web.systemd_socket = flags["systemd_socket"]
    if flags["telemetry_path"] is not None:
        config.web.telemetry_path = flags["telemetry_path"]
    for name in ("procfs", "sysfs", "rootfs", "runs"):
        if flags[name] is not None:
            setattr(config.path, name, flags[name])
    for name in ("sample_interval", "rest", "cost_limit", "task_source", "kworker_source", "wait_source", "log_level"):
        if flags[name] is not None:
            setattr(config, name, flags[name])
    for probe in PROBES:
        if (wanted := flags[f"probe_{probe.name}"]) is not None:
            config.probe[probe.name] = wanted
    check_config(config, "command line")
    for address in flags["listen"]:
        parse_address(address)
    for name in ("procfs", "sysfs", "rootfs"):
        path = getattr(config.path, name)
        if not os.path.isdir(path):
            raise ConfigError(f"--path.{name}: {path} is not a directory")
    return config
