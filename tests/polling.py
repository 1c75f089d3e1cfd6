from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from native import MARK


def until(seconds: float, condition: Callable[[], Any], pause: float = 0.05) -> Any:
    """Return the first true answer of `condition`, or its last one when `seconds` are over."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return answer


def get_json(url: str) -> Any:
    return httpx.get(url, timeout=5, trust_env=False).raise_for_status().json()


def processes_of(state: Path) -> list[psutil.Process]:
    processes = psutil.process_iter(["environ"])
    return [process for process in processes if (process.info["environ"] or {}).get(MARK) == str(state.resolve())]
