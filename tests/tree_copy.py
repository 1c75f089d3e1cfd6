"""Copies of this project's tree, for tests that change or run it as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["copy_tree"]

ROOT = Path(__file__).parent.parent
BUILT = ("exporter/**/*.o", *(f"{part}/**/*.pyc" for part in ("exporter", "dashboards", "scripts", "tests")))
"""What is built in the tree, also modules that pytest has rewritten: a copy would need 6 s of a CPU to compile them."""


def copy_tree(target: Path, *left_out: str) -> Path:
    """Copy all tracked files and those not ignored, with the environment of this tree; skip the test without git.

    What begins with a path of `left_out` is not copied.
    """
    tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        files = subprocess.run(tracked, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no repository: the files of the tree are unknown")
    files += [str(path.relative_to(ROOT)) for pattern in BUILT for path in ROOT.glob(pattern)]
    chosen = (name for name in files if name and os.path.lexists(ROOT / name) and not name.startswith(left_out))
    target.mkdir()
    packed = subprocess.run(
        ["tar", "--null", "--files-from=-", "-cf", "-"],
        cwd=ROOT,
        input="".join(f"{name}\0" for name in chosen).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(["tar", "-xf", "-"], cwd=target, input=packed.stdout, check=True)
    (target / ".venv").symlink_to(sys.prefix)
    # Make runs it first, and it would replace an environment that belongs to another directory.
    (target / "scripts" / "setup").write_text("#!/bin/sh\n")
    return target
