"""What scripts/setup installs for which target."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from lab.packages import packages, sets
from native import OPTIONAL, PARTS

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
DEMO = ("stack", "load")
DEBIAN_12 = "3.11.2"
"""Version of its Python."""


def sets_of(target: str) -> set[str]:
    """Return the sets that a target of make installs: those that its recipe names, or all of them."""
    head, recipe = re.findall(rf"^{target}:(.*)\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)[-1]
    named = re.search(r"scripts/setup(.*)", recipe)
    if named is None:
        assert "setup" in head.partition("##")[0].split(), f"make {target} installs nothing"
        return sets()
    return set(named[1].split())


def test_every_set_that_a_target_names_is_in_the_list() -> None:
    named = {name for line in re.findall(r"^\t@scripts/setup(.*)", MAKEFILE, re.MULTILINE) for name in line.split()}

    assert named <= sets() == {"stack", "load", "bpf", "ceph", "test", "bench", "packages"}


def test_the_demo_installs_what_it_starts_and_no_ceph_or_compiler() -> None:
    wanted = packages(*sets_of("demo"))
    parts = {program for part in PARTS.values() for program in part.programs[:1]}

    assert sets_of("demo") == set(DEMO)
    assert set(wanted) == parts | {"fio"}
    assert not parts & set(OPTIONAL)


def test_the_tests_install_everything() -> None:
    assert sets_of("test") == sets_of("prove") == sets_of("bench") == sets()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with scripts/setup, and the programs it calls in place of Debian's."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "scripts/packages", "setup.cfg", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "scratch.py", tmp_path / "tests")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$*" = "${*#* install}" ] || echo "$@" >>"$PIP_LOG"\n')
    python.chmod(0o755)
    return tmp_path


def set_up(tree: Path, *sets: str) -> tuple[str, list[str]]:
    """Run it as a user who cannot install packages; return what it said and what it asked pip for."""
    log = tree / "pip.log"
    log.unlink(missing_ok=True)
    # Without apt-get and the programs: everything is missing, and nothing can be installed.
    tools = tree / "tools"
    tools.mkdir(exist_ok=True)
    names = "bash grep sed cut paste sort cat sha256sum mktemp rm tail dirname env python3"
    for tool in names.split():
        found = shutil.which(tool)
        assert found is not None
        if not (tools / tool).exists():
            (tools / tool).symlink_to(found)
    done = subprocess.run(
        [tree / "scripts" / "setup", *sets],
        env={"PATH": str(tools), "PIP_LOG": str(log), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr, log.read_text().splitlines() if log.exists() else []


def installed_by(tool: str, asked: Sequence[str]) -> list[str]:
    """Return what a tool was asked for."""
    return [line.split()[-1] for line in asked if line.split()[:2] == ["-m", tool]]


def test_it_names_the_missing_programs_of_the_sets_alone(tree: Path) -> None:
    said, _ = set_up(tree, *DEMO)

    named = re.findall(r"^setup: no (\S+) \(", said, re.MULTILINE)
    assert named == [program for program in packages(*DEMO) if shutil.which(program, path=str(tree / "tools")) is None]
    assert len(named) == 4


def test_the_demo_does_not_install_what_only_tests_import_and_tests_add_it(tree: Path) -> None:
    _, demo = set_up(tree, *DEMO)
    _, again = set_up(tree, *DEMO)
    _, tests = set_up(tree)
    _, after = set_up(tree, *DEMO)

    assert installed_by("uv", demo) == ["setuptools", ".[stack]"]
    assert installed_by("uv", tests) == ["setuptools", ".[dev]"]
    assert {*installed_by("pip", demo + tests)} == {"uv"}
    assert again == after == []


@pytest.mark.parametrize("command", ["-m pip install -c constraints.txt uv", "-m uv pip install"])
def test_where_uv_cannot_be_had_or_fails_pip_installs_the_same(tree: Path, command: str) -> None:
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f'{python.read_text()}case "$*" in "{command}"*) exit 1 ;; esac\n')

    _, asked = set_up(tree, *DEMO)

    assert [name for name in installed_by("pip", asked) if name != "uv"] == ["setuptools", ".[stack]"]


def test_where_pip_has_an_index_of_its_own_uv_is_not_used(tree: Path) -> None:
    python = tree / ".venv" / "bin" / "python"
    python.write_text(
        f"{python.read_text()}[ \"$*\" != '-m pip config list' ] || echo global.index-url=http://mirror/\n"
    )

    _, asked = set_up(tree, *DEMO)

    assert installed_by("pip", asked) == ["setuptools", ".[stack]"]
    assert installed_by("uv", asked) == []


def test_an_unknown_set_is_named_with_those_that_exist(tree: Path) -> None:
    done = subprocess.run([tree / "scripts" / "setup", "grafana"], capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr == "setup: unknown set grafana; scripts/packages has bench bpf ceph load packages stack test\n"


def test_it_says_how_to_call_pinchpoint(tree: Path) -> None:
    said, _ = set_up(tree, *DEMO)

    assert f"setup: ready; to type pinchpoint: PATH={tree}/.venv/bin:$PATH" in said.splitlines()


def test_every_pinned_package_can_be_installed_on_the_python_of_debian_12() -> None:
    refused = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, pinned, version = line.partition("==")
        if not pinned:
            continue
        try:
            needed = metadata.metadata(name)["Requires-Python"]
        except metadata.PackageNotFoundError:  # of an extra that is not installed
            continue
        if needed and not SpecifierSet(needed).contains(DEBIAN_12):
            refused[f"{name} {version}"] = needed

    assert refused == {}
