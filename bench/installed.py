"""What an installation takes, by pip and by the package with its own Python: the section "installed" of the page.

Needs a package of `make packages` in dist/, and installs the wheel with PyPI's libraries into a new environment.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from meter import run_cpu, serving
from page import Goal, machine, parser, publish, table

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 7
SETTLED_SECONDS = 20
PORT = 19749
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
"""What `python -m venv` puts into an environment besides."""


def megabytes(path: Path, counts: Callable[[Path], bool] = lambda path: True) -> float:
    """Return the size of a file, or of the files below a directory, in MB."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    return sum(file.stat().st_size for file in files if counts(file)) / 1e6


def by_pip(place: Path) -> tuple[list[str], float, float]:
    """Install the wheel; return the command, and the MB of what is fetched and of what is installed."""
    wheels = place / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-build-isolation", "--constraint", str(ROOT / "constraints.txt"), "--wheel-dir", str(wheels)]
    subprocess.run([*pip, "wheel", *options, str(ROOT)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    python = place / "venv" / "bin" / "python"
    subprocess.run([python, *pip[1:], "install", "--no-index", *wheels.glob("*.whl")], check=True)

    def ours(file: Path) -> bool:
        parts = file.relative_to(place / "venv").parts
        return len(parts) < 4 or not parts[3].startswith(NOT_OURS)

    return [str(python.with_name("pinchpoint"))], megabytes(wheels), megabytes(place / "venv", ours)


def by_package(place: Path, package: Path) -> tuple[list[str], float, float]:
    """Unpack the deb; return the same. Its libbpf is found where it is, not where it would be installed."""
    subprocess.run(["dpkg-deb", "--extract", package, place], check=True)
    os.environ["LD_LIBRARY_PATH"] = str(place / "usr/lib/pinchpoint/lib")
    python = place / "usr/lib/pinchpoint/bin/python3.13"
    return [str(python), "-I", str(place / "usr/bin/pinchpoint")], megabytes(package), megabytes(place)


def measured(name: str, command: Sequence[str], fetched: float, installed: float) -> tuple[list[str], float]:
    """Return the row of an installation, and the seconds of CPU of its ``exporter --help``."""
    shown = [run_cpu([*command, "exporter", "--help"])[0] for _ in range(REPEATS)]
    with serving([*command, "exporter", f"--web.listen-address=127.0.0.1:{PORT}"], PORT) as served:
        started = served.cpu_ms()
        time.sleep(SETTLED_SECONDS)
        text = served.scrape().text
        rss = served.rss()
    source = next(line for line in text.splitlines() if line.startswith("pinchpoint_task_source_info"))
    ways = [part for part in source.split('"') if part in ("bpf", "bpf-iter", "kept", "plain")]
    row = [name, f"{fetched:.1f}", f"{installed:.1f}", f"{statistics.median(shown):.0f}", f"{started:.0f}",
           f"{rss:.1f}", *(f"`{way}`" for way in ways[:1])]  # fmt: skip
    return row, statistics.median(shown) / 1e3


def main() -> None:
    """Install both, measure them, and write the section of the page."""
    chosen = parser(__doc__).parse_args()
    packages = sorted((ROOT / "dist").glob("*.deb"))
    if not packages:
        sys.exit("installed.py: no deb in dist/: make packages")
    with tempfile.TemporaryDirectory() as scratch:
        plain = by_pip(Path(scratch, "plain"))
        row, shown = measured("pip, in a virtual environment", *plain)
        rows = [row, measured("package, with its own Python", *by_package(Path(scratch, "package"), packages[-1]))[0]]
    head = ["installed by", "fetched, MB", "installed, MB", "CPU of `exporter --help`, ms",
            "CPU until it answers, ms", "RSS of an idle exporter, MB", "threads by"]  # fmt: skip
    goals = [
        Goal("an installation by pip, without pip itself", 30, "MB", plain[2]),
        Goal("`exporter --help`: CPU", 0.2, "s", shown),
    ]
    publish("installed", f"{machine()}; median of {REPEATS}.\n\n{table(head, rows)}", chosen, goals)


if __name__ == "__main__":
    main()
