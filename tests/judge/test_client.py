from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.test_service import judged
from pinchpoint.diagnosis.costs import Cost
from pinchpoint.judge.client import JudgeError, ask, parse_verdicts
from pinchpoint.wire.fetch import Fetcher
from serving import serving


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(json.dumps(judged().to_json()))  # type: ignore[no-any-return]


def test_what_a_judge_says_is_read_as_it_meant_it(document: dict[str, Any]) -> None:
    (meant,) = judged().runs

    (found,) = parse_verdicts(json.dumps(document).encode())

    assert (found.benchmark, found.run, found.phase, found.since) == (
        meant.benchmark, meant.run, meant.phase, meant.since,
    )  # fmt: skip
    for name in ("kind", "words", "confidence", "margin", "evidence", "innocent", "latency", "advice", "runbook"):
        assert getattr(found.verdict, name) == getattr(meant.verdict, name)
    (fall,), (meant_fall,) = found.verdict.waterfalls, meant.verdict.waterfalls
    assert [step.name for step in fall.steps] == [step.name for step in meant_fall.steps]
    assert fall.seconds == pytest.approx(meant_fall.seconds, abs=1e-6)


def test_costs_of_the_limits_are_read(document: dict[str, Any]) -> None:
    cost = {"resource": "kv_sync", "owner": "osd.0", "host": "h", "samples": 120, "shares": {"checksum": 1.0}}
    (run,) = document["runs"]

    (found,) = parse_verdicts(json.dumps({**document, "runs": [{**run, "costs": [cost]}]}).encode())

    assert found.verdict.costs == (Cost("kv_sync", "osd.0", "h", 120, {"checksum": 1.0}),)


def test_it_is_asked_at_its_address(document: dict[str, Any]) -> None:
    with serving(lambda path: json.dumps(document) if path == "/api/v1/verdicts" else "") as address:
        assert ask(Fetcher(5.0), f"http://{address}/")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "no answer of a judge: JSON is malformed"),
        (b'{"schema": 1}', "no answer of a judge: Object missing required field `runs`"),
        (b'{"schema": 2, "runs": []}', "a judge of another version: its schema is 2, 1 is known here"),
    ],
)
def test_what_is_no_answer_of_a_judge_is_said(body: bytes, message: str) -> None:
    with pytest.raises(JudgeError, match=f"^{message}"):
        parse_verdicts(body)


def test_a_judge_that_is_not_there_is_said() -> None:
    with pytest.raises(JudgeError, match="refused"):
        ask(Fetcher(1.0), "http://127.0.0.1:9")


@given(st.binary(max_size=60) | st.sampled_from([b"[" * 5000, b'{"schema": 1, "runs": [{}]}', b"null"]))
def test_any_bytes_are_verdicts_or_an_error(body: bytes) -> None:
    try:
        assert parse_verdicts(body) == []
    except JudgeError:
        pass


def test_the_page_of_the_documentation_names_every_key(document: dict[str, Any]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "judge.md").read_text()
    keys = {*document, *document["runs"][0], *document["phases"][0], *document["hosts"][0], *document["problems"][0]}

    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []
