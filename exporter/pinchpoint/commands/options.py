"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pinchpoint.wire.http import AddressError, parse_address

__all__ = ["targets_option"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


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
