"""All reports of what limited a phase agree: the run itself, its report, the saved run, and the judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.watched import watched
from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.cli import main
from pinchpoint.clock import Clock
from pinchpoint.judge.engine import Engine
from pinchpoint.model import Snapshots
from pinchpoint.runs import PhaseMark, RunState
from pinchpoint.session import store
from pinchpoint.session.session import Session
from report.made import CLIENT, MDS, RUN, START, made_record

END = START + 112.0
"""Unix time until which the made-up run is observed: it has had two phases by then."""
MARKS = [mark for mark in made_record().marker.phases if (mark.end or 0) < END]


class Played:
    """A source whose hosts answer as they did in the made-up run."""

    def __init__(self) -> None:
        self.name = "played"
        self.problems: Mapping[str, str] = {}
        self.present: Snapshots = {}

    def snapshots(self) -> Snapshots:
        return self.present

    def close(self) -> None:
        pass


def played(begin: float, end: float, silent: range) -> Session:
    """Keep the run as `pinchpoint run` does, and return its session.

    The benchmark's output reports the start and end of a phase `begin` and `end` seconds late, and the MDS's host does
    not answer in `silent` seconds of the run.
    """
    source = Played()
    now = START
    run, directory = store.new_run_directory(RUN)
    markers = RunDirectory(directory / "markers")
    session = Session(
        run, directory, source, markers, host=CLIENT, kinds=BENCHMARKS, tags={}, clock=Clock(lambda: now, lambda: now)
    )  # fmt: skip
    marks = [PhaseMark(mark.name, mark.start, benchmark="io500") for mark in MARKS]

    def known(*_: Any) -> RunState:
        told = []
        for mark, whole in zip(marks, MARKS, strict=True):
            assert whole.end is not None
            if now >= mark.start + begin:
                told.append(mark)
                mark.end = whole.end if now >= whole.end + end else None
        return RunState(run, "io500", START, state=State.RUNNING, phases=told)

    with patch("pinchpoint.session.follow.merged", known):
        for moment in watched():
            now = moment[CLIENT].time
            if now > END:
                break
            here = {CLIENT: moment[CLIENT]}
            source.present = here if int(now - START) in silent else {**here, MDS: moment[MDS]}
            session._update()
            session._judge.take()
        begin = end = 0.0
        session._conclude(now, State.FINISHED)
    session._keeper.save()
    session._judge.close()
    return session


def reported(run: str) -> list[Any]:
    result = CliRunner().invoke(main, ["report", "--json", run])
    assert result.exit_code == 0, result.output
    phases: list[Any] = json.loads(result.stdout)["phases"]
    return phases


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@settings(max_examples=8)
@given(
    begin=st.floats(0, 12),
    end=st.floats(0, 12),
    silent=st.builds(lambda first, length: range(first, first + length), st.integers(0, 110), st.integers(0, 30)),
)
def test_the_run_its_report_and_what_is_kept_of_it_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, begin: float, end: float, silent: range
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        session = played(begin, end, silent)
        report = reported(session.run)
        kept = store.find(RUN, store.runs(print)).marker.phases

    for record, phase, mark in zip(session.phases, report, kept, strict=True):
        if record.verdict is None:
            assert (phase["verdict"], mark.verdict) == (None, None)
            continue
        said = phase["verdict"]
        assert (said["words"], said["confidence"]) == (record.verdict.words, record.verdict.confidence)
        assert phase["waits"] == pytest.approx(record.verdict.waits, abs=1e-3)  # a recording has nine decimals
        assert mark.verdict is not None
        assert mark.verdict.kind == said["kind"]
        assert {limit.resource for limit in mark.verdict.limits} == {
            limit["resource"] for limit in phase["ranking"] if limit["named"]
        }


@pytest.mark.usefixtures("state")
def test_a_judge_says_of_each_phase_what_the_run_says() -> None:
    session = played(0.0, 0.0, range(0))
    engine = Engine(lambda: 0.0)
    for moment in watched():
        if moment[CLIENT].time <= END:
            engine.take(moment)

    assert [(one.phase, one.verdict) for one in engine.phases] == [
        (record.mark.name, record.verdict) for record in session.phases
    ]


@pytest.mark.usefixtures("state")
def test_an_exported_run_has_the_verdicts_of_its_report(tmp_path: Path) -> None:
    session = played(0.0, 0.0, range(0))

    assert CliRunner().invoke(main, ["export", "-o", str(tmp_path / "om"), session.run]).exit_code == 0

    text = (tmp_path / "om").read_text()

    for phase in reported(session.run):
        (limit,) = [limit for limit in phase["ranking"] if limit["named"]]
        series = [line for line in text.splitlines() if line.startswith("pinchpoint_phase_verdict_info")]
        assert any(f'phase="{phase["phase"]}"' in line and f'resource="{limit["resource"]}"' in line for line in series)
