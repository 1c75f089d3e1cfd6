from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from thrash.faults import full, small_disk


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")
def test_a_disk_is_full_only_while_the_fault_lasts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with small_disk(tmp_path):
        with full(tmp_path), pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            file.write_bytes(b"x")
        assert file.write_bytes(b"x") == 1

    assert not tmp_path.is_mount()
    assert not list(tmp_path.iterdir())
