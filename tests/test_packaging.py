from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import patience

ROOT = Path(__file__).parent.parent
BPF = ROOT / "exporter" / "pinchpoint" / "bpf"
OBJECTS = {path.with_suffix(".o").name for path in BPF.glob("*.bpf.c")}
LIST = """
import pkgutil, pinchpoint
print(pinchpoint.__file__)
for module in pkgutil.walk_packages(pinchpoint.__path__, "pinchpoint."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
        print(module.name)
"""
SDIST = "from setuptools import build_meta; print(build_meta.build_sdist('.'))"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the files that the package is built from, as in a fresh clone."""
    made = shutil.ignore_patterns("*.egg-info", "__pycache__", "*.bpf.o")
    shutil.copytree(ROOT / "exporter", tmp_path / "copy" / "exporter", ignore=made)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "copy")
    return tmp_path / "copy"


def install(source: Path, **environment: str) -> Path:
    """Install from a folder or an archive and return the path of `pinchpoint`."""
    target = source.parent / "site"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(source)],
        check=True,
        capture_output=True,
        timeout=patience(120),
        env={**os.environ, **environment},
    )
    return target / "pinchpoint"


def objects(package: Path) -> set[str]:
    return {path.name for path in package.rglob("*.bpf.o")}


@pytest.fixture
def compiler() -> None:
    if shutil.which("clang") is None or not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs clang and libbpf-dev")


def test_an_installed_package_has_every_module_and_its_data(copy: Path, tmp_path: Path) -> None:
    """The tree's own .venv links to the sources, where nothing can be missing."""
    package = install(copy)
    listed = subprocess.run(
        [sys.executable, "-c", LIST], env={"PYTHONPATH": str(package.parent)}, cwd=tmp_path, check=True,
        capture_output=True,
    )  # fmt: skip
    place, *names = listed.stdout.decode().split()

    assert place.startswith(str(package))
    sources = (ROOT / "exporter").rglob("pinchpoint/**/*.py")
    modules = {".".join(path.relative_to(ROOT / "exporter").with_suffix("").parts) for path in sources}
    assert set(names) == {name.removesuffix(".__init__") for name in modules} - {"pinchpoint", "pinchpoint.__main__"}
    assert (package / "threads" / "roles.toml").is_file()
    assert (package / "judge" / "verdicts.html.j2").is_file()
    for name in ("alerts/*.yml", "docs/*.md", "runbooks/*.md"):
        assert {file.name for file in package.glob(name)} == {file.name for file in ROOT.glob(name)}


@pytest.mark.usefixtures("compiler")
def test_an_installed_package_has_the_bpf_objects(copy: Path) -> None:
    assert objects(install(copy)) == OBJECTS >= {"tasks.bpf.o", "tasks_iter.bpf.o"}


@pytest.mark.usefixtures("compiler")
def test_so_has_one_that_is_made_of_an_archive_of_sources(copy: Path) -> None:
    made = subprocess.run([sys.executable, "-c", SDIST], cwd=copy, check=True, capture_output=True, text=True)
    archive = shutil.move(copy / made.stdout.splitlines()[-1], copy.parent)
    listed = subprocess.run(["tar", "-tf", archive], check=True, capture_output=True, text=True).stdout.split()

    assert {Path(name).name for name in listed} >= {path.name for path in BPF.iterdir() if path.suffix in {".c", ".h"}}
    assert not [name for name in listed if name.endswith(".o")]
    assert objects(install(Path(archive))) == OBJECTS


@pytest.mark.parametrize("environment", [{"CLANG": "there-is-no-clang"}, {"PATH": "/there-is-no-make"}], ids=str)
def test_without_a_compiler_it_is_complete_but_for_the_bpf_objects(copy: Path, environment: dict[str, str]) -> None:
    package = install(copy, **environment)
    program = "from pinchpoint.bpf.choice import choose_source; from pathlib import Path; "
    program += "source = choose_source(Path('/proc'), lambda tgid, comm: 1); print(source.name, source.reason)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(package.parent)}, check=True, capture_output=True,
        text=True,
    )  # fmt: skip

    assert objects(package) == set()
    assert (package / "bpf" / "tasks.py").is_file()
    assert done.stdout.startswith(f"kept no bpf: no tasks.bpf.o in {package / 'bpf'}: it is made by `make bpf`")
