"""What to try first: mitigations for a run's verdicts, with this cluster's names, and what was tried before."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from pinchpoint.diagnosis.facts import Facts, uses_ceph
from pinchpoint.diagnosis.marks import bottleneck
from pinchpoint.diagnosis.paired import Decision
from pinchpoint.experiment import shell
from pinchpoint.experiment.ledger import Experiment
from pinchpoint.experiment.mitigations import Mitigation, classes, mitigations_for
from pinchpoint.experiment.results import outcome
from pinchpoint.experiment.shell import ShellError
from pinchpoint.experiment.words import change_words, date_of, label, verdict_of
from pinchpoint.expressions import expression
from pinchpoint.runs import PhaseMark, VerdictMark
from pinchpoint.session.store import name_of
from pinchpoint.text import printable

__all__ = ["Suggestion", "file_system", "suggestions", "tried", "tried_words"]

ASK_SECONDS = 10.0
IO500 = expression(r"(ior|mdtest)_|find")
"""Names of IO500's phases, for which mitigations say what they expect; other phases may always be helped."""
CEPH_OWNER = ("client.", "mds.", "osd.")
NO_GAIN = (Decision.NO_GAIN, Decision.HURT)


class Suggestion(msgspec.Struct):
    """One mitigation for a run."""

    name: str
    mitigation: Mitigation
    phases: list[str]
    """The phases that it would help, by the run's verdicts."""
    blame: float
    """Sum of the blame that it addresses, over these phases."""
    set: str
    """The command, with this cluster's names."""
    undo: str
    command: str
    """The experiment to run; empty if it has to be done by hand."""
    tried: list[str] = msgspec.field(default_factory=list)
    """What came of it before."""


def suggestions(
    phases: Sequence[PhaseMark],
    command: Sequence[str],
    experiments: Sequence[Experiment],
    fs: str | None,
    settings: Facts,
) -> list[Suggestion]:
    """Return what to try, the most blamed first; what was tried without a gain comes last.

    Changes of Ceph's settings are among them only if the run used Ceph, as its verdicts show, or `settings`: those of
    its hosts.
    """
    ceph = _uses_ceph(phases, settings)
    found: dict[str, Suggestion] = {}
    for mark in phases:
        if mark.verdict is None:
            continue
        # The most blamed of a resource, which comes first, is kept.
        blames = {limit.resource: limit.blame for limit in reversed(mark.verdict.limits)} or {mark.verdict.kind: 1.0}
        owners = [limit.owner for limit in mark.verdict.limits]
        for name, mitigation in mitigations_for(list(blames)).items():
            if mitigation.class_ == "ceph" and not ceph:
                continue
            if IO500.match(mark.name) and not mitigation.expected([mark.name]):
                continue
            if name not in found:
                found[name] = _suggestion(name, mitigation, command, owners, fs, experiments)
            one = found[name]
            if mark.name not in one.phases:
                one.phases.append(mark.name)
            one.blame += max(blame for word, blame in blames.items() if word in mitigation.resources)
    for one in found.values():
        if classes()[one.mitigation.class_].unattended:
            expect = f" --expect {','.join(one.phases)}"
            one.command = (
                f"pinchpoint experiment run --knob {one.name} --yes {one.mitigation.class_}{expect} -- "
                f"{shlex.join(command)}"
            )
    return sorted(found.values(), key=lambda one: (bool(one.tried), -one.blame, one.name))


def _uses_ceph(phases: Sequence[PhaseMark], settings: Facts) -> bool:
    owners = (limit.owner for mark in phases if mark.verdict for limit in mark.verdict.limits)
    return any(owner.startswith(CEPH_OWNER) for owner in owners) or uses_ceph(settings)


def _suggestion(
    name: str,
    mitigation: Mitigation,
    command: Sequence[str],
    owners: Sequence[str],
    fs: str | None,
    experiments: Sequence[Experiment],
) -> Suggestion:
    names = {"FS": fs, "NAME": next((owner.partition(".")[2] for owner in owners if owner.startswith("mds.")), None)}
    return Suggestion(
        name=name,
        mitigation=mitigation,
        phases=[],
        blame=0.0,
        set=_named(mitigation.set, names),
        undo=_named(mitigation.undo, names),
        command="",
        tried=[
            tried_words(each) for each in experiments if name == each.mitigation and outcome(each).decision in NO_GAIN
        ],
    )


def _named(command: str, names: Mapping[str, str | None]) -> str:
    for word, name in names.items():
        if name:
            command = re.sub(rf"\b{word}\b", shlex.quote(name).replace("\\", r"\\"), command)
    return command


def file_system() -> str | None:
    """Return the name of the cluster's only CephFS, as the command `ceph` says; None if there is none, or several."""
    try:
        found = json.loads(shell.run("exec ceph fs ls --format json", seconds=ASK_SECONDS))
    except (ShellError, ValueError):
        return None
    names = [entry.get("name") for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return names[0] if len(names) == 1 and isinstance(names[0], str) else None


def tried(verdicts: Mapping[str, VerdictMark], experiments: Sequence[Experiment]) -> list[str]:
    """Return what was tried for the same verdict on the same phase, and did not help."""
    return [
        tried_words(each)
        for each in experiments
        if outcome(each).decision in NO_GAIN
        and any(_same(verdicts.get(phase), before) for phase, before in verdict_of(each, "A").items())
    ]


def _same(first: VerdictMark | None, second: VerdictMark) -> bool:
    one, other = bottleneck([first] if first else []), bottleneck([second])
    return one is not None and other is not None and one.identity == other.identity


def tried_words(experiment: Experiment) -> str:
    """Return what came of an experiment: when, what was set, and the change."""
    found = outcome(experiment)
    changes = ", ".join(f"{label(key)} {change_words(found.findings[key])}" for key in sorted(found.primary))
    return (
        f"tried on {date_of(experiment)}: `{printable(experiment.knob.set)}` {found.decision}: {changes} "
        f"({printable(name_of(experiment.id))})"
    )
