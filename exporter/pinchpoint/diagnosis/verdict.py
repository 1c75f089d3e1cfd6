"""The verdict: what limits a phase, with the evidence.

Everything is derived from two snapshots of each host, so that a live view, the table of a run, and a report from a
recording agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import pairwise
from typing import TypeVar

import msgspec

from pinchpoint.compat import StrEnum
from pinchpoint.diagnosis import chains, evidence, peers, stragglers, unknown
from pinchpoint.diagnosis.advice import Advice, advice_on, step_advice
from pinchpoint.diagnosis.blame import DAEMONS, BenchmarkWork, Limit, blame, jobs_of_runs, serving, workloads
from pinchpoint.diagnosis.costs import Cost, cost_advice, cost_sentence, costs
from pinchpoint.diagnosis.innocent import innocent
from pinchpoint.diagnosis.latency import LatencyBreakdown, latency
from pinchpoint.diagnosis.lock_use import lock_doubt, lock_sentence, lock_uses
from pinchpoint.diagnosis.served import Served
from pinchpoint.diagnosis.usage import SeenThreads, Usage, usages
from pinchpoint.diagnosis.waterfall import Waterfall, shift, shift_words, throttle_doubt, waterfall_words, waterfalls
from pinchpoint.diagnosis.window import Window
from pinchpoint.model import Snapshots
from pinchpoint.runs import belongs

__all__ = ["Confidence", "Judge", "Kind", "Limit", "Verdict", "judge", "judge_phase", "limit_advice", "verdict"]

OfHost = TypeVar("OfHost")
MIN_VERDICT_SECONDS = 2.0
"""Minimum seconds for a verdict: 5.5 % of 1 s windows and 3.3 % of 2 s windows differ from the whole."""
MIN_LEAD_BLAME = 0.4
"""Blame from which a full resource is the limit."""
MIN_DOUBT_BLAME = 0.2
"""Blame or reach of a full resource from which a latency-bound verdict is in doubt."""
MIN_TIE_SHARE = 0.5
"""Share of the first limit's blame from which another one counts beside it ..."""
MIN_KEPT_SHARE = 0.4
"""... by its blame, or by its reach if it keeps this share of it: the rest belongs to what is full below it ..."""
MIN_TOGETHER_SHARE = 0.5
"""... if they answer for this share of the time together."""
MIN_STUCK_SECONDS = 10.0
"""Seconds without any answered request from which something is stuck: no medium is that slow."""
MIN_IDLE_SHARE = 0.7
"""Share of idle time from which a benchmark does nothing ..."""
MAX_IDLE_BLAME = 0.2
"""... unless something that is full has this much blame."""
MAJORITY_SHARE = 0.5
"""If more than this share is unobservable, or in kernel locks and unknown stacks, the verdict is BLIND or UNKNOWN."""
WORKERS = "kworkers"
"""The probe of the kernel's workers."""
MIN_HIDDEN_SHARE = 0.1
"""Share of the time that waits for daemons from which it matters that their links are not seen."""
BORDER_MARGIN_SHARE = 0.05
"""A closer threshold than this might as well have been crossed."""
MIN_TRUSTED_SECONDS = 3.0
"""Seconds below which a verdict has low confidence."""
MIN_PARTS = 3
"""Number of parts of a phase from which their answers count ..."""
MIN_DIFFERING_SHARE = 0.25
"""... if this many of them differ from the whole."""
MIN_STEPS_SHARE = 0.1
"""Share of the time that waits for Ceph from which the steps of its operations are shown."""
MIN_IN_DAEMON_SHARE = 0.02
"""Operations inside the daemons at a time, for each process that waits for them, from which their steps are shown."""
STEPPED = {"OSD": ("osd", "client", "ceph", "writeback"), "MDS": ("mds", "client", "ceph")}
"""The waits that operations of each kind of daemon may end."""
MIN_STEP_BLAME = 0.25
"""Share of the benchmark's time for which a step of an operation has to answer to be advised on."""
MAX_LOST_SHARE = 0.05
"""Share of lost samples from which confidence is lower."""


STORED = ("mds", "osd", "client", "ceph", "writeback", "disk", "network")
"""Wait classes behind which an OSD, a disk or a link may be slow."""
MIN_DEGRADED = 3
"""How many times rarer samples must be for confidence to be lower: at half the rate verdicts are the same."""


class Kind(StrEnum):
    """The kind of a verdict."""

    RESOURCE = "resource"
    """One resource is full, and it serves what the benchmark waits for."""
    SEVERAL = "several"
    """Two or more different resources are full and share the blame."""
    LATENCY_BOUND = "latency-bound"
    """The benchmark waits, and nothing that serves it is full."""
    STRAGGLER = "straggler"
    """The ranks wait for one rank or host; the limits are what that one waits for, as far as something is full."""
    STUCK = "stuck"
    """A daemon is stuck, or no daemon answers."""
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


class Verdict(msgspec.Struct, frozen=True):
    """What limits a benchmark between two snapshots of each host."""

    kind: Kind
    seconds: float
    """Length of the interval."""
    waits: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Share of the time of the benchmark's processes by wait class, the largest first; they add up to 1."""
    limits: tuple[Limit, ...] = ()
    """The resources in the verdict, most blamed first; empty unless one is full or stuck."""
    ranking: tuple[Limit, ...] = ()
    """Every resource that serves what is waited for, the most blamed first."""
    margin: str = ""
    """How near another verdict was, in words ("just over"); empty if it is clear.

    Latency-bound is not clear if a full resource answers for a fifth of the time, or one that is not full for about as
    much as a limit does.
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
    """Where the latency of a latency-bound interval comes from, and which kinds of request get no answer."""
    waterfalls: tuple[Waterfall, ...] = ()
    """Where the time of the mean operation of the daemons goes that the benchmark waits for."""
    costs: tuple[Cost, ...] = ()
    """What the threads of the limits spend their CPU time on, as far as they were sampled."""
    woken: tuple[Limit, ...] = ()
    """What is full and answers for most of the time by who wakes whom alone, the most first."""
    graph: chains.WaitGraph | None = None
    """Who makes the benchmark wait, and for whom, by who wakes whom; None if that was not seen for long enough."""
    unknown: tuple[unknown.HotThread, ...] = ()
    """Hot threads without a role, the hottest first."""
    no_role: tuple[str, ...] = ()
    """The same in sentences."""
    straggler: str = ""
    """The rank or the host that the others wait for: ``rank 5 on client2``."""
    peers: tuple[str, ...] = ()
    """OSDs, disks and links that are slower or busier than those that do the same."""
    ranks: tuple[str, ...] = ()
    """How the ranks got on beside each other, if that is worth knowing."""
    runbook: str = ""
    """Name of the runbook page; empty if there is none."""
    advice: str = ""
    """What to do, in a sentence."""

    @property
    def words(self) -> str:
        """The verdict in a few words: ``limited by mds_lock of mds.a``."""
        return evidence.words(self.kind, self.limits, self.straggler)

    @property
    def answer(self) -> tuple[Kind, frozenset[tuple[str, str]]]:
        """Identifies equal verdicts."""
        return _identity(self.kind, self.limits)


def judge_phase(
    window: Window,
    *,
    benchmark: str = "",
    run: str = "",
    seen: SeenThreads | None = None,
) -> tuple[Mapping[str, Usage], Verdict]:
    """Return what the hosts did in a phase, and what limited it; `benchmark`, `run` and `seen` are those of `verdict`.

    Confidence is lower if parts of the phase have other answers.
    """
    hosts = usages(window.before, window.after, seen)
    found = judge(hosts, window.before, window.after, benchmark=benchmark, run=run)
    found = msgspec.structs.replace(found, evidence=(*found.evidence, *_moved(window, found)))
    borders = [window.before, *window.inner, window.after]
    if len(borders) <= MIN_PARTS or (found.kind is Kind.STUCK and not found.limits) or found.kind is Kind.STRAGGLER:
        # Few parts say nothing, short ones cannot distinguish stuck from slow, and ranks wait at the end of a phase.
        return hosts, found
    if found.limits and not found.limits[0].serves:
        # By who wakes whom, which parts are too short for.
        return hosts, found
    parts = [_answer(usages(before, after), benchmark, run) for before, after in pairwise(borders)]
    return hosts, _swayed(found, [part for part in parts if part is not None])


def _moved(window: Window, found: Verdict) -> list[str]:
    """Return which steps of an operation take another time in the second half of a phase than in the first."""
    if not window.inner or not found.waterfalls:
        return []
    shown = {one.operation for one in found.waterfalls}
    middle = window.inner[(len(window.inner) - 1) // 2]
    moved = shift(waterfalls(window.before, middle), waterfalls(middle, window.after))
    return [shift_words(one, "in the first half", "in the second") for one in moved if one.operation in shown][
        : evidence.MAX_LISTED
    ]


def _answer(hosts: Mapping[str, Usage], benchmark: str, run: str) -> tuple[Kind, tuple[Limit, ...]] | None:
    """Return the kind of verdict on an interval and its limits, None if nothing ran."""
    hosts = {name: hosts[name] for name in sorted(hosts)}
    workload = _chosen(hosts, benchmark, run)
    if workload is None or workload.total <= 0:
        return None
    return _decide(workload.shares, blame(hosts, workload), _hidden(hosts, workload))[:2]


def _swayed(found: Verdict, parts: Sequence[tuple[Kind, tuple[Limit, ...]]]) -> Verdict:
    """Return a verdict with a doubt if parts of its interval have other answers."""
    others = [part for part in parts if _identity(*part) != found.answer]
    if len(parts) < MIN_PARTS or len(others) < MIN_DIFFERING_SHARE * len(parts):
        return found
    often = Counter(evidence.words(*part) for part in others).most_common(1)[0][0]
    doubt = f"another answer in {len(others)} of {len(parts)} parts of the phase: {often}"
    level = Confidence.LOW if 2 * len(others) > len(parts) else Confidence.MEDIUM
    worse = level if found.confidence is not Confidence.LOW else found.confidence
    return msgspec.structs.replace(found, doubts=(*found.doubts, doubt), confidence=worse)


def _identity(kind: Kind, limits: Sequence[Limit]) -> tuple[Kind, frozenset[tuple[str, str]]]:
    return kind, frozenset(limit.kind for limit in limits)


def verdict(
    before: Snapshots,
    after: Snapshots,
    *,
    benchmark: str = "",
    run: str = "",
    seen: SeenThreads | None = None,
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
    trusted: float = MIN_TRUSTED_SECONDS,
    unanswered: float = 0.0,
) -> Verdict:
    """Like `verdict`, for hosts whose usage is already known.

    Below `shortest` seconds there is no verdict, and below `trusted` seconds its confidence is low. `unanswered` are
    the seconds without an answered request up to the interval's end, if known for longer than the interval.
    """
    hosts = {name: hosts[name] for name in sorted(hosts)}
    seconds = max((host.seconds for host in hosts.values()), default=0.0)
    if seconds < shortest:
        return Verdict(Kind.TOO_SHORT, seconds, confidence=Confidence.LOW)
    missing = [f"no data of {name} in this interval" for name in sorted(before.keys() ^ after.keys())]
    workload = _chosen(hosts, benchmark, run)
    if workload is None or workload.total <= 0:
        nobody = "no process of the benchmark was seen on the hosts that were asked"
        return _advised(Verdict(Kind.BLIND, seconds, blind=(nobody, *missing), confidence=Confidence.LOW))
    unrelated = {name for name, host in hosts.items() if _is_unrelated(name, host, workload)}
    if unrelated:
        hosts, before, after = (_without(hosts, unrelated), _without(before, unrelated), _without(after, unrelated))
    shares = workload.shares
    ranking = blame(hosts, workload)
    unseen = _unseen(hosts, workload)
    hidden = _hidden(hosts, workload)
    kind, limits, margin = _decide(shares, ranking, hidden)
    parts = LatencyBreakdown()
    if kind is Kind.LATENCY_BOUND:
        parts = latency(hosts, before, after, benchmark=workload.benchmark, run=workload.run, waits=shares)
    falls = _steps(workload, before, after)
    held = any(path.unanswered and shares.get(path.target, 0.0) > MAJORITY_SHARE for path in parts.paths)
    silent = max(seconds, unanswered)
    if held and silent >= MIN_STUCK_SECONDS:
        kind = Kind.STUCK
    spread = stragglers.rank_spread(hosts, workload)
    straggler = ""
    if spread is not None and spread.holds and kind is not Kind.STUCK:
        straggler = spread.name
        own = stragglers.rank_waits(spread, workload)
        kind, limits, margin = Kind.STRAGGLER, _reason(hosts, own), ""
    hidden_parts: list[str] = []
    if kind is Kind.LATENCY_BOUND:
        hidden_parts = [*_hidden_links(hosts, workload), *_hidden_workers(hosts, workload)]
    blind = (*evidence.blind(shares, unseen), *hidden_parts, *_unverified(hosts, workload), *missing)
    hot = unknown.hot_threads(hosts)
    remote = Served(before, after)
    counted = chains.counted_chains(before, after, workload, remote)
    who = chains.node_shares(counted, after, workload, remote)
    woken = chains.chain_limits(hosts, hot, who, MIN_LEAD_BLAME)
    chain_doubt = ""
    polls = kind is Kind.IDLE and chains.works(before, after, workload)
    if woken and (polls or kind in (Kind.LATENCY_BOUND, Kind.UNKNOWN)):
        kind, limits, margin = Kind.RESOURCE if len(woken) == 1 else Kind.SEVERAL, woken, ""
        chain_doubt = f"no rule says whom {evidence.name(woken[0])} serves: it is blamed by who wakes whom alone"
    elif kind in (Kind.RESOURCE, Kind.SEVERAL):
        chain_doubt = chains.contradiction(woken, limits)
    elif polls:
        chain_doubt = chains.activity(who, MIN_LEAD_BLAME)
    spent = costs(limits, before, after)
    locks = lock_uses(limits, before, after)
    strange = not limits and any(unknown.full(one.thread) for one in hot)
    early = silent if held and kind is not Kind.STUCK else 0.0
    held_back = throttle_doubt(falls) if any(limit.resource == "kv_sync" for limit in limits) else ""
    others = (margin, chain_doubt, lock_doubt(locks), held_back, *hidden_parts)
    brief = seconds < trusted
    doubts, confidence = _doubts(hosts, seconds, shares, hidden, others, strange=strange, brief=brief, silent=early)
    found = Verdict(
        kind=kind,
        seconds=seconds,
        waits=shares,
        limits=limits,
        ranking=ranking,
        margin=margin,
        confidence=confidence,
        doubts=doubts,
        evidence=(
            *evidence.evidence(kind, workload, limits, ranking),
            *map(lock_sentence, locks),
            *filter(None, [chains.sentence(who)]),
            *(words for cost in spent for words in (cost_sentence(cost), cost_advice(cost)) if words),
            *map(waterfall_words, falls),
        ),
        innocent=innocent(hosts, after, ranking),
        blind=blind,
        unanswered=held,
        latency=parts.sentences,
        waterfalls=falls,
        costs=spent,
        woken=woken,
        graph=chains.wait_graph(counted),
        unknown=tuple(hot),
        no_role=tuple(unknown.sentences(hot, limited=bool(limits))),
        straggler=straggler,
        peers=_uneven(hosts, shares),
        ranks=() if spread is None else tuple(stragglers.sentences(spread, evidence.WAITS)),
    )
    return _advised(found, parts)


def _without(hosts: Mapping[str, OfHost], names: Set[str]) -> Mapping[str, OfHost]:
    return {name: of_host for name, of_host in hosts.items() if name not in names}


def _is_unrelated(name: str, host: Usage, workload: BenchmarkWork) -> bool:
    """Return whether a host has no process of a workload, and Ceph daemons and clients of other clusters alone."""
    if name in workload.owners or not workload.clusters:
        return False
    known = frozenset[str]().union(*host.clusters.values())
    return bool(known) and known.isdisjoint(workload.clusters)


def _steps(workload: BenchmarkWork, before: Snapshots, after: Snapshots) -> tuple[Waterfall, ...]:
    """Return the mean operations of the daemons that the benchmark waits for.

    Too few of them at a time for the processes that wait are somebody else's, or a client's own house-keeping.
    """
    seconds = {kind: sum(workload.seconds.get(wait, 0.0) for wait in waits) for kind, waits in STEPPED.items()}
    waiting = {kind: own for kind, own in seconds.items() if own >= MIN_STEPS_SHARE * workload.total}
    if not waiting:
        return ()
    falls = [one for one in waterfalls(before, after) if one.kind in waiting]
    operations = {
        one.operation
        for one in falls
        if not one.daemon and one.rate * one.seconds >= MIN_IN_DAEMON_SHARE * waiting[one.kind]
    }
    return tuple(one for one in falls if one.operation in operations)


def _uneven(hosts: Mapping[str, Usage], shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return what is slower or busier than its peers, if the benchmark waits for storage."""
    if sum(shares.get(wait, 0.0) for wait in STORED) < MIN_DOUBT_BLAME:
        return ()
    return (*peers.slow_osds(hosts), *peers.uneven_resources(hosts))


def _reason(hosts: Mapping[str, Usage], straggler: BenchmarkWork) -> tuple[Limit, ...]:
    """Return what limits a straggler, empty if nothing that it waits for is full."""
    kind, limits, _ = _decide(straggler.shares, blame(hosts, straggler), 0.0)
    return limits if kind in (Kind.RESOURCE, Kind.SEVERAL) else ()


def _unseen(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> dict[str, float]:
    """Return the shares of the time that waits for daemons that no exporter sees."""
    shares = workload.shares
    return {wait: share for wait in DAEMONS if (share := shares.get(wait, 0.0)) and not serving(hosts, workload, wait)}


def _hidden(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> float:
    """Return the share of the time spent in unobservable waits."""
    return workload.shares.get("ceph", 0.0) + sum(_unseen(hosts, workload).values())


def _hidden_links(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> list[str]:
    """Return the owners with unseen links among a workload's processes and the daemons it waits for."""
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


def _hidden_workers(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> list[str]:
    """Return the hosts on which a workload waits for writeback, and whose kernel workers are not seen."""
    if workload.shares.get("writeback", 0.0) <= MIN_HIDDEN_SHARE:
        return []
    names = [name for name in sorted(workload.owners) if name in hosts and WORKERS in hosts[name].absent]
    if not names:
        return []
    return [f"kernel workers, which write back, are not seen on {evidence.some(names)}: share the host's PID namespace"]


def _unverified(hosts: Mapping[str, Usage], workload: BenchmarkWork) -> list[str]:
    """Return what is left out because it only has the name of a daemon that a workload waits for."""
    found = []
    for wait in DAEMONS:
        numbers = {name: host.unverified.get(f"ceph-{wait}", 0.0) for name, host in hosts.items()}
        if workload.shares.get(wait, 0.0) > MIN_HIDDEN_SHARE and (named := {n: v for n, v in numbers.items() if v}):
            found.append(
                f"processes named ceph-{wait} whose user or program is not that of a daemon are left out: "
                + evidence.some([f"{number:.0f} on {name}" for name, number in named.items()])
            )
    return found


def _chosen(hosts: Mapping[str, Usage], benchmark: str, run: str) -> BenchmarkWork | None:
    """Return the requested run, or one known only by its benchmark."""
    found, job = workloads(hosts), jobs_of_runs(hosts).get(run, "")
    ways: tuple[Callable[[BenchmarkWork], bool], ...] = (
        lambda work: bool(run) and work.run == run,
        lambda work: bool(benchmark) and work.benchmark == benchmark and (not run or belongs(work.run, run, job)),
        lambda work: not benchmark and not run,
    )
    return next((work for way in ways for work in found if way(work)), None)


def _decide(
    shares: Mapping[str, float], ranking: Sequence[Limit], hidden: float
) -> tuple[Kind, tuple[Limit, ...], str]:
    """Return the kind, the limits, and how near another answer was."""
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
    """Return the members of one answer with about as much blame as the first."""
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
    """Return which resource speaks against a latency-bound verdict: a full one first."""
    for limit in ranking:
        share = max(limit.blame, limit.reach)
        if limit.full and share >= MIN_DOUBT_BLAME:
            near = "just under: " if MIN_LEAD_BLAME - share < BORDER_MARGIN_SHARE else ""
            words = f"{evidence.name(limit)} is full and answers for {share:.0%} of the time"
            return f"{near}{words}, {MIN_LEAD_BLAME:.0%} is the border"
    for limit in ranking:
        if not limit.full and limit.reach >= MIN_LEAD_BLAME - BORDER_MARGIN_SHARE and limit.busy <= limit.threshold:
            near = "just under: " if limit.threshold - limit.busy < BORDER_MARGIN_SHARE else ""
            return f"{near}{evidence.name(limit)} is {limit.busy:.0%} busy, and full from {limit.threshold:.0%} on"
    return ""


def _doubts(
    hosts: Mapping[str, Usage],
    seconds: float,
    shares: Mapping[str, float],
    hidden: float,
    others: Sequence[str],
    *,
    strange: bool,
    brief: bool,
    silent: float,
) -> tuple[tuple[str, ...], Confidence]:
    grave: list[str] = []
    slight: list[str] = []
    if brief:
        grave.append(f"only {seconds:.1f} s were seen")
    if silent:
        grave.append(
            f"no request was answered in these {silent:.1f} s: from {MIN_STUCK_SECONDS:.0f} s on something is stuck"
        )
    for name, host in hosts.items():
        if host.own.lost_share > MAX_LOST_SHARE:
            words = f"{host.own.lost_share:.0%} of the samples on {name} were lost"
            (grave if host.own.lost_share > 4 * MAX_LOST_SHARE else slight).append(words)
        if host.own.degraded >= MIN_DEGRADED:
            slight.append(f"{name} is sampled {host.own.degraded:.0f} times less often, to stay within the cost limit")
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


def _advised(found: Verdict, parts: LatencyBreakdown | None = None) -> Verdict:
    step = _slow_step(found, parts) if parts is not None and found.kind is Kind.LATENCY_BOUND else ""
    advice = step_advice().get(step) or advice_on(found.limits[0].resource if found.limits else "", found.kind)
    return msgspec.structs.replace(found, runbook=advice.runbook, advice=advice.do)


def _slow_step(found: Verdict, parts: LatencyBreakdown) -> str:
    """Return the step of an operation that a benchmark waits for most, if it waits for nothing else as long."""
    inside = {path.target: path.inside_share for path in parts.paths}
    all_daemons = [one for one in found.waterfalls if not one.daemon]
    steps: dict[str, float] = {}
    for kind, waits in STEPPED.items():
        share = sum(found.waits.get(wait, 0.0) for wait in waits)
        if any(other >= share for wait, other in found.waits.items() if wait not in waits and wait != "idle"):
            continue
        falls = [one for one in all_daemons if one.kind == kind]
        total = sum(one.rate * one.seconds for one in falls)
        for one in falls if total > 0 else ():
            blame = share * inside.get(kind.lower(), 0.0) * one.rate * one.cause.seconds / total
            steps[one.cause.name] = steps.get(one.cause.name, 0.0) + blame
    step = max(steps, key=steps.__getitem__, default="")
    return step if steps.get(step, 0.0) >= MIN_STEP_BLAME else ""


def limit_advice(found: Verdict, limit: Limit | None) -> Advice:
    """Return what to do about one limit of a verdict, or about a verdict that has none."""
    return Advice(found.advice, found.runbook) if limit is None else advice_on(limit.resource, found.kind)


class Judge:
    """The verdict of a live window, without flicker: what is shown changes only after it was contradicted for a while.

    Begin a new Judge when the phase changes.
    """

    HOLD: Mapping[Confidence, float] = {Confidence.HIGH: 0.0, Confidence.MEDIUM: 0.8, Confidence.LOW: 2.0}
    """Seconds of other answers until one is shown, by the confidence of the window's newest part if that has the same
    answer, otherwise as if that were low. The first answer with data, and that a daemon is stuck, need not wait. 0.8 s
    are two windows, a second apart."""

    def __init__(self) -> None:
        self.shown: Verdict | None = None
        self._contradicted: float | None = None
        """Since when windows have other answers, in seconds."""

    def take(self, now: float, found: Verdict, newest: Callable[[], Verdict | None] = lambda: None) -> Verdict:
        """Return what to show, given the verdict of the window that ends at `now` (seconds).

        `newest` returns the verdict of the newest part of that window, None if it has none. It is called only if the
        window contradicts what is shown.
        """
        shown = self.shown
        answer = found.answer
        if (
            shown is None
            or shown.kind is Kind.TOO_SHORT
            or shown.answer == answer
            or found.kind is Kind.STUCK
            or (shown.confidence is Confidence.LOW and found.confidence is not Confidence.LOW)
        ):
            self._contradicted = None
            self.shown = found
            return found
        if self._contradicted is None:
            self._contradicted = now
        seconds = now - self._contradicted
        part = newest()
        agreed = part.confidence if part is not None and part.answer == answer else Confidence.LOW
        if seconds >= self.HOLD[agreed]:
            self._contradicted = None
            self.shown = found
            return found
        return msgspec.structs.replace(shown, margin=f"changing: {found.words} since {seconds:.0f} s")
