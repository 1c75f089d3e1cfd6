"""``pinchpoint judge``: reports what limits every run of every cluster."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from threading import Thread

import click

from pinchpoint.choices import LOG_LEVELS
from pinchpoint.commands.options import NumberRange, http_config_option, load_access, targets_option
from pinchpoint.commands.web_options import web_options
from pinchpoint.ending import leave
from pinchpoint.host.heap import share_one_heap
from pinchpoint.judge.service import Service
from pinchpoint.judge.targets import Target, TargetFiles
from pinchpoint.judge.web import application
from pinchpoint.metrics import (
    JUDGE_WEB_CONFIG_RELOAD_SUCCESSFUL,
    JUDGE_WEB_CONFIG_RELOAD_TIME,
    JUDGE_WEB_PASSWORD_CPU_SECONDS,
)
from pinchpoint.terminal.plain import fail
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.addresses import AddressError, ListenError
from pinchpoint.wire.guard import ProtectionMetrics
from pinchpoint.wire.listeners import Listeners, load_protection, open_sockets
from pinchpoint.wire.sources import target_url

__all__ = ["command"]

DEFAULT_ADDRESS = ":9749"
PROTECTION = ProtectionMetrics(
    JUDGE_WEB_CONFIG_RELOAD_SUCCESSFUL, JUDGE_WEB_CONFIG_RELOAD_TIME, JUDGE_WEB_PASSWORD_CPU_SECONDS
)

log = logging.getLogger(__name__)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@targets_option("Exporters to ask; may be repeated.")
@click.option(
    "--targets-file",
    "files",
    multiple=True,
    metavar="PATTERN",
    help="Target files in Prometheus' file_sd_configs format, reread when they change; repeatable.",
)
@click.option(
    "--prometheus",
    "servers",
    multiple=True,
    metavar="URL",
    help="Server with the Prometheus HTTP API that scrapes exporters (VictoriaMetrics, Thanos, Mimir); repeatable.",
)
@http_config_option
@click.option(
    "--interval",
    type=NumberRange(0.5, 15),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two rounds of querying hosts and judging runs.",
)
@web_options(DEFAULT_ADDRESS)
@click.option(
    "--log.level",
    "log_level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="Lowest severity to log.",
)
def command(
    targets: list[str],
    files: tuple[str, ...],
    servers: tuple[str, ...],
    http_config: Path | None,
    interval: float,
    listen: tuple[str, ...],
    web_config_file: str | None,
    systemd_socket: bool | None,
    log_level: str,
) -> None:
    """Report what limits every run of every cluster: as metrics, as JSON, and as a web page.

    The judge queries hosts directly, or through a server that scrapes them. Two judges can run side by side: they reach
    the same verdicts.
    """
    access = load_access(http_config)
    if not targets and not files and not servers:
        fail("no hosts to ask: give --target, --targets-file or --prometheus; see pinchpoint judge --help", 2)
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    share_one_heap()
    scheme = "http" if access is None else access.scheme
    named = [Target(target, target_url(target, scheme)) for target in targets]
    service = Service(named, TargetFiles(files, scheme), servers, interval, access=access)
    try:
        web_config = None if web_config_file is None else Path(web_config_file)
        service.protection = load_protection(web_config, PROTECTION, service.refusals)
        sockets = open_sockets(listen or [DEFAULT_ADDRESS], bool(systemd_socket))
    except (ConfigError, AddressError, ListenError) as error:
        fail(str(error), 2)
    listeners = Listeners(sockets, application(service), service.refusals, service.protection)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=listeners.shutdown).start())
    Thread(target=service.run, name="judge", daemon=True).start()
    log.info("protection: %s", listeners.protected_by)
    for address in listeners.addresses:
        log.info("the judge listens on %s", address)
    listeners.serve_forever()
    service.stop()
    listeners.close()
    leave(0)  # a source that hangs must not keep the process from ending
