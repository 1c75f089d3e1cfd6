"""Queries to a Prometheus server, over its HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pinchpoint.typedjson import decoder
from pinchpoint.wire.fetch import Fetcher, FetchError

if TYPE_CHECKING:
    from pinchpoint.wire.http_config import HttpAccess

__all__ = ["Answer", "FiredAlert", "PrometheusError", "RawSeries", "ask", "fired_alerts", "raw_series"]

Series = TypeVar("Series")
ALERT_LINGER_SECONDS = 15.0
"""Seconds for which an alert may outlast its cause: the window of the rules."""
REFIRE_GAP_SECONDS = 10.0
"""Seconds without a sample after which an alert counts as fired again: rules are evaluated every 2 s."""


class PrometheusError(Exception):
    """The server gave no answer; the message says why."""


class FiredAlert(msgspec.Struct, frozen=True):
    """An alert that fired, and the Unix times in seconds at which it was seen firing."""

    name: str
    severity: str
    times: tuple[float, ...]

    def in_phase(self, start: float, end: float) -> bool:
        """Return whether it fired for what happened between two Unix times.

        One that already fires at the start belongs to what was before, unless it lasts.
        """
        within = [time for time in self.times if start <= time <= end]
        began = [
            time for time in within if not any(time - REFIRE_GAP_SECONDS <= before < time for before in self.times)
        ]
        return bool(began) or any(time >= start + ALERT_LINGER_SECONDS for time in within)


class RawSeries(msgspec.Struct):
    """The samples of one series, oldest first: Unix times in seconds, and values as the server writes them."""

    metric: msgspec.Raw
    """Its labels as in the answer: the same each time, so frequent callers parse them once."""
    values: list[tuple[float, str]]

    def labels(self) -> dict[str, str]:
        """Return the labels, including ``__name__``. Raises ValueError."""
        return LABELS.decode(self.metric)


class Data(msgspec.Struct, Generic[Series]):
    """The data of an answer."""

    result: list[Series]


class Answer(msgspec.Struct, Generic[Series]):
    """An answer to a query."""

    status: str
    data: Data[Series] | None = None
    error: str = ""


DECODER = decoder(Answer[RawSeries])
LABELS = decoder(dict[str, str])


def ask(
    fetcher: Fetcher, url: str, parameters: Mapping[str, str], decoder: msgspec.json.Decoder[Answer[Series]]
) -> list[Series]:
    """Return the server's result of an instant query. Raises PrometheusError."""
    try:
        answer = decoder.decode(fetcher.get(f"{url.rstrip('/')}/api/v1/query", parameters))
    except FetchError as error:
        raise PrometheusError(f"{url}: {_refusal(error.body) or error}") from error
    except RecursionError as error:
        raise PrometheusError(f"{url}: {error}") from error
    except ValueError as error:  # not UTF-8, not JSON, not such an answer
        raise PrometheusError(f"{url}: no answer of a Prometheus server: {error}") from error
    if answer.data is None:
        raise PrometheusError(f"{url}: {answer.error or 'an answer without data'}")
    return answer.data.result


def _refusal(body: bytes) -> str:
    """Return why the server refuses a query, from the body of its error response."""
    try:
        return DECODER.decode(body).error
    except (ValueError, RecursionError):
        return ""


def raw_series(fetcher: Fetcher, url: str, selector: str, seconds: float, end: float | None = None) -> list[RawSeries]:
    """Return the server's samples of the last `seconds` until `end` (Unix time, or now).

    Raises PrometheusError.
    """
    # Raw samples: an instant query gives each value the time of the query, and a range query looks back five minutes
    # at each step, which would show old values if the server was restarted since.
    parameters = {"query": f"{selector}[{max(1, round(seconds * 1000))}ms]"}
    if end is not None:
        parameters["time"] = f"{end:.3f}"
    return [series for series in ask(fetcher, url, parameters, DECODER) if series.values]


def fired_alerts(
    url: str, run: str, start: float, end: float, timeout: float = 5.0, access: HttpAccess | None = None
) -> list[FiredAlert]:
    """Return the alerts that fired between two Unix times, except those of other runs. Raises PrometheusError."""
    with closing(Fetcher(timeout, access)) as fetcher:
        found = raw_series(fetcher, url, 'ALERTS{alertstate="firing"}', end - start, end)
    try:
        named = [(series.labels(), series.values) for series in found]
    except ValueError as error:
        raise PrometheusError(f"{url}: no answer of a Prometheus server: {error}") from error
    return [
        FiredAlert(labels.get("alertname", "?"), labels.get("severity", ""), tuple(time for time, _ in values))
        for labels, values in named
        if labels.get("run", "") in ("", run)
    ]
