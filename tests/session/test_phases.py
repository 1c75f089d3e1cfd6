from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pinchpoint.diagnosis.window import Window
from pinchpoint.metrics import COST_SAMPLES
from pinchpoint.model import Labels, Snapshot, Snapshots
from pinchpoint.runs import PhaseMark
from pinchpoint.session.phases import PhaseJudge, PhaseRecord
from pinchpoint.session.stacks import saved_stacks
from pinchpoint.wire import recording
from pinchpoint.wire.recording import read_recording
from pinchpoint.wire.sources import SourceError

BUSY = "pinchpoint_resource_busy_seconds_total"
SPENT = "pinchpoint_workload_seconds_total"
PROCESSES = "pinchpoint_workload_processes"
RUN = "r"


class Hosts:
    """A source whose hosts the test sets."""

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
    """A judge of phases with the test's clock, hosts and phases."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.source = Hosts()
        self.path = directory / recording.FILE
        self.warnings: list[str] = []
        self.asked: list[float] = []
        """For how many seconds stacks were asked."""
        self.judge = PhaseJudge(
            directory,
            self.source,
            run=RUN,
            host="here",
            wall=lambda: self.now,
            warn=self.warnings.append,
            stacks=self.stacks,
        )
        self.windows: dict[str, Window] = {}
        """Windows in which phases were judged, by the phase's name; the judge drops their snapshots."""
        judge = self.judge._judge

        def spy(record: PhaseRecord, window: Window, benchmark: str) -> None:
            self.windows[record.mark.name] = window
            judge(record, window, benchmark)

        self.judge._judge = spy  # type: ignore[method-assign]

    def stacks(self, seconds: float) -> dict[str, str]:
        self.asked.append(seconds)
        return {"here": "benchmark of fio;main;memcpy 7\n"}

    def set(self, host: str, busy: float, **workload: float) -> None:
        """Set a host's values: busy seconds of its benchmark, and seconds that a workload spent, by wait."""
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
        """Update while these are the phases of the run."""
        self.judge.update(marks, "fio")
        return self.judge.phases


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def busy(snapshot: Snapshot) -> float | None:
    return snapshot.value(BUSY, resource="benchmark", owner="fio", serves="cpu")


def spent(snapshot: Snapshot, wait: str = "disk") -> float | None:
    return snapshot.value(SPENT, benchmark="fio", run=RUN, wait=wait)


def end(stage: Stage, mark: PhaseMark, seconds: float = 10.0) -> tuple[PhaseRecord, Window]:
    stage.now += seconds
    mark.end = stage.now
    for host, snapshot in stage.source.hosts.items():
        stage.source.hosts[host] = Snapshot(stage.now, snapshot.values)
    (record,) = stage.look(mark)
    return record, stage.windows[mark.name]


def test_a_phase_has_all_hosts_before_and_after_it_and_the_usage_of_this_one(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    stage.set("here", 6.0)
    stage.set("there", 5.5)
    record, window = end(stage, mark)

    assert [busy(window.before[host]) for host in ("here", "there")] == [1.0, 5.0]
    assert [busy(window.after[host]) for host in ("here", "there")] == [6.0, 5.5]
    assert record.usage is not None
    assert [(use.owner, use.busy) for use in record.usage.resources] == [("fio", 0.5)]


def test_every_moment_is_recorded_with_all_hosts(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    end(stage, mark)

    assert [list(moment) for moment in read_recording(stage.path)] == [["here", "there"]] * 2


def test_a_host_that_goes_is_in_the_phase_as_it_was_last_and_named_once(stage: Stage) -> None:
    stage.set("here", 1.0)
    stage.set("there", 5.0)
    mark = stage.begin()
    stage.look(mark)
    stage.now += 2
    stage.set("there", 6.0)
    stage.judge.take()
    del stage.source.hosts["there"]
    stage.source.problems = {"there": "refused"}
    stage.judge.take()
    stage.source.problems = {"there": "no answer for 1.3 s"}
    _, window = end(stage, mark)

    assert busy(window.after["there"]) == 6.0
    assert stage.warnings == ["no samples: there: refused"]


def test_no_source_at_all_is_a_warning_that_names_it(stage: Stage) -> None:
    mark = stage.begin()
    stage.look(mark)
    record, window = end(stage, mark)

    assert stage.warnings == ["no samples: here: refused"]
    assert (record.usage, record.verdict, window.after) == (None, None, {})


def test_what_an_ended_process_used_is_in_the_phase_and_in_the_recording(stage: Stage) -> None:
    stage.set("here", 1.0, disk=1.0)
    mark = stage.begin()
    stage.look(mark)
    stage.now += 2
    stage.set("here", 3.0, disk=4.0)
    stage.judge.take()
    stage.set("here", 0.0)
    _, window = end(stage, mark)

    for found in (window.after["here"], list(read_recording(stage.path))[-1]["here"]):
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
    stage.look(later)
    _, window = end(stage, later)

    assert PROCESSES not in window.after["here"].values
    assert spent(window.after["here"]) == 1.0


def test_who_took_part_in_a_phase_that_goes_on_stays_when_another_one_ends(stage: Stage) -> None:
    stage.set("here", 1.0, disk=1.0)
    whole, part = stage.begin("whole"), stage.begin("part")
    stage.look(whole, part)
    for ended in (part, whole):
        stage.now += 5
        stage.set("here", 0.0)
        ended.end = stage.now
        stage.look(whole, part)

    assert stage.windows["whole"].after["here"].value(PROCESSES, benchmark="fio", run=RUN) == 1.0


def test_a_phase_that_was_told_too_late_is_judged_again_from_the_recording(stage: Stage) -> None:
    for second in range(30):
        stage.set("here", float(second))
        stage.judge.take()
        stage.now += 1
    mark = PhaseMark("write", 1005.2, 1014.9)
    stage.look(mark)
    told_late = stage.windows["write"]
    stage.judge.judge_again("fio")

    assert told_late.moments != (1005.0, 1015.0)
    assert stage.windows["write"].moments == (1005.0, 1015.0)
    assert (busy(stage.windows["write"].before["here"]), busy(stage.windows["write"].after["here"])) == (5.0, 15.0)


def test_a_phase_whose_start_turns_out_to_be_another_is_judged_by_that(stage: Stage) -> None:
    mark = stage.begin()
    stage.set("here", 0.0)
    stage.look(mark)
    for second in range(10):
        stage.now += 1
        stage.set("here", float(second))
        stage.judge.take()
    mark.start += 4
    end(stage, mark, 1.0)
    stage.judge.judge_again("fio")

    assert stage.windows["write"].moments == (1004.0, 1011.0)


def test_snapshots_of_phases_that_are_judged_are_given_up(stage: Stage) -> None:
    stage.set("here", 1.0)
    mark = stage.begin()
    stage.look(mark)
    record, _ = end(stage, mark)

    assert record.window is None
    assert record.usage is not None


@pytest.mark.parametrize(("full", "seconds", "asked"), [(True, 30.0, [30.0]), (False, 30.0, []), (True, 2.0, [])])
def test_stacks_are_saved_for_a_phase_in_which_threads_were_full(
    stage: Stage, tmp_path: Path, full: bool, seconds: float, asked: list[float]
) -> None:
    stage.set("here", 1.0)
    mark = stage.begin()
    stage.look(mark)
    stage.set("here", 6.0)
    if full:
        sampled: dict[str, dict[Labels, float]] = {COST_SAMPLES.name: {(("class", "copying"),): 7.0}}
        stage.source.hosts["here"] = Snapshot(stage.now, {**stage.source.hosts["here"].values, **sampled})
    end(stage, mark, seconds)

    assert stage.asked == asked
    assert [(stack.phase, stack.resource, stack.samples) for stack in saved_stacks(tmp_path)] == [
        ("write", "benchmark of fio", 7) for _ in asked
    ]
