"""Threads of this process that the kernel knows by their names, so that ``top -H`` shows what each one costs."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

__all__ = ["NamedThread"]

MAX_NAME_BYTES = 15
"""Bytes of a thread's name (TASK_COMM_LEN, include/linux/sched.h)."""


class NamedThread(Thread):
    """A thread that gives the kernel its own name when it starts, which `Thread` does only from Python 3.14 on."""

    def run(self) -> None:
        """Set the name and call the target."""
        with suppress(OSError), open("/proc/thread-self/comm", "wb", buffering=0) as file:
            file.write(self.name.encode()[:MAX_NAME_BYTES])
        super().run()
