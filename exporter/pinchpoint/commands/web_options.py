"""Options that all services share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["web_options"]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def web_options(address: str) -> Callable[[Decorated], Decorated]:
    """Return the options of a service, as all of Prometheus' exporters have them.

    They give the parameters `listen` (no entry for the default `address`), `web_config_file` and `systemd_socket` (None
    if not given).
    """

    def add(function: Decorated) -> Decorated:
        for option in (
            click.option(
                "--web.systemd-socket",
                "systemd_socket",
                is_flag=True,
                default=None,
                help="Serve on the sockets that systemd passes, instead of addresses.",
            ),
            click.option(
                "--web.config.file",
                "web_config_file",
                metavar="FILE",
                help="TLS and passwords, in the format of Prometheus' exporter-toolkit; reread when it changes.",
            ),
            click.option(
                "--web.listen-address",
                "listen",
                multiple=True,
                metavar="HOST:PORT",
                help=f"Address to serve on; IPv6 in brackets; repeatable. [default: {address}]",
            ),
        ):
            function = option(function)
        return function

    return add
