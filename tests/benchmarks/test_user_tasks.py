from __future__ import annotations

from machine import Machine
from pinchpoint.benchmarks.talk import MAX_TOLD_PROCESSES
from pinchpoint.benchmarks.user_tasks import UserTasks
from pinchpoint.host.confine import User
from pinchpoint.host.users import Subordinates, Users

ALICE, BOB = User(1000, 100, (100, 200)), User(1001, 100)
USERS = Users((), lambda: [Subordinates(1000, 100_000, 65_536)])


def runs(machine: Machine, user: User, pid: int, comm: str, ppid: int = 1) -> None:
    """Add a process of a user."""
    machine.process(pid, comm, ppid=ppid)
    groups = " ".join(map(str, user.groups))
    uids, gids = "\t".join([str(user.uid)] * 4), "\t".join([str(user.gid)] * 4)
    machine.write(f"proc/{pid}/status", f"Name:\t{comm}\nUid:\t{uids}\nGid:\t{gids}\nGroups:\t{groups} \n")


def told(machine: Machine) -> dict[User, dict[int, bool]]:
    """Return which processes are told, and whether they are the user's own."""
    found = UserTasks({"toy"}, USERS, 2).of(machine.tree())
    return {user: {pid: task.own for pid, task in tasks.items()} for user, tasks in found.items()}


def test_each_user_has_the_own_benchmarks_and_what_is_below_and_above_them(machine: Machine) -> None:
    runs(machine, BOB, 5, "sshd")
    runs(machine, ALICE, 10, "mpirun", ppid=5)
    runs(machine, ALICE, 11, "toy", ppid=10)
    runs(machine, ALICE, 12, "child", ppid=11)
    runs(machine, ALICE, 13, "editor", ppid=5)
    runs(machine, BOB, 20, "toy")

    assert told(machine) == {ALICE: {11: True, 12: True, 10: False, 5: False}, BOB: {20: True}}


def test_a_benchmark_above_or_below_that_is_another_users_is_not_followed_twice(machine: Machine) -> None:
    runs(machine, ALICE, 10, "toy")
    runs(machine, BOB, 11, "toy", ppid=10)
    runs(machine, ALICE, 12, "toy", ppid=11)

    assert told(machine) == {ALICE: {10: True, 12: True, 11: False}, BOB: {11: True, 10: False}}


def test_whoever_runs_only_what_is_below_anothers_benchmark_has_none(machine: Machine) -> None:
    runs(machine, BOB, 5, "daemon", ppid=10)
    runs(machine, ALICE, 10, "toy")

    assert told(machine) == {ALICE: {10: True}}


def test_a_process_that_cannot_be_seen_is_left_out(machine: Machine) -> None:
    machine.process(10, "toy")
    (machine.procfs / "10" / "status").unlink()

    assert told(machine) == {}


def test_of_a_user_with_many_subordinate_uids_the_oldest_count(machine: Machine) -> None:
    for number in range(20):
        runs(machine, User(100_000 + number, 100), 10 + number, "toy", ppid=9 + number)
    runs(machine, BOB, 50, "toy", ppid=29)

    found = told(machine)

    assert [user.uid for user in found] == [100_000, 100_001, BOB.uid]
    assert sum(map(len, found.values())) < 2 * 22


def test_a_user_with_other_groups_is_another_one(machine: Machine) -> None:
    runs(machine, ALICE, 10, "toy")
    runs(machine, ALICE._replace(gid=200), 11, "toy")

    assert told(machine) == {ALICE: {10: True}, ALICE._replace(gid=200): {11: True}}


def test_a_users_processes_are_bounded(machine: Machine) -> None:
    runs(machine, ALICE, 2, "toy")
    for pid in range(3, 3 + MAX_TOLD_PROCESSES):
        runs(machine, ALICE, pid, "child", ppid=2)

    assert len(told(machine)[ALICE]) == MAX_TOLD_PROCESSES
