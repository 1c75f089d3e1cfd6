"""Which threads wait for others."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from threading import Thread

__all__ = ["all_wait"]


def all_wait(threads: Iterable[Thread]) -> bool:
    """Return whether each of these threads waits for a condition, such as a result that another thread computes."""
    frames = sys._current_frames()
    tops = [frames.get(thread.ident or 0) for thread in threads]
    return all(top is not None and top.f_code.co_name == "wait" for top in tops)
