from __future__ import annotations

from pathlib import Path

import pytest

from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.clock import Clock
from pinchpoint.session import store
from pinchpoint.session.session import Session
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
