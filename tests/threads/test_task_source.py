from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from machine import Machine, stat_line
from patience import patience
from pinchpoint.bpf.choice import choose_source
from pinchpoint.host.procfs import first_names, parse_schedstat, read_bytes
from pinchpoint.threads.task_source import KeptFile, ProcfsSource, Times, choose_times, raise_file_limit
from polling import until

SECOND = 1_000_000_000
BOOTED = 1000.0
"""Seconds since boot at the start of a test."""


@pytest.fixture(autouse=True)
def every_descriptor_is_given_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(KeptFile, "kept", 0)
    yield
    assert KeptFile.kept == 0


@pytest.fixture(params=["kept", "opened each time"])
def descriptors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with kept descriptors, and without."""
    monkeypatch.setattr(KeptFile, "limit", 512 if request.param == "kept" else 0)


@pytest.fixture
def source(machine: Machine, descriptors: None) -> Iterator[ProcfsSource]:
    machine.uptime(BOOTED)
    source = ProcfsSource(machine.procfs)
    yield source
    source.close()


def used(source: ProcfsSource, now: float) -> dict[int, tuple[float, float]]:
    return {task.tid: (run / SECOND, wait / SECOND) for task, run, wait in source.sample(now)}


def names(source: ProcfsSource) -> dict[int, str]:
    return {task.tid: task.comm for task in source.tasks()}


def test_what_threads_used_since_the_last_sample_is_given_and_nothing_else(
    machine: Machine, source: ProcfsSource
) -> None:
    machine.process(10, "fio", threads={10: "fio", 11: "fio", 12: "log"})
    machine.ran(10, 11, 100.0, 5.0)
    source.follow([10], 0.0)
    assert used(source, 0.1) == {}

    machine.ran(10, 11, 100.25, 5.5)
    assert used(source, 0.2) == {11: (0.25, 0.5)}
    assert used(source, 0.3) == {}


def test_threads_of_other_processes_are_not_followed(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    machine.process(20, "bash")
    source.follow([10], 0.0)
    assert names(source) == {10: "fio", 11: "fio"}

    source.follow([20], 1.0)
    assert names(source) == {20: "bash"}


def test_a_newborn_thread_counts_from_zero(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "fio", start=100)
    source.follow([10], 0.0)
    machine.process(10, "fio", threads={10: "fio", 11: "worker"}, start=int(BOOTED * 100) + 5)
    machine.ran(10, 11, 0.06, 0.01)
    machine.uptime(BOOTED + 0.2)
    source.follow([10], 0.2)

    assert used(source, 0.2) == {11: (0.06, 0.01)}


def test_so_does_one_that_is_met_long_after_the_look_began(machine: Machine, source: ProcfsSource) -> None:
    """On a busy machine seconds may pass between two lines."""
    machine.process(10, "fio", start=100)
    source.follow([10], 0.0)
    machine.process(10, "fio", threads={10: "fio", 11: "worker"}, start=int(BOOTED * 100) + 5)
    machine.ran(10, 11, 0.06, 0.01)
    machine.uptime(BOOTED + 5.0)
    source.follow([10], 0.2)

    assert used(source, 0.2) == {11: (0.06, 0.01)}


def test_an_old_process_that_became_interesting_does_not_count_with_its_past(
    machine: Machine, source: ProcfsSource
) -> None:
    machine.process(10, "ior", start=int(BOOTED * 100) - 3000)
    machine.ran(10, 10, 29.0)
    source.follow([], 0.0)
    machine.uptime(BOOTED + 0.2)
    source.follow([10], 0.2)
    assert used(source, 0.2) == {}

    machine.ran(10, 10, 29.1)
    assert used(source, 0.3)[10] == pytest.approx((0.1, 0))


@pytest.mark.parametrize("uptime", ["", "x\n", "nan 0\n", "5.00 0\n"])
def test_where_no_age_is_to_be_had_a_past_is_not_counted(machine: Machine, source: ProcfsSource, uptime: str) -> None:
    machine.write("proc/uptime", uptime)
    source.follow([], 0.0)
    machine.process(10, "ior", start=int(BOOTED * 100))
    machine.ran(10, 10, 29.0)
    source.follow([10], 1.0)

    assert used(source, 1.0) == {}


def test_a_thread_that_vanishes_between_listing_and_reading_is_left_out(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    (machine.procfs / "10" / "task" / "12").mkdir()
    source.follow([10, 99], 0.0)

    assert names(source) == {10: "fio", 11: "fio"}
    assert source.unreadable == 0


def test_a_thread_that_ended_is_forgotten_with_its_descriptor(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    source.follow([10], 0.0)
    machine.end(10, 11)
    source.follow([10], 1.0)

    assert names(source) == {10: "fio"}
    assert KeptFile.kept <= 1


@pytest.mark.parametrize("raw", [b"", b"1 2\n", b"x y z\n", b"9" * 600])
def test_a_file_that_changes_its_format_costs_only_its_thread(
    machine: Machine, source: ProcfsSource, raw: bytes
) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    source.follow([10], 0.0)
    machine.write("proc/10/task/11/schedstat", raw)
    machine.ran(10, 10, 0.5)

    assert used(source, 1.0) == {10: (0.5, 0)}
    assert names(source) == {10: "fio"}


def test_a_reused_tid_counts_from_zero_under_its_own_name(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "fio", threads={11: "old"})
    machine.ran(10, 11, 7.0, 2.0)
    source.follow([10], 0.0)
    machine.write("proc/10/task/11/comm", "new\n")
    machine.ran(10, 11, 0.3, 0.1)

    assert used(source, 60.0) == {11: (0.3, 0.1)}
    assert names(source)[11] == "new"


@pytest.mark.parametrize("now", [0.1, 5.0])
def test_a_thread_that_renames_itself_just_after_birth_is_seen_with_its_new_name(
    machine: Machine, source: ProcfsSource, now: float
) -> None:
    machine.process(10, "ceph-osd", threads={11: "ceph-osd"})
    source.follow([10], 0.0)
    machine.write("proc/10/task/11/comm", "tp_osd_tp\n")
    machine.ran(10, 11, 0.1)
    source.sample(now)

    assert names(source)[11] == "tp_osd_tp"


def test_the_name_of_a_settled_thread_is_not_read_again(machine: Machine, source: ProcfsSource) -> None:
    machine.process(10, "ceph-osd", threads={11: "tp_osd_tp"})
    source.follow([10], 0.0)
    machine.write("proc/10/task/11/comm", "other\n")
    machine.ran(10, 11, 0.1)
    source.sample(30.0)

    assert names(source)[11] == "tp_osd_tp"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a b) (c", "a b) (c"),
        (b"new\nline", "new\ufffdline"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"x\n", "x\ufffd"),
    ],
)
def test_any_name_of_a_thread_can_be_printed(machine: Machine, source: ProcfsSource, raw: bytes, name: str) -> None:
    machine.process(10, "fio", threads={11: raw})
    source.follow([10], 0.0)

    assert names(source)[11] == name


def test_a_slow_thread_is_read_at_every_tenth_sample_and_loses_nothing(machine: Machine, descriptors: None) -> None:
    machine.process(10, "fio", threads={11: "log"})
    source = ProcfsSource(machine.procfs, period=lambda tgid, comm: 10 if comm == "log" else 1)
    source.follow([10], 0.0)
    seen = []
    for turn in range(1, 31):
        machine.ran(10, 10, turn / 10)
        machine.ran(10, 11, turn / 10)
        seen.append(used(source, turn / 10))
    source.close()

    assert [10 in sample for sample in seen] == [True] * 30
    assert sum(11 in sample for sample in seen) == 3
    assert sum(sample[11][0] for sample in seen if 11 in sample) == pytest.approx(3.0, abs=1.0)


def test_threads_that_may_not_be_read_are_counted_and_cost_nobody_else(
    machine: Machine, source: ProcfsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, "fio", threads={11: "fio"})
    machine.process(20, "ior")

    def refuse(path: str, limit: int) -> list[str]:
        if path.endswith("/20/task"):
            raise PermissionError(1, "Operation not permitted", path)
        return first_names(path, limit)

    monkeypatch.setattr("pinchpoint.threads.task_source.first_names", refuse)
    source.follow([10, 20], 0.0)

    assert names(source) == {10: "fio", 11: "fio"}
    assert source.unreadable == 1


def test_a_thread_that_may_not_be_read_is_counted(
    machine: Machine, source: ProcfsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, "fio", threads={11: "fio"})

    def refuse(path: str, limit: int = 4096) -> bytes:
        if path.endswith("/11/stat"):
            raise PermissionError(13, "Permission denied", path)
        return read_bytes(path, limit)

    monkeypatch.setattr("pinchpoint.threads.task_source.read_bytes", refuse)
    source.follow([10], 0.0)

    assert names(source) == {10: "fio"}
    assert source.unreadable == 1


def test_as_many_descriptors_are_kept_as_may_be_and_the_rest_is_read_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptFile, "limit", 5)
    machine.process(10, "fio", threads=dict.fromkeys(range(10, 30), "fio"))
    source = ProcfsSource(machine.procfs)
    source.follow([10], 0.0)
    assert KeptFile.kept == 5

    for tid in range(10, 30):
        machine.ran(10, tid, 1.0)
    assert used(source, 1.0) == dict.fromkeys(range(10, 30), (1.0, 0))
    source.close()


def test_schedstat_is_the_best_file_and_has_no_reason(machine: Machine) -> None:
    machine.process(10, "fio")
    machine.ran(10, 10, 0.1)

    source = choose_source(machine.procfs, lambda tgid, comm: 1, "kept")

    assert (source.name, source.file, source.reason) == ("kept", "schedstat", "")


def test_without_schedstat_the_times_are_those_of_stat(machine: Machine) -> None:
    machine.process(10, "fio")
    (machine.procfs / "10" / "schedstat").unlink()
    source = choose_source(machine.procfs, lambda tgid, comm: 1, "kept")
    source.follow([10], 0.0)
    ticks = os.sysconf("SC_CLK_TCK")
    machine.write("proc/10/task/10/stat", stat_line(10, "fio", utime=2 * ticks, stime=ticks))

    assert (source.file, source.reason) == ("stat", "no schedstat")
    assert [(task.tid, run, wait) for task, run, wait in source.sample(1.0)] == [(10, 3 * SECOND, 0)]
    source.close()


def test_a_schedstat_that_is_all_zero_is_none(machine: Machine) -> None:
    machine.process(10, "fio")
    machine.process(11, "fio")

    assert (choose_times(machine.procfs).file, choose_times(machine.procfs).reason) == ("stat", "schedstat is all zero")


def test_a_procfs_without_processes_says_so(machine: Machine) -> None:
    assert (choose_times(machine.procfs).file, choose_times(machine.procfs).reason) == (
        "stat",
        "no processes to be seen",
    )


def test_this_kernels_own_source_sees_this_process_run() -> None:
    times = choose_times(Path("/proc"))
    source = ProcfsSource(Path("/proc"), times)
    source.follow([os.getpid()], 0.0)
    # The times are from the last tick or switch.
    found = until(10, lambda: {task.tgid: run for task, run, wait in source.sample(1.0)})
    source.close()

    assert found[os.getpid()] > 0


def test_a_kept_descriptor_shows_the_end_of_its_thread(machine: Machine) -> None:
    child = subprocess.Popen(["sleep", "60"])
    source = ProcfsSource(Path("/proc"), Times("schedstat", parse_schedstat, 64))
    source.follow([child.pid], 0.0)
    assert names(source)
    child.kill()
    child.wait()
    source.sample(1.0)

    assert names(source) == {}
    source.close()


MANY_THREADS = """
import json, os, resource, sys, threading
from pathlib import Path
from pinchpoint.threads.task_source import KeptFile, ProcfsSource, raise_file_limit

threads, limit = map(int, sys.argv[1:])
if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
raise_file_limit()
threading.stack_size(32768)
done, go = threading.Event(), threading.Barrier(threads + 1)
def work():
    go.wait()
    x = sum(range(2000))
    go.wait()
    done.wait()
workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
for worker in workers:
    worker.start()
source = ProcfsSource(Path("/proc"))
source.follow([os.getpid()], 0.0)
source.sample(0.0)
followed = len(list(source.tasks()))
go.wait()
go.wait()
ran = {task.tid for task, run, wait in source.sample(1.0)}
print(json.dumps({"followed": followed, "ran": len(ran & {worker.native_id for worker in workers}),
                  "kept": KeptFile.kept, "unreadable": source.unreadable}))
os._exit(0)
"""


def run_with_threads(threads: int, limit: int = 0) -> dict[str, int]:
    command = [sys.executable, "-c", MANY_THREADS, str(threads), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_every_thread_is_seen_under_a_low_limit_of_open_files() -> None:
    found = run_with_threads(500, limit=64)

    assert found["followed"] == 501
    assert found["ran"] == 500
    assert found["kept"] == 32
    assert found["unreadable"] == 0


def test_ten_thousand_threads_are_followed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptFile, "limit", 64)
    machine.process(1, "ceph-osd", threads=dict.fromkeys(range(1, 51), "tp_osd_tp"))
    # The other TIDs are links to the files of the same fifty threads: only the number matters here.
    task = machine.procfs / "1" / "task"
    for tid in range(51, 10_001):
        (task / str(tid)).symlink_to(str(tid % 50 + 1))
    source = ProcfsSource(machine.procfs)
    source.follow([1], 0.0)
    for tid in range(1, 51):
        machine.ran(1, tid, 0.5)

    assert len(source.sample(1.0)) == 10_000
    source.close()


@pytest.mark.parametrize(
    ("soft", "hard", "kept"), [(64, 64, 32), (64, 4096, 3840), (1024, 1024, 768), (20000, 20000, 19744)]
)
def test_the_limit_of_open_files_is_raised_and_a_reserve_of_it_left(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, kept: int
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(KeptFile, "limit", 0)
    monkeypatch.setattr("resource.getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda which, limits: asked.append(limits))

    assert raise_file_limit() == kept
    assert asked == ([(hard, hard)] if soft != hard else [])
