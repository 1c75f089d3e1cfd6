"""Makes a release in dist/VERSION: sdist, wheel, packages, image, SBOM, checksums and their signature.

    python scripts/release.py --key KEY      # a file: a private key of ssh; else the name of a key of GPG

Everything is made from the commit, not from the working tree, with the commit's time: the same commit and the same
tools give the same sdist, wheel, packages, SBOM and notes. The image is made if docker answers. Nothing is uploaded,
tagged or committed.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbom import bill_of_materials

__all__ = ["ReleaseError", "changes", "normalised", "release", "version_of"]

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r'^__version__ = "(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)"$', re.MULTILINE)
UNRELEASED = "Unreleased"
SUMS = "SHA256SUMS"
NAMESPACE = "pinchpoint-release"
"""What a signature of ssh is for (ssh-keygen(1), -n)."""
BUILD = """
import sys
from setuptools import build_meta
getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2])
"""
SHOWN_LINES = 12
"""Lines that are shown of the output of a program that failed."""


class ReleaseError(Exception):
    """A release that cannot be made; the message says why and what to do."""


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"release: {text}", flush=True)


def version_of(source: str) -> str:
    """Return the version of the text of ``pinchpoint/__init__.py``. Raises ReleaseError."""
    found = VERSION.search(source)
    if found is None:
        raise ReleaseError("exporter/pinchpoint/__init__.py: __version__ must be a version such as 0.2.0 or 0.2.0rc1")
    return found[1]


def changes(changelog: str, version: str) -> str:
    """Return what the changelog says about a version. Raises ReleaseError if it does not, or has later changes."""
    sections = {
        title: text.strip() for title, _, text in (part.partition("\n") for part in changelog.split("\n## ")[1:])
    }
    if sections.get(UNRELEASED):
        raise ReleaseError(f"CHANGELOG.md: there are changes under {UNRELEASED}: give them the heading ## {version}")
    if not sections.get(version):
        raise ReleaseError(f"CHANGELOG.md: has nothing under ## {version}, the version of the package")
    return f"# Pinchpoint {version}\n\n{sections[version]}\n"


def normalised(archive: bytes, seconds: int) -> bytes:
    """Return a .tar.gz with its members in order, owned by root, and changed at the given Unix time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=seconds) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            content = old.extractfile(member) if member.isreg() else None
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = seconds
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, content)
    return packed.getvalue()


def release(tree: Path, key: str, target: Path | None = None) -> Path:
    """Make the release of the commit that is checked out in `tree`; return its directory. Raises ReleaseError."""
    if dirty := _run("git", "status", "--porcelain", cwd=tree).splitlines():
        named = ", ".join(line[3:] for line in dirty[:5]) + (", ..." if len(dirty) > 5 else "")
        raise ReleaseError(f"the tree has changes that are not committed: {named}; commit or stash them")
    version = version_of((tree / "exporter" / "pinchpoint" / "__init__.py").read_text())
    notes = changes((tree / "CHANGELOG.md").read_text(), version)
    _check_key(key)
    commit = _run("git", "rev-parse", "HEAD", cwd=tree).strip()
    seconds = int(_run("git", "show", "--no-patch", "--format=%ct", "HEAD", cwd=tree))
    target = target or tree / "dist" / version
    say(f"version {version}, commit {commit[:12]}")
    with tempfile.TemporaryDirectory(prefix="pinchpoint-release-") as scratch, _fixed_time(seconds):
        made = Path(scratch, "made")
        made.mkdir()
        source = _exported(tree, Path(scratch, f"pinchpoint-{version}"), commit)
        (made / f"pinchpoint-{version}.changes.md").write_text(notes)
        _build_python(source, made, Path(scratch), seconds)
        _build_packages(source, made)
        _build_image(source, made, version)
        (made / f"pinchpoint-{version}.cdx.json").write_text(bill_of_materials(version, commit, seconds))
        _sign(_sum_up(made), key)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, target)
    return target


def _exported(tree: Path, place: Path, commit: str) -> Path:
    """Unpack the commit, with its name in the package, where `pinchpoint version` reads it."""
    place.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=tree, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacked:
        unpacked.extraction_filter = getattr(tarfile, "tar_filter", None)  # from Python 3.11.4 on; Debian 12 has 3.11.2
        unpacked.extractall(place)
    (place / "exporter" / "pinchpoint" / "commit").write_text(f"{commit}\n")
    return place


def _build_python(source: Path, made: Path, scratch: Path, seconds: int) -> None:
    """Build the sdist, and the wheel from the sdist: what is missing in the one would be missing in the other."""
    say("sdist and wheel")
    _run(sys.executable, "-c", BUILD, "sdist", str(made), cwd=source)
    (sdist,) = made.glob("*.tar.gz")
    sdist.write_bytes(normalised(sdist.read_bytes(), seconds))
    unpacked = scratch / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(unpacked)
    (folder,) = unpacked.iterdir()
    _run(sys.executable, "-c", BUILD, "wheel", str(made), cwd=folder)
    (wheel,) = made.glob("*.whl")
    objects = {path.with_suffix(".o").name for path in (source / "exporter" / "pinchpoint" / "bpf").glob("*.bpf.c")}
    listed = _run(sys.executable, "-m", "zipfile", "--list", str(wheel), cwd=made)
    if missing := [name for name in sorted(objects) if name not in listed]:
        raise ReleaseError(f"the wheel has no {', '.join(missing)}: install clang and libbpf-dev (make setup does)")


def _build_packages(source: Path, made: Path) -> None:
    """Build Debian's and RPM's packages, where the sources have packaging/packages.py."""
    build = source / "packaging" / "packages.py"
    if build.exists():
        say("packages")
        _run("env", f"PYTHONPATH={source / 'exporter'}", sys.executable, str(build), "--target", str(made), cwd=source)


def _build_image(source: Path, made: Path, version: str) -> None:
    """Build the exporter's image, if there is a docker that answers."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        say("no image: docker is not installed, or its daemon does not answer")
        return
    say("image")
    name = f"pinchpoint:{version}"
    _run("docker", "build", "--file=compose/Dockerfile", "--target=exporter", f"--tag={name}", ".", cwd=source)
    _run("docker", "save", f"--output={made / f'pinchpoint-{version}.image.tar'}", name, cwd=source)


def _sum_up(made: Path) -> Path:
    """Write the checksums, as sha256sum(1) checks them."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
    sums = made / SUMS
    sums.write_text("".join(lines))
    return sums


def _check_key(key: str) -> None:
    """Raise ReleaseError if there is no such key, before anything is built."""
    if not key:
        raise ReleaseError("give the key that signs: make release KEY=FILE (a private key of ssh) or KEY=NAME (of GPG)")
    if not Path(key).is_file():
        found = subprocess.run(["gpg", "--batch", "--list-secret-keys", "--", key], capture_output=True)
        if found.returncode:
            raise ReleaseError(f"KEY={key}: neither a file nor a secret key of GPG")


def _sign(sums: Path, key: str) -> None:
    if Path(key).is_file():
        _run(
            "ssh-keygen",
            "-q",
            "-Y",
            "sign",
            "-f",
            str(Path(key).resolve()),
            "-n",
            NAMESPACE,
            sums.name,
            cwd=sums.parent,
        )
    else:
        _run("gpg", "--batch", "--armor", "--local-user", key, "--detach-sign", sums.name, cwd=sums.parent)


@contextlib.contextmanager
def _fixed_time(seconds: int) -> Iterator[None]:
    """Give what is built the time of the commit, and rights that do not depend on the umask."""
    before = os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    try:
        yield
    finally:
        os.umask(before)
        del os.environ["SOURCE_DATE_EPOCH"]


def _run(*command: str, cwd: Path) -> str:
    """Run a program and return its output. Raises ReleaseError with the end of what it said."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ReleaseError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-SHOWN_LINES:])
        raise ReleaseError(f"{' '.join(command[:3])} failed with status {done.returncode}:\n{said}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", default="", metavar="KEY", help="a file with a private key of ssh, or a key of GPG")
    options = parser.parse_args(arguments)
    try:
        made = release(ROOT, options.key)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(made.iterdir()):
        say(f"{path.stat().st_size >> 10:8} KiB  {path.relative_to(ROOT)}")
    say("nothing was uploaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
