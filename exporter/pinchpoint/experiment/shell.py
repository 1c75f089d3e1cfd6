"""Runs the operator's own shell commands, within a bound in time, undisturbed by signals to us."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pinchpoint.host.exitstatus import signal_name
from pinchpoint.limits import LIMITS, reason
from pinchpoint.text import printable

__all__ = ["ShellError", "run"]

MAX_OUTPUT_BYTES = 64 << 10
"""Most of a command's output that is read, in bytes."""
MAX_COMPLAINT_CHARACTERS = 300
"""Most of a failed command's output that a message has, in characters."""


class ShellError(Exception):
    """A command that failed, could not be started, or took too long; the message says which and how."""


def run(
    command: str,
    *,
    seconds: float,
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> str:
    """Return what a shell command writes to standard output, without blanks at both ends. Raises ShellError.

    It has a session of its own: neither Ctrl-C nor the end of our terminal interrupts it half-way, and whatever it
    started ends with it after `seconds`. Its output goes to memory, since the disk may be full. It inherits the open
    `descriptors`.
    """
    output, errors = (os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdout", "stderr"))
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=directory,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            pass_fds=tuple(descriptors),
        ) as process:
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise ShellError(f"`{printable(command)}` took longer than {seconds:g} s and was killed") from None
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
