from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.events import State
from recorder import record as recording
from recorder.capture import Capture, Change, OpenedFile, Written, read_capture
from recorder.record import FileRecorder, ProcessRecorder
from recorder.stage import Stage

SCRIPT = """
echo begin
exec 5>"$1"/phase.txt
echo one >&5
sleep 0.3
echo two >&5
sleep 0.3
echo wrong >&2
exit 3
"""

TESTS = Path(__file__).parents[1]


def record(folder: Path, watched: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recorder.record", "--watch", str(watched), str(folder), "--", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SECRET": "shall-not-be-recorded", "PYTHONPATH": str(TESTS)},
    )


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, disk: Path
) -> tuple[subprocess.CompletedProcess[str], Path, Path]:
    watched = disk / "watched"  # not below /dev, where open files are not a benchmark's
    watched.mkdir()
    (watched / "before.txt").write_text("of another run\n")
    plan = watched / "plan.ini"
    plan.write_text("[global]\n")
    folder = tmp_path_factory.mktemp("captures") / "capture"
    return record(folder, watched, "sh", "-c", SCRIPT, "a b", str(watched), str(plan)), folder, watched


Recorded = tuple[subprocess.CompletedProcess[str], Path, Path]


def test_output_and_status_pass_through(recorded: Recorded) -> None:
    done, folder, _ = recorded
    assert done.returncode == 3
    assert done.stdout == "begin\n"
    assert done.stderr.startswith("wrong\n")
    assert "read it before you give it away" in done.stderr
    assert (folder / "stdout.txt").read_text() == "begin\n"
    assert (folder / "stderr.txt").read_text() == "wrong\n"


def test_a_recording_can_be_read(recorded: Recorded) -> None:
    _, folder, watched = recorded
    capture = read_capture(folder)
    assert capture.command == ["sh", "-c", SCRIPT, "a b", str(watched), str(watched / "plan.ini")]
    assert capture.ended is State.FAILED
    assert 0.6 <= capture.duration < 60
    assert [arrival.data for arrival in capture.output] == [b"begin\n"]
    texts: dict[str, bytes] = {}
    for written in capture.files:
        texts[written.path] = (texts.get(written.path, b"") if written.appended else b"") + written.data
    assert texts == {str(watched / "phase.txt"): b"one\ntwo\n", str(watched / "plan.ini"): b"[global]\n"}


def test_processes_have_their_open_files(recorded: Recorded) -> None:
    _, folder, watched = recorded
    changes = read_capture(folder).processes or []
    shell = changes[0].pid
    # Until execve has set up its memory, a process has no command line.
    assert next(change.argv for change in changes if change.argv) == (
        "sh",
        "-c",
        SCRIPT.replace("\n", "\ufffd"),
        "a b",
        str(watched),
        str(watched / "plan.ini"),
    )
    opened = [file for change in changes if change.pid == shell for file in change.files or ()]
    assert {(file.path, file.position) for file in opened} >= {(str(watched / "phase.txt"), 4)}
    assert {change.comm for change in changes} >= {"sh", "sleep"}
    assert changes[-1].gone


def test_no_environment_is_recorded(recorded: Recorded) -> None:
    _, folder, _ = recorded
    assert "shall-not-be-recorded" not in "".join(path.read_text() for path in folder.iterdir())


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stdout.txt").write_text("precious")
    assert record(tmp_path, tmp_path, "true").returncode == 2
    assert (tmp_path / "stdout.txt").read_text() == "precious"


def test_a_command_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    done = record(tmp_path / "capture", tmp_path, "no-such-command")
    assert (done.returncode, done.stderr) == (2, "pinchpoint: no-such-command: no such command\n")
    assert not (tmp_path / "capture").exists()


def test_a_signal_that_ends_the_command_is_recorded(tmp_path: Path) -> None:
    done = record(tmp_path / "capture", tmp_path, "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15
    meta = json.loads((tmp_path / "capture" / "meta.json").read_text())
    assert (meta["rc"], meta["signal"]) == (None, "TERM")
    assert read_capture(tmp_path / "capture").ended is State.STOPPED


def played(tmp_path: Path) -> Stage:
    return Stage(tmp_path, 1e9)


def rows(file: io.StringIO) -> list[list[str]]:
    return [line.split("\t") for line in file.getvalue().splitlines()[1:]]


def test_mere_progress_becomes_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SLOWER", 64)
    stage, file = played(tmp_path), io.StringIO()
    recorder = ProcessRecorder(file)
    for number in range(200):
        stage.change(Change(0.0, 7, 1, "ior", argv=("ior",), files=(OpenedFile(3, f"/data/{number}", number, 1),)))
        recorder.look(stage.tree(number * recording.INTERVAL * 1.01), number * recording.INTERVAL * 1.01)
    assert 64 + 136 // 4 < len(rows(file)) < 64 + 136


def test_what_tells_of_a_phase_is_written_at_once(tmp_path: Path) -> None:
    stage, file = played(tmp_path), io.StringIO()
    recorder = ProcessRecorder(file)
    for number, name in enumerate(["ior-easy-write", "ior-hard-write", "ior-hard-write"]):
        stage.change(Change(0.0, 7, 1, "io500", argv=("io500",), files=(OpenedFile(3, f"/r/{name}.txt", 0, 1),)))
        recorder.look(stage.tree(number / 100), number / 100)
    assert [row[0] for row in rows(file)] == ["0.000", "0.010"]


def test_threads_are_recorded_by_name(tmp_path: Path) -> None:
    stage, file = played(tmp_path), io.StringIO()
    stage.change(Change(0.0, 7, 1, "rados", argv=("rados",), threads=("rados", "log", "write,stat")))
    ProcessRecorder(file).look(stage.tree(0.0), 0.0)
    (tmp_path / "procs.tsv").write_text(file.getvalue())
    changes = read_capture(tmp_path).processes
    assert changes is not None
    assert changes[0].threads == ("rados", "log", "write_stat")


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")).map(lambda text: text[:50])))
def test_any_command_line_can_be_recorded(argv: list[str]) -> None:
    """It is replayed as the tree shows it: unprintable characters are replaced."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage, file = Stage(folder, 1e9), io.StringIO()
        stage.change(Change(0.0, 7, 1, "x", argv=tuple(argv), files=(OpenedFile(3, "/a b@1", 5, 0o100001),)))
        tree = stage.tree(0.0)
        ProcessRecorder(file).look(tree, 0.0)
        (folder / "procs.tsv").write_text(file.getvalue())
        changes = read_capture(folder).processes
        assert changes is not None
        assert list(changes[0].argv) == tree.argv(7)
        assert changes[0].files == (OpenedFile(3, "/a b@1", 5, 0o100001),)


def test_a_file_that_is_made_anew_is_told_apart_from_one_that_grows(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    kept, file = tmp_path / "watched" / "result.txt", io.StringIO()
    recorder = FileRecorder(file, [tmp_path / "watched"])
    for number, text in enumerate(["one\n", "one\ntwo\n", "x\n", "\0data"]):
        kept.write_text(text)
        recorder.look(float(number))
    (tmp_path / "files.tsv").write_text(file.getvalue())
    capture = read_capture(tmp_path)
    assert isinstance(capture, Capture)
    assert capture.files == [
        Written(0.0, str(kept), b"one\n", False),
        Written(1.0, str(kept), b"two\n", True),
        Written(2.0, str(kept), b"x\n", False),
    ]
