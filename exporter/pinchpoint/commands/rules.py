"""``pinchpoint rules``: the alert rules for an existing Prometheus."""

from __future__ import annotations

import click

from pinchpoint.commands.options import job_option, parse_url, scrape_interval_option
from pinchpoint.rules import RUNBOOKS, rules

__all__ = ["command"]


def _url(ctx: click.Context, param: click.Parameter, value: str) -> str:
    return parse_url(ctx, param, value, "http://judge:9749/runbooks/")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@scrape_interval_option
@job_option
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
