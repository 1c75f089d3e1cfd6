from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from patience import patience
from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.clock import Clock
from pinchpoint.session import store
from pinchpoint.session.session import MAX_LOOK_PAUSE_SECONDS, Session
from pinchpoint.session.store import ClockStep

START = 1_700_000_000.0


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (-3600.0, "the clock of this host was set back by 3600 s: times of this run continue as if it had not been"),
        (
            86_400.0,
            "the clock of this host was set forward by 86400 s, or the host was suspended: "
            "times of this run continue as if it had not been",
        ),
    ],
)
def test_a_wall_clock_that_is_set_is_reported_and_no_phase_is_longer_for_it(
    tmp_path: Path, step: float, words: str
) -> None:
    time = [START, 50.0]
    clock = Clock(lambda: time[0], lambda: time[1])
    directory = tmp_path / "r"
    directory.mkdir()
    session = Session(
        "r", directory, None, RunDirectory(tmp_path / "runs"), host="", kinds=(), tags={}, procfs=tmp_path, clock=clock
    )
    session.start(["sleep", "15"], 1)
    time[:] = [START + 10.0, 60.0]
    session.look()
    time[:] = [START + 10.0 + step, 60.0]
    session.look()
    time[:] = [START + 15.0 + step, 65.0]
    session.look()
    session.finish(0)

    found = store.load(directory)
    (phase,) = found.marker.phases

    assert (phase.start, phase.end) == (START, START + 15.0)
    assert found.steps == [ClockStep(START + 10.0, step)]
    assert found.marker.offset == START - 50.0
    assert session.warnings.count(words) == 1


HANGS = "a look at the command's files hangs: what they hold is not known"


def with_look(directory: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> Session:
    """Start a session whose looks only do this work; one of them has begun."""
    (directory / "r").mkdir()
    session = Session("r", directory / "r", None, RunDirectory(directory / "runs"), host="", kinds=(), tags={})
    began = Event()

    def look() -> None:
        with session._lock:
            began.set()
            work()

    monkeypatch.setattr(session, "look", look)
    session.start(["true"], 1)
    assert began.wait(patience(10))
    return session


def test_a_look_that_works_for_long_on_a_full_host_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        until = time.thread_time() + 1.5 * MAX_LOOK_PAUSE_SECONDS
        while time.thread_time() < until:
            pass

    session = with_look(tmp_path, monkeypatch, work)
    session.finish(0)

    assert HANGS not in session.warnings
    (phase,) = store.load(tmp_path / "r").marker.phases
    assert phase.end is not None


def test_a_look_that_hangs_is_given_up_and_the_run_is_saved_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Event()
    session = with_look(tmp_path, monkeypatch, release.wait)
    session.finish(3)
    release.set()

    assert HANGS in session.warnings
    assert store.load(tmp_path / "r").exit_status == 3
