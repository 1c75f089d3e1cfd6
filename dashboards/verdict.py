"""What the judge says now, as queries: the limits by name, and the whole verdict as a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dashboards.kit.board import derived
from dashboards.kit.queries import JUDGED, RUN, nothing_named
from pinchpoint.diagnosis.recent import MIN_WINDOW_SECONDS
from pinchpoint.rules import PAGES

ACTIVE = f"pinchpoint_phase_active{{{RUN}}} == 1"
WHERE = "resource, owner, host"
"""Labels that name a resource."""
LIMIT = f"(run, {WHERE})"


def limits() -> str:
    """Return a query for the verdicts of the chosen runs, with a label ``limit`` that says what they name."""
    return with_limit(f"max by (benchmark, run, kind, {WHERE}, confidence) (pinchpoint_verdict_info{{{JUDGED}}})")


def with_limit(expr: str) -> str:
    """Return `expr` with a label ``limit`` made of its labels ``kind``, ``resource``, ``owner`` and ``host``."""
    # A resource of a whole host is named after the host, without its port.
    named = f'label_join({expr}, "whose", ";", "owner", "host")'
    named = f'label_replace({named}, "whose", "$2$3", "whose", "(host;(.*?)(?::[0-9]+)?|([^;]*);.*)")'
    limit = f'label_join({named}, "limit", " of ", "resource", "whose")'
    return nothing_named(f'label_replace({limit}, "whose", "", "", "")')


def blames(labels: str) -> str:
    """Return a query for the blame of each resource, by `labels`."""
    return f"max by ({labels}) (pinchpoint_verdict_blame_ratio{{{JUDGED}}})"


def advices() -> str:
    """Return a query for the advice on each limit, in the labels ``advice`` and ``page``."""
    # Two judges may differ for a moment.
    every = f"group by (run, {WHERE}, advice, page) (pinchpoint_verdict_advice_info{{{JUDGED}}})"
    return f"topk by {LIMIT} (1, {every})"


def sentences() -> Iterator[Any]:
    """Yield the hidden variables ``verdict`` and ``advice``, in Markdown."""
    yield derived("verdict", _verdict(), "text")
    yield derived("advice", _advice(), "text")


def _verdict() -> str:
    """Return a query whose label ``text`` is the present verdict as a sentence."""
    full = _with(_named(_percent(_leading(), "blame", LIMIT)), f"on {LIMIT}", "full", _percent(_full(), "full", LIMIT))
    named = _sentence(
        full,
        ("limit", "full", "blame", "since", "next", "phase", "confidence"),
        "**$1** is full $2 % of the time. $3 % of the benchmark's time waits for it, for $4 s now$5.$6 Confidence: $7.",
        "; next comes $1 with $2 %",
    )
    unnamed = _sentence(
        nothing_named(
            f'topk(1, max by (run, kind, resource, owner) (pinchpoint_verdict_info{{{JUDGED}, resource=""}}))'
        ),
        ("limit", "since", "next", "phase", "confidence"),
        "**$1** for $2 s now: no resource is the limit$3.$4 Confidence: $5.",
        "; the most blamed is $1, with $2 %",
    )
    nothing = _constant("text", "No benchmark is running.")
    young = _measuring(f"< {MIN_WINDOW_SECONDS:g}", f"**measuring**, $2 of {MIN_WINDOW_SECONDS:g} s")
    late = _measuring("", "**no verdict** yet after $2 s")
    return " or on () ".join([young, named, unnamed, late, nothing])


def _leading() -> str:
    """Return a query for the limit that is blamed most; its value is the blame."""
    return f"topk(1, {blames(f'run, {WHERE}')} and on {LIMIT} pinchpoint_verdict_info{{{JUDGED}}})"


def _full() -> str:
    """Return a query for the share of the time in which blamed resources are full."""
    return f"max by {LIMIT} (pinchpoint_verdict_saturated_ratio{{{JUDGED}}})"


def _percent(share: str, label: str, by: str) -> str:
    """Return a query with a share in per cent as a label."""
    return f'count_values by {by} ("{label}", round(100 * {share}))'


def _constant(label: str, text: str) -> str:
    return f'label_replace(vector(1), "{label}", "{text}", "", "")'


def _named(expr: str) -> str:
    return with_limit(f'label_replace({expr}, "kind", "resource", "", "")')


def _with(expr: str, match: str, label: str, other: str) -> str:
    """Return `expr` with a label of `other`."""
    return f"{expr} * {match} group_left ({label}) {other}"


def _sentence(expr: str, labels: Sequence[str], sentence: str, following: str) -> str:
    """Return `expr`, which has a label ``run``, with the label ``text``: a sentence made of its and other labels.

    `following` is the part about what is blamed besides.
    """
    seconds = f"round(time() - max by (run, phase) (pinchpoint_verdict_start_timestamp_seconds{{{JUDGED}}}))"
    expr = _with(
        expr, "on (run)", "since, phase", f'topk by (run) (1, count_values by (run, phase) ("since", {seconds}))'
    )
    expr = f'label_replace({expr}, "phase", " Phase: $1.", "phase", "(.+)")'  # between phases, nothing
    # Two judges may differ for a moment.
    sure = f"topk by (run) (1, group by (run, confidence) (pinchpoint_verdict_info{{{JUDGED}}}))"
    expr = _with(_with(expr, "on (run)", "confidence", sure), "on (run)", "next", f"({_next(following)})")
    joined = ", ".join(f'"{label}"' for label in labels)
    pattern = "[|]".join(["([^|]*)"] * len(labels))
    text = f'label_join({expr}, "text", "|", {joined})'
    return f'label_replace({text}, "text", "{sentence}", "text", "{pattern}")'


def _next(words: str) -> str:
    """Return a query whose label ``next`` names what else is blamed most in each run, if anything is."""
    rest = f"{blames(f'run, {WHERE}')} unless on {LIMIT} pinchpoint_verdict_info{{{JUDGED}}}"
    rest = _named(_percent(f"topk by (run) (1, {rest})", "share", LIMIT))
    rest = f'label_join({rest}, "next", ";", "limit", "share")'
    rest = f'label_replace({rest}, "next", "{words}", "next", "(.*);(.*)")'
    return f"group by (run, next) ({rest}) or on (run) group by (run) (pinchpoint_verdict_info{{{JUDGED}}})"


def _measuring(age: str, state: str) -> str:
    """Return a query that says the state of an active phase; `age` compares its duration."""
    elapsed = f"pinchpoint_phase_elapsed_seconds{{{RUN}}} and on (benchmark, run, phase) {ACTIVE}"
    young = f"topk(1, max by (phase) ({elapsed}) {age})"
    text = f'label_join(count_values by (phase) ("seconds", floor({young})), "text", ";", "phase", "seconds")'
    return f'label_replace({text}, "text", "Phase $1: {state}.", "text", "(.*);(.*)")'


def _advice() -> str:
    """Return a query whose label ``text`` is the first thing to do, with a link to its page."""
    advised = f"{advices()} and on {LIMIT} {_leading()} or {advices()}"
    text = f'label_join(topk(1, {advised}), "text", ";", "advice", "page")'
    text = f'label_replace({text}, "text", "$1 [Read on]({PAGES}$2)", "text", "(.*);(.*)")'
    return f"{text} or on () {_constant('text', ' ')}"
