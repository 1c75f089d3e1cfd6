from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.diagnosis.check import sources
from pinchpoint.wire.prometheus import PrometheusError
from pinchpoint.wire.prometheus_hosts import MAX_QUERY_CHARACTERS, Known, Sample, ask_known, known
from serving import answering

TARGET = {"job": "pinchpoint", "instance": "a:9748", "group": "clients"}


def sample(name: str, value: float = 1.0, labels: Mapping[str, str] = TARGET) -> Sample:
    return Sample({"__name__": name, **labels}, 100.0, value)


def body(*series: tuple[Mapping[str, str], str]) -> bytes:
    result = [{"metric": metric, "value": [100.0, value]} for metric, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_a_host_is_what_its_exporter_said_without_the_labels_that_prometheus_added() -> None:
    found = known([sample("pinchpoint_cpu_turbo_disabled")])

    assert found.hosts["a:9748"].value("pinchpoint_cpu_turbo_disabled") == 1.0
    assert found.hosts["a:9748"].time == 100.0
    assert found.cluster is None


def test_what_managers_say_keeps_the_labels_that_tell_clusters_apart() -> None:
    found = known([sample("ceph_pg_total", 64, {"job": "ceph", "instance": "m:9283", "cluster": "x", "pool_id": "1"})])

    assert found.hosts == {}
    assert found.cluster is not None
    ((labels, value),) = found.cluster.series("ceph_pg_total")
    assert (labels["cluster"], labels["instance"], value) == ("x", "m:9283", 64)


def test_an_exporter_that_is_down_is_no_host_though_its_last_series_linger() -> None:
    found = known([sample("up", 0.0), sample("pinchpoint_build_info")])
    assert found == Known({}, ("a:9748",), None)


def test_another_job_that_is_down_is_not_our_business() -> None:
    assert known([sample("up", 0.0, {"job": "node", "instance": "a:9100"})]).down == ()


def test_every_metric_that_is_wanted_is_asked_for_in_queries_of_a_length_that_servers_take() -> None:
    names = [f"pinchpoint_metric_{number}" for number in range(500)]
    with answering(body()) as (url, asked):
        ask_known(url, names)

    queries = [parse_qs(urlsplit(path).query)["query"][0] for path in asked]
    words = [word for query in queries for word in query.removeprefix('{__name__=~"').removesuffix('"}').split("|")]
    assert sorted(words) == sorted([*names, "up"])
    assert len(queries) > 1
    assert all(len(query) < MAX_QUERY_CHARACTERS + 50 for query in queries)


def test_the_answer_of_a_server_is_read() -> None:
    with answering(body(({"__name__": "pinchpoint_cpu_turbo_disabled", "instance": "a"}, "1"))) as (url, _):
        found = ask_known(f"{url}/", sources())
    assert found.hosts["a"].value("pinchpoint_cpu_turbo_disabled") == 1.0


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b"<html>", 200, "no answer of a Prometheus server"),
        (b'{"status":"error","error":"too many"}', 422, "too many"),
        (b'{"status":"error"}', 503, "503 "),
        (b"<html>", 401, "401 "),
        (b'{"status":"error"}', 200, "an answer without data"),
        (b"\xff", 200, "no answer of a Prometheus server"),
        (body(({}, "x")), 200, "could not convert"),
    ],
)
def test_an_answer_that_is_none_says_which_server_and_why(answer: bytes, status: int, reason: str) -> None:
    with answering(answer, status) as (url, _), pytest.raises(PrometheusError, match=f"{url}.*{reason}"):
        ask_known(url, ["up"])


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PrometheusError, match=r"127\.0\.0\.1:1"):
        ask_known("http://127.0.0.1:1", ["up"])


@given(
    st.lists(
        st.builds(
            Sample,
            st.dictionaries(st.sampled_from(["__name__", "job", "instance", "fact"]), st.text(max_size=12)),
            st.floats(),
            st.floats(),
        )
    )
)
def test_whatever_labels_a_server_gives_hosts_are_told_apart(samples: list[Sample]) -> None:
    found = known(samples)
    assert not set(found.hosts) & set(found.down)
