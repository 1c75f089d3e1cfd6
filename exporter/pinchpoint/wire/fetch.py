"""Answers of HTTP servers that nobody may rely on: each has a limit of time and of length."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from functools import cache

import httpx

__all__ = ["FetchError", "Fetcher"]

MAX_BODY_BYTES = 64 << 20
"""Longest answer that is read, in bytes (2,000 series are 0.3 MB)."""


class FetchError(Exception):
    """There is no answer; the message says why, and leaves it to others to say whose."""


class Fetcher:
    """Gets documents over HTTP, each in `timeout` seconds for connecting and as many for its answer.

    Proxies of the environment are not asked: what is fetched stands in the cluster's own network, and they are for the
    world outside. No compression is asked for: bytes on the wire are cheaper than CPU of a host that is measured.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._client = httpx.Client(
            timeout=timeout,
            trust_env=False,
            follow_redirects=True,
            verify=_trusted(),
            headers={"Accept-Encoding": "identity"},
        )

    def get(self, url: str, parameters: Mapping[str, str] | None = None, *, any_status: bool = False) -> bytes:
        """Return the body of an answer; with `any_status` also of one that is an error. Raises FetchError."""
        deadline = time.monotonic() + self.timeout
        body = bytearray()
        try:
            with self._client.stream("GET", url, params=parameters) as answer:
                if answer.is_error and not any_status:
                    raise FetchError(f"{answer.status_code} {answer.reason_phrase}")
                # The timeout is of one read, and a server may send a byte at a time.
                for chunk in answer.iter_raw():
                    body += chunk
                    if time.monotonic() > deadline:
                        raise FetchError("timed out while sending its response")
                    if len(body) > MAX_BODY_BYTES:
                        raise FetchError(f"answers with more than {MAX_BODY_BYTES >> 20} MiB")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise FetchError(_reason(error)) from error
        return bytes(body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _reason(error: Exception) -> str:
    """Return what the system says, which stands below what the libraries make of it."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror and not isinstance(below, ssl.SSLError):
            return below.strerror
        below = below.__cause__ or below.__context__
    return str(error) or type(error).__name__


@cache
def _trusted() -> ssl.SSLContext:
    """Return the certificates that are trusted: reading them takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)
