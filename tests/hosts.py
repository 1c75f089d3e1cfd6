"""PID namespaces as hosts: an exporter in one sees the processes of its host alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from polling import until

__all__ = ["another_host"]

ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "infinity")


@contextmanager
def another_host(*within: str) -> Iterator[Sequence[str]]:
    """Make a host; give what has to stand before a command so that it runs there.

    `within` runs a command in other namespaces, such as ``ip netns exec NAME``; the host has those too. All of its
    processes end with it.
    """
    with subprocess.Popen([*within, *ALONE]) as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        try:
            first = until(10, lambda: children.read_text().strip())
            yield ("nsenter", f"--target={first}", "--pid", "--mount", "--net")
        finally:
            unshare.kill()
