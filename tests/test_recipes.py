"""The recipes of CONTRIBUTING.md and their examples in docs/examples.md, followed literally in a copy of the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from patience import patience
from tree_copy import copy_tree

ROOT = Path(__file__).parents[1]
PART = re.compile(r"^## ([^\n]+)$|^( *)(`{3,4})(\w+)\n(.*?)^\2\3$", re.MULTILINE | re.DOTALL)
"""A heading, or a block with its language and its text, which may contain headings too."""
FILE = re.compile(r"(?:#|<!--) (\S+)(?: -->)?\n")
"""The first line of a block: the file that it changes."""
RECIPES = {
    "Add a probe": {"docs/metrics.md", "tests/golden/vm.prom"},
    "Add a role": {"dashboards/json/threads.json", "tests/golden/vm.prom"},
    "Add a resource or change a threshold": {"tests/golden/vm.prom"},
    "Add a benchmark": {"docs/benchmarks.md", "docs/results.md"},
    "Add an alert": {"runbooks/README.md", "tests/golden/vm.prom"},
    "Add a panel": {"dashboards/json/clients.json"},
}
"""Files that each recipe generates anew, among others."""


def blocks(recipe: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks of a recipe and its example: first those that change files, in order."""
    found, heading = [], ""
    for page in ("CONTRIBUTING.md", "docs/examples.md"):
        for title, _, _, language, text in PART.findall((ROOT / page).read_text()):
            heading = title or heading
            if heading == recipe and language:
                found.append((language, textwrap.dedent(text)))
    return sorted(found, key=lambda block: block[0] == "sh")


def change(tree: Path, language: str, text: str) -> None:
    """Apply a block to a file: a hunk of a ``diff`` is found by its lines, anything else is appended."""
    match = FILE.match(text)
    assert match, text
    file, rest = tree / match[1], text[match.end() :]
    if language == "diff":
        content = file.read_text()
        for hunk in rest.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            assert content.count(f"\n{before}") == 1, f"{match[1]} should have this once:\n{before}"
            content = content.replace(f"\n{before}", "\n" + "".join(line[1:] for line in lines if line[0] != "-"))
        file.write_text(content)
    else:
        file.parent.mkdir(exist_ok=True)
        before = file.read_text() if file.exists() else ""
        between = "\n" if before and not rest.startswith("\n") else ""
        file.write_text(before + between + rest)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the tree."""
    return copy_tree(tmp_path / "tree")


def run(tree: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a copy, whose own package takes precedence over the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "exporter")}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=patience(120)
    )


def test_recipes_that_are_followed_end_green(copy: Path) -> None:
    """All of them in one copy: a copy and its `make generated` take 10 s of a CPU."""
    commands: dict[str, None] = {}
    for recipe in RECIPES:
        for language, text in blocks(recipe):
            if language == "sh":
                commands |= dict.fromkeys(text.splitlines())
            else:
                change(copy, language, text)
    assert next(iter(commands)) == "make generated"
    for command in commands:
        done = run(copy, "bash", "-euc", command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"

    left = {
        recipe: unchanged
        for recipe, names in RECIPES.items()
        if (unchanged := {name for name in names if (copy / name).read_bytes() == (ROOT / name).read_bytes()})
    }
    assert not left
    for check in (["check"], ["format", "--check"]):
        done = run(copy, sys.executable, "-m", "ruff", *check, ".")
        assert done.returncode == 0, done.stdout


def test_every_recipe_that_adds_something_is_followed() -> None:
    headings = re.findall(r"^## (Add .+)$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    assert headings == list(RECIPES)


def test_an_entry_that_is_not_generated_anew_is_seen(copy: Path) -> None:
    """Otherwise a recipe would pass whatever it says."""
    with (copy / "exporter/pinchpoint/resources.toml").open("a") as file:
        file.write('\n[other]\nwhat = "x"\ndo = "X."\nrunbook = "DiskSaturated"\n')
    done = run(copy, sys.executable, "-m", "pytest", "-q", "tests/test_generate.py")

    assert done.returncode == 1
    assert "make generated" in done.stdout
