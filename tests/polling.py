"""Waiting for conditions."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from native import MARK
from patience import Deadline, Wait, Waits, patience

__all__ = ["WAITS", "get_json", "processes_of", "runs", "until"]

WAITS = Waits()
"""Of the current test; conftest.py begins and reports it."""


def until(seconds: float, condition: Callable[[], Any], pause: float = 0.05) -> Any:
    """Return the first true result of `condition`, or the last one when the patience for `seconds` is over.

    These are seconds of an idle machine: see patience.py.
    """
    deadline = Deadline(seconds)
    while not (answer := condition()) and not deadline.over:
        time.sleep(pause)
    if not answer:
        WAITS.vain.append(Wait(_caller(), seconds, deadline.waited))
    return answer


def _caller() -> str:
    """Return the waiting statement: file, line and text."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is None:
        return "?"
    where = inspect.getframeinfo(frame)
    text = " ".join(line.strip() for line in where.code_context or ())
    return f"{text} ({Path(where.filename).name}:{where.lineno})"


def get_json(url: str) -> Any:
    return httpx.get(url, timeout=patience(5), trust_env=False).raise_for_status().json()


def runs(pid: int) -> bool:
    """Return whether a process is still running; a zombie that its new parent has not reaped yet is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_of(state: Path) -> list[psutil.Process]:
    processes = psutil.process_iter(["environ"])
    return [process for process in processes if (process.info["environ"] or {}).get(MARK) == str(state.resolve())]
