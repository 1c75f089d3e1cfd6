from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from threading import enumerate as threads

import pytest

from daemon_socket import DaemonSocket
from machine import Machine, stat_line
from pinchpoint.ceph import follower as module
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.follower import Follower, Followers, Reader
from pinchpoint.model import Metric, Point, Snapshot
from pinchpoint.processes import Process
from pinchpoint.procfs import FormatError
from polling import until

PID = os.getpid()
"""Of whoever listens in these tests."""
SEEN = Metric("seen", "Rounds.", labels=("daemon",))
ANSWERS = {"version": {"version": "16.2.15"}, "config get fsid": {"fsid": "aaaaaaaa-1"}, "perf dump": {"mds": {}}}


class Rounds(Reader):
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
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    monkeypatch.setattr(module, "STILL", 2.0)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonSocket]:
    with DaemonSocket(tmp_path / "ceph-mds.a.asok", ANSWERS) as listening:
        yield listening


def follow(machine: Machine, path: Path) -> tuple[Follower, Rounds]:
    machine.process(PID, "ceph-mds")
    reader = Rounds()
    process = Process(PID, 100, "ceph-mds", "ceph-mds", "mds.a")
    return Follower(machine.procfs, process, path, reader), reader


def step(follower: Follower, patience: float = 30.0) -> None:
    """Take a step with all the time that it needs."""
    module.TIMEOUT, before = patience, module.TIMEOUT
    try:
        follower.step(time.monotonic())
    finally:
        module.TIMEOUT = before


def test_each_question_is_asked_at_its_own_pace(machine: Machine, daemon: DaemonSocket) -> None:
    follower, reader = follow(machine, daemon.path)
    now = time.monotonic()
    module.TIMEOUT = 1000.0
    for second in range(3):
        follower.step(now + second)

    assert [sorted(taken) for taken in reader.taken] == [["config get fsid", "perf dump", "version"]] + [
        ["perf dump"]
    ] * 2
    assert len([asked for asked in daemon.asked if asked.get("var") == "slow"]) == 1, (
        "a release without it is no failure"
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
    assert [asked["prefix"] for asked in daemon.asked].count("version") == 2, "one waited for, one of now"


def test_a_silent_daemon_whose_threads_do_not_run_is_stuck_and_one_that_computes_is_not(
    machine: Machine, daemon: DaemonSocket
) -> None:
    follower, _ = follow(machine, daemon.path)
    daemon.freeze()
    now = time.monotonic()
    follower.step(now)
    assert not follower.stuck
    machine.ran(PID, PID, 1.0)
    follower.step(now + 3)
    assert not follower.stuck
    follower.step(now + 6)
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
    stop = Event()

    def fail(now: float, answers: Mapping[str, bytes]) -> None:
        stop.set()
        raise RuntimeError("a bug")

    reader.take = fail  # type: ignore[method-assign]
    module.TIMEOUT = 30.0
    follower.run(stop)
    assert follower.problem == "malformed"


# ---- All processes of a class.


def listening(machine: Machine, daemon: DaemonSocket, pid: int = PID, owner: str = "a") -> None:
    machine.process(pid, "ceph-mds", argv=("ceph-mds", "-i", owner), threads={pid + 1: "msgr-worker-0"})
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
    monkeypatch.setattr(module, "TIMEOUT", 30.0)
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
    assert until(30, lambda: not [thread for thread in threads() if thread.name == "ceph-mds.a"])


def test_a_blind_daemon_has_no_series_but_those_that_say_so(
    machine: Machine, followers: Followers, daemon: DaemonSocket
) -> None:
    daemon.freeze()
    listening(machine, daemon)
    followers.refresh(0.0)

    found = values(followers)
    assert found.value("pinchpoint_ceph_socket_up", daemon="mds.a") == 0
    assert found.value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="silent") == 1
    assert "seen" not in found.values


def test_a_daemon_without_a_socket_is_blind_and_looked_at_again(
    machine: Machine, followers: Followers, daemon: DaemonSocket
) -> None:
    machine.process(PID, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    followers.refresh(0.0)
    assert values(followers).value("pinchpoint_ceph_socket_problem_info", daemon="mds.a", reason="missing") == 1

    listening(machine, daemon)
    followers.refresh(0.5)
    assert not values(followers).value("pinchpoint_ceph_socket_duration_seconds", daemon="mds.a")
    followers.refresh(2.0)
    assert values(followers).value("pinchpoint_ceph_socket_duration_seconds", daemon="mds.a") is not None


def test_two_daemons_of_one_name_are_never_the_same_series_twice(machine: Machine, followers: Followers) -> None:
    for pid in (10, 11):
        machine.process(pid, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    followers.refresh(0.0)

    series = [(point.metric.name, point.labels) for point in followers.points()]
    assert len(series) == len(set(series)) == 3
