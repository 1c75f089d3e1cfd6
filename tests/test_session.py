from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pinchpoint import recording, session
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.recording import read_recording
from pinchpoint.runs import PhaseMark, RunDirectory
from pinchpoint.session import PhaseRecord, Session
from pinchpoint.sources import SourceError

BUSY = "pinchpoint_resource_busy_seconds_total"
SPENT = "pinchpoint_workload_seconds_total"
PROCESSES = "pinchpoint_workload_processes"
RUN = "r"


class Hosts:
    """A source whose hosts are set by the test."""

    def __init__(self) -> None:
        self.name = "hosts"
        self.hosts: dict[str, Snapshot] = {}
        self.problems: Mapping[str, str] = {}

    def snapshots(self) -> Snapshots:
        if not self.hosts:
            raise SourceError("here", "refused")
        return dict(self.hosts)

    def close(self) -> None:
        pass


class Stage:
    """A session whose clock, hosts and phases are the test's."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.source = Hosts()
        self.path = directory / recording.FILE
        self.session = Session(
            RUN,
            directory,
            self.source,
            RunDirectory(directory / "markers"),
            host="here",
            kinds=BENCHMARKS,
            tags={},
            wall=lambda: self.now,
        )

    def set(self, host: str, busy: float, **workload: float) -> None:
        """Say what a host has now: seconds that its benchmark was busy, and that a workload spent by wait."""
        values: dict[str, dict[Labels, float]] = {}
        if busy:
            values[BUSY] = {(("owner", "fio"), ("resource", "benchmark"), ("serves", "cpu")): busy}
        if workload:
            labels = (("benchmark", "fio"), ("run", RUN))
            values[SPENT] = {(*labels, ("wait", wait)): value for wait, value in workload.items()}
            values[PROCESSES] = {labels: 1.0}
        self.source.hosts[host] = Snapshot(self.now, values)

    def begin(self, name: str = "write") -> PhaseMark:
        return PhaseMark(name, self.now, vague=True)

    def look(self, *marks: PhaseMark) -> list[PhaseRecord]:
        """Look while these are the phases of the run: the first stands for the whole of a command."""
        self.session._whole = marks[-1]
        known = [record for record in self.session.phases if record.mark is not marks[-1]]
        self.session._update()
        return [*known, *self.session.phases]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def busy(snapshot: Snapshot) -> float | None:
    return snapshot.value(BUSY, resource="benchmark", owner="fio", serves="cpu")


def spent(snapshot: Snapshot, wait: str = "disk") -> float | None:
    return snapshot.value(SPENT, benchmark="fio", run=RUN, wait=wait)


def end(stage: Stage, mark: PhaseMark, seconds: float = 10.0) -> PhaseRecord:
    stage.now += seconds
    mark.end = stage.now
    for host, snapshot in stage.source.hosts.items():
        stage.source.hosts[host] = Snapshot(stage.now, snapshot.values)
    (record,) = stage.look(mark)
    return record


def test_a_phase_has_all_hosts_before_and_after_it_and_the_usage_of_this_one(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    stage.set("here", 6.0)
    stage.set("there", 5.5)
    record = end(stage, mark)

    assert record.before is not None
    assert record.after is not None
    assert [busy(record.before[host]) for host in ("here", "there")] == [1.0, 5.0]
    assert [busy(record.after[host]) for host in ("here", "there")] == [6.0, 5.5]
    assert record.usage is not None
    assert [(use.owner, use.busy) for use in record.usage.resources] == [("fio", 0.5)]


def test_every_moment_is_recorded_with_all_hosts(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    end(stage, mark)

    assert [list(moment) for moment in read_recording(stage.path)] == [["here", "there"]] * 2


def test_a_host_that_comes_in_the_middle_of_a_phase_counts_from_there(stage: Stage) -> None:
    stage.set("here", 1.0)
    mark = stage.begin()
    stage.look(mark)
    stage.now += 2
    stage.set("there", 5.0)
    stage.session._snapshot()
    stage.set("there", 7.0)
    record = end(stage, mark)

    assert record.before is not None
    assert record.after is not None
    assert (busy(record.before["there"]), busy(record.after["there"])) == (5.0, 7.0)


def test_a_host_that_goes_is_in_the_phase_as_it_was_last_and_named_once(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    stage.now += 2
    stage.set("there", 6.0)
    stage.session._snapshot()
    del stage.source.hosts["there"]
    stage.source.problems = {"there": "refused"}
    stage.session._snapshot()
    stage.source.problems = {"there": "no answer for 1.3 s"}
    record = end(stage, mark)

    assert record.after is not None
    assert busy(record.after["there"]) == 6.0
    assert stage.session.warnings == ["no samples: there: refused"]


def test_a_host_that_has_been_silent_for_long_is_not_in_the_next_phase(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    del stage.source.hosts["there"]
    end(stage, mark, 100.0)
    later = stage.begin("read")
    (record,) = (one for one in stage.look(later) if one.mark is later)

    assert record.before is not None
    assert list(record.before) == ["here"]


def test_no_source_at_all_is_a_warning_that_names_it(stage: Stage) -> None:
    mark = stage.begin()
    stage.look(mark)
    record = end(stage, mark)

    assert stage.session.warnings == ["no samples: here: refused"]
    assert record.usage is None
    assert record.after == {}


def test_what_an_ended_process_used_is_in_the_phase_and_in_the_recording(stage: Stage) -> None:
    stage.set("here", 1.0, disk=1.0)
    mark = stage.begin()
    stage.look(mark)
    stage.now += 2
    stage.set("here", 3.0, disk=4.0)
    stage.session._snapshot()
    stage.set("here", 0.0)
    record = end(stage, mark)

    assert record.after is not None
    for found in (record.after["here"], list(read_recording(stage.path))[-1]["here"]):
        assert busy(found) == 3.0
        assert spent(found) == 4.0
        assert found.value(PROCESSES, benchmark="fio", run=RUN) == 1.0


def test_who_took_part_in_a_phase_is_no_part_of_the_next_one(stage: Stage) -> None:
    stage.set("here", 1.0, disk=1.0)
    mark = stage.begin()
    stage.look(mark)
    stage.set("here", 0.0)
    end(stage, mark)
    later = stage.begin("read")
    (record,) = (one for one in stage.look(later) if one.mark is later)

    assert record.before is not None
    assert PROCESSES not in record.before["here"].values
    assert spent(record.before["here"]) == 1.0


def test_snapshots_of_phases_that_are_long_past_are_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "JUDGED_PHASES", 2)
    stage.set("here", 1.0)
    marks = [PhaseMark(str(number), stage.now, vague=True) for number in range(4)]
    stage.session.phases = [PhaseRecord(mark, before={}, after={}, open=False) for mark in marks]
    stage.session._close(PhaseRecord(stage.begin(), before={}))

    assert [record.before is None for record in stage.session.phases] == [True, True, False, False]
