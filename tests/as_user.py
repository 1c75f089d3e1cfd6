"""Runs `pinchpoint` as another user, without rights, as that user would start it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["NOBODY", "as_user", "user_environment"]

NOBODY = 65534
PACKAGES = ("pinchpoint", "click")
"""One that is installed from its sources, and one of those that are not."""


def as_user(*arguments: str, user: int = NOBODY) -> list[str]:
    """Return the command; skip the test if this cannot become another user, or if that one may not read the package."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another user")
    python = _readable(user)
    if not python:
        pytest.skip("another user may not read this Python or the files of this package")
    return [*_become(user), python, "-m", "pinchpoint", *arguments]


def user_environment(home: Path) -> dict[str, str]:
    """Return the environment of a user whose home is `home`."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": _places()}


def _become(user: int) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def _places() -> str:
    specs = (find_spec(name) for name in PACKAGES)
    return ":".join(str(Path(spec.origin).parents[1]) for spec in specs if spec is not None and spec.origin)


@cache
def _readable(user: int) -> str:
    """Return a Python that the user may run and that finds the package: this one may be in another user's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        done = subprocess.run(
            [*_become(user), python, "-m", "pinchpoint", "run", "--help"],
            env=user_environment(Path("/")),
            cwd="/",
            capture_output=True,
            check=False,
        )
        if not done.returncode:
            return python
    return ""
