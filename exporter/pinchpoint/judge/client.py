"""A judge's verdicts over HTTP (docs/judge.md)."""

from __future__ import annotations

from typing import Any

import msgspec

from pinchpoint.diagnosis.costs import Cost
from pinchpoint.diagnosis.recent import Judged
from pinchpoint.diagnosis.verdict import Confidence, Kind, Limit, Verdict
from pinchpoint.diagnosis.waterfall import Waterfall
from pinchpoint.typedjson import decoder
from pinchpoint.wire.fetch import Fetcher, FetchError

__all__ = ["ANSWER_SCHEMA", "JudgeError", "ask", "parse_verdicts"]

PATH = "/api/v1/verdicts"
ANSWER_SCHEMA = 1
"""Version of the answer, as docs/judge.md describes it."""


class JudgeError(Exception):
    """There is no answer from a judge; the message says why."""


class _Limit(Limit, frozen=True, kw_only=True):
    named: bool
    reach: float = 0.0
    """An answer has none."""


class _Said(msgspec.Struct):
    """Fields of a `Verdict`."""

    kind: Kind
    confidence: Confidence
    doubts: tuple[str, ...]
    margin: str
    runbook: str
    advice: str
    evidence: tuple[str, ...]
    innocent: tuple[str, ...]
    blind: tuple[str, ...]
    latency: tuple[str, ...]
    no_role: tuple[str, ...]
    ranks: tuple[str, ...] = ()
    straggler: str = ""
    peers: tuple[str, ...] = ()


class _JudgedRun(msgspec.Struct):
    benchmark: str
    run: str
    phase: str
    since: float
    seconds: float
    waits: dict[str, float]
    verdict: _Said
    ranking: list[_Limit]
    waterfalls: tuple[Waterfall, ...] = ()
    costs: tuple[Cost, ...] = ()
    tail: float | None = None
    """A judge before these keys has none."""


class _JudgeDocument(msgspec.Struct):
    schema: int
    runs: list[_JudgedRun]


DECODER = decoder(_JudgeDocument)


def ask(fetcher: Fetcher, url: str) -> list[Judged]:
    """Return what limits each run now, according to the judge at `url`. Raises JudgeError."""
    try:
        return parse_verdicts(fetcher.get(f"{url.rstrip('/')}{PATH}"))
    except FetchError as error:
        raise JudgeError(str(error)) from error


def parse_verdicts(body: bytes) -> list[Judged]:
    """Return what limits each run now, according to a judge. Raises JudgeError."""
    try:
        document = DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise JudgeError(f"no answer of a judge: {error}") from error
    if document.schema != ANSWER_SCHEMA:
        raise JudgeError(f"a judge of another version: its schema is {document.schema}, {ANSWER_SCHEMA} is known here")
    return [Judged(run.benchmark, run.run, run.phase, _verdict(run), run.since, run.tail) for run in document.runs]


def _verdict(run: _JudgedRun) -> Verdict:
    ranking = [(_limit(limit), limit.named) for limit in run.ranking]
    return Verdict(
        **_fields(run.verdict),
        seconds=run.seconds,
        waits=run.waits,
        waterfalls=run.waterfalls,
        costs=run.costs,
        limits=tuple(limit for limit, named in ranking if named),
        ranking=tuple(limit for limit, _ in ranking),
    )


def _limit(found: _Limit) -> Limit:
    values = {name: getattr(found, name) for name in Limit.__struct_fields__}
    return Limit(**values | {"reach": found.blame})


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
