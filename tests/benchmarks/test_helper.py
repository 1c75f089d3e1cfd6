from __future__ import annotations

from machine import Machine
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.detector import Detector
from pinchpoint.benchmarks.events import PhaseSource, State
from pinchpoint.benchmarks.helper import answer
from pinchpoint.benchmarks.talk import MAX_SAID_BYTES, MAX_TOLD_PHASES, Answer, Ask, Done, Found, Task, answers
from pinchpoint.benchmarks.tree import Tree
from toy import Toy


def told(machine: Machine, *foreign: int, syncing: bool = False) -> tuple[Task, ...]:
    """Return all processes; those of `foreign` are not the user's."""
    return tuple(
        Task(pid, task.comm, task.state, task.ppid, task.start, pid not in foreign, syncing)
        for pid, task in machine.tree().processes.items()
    )


def looks(
    machine: Machine, detector: Detector, tasks: tuple[Task, ...], disowned: tuple[int, ...] = ()
) -> list[Answer]:
    *said, last = answers(bytearray(answer(detector, machine.procfs, Ask(7, 1.0, 100.0, tasks, disowned))))
    assert last == Done(7)
    return said


def test_a_benchmark_is_told_while_it_runs_and_once_when_it_has_ended(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    machine.process(20, "toy", argv=("toy", "write"), start=77)

    (found,) = looks(machine, detector, told(machine))
    assert isinstance(found, Found)
    assert (found.pid, found.start, found.kind, found.ended) == (20, 77, "toy", None)
    assert [mark.name for mark in found.run.phases] == ["write"]

    machine.end(20)
    (ended,) = looks(machine, detector, told(machine))
    assert isinstance(ended, Found)
    assert (ended.ended, ended.run.state) == (100.0, State.FINISHED)
    assert looks(machine, detector, told(machine)) == []


def test_a_benchmark_of_another_user_above_it_is_not_followed(machine: Machine) -> None:
    machine.process(20, "toy", argv=("toy", "write"))
    machine.process(21, "sh", ppid=20)
    machine.process(22, "toy", argv=("toy", "read"), ppid=21)

    found = looks(machine, Detector([Toy], watch=None), told(machine, 20))

    assert [one.pid for one in found if isinstance(one, Found)] == [22]


def test_what_is_followed_elsewhere_is_not_told_any_more(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    machine.process(20, "toy", argv=("toy", "write"))

    assert len(looks(machine, detector, told(machine))) == 1
    assert looks(machine, detector, (), (20,)) == []


class Standing(Toy):
    """A toy whose work stands still."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        return Sight(State.RUNNING, "write", PhaseSource.ARGV, work=1.0)


def test_the_exporter_says_whether_a_benchmark_that_stands_still_writes_back(machine: Machine) -> None:
    detector = Detector([Standing], watch=None)
    machine.process(20, "toy")

    for syncing, state in ((True, State.RUNNING), (True, State.SYNCING), (False, State.RUNNING)):
        (found,) = looks(machine, detector, told(machine, syncing=syncing))
        assert isinstance(found, Found)
        assert found.run.state == state


class Many(Toy):
    """A toy with many phases, each with a long name."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        self.number = getattr(self, "number", 0) + 1
        return Sight(State.RUNNING, f"{self.number} {'x' * 5000}", PhaseSource.THREAD)


def test_what_is_said_is_bounded_and_the_newest_phases_stay(machine: Machine) -> None:
    detector = Detector([Many], watch=None)
    machine.process(20, "toy")
    machine.process(21, "toy")
    for _ in range(2 * MAX_TOLD_PHASES):
        said = looks(machine, detector, told(machine))

    assert len(said) == 2
    for found in said:
        assert isinstance(found, Found)
        assert 1 < len(found.run.phases) < MAX_TOLD_PHASES
        assert found.run.phases[-1].name.startswith(f"{2 * MAX_TOLD_PHASES} ")
    ask = Ask(1, 1.0, 1.0, told(machine))
    assert len(answer(detector, machine.procfs, ask)) <= MAX_SAID_BYTES


class Repeats(Toy):
    """A toy that repeats two phases after one that is its own only."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        self.number = getattr(self, "number", -1) + 1
        return Sight(State.RUNNING, f"phase {self.number % 2}" if self.number else "first", PhaseSource.THREAD)


def test_of_a_phase_that_is_repeated_the_last_time_is_told(machine: Machine) -> None:
    detector = Detector([Repeats], watch=None)
    machine.process(20, "toy")
    for _ in range(2 * MAX_TOLD_PHASES):
        (found,) = looks(machine, detector, told(machine))

    assert isinstance(found, Found)
    assert sorted(mark.name for mark in found.run.phases) == ["first", "phase 0", "phase 1"]
