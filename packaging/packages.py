"""Builds a deb and an rpm in dist/, each with its own Python: `make packages`.

    python packaging/packages.py [--version 0.1.1] [--target dist]

The interpreter (packaging/interpreter) is built once, and kept in ~/.cache/pinchpoint-packages (PINCHPOINT_CACHE is
another directory). Everything is made with the time of SOURCE_DATE_EPOCH, else of the commit: the same sources and
tools give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from email.utils import formatdate
from itertools import product
from pathlib import Path
from string import Template

from manpages import manual_pages

from pinchpoint import __version__

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "packaging" / "files"
HOME = Path("usr/lib/pinchpoint")
LIBRARIES = HOME / "lib" / "python3.13"
SHEBANG = f"#!/{HOME}/bin/python3.13 -I\n"
IMPORT_ALL = """
from importlib import import_module
from pinchpoint.cli import COMMANDS, MODULES
for name in COMMANDS:
    import_module(f"pinchpoint.commands.{MODULES.get(name, name)}")
"""
"""Imports each command, with all that it imports."""
WHEEL_TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""Wheels of these run with the glibc of the packages, 2.28."""
MACHINE = platform.machine()
MAX_INTERPRETER_DAYS = 30
"""Age in days from which the packages' Python is built again, with what Debian has mended in it and its libraries."""
DEB_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
UNIT = "ExecStart=/opt/pinchpoint/bin/pinchpoint exporter\n"
PACKAGED_UNIT = "EnvironmentFile=-/etc/default/pinchpoint\nExecStart=/usr/bin/pinchpoint exporter $EXPORTER_ARGS\n"
COMPLETIONS = {
    "bash": ("usr/share/bash-completion/completions/pinchpoint",),
    "zsh": ("usr/share/zsh/vendor-completions/_pinchpoint", "usr/share/zsh/site-functions/_pinchpoint"),
    "fish": ("usr/share/fish/vendor_completions.d/pinchpoint.fish",),
}
"""By shell, where Debian's and other systems' look."""


class BuildError(Exception):
    """A program that failed, and what it said."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run a program and return its output. Raises BuildError with its status and the end of what it said."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise BuildError(f"{Path(command[0]).name} failed with status {done.returncode}:\n{said}", done.returncode)
    return done.stdout


def cached(name: str, made_from: bytes) -> Path:
    """Return the place in the cache of what is made from these bytes."""
    cache = Path(os.environ.get("PINCHPOINT_CACHE") or Path.home() / ".cache" / "pinchpoint-packages")
    cache.mkdir(parents=True, exist_ok=True)
    return cache / f"{name}-{MACHINE}-{hashlib.sha256(made_from).hexdigest()[:16]}"


def interpreter() -> Path:
    """Return the tree of the packages' Python, built if the cache has none that is recent."""
    script = ROOT / "packaging" / "interpreter"
    place = cached("interpreter", script.read_bytes())
    if not recent(place, time.time()):
        print("packages: building the interpreter, ten minutes of CPU", flush=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            run(script, scratch, environment={"PYTHON": sys.executable})
            # A copy that was interrupted must not be taken for the whole.
            copy = place.with_name(f"{place.name}.new")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(scratch, copy, symlinks=True)
            shutil.rmtree(place, ignore_errors=True)
            copy.rename(place)
            os.utime(place)
    return place


def recent(place: Path, now: float) -> bool:
    """Return whether a tree is there and has what Debian mended up to `MAX_INTERPRETER_DAYS` before `now`."""
    return place.exists() and now - place.stat().st_mtime < MAX_INTERPRETER_DAYS * 86400


def make_tree(tree: Path, version: str, seconds: int) -> None:
    """Put everything that is installed below `tree`."""
    shutil.copytree(interpreter(), tree, symlinks=True, dirs_exist_ok=True)
    install_libraries(tree)
    put(tree / "usr/bin/pinchpoint", f"{SHEBANG}from pinchpoint.cli import start\n\nstart()\n", 0o755)
    units = tree / "usr/lib/systemd/system"
    put(units / "pinchpoint.service", packaged_unit((ROOT / "compose/pinchpoint.service").read_text()))
    put(units / "run-pinchpoint.mount", (ROOT / "compose/run-pinchpoint.mount").read_text())
    put(units / "pinchpoint-judge.service", (FILES / "pinchpoint-judge.service").read_text())
    for manager, unit in product(("system", "user"), ("service", "timer")):  # each user restores his own knobs
        name = f"pinchpoint-restore.{unit}"
        put(tree / f"usr/lib/systemd/{manager}/{name}", (ROOT / "compose" / name).read_text())
    for name in ("prolog", "epilog"):
        put(tree / "usr/lib/pinchpoint/slurm" / name, (ROOT / "deploy/slurm" / name).read_text(), 0o755)
    put(tree / "usr/lib/sysusers.d/pinchpoint.conf", (FILES / "pinchpoint.sysusers").read_text())
    put(tree / "etc/default/pinchpoint", (FILES / "default").read_text())
    for name in ("pinchpoint.toml", "targets.yml"):
        put(tree / "etc/pinchpoint" / name, (FILES / name).read_text())
    for name, page in manual_pages(seconds).items():
        put(tree / "usr/share/man/man1" / f"{name}.gz", gzip.compress(page.encode(), mtime=0))
    for shell, places in COMPLETIONS.items():
        text = run(sys.executable, "-c", "from pinchpoint.cli import main; main(prog_name='pinchpoint')",
                   environment={"_PINCHPOINT_COMPLETE": f"{shell}_source"})  # fmt: skip
        for place in places:
            put(tree / place, text)
    documents = tree / "usr/share/doc/pinchpoint"
    put(documents / "copyright", (FILES / "copyright").read_text())
    put(documents / "CHANGELOG.md.gz", gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), mtime=0))
    changes = Template((FILES / "changelog").read_text()).substitute(VERSION=version, DATE=formatdate(seconds))
    put(documents / "changelog.gz", gzip.compress(changes.encode(), mtime=0))
    put(tree / "usr/share/lintian/overrides/pinchpoint", (FILES / "lintian-overrides").read_text())


def packaged_unit(unit: str) -> str:
    """Return the exporter's unit as the packages have it: other paths, and options from a file."""
    if unit.count(UNIT) != 1:
        raise BuildError(f"compose/pinchpoint.service: has no {UNIT.strip()}")
    return unit.replace(UNIT, PACKAGED_UNIT)


def put(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def install_libraries(tree: Path) -> None:
    """Install the wheel, and the libraries that constraints.txt has tested, for the packages' Python."""
    with tempfile.TemporaryDirectory() as scratch:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack what was removed since the last build
        run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, ROOT)
        (wheel,) = Path(scratch).glob("*.whl")
        place = tree / LIBRARIES / "site-packages"
        tags = [option for tag in WHEEL_TAGS for option in ("--platform", f"{tag}_{MACHINE}")]
        chosen = ("--python-version", "3.13", "--only-binary=:all:", "--constraint", ROOT / "constraints.txt")
        run(*pip, "install", "--no-compile", "--target", place, *tags, *chosen, wheel)
    shutil.rmtree(place / "bin", ignore_errors=True)
    for made in ("direct_url.json", "RECORD", "REQUESTED", "INSTALLER"):
        for file in place.glob(f"*.dist-info/{made}"):
            file.unlink()
    run("strip", "--strip-unneeded", *place.rglob("*.so"))
    for source in (tree / LIBRARIES).rglob("*.py"):
        source.chmod(0o644)
    # Bytecode that is never compared with its source: the package manager changes both or none.
    run(tree / HOME / "bin/python3.13", "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash",
        "-s", tree, "-p", "/", tree / LIBRARIES)  # fmt: skip
    # Its Python lacks some of the standard modules: what needs one of them is to fail here, not on a host.
    run(tree / HOME / "bin/python3.13", "-I", "-c", IMPORT_ALL, environment={"PYTHONDONTWRITEBYTECODE": "1"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the packages; return the exit status, which is EX_UNAVAILABLE if the sources cannot be fetched."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default=__version__, help="version of the packages (that of the sources)")
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="directory of the packages")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "show", "--no-patch", "--format=%ct", "HEAD"))
        os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
        options.target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            tree, config = Path(scratch, "tree"), Path(scratch, "nfpm.yaml")
            make_tree(tree, options.version, seconds)
            template = Template((ROOT / "packaging/nfpm.yaml").read_text())
            arch = DEB_MACHINES.get(MACHINE, MACHINE)
            config.write_text(template.substitute(TREE=tree, VERSION=options.version, ARCH=arch))
            for kind in ("deb", "rpm"):
                said = run(
                    Path(sys.executable).with_name("nfpm"),
                    "package",
                    "--config",
                    config,
                    "--packager",
                    kind,
                    "--target",
                    options.target,
                )
                print(f"packages: {said.splitlines()[-1].removeprefix('created package: ')}")
    except BuildError as error:
        print(f"packages: {error}", file=sys.stderr)
        return os.EX_UNAVAILABLE if error.status == os.EX_UNAVAILABLE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
