"""What the result folder of an IO500 run says, as a document: tails, ranks, rules, and what moves the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pinchpoint.benchmarks.io500_detail import PhaseDetail
from pinchpoint.benchmarks.io500_public import TOTAL, io500_figures
from pinchpoint.diagnosis.io500_rules import RULES_VERSION, ChangedOption, ResultFolder, Rule, RuleState
from pinchpoint.diagnosis.tail import Tail, gain, score_without_tails, slow_words, tail_words, tails
from pinchpoint.runs import RunState

__all__ = [
    "DocumentFolder",
    "DocumentTail",
    "ScoreWithout",
    "folder_document",
    "folder_json",
    "folder_lines",
    "rule_words",
    "score_words",
    "tail_document",
]

MIN_GAIN = 0.0005
"""Share of the score from which a phase is named."""
MAX_GAINS = 3
SHARE_DECIMALS = 4


class DocumentTail(msgspec.Struct, kw_only=True):
    """The tail of a phase: see `pinchpoint.diagnosis.tail.Tail`."""

    kind: str
    until: float | None
    seconds: float | None
    rate: float | None
    cost: float | None
    low: float | None
    high: float | None
    gain: float
    source: str
    words: list[str]


class ScoreWithout(msgspec.Struct):
    """The score had the write phases kept the rate that they had until the stonewall."""

    value: float
    low: float
    high: float
    gain: float
    """By how much, as a share, it is higher than the score."""


class DocumentFolder(msgspec.Struct, kw_only=True):
    """The whole folder."""

    version: str
    nodes: int | None
    tasks: int | None
    score_without_tails: ScoreWithout | None
    gains: list[tuple[str, float]]
    """Write phases by what the score would gain without their tails, as a share, the most first."""
    rules_version: str
    rules: list[Rule]
    options: list[ChangedOption]
    notes: list[str]
    tails: dict[str, DocumentTail]
    """By phase."""
    details: dict[str, PhaseDetail]


def folder_document(folder: ResultFolder, state: RunState) -> DocumentFolder:
    """Return what the folder of a run says."""
    details = {detail.phase: detail for detail in folder.details}
    found = tails(folder.details, state.phases)
    score = io500_figures(state).get(TOTAL)
    without = None
    if score and (values := score_without_tails(score, found)) is not None:
        middle, low, high = (round(value, 6) for value in values)
        without = ScoreWithout(middle, low, high, round(middle / score - 1, SHARE_DECIMALS))
    return DocumentFolder(
        version=folder.version,
        nodes=folder.nodes,
        tasks=folder.tasks,
        score_without_tails=without,
        gains=_gains(found),
        rules_version=RULES_VERSION,
        rules=folder.rules,
        options=folder.options,
        notes=folder.notes,
        tails={phase: tail_document(phase, tail, details[phase]) for phase, tail in found.items()},
        details=details,
    )


def _gains(found: Mapping[str, Tail]) -> list[tuple[str, float]]:
    gains = [
        (phase, round(gain(phase, tail), SHARE_DECIMALS)) for phase, tail in found.items() if tail.kind == "stonewall"
    ]
    return sorted((one for one in gains if one[1] >= MIN_GAIN), key=lambda one: (-one[1], one[0]))


def tail_document(phase: str, tail: Tail, detail: PhaseDetail) -> DocumentTail:
    """Return the tail of a phase, with what its files say of ranks."""

    def share(value: float | None) -> float | None:
        return None if value is None else round(value, SHARE_DECIMALS)

    words = tail_words(phase, tail, detail)
    if detail.ranks is not None:
        words += slow_words(detail.ranks)
    return DocumentTail(
        kind=tail.kind,
        until=tail.until,
        seconds=tail.seconds,
        rate=tail.rate,
        cost=share(tail.cost),
        low=share(tail.low),
        high=share(tail.high),
        gain=round(gain(phase, tail), SHARE_DECIMALS),
        source=tail.source,
        words=words,
    )


def folder_json(folder: ResultFolder, state: RunState) -> dict[str, Any]:
    """Return the same as plain data (docs/results.md)."""
    found: dict[str, Any] = msgspec.to_builtins(folder_document(folder, state))
    return found


def folder_lines(folder: ResultFolder, state: RunState) -> Iterator[str]:
    """Yield the folder in brief: what breaks rules, what contradicts, and what the tails cost."""
    document = folder_document(folder, state)
    yield from _brief(document)
    for note in document.notes:
        yield f"note: {note}"


def _brief(document: DocumentFolder) -> Iterator[str]:
    """Yield what breaks rules, and what the tails cost."""
    yield from (f"breaks a rule: {words}" for words in rule_words(document, RuleState.BROKEN))
    yield from score_words(document)
    yield from (
        f"{phase}: {words}"
        for phase, tail in document.tails.items()
        for words in tail.words
        if words.startswith("slow: ")
    )


def rule_words(document: DocumentFolder, state: RuleState) -> Iterator[str]:
    """Yield the rules in this state, and what the files show."""
    for rule in document.rules:
        if rule.state == state:
            yield f"{rule.name}: {f'{rule.phase}: ' if rule.phase else ''}{rule.words}"


def score_words(document: DocumentFolder) -> Iterator[str]:
    """Yield what the tails cost the score."""
    without = document.score_without_tails
    if without is None:
        return
    low, high = f"{without.low:.4g}", f"{without.high:.4g}"
    span = f" ({low} to {high})" if low != high else ""
    yield f"without the tails of the write phases the score would be {without.value:.4g}{span}, {without.gain:.1%} more"
    if document.gains:
        named = ", ".join(f"{phase} {share:.1%}" for phase, share in document.gains[:MAX_GAINS])
        yield f"what each tail costs the score: {named}"
