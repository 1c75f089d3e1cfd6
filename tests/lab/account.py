"""Why a cluster does not become healthy, in words: the state of its monitor and daemons, their logs, and what to do.

It is collected while something is wrong, so each part has a time limit and may be missing, and none of them raises.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Circumstances", "account", "ask", "of_daemons", "of_the_monitor", "processes_by_daemon", "tails", "told"]

ASK_SECONDS = 6.0
"""Seconds for all questions to the monitor together; a healthy one needs a tenth of one second."""
QUESTIONS = ("status", "osd dump", "fs dump")
TAILS = 2
"""Number of daemons whose logs are shown: the first failure causes the others."""
TAIL_LINES = 8
AUDIT = "[DBG] from="
"""Text in log lines about the lab's own questions (LogEntry.cc, audit channel)."""
ENOUGH_BYTES, ENOUGH_SHARE = 256 << 20, 0.03
"""Below this much free space, a lack of it is suspected. mon_data_avail_warn is 2 % of the file system in the lab."""
BUSY_LOAD = 2
"""Load per CPU from which the host is called busy."""


@dataclass(frozen=True)
class Circumstances:
    """The input of an account."""

    directory: Path
    questions: Callable[[], Mapping[str, Any]]
    """Asks the monitor."""
    daemons: Mapping[str, int]
    """Process IDs of the started daemons, by name."""
    expected_pgs: int
    metrics_port: int | None = None
    silent_metrics: Callable[[], bool] = field(default=lambda: False)
    """Returns whether the manager's metrics fail to report a healthy cluster."""


def account(reason: str, about: Circumstances) -> str:
    """Return the reason, followed by what is known about it."""
    answers = _guarded(about.questions, {})
    states = _guarded(lambda: {name: state_of(pid) for name, pid in about.daemons.items()}, {})
    monitor = _guarded(lambda: of_the_monitor(answers, about.expected_pgs), [])
    # The reason already includes a daemon that ended, with its log.
    wrong = _guarded(lambda: of_daemons(answers, states), {})
    found = {name: problem for name, problem in wrong.items() if f"{name} " not in reason}
    lines = [reason, *monitor, *(f"{name} {problem}." for name, problem in found.items())]
    taken = _guarded(lambda: _taken_port(about) if about.silent_metrics() else "", "")
    if taken:
        lines.append(taken)
    logs = about.directory / "log"
    for name in [*found][:TAILS]:
        lines.append(tails(logs / f"ceph-{name}.log") or tails(logs / f"ceph-{name}.out") or f"{name} wrote no log.")
    if not (wrong or taken):
        lines += filter(None, [tails(logs / "ceph.log", without=AUDIT)])
    lines.append("What to do: " + _guarded(lambda: advice(about.directory, states, bool(taken)), "Try again."))
    return "\n".join(lines)


def ask(command: Sequence[str], environment: Mapping[str, str], seconds: float = ASK_SECONDS) -> dict[str, Any]:
    """Return the monitor's answers to `QUESTIONS` within that time, by question.

    `command` runs admin.py in a process of its own, since the cluster's own connection may be what hangs.
    """
    requests = "".join(
        json.dumps({"to": "mon", "command": {"prefix": prefix, "format": "json"}}) + "\n" for prefix in QUESTIONS
    )
    try:
        output = subprocess.run(
            command,
            env=dict(environment),
            input=requests.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
            start_new_session=True,  # a Ctrl-C is for the owner
        ).stdout
    except subprocess.TimeoutExpired as late:
        output = late.output or b""
    answers = {}
    for prefix, line in zip(QUESTIONS, output.splitlines(), strict=False):
        try:
            answers[prefix] = json.loads(json.loads(line)["output"])
        except (ValueError, LookupError, TypeError):
            continue
    return answers


def of_the_monitor(answers: Mapping[str, Any], expected_pgs: int) -> list[str]:
    """Describe the state of the whole cluster as the monitor reports it."""
    status = answers.get("status")
    if status is None:
        return [f"The monitor does not answer within {ASK_SECONDS:.0f} s."]
    checks = [f"{check['summary']['message']} ({name})" for name, check in status["health"]["checks"].items()]
    lines = [f"Health: {'; '.join([status['health']['status'], *checks])}."]
    states = {state["state_name"]: state["count"] for state in status["pgmap"].get("pgs_by_state", ())}
    if states != {"active+clean": expected_pgs}:
        known = ", ".join(f"{count} {name}" for name, count in states.items()) or "none is known"
        lines.append(f"Placement groups: {known}; {expected_pgs} should be active+clean.")
    return lines


def of_daemons(answers: Mapping[str, Any], states: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with daemons, by name: first the state of their processes, then what the monitor knows."""
    found = {name: state for name, state in states.items() if state}
    osds = {f"osd.{entry['osd']}": entry for entry in answers.get("osd dump", {}).get("osds", ())}
    mdss = _mds_states(answers["fs dump"]) if "fs dump" in answers else {}
    for name in states.keys() - found.keys():
        if name.startswith("osd.") and "osd dump" in answers and not osds.get(name, {}).get("up"):
            found[name] = "runs, and the monitor does not call it up"
        if name.startswith("mds.") and "fs dump" in answers:
            state = mdss.get(name, "unknown to the monitor")
            if state not in ("up:active", "up:standby"):
                found[name] = f"runs, and is {state}"
        if name.startswith("mgr.") and "status" in answers and not answers["status"]["mgrmap"]["available"]:
            found[name] = "runs, and the monitor does not call it available"
    return {name: found[name] for name in states if name in found}


def state_of(pid: int | None) -> str:
    """Return what is wrong with a process, or ""."""
    if pid is None:
        return "does not run"
    try:
        state = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return "does not run"
    if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
        return "has ended"
    if state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
        return f"is stopped (SIGSTOP; process {pid})"
    return f"waits for a disk (state D; process {pid})" if state == psutil.STATUS_DISK_SLEEP else ""


def advice(directory: Path, states: Mapping[str, str], port_taken: bool) -> str:
    """Return what the reader can do about it."""
    steps = []
    space = shutil.disk_usage(directory)
    if space.free < max(ENOUGH_BYTES, ENOUGH_SHARE * space.total):
        steps.append(
            f"Only {space.free >> 20} MiB of {space.total >> 20} are free in {directory.parent}: "
            "remove something, or set TMPDIR to a directory with more."
        )
    if stopped := [name for name, state in states.items() if "SIGSTOP" in state]:
        steps.append(f"Find out who stopped {', '.join(stopped)}: the lab did not.")
    if port_taken:
        steps.append("End what uses the port, or choose another one.")
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY_LOAD * cpus:
        steps.append(f"This host is busy (load {load:.0f} on {cpus} CPUs): try again when it is not.")
    elif not steps:
        steps.append("Try again.")
    return " ".join([*steps, "A smaller cluster is OSDS=1 MDSS=1 make lab-up."])


def tails(*paths: Path, without: str | None = None) -> str:
    """Return the last lines of log files, without those that contain a text; a missing or empty file is left out."""
    ends = []
    for path in paths:
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        lines = [line for line in lines if line.strip() and (without is None or without not in line)][-TAIL_LINES:]
        if lines:
            ends.append("\n".join([f"The end of {path}:", *(f"  {line}" for line in lines)]))
    return "\n".join(ends)


def told(error: BaseException) -> str:
    """Return an error with its notes, such as a failure of its clean-up."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def processes_by_daemon(found: Iterable[psutil.Process]) -> dict[str, int]:
    """Return process IDs by daemon, such as ``osd.0``, and ``ceph-fuse`` for a mount."""
    names = {}
    for process in found:
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        program = Path(command[0]).name if command else ""
        if program == "ceph-fuse":
            names[program] = process.pid
        elif program.startswith("ceph-") and "-i" in command[:-1]:
            names[f"{program.removeprefix('ceph-')}.{command[command.index('-i') + 1]}"] = process.pid
    return names


def _mds_states(dump: Mapping[str, Any]) -> dict[str, str]:
    active = [info for system in dump["filesystems"] for info in system["mdsmap"]["info"].values()]
    return {f"mds.{info['name']}": info["state"] for info in [*active, *dump["standbys"]]}


def _taken_port(about: Circumstances) -> str:
    manager = about.daemons.get("mgr.a")
    for connection in psutil.net_connections("tcp"):
        ours = connection.laddr and connection.laddr.port == about.metrics_port
        if ours and connection.status == psutil.CONN_LISTEN and connection.pid not in (None, manager):
            name = psutil.Process(connection.pid).name()
            return (
                f"Port {about.metrics_port}, of the manager's metrics, is in use by {name} (process {connection.pid})."
            )
    return ""


def _guarded(function: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return function()
    except Exception:  # a failure here must not replace the reason
        return otherwise
