"""Addresses on which a server listens or that a client asks, without what either needs to do so."""

from __future__ import annotations

from ipaddress import IPv6Address

from pinchpoint.compat import re

__all__ = ["AddressError", "ListenError", "parse_address"]


class AddressError(ValueError):
    """Invalid listen address."""


class ListenError(Exception):
    """An address cannot be listened on; the message says which one and why."""


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``:PORT`` (every address, IPv6 too) or ``[IPV6]:PORT``."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535 or re.search(r"[^!-~]", host):
        raise AddressError(f"{text!r} is not HOST:PORT, :PORT or [IPV6]:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host.partition("%")[0])
        except ValueError as error:
            raise AddressError(f"{text!r}: {error}") from error
    elif ":" in host:
        raise AddressError(f"{text!r}: put an IPv6 address in brackets: [{host}]:{port}")
    return host, int(port)
