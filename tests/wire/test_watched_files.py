from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinchpoint.wire.watched_files import MAX_WATCHED_FILE_BYTES, RACY_SECONDS, WatchedFiles, read_small


def watched(path: Path, age: float = 100.0) -> WatchedFiles:
    """Return the watch of a file that was read so many seconds after it was written."""
    changed = max(path.stat().st_mtime, path.stat().st_ctime)
    found = WatchedFiles(lambda: changed + age)
    found.read(path)
    return found


def rewritten_in_place(path: Path) -> None:
    path.write_text("two, longer")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("two")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.rename(path)


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [rewritten_in_place, replaced, removed])
def test_a_change_is_noticed_however_it_was_made(tmp_path: Path, change: object) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    files = watched(path)
    assert not files.changed

    assert callable(change)
    change(path)
    assert files.changed


def test_a_link_to_another_directory_is_noticed_as_kubernetes_changes_secrets(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text("same")
    (tmp_path / "data").symlink_to("first")
    files = watched(tmp_path / "data" / "key")

    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").rename(tmp_path / "data")
    assert files.changed


def test_a_file_that_had_just_been_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")

    assert watched(path, RACY_SECONDS / 2).changed
    assert not watched(path, RACY_SECONDS * 2).changed


def test_a_file_that_appears_is_noticed(tmp_path: Path) -> None:
    files = WatchedFiles()
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "file")
    assert not files.changed

    (tmp_path / "file").write_text("one")
    assert files.changed


def test_what_is_not_a_small_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(bytes(MAX_WATCHED_FILE_BYTES + 1))

    with pytest.raises(ValueError, match="not a regular file"):
        read_small(tmp_path / "fifo")
    with pytest.raises(ValueError, match="longer than 1 MiB"):
        read_small(tmp_path / "long")
