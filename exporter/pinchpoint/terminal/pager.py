"""Long texts through a pager, as git does it: only on a terminal, by default with less."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

__all__ = ["pager_of", "show_paged"]

DEFAULT_PAGER = "less"
DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""Options of pagers where the user set none, as in pager.c of git 2.39: less ends if the text fits, passes colours, and
leaves the text on the screen."""
PAGER_NOT_FOUND = 127
"""Status of a shell that does not find the command."""


def pager_of(environment: Mapping[str, str]) -> str:
    """Return the pager's command: PINCHPOINT_PAGER, PAGER or less; empty if the text is to be written as it is."""
    chosen = next((environment[name] for name in ("PINCHPOINT_PAGER", "PAGER") if name in environment), DEFAULT_PAGER)
    return "" if chosen.strip() in ("", "cat") else chosen


def show_paged(text: str) -> bool:
    """Show a text in the user's pager; return whether it was shown: not without a terminal, or without a pager."""
    command = pager_of(os.environ)
    if not command or not sys.stdout.isatty():
        return False
    sys.stdout.flush()
    # Ctrl-C is for the pager: it ends a search there.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            command, shell=True, stdin=subprocess.PIPE, env={**DEFAULTS, **os.environ}, preexec_fn=_interruptible
        )
        with suppress(BrokenPipeError):  # the reader has seen enough
            process.communicate(text.encode(errors="replace"))
        return process.wait() != PAGER_NOT_FOUND
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
