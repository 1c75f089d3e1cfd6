"""Reads what threads wait for: their kernel stacks, or ``wchan`` where stacks are denied."""

from __future__ import annotations

import os
from contextlib import suppress

from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes
from pinchpoint.threads.task_source import KeptFile

__all__ = ["SOURCES", "StackFile", "state"]

SOURCES = ("stack", "wchan")
"""Files of a thread's directory, best first: ``stack`` needs root (CAP_SYS_ADMIN, proc_pid_stack), ``wchan`` the right
to trace the process (proc_pid_wchan, fs/proc/base.c)."""
MAX_FILE_BYTES = 4096


class StackFile:
    """The file that says what one thread waits for, kept open."""

    __slots__ = ("_directory", "_file", "reason", "source")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: KeptFile | None = None
        self.source = ""
        """Its name; ``none`` where nothing can be read, "" before the first look."""
        self.reason = ""
        """Why it is not a better one."""

    def read(self) -> bytes | None:
        """Return what the file says now; None where nothing can be read."""
        while self.source != "none":
            if self._file is None:
                self._open()
                continue
            try:
                return self._file.read()
            except OSError as error:
                if isinstance(error, ProcessLookupError):
                    return None  # it is gone
                self.reason = f"{self.source}: {error.strerror}"
                self.close()
        return None

    def _open(self) -> None:
        """Open the next best file."""
        left = SOURCES[SOURCES.index(self.source) + 1 :] if self.source in SOURCES else SOURCES
        for source in left:
            self.source = source
            try:
                self._file = KeptFile(f"{self._directory}/{source}", MAX_FILE_BYTES)
                return
            except OSError as error:
                self.reason = f"{source}: {error.strerror}"
        self.source = "none"

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def state(directory: str) -> str:
    """Return the state of the thread with that directory (man 5 proc); X if it is gone."""
    try:
        return parse_stat(read_bytes(os.path.join(directory, "stat"), MAX_FILE_BYTES)).state
    except (OSError, FormatError):
        return "X"
