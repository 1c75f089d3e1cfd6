from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinchpoint.regular import open_regular
from pinchpoint.session.stacks import STACKS_FILE, saved_stacks
from pinchpoint.wire.recording import read_recording


def test_a_file_is_opened_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null"), tmp_path / "none"):
        with pytest.raises(OSError, match=r"not a regular file|No such file"):
            open_regular(path)


def test_a_fifo_in_place_of_what_a_run_saved_blocks_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / STACKS_FILE)
    os.mkfifo(tmp_path / "samples.om.gz")

    with pytest.raises(OSError, match="not a regular file"):
        saved_stacks(tmp_path)
    with pytest.raises(OSError, match="not a regular file"):
        list(read_recording(tmp_path / "samples.om.gz"))
