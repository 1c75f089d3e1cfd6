from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.wire.prometheus import FiredAlert, PrometheusError, fired_alerts
from serving import answering


def answer(*series: tuple[str, list[float]]) -> bytes:
    result = [
        {"metric": {"alertname": name, "severity": "warning"}, "values": [[time, "1"] for time in times]}
        for name, times in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_firing_alerts_are_asked_for_as_raw_samples_of_the_run_alone() -> None:
    with answering(answer(("DiskSaturated", [12.0, 14.0]))) as (url, asked):
        found = fired_alerts(f"{url}/", "r1", 10.0, 40.5)

    question = parse_qs(urlsplit(asked[0]).query)
    assert found == [FiredAlert("DiskSaturated", "warning", (12.0, 14.0))]
    assert question == {"query": ['ALERTS{alertstate="firing"}[30500ms]'], "time": ["40.500"]}


@pytest.mark.parametrize(
    ("label", "counts"),
    [
        ({}, True),
        ({"run": "r1"}, True),
        ({"run": "r0"}, False),
    ],
)
def test_an_alert_about_another_run_is_none_of_this_one(label: dict[str, str], counts: bool) -> None:
    series = {"metric": {"alertname": "BenchmarkFailed", "severity": "critical", **label}, "values": [[12.0, "1"]]}
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}).encode()
    with answering(body) as (url, _):
        found = fired_alerts(url, "r1", 10.0, 40.5)

    assert [alert.name for alert in found] == (["BenchmarkFailed"] if counts else [])


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b'{"status":"error","error":"query timed out"}', 503, "query timed out"),
        (b"<html>a proxy's page</html>", 502, "502 Bad Gateway"),
        (b'{"status":"success","data":{"result":[{"metric":{},"values":[["x","1"]]}]}}', 200, "Expected"),
        (b"\xff\xfe", 200, "malformed"),
    ],
)
def test_a_server_that_gives_no_alerts_is_named_with_its_reason(body: bytes, status: int, reason: str) -> None:
    with answering(body, status) as (url, _), pytest.raises(PrometheusError, match=reason) as error:
        fired_alerts(url, "r1", 0, 1)

    assert str(error.value).startswith(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "not a url", "http://[::1", "ftp://127.0.0.1"])
def test_a_server_that_cannot_be_asked_is_one_error(url: str) -> None:
    with pytest.raises(PrometheusError):
        fired_alerts(url, "r1", 0, 1)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([102, 104], True),  # it began in the phase
        ([90, 92, 94, 96, 98, 100, 102, 104, 106], False),  # the tail of an earlier alert
        (list(range(90, 120, 2)), True),  # it continued
        ([80, 82, 84, 108], True),  # it came again
        ([90, 98], False),
        ([], False),
    ],
)
def test_an_alert_belongs_to_the_phase_that_it_fired_for(times: list[float], expected: bool) -> None:
    assert FiredAlert("A", "warning", tuple(times)).in_phase(100, 130) is expected


@given(st.lists(st.floats(0, 1000)), st.floats(0, 1000), st.floats(0, 1000))
def test_only_an_alert_that_fired_within_a_phase_belongs_to_it(times: list[float], start: float, end: float) -> None:
    if FiredAlert("A", "", tuple(times)).in_phase(start, end):
        assert any(start <= time <= end for time in times)
