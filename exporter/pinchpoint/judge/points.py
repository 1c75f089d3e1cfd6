"""The judge's verdicts, as points of its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pinchpoint.diagnosis.chains import WaitGraph
from pinchpoint.diagnosis.facts import Facts
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.diagnosis.verdict import Limit, Verdict, limit_advice
from pinchpoint.judge.engine import PhaseVerdict
from pinchpoint.judge.places import places
from pinchpoint.metrics import (
    JUDGE_HOSTS,
    JUDGE_PROBLEM_INFO,
    PHASE_VERDICT_INFO,
    RUN_FACT_HOSTS,
    VERDICT_ADVICE_INFO,
    VERDICT_BLAME_RATIO,
    VERDICT_CHAIN_PASSED_RATIO,
    VERDICT_CHAIN_PLACE,
    VERDICT_CHAIN_RATIO,
    VERDICT_INFO,
    VERDICT_SATURATED_RATIO,
    VERDICT_START_TIMESTAMP_SECONDS,
    VERDICT_WAIT_RATIO,
)
from pinchpoint.model import Point
from pinchpoint.waits.chain import Kind
from pinchpoint.wire.poller import Problem

__all__ = ["fact_points", "judge_points", "phase_points", "run_points"]

MAX_EXPORTED_BLAMED = 10
"""Maximum number of resources exported per run: a cluster has hundreds that serve the OSDs."""
MIN_BLAME = 0.001
"""Blame below which a resource is left out."""
MAX_EXPORTED_LIMITS = 8
"""Maximum number of limits exported per verdict: a cluster may have as many as it has OSDs."""
MAX_EXPORTED_PAIRS = 20
"""Maximum number of pairs exported per run, of those who wake each other."""
MAX_EXPORTED_PROBLEMS = 50
MAX_LABEL_CHARACTERS = 128
"""Maximum characters of a name or a reason from outside."""
MAX_EXPORTED_FACTS = 512
"""Maximum number of settings exported."""


def run_points(found: Sequence[Judged]) -> Iterator[Point]:
    """Yield what limits each run now."""
    for one in found:
        names = one.benchmark, one.run
        for limit, labels in _limits(one.verdict):
            yield VERDICT_INFO.point(1, *names, one.phase, *labels, str(one.verdict.confidence))
            advice = limit_advice(one.verdict, limit)
            yield VERDICT_ADVICE_INFO.point(1, *names, *labels[1:], advice.do, advice.page)
        yield VERDICT_START_TIMESTAMP_SECONDS.point(one.since, *names, one.phase)
        for wait, share in one.verdict.waits.items():
            yield VERDICT_WAIT_RATIO.point(share, *names, wait)
        for limit in _blamed(one.verdict):
            where = limit.resource, limit.owner, limit.host
            yield VERDICT_BLAME_RATIO.point(limit.blame, *names, *where)
            yield VERDICT_SATURATED_RATIO.point(limit.saturated, *names, *where)
        if one.verdict.graph is not None:
            yield from _graph_points(one.verdict.graph, names)


def _graph_points(graph: WaitGraph, names: tuple[str, str]) -> Iterator[Point]:
    for step in graph.steps:
        for kind, share in (step.kinds or {Kind.CPU: 0.0}).items():  # a node without a share of its own passes on
            yield VERDICT_CHAIN_RATIO.point(share, *names, *step.node, kind)
    for node, (column, row) in places(graph).items():
        yield VERDICT_CHAIN_PLACE.point(column, *names, *node, "column")
        yield VERDICT_CHAIN_PLACE.point(row, *names, *node, "row")
    for one in graph.passed[:MAX_EXPORTED_PAIRS]:
        yield VERDICT_CHAIN_PASSED_RATIO.point(one.share, *names, *one.waker, *one.woken)


def _limits(found: Verdict) -> list[tuple[Limit | None, tuple[str, str, str, str]]]:
    """Return each limit of a verdict, or None for one without, with its labels: kind, resource, owner, host."""
    kind = str(found.kind)
    limits = found.limits[:MAX_EXPORTED_LIMITS]
    if not limits:
        return [(None, (kind, "", *_straggler(found)))]
    return [(limit, (kind, limit.resource, limit.owner, limit.host)) for limit in limits]


def _straggler(found: Verdict) -> tuple[str, str]:
    """Return who holds the others as owner and host, both empty if nobody does."""
    owner, _, host = found.straggler.partition(" on ")
    return owner, host


def _blamed(found: Verdict) -> list[Limit]:
    named = set(found.limits[:MAX_EXPORTED_LIMITS])
    others = [limit for limit in found.ranking[:MAX_EXPORTED_BLAMED] if limit.blame >= MIN_BLAME and limit not in named]
    return [*found.limits[:MAX_EXPORTED_LIMITS], *others]


def phase_points(ended: Sequence[PhaseVerdict]) -> Iterator[Point]:
    """Yield what limited the phases that have ended; for several with one name in a run, the last one."""
    last = {(one.benchmark, one.run, one.phase): one.verdict for one in ended}
    for names, found in last.items():
        for _, labels in _limits(found):
            yield PHASE_VERDICT_INFO.point(1, *names, *labels, str(found.confidence))


def fact_points(known: Mapping[str, Facts]) -> Iterator[Point]:
    """Yield on how many hosts each setting had each value, for each run."""
    for run, facts in sorted(known.items()):
        found = Counter((fact, value) for host in facts.values() for fact, values in host.items() for value in values)
        for (fact, value), hosts in found.most_common(MAX_EXPORTED_FACTS):
            yield RUN_FACT_HOSTS.point(hosts, run, fact, value)


def judge_points(seen: int, problems: Mapping[str, Problem]) -> Iterator[Point]:
    """Yield which hosts are seen."""
    yield JUDGE_HOSTS.point(seen, "up")
    yield JUDGE_HOSTS.point(sum(problem.unseen for problem in problems.values()), "down")
    for source, problem in sorted(problems.items())[:MAX_EXPORTED_PROBLEMS]:
        yield JUDGE_PROBLEM_INFO.point(1, source[:MAX_LABEL_CHARACTERS], problem.reason[:MAX_LABEL_CHARACTERS])
