"""Settling: the named steps before each run, each with a bound in time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.experiment import shell
from pinchpoint.experiment.shell import Runner, ShellError
from pinchpoint.text import printable

__all__ = ["STEPS", "SettleError", "Step", "settle", "steps_in"]

MAX_STEP_SECONDS = 86400.0
STEP_POLL_SECONDS = 1.0
STATUS_SECONDS = 30.0
STILL_POLLS = 3
"""How often in a row the number of objects has to be the same: deleted files are purged after the benchmark's end."""
MAX_DIRTY_BYTES = 16 << 20
"""Dirty and written-back pages below which they count as written, in bytes: a running system always has some."""
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


class SettleError(Exception):
    """A step that is unknown, cannot be done, or did not settle; the message says which and why."""


class Step(msgspec.Struct, frozen=True):
    """One settling step."""

    name: str
    seconds: float
    """Its bound in time; of ``wait`` its length."""

    def __str__(self) -> str:
        return f"{self.name}={self.seconds:g}"


STEPS: Mapping[str, tuple[float, str]] = {
    "health-ok": (600.0, "the Ceph cluster is HEALTH_OK"),
    "trim": (600.0, "no MDS is behind on trimming, no snapshot is trimmed, no object is being purged"),
    "sync": (300.0, "this host's dirty pages are written"),
    "drop-caches": (60.0, "this host's page, dentry and inode caches are dropped; needs root"),
    "wait": (10.0, "nothing happens for so long"),
}
"""By name, the default bound in seconds and what is then true."""


def steps_in(text: str) -> list[Step]:
    """Return the steps of an option such as ``health-ok,sync=120,wait=5``. Raises SettleError."""
    found = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, bound = word.partition("=")
        if name not in STEPS:
            raise SettleError(f"{printable(name)!r} is not a settling step: use {', '.join(STEPS)}")
        try:
            seconds = float(bound) if equals else STEPS[name][0]
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= MAX_STEP_SECONDS:
            raise SettleError(f"{printable(word)!r}: the bound is not a number of seconds up to {MAX_STEP_SECONDS:g}")
        if name == "drop-caches" and not os.access(DROP_CACHES, os.W_OK):
            raise SettleError(f"drop-caches: {DROP_CACHES} cannot be written: run it as root, or leave this step out")
        found.append(Step(name, seconds))
    return found


def settle(step: Step, stopped: Callable[[], bool], *, pause: Callable[[float], None] = time.sleep) -> float:
    """Do one step; return how many seconds it took. It ends early once `stopped`. Raises SettleError."""
    began = time.monotonic()
    missing = _Conditions[step.name](lambda command, seconds: shell.run(command, seconds=seconds, stopped=stopped))
    answer = ""
    while not stopped():
        left = began + step.seconds - time.monotonic()
        if step.name != "wait":
            failure = ""
            try:
                answer = missing(max(0.1, left))
            except ShellError as error:  # at the end it may only mean that there was no time left to answer
                failure = str(error)
            if not (answer or failure) or stopped():
                break
            if left <= 0:
                why = "; then ".join(filter(None, (answer, failure)))
                raise SettleError(f"{step.name}: not settled within {step.seconds:g} s: {why}")
        elif left <= 0:
            break
        pause(min(STEP_POLL_SECONDS, max(0.0, left)))
    return time.monotonic() - began


Condition = Callable[[float], str]
"""Returns what is missing; gets the seconds that are left. Raises ShellError if it does not find out."""


def _healthy(run: Runner) -> Condition:
    def missing(seconds: float) -> str:
        status = _status(run, seconds)
        health = status if isinstance(status, str) else _health(status)
        return "" if health == "HEALTH_OK" else health

    return missing


def _trimmed(run: Runner) -> Condition:
    seen: list[int] = []

    def missing(seconds: float) -> str:
        status = _status(run, seconds)
        if isinstance(status, str):
            return status
        health = status.get("health") or {}
        if "MDS_TRIM" in (health.get("checks") or {}):
            return "MDS_TRIM: an MDS is behind on trimming its journal"
        pgmap = status.get("pgmap") or {}
        states = [str(entry.get("state_name", "")) for entry in pgmap.get("pgs_by_state") or ()]
        if any("snaptrim" in state for state in states):
            return "snapshots are trimmed"
        seen.append(int(pgmap.get("num_objects") or 0))
        if len(seen) < STILL_POLLS or len(set(seen[-STILL_POLLS:])) > 1:
            return f"the number of objects changes: {', '.join(map(str, seen[-STILL_POLLS:]))}"
        return ""

    return missing


def _written(run: Runner) -> Condition:
    def missing(seconds: float) -> str:
        run("exec sync", seconds)
        return "" if (dirty := _dirty()) <= MAX_DIRTY_BYTES else f"{dirty >> 20} MiB are dirty"

    return missing


def _dropped(run: Runner) -> Condition:
    def missing(seconds: float) -> str:
        # Only clean pages can be dropped (Documentation/admin-guide/sysctl/vm.rst).
        run(f"sync; echo 3 > {DROP_CACHES}", seconds)
        return ""

    return missing


def _waited(run: Runner) -> Condition:
    return lambda seconds: ""


_Conditions: Mapping[str, Callable[[Runner], Condition]] = {
    "health-ok": _healthy,
    "trim": _trimmed,
    "sync": _written,
    "drop-caches": _dropped,
    "wait": _waited,
}


def _status(run: Runner, seconds: float) -> dict[str, Any] | str:
    """Return what ``ceph status`` says, or why it says nothing. Raises ShellError."""
    try:
        found = json.loads(run("exec ceph status --format json", min(STATUS_SECONDS, seconds)))
    except ValueError:
        return "`ceph status` printed no JSON"
    return found if isinstance(found, dict) else "`ceph status` printed no object"


def _health(status: dict[str, Any]) -> str:
    health = status.get("health") or {}
    checks = ", ".join(sorted(map(str, health.get("checks") or ())))
    return f"{health.get('status', 'no health')}{f': {printable(checks)}' if checks else ''}"


def _dirty() -> int:
    """Return this host's dirty and written-back bytes."""
    found = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Dirty", "Writeback"):
            found += int(rest.split()[0]) << 10
    return found
