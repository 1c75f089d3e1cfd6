"""A run's report in a terminal: a table of its phases, then what limited each of them, with the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pinchpoint.diagnosis.waterfall import Waterfall
from pinchpoint.pages import command_for
from pinchpoint.report import words
from pinchpoint.report.document import Document, DocumentPhase
from pinchpoint.report.folder import DocumentFolder
from pinchpoint.text import printable

__all__ = ["report_parts"]

MAX_TABLE_WAITS = 3
"""Maximum number of wait classes in the table."""
MIN_TABLE_WAIT_SHARE = 0.05
"""Share below which a wait class is not named in the table."""
MIN_PHASE_COLUMNS = 24
"""Minimum columns for the names of phases, as far as needed."""
MIN_LABEL_COLUMNS = 13
WATERFALL_COLUMNS = 26
"""Columns of the bars of a waterfall."""
WATERFALL_NAME_COLUMNS = 20
STYLES = {
    "resource": "bold",
    "several": "bold",
    "straggler": "bold",
    "stuck": "bold red",
    "too short": "dim",
    "idle": "dim",
}


def report_parts(document: Document) -> Iterator[RenderableType]:
    """Yield what is printed, from top to bottom."""
    yield from _head(document)
    names = words.phase_names(document)
    if document.phases:
        yield _table(document.phases, names)
    for name, phase in zip(names, document.phases, strict=True):
        if details := _details(phase):
            yield Text(f"{name}: {words.verdict_text(phase)}", style="bold")
            yield Padding(_rows(details), (0, 0, 1, 2))
    if document.folder is not None:
        yield from _folder(document.folder)
    if document.against is not None:
        yield Text(f"changed since {printable(document.against)}", style="bold")
        for name, before, after in map(words.change_text, document.changed):
            yield Padding(Text(f"{name}: {before} -> {after}"), (0, 0, 0, 2))
        yield Text("" if document.changed else "  nothing that is known\n")
    for warning in document.warnings:
        yield Text(f"note: {printable(warning)}")


def _head(document: Document) -> Iterator[Text]:
    yield Text.assemble((printable(document.run), "bold"), f"  {words.standing_text(document)}")
    length = "" if document.end is None else f", took {words.length_text(document.end - document.start)}"
    yield Text(f"started {words.moment_text(document.start)}{length}")
    if scores := list(words.score_texts(document)):
        yield Text(", ".join(scores))
    if tags := " ".join(words.shown_tags(document)):
        yield Text(tags)
    if command := words.command_text(document):
        yield Text(command, style="dim")
    if document.origin:
        yield Text(f"imported from {printable(document.origin)}", style="dim")


def _table(phases: Sequence[DocumentPhase], names: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    longest = max(map(len, names))
    table.add_column("phase", overflow="fold", min_width=min(longest, MIN_PHASE_COLUMNS))
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("result", overflow="fold")
    table.add_column("verdict; what it waited for", overflow="fold")
    for name, phase in zip(names, phases, strict=True):
        kind = phase.verdict.kind if phase.verdict is not None else ""
        verdict = Text(words.verdict_text(phase), style=STYLES.get(kind, ""))
        if waits := _waits(phase, MAX_TABLE_WAITS, MIN_TABLE_WAIT_SHARE):
            verdict = Text("\n").join([verdict, Text(waits, style="dim")])
        table.add_row(
            Text(name + ("" if phase.valid else " INVALID")),
            Text(words.length_text(phase.seconds)),
            Text(words.figure_text(phase.results[0]) if phase.results else "-"),
            verdict,
        )
    return table


def _waits(phase: DocumentPhase, most: int, least: float = 0.0) -> str:
    waits = phase.verdict.waits if phase.verdict else {}
    ordered = sorted(waits.items(), key=lambda item: -item[1])
    return "  ".join(f"{printable(wait)} {share:.0%}" for wait, share in ordered[:most] if share >= max(least, 0.005))


def _details(phase: DocumentPhase) -> list[tuple[str, list[str]]]:
    """Return the lines on a phase, by kind; empty if the table has said everything."""
    found: list[tuple[str, Sequence[str]]] = []
    if (verdict := phase.verdict) is not None:
        doubts = f" ({'; '.join(verdict.doubts)})" if verdict.doubts else ""
        runbook = f" (`{command_for(words.runbook_path(verdict.runbook))}`)" if verdict.runbook else ""
        found += [
            ("waits", [_waits(phase, len(verdict.waits))]),
            ("evidence", verdict.evidence),
            ("ranks", verdict.ranks),
            ("peers", verdict.peers),
            ("no role", verdict.no_role),
            ("latency", verdict.latency),
            ("not the limit", verdict.innocent),
            ("not seen", verdict.blind),
            ("what to do", [f"{verdict.advice}{runbook}"] if verdict.advice else []),
            ("confidence", [f"{verdict.confidence}{doubts}"] if verdict.waits else []),
        ]
    if phase.tail is not None:
        found.append(("tail", phase.tail.words))
    found.append(
        ("stages", [f"{one.stage}, {words.length_text(one.end - one.start)}: {one.words}" for one in phase.stages])
    )
    if phase.alerts is not None:
        found.append(("alerts", [", ".join(phase.alerts) or "none"]))
    if verdict is not None:
        if verdict.graph is not None:
            found.append(("who wakes whom", [words.chain_text(verdict.graph)]))
        found.append(("where time goes", [line for fall in verdict.waterfalls for line in _waterfall(fall)]))
    found.append(("figures", [", ".join(words.figure_text(figure) for figure in phase.results[1:])]))
    found.append(("note", phase.warnings))
    return [(label, [line for line in lines if line]) for label, lines in found if any(lines)]


def _waterfall(found: Waterfall) -> Iterator[str]:
    """Yield a waterfall: its head, then a line for each step, whose bar begins where the one before ends."""
    yield words.waterfall_text(found)
    for name, took, begin, share in words.waterfall_bars(found):
        bar = "#" * max(1, round(share * WATERFALL_COLUMNS))
        yield f"  {name:<{WATERFALL_NAME_COLUMNS}}{took:>9}  {' ' * round(begin * WATERFALL_COLUMNS)}{bar}"


def _folder(folder: DocumentFolder) -> Iterator[RenderableType]:
    """Yield what the result folder says of the whole run."""
    size = [f"{folder.tasks} ranks"] if folder.tasks else []
    size += [f"{folder.nodes} client nodes"] if folder.nodes else []
    yield Text(
        printable(" ".join(["result folder", *([f"of {folder.version}"] if folder.version else [])])), style="bold"
    )
    yield Padding(_rows([("run", [", ".join(size)]), *words.folder_rows(folder)]), (0, 0, 0, 2))
    yield Text(f"  rules: {folder.rules_version}\n", style="dim")


def _rows(lines: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, min_width=MIN_LABEL_COLUMNS)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, texts in lines:
        for number, text in enumerate(texts):
            bullet = "-" if len(texts) > 1 and not text.startswith(" ") else ""
            table.add_row(Text(name if number == 0 else "", style="dim"), Text(bullet), Text(printable(text)))
    return table
