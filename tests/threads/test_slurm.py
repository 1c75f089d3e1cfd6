"""Steps of Slurm 22.05, as /proc showed them on one host: srun with its child, slurmstepd with rank 0."""

from __future__ import annotations

import os

import pytest

from machine import Machine
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import Stat, first_names
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import load_roles
from pinchpoint.threads.slurm import MAX_TRIES, SlurmSteps, find_slurmstepds

ALICE, BOB = 1001, 1002
BATCH, SCRIPT, SRUN, SRUNS_CHILD, STEP, RANK = 10, 11, 12, 13, 20, 21
LISTEN, CONNECTED = "0A", "01"


def sockets(machine: Machine, pid: int, *ends: tuple[int, int, int, str]) -> None:
    """Give a process sockets: inode, its port, the other's port, state."""
    lines = [
        f"{at}: 0100007F:{port:04X} 0100007F:{remote:04X} {state} 0:0 0:0 0 0 0 {inode} 1\n"
        for at, (inode, port, remote, state) in enumerate(ends)
    ]
    machine.write(f"proc/{pid}/net/tcp", "header\n" + "".join(lines))
    directory = machine.procfs / str(pid) / "fd"
    directory.mkdir(exist_ok=True)
    for inode, *_ in ends:
        (directory / str(inode)).symlink_to(f"socket:[{inode}]")


@pytest.fixture
def job(machine: Machine) -> Machine:
    """A batch job of alice whose script has started srun, and srun a step with one rank."""
    for pid, comm, parent, uid in (
        (BATCH, "slurmstepd", 1, 0),
        (SCRIPT, "slurm_script", BATCH, ALICE),
        (SRUN, "srun", SCRIPT, ALICE),
        (SRUNS_CHILD, "srun", SRUN, ALICE),
        (STEP, "slurmstepd", 1, 0),
        (RANK, "fio", STEP, ALICE),
    ):
        machine.process(pid, comm, ppid=parent, uid=uid)
    sockets(machine, SRUN, (100, 5000, 0, LISTEN))
    sockets(machine, SRUNS_CHILD, (100, 5000, 0, LISTEN))
    sockets(machine, STEP, (200, 6000, 5000, CONNECTED))
    sockets(machine, BATCH, (300, 6001, 6817, CONNECTED))
    return machine


def processes(machine: Machine) -> dict[int, Stat]:
    return dict(Processes(machine.procfs, load_roles()).everything(0.0))


def parents(machine: Machine, found: dict[int, Stat] | None = None) -> dict[int, int]:
    attached = SlurmSteps(machine.procfs).attached(found or processes(machine))
    return {pid: stat.ppid for pid, stat in attached.items()}


def test_a_step_is_below_the_srun_to_which_it_is_connected(job: Machine) -> None:
    assert processes(job)[STEP].ppid == SRUN
    assert processes(job)[BATCH].ppid == 1
    assert [*Tree(job.procfs, processes(job)).ancestors(RANK)] == [STEP, SRUN, SCRIPT, BATCH]


def test_a_run_whose_command_starts_srun_has_the_ranks(job: Machine) -> None:
    found = Processes(job.procfs, load_roles(), lambda: {SCRIPT})
    found.current(0.0)

    assert RANK in found.adopted


def test_of_two_sruns_of_a_job_each_has_its_own_step(job: Machine) -> None:
    for pid, comm, parent, uid in ((30, "srun", SCRIPT, ALICE), (40, "slurmstepd", 1, 0), (41, "fio", 40, ALICE)):
        job.process(pid, comm, ppid=parent, uid=uid)
    sockets(job, 30, (400, 5001, 0, LISTEN))
    sockets(job, 40, (500, 6002, 5001, CONNECTED))

    assert (parents(job)[STEP], parents(job)[40]) == (SRUN, 30)


def test_a_step_whose_srun_is_on_another_host_has_none(job: Machine) -> None:
    sockets(job, SRUN, (101, 5009, 0, LISTEN))

    assert processes(job)[STEP].ppid == 1


@pytest.mark.parametrize(
    ("liar", "uid"), [(SRUN, BOB), (STEP, BOB)], ids=["srun-of-another-user", "slurmstepd-that-is-not-roots"]
)
def test_nobody_is_given_the_processes_of_another(job: Machine, liar: int, uid: int) -> None:
    job.runs_as(liar, uid, "usr/bin/x")

    assert processes(job)[STEP].ppid == 1


def test_a_step_that_only_says_so_is_not_put_above_itself(job: Machine) -> None:
    sockets(job, BATCH, (301, 6003, 5000, CONNECTED))

    assert processes(job)[BATCH].ppid == 1


def test_a_step_stays_with_its_srun_and_not_with_what_has_its_pid_later(job: Machine) -> None:
    steps = SlurmSteps(job.procfs)
    found = processes(job)
    unattached = {**found, STEP: found[STEP]._replace(ppid=1)}
    assert steps.attached(unattached)[STEP].ppid == SRUN
    (job.procfs / str(SRUN) / "net" / "tcp").unlink()

    assert steps.attached(unattached)[STEP].ppid == SRUN
    assert steps.attached({**unattached, SRUN: found[SRUN]._replace(start=999)})[STEP].ppid == 1


def test_a_step_without_srun_is_not_looked_at_for_ever(job: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sockets(job, SRUN, (101, 5009, 0, LISTEN))
    steps = SlurmSteps(job.procfs)
    found = processes(job)
    for _ in range(MAX_TRIES):
        steps.attached(found)
    monkeypatch.setattr(steps, "_launcher", lambda *_: pytest.fail("looked again"))

    steps.attached(found)


def test_where_only_root_sees_the_sockets_our_own_rank_says_who_started_it(
    job: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, limit: int) -> list[str]:
        if path == f"{job.procfs}/{STEP}/fd":
            raise PermissionError
        return first_names(path, limit)

    monkeypatch.setattr("pinchpoint.threads.slurm.first_names", refuse)
    job.write(f"proc/{RANK}/environ", b"HOME=/\0SLURM_SRUN_COMM_PORT=5000\0PATH=/bin\0")
    assert processes(job)[STEP].ppid == 1

    monkeypatch.setattr(os, "getuid", lambda: ALICE)
    assert processes(job)[STEP].ppid == SRUN


def test_each_slurmstepd_is_found_also_one_that_slurmd_was_a_moment_ago(job: Machine) -> None:
    job.process(50, "slurmd")
    others: set[int] = set()
    assert set(find_slurmstepds(job.procfs, others)) == {BATCH, STEP}
    assert others == {SCRIPT, SRUN, SRUNS_CHILD, RANK}

    job.process(50, "slurmstepd")
    assert set(find_slurmstepds(job.procfs, others)) == {BATCH, STEP, 50}
