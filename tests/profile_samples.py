"""The recorded samples of a small program: `tests/fixtures/profile/origin.txt` says how they came about."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from machine import Machine
from pinchpoint.profile.binaries import Binaries, Image

__all__ = ["MAPS", "PID", "PROGRAM", "RECORDS", "toy_image"]

FIXTURES = Path(__file__).parent / "fixtures" / "profile"
PROGRAM, MAPS, RECORDS = ((FIXTURES / name).read_bytes() for name in ("toy", "toy.maps", "toy.records"))
PID = 3717


def toy_image(machine: Machine, fstype: str = "ext4", inode: int | None = None) -> Image:
    """Return the program as a process of a machine: its root directory has the file."""
    root = machine.procfs / str(PID) / "root" / "opt"
    root.mkdir(parents=True)
    shutil.copy(FIXTURES / "toy", root / "toy")
    found = os.stat(root / "toy")
    major, minor = os.major(found.st_dev), os.minor(found.st_dev)
    there = b"%02x:%02x %d " % (major, minor, found.st_ino if inode is None else inode)
    machine.write(f"proc/{PID}/maps", MAPS.replace(b"fe:00 6291486 ", there))
    machine.write(f"proc/{PID}/mountinfo", f"1 1 {major}:{minor} / / rw - {fstype} disk rw\n")
    return Image(machine.procfs, PID, Binaries(machine.procfs, machine.procfs.parent))
