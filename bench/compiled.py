"""C programs beside the scripts, compiled when they are needed."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["MissingError", "compiled"]

HERE = Path(__file__).resolve().parent


class MissingError(Exception):
    """This machine lacks something that a measurement needs; the message says what, and the page quotes it."""


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-")


@functools.cache
def compiled(name: str, *flags: str) -> Path:
    """Return the program compiled from ``NAME.c``, which exists until this process ends. Raises MissingError."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MissingError("no C compiler")
    program = Path(_folder().name, name)
    command = [compiler, "-O2", "-D_GNU_SOURCE", "-pthread", "-o", str(program), str(HERE / f"{name}.c"), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "the compiler failed")
        raise MissingError(f"{name}.c is not compiled: {reason}")
    return program
