"""``pinchpoint exporter``: serves this host's metrics to Prometheus."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import click

from pinchpoint import __version__
from pinchpoint.activity import ASKED_SECONDS
from pinchpoint.bpf import choice as tasksources
from pinchpoint.build import enabled_probes, fork_nursery, local_sampler
from pinchpoint.commands.options import web_options
from pinchpoint.config import LOG_LEVELS, Config, ConfigError, check_config, load_config
from pinchpoint.cost_limit import CostLimit
from pinchpoint.host.capabilities import drop_all_but, effective, losses, names
from pinchpoint.host.systemd import Watchdog, notify
from pinchpoint.metrics import (
    HTTP_REFUSED_CONNECTIONS,
    WEB_CONFIG_RELOAD_SUCCESSFUL,
    WEB_CONFIG_RELOAD_TIME,
    WEB_PASSWORD_CPU_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.probes import PROBES, kworkers
from pinchpoint.terminal.plain import fail
from pinchpoint.waits import choice as waitsources
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.guard import ProtectionMetrics
from pinchpoint.wire.http import AddressError, application, parse_address
from pinchpoint.wire.listeners import ListenError, Listeners, load_protection, open_sockets

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])

SAMPLER_GC_THRESHOLDS = (20_000, 20, 20)
"""Python's garbage collection thresholds: a sample makes thousands of objects, none of them in a cycle."""

PROTECTION = ProtectionMetrics(WEB_CONFIG_RELOAD_SUCCESSFUL, WEB_CONFIG_RELOAD_TIME, WEB_PASSWORD_CPU_SECONDS)

log = logging.getLogger(__name__)


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
    refusals = Refusals(HTTP_REFUSED_CONNECTIONS)
    try:
        config = _with_flags(load_config(config_file), flags)
        logging.basicConfig(
            level=config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
        )
        nursery = fork_nursery(config)
        # After the fork: helpers, which run as other users, must not have keys and passwords in their memory.
        web_config = config.web.config_file
        protection = load_protection(None if web_config is None else Path(web_config), PROTECTION, refusals)
        sampler = local_sampler(config, beat=Watchdog().beat, nursery=nursery, limit=CostLimit(config.cost_limit))
        sockets = open_sockets(flags["listen"] or [config.web.listen_address], config.web.systemd_socket)
    except (ConfigError, AddressError, ListenError) as error:
        fail(str(error), 2)
    sampler.refusals = refusals

    def points() -> Iterator[Point]:
        yield from sampler.points()
        if protection is not None:
            yield from protection.points()

    app = application(points, config.web.telemetry_path, lambda: sampler.hold_full_rate(ASKED_SECONDS), sampler.stacks)
    listeners = Listeners(sockets, app, refusals, protection)
    try:
        sampler.host.runs.create()
    except OSError as error:
        logging.getLogger(__name__).warning(
            "%s: %s: runs will not show their phases", sampler.host.runs.path, error.strerror
        )
    _drop_capabilities(config)
    lacking = {capability for capabilities in sampler.lacks.values() for capability in capabilities}
    for loss in losses(lacking):
        log.info("%s", loss)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=listeners.shutdown).start())
    sampler.start()
    # What exists now lives as long as the process: the garbage collector need not scan it again.
    gc.freeze()
    gc.set_threshold(*SAMPLER_GC_THRESHOLDS)
    log.info("protection: %s", listeners.protected_by)
    for address in listeners.addresses:
        log.info("Pinchpoint %s listens on %s", __version__, address)
    notify("READY=1")
    listeners.serve_forever()
    notify("STOPPING=1")
    sampler.stop()
    listeners.close()
    # A thread that hangs in the kernel must not keep the process from ending.
    sys.stderr.flush()
    os._exit(0)


def _drop_capabilities(config: Config) -> None:
    """Keep the capabilities that an enabled probe needs, and no others; every thread is started after this.

    What is opened once is open by now, such as a port below 1024.
    """
    try:
        before = drop_all_but({capability for probe in enabled_probes(config) for capability in probe.capabilities})
        kept = effective()
    except OSError as error:
        log.warning("capabilities cannot be dropped: %s: %s", error.filename, error.strerror)
        return
    log.info("capabilities: keeps %s; dropped %s", names(kept), names(before.permitted - kept))


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
