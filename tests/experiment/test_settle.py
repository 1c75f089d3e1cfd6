from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinchpoint.experiment import shell
from pinchpoint.experiment.settle import STEPS, SettleError, Step, settle, steps_in
from pinchpoint.experiment.shell import ShellError

OK: Mapping[str, Any] = {"health": {"status": "HEALTH_OK", "checks": {}}, "pgmap": {"num_objects": 5}}


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have `ceph status` give these answers, the last one forever."""

    def answer(*answers: Mapping[str, Any] | str) -> None:
        left = [each if isinstance(each, str) else json.dumps(each) for each in answers]
        monkeypatch.setattr(shell, "run", lambda command, **_: left.pop(0) if len(left) > 1 else left[0])

    return answer


def settled(name: str, seconds: float = 1e-3) -> None:
    settle(Step(name, seconds), lambda: False, pause=lambda seconds: None)


def test_steps_have_names_and_bounds() -> None:
    assert steps_in("health-ok, sync=5,wait=0.5,") == [
        Step("health-ok", STEPS["health-ok"][0]),
        Step("sync", 5.0),
        Step("wait", 0.5),
    ]
    assert steps_in("") == []


@pytest.mark.parametrize("text", ["sleep", "sync=", "sync=x", "sync=-1", "sync=nan", "sync=1e9"])
def test_wrong_steps_are_refused(text: str) -> None:
    with pytest.raises(SettleError):
        steps_in(text)


def test_a_cluster_is_awaited_until_it_is_healthy(status: Callable[..., None]) -> None:
    status({"health": {"status": "HEALTH_WARN", "checks": {"PG_DEGRADED": {}}}}, OK)
    settled("health-ok", 60)
    status({"health": {"status": "HEALTH_WARN", "checks": {"PG_DEGRADED": {}}}})
    with pytest.raises(SettleError, match=r"not settled within 0\.001 s: HEALTH_WARN: PG_DEGRADED"):
        settled("health-ok")


@pytest.mark.parametrize("answer", ["", "[]", "{}", "null", '{"health": {}}'])
def test_an_answer_that_says_nothing_is_not_healthy(status: Callable[..., None], answer: str) -> None:
    status(answer)
    with pytest.raises(SettleError):
        settled("health-ok")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([{"health": {"checks": {"MDS_TRIM": {}}}}], "behind on trimming"),
        ([{"pgmap": {"pgs_by_state": [{"state_name": "active+clean+snaptrim"}]}}], "snapshots are trimmed"),
        ([{"pgmap": {"num_objects": count}} for count in range(100_000)], "the number of objects changes"),
    ],
)
def test_trimming_and_purging_are_awaited(
    status: Callable[..., None], answers: Sequence[Mapping[str, Any]], why: str
) -> None:
    status(*answers)
    with pytest.raises(SettleError, match=why):
        settled("trim")


def test_three_equal_numbers_of_objects_are_still(status: Callable[..., None]) -> None:
    status({"pgmap": {"num_objects": 9}}, {"pgmap": {"num_objects": 7}}, {"pgmap": {"num_objects": 5}}, OK)
    settled("trim", 60)


def test_the_last_answer_is_reported_where_the_next_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ['{"health": {"status": "HEALTH_WARN"}}']

    def run(command: str, **_: Any) -> str:
        if not answers:
            raise ShellError("ceph took longer than 0.1 s and was killed")
        return answers.pop()

    monkeypatch.setattr(shell, "run", run)

    with pytest.raises(SettleError, match=r"HEALTH_WARN; then ceph took longer than 0\.1 s"):
        settled("health-ok", 0.1)
    with pytest.raises(SettleError, match=r"not settled within 0\.1 s: ceph took longer"):
        settled("health-ok", 0.1)


def test_a_stop_ends_a_wait() -> None:
    assert settle(Step("wait", 3600), lambda: True) < 60


def test_a_stop_ends_a_command_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    ceph = tmp_path / "ceph"
    ceph.write_text(f"#!/bin/sh\necho $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 3600\n")
    ceph.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert settle(Step("health-ok", 3600), pid.exists) < 1800

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_this_hosts_pages_are_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    assert settle(Step("sync", 600), lambda: False) >= 0
