"""Where snapshots come from: a sampler in this process, or an exporter that is scraped.

Both are one thing to whoever asks: `snapshot()` gives the series of one host now.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from pinchpoint.model import Labels, Snapshot
from pinchpoint.sampler import Sampler

__all__ = ["LocalSource", "Source", "SourceError", "TargetSource", "parse_exposition"]

BODY_LIMIT = 64 << 20
"""Longest exposition that is read from a target, in bytes (2,000 series are 0.3 MB)."""
CHUNK = 1 << 16
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Exporters stand in the cluster's own network: a proxy of the environment is for the world outside."""


class SourceError(Exception):
    """A source gave no snapshot; the message says which one and why."""


class Source(Protocol):
    """One host, as it can be asked for its series."""

    name: str
    """What a person calls it: ``this host``, or ``HOST:PORT``."""

    def snapshot(self) -> Snapshot:
        """Return the series now. Raises SourceError."""

    def close(self) -> None:
        """Release what the source keeps running or open."""


class LocalSource:
    """A sampler that runs in this process."""

    def __init__(self, sampler: Sampler) -> None:
        self.name = "this host"
        self._sampler = sampler
        sampler.start()

    def snapshot(self) -> Snapshot:
        """Return the sampler's series now."""
        return Snapshot.of(time.time(), self._sampler.points())

    def close(self) -> None:
        """Stop the sampler."""
        self._sampler.stop()


class TargetSource:
    """An exporter, scraped over HTTP at ``HOST:PORT`` (its path is /metrics) or at a whole URL."""

    def __init__(self, target: str, timeout: float = 2.0) -> None:
        self.name = target
        self.url = target if "://" in target else f"http://{target}/metrics"
        self.timeout = timeout

    def text(self) -> str:
        """Return the exposition as the target gave it. Raises SourceError."""
        deadline = time.monotonic() + self.timeout
        body = bytearray()
        try:
            with DIRECTLY.open(self.url, timeout=self.timeout) as answer:
                # The timeout is of one read, and a target may send a byte at a time.
                while (chunk := answer.read1(CHUNK)) and len(body) < BODY_LIMIT:
                    body += chunk
                    if time.monotonic() > deadline:
                        raise TimeoutError("keeps the connection and does not end its answer")
        except urllib.error.HTTPError as error:
            raise SourceError(f"{self.name}: {error.code} {error.reason}") from error
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise SourceError(f"{self.name}: {reason}") from error
        return body.decode("utf-8", "replace")

    def snapshot(self) -> Snapshot:
        """Return the target's series now. Raises SourceError."""
        try:
            return parse_exposition(self.text(), time.time())
        except ValueError as error:
            raise SourceError(f"{self.name}: not an exposition of metrics: {error}") from error

    def close(self) -> None:
        """Do nothing: every scrape is a connection of its own."""


def parse_exposition(text: str, now: float) -> Snapshot:
    """Return the snapshot that a text in Prometheus' format describes. Raises ValueError."""
    values: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    except Exception as error:  # the parser raises whatever it stumbles on
        raise ValueError(str(error) or type(error).__name__) from error
    return Snapshot(now, values)
