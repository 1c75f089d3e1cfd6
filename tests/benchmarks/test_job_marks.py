from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pinchpoint.benchmarks.job_marks import MAX_MARK_BYTES, MAX_MARKED_JOBS, JobMark, JobMarks

NOW = 1_700_000_000.0
ALICE, BOB = 1001, 1002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's marks count")


def a_mark(job: str = "4711", uid: int = ALICE, start: float = NOW) -> JobMark:
    return JobMark(job, uid, "alice", start)


@pytest.fixture
def marks(tmp_path: Path) -> JobMarks:
    return JobMarks(tmp_path / "runs")


def test_a_job_is_marked_from_its_begin_to_its_end(marks: JobMarks) -> None:
    assert list(marks.running()) == []
    marks.begin(a_mark())
    assert list(marks.running()) == [a_mark()]
    assert marks.end("4711")
    assert list(marks.running()) == []


def test_the_end_of_a_job_that_has_no_mark_changes_nothing(marks: JobMarks) -> None:
    assert not marks.end("4711")
    marks.begin(a_mark())
    assert not marks.end("4712")
    assert list(marks.running()) == [a_mark()]


def test_a_user_whose_only_job_runs_here_has_that_job(marks: JobMarks) -> None:
    marks.begin(a_mark("1", ALICE))
    marks.begin(a_mark("2", BOB))
    assert marks.by_user() == {ALICE: "1", BOB: "2"}
    marks.begin(a_mark("3", ALICE))
    assert marks.by_user() == {BOB: "2"}


def test_what_has_not_changed_is_listed_once(marks: JobMarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks.begin(a_mark())
    os.utime(tmp_path / "runs", (NOW, NOW))
    marks.running()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail("the directory was listed again"))
    assert list(marks.running()) == [a_mark()]


def test_the_jobs_that_began_last_are_kept(marks: JobMarks) -> None:
    for number in range(MAX_MARKED_JOBS + 3):
        marks.begin(a_mark(str(number), start=NOW + number))
    jobs = [mark.job for mark in marks.running()]
    assert (len(jobs), jobs[0]) == (MAX_MARKED_JOBS, str(MAX_MARKED_JOBS + 2))


def test_a_file_of_another_user_is_no_mark(marks: JobMarks, tmp_path: Path) -> None:
    marks.begin(a_mark())
    os.chown(tmp_path / "runs/4711.job", ALICE, ALICE)
    assert list(marks.running()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("4711.job"),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
        lambda path: path.write_text("{}"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("[" * MAX_MARK_BYTES),
        lambda path: path.write_text(" " * MAX_MARK_BYTES + '{"job":"1","uid":1,"user":"a","start":1}'),
        lambda path: path.write_text('{"job":"2","uid":1,"user":"a","start":1}'),
        lambda path: path.write_text('{"job":"","uid":1,"user":"a","start":1}'),
        lambda path: path.write_text('{"job":"1","uid":-1,"user":"a","start":1}'),
        lambda path: path.write_text('{"job":"1","uid":1,"user":"a","start":1e300}'),
        lambda path: path.write_text(f'{{"job":"1","uid":1,"user":"{"a" * 65}","start":1}}'),
    ],
    ids=["link", "fifo", "folder", "empty", "bytes", "deep", "long", "other name", "no job", "uid", "time", "user"],
)
def test_what_is_not_a_mark_is_left_out(marks: JobMarks, tmp_path: Path, make: Callable[[Path], object]) -> None:
    marks.begin(a_mark())
    make(tmp_path / "runs/1.job")
    assert list(marks.running()) == [a_mark()]


def test_a_mark_takes_the_place_of_what_another_user_put_there(marks: JobMarks, tmp_path: Path) -> None:
    marks.begin(a_mark("1"))
    (tmp_path / "runs/4711.job").write_text("in the way")
    os.chown(tmp_path / "runs/4711.job", BOB, BOB)
    marks.begin(a_mark())
    assert [mark.job for mark in marks.running()] == ["1", "4711"]


def test_no_mark_is_written_into_a_directory_that_another_user_made(tmp_path: Path) -> None:
    above = tmp_path / "anywhere"
    (above / "runs").mkdir(parents=True)
    above.chmod(0o777)
    os.chown(above / "runs", BOB, BOB)
    with pytest.raises(PermissionError, match="another user's directory"):
        JobMarks(above / "runs").begin(a_mark(start=time.time()))
