"""``pinchpoint rules``: the alert rules for an existing Prometheus."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import click

from pinchpoint.rules import JOB, MAX_SCRAPE_INTERVAL_SECONDS, MIN_SCRAPE_INTERVAL_SECONDS, RUNBOOKS, rules

__all__ = ["command"]

INTERVAL = re.compile(r"(\d{1,4})(s|m)")


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> int:
    found = INTERVAL.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 10s or 1m", ctx, param)
    seconds = int(found[1]) * (60 if found[2] == "m" else 1)
    if not MIN_SCRAPE_INTERVAL_SECONDS <= seconds <= MAX_SCRAPE_INTERVAL_SECONDS:
        raise click.BadParameter(
            f"{value!r}: {MIN_SCRAPE_INTERVAL_SECONDS}s to {MAX_SCRAPE_INTERVAL_SECONDS}s can be: "
            "windows hold four scrapes, and phases are short",
            ctx,
            param,
        )
    return seconds


def _job(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[\w./:-]+", value):
        raise click.BadParameter(f"{value!r} is not a valid job name: use letters, digits and _ . / : -", ctx, param)
    return value


def _url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if urlsplit(value).scheme not in ("http", "https") or not re.fullmatch(r"[\w./:?=&%~@-]+", value):
        raise click.BadParameter(f"{value!r} is not an address such as http://judge:9749/runbooks/", ctx, param)
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--scrape-interval",
    "seconds",
    default="2s",
    show_default=True,
    metavar="DURATION",
    callback=_seconds,
    help="How often Prometheus scrapes the exporters.",
)
@click.option("--job", default=JOB, show_default=True, callback=_job, help="Name of the exporters' job in Prometheus.")
@click.option(
    "--runbooks",
    default=RUNBOOKS,
    show_default=True,
    metavar="URL",
    callback=_url,
    help="Base URL for runbook_url; a judge serves the pages at http://HOST:9749/runbooks/.",
)
def command(seconds: int, job: str, runbooks: str) -> None:
    """Print the alert rules for a Prometheus whose scrape interval is not 2 s.

    At 10 or 15 s, the interval of cephadm's Prometheus and most others, windows are longer and alerts arrive later:
    docs/rules.md says by how much.
    """
    click.echo(rules(seconds, job, runbooks), nl=False)
