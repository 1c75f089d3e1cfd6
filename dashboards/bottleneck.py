"""Which phase, is it alive, what limits it, since when, on which host, what to do: one screen."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit import (
    HOST,
    JUDGED,
    JUDGED_HOST,
    PAGES,
    RUN,
    WAIT_COLOURS,
    About,
    Column,
    Panel,
    Query,
    board,
    class_colours,
    lines,
    nothing_named,
    numbers,
    rows,
    states,
)
from pinchpoint.diagnosis.advice import kind_advice
from pinchpoint.report.palette import KINDS, WAIT_WORDS
from pinchpoint.resources import all_resources

ACTIVE = f"pinchpoint_phase_active{{{RUN}}} == 1"
PHASE_COLOURS = {
    "/^no phase$/": "transparent",
    "/write|creat|mkdir/": WAIT_COLOURS["osd"],
    "/(^|[^h])read|rand|seq/": WAIT_COLOURS["network"],
    "/find|stat/": WAIT_COLOURS["cpu"],
    "/delete|remov|clean/": WAIT_COLOURS["lock"],
    "/.*/": WAIT_COLOURS["other"],
}
"""Colours by the kind of work that the name of a phase suggests; the first match counts."""


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-bottleneck",
        "Pinchpoint / Bottleneck now",
        "Which phase, is it alive, what limits it, since when, on which host, what to do.",
        variables=("run", "host"),
    )
    panels = (phases, phase, verdict, progress, advice, results, waits, ranking, since, alerts, blind, ranks)
    for panel in panels:
        made.with_panel(panel())
    return made


def limits() -> str:
    """Return a query for the verdicts of the chosen runs, with a label ``limit`` that says what they name."""
    labels = "benchmark, run, kind, resource, owner, host, confidence"

    def named(owner: str, whose: str) -> str:
        found = f"max by ({labels}) (pinchpoint_verdict_info{{{JUDGED}, {owner}}})"
        return f'label_join({found}, "limit", " of ", "resource", "{whose}")'

    # A resource of a whole host is named after the host.
    others, hosts = named('owner!="host"', "owner"), named('owner="host"', "host")
    return nothing_named(f"({others} or {hosts})")


def otherwise(words: str) -> str:
    """Return a query with `words` as the label ``limit`` while there is no verdict."""
    return f'label_replace(vector(1) unless on () ({limits()}), "limit", "{words}", "", "")'


def phases() -> Panel:
    """Return the phase ribbon."""
    about = About(
        "The phase of the run over time. Blue writes, light blue reads, yellow finds and stats, brown deletes.",
        "Phases follow each other without gaps.",
        "A phase that takes far longer than in the previous run, or a gap: see below what limits it.",
        ("PhaseStalled", "PhaseOverrun", "docs/results.md"),
    )
    nothing = f'label_replace(vector(0) unless on () ({ACTIVE}), "phase", "no phase", "", "")'
    query = Query(f"max by (run, phase) ({ACTIVE}) or {nothing}")
    return states(
        "Phases",
        about,
        query,
        size=(24, 3),
        text_of="phase",
        colours=PHASE_COLOURS,
        words={"/^no phase$/": " "},
    )


def phase() -> Panel:
    """Return the current phase in large type."""
    about = About(
        "The current phase, and how long it has been running.",
        "The phase that you expect, with about the same duration as in the previous run.",
        "A phase that takes far longer: check in Running whether it makes progress, and what limits it.",
        ("PhaseStalled", "PhaseOverrun"),
    )
    elapsed = f"max by (run, phase) (pinchpoint_phase_elapsed_seconds{{{RUN}}} and on (run, phase) {ACTIVE})"
    return numbers(
        "Phase now", about, Query(elapsed, "{{phase}}"), unit="s", size=(6, 4), name=True, nothing="none", decimals=0
    )


def verdict() -> Panel:
    """Return the verdict in one line of large type."""
    about = About(
        "What limits the current phase, judged over the last 3 s and all hosts, regardless of the selection.",
        "A limit that you meant to reach: the disks, or the network.",
        "A single thread or lock, a quota, or a daemon that is stuck: the cluster could do more.",
        ("docs/verdict.md",),
    )
    colours = {f"/^{kind}/": KINDS[kind] for kind in ("latency-bound", "straggler", "unknown", "blind", "idle")}
    return numbers(
        "Limited by",
        about,
        Query(f"max by (kind, limit) ({limits()}) or {otherwise('no verdict')}", "{{limit}}"),
        size=(8, 4),
        name=True,
        value=False,
        colours={"/ of /": KINDS["resource"], **colours},
    )


def progress() -> Panel:
    """Return the current phases: for how long, how far, and whether they make progress."""
    about = About(
        "The current phases: elapsed time, progress, expected duration, and time without progress.",
        "Progress grows, and the time without work stays below a few seconds.",
        "Time without work grows: the phase hangs. Elapsed time exceeds the expected duration: it will not end soon.",
        ("PhaseStalled", "PhaseOverrun", "BenchmarkFailed"),
    )

    def of(metric: str) -> Query:
        return Query(
            f"max by (benchmark, run, phase) (pinchpoint_phase_{metric}{{{RUN}}} and on (run, phase) {ACTIVE})"
        )

    return rows(
        "Running",
        about,
        {
            "elapsed": of("elapsed_seconds"),
            "progress": of("progress_ratio"),
            "expected": of("expected_seconds"),
            "stalled": of("stalled_seconds"),
        },
        {
            "run": Column("run"),
            "phase": Column("phase"),
            "elapsed": Column("for", unit="s", width=65, decimals=0),
            "progress": Column("done", unit="percentunit", bar=WAIT_COLOURS["osd"], width=130, decimals=0),
            "expected": Column("of", unit="s", width=65, decimals=0),
            "stalled": Column("no work for", unit="s", width=95, decimals=0),
        },
        size=(10, 4),
        nothing="no benchmark runs",
    )


def advice() -> Panel:
    """Return what to do about each limit, and where to read on."""
    about = About(
        "The limits in the verdict, where they are, and the first thing to do. The link leads to the runbook, "
        "which also says what does not help.",
        "One limit, with well above 40 % of the blame.",
        "Several limits at once: raise all of them, or the next one takes over immediately.",
        ("docs/verdict.md",),
    )
    known = {name: entry for name, entry in all_resources().items() if entry.do}
    do = {name: entry.do for name, entry in known.items()} | {name: entry.do for name, entry in kind_advice().items()}
    pages = {name: f"runbooks/{entry.runbook}.md" for name, entry in known.items()}
    pages |= dict.fromkeys(kind_advice(), "docs/verdict.md")
    blame = f"max by (benchmark, run, host, resource, owner) (pinchpoint_verdict_blame_ratio{{{JUDGED}}})"
    blamed = f"{limits()} * on (benchmark, run, host, resource, owner) group_left () {blame}"
    expr = f"({blamed} or {limits()} * 0)"
    for label in ("do", "page"):
        expr = f'label_replace({expr}, "{label}", "$1", "kind", "(.*)")'
        expr = f'label_replace({expr}, "{label}", "$1", "resource", "(.+)")'
    return rows(
        "What to do",
        about,
        {"blame": Query(expr)},
        {
            "limit": Column("limited by", width=210),
            "host": Column("on", width=140),
            "blame": Column("blame", unit="percentunit", width=70, decimals=0),
            "confidence": Column("sure", width=65),
            "do": Column(
                "do first", words=do, wrap=True, link=f"{PAGES}${{__data.fields.page.text}}", link_title="Runbook"
            ),
            "page": Column("page", words=pages, hidden=True),
        },
        size=(14, 5),
        sort="blame",
        nothing="no verdict",
    )


def results() -> Panel:
    """Return the results that the benchmark has printed."""
    about = About(
        "Results of each phase as soon as the benchmark prints them, and the benchmark's own figures for the "
        "current phase.",
        "As much as in the best run so far.",
        "Lower than before by more than the spread of repeats (dashboard Runs).",
        ("docs/results.md", "ThroughputDecay", "RunInvalid"),
    )

    def of(unit: str) -> Query:
        selector = f'{{{RUN}, unit="{unit}"}}'
        found = f"pinchpoint_phase_rate{selector} or pinchpoint_phase_result{selector}"
        return Query(f"max by (run, phase, operation) ({found})")

    started = f"max by (run, phase) (pinchpoint_phase_start_timestamp_seconds{{{RUN}}})"
    rates = f'{{{RUN}, unit=~"bytes_per_second|operations_per_second"}}'
    operations = f"max by (run, phase, operation) (pinchpoint_phase_rate{rates} or pinchpoint_phase_result{rates})"
    return rows(
        "Results",
        about,
        {
            "bytes": of("bytes_per_second"),
            "operations": of("operations_per_second"),
            "start": Query(f"1000 * {started} * on (run, phase) group_right () ({operations} * 0 + 1)"),
        },
        {
            "phase": Column("phase"),
            "operation": Column("operation", width=110),
            "bytes": Column("bytes", unit="binBps", width=110),
            "operations": Column("operations", unit="ops", width=110),
            "start": Column("began", unit="dateTimeFromNow", width=125),
        },
        size=(10, 5),
        sort="start",
        nothing="no result yet",
    )


def waits() -> Panel:
    """Return what the benchmark's processes do with their time."""
    words = ", ".join(f"{wait}: {text}" for wait, text in WAIT_WORDS.items())
    about = About(
        f"How the benchmark's processes spend their time ({words}).",
        "They mostly wait for what you want to measure.",
        "`runqueue` (no free CPU), `client`, `lock` or `other` take a large share.",
        ("docs/verdict.md",),
    )
    return lines(
        "The benchmark's time",
        about,
        Query(f"avg by (wait) (pinchpoint_verdict_wait_ratio{{{JUDGED}}}) > 0.002", "{{wait}}"),
        unit="percentunit",
        colours=WAIT_COLOURS,
        stack=True,
        most=1,
        size=(12, 7),
    )


def ranking() -> Panel:
    """Return the resources that are blamed for the waiting, the most blamed first."""
    about = About(
        "Evidence: for each resource of the selected hosts, its share of the benchmark's waiting, how busy it is, "
        "how much of the time it is full, and the busy share at which it counts as full.",
        "Blame is spread over what you want to measure.",
        "One resource has most of the blame and is full: it is the limit. A busy resource without blame is not a "
        "limit.",
        ("docs/verdict.md", "MdsLockSaturated", "KvSyncSaturated"),
    )
    labels = "(instance, resource, owner)"
    blame = f"max by (host, resource, owner) (pinchpoint_verdict_blame_ratio{{{JUDGED}, {JUDGED_HOST}}})"
    blame = f'max by {labels} (label_replace({blame}, "instance", "$1", "host", "(.*)"))'

    def share(metric: str) -> Query:
        used = f"rate(pinchpoint_resource_{metric}_seconds_total[$__rate_interval])"
        return Query(f"clamp_max(max by {labels} ({used}), 1) and on {labels} {blame}")

    full = "max by (resource) (pinchpoint_resource_threshold_ratio)"
    return rows(
        "Blame",
        about,
        {
            "blame": Query(blame),
            "busy": share("busy"),
            "full": share("saturated"),
            "from": Query(f"{full} * on (resource) group_right () ({blame} * 0 + 1)"),
        },
        {
            "resource": Column("resource", width=130),
            "owner": Column("of", width=140),
            "instance": Column("on", width=140),
            "blame": Column("blame", unit="percentunit", bar=KINDS["resource"], decimals=0),
            "busy": Column("busy", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "full": Column("full for", unit="percentunit", width=80, decimals=0),
            "from": Column("full from", unit="percentunit", width=80, decimals=0),
        },
        size=(12, 7),
        sort="blame",
        nothing="nothing is blamed",
    )


def since() -> Panel:
    """Return the verdict over time."""
    about = About(
        "The verdict over time: since when the limit has been in force, and what came before it.",
        "One limit for a whole phase.",
        "Alternating limits: two are about equal, or the load comes in waves.",
        ("docs/verdict.md",),
    )
    # Without any series the panel would complain about a missing time field.
    query = Query(f"max by (limit) ({limits()} or {otherwise('no verdict')})", "{{limit}}")
    colours = {**class_colours(), "/^no verdict$/": "transparent"}
    return states("Since when", about, query, size=(12, 6), colours=colours, show_value=False)


def alerts() -> Panel:
    """Return the alerts that fire."""
    about = About(
        "Firing alerts, the most severe first, and how long their condition has lasted, including alerts that "
        "Alertmanager inhibits. The name links to the runbook.",
        "None.",
        "A critical alert makes the run's results worthless.",
        ("RunInvalid", "ClusterDegradedDuringRun"),
    )
    firing = 'ALERTS{alertstate="firing", instance=~"$host|"}'
    labels = "(alertname, severity, instance, owner, daemon, client, phase, run)"
    age = f"time() - max by {labels} (ALERTS_FOR_STATE) and on {labels} {firing}"
    whose = f'label_join({age}, "of", " ", "owner", "daemon", "client", "phase")'
    for severity, rank in (("critical", 1), ("warning", 2), ("info", 3)):
        whose = f'label_replace({whose}, "rank", "{rank}", "severity", "{severity}")'
    return rows(
        "Alerts",
        about,
        {"age": Query(f"max by (alertname, severity, instance, of, run, rank) ({whose})")},
        {
            "rank": Column("rank", hidden=True),
            "severity": Column("severity", width=75),
            "alertname": Column("alert", link=f"{PAGES}runbooks/${{__data.fields.alert}}.md", link_title="Runbook"),
            "of": Column("of", width=110),
            "instance": Column("on", width=120),
            "age": Column("for", unit="s", width=65, decimals=0),
        },
        size=(8, 6),
        sort="rank",
        ascending=True,
        nothing="no alert fires",
    )


def blind() -> Panel:
    """Return what is not visible."""
    about = About(
        "What is not visible on the selected hosts: hosts without data, daemons and clients that do not answer, "
        "failing probes.",
        "Empty.",
        "A verdict may miss the real limit. It is `blind` if the benchmark mostly waits for something that is not "
        "visible.",
        ("ExporterDown", "DaemonBlind", "ProbeFailing", "docs/verdict.md"),
    )
    parts = {
        "host": f'up{{job="pinchpoint", {HOST}}} == 0',
        "$1": f"pinchpoint_ceph_socket_up{{{HOST}}} == 0",
        "probe $1": f"pinchpoint_probe_success{{{HOST}}} == 0",
        "client $1": f"pinchpoint_ceph_client_blind_instances{{{HOST}}} > 0",
        "run: $1": f"pinchpoint_run_blind_info{{{RUN}}}",
    }
    sources = {"host": "instance", "$1": "daemon", "probe $1": "probe", "client $1": "client", "run: $1": "what"}
    found = " or ".join(
        f'label_replace({expr}, "blind", "{name}", "{sources[name]}", "(.*)")' for name, expr in parts.items()
    )
    return rows(
        "Not seen",
        about,
        {"one": Query(f"max by (instance, blind) ({found})")},
        {"blind": Column("what"), "instance": Column("on")},
        size=(4, 6),
        nothing="all is seen",
    )


def ranks() -> Panel:
    """Return how the ranks of each host get on beside each other."""
    about = About(
        "The ranks or jobs of the benchmark on the selected hosts: how many work and how many are done, the rate of "
        "the slowest against the median, its number, and the share of their time in which all have waited for others.",
        "The slowest is near 100 % of the median, and nobody waits.",
        "One rank is much slower, and the others are done: the phase ends with it.",
        ("RankStraggler", "OsdSlowerThanPeers", "docs/verdict.md"),
    )
    labels = "(instance, benchmark, run)"

    def of(metric: str, *which: str) -> str:
        return f"max by {labels} (pinchpoint_workload_{metric}{{{', '.join((JUDGED, HOST, *which))}}})"

    slowest, middle = (of("rank_rate", f'which="{which}"') for which in ("slowest", "median"))
    return rows(
        "Ranks",
        about,
        {
            "working": Query(of("ranks", 'state="working"')),
            "done": Query(of("ranks", 'state="done"')),
            "number": Query(of("slowest_rank")),
            "share": Query(f"{slowest} / ({middle} > 0)"),
            "waited": Query(of("ranks_waited_ratio")),
        },
        {
            "run": Column("run"),
            "instance": Column("on", width=160),
            "working": Column("working", width=80, decimals=0),
            "done": Column("done", width=80, decimals=0),
            "number": Column("slowest", width=80, decimals=0),
            "share": Column("of the median", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "waited": Column("waited", unit="percentunit", bar=KINDS["straggler"], decimals=0),
        },
        size=(24, 5),
        sort="share",
        ascending=True,
        nothing="no benchmark with several ranks",
    )
