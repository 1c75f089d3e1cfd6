"""What the exit status of each command says: the one list behind ``--help`` and the table of docs/use.md."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

__all__ = ["STATUSES", "statuses"]

HELP_COLUMNS = 76
"""Width of the lines in columns: click fills 78, and indents them by 2."""
USAGE = "wrong usage: an option, an argument or a file that it names"
"""What 2 says, in every command."""
FAILED = "standard output cannot be written, or this host refuses memory, threads or descriptors"
"""What 1 says at least, in every command but run."""
SERVICE = {
    "0": "a signal (SIGTERM, SIGINT) ended it",
    "1": FAILED,
    "2": f"{USAGE}; the configuration is invalid, or the address is in use. A service manager need not try again",
}
SIGNAL = "a signal or the end of the terminal ended it: 128 and the signal's number; Ctrl-C is 0"

STATUSES: Mapping[str, Mapping[str, str]] = {
    "exporter": SERVICE,
    "check": {
        "0": "no problem was found",
        "1": f"problems were found; or {FAILED}",
        "2": f"a host or server did not answer; or {USAGE}",
    },
    "run": {
        "N": "the command's own status; if a signal ended the command, the same signal ends `pinchpoint run`",
        "1": "the command's status was 0, but its output could not be written",
        "2": f"nothing was started: {USAGE}, or a target that does not answer",
        "126": "the command is not a program that can be run",
        "127": "the command was not found",
    },
    "job begin": {"0": "marked", "1": f"the mark cannot be written; or {FAILED}", "2": f"{USAGE}; or not by root"},
    "job end": {"0": "the mark is gone", "1": f"it cannot be removed; or {FAILED}", "2": USAGE},
    "watch": {
        "0": "a key or Ctrl-C ended it; with --once: at least one target answered",
        "1": f"with --once: every target was down; or {FAILED}",
        "2": USAGE,
        "128+N": SIGNAL,
    },
    "judge": SERVICE,
    "import": {
        "0": "every file was read; what was imported before counts",
        "1": f"at least one file could not be read or saved, the others were; or {FAILED}",
        "2": USAGE,
    },
    "runs": {"0": "listed", "1": f"the saved runs cannot be read; or {FAILED}", "2": USAGE},
    "report": {"0": "reported", "1": f"no such run, or a file cannot be written; or {FAILED}", "2": USAGE},
    "standing": {
        "0": "shown",
        "1": f"no such run, or it is not a run of IO500 with a score; or {FAILED}",
        "2": f"{USAGE}: the directory has no public runs, or none of such a file system",
    },
    "compare": {
        "0": "compared, whatever differs",
        "1": f"no such run, or the runs have no figure in common; or {FAILED}",
        "2": f"{USAGE}; fewer than two runs are named",
    },
    "replay": {
        "0": "shown to its end, or ended by a key or Ctrl-C",
        "1": f"no such run, or it has no samples; or {FAILED}",
        "2": USAGE,
        "128+N": SIGNAL,
    },
    "experiment run": {
        "0": "it ended as planned, or earlier because the answer was clear, whatever the answer; the knob is restored",
        "1": "it stopped: a run failed or is invalid, or a command or a settling step failed; the knob is restored; "
        f"or {FAILED}",
        "2": f"nothing was set: {USAGE}, or another experiment runs on this host or cluster",
        "3": "the knob could not be restored; the last lines say what to do",
        "128+N": "a signal (Ctrl-C, SIGTERM) ended it: 128 and the signal's number; the knob is restored",
    },
    "experiment restore": {
        "0": "every knob is restored, or none has to be",
        "1": FAILED,
        "2": USAGE,
        "3": "a knob could not be restored; the last lines say what to do",
    },
    "experiment suggest": {"0": "suggested, or nothing is known to try", "1": f"no such run; or {FAILED}", "2": USAGE},
    "experiment list": {"0": "listed", "1": f"the experiments cannot be read; or {FAILED}", "2": USAGE},
    "experiment show": {
        "0": "shown",
        "1": f"no such experiment, or a file cannot be written; or {FAILED}",
        "2": USAGE,
    },
    "experiment export": {"0": "written", "1": f"no such experiment, or it cannot be written; or {FAILED}", "2": USAGE},
    "export": {"0": "written", "1": f"no such run, or it cannot be written; or {FAILED}", "2": USAGE},
    "rules": {"0": "printed", "1": FAILED, "2": USAGE},
    "dashboards write": {"0": "written", "1": f"a file cannot be written; or {FAILED}", "2": USAGE},
    "dashboards install": {
        "0": "installed, or there as before; with --dry-run: Grafana answered",
        "1": f"Grafana does not answer, is too old, or refuses a change: earlier ones stay; or {FAILED}",
        "2": USAGE,
    },
    "metrics": {"0": "printed", "1": FAILED, "2": USAGE},
    "runbook": {"0": "shown", "1": f"no runbook has this name; or {FAILED}", "2": USAGE},
    "docs": {"0": "shown", "1": f"no page has this name; or {FAILED}", "2": USAGE},
    "config check": {
        "0": "no mistake was found",
        "1": f"mistakes were found, or a file cannot be read; or {FAILED}",
        "2": USAGE,
    },
    "version": {"0": "printed", "1": FAILED, "2": USAGE},
}
"""By command, what each status says. `N` stands for any number."""


def statuses(command: str) -> str:
    """Return the end of a command's help; empty for a group of commands."""
    known = STATUSES.get(command)
    if known is None:
        return ""
    width = max(map(len, known)) + 2
    lines = ["\b", "Exit status:"]  # the first one keeps click from filling the lines again
    for status, meaning in known.items():
        lines += wrap(
            f"{meaning}.", HELP_COLUMNS, initial_indent=f"  {status:{width}}", subsequent_indent=" " * (width + 2)
        )
    return "\n".join(lines)
