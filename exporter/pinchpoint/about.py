"""What this installation is and what it finds on this host: versions, and the sources that would be used."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from pinchpoint import __version__
from pinchpoint.bpf.choice import choose_source
from pinchpoint.bpf.libbpf import library_version
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.expressions import expression
from pinchpoint.probes import kworkers
from pinchpoint.project import URL
from pinchpoint.shipped import shipped

__all__ = ["about", "commit", "commit_of_checkout"]

COMMIT = expression(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""The name of a commit: SHA-1 or SHA-256."""
REQUIREMENT = expression(r"[A-Za-z0-9._-]+")
OPTIONAL = ("matplotlib", "regex", "tomli")
"""Libraries of an extra, or of one release of Python."""
MAX_REF_BYTES = 1 << 20
"""Longest file of git that is read, in bytes; a line of packed-refs has about 60."""


def about() -> dict[str, Any]:
    """Return what `pinchpoint version` shows, ready for JSON."""
    return {
        "version": __version__,
        "commit": commit(),
        "url": URL,
        "python": f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}",
        "kernel": f"{platform.release()} {platform.machine()}",
        "user": f"uid {os.geteuid()}",
        **_sources(),
        "libbpf": library_version(),
        "libraries": _libraries(),
    }


def commit() -> str:
    """Return the commit that this was made from: of the release or of the checkout; empty if it is not known."""
    package = shipped("")
    try:
        named = (package / "commit").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return commit_of_checkout(package.parent.parent)
    return named if COMMIT.fullmatch(named) else ""


def commit_of_checkout(tree: Path) -> str:
    """Return the commit that is checked out in `tree`, without git: gitrepository-layout(5), git 2.39."""
    folder = tree / ".git"
    try:
        if folder.is_file():  # a worktree, or a submodule
            folder = tree / _read(folder).removeprefix("gitdir: ")
        head = _read(folder / "HEAD")
        common = folder / _read(folder / "commondir") if (folder / "commondir").is_file() else folder
        if head.startswith("ref: "):
            head = _resolved(common, head.removeprefix("ref: "))
    except (OSError, ValueError):
        return ""
    return head if COMMIT.fullmatch(head) else ""


def _resolved(folder: Path, ref: str) -> str:
    """Return the commit of a branch: a file of its own, or a line of the packed ones. Raises OSError, ValueError."""
    loose = folder / ref
    if loose.is_file():
        return _read(loose)
    lines = _read(folder / "packed-refs").splitlines()
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {ref}")), "")


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_REF_BYTES).decode().strip()


def _sources() -> dict[str, dict[str, str]]:
    """Return how this user's exporter would read threads and kernel workers, and why not better."""
    host = build_host(Config())
    found = {}
    try:
        threads = choose_source(host.procfs, lambda tgid, comm: 1)
        found["threads"] = {"name": threads.name, "reason": threads.reason}
        threads.close()
        workers = kworkers.choose_source(host.procfs, host.processes)
        found["kernel_workers"] = {"name": workers.name, "reason": workers.reason}
        workers.close()
    except OSError as error:
        found["threads"] = {"name": "nothing", "reason": f"{host.procfs}: {error.strerror}"}
    return found


def _libraries() -> dict[str, str | None]:
    """Return the version of each library that the package names, None for one that is not installed."""
    try:
        required = metadata.requires("pinchpoint") or []
    except metadata.PackageNotFoundError:  # run from the sources
        required = []
    needed = [found[0] for line in required if "; " not in line and (found := REQUIREMENT.match(line))]
    versions = {name: _version(name) for name in sorted({*needed, *OPTIONAL}, key=str.lower)}
    return {name: version for name, version in versions.items() if version is not None or name in needed}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
