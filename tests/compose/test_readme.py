"""README's "Use it", typed from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopback import in_own_network
from patience import patience
from tree_copy import copy_tree

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^## Use it\n.*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = "typed:"


def typed() -> list[str]:
    found = BLOCK.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1].splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout that is set up."""
    return copy_tree(tmp_path / "tree", "tests/fixtures/")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network namespace, in which all ports are free")
def test_every_line_can_be_typed_one_after_the_other(programs: None, fio: str, tree: Path, tmp_path: Path) -> None:
    lines = typed()
    script = tmp_path / "script"
    script.write_text("".join(f"echo {MARK}\n{line}\necho >&2 status $?\n" for line in lines))
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_PORT")}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PAGER": "cat"}
    # A make below another one says which directory it enters.
    for name in ("PYTHONPATH", "MAKELEVEL", "MAKEFLAGS", "MFLAGS"):
        environment.pop(name, None)
    try:
        done = subprocess.run(
            in_own_network("bash", str(script)),
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience(300),
        )
    finally:
        subprocess.run([sys.executable, "compose/native.py", "down"], cwd=tree, capture_output=True, check=False)
    said = dict(zip(lines, done.stdout.split(f"{MARK}\n")[1:], strict=True))
    statuses = dict(zip(lines, map(int, re.findall(r"^status (\d+)$", done.stderr, re.MULTILINE)), strict=True))

    def of(beginning: str) -> str:
        return next(text for line, text in said.items() if line.startswith(beginning))

    # A check may find problems of this machine: then its status is 1.
    assert [line for line, status in statuses.items() if status and not line.startswith("pinchpoint check")] == []
    assert "http://127.0.0.1:9749" in of("make up")
    assert "1 host: " in of("pinchpoint check")
    assert done.stderr.count("samples from 127.0.0.1:9748") == done.stderr.count("saved in") == 2
    assert "load" in of("pinchpoint report")
    assert of("pinchpoint compare").startswith("base ")
    assert of("pinchpoint runbook").startswith("DiskSaturated\n")
    assert of("make down") == "The local stack is stopped.\n"
