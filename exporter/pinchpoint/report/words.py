"""How a report writes what its document holds, for a terminal and a browser alike."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from pinchpoint.diagnosis.chains import WaitGraph
from pinchpoint.diagnosis.io500_rules import ChangedOption, RuleState
from pinchpoint.diagnosis.waterfall import Waterfall
from pinchpoint.figures import bare_figure, format_figure
from pinchpoint.report.document import Document, DocumentFigure, DocumentPhase, SettingChange
from pinchpoint.report.folder import DocumentFolder, rule_words, score_words
from pinchpoint.runs import HASH_TAG
from pinchpoint.text import printable
from pinchpoint.waits.chain import SELF, Node

__all__ = [
    "chain_text",
    "change_text",
    "command_text",
    "figure_text",
    "folder_rows",
    "length_text",
    "moment_text",
    "node_text",
    "option_words",
    "phase_names",
    "runbook_path",
    "score_texts",
    "shown_tags",
    "standing_text",
    "verdict_text",
    "waterfall_bars",
    "waterfall_text",
]

MAX_TENTHS_SECONDS = 100.0
"""Seconds from which tenths don't matter."""
MIN_CHAIN_SHARE = 0.005
"""Share of the time from which a node of a chain is written with its name: less is 0 %."""
TOTAL = "total"
"""A benchmark's name for its main score."""
NOT_SET = "not set"


def figure_text(figure: DocumentFigure, *, bare: bool = False) -> str:
    """Return a figure as a person reads it: ``write 1.21 GiB/s``; `bare` without what was measured."""
    value = bare_figure(figure.value, figure.unit)
    return printable(value if bare else f"{figure.operation} {value}".strip())


def length_text(seconds: float | None) -> str:
    """Return how long something took: ``12.3 s``, ``5:20``, ``1:02:03``."""
    if seconds is None:
        return "-"
    if seconds < MAX_TENTHS_SECONDS:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def moment_text(seconds: float) -> str:
    """Return a time in Unix seconds as this machine's clock shows it, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


def runbook_path(name: str) -> str:
    """Return the path of a runbook's page in the project."""
    return f"runbooks/{name}.md"


def phase_names(document: Document) -> list[str]:
    """Return the name of each phase; of several with one name the later ones have a number."""
    seen: dict[str, int] = {}
    found = []
    for phase in document.phases:
        number = seen[phase.phase] = seen.get(phase.phase, 0) + 1
        found.append(printable(phase.phase if number == 1 else f"{phase.phase} ({number})"))
    return found


def verdict_text(phase: DocumentPhase) -> str:
    """Return the verdict of a phase in a few words."""
    return printable(phase.verdict.words) if phase.verdict is not None else "no samples"


def standing_text(document: Document) -> str:
    """Return the state of the run: ``io500 finished, INVALID``."""
    words = [printable(f"{document.benchmark} {document.state}")]
    if document.exit_status:
        words.append(f"exit status {document.exit_status}")
    if not document.valid:
        words.append("INVALID")
    reason = f": {printable(document.reason)}" if document.reason else ""
    return ", ".join(words) + reason


def score_texts(document: Document) -> Iterator[str]:
    """Yield the run's scores, the main one first."""
    for figure in reversed(document.scores):
        name = "" if figure.operation == TOTAL else f"{figure.operation} "
        yield printable(f"score {name}{figure_text(figure, bare=True)}")


def shown_tags(document: Document) -> Iterator[str]:
    """Yield the run's tags, except those that we set ourselves."""
    for key, value in document.tags.items():
        if key != HASH_TAG:
            yield printable(f"{key}={value}")


def command_text(document: Document) -> str:
    """Return the command line, empty if not known."""
    return printable(shlex.join(document.command))


def folder_rows(folder: DocumentFolder) -> list[tuple[str, list[str]]]:
    """Return what the result folder says of the whole run: a title and sentences."""
    states = (RuleState.BROKEN, RuleState.UNSEEN, RuleState.NOTE, RuleState.KEPT)
    rows = [
        ("score", [*score_words(folder)]),
        ("options", [*option_words(folder.options)]),
        *((str(state), [*rule_words(folder, state)]) for state in states),
        ("contradictions", folder.notes),
    ]
    return [(title, [printable(text) for text in texts]) for title, texts in rows if texts]


def option_words(options: Iterable[ChangedOption]) -> Iterator[str]:
    """Yield the options that differ from their defaults."""
    for one in options:
        yield f"[{one.section}] {one.option} = {one.value}, by default {one.default or 'not set'}"


def change_text(change: SettingChange) -> tuple[str, str, str]:
    """Return what changed, its value before and its value now."""
    where = f" on {', '.join(change.hosts)}" if change.hosts else ""
    name = f"tag {change.name}" if change.origin == "tag" else f"{change.name}{where}"
    before, after = (" or ".join(value or NOT_SET for value in side) for side in (change.before, change.after))
    return printable(name), printable(before), printable(after)


def node_text(node: Node) -> str:
    """Return a node as a person reads it."""
    return "the benchmark itself" if node == SELF else printable(str(node))


def chain_text(graph: WaitGraph) -> str:
    """Return the heaviest chain: ``the benchmark itself 12% <- ceph-fuse client_lock 47% <- mds.a messenger 12%``.

    Dots stand for two or more nodes in a row that answer for nothing and only pass the wake-up on.
    """
    found = []
    for counts, steps in groupby(graph.steps[: graph.heaviest + 1], lambda step: step.share >= MIN_CHAIN_SHARE):
        words = [f"{node_text(step.node)} {step.share:.0%}" for step in steps]
        found += words if counts or len(words) < 2 else ["..."]
    return " <- ".join(found)


def waterfall_text(found: Waterfall) -> str:
    """Return the head of a waterfall: ``OSD write of osd.3: 4.1 ms, 5,120 per second``."""
    daemon = f" of {found.daemon}" if found.daemon else ""
    rate = f"{found.rate:,.0f}" if found.rate >= 1000 else f"{found.rate:.3g}"
    return printable(f"{found.operation}{daemon}: {format_figure(found.seconds, 'seconds')}, {rate} per second")


def waterfall_bars(found: Waterfall) -> Iterator[tuple[str, str, float, float]]:
    """Yield the name and time of each step that took any, and where it begins and how long it is, as shares."""
    begin = 0.0
    for step in found.steps:
        if step.seconds > 0:
            share = step.seconds / found.seconds
            yield printable(step.name), format_figure(step.seconds, "seconds"), min(begin, 1.0), share
            begin += share
