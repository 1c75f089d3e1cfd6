"""Questions to a Prometheus server, over its HTTP API."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import msgspec

__all__ = ["FiredAlert", "PrometheusError", "fired_alerts"]


LINGER = 15.0
"""Seconds for which an alert may go on after its cause has ended: the window that the rules look at."""
GAP = 10.0
"""Seconds without a sample after which an alert fires anew: rules are evaluated every 2 s."""


class PrometheusError(Exception):
    """The server gave no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class FiredAlert:
    """An alert that fired, and the Unix times in seconds at which it was seen firing."""

    name: str
    severity: str
    times: tuple[float, ...]

    def in_phase(self, start: float, end: float) -> bool:
        """Return whether it fired for what happened between two Unix times.

        One that fires already at the start is of what was before, unless it goes on.
        """
        within = [time for time in self.times if start <= time <= end]
        began = [time for time in within if not any(time - GAP <= before < time for before in self.times)]
        return bool(began) or any(time >= start + LINGER for time in within)


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


def fired_alerts(url: str, start: float, end: float, timeout: float = 5.0) -> list[FiredAlert]:
    """Return the alerts that fired between two Unix times. Raises PrometheusError."""
    # Raw samples of the range: a range query looks back five minutes at each step, and would show alerts of the run
    # before where the server was restarted since.
    span = max(1, round((end - start) * 1000))
    query = {"query": f'ALERTS{{alertstate="firing"}}[{span}ms]', "time": f"{end:.3f}"}
    try:
        response = httpx.get(f"{url.rstrip('/')}/api/v1/query", params=query, timeout=timeout, trust_env=False)
        answer = msgspec.json.decode(response.content, type=_Answer)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
        raise PrometheusError(f"{url}: {error}") from error
    if answer.data is None:
        raise PrometheusError(f"{url}: {answer.error or f'status {response.status_code}'}")
    return [
        FiredAlert(
            series.metric.get("alertname", "?"),
            series.metric.get("severity", ""),
            tuple(time for time, _ in series.values),
        )
        for series in answer.data.result
    ]
