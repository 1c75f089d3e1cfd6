"""The recipes of CONTRIBUTING.md, followed literally in a copy of the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from patience import patience

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```(toml|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
RECIPES = ["Add a role"]


def blocks(recipe: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks of a recipe, in order."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
    return [(language, textwrap.dedent(text)) for language, text in BLOCK.findall(section)]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of what is committed or would be, with the environment of this tree."""
    tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        files = subprocess.run(tracked, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no repository: what belongs to the tree is not known")
    copied = "".join(f"{name}\0" for name in files if name and os.path.lexists(ROOT / name))
    tree = tmp_path / "tree"
    tree.mkdir()
    packed = subprocess.run(
        ["tar", "--null", "--files-from=-", "-cf", "-"], cwd=ROOT, input=copied.encode(), stdout=-1, check=True
    )
    subprocess.run(["tar", "-xf", "-"], cwd=tree, input=packed.stdout, check=True)
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_that_is_followed_ends_green(recipe: str, copy: Path) -> None:
    # The copy's own package comes before the installed one, and nothing is installed.
    environment = {**os.environ, "PYTHONPATH": str(copy / "exporter"), "MAKEFLAGS": "-o setup"}
    found = blocks(recipe)
    assert {language for language, _ in found} == {"toml", "sh"}
    for language, text in found:
        if language == "toml":
            name, entry = text.removeprefix("# ").split("\n", 1)
            with (copy / name).open("a") as file:
                file.write(f"\n{entry}")
        else:
            done = subprocess.run(
                ["bash", "-euc", text], cwd=copy, env=environment, capture_output=True, text=True, check=False,
                timeout=patience(120),
            )  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_an_entry_that_is_not_generated_anew_is_seen(copy: Path) -> None:
    """Else the recipe would be green whatever it says."""
    with (copy / "exporter/pinchpoint/resources.toml").open("a") as file:
        file.write('\n[other]\nwhat = "x"\ndo = "X."\nrunbook = "DiskSaturated"\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/test_generate.py"],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy / "exporter")}, capture_output=True, text=True, check=False,
        timeout=patience(60),
    )  # fmt: skip
    assert done.returncode == 1
    assert "make generated" in done.stdout
