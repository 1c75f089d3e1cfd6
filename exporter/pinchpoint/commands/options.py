"""Options shared by several commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from pinchpoint.expressions import expression
from pinchpoint.rules import JOB, MAX_SCRAPE_INTERVAL_SECONDS, MIN_SCRAPE_INTERVAL_SECONDS
from pinchpoint.runs import MAX_RUN_NAME_CHARACTERS, MAX_SEVERAL_NAME_CHARACTERS
from pinchpoint.terminal.plain import fail
from pinchpoint.text import as_utf8
from pinchpoint.tomlfile import ConfigError
from pinchpoint.wire.addresses import AddressError, parse_address

__all__ = [
    "NumberRange",
    "complete_runs",
    "http_config_option",
    "job_option",
    "load_access",
    "name_option",
    "parse_duration",
    "parse_url",
    "prometheus_option",
    "scrape_interval_option",
    "tags_option",
    "targets_option",
]

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
INTERVAL = expression(r"(\d{1,4})(s|m)")
URL = expression(r"[\w./:?=&%~@\[\]-]+")


def complete_runs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of saved runs that a shell may complete, the newest first; where none begins so, their names."""
    from pinchpoint.session.store import name_of, state_directory

    try:
        runs = sorted((path.name for path in state_directory().iterdir()), reverse=True)
    except OSError:  # none is saved, or there is no home directory
        runs = []
    return [run for run in ("last", *runs) if run.startswith(incomplete)] or [
        name for name in dict.fromkeys(map(name_of, runs)) if name.startswith(incomplete)
    ]


class NumberRange(click.FloatRange):
    """Like its base, to which "nan" is within every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail("is not a number", param, ctx)
        return found


def targets_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--target``, which gives the parameter `targets`: every target once, in order."""
    return click.option(
        "--target",
        "targets",
        multiple=True,
        metavar="HOST:PORT[,HOST:PORT...]",
        callback=_targets,
        help=help_text,
    )


def name_option(help_text: str, *, several: bool = False) -> Callable[[Decorated], Decorated]:
    """Return the option ``--name`` of a run; of `several` runs, each of which gets a number behind it."""
    most = MAX_SEVERAL_NAME_CHARACTERS if several else MAX_RUN_NAME_CHARACTERS
    return click.option("--name", callback=partial(_name, most=most), help=help_text)


def tags_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--tag``, which gives the parameter `tags`: the value of each key."""
    return click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", callback=_tags, help=help_text)


def http_config_option(function: Decorated) -> Decorated:
    """Return a command with the option ``--http-config``, for `load_access`."""
    return click.option(
        "--http-config",
        "http_config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="TLS and passwords for asking servers, in the format of Prometheus' http_config; reread when it changes.",
    )(function)


def load_access(http_config: Path | None) -> HttpAccess | None:
    """Return how servers are asked by the file of ``--http-config``; ends the program if it cannot be used."""
    if http_config is None:
        return None
    # Only here: reading YAML costs 3 MB and 30 ms.
    from pinchpoint.wire.http_config import HttpAccess

    try:
        return HttpAccess(http_config)
    except ConfigError as error:
        fail(str(error), 2)


def _targets(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for value in values:
        for target in value.split(","):
            if not (target := target.strip()):
                raise click.BadParameter(f"{value!r} has an empty target", ctx, param)
            if "://" in target:
                if not target.startswith(("http://", "https://")):
                    raise click.BadParameter(f"{target!r}: only http and https can be asked", ctx, param)
            else:
                try:
                    host, _ = parse_address(target)
                except AddressError as error:
                    raise click.BadParameter(str(error), ctx, param) from error
                if not host:
                    raise click.BadParameter(f"{target!r} names no host", ctx, param)
            found[target] = None
    return list(found)


def _name(ctx: click.Context, param: click.Parameter, value: str | None, *, most: int) -> str | None:
    if value is not None and len(value) > most:
        raise click.BadParameter(f"{value!r} has {len(value)} characters: a name has {most} at most", ctx, param)
    return value


def _tags(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tag in map(as_utf8, values):
        key, equals, value = tag.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{tag!r} is not KEY=VALUE", ctx, param)
        if key in found:
            raise click.BadParameter(f"{tag!r}: {key} has a value already", ctx, param)
        found[key] = value
    return found


def parse_url(ctx: click.Context, param: click.Parameter, value: str, example: str) -> str:
    """Return an address of http or https as it is; anything else is wrong usage, and `example` shows what is meant."""
    if urlsplit(value).scheme not in ("http", "https") or not URL.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not an address such as {example}", ctx, param)
    return value


def prometheus_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--prometheus``, which gives the parameter `prometheus`: the address of a server, or None."""
    return click.option("--prometheus", metavar="URL", callback=_prometheus, help=help_text)


def _prometheus(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else parse_url(ctx, param, value, "http://prometheus:9090")


def scrape_interval_option(function: Decorated) -> Decorated:
    """Return a command with the option ``--scrape-interval``, which gives the parameter `seconds`."""
    return click.option(
        "--scrape-interval",
        "seconds",
        default="2s",
        show_default=True,
        metavar="DURATION",
        callback=_seconds,
        help="How often Prometheus scrapes the exporters.",
    )(function)


def job_option(function: Decorated) -> Decorated:
    """Return a command with the option ``--job``, which gives the parameter `job`."""
    return click.option(
        "--job", default=JOB, show_default=True, callback=_job, help="Name of the exporters' job in Prometheus."
    )(function)


def parse_duration(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return a duration in whole seconds or minutes; for callbacks of options. Raises click.BadParameter."""
    if INTERVAL.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 10s or 1m", ctx, param)
    return value


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> int:
    parse_duration(ctx, param, value)
    seconds = int(value[:-1]) * (60 if value.endswith("m") else 1)
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
