from __future__ import annotations

import re
from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.benchmarks.base import Benchmark
from pinchpoint.benchmarks.events import State
from pinchpoint.benchmarks.pattern import pattern
from pinchpoint.runs import RankMark
from pinchpoint.session import follow
from pinchpoint.session.follow import CommandFollower

RUN = "r"
STAGED = pattern("staged", ["staged"], re.compile(r"stage (\w+)"))


class Stage:
    """A follower with the test's clock and output; its command has no process."""

    def __init__(self, folder: Path, *kinds: type[Benchmark]) -> None:
        self.now = 1000.0
        self.output = folder / "stdout"
        self.warnings: list[str] = []
        self.machine = Machine(folder)
        self.follower = CommandFollower(
            self.output, kinds, procfs=self.machine.procfs, wall=lambda: self.now, warn=self.warnings.append
        )
        self.follower.start(["/opt/staged", "-x"], 1, self.now)

    def names(self) -> list[str]:
        return [mark.name for mark in self.follower.state(RUN, 1000.0).phases]

    def print(self, text: str) -> None:
        with self.output.open("a") as file:
            file.write(text)
        self.now += 1
        self.follower.look()


def test_a_command_that_is_no_benchmark_is_one_phase_and_runs_until_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.print("anything\n")

    assert stage.names() == ["run"]
    assert stage.follower.state(RUN, 1000.0).state == State.RUNNING

    stage.follower.end(1009.0, State.FAILED)
    (whole,) = stage.follower.state(RUN, 1000.0).phases

    assert (whole.start, whole.end, whole.state) == (1000.0, 1009.0, State.FAILED)


def test_the_ranks_of_its_processes_are_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    machine = stage.machine
    machine.process(1, "mpirun", threads={1: "mpirun"})
    machine.process(5, "staged", start=77)
    machine.write("proc/1/task/1/children", "5 ")
    machine.write("proc/5/environ", b"OMPI_COMM_WORLD_RANK=3\0")
    stage.follower.look()

    assert stage.follower.ranks.known == [RankMark(5, 77, 3)]


def test_a_command_whose_output_is_a_benchmarks_has_the_phases_of_that(tmp_path: Path) -> None:
    stage = Stage(tmp_path, STAGED)
    stage.print("stage one\nst")
    stage.print("age two\n")

    assert stage.names() == ["one", "two"]


def test_output_that_nobody_could_read_in_time_is_left_out_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_BACKLOG_BYTES", 1000)
    monkeypatch.setattr(follow, "SUMMARY_BYTES", 100)
    stage = Stage(tmp_path, STAGED)
    stage.print("stage lost\n" + "x" * 1000 + "\nstage last\n")

    assert stage.names() == ["last"]
    assert stage.warnings == ["the command printed more than could be read meanwhile: phases and results may lack"]


def test_the_end_of_the_output_is_read_however_little_time_the_looks_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_OUTPUT_CPU_SECONDS", 0.0)
    stage = Stage(tmp_path, STAGED)
    stage.print("stage one\n")

    assert stage.names() == ["run"]

    stage.follower.end(1009.0, State.FINISHED)

    assert stage.names() == ["one"]


@pytest.mark.parametrize(("ended", "lines"), [(State.FINISHED, 1), (State.FAILED, 0)])
def test_a_benchmark_that_ended_well_without_a_result_is_named(tmp_path: Path, ended: State, lines: int) -> None:
    stage = Stage(tmp_path, STAGED)
    stage.print("stage one\n")
    stage.follower.end(1009.0, ended)

    assert stage.follower.without_results() == [f"no results in the output of staged: {STAGED.hint}"] * lines
