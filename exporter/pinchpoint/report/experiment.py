"""An experiment as a document: JSON, one self-contained HTML page with every pair, and Markdown for a ticket."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from pinchpoint import __version__
from pinchpoint.diagnosis.comparison import Key
from pinchpoint.diagnosis.paired import Finding
from pinchpoint.experiment.ledger import Experiment
from pinchpoint.experiment.results import Outcome, outcome
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

__all__ = ["document", "page", "ticket"]

PICTURE_WIDTH, PICTURE_HEIGHT = 320, 64
MARGIN = 8
MIN_SCALE = 0.02
"""Smallest change, as a logarithm, that the picture's edge stands for."""


class Row(NamedTuple):
    """One figure of the page."""

    label: str
    primary: bool
    change: str
    decision: str
    picture: Markup


def document(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as plain JSON data: what the ledger has, and what follows from it."""
    found = outcome(experiment)
    data: dict[str, Any] = msgspec.to_builtins(experiment)
    data.pop("owner")
    return {
        **data,
        "state": experiment.standing,
        "decision": str(found.decision),
        "complete_pairs": found.pairs,
        "figures": [_figure(key, finding, found) for key, finding in findings_of(found)],
        "verdict_before": msgspec.to_builtins(verdict_of(experiment, "A")),
        "verdict_after": msgspec.to_builtins(verdict_of(experiment, "B")),
    }


def _figure(key: Key, finding: Finding, found: Outcome) -> dict[str, Any]:
    return {
        **key._asdict(),
        "phase": key.phase or None,
        "primary": key in found.primary,
        "change": finding.change,
        "interval": None if finding.interval is None else list(finding.interval),
        "pairs": finding.pairs,
        "decision": str(finding.decision),
        "changes": [math.expm1(ratio) for ratio in found.ratios[key]],
    }


def page(experiment: Experiment) -> str:
    """Return the page: no external script, font or picture."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # takes a fifth of a command's time to start

    environment = Environment(
        loader=PackageLoader("pinchpoint.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = outcome(experiment)
    before, after = verdict_of(experiment, "A"), verdict_of(experiment, "B")
    return environment.get_template("experiment.html.j2").render(
        id=printable(experiment.id),
        version=__version__,
        decision=decision_words(experiment, found),
        facts=facts_of(experiment),
        rows=[
            Row(
                label(key),
                key in found.primary,
                change_words(finding),
                str(finding.decision),
                Markup(_picture(found.ratios[key], finding)),
            )
            for key, finding in findings_of(found)
        ],
        verdicts=[
            (printable(phase), verdict_words(before.get(phase)), verdict_words(after.get(phase)))
            for phase in {**before, **after}
        ],
        trials=[
            (number, trial.side, printable(trial.run), trial.state, printable(trial.reason))
            for number, trial in enumerate(experiment.trials, 1)
        ],
    )


def _picture(ratios: Sequence[float], finding: Finding) -> str:
    """Return the pairs as dots from left (less) to right (more), the interval as a bar, and no change as a line."""
    bounds = [] if finding.interval is None else [math.log1p(max(bound, -0.99)) for bound in finding.interval]
    shown = [min(bound, 4 * max(map(abs, ratios), default=0.0) + MIN_SCALE) for bound in bounds]
    scale = max([MIN_SCALE, *map(abs, ratios), *map(abs, shown)])

    def x(value: float) -> float:
        inside = min(1.0, max(-1.0, value / scale))
        return PICTURE_WIDTH / 2 + inside * (PICTURE_WIDTH / 2 - MARGIN)

    parts = [
        f'<svg viewBox="0 0 {PICTURE_WIDTH} {PICTURE_HEIGHT}" width="{PICTURE_WIDTH}" height="{PICTURE_HEIGHT}" '
        f'role="img" aria-label="{len(ratios)} pairs, from {math.expm1(-scale):+.0%} to {math.expm1(scale):+.0%}">',
        f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="4" y2="{PICTURE_HEIGHT - 4}"/>',
    ]
    if shown:
        left, right = sorted(map(x, shown))
        parts.append(f'<rect class="interval" x="{left:.1f}" y="6" width="{max(1.0, right - left):.1f}" height="8"/>')
    step = (PICTURE_HEIGHT - 28) / max(1, len(ratios) - 1)
    for place, ratio in enumerate(ratios):
        parts.append(
            f'<circle class="pair" cx="{x(ratio):.1f}" cy="{22 + place * step:.1f}" r="3">'
            f"<title>pair {place + 1}: {math.expm1(ratio):+.1%}</title></circle>"
        )
    return "".join([*parts, "</svg>"])


def ticket(experiment: Experiment) -> str:
    """Return an experiment as Markdown."""
    found = outcome(experiment)
    lines = [f"## {printable(decision_words(experiment, found))}", ""]
    lines += [f"- {name}: {_code(text)}" for name, text in facts_of(experiment)]
    lines += ["", "| figure | change (interval) | decision | pairs |", "| --- | --- | --- | --- |"]
    for key, finding in findings_of(found):
        about = " (primary)" if key in found.primary else ""
        pairs = ", ".join(f"{math.expm1(ratio):+.1%}" for ratio in found.ratios[key])
        lines.append(f"| {label(key)}{about} | {change_words(finding)} | {finding.decision} | {pairs} |")
    before, after = verdict_of(experiment, "A"), verdict_of(experiment, "B")
    if before or after:
        lines += ["", "| phase | limited by, without | limited by, with |", "| --- | --- | --- |"]
        lines += [
            f"| {printable(phase)} | {verdict_words(before.get(phase))} | {verdict_words(after.get(phase))} |"
            for phase in {**before, **after}
        ]
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    """Return a text as a code span that its own backticks do not end."""
    text = printable(text)
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
