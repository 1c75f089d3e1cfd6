"""Stand-ins for benchmarks that Debian does not package: real files, the real program's name, arguments and output."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

__all__ = ["become", "say"]

PR_SET_NAME = 15
"""include/uapi/linux/prctl.h"""
ARG_START, ARG_END = 48, 49
"""Fields of /proc/PID/stat, from 1 (proc(5))."""


def become(name: str) -> list[str]:
    """Take the name and show the arguments of `name`; return the arguments.

    The command line of an interpreter, `python LONG-PATH-OF-A-SCRIPT ARGUMENT...`, is overwritten with that of the
    imitated program; the last argument has to be a path, which fills the rest with slashes.
    """
    arguments = sys.argv[1:]
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[ARG_START - 3]), int(fields[ARG_END - 3])
    words = [name, *arguments]
    spare = end - start - sum(len(os.fsencode(word)) + 1 for word in words)
    words[-1] = "/" * spare + words[-1]
    ctypes.memmove(start, b"".join(os.fsencode(word) + b"\0" for word in words), end - start)
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    return arguments


def say(text: str) -> None:
    """Print a line at once, as these programs flush theirs."""
    print(text, flush=True)
