"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pinchpoint.host.systemd import passed_socket
from pinchpoint.terminal.plain import fail
from pinchpoint.wire.connections import Refusals
from pinchpoint.wire.guard import Guard
from pinchpoint.wire.http import AddressError, Application, Server, parse_address, serve
from pinchpoint.wire.web_config import WebConfigError

__all__ = ["guarded_server", "targets_option", "web_options"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def web_options(function: Decorated) -> Decorated:
    """Add the options of all Prometheus exporters that protect and start the HTTP side."""
    for option in (
        click.option(
            "--web.systemd-socket", "systemd_socket", is_flag=True, default=None, help="Serve on systemd's socket."
        ),
        click.option(
            "--web.config.file",
            "web_config",
            metavar="FILE",
            help="YAML file with TLS and passwords, in the format of Prometheus' exporters.",
        ),
    ):
        function = option(function)
    return function


def guarded_server(
    listen: str, web_config: str | None, systemd_socket: bool, make: Callable[[Guard], Application], refusals: Refusals
) -> Server:
    """Return the server of a service; exit with 2 and the reason if it can't serve.

    `make` returns the application, given what protects it.
    """
    try:
        guard = Guard(Path(web_config) if web_config else None)
        passed = passed_socket() if systemd_socket else None
        return serve(parse_address(listen), make(guard), refusals, guard, passed)
    except (AddressError, WebConfigError) as error:
        fail(str(error), 2)
    except OSError as error:
        where = "--web.systemd-socket" if systemd_socket else f"{listen}"
        other = "" if systemd_socket else "; choose another --web.listen-address"
        fail(f"can't listen on {where}: {error.strerror}{other}", 2)


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
