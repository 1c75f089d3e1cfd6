"""How long tests wait, and what they report when a wait fails."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import patience
import scratch
from patience import Deadline, Load, Stopwatch, Waits
from polling import WAITS, until

TICKS = 100


def load(seconds: float, *, runnable: int = 1, busy: float = 0, stolen: float = 0, disk: float = 0) -> Load:
    """Return the load of a machine so many seconds after its start, with the time of one CPU divided up."""
    total = seconds * TICKS
    return Load(
        time=seconds,
        total=total,
        idle=total * (1 - busy),
        stolen=total * stolen,
        runnable=runnable,
        disk=seconds * disk,
        disk_lately=disk,
    )


def test_a_machine_whose_cpus_nobody_waits_for_is_not_slow() -> None:
    assert load(1, runnable=1).slowness() == 1


def test_threads_that_wait_for_a_cpu_make_it_slow() -> None:
    cpus = os.cpu_count() or 1

    assert load(1, runnable=3 * cpus).slowness() == 3


def test_so_does_what_the_hypervisor_takes() -> None:
    assert load(2, stolen=0.25).slowness(load(1, stolen=0)) == pytest.approx(2)


def test_and_threads_that_wait_for_a_disk() -> None:
    assert load(2, disk=0.8).slowness() == pytest.approx(5)
    assert load(2, disk=0.8).slowness(load(1, disk=0.8)) == pytest.approx(5)
    assert load(2, runnable=8 * (os.cpu_count() or 1), disk=0.8).slowness() == 8


def test_the_machine_is_read_from_procfs(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text("some avg10=3.60 avg60=3.54 total=3049935967\nfull avg10=9\n")
    (tmp_path / "stat").write_text("cpu  10 1 5 70 4 0 2 8 0 0\ncpu0 1 2 3\n")
    (tmp_path / "loadavg").write_text("0.5 0.4 0.3 7/321 4711\n")

    found = Load.read(tmp_path)

    assert (found.total, found.idle, found.stolen, found.runnable) == (100, 74, 8, 7)
    assert (found.disk, found.disk_lately) == pytest.approx((3049.9, 0.036), rel=1e-3)


@pytest.mark.parametrize(("runnable", "passed"), [(1, 3.0), (4, 0.75)])
def test_a_second_counts_less_where_others_want_the_cpus(
    monkeypatch: pytest.MonkeyPatch, runnable: int, passed: float
) -> None:
    times = iter((0.0, 3.0))
    now = [0.0]

    def read() -> Load:
        now[0] = next(times)
        return load(now[0], runnable=runnable)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(patience, "calibrated", lambda: 1.0)
    monkeypatch.setattr(Load, "read", read)
    monkeypatch.setattr(time, "monotonic", lambda: 3.0)

    watch = Stopwatch()

    assert watch.tick() == pytest.approx(passed)


def test_patience_ends_and_says_what_was_waited_for() -> None:
    WAITS.begin()
    deadline = Deadline(0.0)

    assert deadline.over
    assert until(0.0, lambda: 1 > 2) is False
    report = WAITS.report()

    assert "until(0.0, lambda: 1 > 2)" in report["waits that timed out"]
    assert "patience for 0 s on an idle machine" in report["waits that timed out"]
    assert "MiB available" in report["this machine meanwhile"]
    WAITS.begin()
    assert "waits that timed out" not in Waits().report()


class TestTheScratchDirectory:
    def test_is_the_one_of_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))

        assert scratch.scratch_directory(1) == ("", tmp_path)

    def test_is_another_one_where_that_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
        problem, found = scratch.scratch_directory(1)

        assert problem == ""
        assert found is not None
        assert found.is_dir()

    def test_is_none_where_nothing_has_room_and_each_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        problem, found = scratch.scratch_directory(1 << 60)

        assert found is None
        assert f"{tmp_path}: " in problem
        assert problem.endswith("set TMPDIR")


class TestTheDirectoryInMemory:
    def test_is_one_with_room(self) -> None:
        if not scratch.MEMORY.is_mount():
            pytest.skip("/dev/shm is not mounted here")

        assert scratch.memory_directory(needed=0) == scratch.MEMORY
        assert scratch.memory_directory(needed=1 << 60) is None

    def test_is_not_a_directory_of_a_disk_or_one_that_is_missing(self, tmp_path: Path, disk_path: Path) -> None:
        assert scratch.memory_directory(tmp_path, 0) is None
        assert scratch.memory_directory(disk_path / "missing", 0) is None
