"""What happens at a limit of the host: no more threads, processes, descriptors, memory or room on a disk."""

from __future__ import annotations

import errno

__all__ = ["LIMITS", "is_limit", "reason", "words"]

LIMITS = (OSError, MemoryError, RuntimeError)
"""The errors that a limit raises; the last one also has other causes: see `is_limit`."""
NO_THREAD = "can't start new thread"
"""What Python says when the host refuses a thread (thread_PyThread_start_new_thread in Modules/_threadmodule.c)."""


def is_limit(error: Exception) -> bool:
    """Return whether the operating system refused something, rather than our own code being wrong.

    A pipe whose reader has gone is not a limit.
    """
    if isinstance(error, OSError):
        return error.errno != errno.EPIPE
    return isinstance(error, MemoryError) or str(error) == NO_THREAD


def reason(error: Exception) -> str:
    """Return what went wrong, and with which file, in a few words for a message."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {words(error)}"
    return words(error)


def words(error: Exception) -> str:
    """Return what went wrong, without the file."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        return "out of memory"
    return str(error) if is_limit(error) else f"{type(error).__name__}: {error}"
