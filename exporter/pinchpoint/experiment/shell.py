"""Runs the operator's own shell commands, within a bound in time, undisturbed by signals to us."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pinchpoint.host.exitstatus import signal_name
from pinchpoint.limits import LIMITS, reason
from pinchpoint.text import printable

__all__ = ["Runner", "ShellError", "run"]

Runner = Callable[[str, float], str]
"""Runs a command within so many seconds; returns what it prints. Raises ShellError."""

MAX_OUTPUT_BYTES = 64 << 10
"""Most of a command's output that is read, in bytes."""
MAX_COMPLAINT_CHARACTERS = 300
"""Most of a failed command's output that a message has, in characters."""
STOP_POLL_SECONDS = 0.1
KILL_SECONDS = 1.0
"""Seconds that a killed command gets to end."""


class ShellError(Exception):
    """A command that failed, could not be started, or took too long; the message says which and how."""


def run(
    command: str,
    *,
    seconds: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Return what a shell command writes to standard output, without blanks at both ends. Raises ShellError.

    It has a session of its own: neither Ctrl-C nor the end of our terminal interrupts it half-way, and whatever it
    started ends with it after `seconds`, or once `stopped`. Its output goes to memory, since the disk may be full. It
    inherits the open `descriptors`.
    """
    output, errors = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdout", "stderr"))
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=directory,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            pass_fds=tuple(descriptors),
        )
        status = _wait(process, time.monotonic() + seconds, stopped)
        if status is None:
            _kill(process)
            why = "was stopped" if stopped() else f"took longer than {seconds:g} s and was killed"
            raise ShellError(f"`{printable(command)}` {why}")
        text, complaint = (
            os.pread(descriptor, MAX_OUTPUT_BYTES, 0).decode("utf-8", "replace").strip()
            for descriptor in (output, errors)
        )
    except LIMITS as error:
        raise ShellError(f"`{printable(command)}` was not started: {reason(error)}") from error
    finally:
        os.close(output)
        os.close(errors)
    if status:
        complaint = " ".join((complaint or text).split())[-MAX_COMPLAINT_CHARACTERS:]
        said = f": {printable(complaint)}" if complaint else ""
        ended = f"status {status}" if status > 0 else signal_name(-status)
        raise ShellError(f"`{printable(command)}` ended with {ended}{said}")
    return text


def _wait(process: subprocess.Popen[Any], until: float, stopped: Callable[[], bool]) -> int | None:
    """Return the status of a process, None if it runs at `until`, in monotonic seconds, or once `stopped`."""
    while not stopped() and (left := until - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, STOP_POLL_SECONDS))
    return process.poll()


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process and what it started; one that the kernel holds, as it may a ``sync``, is not waited for."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILL_SECONDS)
