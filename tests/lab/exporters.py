"""Exporters beside ranks that write, and what they show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from polling import until
from ports import free_port

__all__ = ["answer", "exporting", "make_rank", "shows", "watched"]

WRITES = 'sysopen(F, shift, 04010102) or die; for (;;) { sysseek(F, 0, 0); syswrite(F, "x" x 4096) }'
"""A program of Perl that writes the same 4 KiB again and again, with O_SYNC."""


def make_rank(place: Path, number: str) -> Path:
    """Make a program that writes as a rank of ior does; `number` is the variable of its environment with its rank."""
    shutil.copy("/usr/bin/perl", place / "ior")  # what counts is its name
    rank = place / "rank"
    rank.write_text(f"#!/bin/sh\nexec {place}/ior -e '{WRITES}' {place}/${number}\n")
    rank.chmod(0o755)
    return rank


@contextmanager
def exporting(place: Path, *namespaces: str) -> Iterator[str]:
    """Run an exporter with its runs in `place`; give the address of its metrics."""
    port = free_port()
    options = [f"--web.listen-address=127.0.0.1:{port}", f"--path.runs={place}"]
    with subprocess.Popen([*namespaces, sys.executable, "-m", "pinchpoint", "exporter", *options]) as process:
        try:
            assert until(20, lambda: answer(f"http://127.0.0.1:{port}/-/healthy"))
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()


def answer(url: str) -> str:
    """Return what an address answers, "" if it does not."""
    try:
        return httpx.get(url, timeout=10).text
    except httpx.HTTPError:
        return ""


def shows(address: str, pattern: str) -> bool:
    """Return whether a line of the metrics matches."""
    return re.search(pattern, answer(address), re.MULTILINE) is not None


def watched(*addresses: str) -> str:
    """Return what ``pinchpoint watch`` says of these exporters."""
    targets = ",".join(address.removeprefix("http://").removesuffix("/metrics") for address in addresses)
    watch = [sys.executable, "-m", "pinchpoint", "watch", "--once", f"--target={targets}"]
    return subprocess.run(watch, capture_output=True, text=True).stdout
