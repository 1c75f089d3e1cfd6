from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import KERNEL_THREAD, KWORKER, Machine, stat_line
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.host.procfs import Stat, read_bytes
from pinchpoint.host.users import Users
from pinchpoint.threads.identity import mark
from pinchpoint.threads.processes import (
    MAX_BORN,
    MAX_OWNERS_PER_CLASS,
    MAX_UNVERIFIED_PER_USER,
    MAX_USER_OWNERS,
    Process,
    Processes,
    ceph_id,
)
from pinchpoint.threads.roles import BENCHMARK, UNVERIFIED, load_roles


def table(machine: Machine, adopted: Callable[[], Collection[int]] = set) -> Processes:
    return Processes(machine.procfs, load_roles(), adopted, rootfs=machine.procfs.parent)


def found(processes: Processes, now: float = 0.0) -> dict[int, tuple[str, str]]:
    return {pid: (process.class_, process.owner) for pid, process in processes.current(now).items()}


def renamed(machine: Machine, pid: int, comm: str, *, start: int = 100, flags: int = 0, ppid: int = 1) -> None:
    """Change the name of a process as exec does: with the same PID, and without a fork."""
    machine.write(f"proc/{pid}/stat", stat_line(pid, comm, start=start, flags=flags, ppid=ppid))


def test_processes_of_interest_have_a_class_and_an_owner(machine: Machine) -> None:
    machine.process(10, "ceph-mds", argv=("/usr/bin/ceph-mds", "-f", "--id", "a"))
    machine.process(11, "ceph-osd", argv=("ceph-osd", "-i", "3"))
    machine.process(12, "fio")
    machine.process(13, "kswapd1", flags=KERNEL_THREAD)
    machine.process(14, "jbd2/sda1-8", flags=KERNEL_THREAD)
    machine.process(15, "bash")

    assert found(table(machine)) == {
        10: ("ceph-mds", "mds.a"),
        11: ("ceph-osd", "osd.3"),
        12: (BENCHMARK, "fio"),
        13: ("kswapd", "node1"),
        14: ("journal", "sda1"),
    }


def test_a_users_process_is_never_taken_for_a_kernel_thread(machine: Machine) -> None:
    machine.process(10, "kswapd0")
    machine.process(11, "kworker/0:1+flush-x")
    machine.process(12, "kworker/0:1+flush-x", flags=KWORKER)

    processes = table(machine)

    assert found(processes) == {}
    assert processes.kworkers == {12}


@pytest.mark.parametrize("comm", [b"a) S 1 (b", b"new\nline", b"\xff\xfe", b"  ", b""])
def test_a_hostile_name_hides_nobody_else(machine: Machine, comm: bytes) -> None:
    machine.process(10, comm)
    machine.process(11, "fio")

    assert found(table(machine)) == {11: (BENCHMARK, "fio")}


@pytest.mark.parametrize("raw", [b"", b"10 (fio", b"\0" * 50])
def test_a_process_with_an_unknown_format_is_left_out(machine: Machine, raw: bytes) -> None:
    machine.process(10, "ior")
    machine.process(11, "fio")
    machine.write("proc/10/stat", raw)

    assert found(table(machine)) == {11: (BENCHMARK, "fio")}


def test_a_process_that_ends_between_listing_and_reading_is_left_out(machine: Machine) -> None:
    machine.process(11, "fio")
    (machine.procfs / "10").mkdir()

    assert found(table(machine)) == {11: (BENCHMARK, "fio")}


def test_a_new_process_is_found_within_a_quarter_of_a_second(machine: Machine) -> None:
    processes = table(machine)
    processes.current(0.0)
    machine.process(10, "fio")

    assert found(processes, 0.1) == {}
    assert found(processes, 0.25) == {10: (BENCHMARK, "fio")}


def test_a_fork_that_calls_exec_later_is_found_though_nothing_else_is_forked(machine: Machine) -> None:
    processes = table(machine)
    machine.process(10, "bash")
    assert found(processes, 100.0) == {}
    renamed(machine, 10, "ior")

    assert found(processes, 100.3) == {10: (BENCHMARK, "ior")}


def test_an_exec_in_an_old_process_is_found_at_the_next_full_pass(machine: Machine) -> None:
    processes = table(machine)
    machine.process(10, "bash")
    for tenths in range(25):
        processes.current(tenths / 10)
    renamed(machine, 10, "ior")

    assert found(processes, 4.0) == {}
    assert found(processes, 5.1) == {10: (BENCHMARK, "ior")}


def test_a_worker_that_is_seen_before_it_ever_ran_is_known_for_a_worker_soon(machine: Machine) -> None:
    processes = table(machine)
    machine.process(10, "kworker/u8:3", flags=KERNEL_THREAD)
    processes.current(0.0)
    renamed(machine, 10, "kworker/u8:3", flags=KWORKER)
    processes.current(0.3)

    assert processes.kworkers == {10}


def test_a_reused_pid_is_another_process(machine: Machine) -> None:
    processes = table(machine)
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "1"), start=100)
    first = processes.current(0.0)[10]
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "2"), start=500)
    second = processes.current(6.0)[10]

    assert (first.start, first.owner) == (100, "osd.1")
    assert (second.start, second.owner) == (500, "osd.2")


def test_a_process_that_did_not_change_stays_the_same_object(machine: Machine) -> None:
    machine.process(10, "fio")
    processes = table(machine)
    first = processes.current(0.0)[10]
    machine.process(11, "fio")

    assert processes.current(6.0)[10] is first


def test_nothing_is_listed_again_while_nothing_was_forked(machine: Machine) -> None:
    machine.process(10, "fio")
    processes = table(machine)
    for tenths in range(25):
        processes.current(tenths / 10)
    generation = processes.generation
    for tenths in range(25, 49):
        processes.current(tenths / 10)

    assert processes.generation == generation


def test_the_adopted_are_asked_for_four_times_a_second_at_most(machine: Machine) -> None:
    asked = 0

    def adopted() -> set[int]:
        nonlocal asked
        asked += 1
        return set()

    processes = table(machine, adopted)
    for hundredths in range(100):
        processes.current(hundredths / 100)

    assert asked == 4


def test_without_loadavg_every_look_is_a_scan(machine: Machine) -> None:
    (machine.procfs / "loadavg").unlink()
    processes = table(machine)
    processes.current(0.0)
    machine.process(10, "fio")
    (machine.procfs / "loadavg").unlink()

    assert found(processes, 3.0) == {10: (BENCHMARK, "fio")}


def test_the_newest_number_of_another_pid_namespace_hides_no_process(machine: Machine) -> None:
    (machine.procfs / "self").symlink_to(str(os.getpid() + 1))
    processes = table(machine)
    processes.current(0.0)
    machine.process(10, "fio")
    machine.write("proc/loadavg", "0.10 0.20 0.30 1/100 0\n")  # that of our own namespace, which stands still

    assert found(processes, 0.3) == {10: (BENCHMARK, "fio")}


def test_threads_that_come_are_told_but_no_reason_to_list_all_processes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, "ceph-fuse")
    processes = table(machine)
    for tenths in range(25):
        processes.current(tenths / 10)
    generation = processes.generation
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail("it is listed"))
    machine.write("proc/loadavg", "0.10 0.20 0.30 1/100 12\n")
    for number in (11, 12):  # a thread's status can be read, though procfs does not list it
        machine.write(f"proc/{number}/status", f"Name:\tfn\nTgid:\t10\nPid:\t{number}\n")
    processes.current(3.0)

    assert processes.generation == generation + 1


def test_more_new_numbers_than_are_looked_at_one_by_one_are_found_in_a_listing(machine: Machine) -> None:
    processes = table(machine)
    processes.current(0.0)
    machine.process(MAX_BORN + 2, "fio")

    assert found(processes, 0.3) == {MAX_BORN + 2: (BENCHMARK, "fio")}


def test_a_pid_that_was_given_away_again_is_read_again(machine: Machine) -> None:
    machine.process(10, "fio", start=100)
    processes = table(machine)
    for tenths in range(25):
        processes.current(tenths / 10)
    machine.write("proc/loadavg", "0.10 0.20 0.30 1/100 9\n")
    processes.current(2.7)
    machine.process(10, "ior", start=500)

    assert found(processes, 3.0) == {10: (BENCHMARK, "ior")}


def test_an_adopted_process_and_all_below_are_the_benchmark_whatever_their_names(machine: Machine) -> None:
    machine.process(10, "pinchpoint")
    machine.process(11, "my script", ppid=10)
    machine.process(12, "python3", ppid=11)
    machine.process(13, "bash")
    machine.process(14, "ceph-fuse", ppid=12)

    assert found(table(machine, lambda: {11})) == {
        11: (BENCHMARK, "my script"),
        12: (BENCHMARK, "python3"),
        14: ("cephfs-client", "ceph-fuse"),
    }


def test_a_descendant_stays_adopted_when_its_parent_has_gone(machine: Machine) -> None:
    machine.process(11, "script", ppid=1)
    machine.process(12, "middle", ppid=11)
    machine.process(13, "work", ppid=12)
    processes = table(machine, lambda: {11})
    processes.current(0.0)
    machine.end(12)
    renamed(machine, 13, "work", ppid=1)

    assert found(processes, 6.0) == {11: (BENCHMARK, "script"), 13: (BENCHMARK, "work")}


def test_another_process_under_the_pid_of_an_adopted_one_is_not_adopted(machine: Machine) -> None:
    machine.process(11, "script", ppid=1)
    machine.process(12, "work", ppid=11)
    processes = table(machine, lambda: {11})
    processes.current(0.0)
    machine.process(12, "sshd", ppid=1, start=900)

    assert found(processes, 6.0) == {11: (BENCHMARK, "script")}


def test_what_a_run_left_behind_is_no_benchmark_after_its_end(machine: Machine) -> None:
    machine.process(11, "script")
    adopted = {11}
    processes = table(machine, lambda: adopted)
    assert found(processes, 0.0) == {11: (BENCHMARK, "script")}
    adopted.clear()

    assert found(processes, 6.0) == {}


def test_a_process_is_adopted_though_it_was_there_before(machine: Machine) -> None:
    machine.process(11, "script")
    adopted: set[int] = set()
    processes = table(machine, lambda: adopted)
    assert found(processes, 0.0) == {}
    for tenths in range(30):
        processes.current(tenths / 10)
    adopted.add(11)

    assert found(processes, 3.3) == {11: (BENCHMARK, "script")}


def test_owners_beyond_the_limit_share_one(machine: Machine) -> None:
    for index in range(MAX_OWNERS_PER_CLASS + 6):
        machine.process(100 + index, "ceph-osd", argv=("ceph-osd", "-i", str(index)))

    owners = [process.owner for process in table(machine).current(0.0).values()]

    assert len(set(owners)) == MAX_OWNERS_PER_CLASS + 1
    assert owners.count("more") == 6


def test_a_benchmark_of_another_user_has_an_owner_of_its_own(machine: Machine) -> None:
    machine.process(10, "fio")
    machine.process(11, "fio", uid=1000)
    machine.process(12, "fio", uid=1001)
    users = Users([1001])

    owners = {
        pid: process.owner for pid, process in Processes(machine.procfs, load_roles(), users=users).current(0).items()
    }
    assert owners == {10: "fio", 11: "fio@uid1000", 12: "fio"}


def test_names_that_another_user_gives_to_processes_take_nobodys_place(machine: Machine) -> None:
    machine.process(9, "bash", uid=1000)
    for index in range(2 * MAX_OWNERS_PER_CLASS):
        machine.process(100 + index, f"name-{index}", ppid=9, uid=1000)
    machine.process(1000, "fio")

    owners = {process.owner for process in table(machine, lambda: {9}).current(0.0).values()}

    assert "fio" in owners
    assert "more@uid1000" in owners
    assert len(owners) == 1 + MAX_USER_OWNERS + 1


def test_processes_that_are_hidden_show_by_the_missing_first_one(machine: Machine) -> None:
    machine.process(10, "fio")  # all that hidepid=2 leaves: our own processes
    processes = table(machine)

    assert found(processes) == {10: (BENCHMARK, "fio")}
    assert processes.unreadable == 1


def test_processes_that_may_not_be_read_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(1, "systemd")
    machine.process(10, "fio")
    machine.process(11, "ior")

    def refuse(path: Path | str) -> bytes:
        if str(path).endswith("/10/stat"):  # as mount option hidepid=1 does (proc_pid_permission, fs/proc/base.c)
            raise PermissionError(1, "Operation not permitted", str(path))
        return read_bytes(path)

    monkeypatch.setattr("pinchpoint.threads.processes.read_bytes", refuse)
    processes = table(machine)

    assert found(processes) == {11: (BENCHMARK, "ior")}
    assert processes.unreadable == 1


def test_an_owner_is_built_from_the_name_and_the_groups_of_the_match(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('[[process]]\nmatch = "my-(\\\\w+)-(x)?"\nclass = "benchmark"\nowner = "{1}/{2}/{comm}"\n')
    machine.process(10, "my-job-")

    processes = Processes(machine.procfs, load_roles(file))

    assert processes.current(0.0) == {10: Process(10, 100, "my-job-", BENCHMARK, "job//my-job-")}


@pytest.mark.parametrize(
    ("argv", "id_"),
    [
        ("ceph-osd -i 3", "3"),
        ("ceph-osd -i3", "3"),
        ("ceph-osd -f --cluster ceph --id 3 --setuser ceph", "3"),
        ("ceph-mds --id=a", "a"),
        ("ceph-mds -n mds.a.b", "a.b"),
        ("ceph-mds --name=mds.a", "a"),
        ("ceph-osd", "?"),
        ("ceph-osd -i", "?"),
        ("ceph-osd --id=", "?"),
        ("ceph-osd -n nodot", "?"),
        ("", "?"),
    ],
)
def test_a_daemons_id_is_in_its_command_line(argv: str, id_: str) -> None:
    assert ceph_id(argv.split()) == id_


@given(st.lists(st.text(max_size=6) | st.sampled_from(["-i", "-n", "--id", "--name", "-i=", "-nx"]), max_size=5))
def test_any_command_line_has_an_id_or_a_question_mark(argv: list[str]) -> None:
    assert ceph_id(argv)


def test_a_daemon_whose_command_line_can_not_be_read_still_has_an_owner(machine: Machine) -> None:
    machine.process(10, "ceph-osd")
    (machine.procfs / "10" / "cmdline").unlink()

    assert found(table(machine)) == {10: ("ceph-osd", "osd.?")}


def test_the_real_procfs_shows_this_process_where_its_name_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    own = Path("/proc/self/comm").read_text().rstrip("\n")
    file.write_text(f'[[process]]\nmatch = "{own}"\nclass = "benchmark"\n')

    assert os.getpid() in Processes(Path("/proc"), load_roles(file)).current(0.0)


def test_a_daemons_id_is_cut_where_somebody_chose_a_very_long_one() -> None:
    assert len(ceph_id(["ceph-osd", "-i", "9" * 100_000])) == 64


def test_daemons_of_two_clusters_get_the_beginning_of_their_fsid(machine: Machine) -> None:
    for pid in (10, 11, 12):
        machine.process(pid, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    processes = table(machine)

    def owners(now: float) -> dict[int, str]:
        return {pid: process.owner for pid, process in processes.current(now).items()}

    processes.assign_cluster(processes.current(0.0)[10], "aaaaaaaa-1111")
    assert owners(1.0) == {10: "osd.0", 11: "osd.0", 12: "osd.0"}

    processes.assign_cluster(processes.current(1.0)[11], "bbbbbbbb-2222")
    assert owners(2.0) == {10: "osd.0@aaaaaaaa", 11: "osd.0@bbbbbbbb", 12: "osd.0"}

    machine.end(11)
    assert owners(10.0) == {10: "osd.0@aaaaaaaa", 12: "osd.0"}, "a name that comes and goes would end every series"


def test_once_there_are_several_clusters_a_daemon_that_starts_never_has_the_name_of_anothers(machine: Machine) -> None:
    """Both clusters' daemons would take turns with it when they are restarted, and counters would fall."""
    for pid in (10, 11):
        machine.process(pid, "ceph-mds", argv=("ceph-mds", "-i", "a"))
    processes = table(machine)
    for pid, cluster in ((10, "aaaaaaaa-1111"), (11, "bbbbbbbb-2222")):
        processes.assign_cluster(processes.current(0.0)[pid], cluster)
    processes.current(1.0)

    machine.end(11)
    machine.process(12, "ceph-mds", argv=("ceph-mds", "-i", "a"), start=7)
    restarted = processes.current(10.0)[12]
    processes.assign_cluster(restarted, "bbbbbbbb-2222")

    assert restarted.owner == "mds.a@?"
    assert processes.current(11.0)[12].owner == "mds.a@bbbbbbbb"


def test_a_scan_waits_for_no_file_system_that_markers_may_be_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes wait for a scan: the probe that reads the markers of runs passes on what it found."""
    host = build_host(Config())
    monkeypatch.setattr(host.runs, "command_pids", lambda now: pytest.fail("a scan reads markers"))
    host.runs.commands = frozenset({os.getpid()})

    assert host.processes.current(time.monotonic())[os.getpid()].class_ == BENCHMARK


def test_without_that_probe_markers_are_read_for_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    host = build_host(Config(probe={"benchmark": False}))
    monkeypatch.setattr(host.runs, "command_pids", lambda now: frozenset({os.getpid()}))

    assert host.processes.current(time.monotonic())[os.getpid()].class_ == BENCHMARK


def fakes(machine: Machine, count: int, comm: str = "ceph-osd", uid: int = 65534, first: int = 1000) -> None:
    for index in range(count):
        machine.process(first + index, comm, argv=(comm, "-i", str(index)), uid=uid)


def test_a_users_process_by_a_daemons_name_is_another_owner_and_no_daemon(machine: Machine) -> None:
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    machine.process(11, "ceph-osd", argv=("ceph-osd", "-i", "0"), uid=65534)
    machine.process(12, "ganesha.nfsd", program="usr/bin/python3")
    processes = table(machine)

    assert found(processes) == {10: ("ceph-osd", "osd.0")}
    assert {pid: (process.class_, process.owner) for pid, process in processes.followed(0.0).items()} == {
        10: ("ceph-osd", "osd.0"),
        11: (UNVERIFIED, "osd.?@uid65534"),
        12: (UNVERIFIED, "ganesha.nfsd@unverified"),
    }
    assert processes.unverified == {"ceph-osd": 1, "cephfs-client": 1}


def test_300_of_them_hide_no_daemon_that_comes_later(machine: Machine) -> None:
    fakes(machine, 300)
    processes = table(machine)
    processes.current(0.0)
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))

    assert found(processes, 1.0) == {10: ("ceph-osd", "osd.0")}
    assert processes.unverified == {"ceph-osd": 300}


def test_few_of_them_are_followed(machine: Machine) -> None:
    fakes(machine, 300)
    for index in range(60):
        machine.process(2000 + index, "ceph-mds", argv=("ceph-mds", "-i", "a"), uid=7)
    followed = table(machine).followed(0.0)

    assert Counter(process.owner for process in followed.values()) == {
        "osd.?@uid65534": MAX_UNVERIFIED_PER_USER,
        "mds.?@uid7": MAX_UNVERIFIED_PER_USER,
    }


def test_the_command_line_of_one_is_not_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(path: str, *rest: Any) -> bytes:
        read.append(str(path))
        return read_bytes(path, *rest)

    monkeypatch.setattr("pinchpoint.threads.processes.read_bytes", noted)
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    machine.process(11, "ceph-osd", argv=("ceph-osd", "-i", "0"), uid=65534)
    table(machine).current(0.0)

    assert [path.rpartition("/proc/")[2] for path in read if path.endswith("cmdline")] == ["10/cmdline"]


def test_a_name_that_ends_like_a_users_mark_is_nobodys_mark(machine: Machine) -> None:
    machine.process(10, "qemu-@uid90001", uid=1000)

    assert found(table(machine)) == {10: ("ceph-client", "qemu-\ufffduid90001")}


def test_many_processes_of_one_name_take_a_time_that_follows_their_number(machine: Machine) -> None:
    for pid in range(10, 1010):
        machine.process(pid, "fio", uid=1000, ppid=pid - 1)
    processes = table(machine, adopted=lambda: [10])
    compared = 0

    class Counted(dict[int, Stat]):
        def items(self) -> Any:
            nonlocal compared
            for item in super().items():
                compared += 1
                yield item

    processes.current(0.0)
    processes._seen, processes._benchmarks = Counted(processes._seen), {}
    assert len(processes._descendants(frozenset({10}))) == 1000
    assert compared <= 1000


def test_a_users_process_is_looked_at_once_and_not_at_every_scan(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(procfs: Path, pid: int, *rest: Any) -> str:
        looks.append(pid)
        return mark(procfs, pid, *rest)

    monkeypatch.setattr("pinchpoint.threads.processes.mark", counted)
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    fakes(machine, 2)
    processes = table(machine)
    for second in range(20):
        machine.process(100 + second, "true")
        processes.current(float(second))

    assert sorted(looks) == [10, 1000, 1001]


def test_a_script_by_a_daemons_name_that_ends_in_the_daemon_becomes_it(machine: Machine) -> None:
    machine.process(10, "ceph-osd", argv=("/bin/sh", "ceph-osd", "-i", "0"), program="usr/bin/dash")
    processes = table(machine)
    assert found(processes) == {}
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))

    assert found(processes, 6.0) == {10: ("ceph-osd", "osd.0")}
    assert processes.unverified == {}


def test_ceph_of_the_hosts_list_of_users_may_run_a_daemon(machine: Machine) -> None:
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"), uid=64045)
    machine.process(11, "ceph-osd", argv=("ceph-osd", "-i", "1"), uid=167)
    machine.write("etc/passwd", "ceph:x:64045:64045::/:/bin/false\nbackup:x:167:167::/:/bin/sh\n")
    processes = table(machine)

    assert found(processes) == {10: ("ceph-osd", "osd.0")}
    assert processes.followed(0.0)[11].owner == "osd.?@uid167"


def test_the_id_of_a_daemon_cannot_look_like_the_mark_of_a_user(machine: Machine) -> None:
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0@uid1000"))

    assert found(table(machine)) == {10: ("ceph-osd", "osd.0\ufffduid1000")}


def test_anybody_may_run_what_is_no_daemon(machine: Machine) -> None:
    machine.process(10, "fio", uid=1000)
    machine.process(11, "qemu-system-x86", uid=64055)
    machine.process(12, "rados", uid=1000, program="home/me/rados")

    assert found(table(machine)) == {
        10: (BENCHMARK, "fio@uid1000"),
        11: ("ceph-client", "qemu-system-x86"),
        12: ("ceph-client", "rados"),
    }


def test_a_run_that_starts_something_by_a_daemons_name_makes_no_daemon_of_it(machine: Machine) -> None:
    machine.process(11, "script", uid=1000)
    machine.process(12, "ceph-fuse", ppid=11, uid=1000)
    processes = table(machine, lambda: {11})

    assert found(processes) == {11: (BENCHMARK, "script@uid1000")}
    assert processes.followed(0.0)[12].owner == "ceph-fuse@uid1000"


def test_a_rule_of_the_administrators_own_counts_a_cluster_that_a_user_started(
    machine: Machine, tmp_path: Path
) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('[[process]]\nmatch = "ceph-osd"\nclass = "ceph-osd"\nowner = "osd.{ceph_id}"\n')
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"), uid=1000)

    processes = Processes(machine.procfs, load_roles(file), rootfs=machine.procfs.parent)

    assert found(processes) == {10: ("ceph-osd", "osd.0")}


def test_the_command_of_a_run_by_a_daemons_label_is_another_owner(machine: Machine) -> None:
    machine.process(11, "osd.0", uid=1000)
    machine.process(12, "run.sh", ppid=11, uid=1000)

    assert found(table(machine, lambda: {11})) == {
        11: (BENCHMARK, "osd.0@unverified@uid1000"),
        12: (BENCHMARK, "run.sh@uid1000"),
    }


def test_names_that_a_user_chose_leave_room_for_the_daemons_of_their_class(machine: Machine) -> None:
    for index in range(MAX_OWNERS_PER_CLASS + 1):
        machine.process(100 + index, f"qemu-{index}", uid=1000)
    machine.process(900, "rbd-nbd")
    owners = {pid: owner for pid, (_, owner) in found(table(machine)).items()}

    assert owners[100 + MAX_OWNERS_PER_CLASS] == "more"
    assert owners[900] == "rbd-nbd"
