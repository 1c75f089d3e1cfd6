from __future__ import annotations

from machine import Machine
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.detector import Detector
from pinchpoint.benchmarks.events import PhaseSource, State
from pinchpoint.benchmarks.helper import Looker
from pinchpoint.benchmarks.talk import MAX_SAID_BYTES, MAX_TOLD_PHASES, Answer, Ask, Done, Found, Task, answers
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.runs import RankMark
from toy import Toy


def told(machine: Machine, *foreign: int, syncing: bool = False) -> tuple[Task, ...]:
    """Return all processes; those of `foreign` are not the user's."""
    return tuple(
        Task(pid, task.comm, task.state, task.ppid, task.start, pid not in foreign, syncing)
        for pid, task in machine.tree().processes.items()
    )


def looks(looker: Looker, tasks: tuple[Task, ...], disowned: tuple[int, ...] = ()) -> list[Answer]:
    *said, last = answers(bytearray(looker.answer(Ask(7, 1.0, 100.0, tasks, disowned))))
    assert last == Done(7)
    return said


def test_a_benchmark_is_told_while_it_runs_and_once_when_it_has_ended(machine: Machine) -> None:
    looker = Looker(Detector([Toy], watch=None), machine.procfs)
    machine.process(20, "toy", argv=("toy", "write"), start=77)

    (found,) = looks(looker, told(machine))
    assert isinstance(found, Found)
    assert (found.pid, found.start, found.kind, found.ended) == (20, 77, "toy", None)
    assert [mark.name for mark in found.run.phases] == ["write"]

    machine.end(20)
    (ended,) = looks(looker, told(machine))
    assert isinstance(ended, Found)
    assert (ended.ended, ended.run.state) == (100.0, State.FINISHED)
    assert looks(looker, told(machine)) == []


def test_a_benchmark_of_another_user_above_it_is_not_followed(machine: Machine) -> None:
    machine.process(20, "toy", argv=("toy", "write"))
    machine.process(21, "sh", ppid=20)
    machine.process(22, "toy", argv=("toy", "read"), ppid=21)

    found = looks(Looker(Detector([Toy], watch=None), machine.procfs), told(machine, 20))

    assert [one.pid for one in found if isinstance(one, Found)] == [22]


def test_the_rank_of_each_benchmark_of_the_user_is_told_once(machine: Machine) -> None:
    read: list[int] = []
    looker = Looker(Detector([Toy], watch=None), machine.procfs, read.append)
    machine.process(19, "sh")
    machine.process(18, "toy")
    for pid in (20, 21):
        machine.process(pid, "toy", argv=("toy", "write"), ppid=19, start=pid)
    for pid in (18, 19, 20, 21):
        machine.write(f"proc/{pid}/environ", b"HOME=/\0PMIX_RANK=%d\0" % (pid - 18))

    def ranks() -> list[RankMark]:
        *_, last = answers(bytearray(looker.answer(Ask(7, 1.0, 100.0, told(machine, 18)))))
        assert isinstance(last, Done)
        return sorted(last.ranks, key=lambda mark: mark.pid)

    assert ranks() == [RankMark(20, 20, 2), RankMark(21, 21, 3)]
    assert sorted(read) == [20, 21], "which one hangs, if reading does, is said before it is read"
    machine.write("proc/20/environ", b"PMIX_RANK=9\0")
    assert ranks() == []
    machine.process(20, "toy", argv=("toy", "write"), ppid=19, start=500)
    machine.write("proc/20/environ", b"PMIX_RANK=9\0")
    assert ranks() == [RankMark(20, 500, 9)], "another process with that pid"


def test_what_is_followed_elsewhere_is_not_told_any_more(machine: Machine) -> None:
    looker = Looker(Detector([Toy], watch=None), machine.procfs)
    machine.process(20, "toy", argv=("toy", "write"))

    assert len(looks(looker, told(machine))) == 1
    assert looks(looker, (), (20,)) == []


class Standing(Toy):
    """A toy whose work stands still."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        return Sight(State.RUNNING, "write", PhaseSource.ARGV, work=1.0)


def test_the_exporter_says_whether_a_benchmark_that_stands_still_writes_back(machine: Machine) -> None:
    looker = Looker(Detector([Standing], watch=None), machine.procfs)
    machine.process(20, "toy")

    for syncing, state in ((True, State.RUNNING), (True, State.SYNCING), (False, State.RUNNING)):
        (found,) = looks(looker, told(machine, syncing=syncing))
        assert isinstance(found, Found)
        assert found.run.state == state


class Many(Toy):
    """A toy with many phases, each with a long name."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        self.number = getattr(self, "number", 0) + 1
        return Sight(State.RUNNING, f"{self.number} {'x' * 5000}", PhaseSource.THREAD)


def test_what_is_said_is_bounded_and_the_newest_phases_stay(machine: Machine) -> None:
    looker = Looker(Detector([Many], watch=None), machine.procfs)
    machine.process(20, "toy")
    machine.process(21, "toy")
    for _ in range(2 * MAX_TOLD_PHASES):
        said = looks(looker, told(machine))

    assert len(said) == 2
    for found in said:
        assert isinstance(found, Found)
        assert 1 < len(found.run.phases) < MAX_TOLD_PHASES
        assert found.run.phases[-1].name.startswith(f"{2 * MAX_TOLD_PHASES} ")
    ask = Ask(1, 1.0, 1.0, told(machine))
    assert len(looker.answer(ask)) <= MAX_SAID_BYTES


class Repeats(Toy):
    """A toy that repeats two phases after one that is its own only."""

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        self.number = getattr(self, "number", -1) + 1
        return Sight(State.RUNNING, f"phase {self.number % 2}" if self.number else "first", PhaseSource.THREAD)


def test_of_a_phase_that_is_repeated_the_last_time_is_told(machine: Machine) -> None:
    looker = Looker(Detector([Repeats], watch=None), machine.procfs)
    machine.process(20, "toy")
    for _ in range(2 * MAX_TOLD_PHASES):
        (found,) = looks(looker, told(machine))

    assert isinstance(found, Found)
    assert sorted(mark.name for mark in found.run.phases) == ["first", "phase 0", "phase 1"]
