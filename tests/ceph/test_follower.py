from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as threads
from types import SimpleNamespace

import pytest

from daemon_socket import DaemonSocket, framed
from machine import Machine, stat_line
from patience import patience
from pinchpoint.ceph import follower as module
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.follower import DaemonReader, Follower, Followers
from pinchpoint.ceph.sockets import AdminSocket
from pinchpoint.host.procfs import FormatError
from pinchpoint.model import Metric, Point, Snapshot
from pinchpoint.threads.processes import Process
from polling import until

PID = os.getpid()
"""Of the listening process in these tests."""
SEEN = Metric("seen", "Rounds.", labels=("daemon",))
ANSWERS = {"version": {"version": "16.2.15"}, "config get fsid": {"fsid": "aaaaaaaa-1"}, "perf dump": {"mds": {}}}


class Rounds(DaemonReader):
    questions = (Question("perf dump"), Question("config get", "slow", every=60))

    def __init__(self) -> None:
        self.taken: list[dict[str, bytes]] = []

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        self.taken.append(dict(answers))
        if answers.get("perf dump") == b"broken":
            raise FormatError("not JSON")

    def points(self, daemon: str) -> Iterator[Point]:
        yield SEEN.point(len(self.taken), daemon)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(module, "STUCK_AFTER_SECONDS", 0.2)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonSocket]:
    with DaemonSocket(tmp_path / "ceph-mds.a.asok", ANSWERS) as listening:
        yield listening


def follow(machine: Machine, path: Path) -> tuple[Follower, Rounds]:
    machine.process(PID, "ceph-mds")
    reader = Rounds()
    process = Process(PID, 100, "ceph-mds", "ceph-mds", "mds.a")
    return Follower(machine.procfs, process, AdminSocket(Path("/"), str(path), Path("/")), reader), reader


def step(follower: Follower, patience: float = 30.0) -> None:
    """Take a step with unlimited time."""
    module.ROUND_TIMEOUT_SECONDS, before = patience, module.ROUND_TIMEOUT_SECONDS
    try:
        follower.step(time.monotonic())
    finally:
        module.ROUND_TIMEOUT_SECONDS = before


def test_each_question_is_asked_at_its_own_pace(machine: Machine, daemon: DaemonSocket) -> None:
    follower, reader = follow(machine, daemon.path)
    now = time.monotonic()
    module.ROUND_TIMEOUT_SECONDS = 1000.0
    for second in range(3):
        follower.step(now + second)

    assert [sorted(taken) for taken in reader.taken] == [["config get fsid", "perf dump", "version"]] + [
        ["perf dump"]
    ] * 2
    assert len([asked for asked in daemon.asked if asked.get("var") == "slow"]) == 1, (
        "a release without it is not a failure"
    )
    assert (follower.problem, follower.version, follower.cluster) == ("", "16.2.15", "aaaaaaaa-1")


def test_a_silent_daemon_is_waited_for_on_one_connection_and_speaks_again_when_it_can(
    machine: Machine, daemon: DaemonSocket
) -> None:
    follower, reader = follow(machine, daemon.path)
    daemon.freeze()
    for _ in range(10):
        follower.step(time.monotonic())
    assert (follower.problem, reader.taken) == ("silent", [])

    daemon.thaw()
    step(follower)

    assert follower.problem == ""
    assert [asked["prefix"] for asked in daemon.asked].count("perf dump") == 2, "one waited for, one of now"


def test_a_silent_daemon_whose_threads_do_not_run_is_stuck_and_one_that_computes_is_not(
    machine: Machine, daemon: DaemonSocket
) -> None:
    follower, _ = follow(machine, daemon.path)
    daemon.freeze()
    now = time.monotonic()
    follower.step(now)
    assert not follower.stuck
    machine.ran(PID, PID, 1.0)
    follower.step(now + 0.3)
    assert not follower.stuck
    follower.step(now + 0.6)
    assert follower.stuck

    daemon.thaw()
    step(follower)
    assert (follower.problem, follower.stuck) == ("", False)


def test_a_stopped_process_is_stuck_and_not_even_asked(machine: Machine, daemon: DaemonSocket) -> None:
    follower, _ = follow(machine, daemon.path)
    machine.write(f"proc/{PID}/stat", stat_line(PID, "ceph-mds").replace(b") S", b") T"))

    follower.step(time.monotonic())

    assert (follower.problem, follower.stuck, daemon.asked) == ("stopped", True, [])


@pytest.mark.parametrize(
    ("answer", "problem"), [(b"broken", "malformed"), (lambda connection: None, "refused")], ids=["broken", "hangs up"]
)
def test_a_bad_answer_makes_its_daemon_blind_until_a_good_one_comes(
    machine: Machine, daemon: DaemonSocket, answer: bytes, problem: str
) -> None:
    follower, _ = follow(machine, daemon.path)
    good, daemon.answers["perf dump"] = daemon.answers["perf dump"], answer
    step(follower)
    assert (follower.problem, follower.stuck) == (problem, False)
    daemon.answers["perf dump"] = good
    step(follower)
    assert follower.problem == ""


def test_a_failure_is_logged_once_and_names_the_daemon(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    follower, _ = follow(machine, tmp_path / "none.asok")
    for _ in range(3):
        step(follower)

    (record,) = caplog.records
    assert record.getMessage().startswith(f"mds.a: admin socket {tmp_path / 'none.asok'}: ")


def test_a_reader_that_fails_blinds_its_own_daemon_and_goes_on(machine: Machine, daemon: DaemonSocket) -> None:
    follower, reader = follow(machine, daemon.path)

    def fail(now: float, answers: Mapping[str, bytes]) -> None:
        raise RuntimeError("a bug")

    reader.take = fail  # type: ignore[method-assign]
    step(follower)
    assert follower.problem == "malformed"


def test_an_answer_that_came_is_not_lost_when_a_later_one_does_not(
    machine: Machine, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, reader = follow(machine, daemon.path)
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 1.0)
    version = daemon.answers["version"]
    daemon.answers |= {"config get slow": b"{}", "version": lambda connection: daemon.hang()}
    now = time.monotonic()
    follower.step(now)
    assert follower.problem == "silent"

    daemon.answers["version"] = version
    daemon.thaw()
    module.ROUND_TIMEOUT_SECONDS = 1000.0
    follower.step(now + 1)
    follower.step(now + 2)
    assert follower.problem == ""
    assert "config get slow" in reader.taken[0]
    assert [asked.get("var") for asked in daemon.asked].count("slow") == 1


def test_a_daemon_that_is_slow_is_asked_less_and_is_not_blind(
    machine: Machine, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, reader = follow(machine, daemon.path)
    clock = [0.0]

    def late(connection: socket.socket) -> None:
        clock[0] += 15.0
        connection.sendall(framed(b"{}"))

    daemon.answers |= {"perf dump": late, "config get slow": late}
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 28.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    follower.step(0.0)
    assert follower.problem == ""
    assert [sorted(taken) for taken in reader.taken] == [["perf dump"]]


def test_a_question_that_is_answered_late_by_an_error_is_no_problem(machine: Machine, daemon: DaemonSocket) -> None:
    follower, _ = follow(machine, daemon.path)
    del daemon.answers["perf dump"]
    daemon.freeze()
    follower.step(time.monotonic())
    daemon.thaw()
    step(follower)

    assert follower.problem == ""


def test_nothing_is_logged_of_a_process_that_has_ended(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    follower, _ = follow(machine, tmp_path / "none.asok")
    machine.write(f"proc/{PID}/stat", stat_line(PID, "ceph-mds").replace(b") S", b") Z"))
    step(follower)
    assert follower.problem == "ended"
    machine.process(PID, "another", start=200)
    step(follower)
    assert follower.problem == "ended"
    machine.end(PID)
    step(follower)
    assert follower.problem == "ended"
    assert not caplog.records


def test_where_the_kernel_does_not_count_cpu_time_nothing_is_called_stuck(
    machine: Machine, daemon: DaemonSocket
) -> None:
    follower, _ = follow(machine, daemon.path)
    (machine.procfs / f"{PID}/task/{PID}/schedstat").unlink()
    daemon.freeze()
    now = time.monotonic()
    for later in (0.0, 0.3, 0.6):
        follower.step(now + later)

    assert (follower.problem, follower.stuck) == ("silent", False)


def test_a_socket_of_another_process_is_seldom_tried_again(machine: Machine, daemon: DaemonSocket) -> None:
    follower, reader = follow(machine, daemon.path)
    step(follower)
    assert follower.pause() == reader.interval

    follower, _ = follow(machine, daemon.path)
    follower.process = Process(1, 100, "ceph-mds", "ceph-mds", "mds.b")
    machine.process(1, "ceph-mds")
    step(follower)
    assert follower.problem == "foreign"
    assert follower.pause() == module.FOREIGN_INTERVAL_SECONDS


def test_a_daemon_cannot_make_labels_of_any_length(machine: Machine, daemon: DaemonSocket) -> None:
    follower, _ = follow(machine, daemon.path)
    long = b"1" * 9999
    daemon.answers |= {"version": b'{"version":"%s"}' % long, "config get fsid": b'{"fsid":"%s"}' % long}
    step(follower)

    assert len(follower.version) == len(follower.cluster) == module.MAX_TEXT_CHARACTERS


def listening(machine: Machine, daemon: DaemonSocket, pid: int = PID, owner: str = "a", comm: str = "ceph-mds") -> None:
    machine.process(pid, comm, argv=(comm, "-i", owner), threads={pid + 1: "msgr-worker-0"})
    inode = 7
    machine.write(f"proc/{pid}/net/unix", f"head\n0: 2 0 00010000 0001 01 {inode} {daemon.path}\n")
    (machine.procfs / str(pid) / "fd").mkdir(exist_ok=True)
    (machine.procfs / str(pid) / "fd/3").symlink_to(f"socket:[{inode}]")
    (machine.procfs / str(pid) / "root").symlink_to("/")


@pytest.fixture
def followers(machine: Machine) -> Iterator[Followers]:
    found = Followers(machine.procfs, machine.procfs.parent, machine.host().processes, {"ceph-mds"}, Rounds)
    yield found
    found.close()


def values(followers: Followers) -> Snapshot:
    return Snapshot.of(0.0, followers.points())


def test_a_daemon_is_followed_from_its_start_to_its_end(
    machine: Machine, followers: Followers, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    listening(machine, daemon)

    assert followers.refresh(0.0) == 1
    assert until(30, lambda: values(followers).value("pinchpoint_ceph_socket_up", daemon="mds.a"))
    found = values(followers)
    assert found.value("seen", daemon="mds.a")
    assert found.value("pinchpoint_ceph_daemon_stuck", daemon="mds.a") == 0
    assert found.value("pinchpoint_ceph_daemon_info", daemon="mds.a", cluster="aaaaaaaa-1", version="16.2.15") == 1

    machine.end(PID)
    assert followers.refresh(10.0) == 0
    assert list(followers.points()) == []
    assert until(30, lambda: not [thread for thread in threads() if thread.name == "ceph-asker"])


def test_whoever_waits_for_the_first_round_waits_no_longer_than_asked(
    machine: Machine, followers: Followers, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    daemon.freeze()
    listening(machine, daemon)
    followers.refresh(0.0)

    followers.settle(0.01)
    assert not values(followers).values
    daemon.thaw()
    followers.settle(patience(30.0))
    assert values(followers).value("pinchpoint_ceph_socket_up", daemon="mds.a") == 1


def test_a_blind_daemon_has_no_series_but_those_that_say_so(
    machine: Machine, followers: Followers, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.freeze()
    listening(machine, daemon)
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 1.0)
    followers.refresh(0.0)
    assert not values(followers).values, "the first requests are not answered yet"
    assert until(30, lambda: values(followers).values)

    found = values(followers)
    assert found.value("pinchpoint_ceph_socket_up", daemon="mds.a") == 0
    assert found.value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="silent") == 1
    assert "seen" not in found.values


def test_a_daemon_without_a_socket_is_blind_and_looked_at_again(
    machine: Machine, followers: Followers, daemon: DaemonSocket
) -> None:
    machine.process(PID, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    followers.refresh(0.0)
    assert not values(followers).values, "it may not have opened one yet"
    followers.refresh(1.0)
    assert values(followers).value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="missing") == 1

    listening(machine, daemon)
    followers.refresh(1.4)
    assert not next(iter(followers))[1]
    followers.refresh(1.5)
    assert next(iter(followers))[1]


def test_two_daemons_of_one_name_are_never_the_same_series_twice(machine: Machine, followers: Followers) -> None:
    for pid in (10, 11):
        machine.process(pid, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    followers.refresh(0.0)
    followers.refresh(1.0)

    series = [(point.metric.name, point.labels) for point in followers.points()]
    assert len(series) == len(set(series)) == 3


def test_of_two_daemons_of_one_name_the_one_that_is_stuck_is_shown_before_one_without_a_socket(
    machine: Machine, followers: Followers
) -> None:
    machine.process(10, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    machine.process(11, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    machine.write("proc/11/stat", stat_line(11, "ceph-mds").replace(b") S", b") T"))
    followers.refresh(0.0)
    followers.refresh(1.0)

    assert [value for _, value in values(followers).series("pinchpoint_ceph_daemon_stuck")] == [1.0]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[DaemonSocket]:
    with DaemonSocket(tmp_path / "ceph-mds.b.asok", ANSWERS) as listening:
        yield listening


def up(followers: Followers) -> dict[str, float]:
    return {labels["daemon"]: value for labels, value in values(followers).series("pinchpoint_ceph_socket_up")}


def test_of_two_sockets_the_one_that_answers_is_shown(
    machine: Machine,
    followers: Followers,
    daemon: DaemonSocket,
    other: DaemonSocket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon.freeze()
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 1.0)
    listening(machine, daemon)
    machine.write(f"proc/{PID}/net/unix", f"0: 2 0 00010000 1 1 7 {daemon.path}\n0: 2 0 00010000 1 1 8 {other.path}\n")
    (machine.procfs / str(PID) / "fd/4").symlink_to("socket:[8]")
    followers.refresh(0.0)

    assert until(30, lambda: [follower.problem for follower in next(iter(followers))[1]] == ["silent", ""])
    assert up(followers) == {"mds.a": 1}
    assert len(list(followers.readers())) == 1


def test_a_daemon_that_was_started_anew_is_shown_although_its_predecessor_is_not_reaped(
    machine: Machine, followers: Followers, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    machine.process(2, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    for now in (0.0, 1.0):
        followers.refresh(now)
    assert up(followers) == {"mds.a": 0}
    machine.write("proc/2/stat", stat_line(2, "ceph-mds").replace(b") S", b") Z"))
    followers.refresh(2.0)
    assert up(followers) == {}
    listening(machine, daemon)
    followers.refresh(3.0)

    assert until(30, lambda: up(followers) == {"mds.a": 1})


def test_more_sockets_than_can_be_followed_make_their_processes_blind_and_those_of_others_do_not_count(
    machine: Machine,
    followers: Followers,
    daemon: DaemonSocket,
    other: DaemonSocket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    monkeypatch.setattr(module, "MAX_SOCKETS", 0)
    listening(machine, other, pid=2, owner="b")
    listening(machine, daemon)
    followers.refresh(0.0)
    assert values(followers).value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="too_many") == 1

    monkeypatch.setattr(module, "MAX_SOCKETS", 1)
    followers.refresh(10.0)
    assert until(30, lambda: "foreign" in [f.problem for _, several in followers for f in several])
    followers.refresh(20.0)
    assert until(30, lambda: up(followers) == {"mds.b": 0, "mds.a": 1})


def test_processes_that_anybody_may_start_take_little_time_to_look_at_however_many_there_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    spent = [0.0]

    def costly(tables: object, procfs: Path, rootfs: Path, process: Process, now: float) -> list[AdminSocket]:
        looked.append(process.pid)
        spent[0] += 0.6 * module.MAX_LOOK_SECONDS
        return []

    monkeypatch.setattr(module, "admin_sockets", costly)
    monkeypatch.setattr("pinchpoint.ceph.follower.time.thread_time", lambda: spent[0])
    machine.process(5, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    for pid in range(10, 30):
        machine.process(pid, "rbd", uid=1000)
    everybody = Followers(
        machine.procfs, machine.procfs.parent, machine.host().processes, ["ceph-mds", "ceph-client"], Rounds
    )

    everybody.refresh(100.0)
    assert looked[0] == 5
    assert len(looked) == 3
    everybody.refresh(100.6)
    assert looked[3:] == [5], "a daemon does not wait"
    everybody.refresh(100.0 + 2 * module.LOOK_TIMES * module.MAX_LOOK_SECONDS)
    assert len(set(looked)) == 5, "and the others have their turn"
    everybody.close()


def test_the_sockets_of_daemons_are_followed_however_many_others_are(
    machine: Machine, daemon: DaemonSocket, other: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SOCKETS", 1)
    classes = {"ceph-mds", "ceph-client"}
    with closing(
        Followers(machine.procfs, machine.procfs.parent, machine.host().processes, classes, Rounds)
    ) as followers:
        listening(machine, other, comm="rados")
        followers.refresh(0.0)
        listening(machine, other, 2, comm="rados")
        listening(machine, daemon, 3)
        followers.refresh(1.0)

        followed = [process.owner for process, sockets in followers for _ in sockets]
        assert sorted(followed) == ["mds.a", "rados"]


def test_a_socket_on_a_file_system_that_hangs_blinds_nobody_but_its_process(
    machine: Machine, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    hanging, resolve = Event(), AdminSocket.resolve
    monkeypatch.setattr(
        AdminSocket, "resolve", lambda self: hanging.wait(60) and self if "10/root" in str(self.root) else resolve(self)
    )
    followers = Followers(machine.procfs, machine.procfs.parent, machine.host().processes, {"ceph-mds"}, Rounds)
    listening(machine, daemon, 10, "hung")
    listening(machine, daemon, PID, "a")

    with closing(followers):
        assert followers.refresh(0.0) == 2, "looking for sockets asks no file system of a user"
        assert until(30, lambda: followers.refresh(0.0) and values(followers).value("seen", daemon="mds.a"))
        assert until(
            30,
            lambda: (
                followers.refresh(0.0)
                and values(followers).value("pinchpoint_ceph_socket_problem_info", daemon="mds.hung", reason="silent")
            ),
        )
        hanging.set()


def test_a_process_whose_sockets_may_not_be_seen_says_so(
    machine: Machine, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> list[Path]:
        raise PermissionError

    monkeypatch.setattr(module, "admin_sockets", denied)
    machine.process(PID, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    followers.refresh(0.0)

    assert values(followers).value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="denied") == 1


def test_a_host_that_has_no_thread_left_gives_one_later(
    machine: Machine, followers: Followers, daemon: DaemonSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening(machine, daemon)
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError):
            followers.refresh(0.0)
    monkeypatch.setattr(module, "ROUND_TIMEOUT_SECONDS", 30.0)
    followers.refresh(1.0)

    assert until(30, lambda: up(followers) == {"mds.a": 1})


def test_a_follower_that_is_let_go_while_it_waits_ends_and_hangs_up(
    machine: Machine, followers: Followers, daemon: DaemonSocket
) -> None:
    daemon.freeze()
    listening(machine, daemon)
    followers.refresh(0.0)
    ((_, (follower,)),) = followers
    assert until(30, lambda: follower.problem == "silent")

    followers.close()
    assert until(30, lambda: not [thread for thread in threads() if thread.name == "ceph-asker"])
    assert follower._waiting is None
