"""How a process begins and ends."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

__all__ = ["fill_standard_streams", "flush_output", "leave"]


def fill_standard_streams() -> None:
    """Open /dev/null for standard streams that our caller closed, so that no other file gets their numbers.

    Commands that we start still see them closed: os.open gives descriptors that exec closes.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def flush_output() -> None:
    """Write what standard output and standard error still hold, if they take it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:  # None if the caller closed it
            with suppress(OSError):
                stream.flush()


def leave(status: int) -> NoReturn:
    """End this process and all of its threads at once with an exit status; handlers of `atexit` run before.

    The end of the interpreter itself takes a fifth of the CPU time of a short command, and waits for every thread but
    daemons. With Python 3.11.2 it ends with SIGSEGV if a thread begins just then: its state is already freed
    (thread_run in Modules/_threadmodule.c).
    """
    atexit._run_exitfuncs()
    flush_output()
    os._exit(status)
