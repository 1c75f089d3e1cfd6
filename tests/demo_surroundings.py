"""The environment of a demo that does not disturb anything and is not disturbed by anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from native import PARTS, TREE
from ports import stack_ports

__all__ = ["surroundings"]


@contextmanager
def surroundings(directory: Path) -> Iterator[dict[str, str]]:
    """Give an environment with free ports, and with its own directories for saved runs and for a cluster."""
    ports = {part.variable: str(port) for part, port in zip(PARTS.values(), stack_ports().values(), strict=True)}
    # Not below the directory: the path of a Unix socket is limited to 107 bytes.
    with TemporaryDirectory(prefix="demo-") as temporary:
        paths = {
            "PYTHONPATH": f"{TREE / 'compose'}:{TREE / 'tests'}",
            "XDG_STATE_HOME": str(directory / "kept"),
            "TMPDIR": temporary,
        }
        yield os.environ | ports | paths
