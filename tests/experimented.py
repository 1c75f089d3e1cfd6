"""Real experiments, as a user conducts them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["conducted", "in_words"]

SHOW_SECONDS = 60.0


def conducted(
    directory: Path,
    name: str,
    knob: Mapping[str, str],
    command: Sequence[str],
    environment: Mapping[str, str],
    seconds: float | None = None,
) -> dict[str, Any]:
    """Return what an experiment of four pairs found, with its state in `directory`.

    Raises RuntimeError if it fails, and subprocess.TimeoutExpired if it takes longer than `seconds`.
    """
    known = {**environment, "XDG_STATE_HOME": str(directory / "state")}
    program = [sys.executable, "-m", "pinchpoint", "experiment"]
    turns = [f"--{turn}={text}" for turn, text in knob.items()]
    run = [*program, "run", f"--name={name}", *turns, "--pairs=4", f"--path.runs={directory / 'markers'}"]
    done = subprocess.run(
        [*run, "--", *command], cwd=directory, env=known, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name}: the experiment failed:\n{done.stderr[-2000:]}")
    shown = subprocess.run(
        [*program, "show", "--json", "last"],
        env=known,
        capture_output=True,
        text=True,
        timeout=SHOW_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def in_words(figure: Mapping[str, Any]) -> str:
    """Return the change of a figure and its interval."""
    low, high = figure["interval"]
    return f"{figure['change']:+.1%} ({low:+.1%} to {high:+.1%})"
