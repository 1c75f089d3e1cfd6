"""Experiments in a terminal: a line for each, and one in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.paired import Decision
from pinchpoint.experiment.ledger import Experiment
from pinchpoint.experiment.mitigations import classes
from pinchpoint.experiment.results import Outcome, outcome
from pinchpoint.experiment.suggest import Suggestion
from pinchpoint.experiment.words import (
    change_words,
    decision_words,
    facts_of,
    findings_of,
    label,
    verdict_of,
    verdict_words,
)
from pinchpoint.text import printable

__all__ = ["experiment_parts", "experiments_table", "suggestion_parts"]

STYLES = {Decision.HELPED: "green", Decision.HURT: "red", Decision.UNDECIDED: "dim"}


def experiments_table(experiments: Sequence[Experiment]) -> Table:
    """Return the table of saved experiments."""
    table = _table("experiment", "knob", "change", "decision", "state")
    for experiment in experiments:
        found = outcome(experiment)
        changes = [f"{label(key)} {change_words(found.findings[key])}" for key in sorted(found.primary)]
        table.add_row(
            Text(printable(experiment.id)),
            Text(printable(experiment.knob.set)),
            Text("\n".join(changes) or "-"),
            Text(str(found.decision), style=STYLES.get(found.decision, "")),
            Text(experiment.standing),
        )
    return table


def experiment_parts(experiment: Experiment, found: Outcome) -> Iterator[RenderableType]:
    """Yield what is printed about one experiment."""
    yield Text(decision_words(experiment, found), style=STYLES.get(found.decision, ""))
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for name, text in facts_of(experiment):
        facts.add_row(name, Text(text))
    yield facts
    figures = _table("figure", "change (interval)", "decision", "pairs")
    for key, finding in findings_of(found):
        figures.add_row(
            Text(label(key), style="bold" if key in found.primary else ""),
            Text(change_words(finding)),
            Text(str(finding.decision), style=STYLES.get(finding.decision, "")),
            Text(" ".join(f"{math.expm1(ratio):+.1%}" for ratio in found.ratios[key])),
        )
    if figures.row_count:
        yield figures
    before, after = verdict_of(experiment, "A"), verdict_of(experiment, "B")
    if before or after:
        verdicts = _table("phase", "limited by, without", "limited by, with")
        for phase in {**before, **after}:
            verdicts.add_row(
                Text(printable(phase)),
                Text(verdict_words(before.get(phase))),
                Text(verdict_words(after.get(phase))),
            )
        yield verdicts
    runs = _table("", "side", "run", "state")
    for number, trial in enumerate(experiment.trials, 1):
        state = f"{trial.state}{f': {trial.reason}' if trial.reason else ''}"
        runs.add_row(str(number), trial.side, Text(printable(trial.run or "-")), Text(printable(state)))
    if runs.row_count:
        yield runs


def suggestion_parts(found: Sequence[Suggestion]) -> Iterator[RenderableType]:
    """Yield what is printed about suggestions, the first one first."""
    for one in found:
        mitigation = one.mitigation
        yield Text(f"{one.name}: {printable(', '.join(one.phases))}", style="bold")
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim")
        grid.add_column(overflow="fold")
        lines = [
            ("set", one.set),
            ("undo", one.undo),
            ("class", f"{mitigation.class_}: {classes()[mitigation.class_].what}"),
            ("needs", mitigation.needs),
            ("risk", mitigation.risk),
            ("known", mitigation.known),
            *(("here", text) for text in one.tried),
            ("runbook", f"pinchpoint runbook {mitigation.runbook}"),
            ("try it", one.command),
        ]
        for name, text in lines:
            if text:
                grid.add_row(f"  {name}", Text(printable(text)))
        yield grid
        yield Text()


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
