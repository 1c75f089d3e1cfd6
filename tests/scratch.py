"""Where tests put temporary files; as a script, for scripts/setup and scripts/test."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["NEEDED", "scratch_directory"]

NEEDED = 1 << 30
"""Bytes: a cluster with BlueStore and a stack write several hundred MB."""
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


def _below(tree: Path) -> Path:
    directory = tree / ".tmp"
    directory.mkdir(exist_ok=True)
    return directory


if __name__ == "__main__":
    problem, found = scratch_directory()
    sys.exit(problem) if found is None else print(found)
