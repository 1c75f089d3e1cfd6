"""``pinchpoint judge``: reports what limits every run of every cluster."""

from __future__ import annotations

import logging
import os
import signal
import sys
from threading import Thread

import click

from pinchpoint.commands.options import targets_option
from pinchpoint.config import LOG_LEVELS
from pinchpoint.judge.service import Service
from pinchpoint.judge.targets import Target, TargetFiles
from pinchpoint.judge.web import application
from pinchpoint.terminal.plain import fail
from pinchpoint.wire.http import AddressError, parse_address, serve
from pinchpoint.wire.sources import target_url

__all__ = ["command"]

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
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 15),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two rounds of querying hosts and judging runs.",
)
@click.option(
    "--web.listen-address",
    "listen",
    default=":9749",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve on; IPv6 in brackets.",
)
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
    interval: float,
    listen: str,
    log_level: str,
) -> None:
    """Report what limits every run of every cluster: as metrics, as JSON, and as a web page.

    The judge queries hosts directly, or through a server that scrapes them. Two judges can run side by side: they reach
    the same verdicts.
    """
    if not targets and not files and not servers:
        fail("no hosts to ask: give --target, --targets-file or --prometheus; see pinchpoint judge --help", 2)
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    service = Service([Target(target, target_url(target)) for target in targets], TargetFiles(files), servers, interval)
    try:
        server = serve(parse_address(listen), application(service), service.refusals)
    except AddressError as error:
        fail(str(error), 2)
    except OSError as error:
        fail(f"can't listen on {listen}: {error.strerror}; choose another --web.listen-address", 2)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: Thread(target=server.shutdown).start())
    Thread(target=service.run, name="judge", daemon=True).start()
    log.info("the judge listens on %s", server.address)
    server.serve_forever(poll_interval=0.2)
    service.stop()
    server.server_close()
    sys.stderr.flush()
    os._exit(0)  # a source that hangs must not keep the process from ending
