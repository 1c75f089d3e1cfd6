"""Takes a CPU away for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["one_cpu_less"]

CPUS = Path("/sys/devices/system/cpu")


@contextmanager
def one_cpu_less() -> Iterator[None]:
    """Take the last CPU away (core-api/cpu_hotplug.rst); what was bound to it alone is bound to nothing afterwards."""
    switch = CPUS / f"cpu{max(os.sched_getaffinity(0))}" / "online"
    try:
        switch.write_text("0")
    except OSError as error:
        pytest.skip(f"{switch}: {error.strerror}")
    try:
        yield
    finally:
        switch.write_text("1")
