from __future__ import annotations

import os
from pathlib import Path

import pytest

from machine import Machine
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.detector import Detector, Followed, merged
from pinchpoint.benchmarks.events import State
from pinchpoint.exitstatus import ExitWatch
from toy import Toy


class Died(ExitWatch):
    """Tells that a process was killed."""

    def __init__(self, pid: int) -> None:
        pass

    def close(self) -> int | None:
        """Return the wait status of SIGKILL."""
        return 9


@pytest.fixture
def detector() -> Detector:
    return Detector([Toy], watch=None)


def names(found: Followed) -> list[str]:
    return [mark.name for mark in found.timeline.phases]


def test_a_benchmark_is_followed_from_its_first_look_to_its_end(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    machine.process(10, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 1.0, 101.0)
    machine.end(10)
    detector.look(machine.tree(), 2.0, 102.0)
    (found,) = detector.followed

    assert [(mark.name, mark.start, mark.end) for mark in found.timeline.phases] == [
        ("write", 100.0, 101.0),
        ("read", 101.0, 102.0),
    ]
    assert found.timeline.state is State.FINISHED


def test_only_the_topmost_process_of_a_benchmark_leads(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    machine.process(11, "toy", argv=("toy", "write"), ppid=10)
    machine.process(12, "sh", ppid=11)
    machine.process(13, "toy", argv=("toy", "write"), ppid=12)
    detector.look(machine.tree(), 0.0, 100.0)

    assert [found.pid for found in detector.followed] == [10]


def test_two_at_once_are_two(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    machine.process(20, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 0.0, 100.0)

    assert [names(found) for found in detector.followed] == [["write"], ["read"]]


def test_another_process_with_the_same_pid_is_another_run(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"), start=100)
    detector.look(machine.tree(), 0.0, 100.0)
    machine.process(10, "toy", argv=("toy", "read"), start=900)
    detector.look(machine.tree(), 1.0, 101.0)

    assert [(names(found), found.ended) for found in detector.followed] == [(["write"], 101.0), (["read"], None)]


def test_a_process_that_was_killed_has_failed(machine: Machine) -> None:
    detector = Detector([Toy], watch=Died)
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    machine.end(10)
    detector.look(machine.tree(), 1.0, 101.0)

    assert detector.followed[0].timeline.state is State.FAILED
    assert detector.followed[0].timeline.phases[0].state == "failed"


def test_a_run_began_when_its_process_did(machine: Machine, detector: Detector) -> None:
    machine.uptime(500.0)
    machine.process(10, "toy", argv=("toy", "write"), start=450 * os.sysconf("SC_CLK_TCK"))
    detector.look(machine.tree(), 0.0, 1000.0)

    assert detector.followed[0].began == pytest.approx(950.0)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(os.O_WRONLY, ["old", "write"]), (os.O_WRONLY | os.O_APPEND, ["write"])],
    ids=["emptied for this command", "appended to"],
)
def test_output_that_goes_into_a_file_is_read(
    machine: Machine, detector: Detector, tmp_path: Path, flags: int, expected: list[str]
) -> None:
    output = machine.write("root/out.txt", "end old 1\n")
    machine.process(10, "toy", argv=("toy", "toy"))
    machine.lives_in(10, machine.procfs.parent / "root")
    machine.opens(10, 1, "/out.txt", flags=flags)
    detector.look(machine.tree(), 0.0, 100.0)
    output.write_text(output.read_text() + "end wri")
    detector.look(machine.tree(), 1.0, 101.0)
    output.write_text(output.read_text() + "te 2\n")
    machine.end(10)  # and its /proc/10/root with it
    detector.look(machine.tree(), 2.0, 102.0)

    assert names(detector.followed[0]) == expected


def test_the_output_of_a_launcher_is_that_of_its_ranks(machine: Machine, detector: Detector) -> None:
    output = machine.write("root/out.txt", "")
    machine.process(9, "mpirun")
    machine.opens(9, 1, "/out.txt", flags=os.O_WRONLY)
    machine.process(10, "toy", argv=("toy", "toy"), ppid=9)
    machine.opens(10, 1, "/dev/pts/7")
    for pid in (9, 10):
        machine.lives_in(pid, machine.procfs.parent / "root")
    machine.opens(10, 1, "pipe:[1]")
    detector.look(machine.tree(), 0.0, 100.0)
    output.write_text("end write 2\n")
    detector.look(machine.tree(), 1.0, 101.0)

    assert "write" in names(detector.followed[0])


def test_what_comes_on_the_commands_output_before_the_process_is_seen_is_not_lost(machine: Machine) -> None:
    detector = Detector([Toy], output=True, watch=None)
    detector.hear(b"end wri", 100.0)
    machine.process(10, "toy", argv=("toy", "toy"))
    detector.look(machine.tree(), 0.0, 100.1)
    detector.hear(b"te 1\n", 100.2)
    detector.end(100.3, failed=False)

    assert names(detector.followed[0]) == ["write"]


def test_a_benchmark_that_was_named_and_never_seen_is_known_by_its_output(machine: Machine) -> None:
    detector = Detector([Toy], output=True, watch=None)
    detector.hear(b"end write 1\n", 100.0, named=detector.kinds(["srun", "toy"]))
    detector.end(101.0, failed=True)

    assert names(detector.followed[0]) == ["write"]
    assert detector.followed[0].timeline.state is State.FAILED


def test_of_two_with_one_output_each_result_goes_to_who_waits_for_it(machine: Machine) -> None:
    detector = Detector([Toy], output=True, watch=None)
    machine.process(10, "toy", argv=("toy", "write"))
    machine.process(20, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 0.0, 100.0)
    detector.hear(b"end write 1\nend read 2\n", 101.0)
    detector.end(102.0, failed=False)

    assert [found.timeline.phases[0].results[0].value for found in detector.followed] == [1.0, 2.0]


def test_a_run_of_several_benchmarks_has_the_phases_of_all(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    machine.end(10)
    machine.process(20, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 1.0, 101.0)
    state = merged(detector.followed, "r", 99.0)

    assert [(mark.name, mark.benchmark) for mark in state.phases] == [("write", "toy"), ("read", "toy")]
    assert (state.benchmark, state.state) == ("toy", "running")


def test_a_process_that_decides_late_is_asked_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector([Toy], watch=None)
    answers = iter([False, True])
    monkeypatch.setattr(Toy, "leads", classmethod(lambda cls, tree, pid: next(answers)))
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    detector.look(machine.tree(), 1.0, 101.0)

    assert [found.pid for found in detector.followed] == [10]


def test_a_rank_does_not_lead_when_the_first_one_has_ended(
    machine: Machine, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Toy, "leads", classmethod(lambda cls, tree, pid: pid == min(tree.children(9))))
    machine.process(9, "mpirun")
    for pid in (10, 11):
        machine.process(pid, "toy", argv=("toy", "write"), ppid=9)
    detector.look(machine.tree(), 0.0, 100.0)
    machine.end(10)
    detector.look(machine.tree(), 1.0, 101.0)

    assert [found.pid for found in detector.followed] == [10]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of fsync is another one")
def test_a_phase_that_waits_for_its_own_fsync_is_syncing(
    machine: Machine, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = iter([1.0, 2.0, 2.0])
    monkeypatch.setattr(Toy, "look", lambda *_: Sight(State.RUNNING, "write", work=next(work)))
    machine.process(10, "toy")
    machine.write("proc/10/syscall", "74 0x5\n")
    states = []
    for now in (0.0, 1.0, 2.0):
        detector.look(machine.tree(), now, 100.0 + now)
        states.append(detector.followed[0].timeline.state)

    assert states == [State.RUNNING, State.RUNNING, State.SYNCING]


def test_a_benchmark_that_vanishes_between_list_and_look_is_no_failure(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    tree = machine.tree()
    machine.end(10)
    detector.look(tree, 0.0, 100.0)
    detector.look(machine.tree(), 1.0, 101.0)

    assert [found.ended for found in detector.followed] == [101.0]


def test_ended_runs_are_forgotten(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    machine.end(10)
    detector.look(machine.tree(), 1.0, 101.0)
    detector.forget(101.5)

    assert detector.followed == []
