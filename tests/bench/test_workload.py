from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

import workload
from compiled import MissingError, compiled
from patience import Deadline
from pinchpoint.host.procfs import parse_schedstat
from workload import Group, ceph_host, running

FEW = [Group(2, "ceph-osd", "tp_osd_tp=3 log=1", 2, 50.0)]


def ours() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() == "ceph-osd"]


def comms(process: psutil.Process) -> Counter[str]:
    return Counter(path.read_text().strip() for path in Path(f"/proc/{process.pid}/task").glob("*/comm"))


def used(process: psutil.Process) -> dict[str, int]:
    files = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return {path.parent.name: parse_schedstat(path.read_bytes())[0] for path in files}


@pytest.fixture(params=["in C", "in Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both implementations of a process of the workload."""
    if request.param == "in Python":

        def no_compiler(name: str) -> Path:
            raise MissingError("no C compiler")

        monkeypatch.setattr(workload, "compiled", no_compiler)
    else:
        try:
            compiled("threads")
        except MissingError as error:
            pytest.skip(str(error))
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_processes_and_threads_have_their_names_and_ids() -> None:
    with running(FEW) as threads:
        processes = ours()

        assert threads == 2 * FEW[0].size == 10
        assert [comms(process) for process in processes] == [{"ceph-osd": 1, "tp_osd_tp": 3, "log": 1}] * 2
        assert [process.cmdline()[-2:] for process in processes] == [["-i", "0"], ["-i", "1"]]
        assert {Path(process.exe()).name for process in processes} == {"ceph-osd"}
    assert ours() == []


@pytest.mark.usefixtures("way")
def test_so_many_threads_wake_up_and_the_others_sleep() -> None:
    with running(FEW):
        process, awake = ours()[0], -1
        deadline = Deadline(10)
        # The first reading may include some that have just been started.
        while awake != 2 and not deadline.over:
            before = used(process)
            time.sleep(0.2)
            awake = sum(ns > before[tid] for tid, ns in used(process).items())

        assert awake == 2


@pytest.mark.parametrize("threads", [1_000, 1_001, 4_000, 10_000])
def test_a_host_has_so_many_threads(threads: int) -> None:
    assert sum(group.processes * group.size for group in ceph_host(threads)) == threads


@pytest.mark.parametrize("awake", [0, 10, 1_000])
def test_so_many_of_a_host_are_awake(awake: int) -> None:
    assert sum(group.processes * group.active for group in ceph_host(4_000, awake)) == awake


def test_all_of_a_host_are_all_but_the_leaders() -> None:
    groups = ceph_host(4_000, 4_000)

    assert sum(group.processes * group.active for group in groups) == 4_000 - sum(group.processes for group in groups)


def test_a_host_that_is_smaller_than_its_daemons_is_refused() -> None:
    with pytest.raises(ValueError, match="584"):
        ceph_host(500)


def test_nothing_is_left_of_a_workload_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "compiled", lambda name: Path("/bin/false"))

    with pytest.raises(MissingError, match="too few threads"), running(FEW):
        pass
    assert ours() == []
