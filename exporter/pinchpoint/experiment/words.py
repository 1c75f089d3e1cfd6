"""What an experiment found, in words."""

from __future__ import annotations

import shlex
import time

from pinchpoint.diagnosis.comparison import Key
from pinchpoint.diagnosis.marks import bottleneck
from pinchpoint.diagnosis.paired import Finding
from pinchpoint.experiment.ledger import Experiment
from pinchpoint.experiment.results import Outcome
from pinchpoint.runs import VerdictMark
from pinchpoint.session.store import name_of
from pinchpoint.text import counted, printable

__all__ = [
    "change_words",
    "date_of",
    "decision_words",
    "facts_of",
    "findings_of",
    "label",
    "restored_words",
    "verdict_of",
    "verdict_words",
]


def label(key: Key) -> str:
    """Return the name of a figure."""
    words = f"{key.phase or f'score {key.operation}'}{f' ({key.occurrence})' if key.occurrence > 1 else ''}"
    return printable(words)


def change_words(finding: Finding) -> str:
    """Return a change with its interval: ``+6.2 % (+3.1 % to +9.4 %)``."""
    change = f"{finding.change:+.1%}".replace("%", " %")
    if finding.interval is None:
        return f"{change} (too few pairs for an interval)"
    low, high = (f"{bound:+.1%}".replace("%", " %") for bound in finding.interval)
    return f"{change} ({low} to {high})"


def decision_words(experiment: Experiment, found: Outcome) -> str:
    """Return the decision in a line: on which figures, by how much, from how many pairs."""
    changes = ", ".join(f"{label(key)} {change_words(found.findings[key])}" for key in sorted(found.primary))
    pairs = counted(found.pairs, "pair")
    return f"{printable(name_of(experiment.id))}: {found.decision}; {changes or 'no figures'}; {pairs}"


def restored_words(experiment: Experiment) -> str:
    """Return whether the knob is as it was."""
    old = printable(experiment.old or "")
    if experiment.restored is None:
        return "not set" if experiment.value is None else "unknown: `pinchpoint experiment restore`"
    return f"restored to {old!r} and read back" if experiment.restored else f"NOT restored: it has to be {old!r}"


def verdict_of(experiment: Experiment, side: str) -> dict[str, VerdictMark]:
    """Return what limited each phase in most runs of a side."""
    marks: dict[str, list[VerdictMark]] = {}
    for trial in experiment.trials:
        if trial.side == side and trial.state == "done":
            for phase, mark in trial.verdicts.items():
                marks.setdefault(phase, []).append(mark)
    found = {}
    for phase, all_ in marks.items():
        most = bottleneck(all_)
        if most is not None:
            found[phase] = VerdictMark(most.kind, most.limits)
    return found


def verdict_words(mark: VerdictMark | None) -> str:
    """Return a verdict: ``mds_lock of mds.a 83%``, or its kind."""
    if mark is None:
        return "-"
    return printable(
        " + ".join(
            f"{limit.resource}{f' of {limit.owner}' if limit.owner else ''} {limit.blame:.0%}" for limit in mark.limits
        )
        or mark.kind
    )


def date_of(experiment: Experiment) -> str:
    """Return the day of an experiment in local time."""
    return time.strftime("%Y-%m-%d", time.localtime(experiment.start))


def facts_of(experiment: Experiment) -> list[tuple[str, str]]:
    """Return what was done, line by line: a name and a text."""
    return [
        (name, printable(text))
        for name, text in (
            ("date", date_of(experiment)),
            ("hypothesis", experiment.hypothesis),
            ("set", experiment.knob.set),
            ("undo", experiment.knob.undo),
            ("check", experiment.knob.check),
            ("value", "" if experiment.value is None else f"{experiment.old} -> {experiment.value}"),
            ("knob", restored_words(experiment)),
            ("command", shlex.join(experiment.command)),
            ("prepare", experiment.prepare),
            ("settle", ", ".join(experiment.settle)),
            ("planned", f"{experiment.pairs} pairs, for a gain of {100 * experiment.effect:g} %"),
            ("state", f"{experiment.standing}{f': {experiment.reason}' if experiment.reason else ''}"),
        )
        if text
    ]


def findings_of(found: Outcome) -> list[tuple[Key, Finding]]:
    """Return the figures of an outcome, those that it is about first."""
    return sorted(found.findings.items(), key=lambda item: (item[0] not in found.primary, item[0]))
