"""``pinchpoint dashboards``: the dashboards, for a Grafana of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import click

from pinchpoint import __version__
from pinchpoint.commands.options import (
    http_config_option,
    job_option,
    load_access,
    parse_duration,
    parse_url,
    scrape_interval_option,
)
from pinchpoint.grafana import FOLDER_UID, LIVE_REFRESH, boards, bundle, data_source
from pinchpoint.rules import PAGES
from pinchpoint.statuses import statuses
from pinchpoint.terminal.plain import fail, say, warn
from pinchpoint.text import printable
from pinchpoint.tomlfile import ConfigError

__all__ = ["command"]

TIMEOUT_SECONDS = 30.0
"""Seconds that Grafana may take to answer."""
URL_EXAMPLE = "http://grafana:3000"


def _url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else parse_url(ctx, param, value, URL_EXAMPLE)


def _uid(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,40}", value):
        raise click.BadParameter(f"{value!r}: up to 40 letters, digits, _ and - can be a UID", ctx, param)
    return value


def _refresh(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if int(parse_duration(ctx, param, value)[:-1]) == 0:
        raise click.BadParameter(f"{value!r}: 1s is the shortest", ctx, param)
    return value


pages_option = click.option(
    "--pages",
    default=PAGES,
    show_default=True,
    metavar="URL",
    callback=_url,
    help="Base URL of runbooks and documentation: a judge's.",
)
prometheus_option = click.option(
    "--prometheus",
    metavar="URL",
    callback=_url,
    help="Prometheus, as Grafana reaches it: makes a data source.",
)


refresh_option = click.option(
    "--refresh",
    default=LIVE_REFRESH,
    show_default=True,
    metavar="DURATION",
    callback=_refresh,
    help="How often dashboards but Runs refresh; Grafana cancels queries that still run then.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Bring the dashboards into an existing Grafana, release 12 or newer."""


@command.command(epilog=statuses("dashboards write"))
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIRECTORY")
@pages_option
@prometheus_option
@scrape_interval_option
@refresh_option
@job_option
def write(directory: Path, pages: str, prometheus: str | None, seconds: int, refresh: str, job: str) -> None:
    """Write dashboards, files that provision them, and alert rules to a DIRECTORY.

    `dashboards/` has the dashboards, and a kustomization.yaml that makes ConfigMaps of them. `provisioning/` is for
    Grafana's directory of this name, and refers to DIRECTORY. `pinchpoint-rules.yml` is for Prometheus.
    """
    root = directory.absolute()
    files = bundle(root, pages=pages, job=job, seconds=seconds, refresh=refresh, prometheus=prometheus or "")
    for name, text in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            fail(f"{error.filename or path}: {error.strerror or error}")
    say(f"{printable(str(directory))}: {len(files)} files")


@command.command(epilog=statuses("dashboards install"))
@click.option("--url", required=True, metavar="URL", callback=_url, help="Address of Grafana.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the token of a service account that may write dashboards, folders and data sources.",
)
@http_config_option
@click.option(
    "--folder-uid",
    default=FOLDER_UID,
    show_default=True,
    metavar="UID",
    callback=_uid,
    help="Folder for the dashboards.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@pages_option
@prometheus_option
@scrape_interval_option
@refresh_option
@job_option
def install(
    url: str,
    token_file: Path | None,
    http_config: Path | None,
    folder_uid: str,
    dry_run: bool,
    pages: str,
    prometheus: str | None,
    seconds: int,
    refresh: str,
    job: str,
) -> None:
    """Install the dashboards over Grafana's HTTP API, and say what changed.

    A second time changes nothing. Dashboards that were changed are replaced; Grafana keeps their earlier versions.
    Without --prometheus they use the data source for Prometheus that is Grafana's default.
    """
    # Only here: the other commands need neither.
    from pinchpoint.wire.fetch import Fetcher
    from pinchpoint.wire.grafana_api import MIN_VERSION, GrafanaApi, GrafanaError
    from pinchpoint.wire.grafana_api import install as installed
    from pinchpoint.wire.http_config import TokenAccess

    if token_file is not None and http_config is not None:
        fail("give either --token-file or --http-config", 2)
    try:
        access = load_access(http_config) if token_file is None else TokenAccess(token_file)
    except ConfigError as error:
        fail(f"--token-file: {error}", 2)
    api = GrafanaApi(Fetcher(TIMEOUT_SECONDS, access), url)
    source = None if prometheus is None else data_source(prometheus, seconds)
    changes = installed(
        api,
        boards(pages, job, seconds, refresh),
        folder_uid=folder_uid,
        source=source,
        message=f"Pinchpoint {__version__}",
        dry_run=dry_run,
    )
    try:
        release = api.release()
        if release is not None and release < MIN_VERSION:
            fail(f"{url} is Grafana {release}: the dashboards need {MIN_VERSION} or newer")
        for what, done in changes:
            say(f"{printable(what)}: {done}")
        if source is None and api.has_prometheus() is False:
            warn(f"{url} has no data source for Prometheus: give --prometheus URL")
    except GrafanaError as error:
        fail(f"{url}: {error}")
