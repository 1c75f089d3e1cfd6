from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.benchmarks.markers import Marker
from pinchpoint.runs import PhaseMark, Result, run_id
from pinchpoint.session import store
from pinchpoint.session.store import RunRecord, StoreError

NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pinchpoint" / "runs"


def keep(run: str, start: float = NOW, **changes: object) -> Path:
    name, directory = store.new_run_directory(run)
    store.save(directory, record(name, start, **changes))
    return directory


def record(run: str, start: float = NOW, **changes: object) -> RunRecord:
    marker = Marker(run, "fio", start, start + 1, pid=1, pid_start=2, command_pid=3, tags={"a": "b"})
    return RunRecord(marker, ["fio", "x"], **changes)  # type: ignore[arg-type]


def names(records: list[RunRecord]) -> list[str]:
    return [found.marker.run for found in records]


def test_what_was_saved_is_read_as_it_was_and_nothing_else_is_left_beside_it(state: Path) -> None:
    saved = record("r", exit_status=3, origin="/a/file", note="c6 off", facts={"this host": {"mtu": ["1500"]}})
    saved.marker.phases = [PhaseMark("write", NOW, NOW + 1, [Result("write", "bytes_per_second", 1e9, "1 GB/s")])]
    _, directory = store.new_run_directory("r")
    store.save(directory, saved)
    store.save(directory, saved)

    assert store.load(directory) == saved
    assert os.listdir(directory) == ["run.json"]


def test_a_run_of_a_version_without_facts_is_read(state: Path) -> None:
    directory = keep("r")
    document = json.loads((directory / "run.json").read_bytes())
    del document["facts"], document["note"]
    (directory / "run.json").write_text(json.dumps(document))

    found = store.load(directory)

    assert (found.facts, found.note) == ({}, "")


def test_a_runs_directory_is_for_its_owner_alone(state: Path) -> None:
    assert stat.S_IMODE(keep("r").stat().st_mode) == 0o700


def test_a_run_that_could_not_be_saved_leaves_the_one_before(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = keep("r")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        store.save(directory, record("r", exit_status=1))

    assert store.load(directory).exit_status is None
    assert os.listdir(directory) == ["run.json"]


def test_runs_are_kept_where_xdg_says_or_else_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert store.state_directory() == Path("/state/pinchpoint/runs")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/home/a")
    assert store.state_directory() == Path("/home/a/.local/state/pinchpoint/runs")


def test_a_second_run_of_that_name_in_one_second_gets_a_number(state: Path) -> None:
    assert [store.new_run_directory("r")[0] for _ in range(3)] == ["r", "r-2", "r-3"]
    assert [store.new_run_directory("r@uid1000")[0] for _ in range(2)] == ["r@uid1000", "r-2@uid1000"]


def test_the_name_of_a_run_has_no_mark() -> None:
    run = run_id("my run", ["fio"], NOW, "@uid1000")

    assert run == "20231114T221320Z-my-run@uid1000"
    assert store.name_of(run) == "my-run"


@given(st.text(), st.text(min_size=1))
def test_an_id_is_safe_in_a_path_and_a_label(name: str, command: str) -> None:
    run = run_id(name, [command], NOW)

    assert run.startswith("20231114T221320Z-")
    assert run.isascii()
    assert not set(run) & set("/\0 \n\"'*?[],")
    assert len(run) < 70


def test_without_any_run_there_is_none(state: Path) -> None:
    assert store.runs() == []


def test_runs_come_oldest_first_whatever_their_names_are(state: Path) -> None:
    keep("b", NOW)
    keep("a", NOW + 1)
    keep("c", NOW - 1)

    assert names(store.runs()) == ["c", "b", "a"]


def test_a_run_that_cannot_be_read_is_told_of_and_hides_no_other(state: Path) -> None:
    keep("good")
    broken = {
        "cut": b'{"marker": {"run"',
        "other": json.dumps({"marker": {"run": "cut"}}).encode(),
        "bytes": b"\xff\xfe",
        "nested": b"[" * 100_000,
        "empty": b"",
    }
    for name, content in broken.items():
        (keep(name) / "run.json").write_bytes(content)
    (state / "nothing").mkdir()
    os.mkfifo(keep("fifo") / "part")
    (state / "fifo" / "part").rename(state / "fifo" / "run.json")
    keep("first").rename(state / "renamed")
    (state / "a-file").write_text("x")
    warnings: list[str] = []

    assert names(store.runs(warnings.append)) == ["good"]
    assert sorted(Path(line.split(": ")[0]).parent.name for line in warnings) == sorted(
        [*broken, "nothing", "fifo", "renamed"]
    )


@given(st.binary())
def test_any_bytes_are_a_run_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.getbasetemp() / "any-run"
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_bytes(content)

    with pytest.raises(StoreError, match=r"any-run/run\.json: "):
        store.load(directory)


def test_a_run_that_an_older_version_kept_is_read(state: Path) -> None:
    _, directory = store.new_run_directory("old")
    fields = {"run": "old", "benchmark": "fio", "pid": 1, "pid_start": 2, "command_pid": 3, "start": NOW, "end": NOW}
    (directory / "run.json").write_text(json.dumps({"marker": fields, "command": ["fio"], "exit_status": 0}))

    assert store.load(directory).origin == ""


@pytest.fixture
def diary(state: Path) -> None:
    for number in (1, 2, 10):
        keep(f"20231114T221320Z-diary-{number:02}", NOW + number)
    keep("20231114T221330Z-base", NOW + 20)
    keep("20231114T221331Z-base-tuned", NOW + 21)


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("last", "20231114T221331Z-base-tuned"),
        ("20231114T221330Z-base", "20231114T221330Z-base"),
        ("20231114T221331Z", "20231114T221331Z-base-tuned"),
        ("20231114T221320Z-diary-1", "20231114T221320Z-diary-10"),
        ("base", "20231114T221330Z-base"),
        ("tuned", "20231114T221331Z-base-tuned"),
        ("diary-02", "20231114T221320Z-diary-02"),
    ],
)
def test_a_run_is_found_by_its_id_or_name_or_what_is_unique_of_them(diary: None, text: str, run: str) -> None:
    assert store.find(text).marker.run == run


@pytest.mark.parametrize("text", ["20231114T221320Z", "diary", "20231114"])
def test_what_means_several_runs_is_an_error_that_says_which_and_what_to_do(diary: None, text: str) -> None:
    with pytest.raises(StoreError, match=r"diary-01, .*diary-02, .*with commas or a pattern such as"):
        store.find(text)


@pytest.mark.parametrize("text", ["nothing", "", "LAST", "/", "*"])
def test_what_means_no_run_is_an_error_that_says_where_to_look(diary: None, text: str) -> None:
    with pytest.raises(StoreError, match="`pinchpoint runs` lists"):
        store.find(text)


def test_where_no_run_is_kept_the_error_says_what_keeps_them(state: Path) -> None:
    with pytest.raises(StoreError, match="`pinchpoint import`"):
        store.find("last")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*diary*", ["diary-01", "diary-02", "diary-10"]),
        ("*diary-0?", ["diary-01", "diary-02"]),
        ("diary-0?", ["diary-01", "diary-02"]),
        ("20231114T22132*", ["diary-01", "diary-02", "diary-10"]),
        ("*diary-[!0]*", ["diary-10"]),
        ("base,diary-01", ["diary-01", "base"]),
        ("diary-01,*diary-0*,diary-01", ["diary-01", "diary-02"]),
        ("last", ["base-tuned"]),
    ],
)
def test_a_group_is_several_ids_or_a_pattern_and_has_no_run_twice(diary: None, text: str, found: list[str]) -> None:
    assert [store.name_of(run) for run in names(store.select(text))] == found


@pytest.mark.parametrize("text", ["*nothing*", "base,nothing", "base,", ","])
def test_a_part_of_a_group_that_means_no_run_is_an_error(diary: None, text: str) -> None:
    with pytest.raises(StoreError, match="no run"):
        store.select(text)


def test_a_disk_that_a_run_has_filled_still_takes_its_last_record(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        directory = disk / "r"
        directory.mkdir()
        store.reserve(directory)
        with suppress(OSError), (disk / "output").open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        store.save(directory, record("r"))

        assert store.load(directory) == record("r")
        assert not store.release(directory)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_without_a_reserve_keeps_the_record_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "r"
    directory.mkdir()
    store.save(directory, record("r"))

    def refuse(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="No space"):
        store.save(directory, record("r"))

    assert store.load(directory) == record("r")
    assert [path.name for path in directory.iterdir()] == [store.FILE]
