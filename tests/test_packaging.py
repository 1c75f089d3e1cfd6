from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
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
WHEEL = SDIST.replace("sdist", "wheel")


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
    options = ["--quiet", "--no-compile", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
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


@pytest.mark.usefixtures("compiler")
def test_an_installed_package_has_every_module_its_data_and_the_bpf_objects(copy: Path, tmp_path: Path) -> None:
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
    assert objects(package) == OBJECTS >= {"tasks.bpf.o", "tasks_iter.bpf.o"}
    boards = ROOT / "dashboards" / "json"
    assert {file.name for file in (package / "dashboards").iterdir()} == {file.name for file in boards.iterdir()}


@pytest.mark.usefixtures("compiler")
def test_so_has_one_that_is_made_of_an_archive_of_sources(copy: Path) -> None:
    made = subprocess.run([sys.executable, "-c", SDIST], cwd=copy, check=True, capture_output=True, text=True)
    archive = shutil.move(copy / made.stdout.splitlines()[-1], copy.parent)
    listed = subprocess.run(["tar", "-tf", archive], check=True, capture_output=True, text=True).stdout.split()

    assert {Path(name).name for name in listed} >= {path.name for path in BPF.iterdir() if path.suffix in {".c", ".h"}}
    assert not [name for name in listed if name.endswith(".o")]
    assert objects(install(Path(archive))) == OBJECTS


@pytest.mark.parametrize("environment", [{"CLANG": "there-is-no-clang"}, {"PATH": "/there-is-no-make"}], ids=str)
def test_without_a_compiler_there_is_no_package_and_a_word_on_the_way_out(
    copy: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        install(copy, **environment)

    said = failed.value.stderr.decode()
    assert "no BPF programs" in said
    assert "PINCHPOINT_WITHOUT_BPF=1" in said


@pytest.mark.usefixtures("compiler")
def test_a_package_without_bpf_objects_is_made_if_asked_for_and_says_how_it_reads_threads(copy: Path) -> None:
    subprocess.run(["make", "-s", "-C", copy / "exporter" / "pinchpoint" / "bpf"], check=True)
    package = install(copy, PINCHPOINT_WITHOUT_BPF="1")
    program = "from pinchpoint.bpf.choice import choose_source; from pathlib import Path; "
    program += "source = choose_source(Path('/proc'), lambda tgid, comm: 1); print(source.name, source.reason)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(package.parent)}, check=True, capture_output=True,
        text=True,
    )  # fmt: skip

    assert objects(package) == set()
    assert (package / "bpf" / "tasks.py").is_file()
    assert done.stdout.startswith(f"kept no bpf: no tasks.bpf.o in {package / 'bpf'}: it is made by `make bpf`")


@pytest.mark.usefixtures("compiler")
def test_the_same_sources_make_the_same_wheel_wherever_and_whenever_they_are(copy: Path, tmp_path: Path) -> None:
    other = shutil.copytree(copy, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    made = []
    for source in (copy, other):
        done = subprocess.run(
            [sys.executable, "-c", WHEEL], cwd=source, check=True, capture_output=True, text=True,
            env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000"},
        )  # fmt: skip
        made.append((source / done.stdout.splitlines()[-1]).read_bytes())

    assert made[0] == made[1]


@pytest.mark.usefixtures("compiler")
def test_pip_and_pypi_can_use_what_make_wheel_makes(copy: Path) -> None:
    shutil.copy(ROOT / "Makefile", copy)
    command = ["make", "-s", "--old-file=setup", "wheel", f"python={sys.executable}"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=patience(180))

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_a_plain_installation_has_what_every_host_needs_and_no_library_for_pictures() -> None:
    required = [line for line in metadata.requires("pinchpoint") or () if "extra ==" not in line]

    needed = "PyYAML bcrypt click jinja2 markdown-it-py msgspec regex rich tomli"
    assert {line.partition(">")[0] for line in required} == set(needed.split())


def test_no_command_imports_a_library_of_an_extra_to_show_its_help(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise SystemExit('matplotlib was imported')")
    program = "from click.testing import CliRunner; from pinchpoint.cli import COMMANDS, main; "
    program += "print([name for name in COMMANDS if CliRunner().invoke(main, [name, '--help']).exit_code])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'exporter'}"}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.stdout == "[]\n"


def test_a_page_with_charts_needs_an_extra_and_says_which(tmp_path: Path) -> None:
    program = "import importlib.util as util; util.find_spec = lambda name: None; "
    program += "from pinchpoint.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "report", "--html", str(tmp_path / "page.html"), "last"],
        env={"PYTHONPATH": str(ROOT / "exporter"), "HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr == (
        "pinchpoint: --html draws charts with matplotlib, which is not installed: pip install 'pinchpoint[report]'\n"
    )
