"""Where tests put temporary files; as a script, for scripts/setup and scripts/test.

python tests/scratch.py            # a directory with room
python tests/scratch.py memory     # one in memory, nothing if there is none
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["NEEDED", "memory_directory", "scratch_directory"]

NEEDED = 1 << 30
"""Bytes: a cluster with BlueStore and a stack write several hundred MB."""
MEMORY = Path("/dev/shm")
TREE = Path(__file__).resolve().parents[1]


def scratch_directory(needed: int = NEEDED) -> tuple[str, Path | None]:
    """Return "" and the first of the usual directories that has room, or the reason why there is none."""
    tried = []
    for directory in dict.fromkeys(
        Path(name) for name in (os.environ.get("TMPDIR", ""), tempfile.gettempdir(), "/var/tmp", TREE) if name
    ):
        try:
            free = shutil.disk_usage(directory).free
            with tempfile.TemporaryFile(dir=directory):
                pass
        except OSError as error:
            tried.append(f"{directory}: {error.strerror}")
            continue
        if free >= needed:
            return "", directory if directory != TREE else _below(TREE)
        tried.append(f"{directory}: {free >> 20} MiB free")
    return f"no directory has {needed >> 20} MiB for what is temporary ({'; '.join(tried)}); set TMPDIR", None


def memory_directory(directory: Path = MEMORY, needed: int = NEEDED) -> Path | None:
    """Return a directory of a file system in memory that has room, None if there is none.

    The tests create and delete tens of thousands of files. On ext4 without a journal, which many virtual machines have,
    that takes a tenth of their CPU time: it does not reuse an inode for 60 to 300 s, and looks at each of those on its
    way to a free one (recently_deleted, fs/ext4/ialloc.c, Linux 6.1).
    """
    try:
        usable = directory.is_mount() and not os.major(directory.stat().st_dev)
        return directory if usable and shutil.disk_usage(directory).free >= needed else None
    except OSError:
        return None


def _below(tree: Path) -> Path:
    directory = tree / ".tmp"
    directory.mkdir(exist_ok=True)
    return directory


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        print(memory_directory() or "")
        sys.exit()
    problem, found = scratch_directory()
    sys.exit(problem) if found is None else print(found)
