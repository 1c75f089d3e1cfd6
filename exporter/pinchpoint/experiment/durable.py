"""Files that are there, whole, whatever ends the process or the host."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["remove", "write"]


def write(path: Path, raw: bytes) -> None:
    """Replace a file, so that a reader sees the old or the new one, even after a crash of the host. Raises OSError.

    The data has to reach the disk before its name does, and the directory holds the name: fsync(2) and rename(2).
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            view = memoryview(raw)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    _keep_names(path.parent)


def remove(path: Path) -> None:
    """Remove a file, so that it is still gone after a crash of the host. Raises OSError."""
    path.unlink(missing_ok=True)
    _keep_names(path.parent)


def _keep_names(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
