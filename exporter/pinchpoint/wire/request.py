"""The head of an HTTP request, as anybody may send it.

The parser of `http.server` imports a mail parser and OpenSSL (email, http.client, ssl), which take 5.4 MB of an idle
exporter's memory.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec

from pinchpoint.expressions import expression

__all__ = ["Request", "RequestError", "parse_request"]

REQUEST_LINE = expression(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~\x80-\xff]{1,8192}) HTTP/([0-9])\.[0-9]", re.ASCII)
"""RFC 9112, section 3. The target may have bytes above 127, as some clients send them."""
TOKEN = expression(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}", re.ASCII)
CONTROL = expression(r"[\x00-\x08\x0a-\x1f\x7f]", re.ASCII)


class RequestError(Exception):
    """A request that is not answered otherwise."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Request(msgspec.Struct, frozen=True):
    """The request line, and the headers by their names in lower case; values of one name are joined by commas."""

    method: str
    target: str
    headers: dict[str, str]


def parse_request(head: bytes) -> Request:
    """Return the request in a head with the empty line that ends it. Raises RequestError.

    Whatever two readers may understand differently is refused (RFC 9112, sections 5.1, 5.2 and 11.2): folded lines,
    spaces in front of a colon, control characters. Empty lines in front of the request are ignored (section 2.2).
    """
    first, *lines = [line.removesuffix("\r") for line in head.decode("latin-1").strip("\r\n").split("\n")]
    if (found := REQUEST_LINE.fullmatch(first)) is None:
        raise RequestError(HTTPStatus.BAD_REQUEST)
    if found[3] != "1":
        raise RequestError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or TOKEN.fullmatch(name) is None or CONTROL.search(value) is not None:
            raise RequestError(HTTPStatus.BAD_REQUEST)
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Request(found[1], found[2], headers)
