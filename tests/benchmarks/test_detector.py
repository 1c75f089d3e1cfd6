from __future__ import annotations

import os
from pathlib import Path

import pytest

from machine import Machine, stat_line
from pinchpoint.benchmarks.base import Sight
from pinchpoint.benchmarks.detector import (
    MAX_FOLLOWED,
    MAX_FOLLOWED_EVERYDAY,
    MAX_FOLLOWED_PER_USER,
    MAX_UNREAPED_SECONDS,
    Detector,
    Followed,
    merged,
)
from pinchpoint.benchmarks.events import Ended, Event, PhaseSource, State
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.exitstatus import ExitWatch
from toy import Toy, rate


class Died(ExitWatch):
    """Reports that a process was killed."""

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


def test_commands_of_a_script_with_one_output_each_have_their_own_results(machine: Machine, detector: Detector) -> None:
    output = machine.write("root/out.txt", "")
    for pid, value in ((10, 1), (20, 2)):
        machine.process(pid, "toy", argv=("toy", "write"))
        machine.lives_in(pid, machine.procfs.parent / "root")
        machine.opens(pid, 1, "/out.txt", flags=os.O_WRONLY)
        detector.look(machine.tree(), 0.0, 100.0 + pid)
        output.write_text(output.read_text() + f"end write {value}\n")
        machine.end(pid)
        detector.look(machine.tree(), 1.0, 105.0 + pid)

    assert [[mark.results[0].value for mark in found.timeline.phases] for found in detector.followed] == [[1.0], [2.0]]


def test_the_next_command_of_a_script_may_have_begun_to_print_when_the_first_is_seen_to_end(
    machine: Machine, detector: Detector
) -> None:
    output = machine.write("root/out.txt", "")
    for pid in (10, 20):
        machine.process(pid, "toy", argv=("toy", "toy"))
        machine.lives_in(pid, machine.procfs.parent / "root")
        machine.opens(pid, 1, "/out.txt", flags=os.O_WRONLY)
        detector.look(machine.tree(), 0.0, 100.0 + pid)
        if pid == 10:
            output.write_text("start\nend write 1\ncomplete\nstart\nbegin read\n")
            machine.end(pid)
    output.write_text(output.read_text() + "end read 2\ncomplete\n")
    machine.end(20)
    detector.look(machine.tree(), 1.0, 130.0)

    assert [names(found) for found in detector.followed] == [["write"], ["read"]]
    assert all(found.timeline.state is State.FINISHED for found in detector.followed)


@pytest.mark.parametrize("terminal", ["/dev/pts/7", "pipe:[1]"])
def test_the_output_of_a_launcher_is_that_of_its_ranks(machine: Machine, detector: Detector, terminal: str) -> None:
    output = machine.write("root/out.txt", "")
    machine.process(9, "mpirun")
    machine.opens(9, 1, "/out.txt", flags=os.O_WRONLY)
    machine.process(10, "toy", argv=("toy", "toy"), ppid=9)
    machine.opens(10, 1, terminal)
    for pid in (9, 10):
        machine.lives_in(pid, machine.procfs.parent / "root")
    detector.look(machine.tree(), 0.0, 100.0)
    output.write_text("end write 2\n")
    detector.look(machine.tree(), 1.0, 101.0)

    assert "write" in names(detector.followed[0])


def step(machine: Machine, parent: int) -> None:
    """Put a rank below the slurmstepd of a step."""
    machine.process(9, "slurmstepd", ppid=parent)
    machine.process(10, "toy", argv=("toy", "toy"), ppid=9)
    machine.write("proc/10/environ", b"SLURM_PROCID=0\0SLURM_JOB_ID=4711\0")
    machine.opens(10, 1, "pipe:[1]")


@pytest.mark.parametrize("descriptor", [1, 4], ids=["redirected", "srun -o"])
def test_a_step_of_slurm_prints_into_the_file_of_its_srun_which_is_known_a_moment_later(
    machine: Machine, detector: Detector, descriptor: int
) -> None:
    output = machine.write("root/out.txt", "")
    machine.process(8, "srun")
    machine.opens(8, 1, "/job.txt", flags=os.O_WRONLY)
    machine.opens(8, descriptor, "/out.txt", flags=os.O_WRONLY)
    step(machine, parent=1)
    for pid in (8, 10):
        machine.lives_in(pid, machine.procfs.parent / "root")
    detector.look(machine.tree(), 0.0, 100.0)
    step(machine, parent=8)
    machine.lives_in(10, machine.procfs.parent / "root")
    detector.look(machine.tree(), 0.5, 100.5)
    output.write_text("end write 2\n")
    detector.look(machine.tree(), 1.0, 101.0)

    assert "write" in names(detector.followed[0])
    assert merged(detector.followed, "r", 100.0).blind == []


def test_a_step_whose_srun_is_on_another_host_is_blind_for_its_output(machine: Machine, detector: Detector) -> None:
    step(machine, parent=1)
    detector.look(machine.tree(), 0.0, 100.0)

    assert merged(detector.followed, "r", 100.0).blind == ["output"]


def test_a_benchmark_is_part_of_the_batch_systems_job(machine: Machine, detector: Detector) -> None:
    step(machine, parent=1)
    machine.process(20, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)

    assert {found.pid: found.job for found in detector.followed} == {10: "4711", 20: ""}


def test_what_comes_on_the_commands_output_before_the_process_is_seen_is_not_lost(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    detector.hear(b"end wri", 100.0)
    machine.process(10, "toy", argv=("toy", "toy"))
    detector.look(machine.tree(), 0.0, 100.1)
    detector.hear(b"te 1\n", 100.2)
    detector.end(100.3, State.FINISHED)

    assert names(detector.followed[0]) == ["write"]


def test_a_benchmark_that_was_named_and_never_seen_is_known_by_its_output(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    detector.hear(b"end write 1\n", 100.0, named=detector.kinds(["srun", "toy"]))
    detector.end(101.0, State.FAILED)

    assert names(detector.followed[0]) == ["write"]
    assert detector.followed[0].timeline.state is State.FAILED


def test_of_two_with_one_output_each_result_goes_to_who_waits_for_it(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    machine.process(10, "toy", argv=("toy", "write"))
    machine.process(20, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 0.0, 100.0)
    detector.hear(b"end write 1\nend read 2\n", 101.0)
    detector.end(102.0, State.FINISHED)

    assert [found.timeline.phases[0].results[0].value for found in detector.followed] == [1.0, 2.0]


def test_of_two_that_do_the_same_each_gets_one_of_two_results(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    for pid in (10, 20):
        machine.process(pid, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    detector.hear(b"end write 1\nend write 2\n", 101.0)
    detector.end(102.0, State.FINISHED)

    assert [[mark.results[0].value for mark in found.timeline.phases] for found in detector.followed] == [[1.0], [2.0]]


def test_a_result_that_a_file_of_results_has_told_is_not_given_to_another(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    for pid in (10, 20):
        machine.process(pid, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    first, second = detector.followed
    first.timeline.hear([Ended("write", (rate(1.0),), seconds=1.0)], 101.0, PhaseSource.RESULT_FILE)
    detector.hear(b"end write 1\n", 101.0)

    assert [len(found.timeline.phases) for found in (first, second)] == [1, 1]
    assert second.timeline.awaits("write") == 1


def test_what_is_said_of_whole_runs_counts_only_where_one_prints_at_a_time(machine: Machine) -> None:
    detector = Detector([Toy], watch=None)
    machine.process(10, "toy", argv=("toy", "write"))
    machine.process(20, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    detector.hear(b"complete\nfail cut\n", 101.0)
    assert [found.timeline.complete for found in detector.followed] == [None, None]

    for pid in (10, 20):
        machine.end(pid)
    machine.process(30, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 2.0, 102.0)
    detector.hear(b"complete\n", 103.0)
    assert [found.timeline.complete for found in detector.followed] == [None, None, True]


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


class Bad(Toy):
    """Fails at every call."""

    name = "bad"
    comms = ("bad",)
    broken = ""

    @classmethod
    def leads(cls, tree: Tree, pid: int) -> bool:
        """Fail, or lead."""
        if cls.broken == "leads":
            raise ValueError(cls.broken)
        return True

    def look(self, tree: Tree, leader: int, now: float) -> Sight:
        """Fail, or look."""
        if self.broken == "look":
            raise ValueError(self.broken)
        return super().look(tree, leader, now)

    def last_words(self) -> tuple[Event, ...]:
        """Fail, or say nothing."""
        if self.broken == "last_words":
            raise ValueError(self.broken)
        return ()


@pytest.mark.parametrize("broken", ["leads", "look", "last_words"])
def test_a_benchmark_that_trips_does_no_harm_to_the_others(
    machine: Machine, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Bad, "broken", broken)
    detector = Detector([Bad, Toy], watch=None)
    machine.process(10, "bad", argv=("bad", "write"))
    machine.process(20, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    machine.process(20, "toy", argv=("toy", "read"))
    detector.look(machine.tree(), 1.0, 101.0)
    machine.end(10)
    machine.end(20)
    detector.look(machine.tree(), 2.0, 102.0)

    assert [names(found) for found in detector.followed if found.kind is Toy] == [["write", "read"]]
    assert all(found.ended for found in detector.followed)
    assert caplog.messages == [f"benchmark bad: ValueError: {broken}"]


def zombie(machine: Machine, pid: int, comm: str, status: int = 0) -> None:
    """Add a process that has ended, and whose parent has not reaped it."""
    line = stat_line(pid, comm).replace(b") S ", b") Z ").rsplit(b" ", 1)[0]
    machine.write(f"proc/{pid}/stat", line + b" %d\n" % status)


@pytest.mark.parametrize(("status", "state"), [(0, State.FINISHED), (256, State.FAILED), (9, State.FAILED)])
def test_a_process_that_ended_and_stays_a_zombie_is_over(
    machine: Machine, detector: Detector, status: int, state: State
) -> None:
    machine.process(10, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    zombie(machine, 10, "toy", status)
    detector.look(machine.tree(), 1.0, 101.0)
    detector.look(machine.tree(), 1.0 + MAX_UNREAPED_SECONDS, 101.0 + MAX_UNREAPED_SECONDS)
    detector.look(machine.tree(), 9.0, 109.0)

    assert [found.timeline.state for found in detector.followed] == [state]


def test_a_process_whose_main_thread_alone_has_ended_goes_on(machine: Machine, detector: Detector) -> None:
    machine.process(10, "toy", argv=("toy", "write"), threads={11: "toy"})
    detector.look(machine.tree(), 0.0, 100.0)
    zombie(machine, 10, "toy")
    for second in range(10):
        detector.look(machine.tree(), float(second), 100.0 + second)

    assert [found.ended for found in detector.followed] == [None]


def owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make user 1 own the processes below PID 1000, and user 2 the others."""
    monkeypatch.setattr(Tree, "owner", lambda tree, pid: 1 if pid < 1000 else 2)


def test_one_user_can_not_hide_the_benchmarks_of_another(
    machine: Machine, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners(monkeypatch)
    for pid in range(100, 100 + 2 * MAX_FOLLOWED):
        machine.process(pid, "toy", argv=("toy", "write"))
    machine.process(1000, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)

    assert [found.pid for found in detector.followed if found.owner == 1] == list(
        range(100, 100 + MAX_FOLLOWED_PER_USER)
    )
    assert [found.pid for found in detector.followed if found.owner == 2] == [1000]


def test_a_benchmark_for_which_there_was_no_room_is_followed_when_there_is(
    machine: Machine, detector: Detector
) -> None:
    for pid in range(100, 101 + MAX_FOLLOWED_PER_USER):
        machine.process(pid, "toy", argv=("toy", "write"))
    for second in range(30):
        detector.look(machine.tree(), float(second), 100.0 + second)
    machine.end(100)
    detector.look(machine.tree(), 30.0, 130.0)

    assert detector.followed[-1].pid == 100 + MAX_FOLLOWED_PER_USER


def test_programs_of_every_day_leave_room_for_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tree, "owner", lambda tree, pid: pid)
    monkeypatch.setattr(Bad, "everyday", True)
    for pid in range(100, 100 + 2 * MAX_FOLLOWED):
        machine.process(pid, "bad", argv=("bad", "write"))
    machine.process(1000, "toy", argv=("toy", "write"))
    detector = Detector([Bad, Toy], watch=None)
    detector.look(machine.tree(), 0.0, 100.0)

    assert sum(found.kind is Bad for found in detector.followed) == MAX_FOLLOWED_EVERYDAY
    assert detector.followed[-1].pid == 1000


def test_when_looks_cost_too_much_each_benchmark_has_its_turn(
    machine: Machine, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = iter(range(1000))
    monkeypatch.setattr("pinchpoint.benchmarks.detector.MAX_LOOK_CPU_SECONDS", 1.0)
    monkeypatch.setattr("time.thread_time", lambda: float(next(spent)))
    for pid in (10, 20, 30):
        machine.process(pid, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)

    assert [names(found) for found in detector.followed] == [["write"], [], []]

    detector.look(machine.tree(), 1.0, 101.0)
    detector.look(machine.tree(), 2.0, 102.0)

    assert [names(found) for found in detector.followed] == [["write"]] * 3


def test_of_many_that_end_at_once_what_is_left_is_read_at_the_next_looks(
    machine: Machine, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (10, 20, 30):
        machine.process(pid, "toy", argv=("toy", "write"))
    detector.look(machine.tree(), 0.0, 100.0)
    spent = iter(range(1000))
    monkeypatch.setattr("pinchpoint.benchmarks.detector.MAX_LOOK_CPU_SECONDS", 1.0)
    monkeypatch.setattr("time.thread_time", lambda: float(next(spent)))
    ended = []
    for pid in (10, 20, 30):
        machine.end(pid)
    for second in range(1, 4):
        detector.look(machine.tree(), float(second), 100.0 + second)
        ended.append(sum(found.ended is not None for found in detector.followed))

    assert ended == [1, 2, 3]
