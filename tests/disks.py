"""Disks of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["device_of"]


def device_of(path: Path) -> str:
    """Return MAJOR:MINOR of the whole disk that holds a file: a partition has no throttle (blkg_conf_open_bdev)."""
    number = path.stat().st_dev
    entry = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not entry.exists():
        pytest.skip(f"{path} is not on a disk; set TMPDIR to a directory on one")
    entry = entry.resolve()
    return ((entry.parent if (entry / "partition").exists() else entry) / "dev").read_text().strip()
