"""The verdict: what limits a phase, and how it is known.

Everything is derived from two snapshots of each host, so that a live view, the table of a run, and a report that is
read from a recording say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from pinchpoint.diagnosis import evidence, unknown
from pinchpoint.diagnosis.advice import Advice, advice_on
from pinchpoint.diagnosis.blame import DAEMONS, BenchmarkWork, Limit, blame, serving, workloads
from pinchpoint.diagnosis.innocent import innocent
from pinchpoint.diagnosis.latency import LatencyBreakdown, latency
from pinchpoint.diagnosis.usage import UnknownThread, Usage, usages
from pinchpoint.diagnosis.window import Window
from pinchpoint.model import Snapshots

__all__ = ["Confidence", "Judge", "Kind", "Limit", "Verdict", "judge", "judge_phase", "verdict"]

MIN_VERDICT_SECONDS = 2.0
"""Seconds under which nothing is said: of windows of 1 s 5.5 % judge otherwise than the whole, of 2 s 3.3 %."""
MIN_LEAD_BLAME = 0.4
"""Blame from which a full resource is the limit."""
MIN_TIE_SHARE = 0.5
"""Share of the first one's blame from which another limit counts beside it ..."""
MIN_KEPT_SHARE = 0.4
"""... by its blame, or by its reach where it keeps this share of that: the rest is of what is full below it ..."""
MIN_TOGETHER_SHARE = 0.5
"""... if they answer for this share of the time together."""
MIN_STUCK_SECONDS = 10.0
"""Seconds in which not one request is answered from which something is stuck: no medium is as slow as that."""
MIN_IDLE_SHARE = 0.7
"""Share of idle time from which a benchmark does nothing ..."""
MAX_IDLE_BLAME = 0.2
"""... unless something that is full has this much blame."""
MAJORITY_SHARE = 0.5
"""Share of the time that waits for what can't be seen, or in kernel locks and unknown stacks, that settles it."""
MIN_HIDDEN_SHARE = 0.1
"""Share of the time that waits for daemons from which it matters that their links are not seen."""
BORDER_MARGIN_SHARE = 0.05
"""A border that is nearer than this might have been crossed as well."""
MIN_TRUSTED_SECONDS = 3.0
"""Seconds under which a verdict is not trusted much."""
MIN_PARTS = 3
"""Parts of a phase from which on their answers count ..."""
MIN_DIFFERING_SHARE = 0.25
"""... if so many of them are others than that on the whole."""
MAX_LOST_SHARE = 0.05
"""Share of samples that were lost from which it is trusted less."""


class Kind(StrEnum):
    """What kind of answer a verdict is."""

    RESOURCE = "resource"
    """One resource is full, and what the benchmark waits for is served by it."""
    SEVERAL = "several"
    """Two or more different resources are full and share the blame."""
    LATENCY_BOUND = "latency-bound"
    """The benchmark waits, and nothing that serves it is full."""
    STUCK = "stuck"
    """A daemon does nothing any more, or no daemon answers."""
    UNKNOWN = "unknown"
    """It waits for kernel locks, or in stacks that no rule knows."""
    BLIND = "blind"
    """There is no data on what it waits for."""
    IDLE = "idle"
    """The benchmark does nothing."""
    TOO_SHORT = "too short"
    """The interval is too short to judge."""


class Confidence(StrEnum):
    """How far a verdict can be trusted."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What limits a benchmark between two snapshots of each host."""

    kind: Kind
    seconds: float
    """Length of the interval."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Share of the time of the benchmark's processes by wait class, the largest first; they add up to 1."""
    limits: tuple[Limit, ...] = ()
    """Those that the verdict names, the most blamed first; empty unless one is full or stuck."""
    ranking: tuple[Limit, ...] = ()
    """Every resource that serves what is waited for, the most blamed first."""
    margin: str = ""
    """How near another verdict was, in words ("just over"); empty where it is clear.

    Latency-bound is not clear where a resource that is not full answers for as much of the time as a limit does.
    """
    confidence: Confidence = Confidence.HIGH
    doubts: tuple[str, ...] = ()
    """Why the confidence is not high."""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers."""
    innocent: tuple[str, ...] = ()
    """What looks like the limit and is not, with the reason."""
    blind: tuple[str, ...] = ()
    """What could not be seen."""
    unanswered: bool = False
    """Whether the benchmark waits for daemons that answered not one of its requests."""
    latency: tuple[str, ...] = ()
    """Where the latency of a latency-bound interval comes from, and which requests none is answered of."""
    unknown: Mapping[str, UnknownThread] = field(default_factory=dict)
    """The hottest thread without a role by host, where it was hot; the hottest host first."""
    no_role: tuple[str, ...] = ()
    """The same in sentences."""
    runbook: str = ""
    """Name of the runbook's page that says what to do; empty where there is none."""
    advice: str = ""
    """What to do, in a sentence."""

    @property
    def words(self) -> str:
        """The verdict in a few words: ``limited by mds_lock of mds.a``."""
        return evidence.words(self.kind, self.limits)

    @property
    def answer(self) -> tuple[Kind, frozenset[tuple[str, str]]]:
        """What makes two verdicts the same."""
        return _identity(self.kind, self.limits)


def judge_phase(
    window: Window,
    *,
    benchmark: str = "",
    run: str = "",
    seen: Mapping[str, tuple[str, str, float]] | None = None,
) -> tuple[Mapping[str, Usage], Verdict]:
    """Return what the hosts did in a phase, and what limited it; `benchmark`, `run` and `seen` are those of `verdict`.

    It is trusted less where parts of the phase have other answers.
    """
    hosts = usages(window.before, window.after, seen)
    found = judge(hosts, window.before, window.after, benchmark=benchmark, run=run)
    borders = [window.before, *window.inner, window.after]
    if len(borders) <= MIN_PARTS or (found.kind is Kind.STUCK and not found.limits):
        return hosts, found  # few parts say nothing, and short ones can't tell what is stuck from what is slow
    parts = [_answer(usages(before, after), benchmark, run) for before, after in pairwise(borders)]
    return hosts, _swayed(found, [part for part in parts if part is not None])


def _answer(hosts: Mapping[str, Usage], benchmark: str, run: str) -> tuple[Kind, tuple[Limit, ...]] | None:
    """Return the kind of answer on an interval and the limits that it names, None where nothing ran."""
    hosts = {name: hosts[name] for name in sorted(hosts)}
    workload = _chosen(workloads(hosts), benchmark, run)
    if workload is None or workload.total <= 0:
        return None
    return _decide(workload.shares, blame(hosts, workload), _hidden(hosts, workload))[:2]


def _swayed(found: Verdict, parts: Sequence[tuple[Kind, tuple[Limit, ...]]]) -> Verdict:
    """Return a verdict with a doubt where parts of its interval have other answers."""
    others = [part for part in parts if _identity(*part) != found.answer]
    if len(parts) < MIN_PARTS or len(others) < MIN_DIFFERING_SHARE * len(parts):
        return found
    often = Counter(evidence.words(*part) for part in others).most_common(1)[0][0]
    doubt = f"another answer in {len(others)} of {len(parts)} parts of the phase: {often}"
    level = Confidence.LOW if 2 * len(others) > len(parts) else Confidence.MEDIUM
    worse = level if found.confidence is not Confidence.LOW else found.confidence
    return replace(found, doubts=(*found.doubts, doubt), confidence=worse)


def _identity(kind: Kind, limits: Sequence[Limit]) -> tuple[Kind, frozenset[tuple[str, str]]]:
    return kind, frozenset(limit.kind for limit in limits)


def verdict(
    before: Snapshots,
    after: Snapshots,
    *,
    benchmark: str = "",
    run: str = "",
    seen: Mapping[str, tuple[str, str, float]] | None = None,
) -> Verdict:
    """Return what limits a benchmark's run between two snapshots of each host; without names, the busiest one.

    Processes of the benchmark on hosts that don't know the run count for it. `seen` is that of `usages`.
    """
    return judge(usages(before, after, seen), before, after, benchmark=benchmark, run=run)


def judge(
    hosts: Mapping[str, Usage],
    before: Snapshots,
    after: Snapshots,
    *,
    benchmark: str = "",
    run: str = "",
    shortest: float = MIN_VERDICT_SECONDS,
    unanswered: float = 0.0,
) -> Verdict:
    """Return what `verdict` does, of hosts whose usage is known already.

    Under `shortest` seconds nothing is said. `unanswered` are the seconds up to the interval's end in which no request
    was answered, as far as that is known of longer than the interval.
    """
    hosts = {name: hosts[name] for name in sorted(hosts)}
    seconds = max((host.seconds for host in hosts.values()), default=0.0)
    if seconds < shortest:
        return Verdict(Kind.TOO_SHORT, seconds)
    missing = [f"no data of {name} in this interval" for name in sorted(before.keys() ^ after.keys())]
    workload = _chosen(workloads(hosts), benchmark, run)
    if workload is None or workload.total <= 0:
        nobody = "no process of the benchmark was seen on the hosts that were asked"
        return _advised(Verdict(Kind.BLIND, seconds, blind=(nobody, *missing), confidence=Confidence.LOW))
    shares = workload.shares
    ranking = blame(hosts, workload)
    unseen = _unseen(hosts, workload)
    hidden = _hidden(hosts, workload)
    kind, limits, margin = _decide(shares, ranking, hidden)
    parts = LatencyBreakdown()
    if kind is Kind.LATENCY_BOUND:
        parts = latency(hosts, before, after, benchmark=workload.benchmark, run=workload.run, waits=shares)
    held = any(path.unanswered and shares.get(path.target, 0.0) > MAJORITY_SHARE for path in parts.paths)
    silent = max(seconds, unanswered)
    if held and silent >= MIN_STUCK_SECONDS:
        kind = Kind.STUCK
    hidden_links = _hidden_links(hosts, workload) if kind is Kind.LATENCY_BOUND else []
    blind = (*evidence.blind(shares, unseen), *hidden_links, *missing)
    hot = unknown.hot_threads(hosts)
    strange = not limits and any(map(unknown.full, hot.values()))
    early = silent if held and kind is not Kind.STUCK else 0.0
    doubts, confidence = _doubts(hosts, seconds, shares, hidden, (margin, *hidden_links), strange=strange, silent=early)
    found = Verdict(
        kind=kind,
        seconds=seconds,
        waits=shares,
        limits=limits,
        ranking=ranking,
        margin=margin,
        confidence=confidence,
        doubts=doubts,
        evidence=evidence.evidence(kind, workload, limits, ranking),
        innocent=innocent(hosts, after, ranking),
        blind=blind,
        unanswered=held,
        latency=parts.sentences,
        unknown=hot,
        no_role=tuple(unknown.sentences(hot, limited=bool(limits))),
    )
    return _advised(found)


def _unseen(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> dict[str, float]:
    """Return the shares of the time that waits for daemons that no exporter sees."""
    shares = workload.shares
    return {wait: share for wait in DAEMONS if (share := shares.get(wait, 0.0)) and not serving(hosts, workload, wait)}


def _hidden(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> float:
    """Return the share of the time that waits for what can't be seen."""
    return workload.shares.get("ceph", 0.0) + sum(_unseen(hosts, workload).values())


def _hidden_links(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> list[str]:
    """Return whose links nobody sees, of the processes of a workload and of the daemons that it waits for."""
    whose: dict[str, list[str]] = {}
    for name, host in hosts.items():
        for owner, reason in sorted(host.hidden.items()):
            if (
                owner in workload.owners.get(name, ())
                or workload.shares.get(owner.partition(".")[0], 0.0) > MIN_HIDDEN_SHARE
            ):
                whose.setdefault(reason, []).append(f"{owner} on {name}")
    return [
        f"links of {evidence.some(names)} are in another network namespace, which is not seen: {reason}"
        for reason, names in sorted(whose.items())
    ][: evidence.MAX_LISTED]


def _chosen(found: Sequence[BenchmarkWork], benchmark: str, run: str) -> BenchmarkWork | None:
    """Return the run that is asked for; one that is known by its benchmark only is it too."""
    ways: tuple[Callable[[BenchmarkWork], bool], ...] = (
        lambda work: bool(run) and work.run == run,
        lambda work: bool(benchmark) and work.benchmark == benchmark and (not run or not work.run),
        lambda work: not benchmark and not run,
    )
    return next((work for way in ways for work in found if way(work)), None)


def _decide(
    shares: Mapping[str, float], ranking: Sequence[Limit], hidden: float
) -> tuple[Kind, tuple[Limit, ...], str]:
    """Return the kind, the limits that it names, and how near another answer was."""
    groups: dict[tuple[str, str], list[Limit]] = {}
    for limit in ranking:
        if limit.full and limit.blame > 0:
            groups.setdefault(limit.kind, []).append(limit)
    full = sorted(groups.values(), key=lambda group: -group[0].blame)
    first = full[0][0].blame if full else 0.0
    if shares.get("idle", 0.0) > MIN_IDLE_SHARE and first < MAX_IDLE_BLAME:
        words = f"idle for {shares['idle']:.0%}, {MIN_IDLE_SHARE:.0%} is the border"
        return Kind.IDLE, (), _near(shares["idle"] - MIN_IDLE_SHARE, words)
    if hidden > MAJORITY_SHARE:
        return Kind.BLIND, (), ""
    stuck = [limit for group in full for limit in group if limit.resource == "stuck" and limit.blame >= MIN_LEAD_BLAME]
    if stuck:
        return Kind.STUCK, tuple(stuck), ""
    tied = [group for group in full[1:] if _beside(group[0], first) >= 0]
    named = tuple(limit for group in (*full[:1], *tied) for limit in _leading(group))
    if tied and first + tied[0][0].blame > MIN_TOGETHER_SHARE:
        second = tied[0][0]
        return Kind.SEVERAL, named, _near(_beside(second, first), f"{evidence.name(second)} hardly counts beside it")
    if any(group[0].blame >= MIN_LEAD_BLAME or group[0].reach >= MIN_LEAD_BLAME for group in full):
        # A stage that reaches that far may owe more to the CPU below it than it keeps: then that is the limit.
        return Kind.RESOURCE, _leading(full[0]), _over(full[0][0]) or _nearly([group[0] for group in full])
    if shares.get("lock", 0.0) + shares.get("other", 0.0) > MAJORITY_SHARE:
        return Kind.UNKNOWN, (), ""
    if (together := sum(group[0].blame for group in full)) >= MIN_LEAD_BLAME:
        words = f"what is full answers for {together:.0%} of the time together, none of it for {MIN_LEAD_BLAME:.0%}"
        return Kind.SEVERAL if tied else Kind.RESOURCE, named, words
    return Kind.LATENCY_BOUND, (), _under(ranking)


def _beside(limit: Limit, first: float) -> float:
    """Return by how much a full resource counts beside the first one, whose blame is given; negative if not."""
    by_reach = min(limit.reach - MIN_TIE_SHARE * first, limit.blame - MIN_KEPT_SHARE * limit.reach)
    return max(limit.blame - MIN_TIE_SHARE * first, by_reach)


def _nearly(full: Sequence[Limit]) -> str:
    """Return which full resource nearly counts beside the first one."""
    first = full[0].blame
    for limit in full[1:]:
        if (
            _beside(limit, first) > -BORDER_MARGIN_SHARE
            and first + limit.blame > MIN_TOGETHER_SHARE - BORDER_MARGIN_SHARE
        ):
            return f"just under: {evidence.name(limit)} nearly counts beside it"
    return ""


def _leading(group: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the members of one answer that are about as guilty as the first."""
    return tuple(limit for limit in group if limit.blame >= MIN_TIE_SHARE * group[0].blame)


def _near(distance: float, words: str) -> str:
    return f"just over: {words}" if distance < BORDER_MARGIN_SHARE else ""


def _over(limit: Limit) -> str:
    name = evidence.name(limit)
    if limit.busy - limit.threshold < BORDER_MARGIN_SHARE:
        return f"just over: {name} is {limit.busy:.0%} busy, and full from {limit.threshold:.0%} on"
    if (share := max(limit.blame, limit.reach)) - MIN_LEAD_BLAME < BORDER_MARGIN_SHARE:
        return f"just over: {name} answers for {share:.0%} of the time, {MIN_LEAD_BLAME:.0%} is the border"
    return ""


def _under(ranking: Sequence[Limit]) -> str:
    for limit in ranking:
        name = evidence.name(limit)
        if not limit.full and limit.reach >= MIN_LEAD_BLAME and limit.busy <= limit.threshold:
            near = "just under: " if limit.threshold - limit.busy < BORDER_MARGIN_SHARE else ""
            return f"{near}{name} is {limit.busy:.0%} busy, and full from {limit.threshold:.0%} on"
        if limit.full and 0 <= MIN_LEAD_BLAME - max(limit.blame, limit.reach) < BORDER_MARGIN_SHARE:
            return f"just under: {name} answers for {limit.blame:.0%} of the time, {MIN_LEAD_BLAME:.0%} is the border"
    return ""


def _doubts(
    hosts: Mapping[str, Usage],
    seconds: float,
    shares: Mapping[str, float],
    hidden: float,
    others: Sequence[str],
    *,
    strange: bool,
    silent: float,
) -> tuple[tuple[str, ...], Confidence]:
    grave: list[str] = []
    slight: list[str] = []
    if seconds < MIN_TRUSTED_SECONDS:
        grave.append(f"only {seconds:.1f} s were seen")
    if silent:
        grave.append(
            f"no request was answered in these {silent:.1f} s: from {MIN_STUCK_SECONDS:.0f} s on something is stuck"
        )
    for name, host in hosts.items():
        if host.own.lost_share > MAX_LOST_SHARE:
            words = f"{host.own.lost_share:.0%} of the samples on {name} were lost"
            (grave if host.own.lost_share > 4 * MAX_LOST_SHARE else slight).append(words)
        for probe in host.blind:
            slight.append(f"probe {probe.probe} on {name} sees nothing")
        for daemon in host.silent:
            if not daemon.stuck:
                slight.append(f"{daemon.daemon} on {name} does not answer ({daemon.reason})")
    unclear = shares.get("lock", 0.0) + shares.get("other", 0.0)
    if unclear > MAJORITY_SHARE / 2:
        slight.append(f"{unclear:.0%} of the time is in kernel locks and unknown stacks")
    if hidden > MAJORITY_SHARE / 5:
        slight.append(f"{hidden:.0%} of the time waits for what can't be seen")
    if strange:
        slight.append("a thread without a role was full, and may be the limit")
    slight += filter(None, others)
    level = Confidence.LOW if grave else Confidence.MEDIUM if slight else Confidence.HIGH
    return (*grave, *slight), level


def _advised(found: Verdict) -> Verdict:
    advice: Advice = advice_on(found.limits[0].resource if found.limits else "", found.kind)
    return replace(found, runbook=advice.runbook, advice=advice.do)


class Judge:
    """The verdict of a live window, which must not flicker: another answer has to hold before it is shown.

    A change of phase is not a flicker: begin a new Judge.
    """

    HOLD = 2.0
    """Seconds for which another answer has to hold, unless it is a daemon that is stuck, or the first one with data."""

    def __init__(self) -> None:
        self.shown: Verdict | None = None
        self._other: tuple[object, float] | None = None

    def take(self, now: float, found: Verdict) -> Verdict:
        """Return what to show, given the verdict of the window that ends at `now` (seconds)."""
        shown = self.shown
        answer = found.answer
        if (
            shown is None
            or shown.kind is Kind.TOO_SHORT
            or shown.answer == answer
            or found.kind is Kind.STUCK
            or (shown.confidence is Confidence.LOW and found.confidence is not Confidence.LOW)
        ):
            self._other = None
            self.shown = found
            return found
        if self._other is None or self._other[0] != answer:
            self._other = answer, now
        if now - self._other[1] >= self.HOLD:
            self._other = None
            self.shown = found
            return found
        return replace(shown, margin=f"changing: {found.words} since {now - self._other[1]:.0f} s")
