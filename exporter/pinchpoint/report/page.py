"""The report as one self-contained HTML page: no external script, font or picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pinchpoint import __version__
from pinchpoint.report import charts, words
from pinchpoint.report.document import Document, DocumentHost, DocumentPhase, ranking
from pinchpoint.report.flame import flames
from pinchpoint.report.graph import graph_picture, shown_kinds
from pinchpoint.report.palette import KINDS, PARTS, SERIES, WAIT_WORDS, WAITS, wait_colour
from pinchpoint.report.timeline import ResourceLine, RunLines
from pinchpoint.rules import PAGES
from pinchpoint.session.stacks import SavedStack
from pinchpoint.text import printable
from pinchpoint.waits.chain import KIND_WORDS

__all__ = ["important", "page"]

MAX_DRAWN_RESOURCES = 8
"""Maximum number of resources whose busy time is drawn."""
MIN_DRAWN_BLAME = 0.05
"""Blame from which a resource that no verdict names is drawn."""
MIN_LABELLED_SHARE = 0.08
"""Share from which a wait class has room for its name in a bar."""


class Legend(NamedTuple):
    """One colour of a chart, and its meaning."""

    colour: str
    text: str


class Panel(NamedTuple):
    """A chart with its title, description and colours."""

    title: str
    note: str
    picture: Markup
    legend: Sequence[Legend]


class Graph(NamedTuple):
    """Who makes a phase wait: the heaviest chain in words, the picture, and its colours."""

    chain: str
    picture: Markup
    legend: Sequence[Legend]


class Fact(NamedTuple):
    """A setting, its value, and the hosts that have it."""

    name: str
    value: str
    hosts: str


def page(document: Document, timeline: RunLines, stacks: Sequence[SavedStack] = ()) -> str:
    """Return the page; `stacks` are those of threads that were full."""
    environment = Environment(
        loader=PackageLoader("pinchpoint.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    span = _span(document, timeline)
    panels = list(_panels(document, timeline, span)) if timeline.steps else []
    document = msgspec.convert(_printable(msgspec.to_builtins(document)), Document)
    template = environment.get_template("report.html.j2")
    return template.render(
        document=document,
        words=words,
        names=words.phase_names(document),
        version=__version__,
        command=words.command_text(document),
        scores=list(words.score_texts(document)),
        length=None if document.end is None else document.end - document.start,
        ribbon=Markup(charts.phase_ribbon(_bars(document, span), span)) if document.phases else "",
        panels=panels,
        facts=list(_facts(document.hosts)),
        changes=[words.change_text(change) for change in document.changed],
        ranking=ranking,
        bars={number: list(_shares(phase)) for number, phase in enumerate(document.phases, 1)},
        graphs={number: _graph(phase) for number, phase in enumerate(document.phases, 1)},
        flames={
            number: [(flame.title, flame.samples, Markup(flame.picture)) for flame in flames(stacks, phase.phase)]
            for number, phase in enumerate(document.phases, 1)
        },
        kinds=KINDS,
        pages=PAGES,
    )


def _printable(value: Any) -> Any:
    """Return plain data without control characters and those that change the writing direction."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return value


def important(document: Document) -> list[ResourceLine]:
    """Return the resources that the verdicts name, most blamed first, then others with blame."""
    best: dict[ResourceLine, tuple[bool, float]] = {}
    for phase in document.phases:
        for found, named in ranking(phase.verdict) if phase.verdict else ():
            if named or found.blame >= MIN_DRAWN_BLAME:
                key = ResourceLine(found.resource, found.owner, found.host)
                best[key] = max(best.get(key, (False, 0.0)), (named, found.blame))
    return sorted(best, key=lambda key: (*(-value for value in best[key]), key))[:MAX_DRAWN_RESOURCES]


def _span(document: Document, timeline: RunLines) -> charts.Span:
    ends = [phase.end for phase in document.phases if phase.end is not None]
    end = document.end or max([*ends, *(end for _, end in timeline.steps[-1:])], default=document.start)
    starts = [phase.start for phase in document.phases]
    return charts.Span(document.start, end, tuple(sorted({*starts, *ends})))


def _bars(document: Document, span: charts.Span) -> list[charts.Bar]:
    return [
        charts.Bar(
            number,
            name,
            phase.start,
            span.end if phase.end is None else phase.end,
            phase.verdict.kind if phase.verdict else "",
        )
        for number, (name, phase) in enumerate(zip(words.phase_names(document), document.phases, strict=True), 1)
    ]


def _shares(phase: DocumentPhase) -> Iterator[tuple[str, float, str, bool]]:
    """Yield the parts of a phase's bar: wait class, share, colour, and whether there is room for the name."""
    order = {wait: place for place, wait in enumerate(WAITS)}
    waits = phase.verdict.waits if phase.verdict else {}
    for wait, share in sorted(waits.items(), key=lambda item: order.get(item[0], len(order))):
        if share >= charts.MIN_VISIBLE_SHARE:
            yield wait, share, wait_colour(wait), share >= MIN_LABELLED_SHARE


def _panels(document: Document, timeline: RunLines, span: charts.Span) -> Iterator[Panel]:
    if timeline.waits:
        yield Panel(
            "What the benchmark waits for",
            "share of the time of its processes",
            _picture(charts.waits_chart(timeline, span)),
            [Legend(wait_colour(wait), _meaning(wait)) for wait in reversed(charts.stacked_waits(timeline))],
        )
    resources = [resource for resource in important(document) if resource in timeline.busy]
    if resources:
        served = {(timeline.serves.get(resource) or ("other",))[0] for resource in resources}
        yield Panel(
            "How busy the resources are that answer for it",
            "share of the time; dashed: full from here on; the colour says what it serves",
            _picture(charts.busy_chart(timeline, resources, span)),
            [Legend(wait_colour(wait), f"serves {wait}") for wait in WAITS if wait in served],
        )
    if timeline.clocks:
        hosts = sorted(timeline.clocks)
        yield Panel(
            "Clock",
            f"GHz; dashed: the hardware's maximum{_more(len(hosts))}",
            _picture(charts.clock_chart(timeline, span)),
            _legend(hosts),
        )
    if timeline.idle:
        states = max(timeline.idle.values(), key=len)
        yield Panel(
            "Idle states of the CPUs",
            f"share of the CPUs' time; the rest of it they worked{_more(len(timeline.idle))}",
            _picture(charts.idle_chart(timeline, span)),
            [Legend(charts.idle_colour(place, len(states)), printable(state)) for place, state in enumerate(states)],
        )
    if timeline.caches:
        caches = sorted(timeline.caches)
        several = len({host for host, _ in caches}) > 1
        yield Panel(
            "MDS cache",
            f"size; dashed: mds_cache_memory_limit{_more(len(caches))}",
            _picture(charts.cache_chart(timeline, span)),
            _legend([f"{daemon} on {host}" if several else daemon for host, daemon in caches]),
        )


def _graph(phase: DocumentPhase) -> Graph | None:
    if phase.verdict is None or (graph := phase.verdict.graph) is None:
        return None
    legend = [Legend(PARTS[kind], KIND_WORDS[kind]) for kind in shown_kinds(graph)]
    return Graph(words.chain_text(graph), Markup(graph_picture(graph)), legend)


def _picture(svg: str) -> Markup:
    return Markup(svg)


def _more(count: int) -> str:
    return f"; {count - charts.MAX_CHARTED} more are not shown" if count > charts.MAX_CHARTED else ""


def _meaning(wait: str) -> str:
    return printable(f"{wait}: {WAIT_WORDS.get(wait, 'a wait of a later release')}")


def _legend(names: Sequence[str]) -> list[Legend]:
    return [
        Legend(colour, printable(name))
        for name, colour in zip(names[: charts.MAX_CHARTED], cycle(SERIES), strict=False)
    ]


def _facts(hosts: Sequence[DocumentHost]) -> Iterator[Fact]:
    """Yield each setting once for all hosts that share it."""
    for name in sorted({name for host in hosts for name in host.facts}):
        values: dict[str, list[str]] = {}
        for host in hosts:
            if name in host.facts:
                values.setdefault(", ".join(host.facts[name]), []).append(host.host)
        for value, alike in values.items():
            yield Fact(name, value, "" if len(alike) == len(hosts) else ", ".join(alike))
