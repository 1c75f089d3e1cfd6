"""Answers of real Ceph daemons, as a reader gets them, and a daemon of a fake machine that gives them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from machine import Machine

__all__ = ["RELEASES", "Answers", "encoded", "recorded", "run_daemon"]

FIXTURES = Path(__file__).parent / "fixtures" / "ceph"
RELEASES = ("14.2.21", "16.2.15", "18.2.7", "20.2.4")

Answers = dict[str, Any]
"""A daemon's answers, by question: ``config get NAME``, ``perf dump``, ..."""


def recorded(daemon: str, release: str, state: str) -> Answers:
    """Return the recorded answers of one daemon (mds, osd) in one state."""
    found: Answers = json.loads((FIXTURES / f"{daemon}_{release}_{state}.json").read_bytes())
    return found


def encoded(answers: Answers) -> dict[str, bytes]:
    """Return answers as a socket delivers them."""
    return {key: json.dumps(answer).encode() for key, answer in answers.items()}


def run_daemon(machine: Machine, comm: str, name: str, path: Path) -> None:
    """Make a machine run a daemon whose admin socket is `path`; this test process listens there."""
    pid = os.getpid()
    machine.process(pid, comm, argv=(comm, "-f", "-i", name))
    machine.write(f"proc/{pid}/net/unix", f"head\n0: 2 0 00010000 0001 01 77 {path}\n")
    directory = machine.procfs / str(pid)
    (directory / "fd").mkdir(exist_ok=True)
    (directory / "fd/7").symlink_to("socket:[77]")
    (directory / "root").symlink_to("/")
