from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from machine import Machine
from pinchpoint.benchmarks import user_helpers
from pinchpoint.benchmarks.detector import Detector
from pinchpoint.benchmarks.helper import Looker
from pinchpoint.benchmarks.nursery import Nursery
from pinchpoint.benchmarks.progress import Progress, new_progress
from pinchpoint.benchmarks.talk import MAX_SAID_BYTES, Ask, Done, Found, Said, ask_in, message
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.benchmarks.user_helpers import (
    IDLE_SECONDS,
    MAX_ANSWER_SECONDS,
    MAX_DYING,
    MAX_HELPERS,
    MAX_HELPERS_PER_USER,
    MAX_RESTART_PAUSE_SECONDS,
    UserHelpers,
)
from pinchpoint.host.confine import User
from pinchpoint.host.users import Subordinates, Users
from pinchpoint.model import Snapshot
from pinchpoint.runs import PhaseMark, RankMark, RunState
from toy import Toy

ALICE, BOB = User(1000, 100), User(1001, 100)
WALL = 1_700_000_000.0


class Helper:
    """A helper that a test moves by hand."""

    def __init__(
        self, number: int, user: User, connection: socket.socket, progress: Progress, machine: Machine
    ) -> None:
        self.number, self.user, self.connection, self.progress = number, user, connection, progress
        self.killed = self.ended = False
        self._looker = Looker(Detector([Toy], watch=None), machine.procfs)
        self._buffer = bytearray()
        connection.setblocking(False)

    def asked(self) -> Ask | None:
        """Return what it was asked."""
        try:
            self._buffer += self.connection.recv(1 << 20)
        except BlockingIOError:
            pass
        return ask_in(self._buffer)

    def answers(self) -> None:
        """Answer as a helper does."""
        if (ask := self.asked()) is not None:
            self.connection.sendall(self._looker.answer(ask))
            self.progress.read(0)

    def end(self) -> None:
        """End it."""
        self.ended = True
        self.connection.close()


class Ward(Nursery):
    """Starts such helpers."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.helpers: list[Helper] = []
        self.lasting = False
        """Whether a file system keeps them from ending."""
        self.gone = False

    def start(self, user: User) -> tuple[int, socket.socket, int]:
        if self.gone:
            raise BrokenPipeError(32, "Broken pipe")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        progress = new_progress()
        self.helpers.append(Helper(len(self.helpers), user, theirs, Progress(progress), self._machine))
        return len(self.helpers) - 1, ours, progress

    def kill(self, number: int) -> None:
        self.helpers[number].killed = True
        if not self.lasting:
            self.helpers[number].end()

    def close(self) -> None:
        for helper in self.helpers:
            helper.end()

    def of(self, user: User) -> Helper:
        """Return the last helper of a user."""
        return [helper for helper in self.helpers if helper.user == user][-1]


class Scene:
    """Some users' toys, and what finds them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ward = Ward(machine)
        self.finder = UserHelpers([Toy], self.ward, Users((), lambda: [Subordinates(1000, 100_000, 65_536)]))
        self.now = 0.0
        self.elsewhere: set[int] = set()
        """Processes that are followed elsewhere."""

    def tree(self) -> Tree:
        """Return the processes that are looked at."""
        tree = self.machine.tree()
        return Tree(tree.procfs, {pid: task for pid, task in tree.processes.items() if pid not in self.elsewhere})

    def runs(self, user: User, pid: int, ppid: int = 1) -> None:
        self.machine.process(pid, "toy", argv=("toy", "write"), start=pid, ppid=ppid)
        ids = "\t".join([str(user.uid)] * 4), "\t".join([str(user.gid)] * 4)
        self.machine.write(f"proc/{pid}/status", f"Name:\ttoy\nUid:\t{ids[0]}\nGid:\t{ids[1]}\nGroups:\t\n")

    def look(self, after: float = 0.5, *, silent: tuple[User, ...] = ()) -> None:
        """Look, have all helpers answer but those of `silent`, and take the answers at another look."""
        self.now += after
        self.finder.look(self.tree(), self.now, WALL + self.now)
        for helper in self.ward.helpers:
            if not helper.ended and not helper.killed and helper.user not in silent:
                helper.answers()
        self.finder.look(self.tree(), self.now, WALL + self.now)
        for helper in self.ward.helpers:
            if not helper.ended and not helper.killed and helper.user not in silent:
                helper.answers()

    def state(self, pid: int) -> RunState:
        (found,) = (run for run in self.finder.followed if run.pid == pid)
        return found.state("r")

    def followed(self) -> dict[int, str]:
        return {run.pid: run.state("r").state for run in self.finder.followed}

    def restarts(self) -> dict[str, float]:
        found = Snapshot.of(0, self.finder.points()).series("pinchpoint_benchmark_helper_restarts_total")
        return {labels["reason"]: value for labels, value in found if value}

    def helpers(self) -> float | None:
        return Snapshot.of(0, self.finder.points()).value("pinchpoint_benchmark_helpers")


@pytest.fixture
def scene(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(user_helpers, "MAX_WAIT_SECONDS", 0.0)
    return Scene(machine)


@pytest.fixture
def both(scene: Scene) -> Scene:
    """Return a scene in which two users' benchmarks are followed."""
    scene.runs(ALICE, 10)
    scene.runs(BOB, 20)
    scene.look()
    assert scene.followed() == {10: "running", 20: "running"}
    return scene


def test_each_user_has_a_helper_that_is_told_of_the_own_processes_only(both: Scene) -> None:
    assert [helper.user for helper in both.ward.helpers] == [ALICE, BOB]
    assert both.helpers() == 2
    both.finder.look(both.machine.tree(), 1.0, WALL)
    for user, pid in ((ALICE, 10), (BOB, 20)):
        ask = both.ward.of(user).asked()
        assert ask is not None
        assert [task.pid for task in ask.tasks] == [pid]


def test_a_benchmark_is_followed_to_its_end_and_forgotten(both: Scene) -> None:
    both.machine.end(10)
    both.look()

    assert both.followed() == {10: "finished", 20: "running"}
    both.finder.forget(WALL + both.now + 1)
    assert both.followed() == {20: "running"}


def test_an_answer_that_comes_late_is_taken_at_a_later_look(both: Scene) -> None:
    both.machine.process(10, "toy", argv=("toy", "read"), start=10)
    both.look(silent=(ALICE,))
    assert [mark.name for mark in both.state(10).phases] == ["write"]

    both.look()
    assert [mark.name for mark in both.state(10).phases] == ["write", "read"]
    assert both.restarts() == {}


def garbage(helper: Helper) -> None:
    helper.connection.sendall(b"\4\0\0\0oops")


def unasked(helper: Helper) -> None:
    helper.connection.sendall(message(Done(99)))


@pytest.mark.parametrize(("fault", "reason"), [(garbage, "invalid"), (unasked, "invalid"), (Helper.end, "ended")])
def test_a_helper_that_fails_is_replaced_and_nobody_else_is_affected(
    both: Scene, fault: Callable[[Helper], None], reason: str
) -> None:
    failing, other = both.ward.helpers
    both.look(silent=(ALICE,))
    fault(failing)
    both.look(silent=(ALICE,))
    assert both.restarts() == {reason: 1}
    assert failing.ended
    assert both.state(10).blind == ["helper"]
    assert both.state(10).phases[0].end is None
    assert both.state(20).blind == []

    both.look(5.0)
    assert both.state(10).blind == []
    assert [(mark.name, mark.start) for mark in both.state(10).phases] == [("write", WALL + 0.5)]
    assert (both.ward.of(ALICE) is not failing, both.ward.of(BOB) is other) == (True, True)
    assert both.followed() == {10: "running", 20: "running"}


def test_a_helper_that_never_stops_talking_is_replaced(both: Scene) -> None:
    both.look(silent=(ALICE,))
    helper = both.ward.of(ALICE)
    for _ in range(10):
        with suppress(OSError):  # it was ended
            helper.connection.sendall(message(Said("x")) * (MAX_SAID_BYTES // 8 // len(message(Said("x")))))
        both.look(silent=(ALICE,))

    assert helper.killed
    assert both.restarts() == {"invalid": 1}


def test_an_answer_that_cannot_be_is_logged(both: Scene, caplog: pytest.LogCaptureFixture) -> None:
    both.look(silent=(ALICE,))
    garbage(both.ward.of(ALICE))
    both.look(silent=(ALICE,))

    assert "the helper of user 1000 invalid: JSON is malformed" in caplog.text


def hang(scene: Scene, user: User, pid: int) -> None:
    """Have a user's helper hang while it reads a process, until it is replaced."""
    scene.look(silent=(user,))
    scene.ward.of(user).progress.read(pid)
    scene.look(MAX_ANSWER_SECONDS, silent=(user,))


def test_a_helper_that_hangs_is_replaced_and_only_what_it_read_is_left_alone(both: Scene) -> None:
    both.runs(ALICE, 11)
    both.look()
    hung = both.ward.of(ALICE)
    hang(both, ALICE, 10)
    assert both.restarts() == {"hung": 1}
    assert hung.killed

    both.look(5.0)
    assert both.ward.of(ALICE) is not hung
    assert {pid: both.state(pid).blind for pid in (10, 11, 20)} == {10: ["hung"], 11: [], 20: []}
    both.finder.look(both.machine.tree(), both.now + 0.5, WALL)
    ask = both.ward.of(ALICE).asked()
    assert ask is not None
    assert [task.pid for task in ask.tasks] == [11]


def test_a_benchmark_whose_files_hang_at_once_is_shown_and_ends(scene: Scene) -> None:
    scene.runs(ALICE, 10)
    hang(scene, ALICE, 10)
    scene.look(5.0)
    assert scene.state(10).blind == ["hung"]
    assert scene.state(10).state == "setup"

    scene.machine.end(10)
    scene.look()
    assert scene.followed() == {10: "finished"}


def test_what_a_helper_reads_when_it_ends_is_left_alone_the_second_time(both: Scene) -> None:
    for blind in ([], ["hung"]):
        both.look(silent=(ALICE,))
        helper = both.ward.of(ALICE)
        helper.progress.read(10)
        helper.end()
        both.look(silent=(ALICE,))
        both.look(5.0)
        assert both.state(10).blind == blind


def test_the_pause_before_a_restart_grows(both: Scene) -> None:
    starts = []
    for _ in range(12):
        both.ward.of(ALICE).end()
        count = len(both.ward.helpers)
        begin = both.now
        while len(both.ward.helpers) == count:
            both.look()
        starts.append(both.now - begin)

    assert starts == sorted(starts)
    assert starts[0] <= 1.5
    assert MAX_RESTART_PAUSE_SECONDS <= starts[-1] <= MAX_RESTART_PAUSE_SECONDS + 1


def test_helpers_that_do_not_end_are_not_replaced_without_end(both: Scene) -> None:
    both.ward.lasting = True
    for _ in range(2 * MAX_DYING):
        hang(both, ALICE, 0)
        both.look(MAX_RESTART_PAUSE_SECONDS)
    stuck = [helper for helper in both.ward.helpers if helper.user == ALICE]
    assert len(stuck) == MAX_DYING

    for helper in stuck:
        helper.end()
    both.look()
    both.look()
    assert both.ward.of(ALICE) not in stuck


def test_helpers_that_do_not_end_count_for_all_subordinate_uids_of_a_user_and_for_all_users(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ward.lasting = True
    for number in range(MAX_DYING):
        user = User(100_000 + number, 100)
        scene.runs(user, 10 + number)
        hang(scene, user, 0)
        scene.machine.end(10 + number)
        scene.look(MAX_RESTART_PAUSE_SECONDS)
    scene.runs(User(100_020, 100), 30)
    scene.look()
    assert len(scene.ward.helpers) == MAX_DYING

    monkeypatch.setattr(user_helpers, "MAX_ALL_DYING", MAX_DYING)
    scene.runs(BOB, 20)
    scene.look()
    assert len(scene.ward.helpers) == MAX_DYING


def test_a_run_whose_leader_goes_while_there_is_no_helper_has_ended(both: Scene) -> None:
    both.ward.gone = True
    for helper in both.ward.helpers:
        helper.end()
    both.look()
    assert both.state(10).blind == both.state(20).blind == ["helper"]

    both.machine.end(10)
    both.look()
    assert both.followed() == {10: "finished", 20: "running"}


def lie(scene: Scene, user: User, pid: int, start: int, kind: str = "toy") -> None:
    """Have a user's helper report a benchmark."""
    scene.finder.look(scene.machine.tree(), scene.now, WALL)
    helper = scene.ward.of(user)
    ask = helper.asked()
    assert ask is not None
    run = RunState("", "toy", 1.0, phases=[PhaseMark("invented", 1.0)])
    helper.connection.sendall(message(Found(pid, start, kind, 1.0, None, run)) + message(Done(ask.number)))
    scene.finder.look(scene.machine.tree(), scene.now, WALL)


def test_a_helper_is_not_believed_about_what_is_above_its_users_benchmark(scene: Scene) -> None:
    scene.runs(BOB, 20)
    scene.runs(ALICE, 10, ppid=20)
    lie(scene, ALICE, 20, 20)

    assert scene.finder.followed == []


@pytest.mark.parametrize(("pid", "start", "kind"), [(20, 20, "toy"), (1, 1, "toy"), (10, 11, "toy"), (10, 10, "fio")])
def test_a_helper_is_believed_about_its_users_benchmarks_only(scene: Scene, pid: int, start: int, kind: str) -> None:
    scene.runs(ALICE, 10)
    scene.runs(BOB, 20)
    lie(scene, ALICE, pid, start, kind)

    assert scene.finder.followed == []
    lie(scene, ALICE, 10, 10)
    assert [run.pid for run in scene.finder.followed] == [10]


def test_a_helper_is_believed_about_the_ranks_of_its_users_processes_only(scene: Scene) -> None:
    scene.runs(ALICE, 10)
    scene.runs(BOB, 20)
    scene.finder.look(scene.tree(), 0.5, WALL)
    ask = scene.ward.of(ALICE).asked()
    assert ask is not None
    said = RankMark(10, 10, 3), RankMark(10, 11, 4), RankMark(20, 20, 5)
    scene.ward.of(ALICE).connection.sendall(message(Done(ask.number, said)))
    scene.finder.look(scene.tree(), 1.0, WALL)

    assert scene.finder.ranks == {(ALICE.uid, 10, 10): 3}
    scene.machine.end(10)
    scene.look()
    scene.look()
    assert scene.finder.ranks == {}


def test_what_is_followed_elsewhere_from_now_on_is_forgotten(both: Scene) -> None:
    both.elsewhere.add(10)
    both.finder.disown({10})
    both.look()

    assert both.followed() == {20: "running"}
    both.machine.end(10)
    both.look()
    assert both.followed() == {20: "running"}


def test_a_helper_without_benchmarks_ends_after_a_while(both: Scene) -> None:
    both.machine.end(10)
    both.look()
    both.look(IDLE_SECONDS - 1)
    assert both.helpers() == 2

    both.look(2.0)
    assert both.helpers() == 1
    assert both.ward.of(ALICE).connection.recv(1) == b""
    assert both.restarts() == {}


def test_helpers_are_bounded_and_those_with_nothing_to_do_give_way(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_HELPERS + 1):
        scene.runs(User(1000 + number, 100), 100 + number)
    scene.look()
    assert scene.helpers() == MAX_HELPERS
    assert len(scene.followed()) == MAX_HELPERS
    assert "more than 16 users run benchmarks" in caplog.text

    scene.machine.end(100)
    scene.look()
    scene.look()
    assert scene.followed()[100 + MAX_HELPERS] == "running"


def test_other_users_cannot_keep_root_from_having_a_helper(scene: Scene) -> None:
    for number in range(MAX_HELPERS):
        scene.runs(User(1000 + number, 100), 100 + number)
    scene.look()
    scene.runs(User(0, 0), 50)
    scene.look()

    assert scene.followed()[50] == "running"


def test_a_user_with_many_groups_has_few_helpers(scene: Scene) -> None:
    for number in range(MAX_HELPERS):
        scene.runs(User(1000, 100 + number), 100 + number)
    scene.look()
    scene.runs(BOB, 50)
    scene.look()

    assert scene.helpers() == MAX_HELPERS_PER_USER + 1
    assert scene.followed()[50] == "running"


def test_a_user_with_many_subordinate_uids_has_few_helpers(scene: Scene) -> None:
    for number in range(MAX_HELPERS):
        scene.runs(User(100_000 + number, 100), 100 + number)
    scene.look()
    scene.runs(BOB, 50)
    scene.look()

    assert scene.helpers() == MAX_HELPERS_PER_USER + 1
    assert scene.followed()[50] == "running"


def test_what_a_helper_says_is_logged_as_its_users(both: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(100):
        both.look(silent=(ALICE,))
        both.ward.of(ALICE).connection.sendall(message(Said("a\x1b[31mb\n")))
        both.look()

    assert caplog.messages[0] == "user 1000: a\ufffd[31mb\ufffd"
    assert len(caplog.messages) == 64
