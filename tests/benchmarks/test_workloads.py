from __future__ import annotations

import pytest

from machine import Machine
from pinchpoint.benchmarks.job_marks import JobMark
from pinchpoint.benchmarks.markers import Marker
from pinchpoint.benchmarks.registry import BENCHMARKS
from pinchpoint.benchmarks.workloads import MAX_RUN_WAIT_SECONDS, Leader, Workload, Workloads
from pinchpoint.probes import Host
from pinchpoint.user_labels import MAX_LABEL_BYTES

NOW = 1_700_000_000.0
OURS = Workload("io500", "ours")
FOUND = Workload("ior", "found")
NOBODYS = Workload("ior", "")
IOR = frozenset({"ior"})


class Look:
    """Asks which processes work for which run, later at each call."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.host: Host = machine.host_with_runs(NOW)
        self.now = 100.0
        host = self.host
        self.workloads = Workloads(host.procfs, host.processes, host.runs, BENCHMARKS, host.found, wall=lambda: NOW)

    def __call__(self, after: float = 1.0) -> dict[int, Workload]:
        self.now += after
        return {pid: member.workload for pid, member in self.workloads.current(self.now).items()}

    def mark(self, run: str = "ours", benchmark: str = "io500", *, pid: int = 10, command: int = 20) -> None:
        """Have `pinchpoint run` report its command."""
        marker = Marker(run, benchmark, NOW, pid=pid, pid_start=100, command_pid=command)
        self.host.runs.write(marker)

    def find(self, *leaders: tuple[int, Workload]) -> None:
        """Report found runs with these leaders."""
        self.host.found.tell(Leader(pid, 100, IOR, workload) for pid, workload in leaders)


@pytest.fixture
def look(machine: Machine) -> Look:
    machine.process(1, "systemd", ppid=0)
    return Look(machine)


def test_the_tree_below_the_command_of_a_marked_run_is_its_workload(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(21, "mpirun", ppid=20)
    machine.process(22, "io500", ppid=21)
    machine.process(30, "sshd")
    look.mark()

    assert look() == {20: OURS, 21: OURS, 22: OURS}


def test_a_process_stays_in_its_run_when_its_parent_goes(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(22, "worker", ppid=20)
    look.mark()
    look()
    machine.end(20)
    machine.process(22, "worker", ppid=1)

    assert look(6.0) == {22: OURS}


def test_a_pid_that_is_used_again_is_in_no_run(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(22, "worker", ppid=20)
    look.mark()
    look()
    machine.process(22, "worker", ppid=1, start=999)

    assert look(6.0) == {20: OURS}


def test_what_a_run_turns_out_to_be_holds_for_all_of_its_processes(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(22, "worker", ppid=20)
    look.mark(benchmark="command")
    assert look() == dict.fromkeys((20, 22), Workload("command", "ours"))

    look.mark(benchmark="io500")
    assert look() == {20: OURS, 22: OURS}


def test_daemons_and_mounts_that_a_run_starts_are_not_its_own_work_but_rados_is(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(21, "ceph-fuse", ppid=20)
    machine.process(22, "ceph-osd", ppid=20, argv=("ceph-osd", "-i", "0"))
    machine.process(23, "rados", ppid=20)
    machine.process(24, "ceph-fuse", ppid=20, uid=1000)
    look.mark()

    assert sorted(look()) == [20, 23]


def test_a_run_inside_of_a_run_has_its_own_processes(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(25, "pinchpoint", ppid=20)
    machine.process(26, "fio", ppid=25)
    machine.process(27, "fio", ppid=26)
    look.mark()
    look.mark("inner", "fio", pid=25, command=26)
    inner = Workload("fio", "inner")

    assert look() == {20: OURS, 25: OURS, 26: inner, 27: inner}


def test_a_marker_that_names_somebody_elses_process_adopts_nothing(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=1)
    look.mark()

    assert look() == {}


def test_names_that_a_marker_gives_are_printable_and_short(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    look.mark(benchmark="a\nb" * 300)

    assert look()[20].benchmark == ("a\ufffdb" * 300)[:MAX_LABEL_BYTES]


def test_the_tree_below_a_leader_is_the_run_that_was_found_by_it(machine: Machine, look: Look) -> None:
    machine.process(30, "ior")
    machine.process(31, "helper", ppid=30)
    look.find((30, FOUND))

    assert look() == {30: FOUND, 31: FOUND}


def test_ranks_of_the_same_launcher_belong_to_the_run_of_rank_0(machine: Machine, look: Look) -> None:
    machine.process(29, "mpirun")
    machine.process(30, "ior", ppid=29)
    machine.process(31, "ior", ppid=29)
    machine.process(32, "numactl", ppid=29)
    machine.process(33, "ior", ppid=32)
    look.find((30, FOUND))

    assert look(2.0) == {30: FOUND, 31: FOUND, 33: FOUND}


def test_a_neighbour_of_the_same_benchmark_is_not_mixed_into_a_run(machine: Machine, look: Look) -> None:
    machine.process(29, "mpirun")
    machine.process(30, "ior", ppid=29)
    machine.process(39, "mpirun")
    machine.process(40, "ior", ppid=39)
    machine.process(41, "ior", ppid=1)
    look.find((30, FOUND))
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {30: FOUND, 40: NOBODYS, 41: NOBODYS}


def test_two_runs_that_were_found_keep_to_themselves(machine: Machine, look: Look) -> None:
    for launcher in (29, 39):
        machine.process(launcher, "mpirun")
        machine.process(launcher + 1, "ior", ppid=launcher)
        machine.process(launcher + 2, "ior", ppid=launcher)
    look.find((30, Workload("ior", "a")), (40, Workload("ior", "b")))
    a, b = Workload("ior", "a"), Workload("ior", "b")

    assert look() == {30: a, 31: a, 40: b, 41: b}


def test_processes_whose_parent_has_gone_are_not_siblings(machine: Machine, look: Look) -> None:
    machine.process(30, "ior", ppid=1)
    machine.process(31, "ior", ppid=1)
    look.find((30, FOUND))
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {30: FOUND, 31: NOBODYS}


def test_a_leader_whose_pid_is_used_again_leads_nothing(machine: Machine, look: Look) -> None:
    machine.process(30, "bash", start=555)
    look.find((30, FOUND))

    assert look() == {}


def test_a_marked_run_takes_over_what_was_found_before_it_was_marked(machine: Machine, look: Look) -> None:
    machine.process(10, "pinchpoint")
    machine.process(20, "bash", ppid=10)
    machine.process(30, "ior", ppid=20)
    look.find((30, FOUND))
    assert look()[30] == FOUND

    look.mark()
    look.find()
    assert look() == {20: OURS, 30: OURS}


def test_a_rank_whose_run_is_on_another_host_has_its_benchmarks_name_alone(machine: Machine, look: Look) -> None:
    machine.process(29, "orted")
    machine.process(30, "ior", ppid=29)
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {30: NOBODYS}


def test_a_rank_of_a_marked_job_is_called_by_the_job(machine: Machine, look: Look) -> None:
    machine.process(29, "slurmstepd")
    machine.process(30, "ior", ppid=29)
    machine.process(31, "ior", ppid=29, uid=1000)
    machine.process(32, "ior", ppid=29, uid=1001)
    for job, uid in (("4711", 0), ("4712", 1000), ("4713", 1001), ("4714", 1001)):
        look.host.runs.jobs.begin(JobMark(job, uid, "a user", NOW))
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {
        30: Workload("ior", "job4711"),
        31: Workload("ior", "job4712@uid1000"),
        32: Workload("ior", "@uid1001"),
    }


def test_a_strangers_load_is_called_what_its_process_is_called(machine: Machine, look: Look) -> None:
    machine.process(30, "stress")
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {30: Workload("stress", "")}


def test_a_process_that_might_be_found_in_a_moment_is_waited_with(machine: Machine, look: Look) -> None:
    machine.process(30, "ior")
    assert look() == {}
    look.find((30, FOUND))

    assert look(MAX_RUN_WAIT_SECONDS) == {30: FOUND}


def test_what_is_no_benchmark_belongs_to_none(machine: Machine, look: Look) -> None:
    machine.process(30, "bash")
    machine.process(31, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    machine.process(32, "rados")
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {}


def test_work_without_a_run_is_its_users(machine: Machine, look: Look) -> None:
    machine.process(30, "ior")
    machine.process(31, "ior", uid=1000)
    look()

    assert look(MAX_RUN_WAIT_SECONDS) == {30: NOBODYS, 31: Workload("ior", "@uid1000")}


def test_processes_of_a_run_have_their_users_mark_as_owners(machine: Machine, look: Look) -> None:
    machine.process(30, "ior", uid=1000)
    machine.process(31, "helper", ppid=30, uid=1000)
    look.find((30, FOUND))
    look()

    owners = {pid: member.process.owner for pid, member in look.workloads.current(look.now).items()}
    assert owners == {30: "ior@uid1000", 31: "helper@uid1000"}


def test_no_number_of_another_users_processes_leaves_ours_out(
    machine: Machine, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinchpoint.benchmarks.workloads.MAX_PROCESSES", 8)
    monkeypatch.setattr("pinchpoint.benchmarks.workloads.MAX_USER_PROCESSES", 4)
    for pid in range(100, 120):
        machine.process(pid, "ior", uid=1000)
    machine.process(200, "ior")
    look.find((200, FOUND))
    look()
    found = look(MAX_RUN_WAIT_SECONDS)

    assert found[200] == FOUND
    assert len(found) == 1 + 4
