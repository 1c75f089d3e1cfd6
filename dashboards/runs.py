"""Two or more runs side by side: what they reached, what limited them, what differed."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit.about import About
from dashboards.kit.board import board, compared_with, folded
from dashboards.kit.panel import Panel
from dashboards.kit.present import bars
from dashboards.kit.queries import RUN, Query, nothing_named
from dashboards.kit.tables import Column, matrix, rows
from pinchpoint.rules import PAGES

MOST = 6
"""How many runs are shown side by side: the newest of the benchmark that ran last, among those with two or more."""
BEST = 8
"""How many scores are shown."""
EVALUATED = 2
"""Seconds between two evaluations of the alerts in alerts/."""
OPERATIONS = ("write", "read", "stat", "delete", "find")
"""Last words of the names of phases, if they say what is measured."""
CHANGE, CLEAR, NOISE = "change", "clear", "noise"
"""Names of the columns after those of the runs: their names begin with digits, so these are sorted last."""
CHANGED = (
    "`change` compares the newest run with the chosen one, or with the one before; `noise` is two standard "
    "deviations of the other runs, if there are three; `clear` is a change beyond that."
)
REPEATS = 3
"""How many other runs a figure needs before its noise is known."""
CLEARLY = 2
"""How many standard deviations of the other runs a change needs to be clear."""


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-runs",
        "Pinchpoint / Runs",
        "Two or more runs side by side: what they reached, what limited each phase, what differed.",
        variables=("benchmark", "run"),
    )
    made.time("now-24h", "now").refresh("1m").with_variable(compared_with("base", "the one before", STARTED))
    for panel in (runs, scores, differences, operations, bandwidth, verdicts, seconds, alerts):
        made.with_panel(panel())
    made.with_row(folded("Trend of exported runs, and other figures", trend(), others()))
    return made


def last(metric: str, labels: str, selector: str = "", of: str = "max") -> str:
    """Return a query for the last values of the chosen runs in the time range, by `labels`."""
    return f"{of} by ({labels}) (last_over_time({metric}{{{RUN}{selector}}}[$__range]))"


OF_BENCHMARK = ', benchmark=~"$benchmark"'
STARTED = last("pinchpoint_run_start_timestamp_seconds", "run", OF_BENCHMARK)
STARTS = last("pinchpoint_run_start_timestamp_seconds", "benchmark, run", OF_BENCHMARK)
REPEATED = f"({STARTS} and on (benchmark) count by (benchmark) ({STARTS}) > 1)"
BASE = 'on (run) last_over_time(pinchpoint_run_start_timestamp_seconds{run="$base"}[$__range])'
"""After ``and``: keeps the run that was chosen to compare with."""
COMPARED = f"{STARTS} and on (benchmark) topk(1, {REPEATED} or on () {STARTS})"
SHOWN = f"on (run) (topk({MOST}, {COMPARED}) or {STARTS} and {BASE})"
"""After ``and``: keeps the runs that can be compared."""


def named(expr: str) -> str:
    """Return a query with a label ``name``: the run's name, then its start time, because columns are narrow."""
    started = "[0-9]{4}([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z-(.+)"
    named = f'label_replace({expr}, "name", "$1", "run", "(.*)")'
    return f'label_replace({named}, "name", "$6 $1-$2 $3:$4:$5", "run", "{started}")'


def figures(selector: str) -> str:
    """Return a query for results of the runs that are shown."""
    return f"({last('pinchpoint_phase_result', 'run, phase, operation, unit', selector)} and {SHOWN})"


def changed(expr: str) -> str:
    """Return a query for how each figure of the newest run differs from that of the run to compare with, as a share.

    That is the chosen run, or else the one before. The label ``run`` is `CHANGE`, or `NOISE` for the share that repeats
    differ by, or `CLEAR` for changes beyond that.
    """
    of = "(phase, operation, unit)"
    when = f"{STARTED} * on (run) group_right () group by (run, phase, operation, unit) ({expr} unless {BASE})"
    newest = f"{expr} and topk by {of} (1, {when})"
    before = f"({expr} and {BASE} or on {of} ({expr} and (topk by {of} (2, {when}) unless topk by {of} (1, {when}))))"
    change = f"(({newest}) / ignoring (run) {before} - 1)"
    others = f"({expr} unless topk by {of} (1, {when}))"
    noise = (
        f"({CLEARLY} * stddev by {of} ({others}) / avg by {of} ({others}) and count by {of} ({others}) >= {REPEATS})"
    )
    clear = f"({change} and on {of} (abs({change}) > on {of} {noise}))"
    columns = {CHANGE: change, NOISE: noise, CLEAR: clear}
    return " or ".join(f'label_replace({found}, "run", "{name}", "", "")' for name, found in columns.items())


def figure(expr: str, *more: str) -> str:
    """Return a query with a label ``figure`` that says what is measured: phase, operation, and `more` labels."""
    labels = ", ".join(f'"{label}"' for label in ("phase", "operation", *more))
    once = "|".join(f"(.*{word}) {word}" for word in OPERATIONS)
    groups = "".join(f"${number}" for number in range(1, len(OPERATIONS) + 1))
    return f'label_replace(label_join({expr}, "figure", " ", {labels}), "figure", "{groups}", "figure", "{once}")'


def in_order(expr: str) -> Query:
    """Return a query for when the phases of `expr` began, in seconds since the start of their run."""
    began = last("pinchpoint_phase_start_timestamp_seconds", "run, phase")
    return Query(f"{began} - on (run) group_left () {STARTED} and on (run, phase) {expr}")


def runs() -> Panel:
    """Return the chosen runs, the newest first."""
    about = About(
        f"The selected runs within the time range. The panels below compare the {MOST} newest runs of one benchmark: "
        "the one whose last run began most recently, among benchmarks with two runs or more. The name links to the "
        "run's time range in Bottleneck now, which has verdicts only for runs that Prometheus itself has seen.",
        "`finished`, valid, and without alerts.",
        "`failed`, `stopped` or INVALID: its figures cannot be used. An alert that fired explains why a phase may "
        "be worse.",
        ("RunInvalid", "BenchmarkFailed", "docs/results.md"),
    )
    state = last("pinchpoint_run_state", "benchmark, run, state")
    over = last("pinchpoint_run_state", "benchmark, run, state", ', state=~"finished|failed|stopped"')
    # `pinchpoint run` is a benchmark too, until the one that it runs is known.
    known = last("pinchpoint_run_state", "run", ', benchmark!="command"')
    command = f'label_replace({known}, "benchmark", "command", "", "")'
    of_run = "on (benchmark, run)"
    stand = f"(({over} == 1 or ({state} == 1 unless {of_run} {over} == 1)) unless {of_run} {command})"

    def of(expr: str) -> Query:
        return Query(f"({expr}) * on (run) group_right () {stand}")

    phase = "run, phase"
    starts, elapsed = (
        last(f"pinchpoint_phase_{name}", phase) for name in ("start_timestamp_seconds", "elapsed_seconds")
    )
    ended = f"max by (run) ({starts} + {elapsed})"
    fired = f'last_over_time(pinchpoint:run_alert:info{{severity!="info", {RUN}}}[$__range])'
    none = f"0 * group by (run) ({STARTED})"
    return rows(
        "Runs",
        about,
        {
            "began": of(f"floor(1000 * {STARTED})"),
            "ended": of(f"ceil(1000 * ({ended} or {none} + time()))"),
            "took": of(f"{ended} - {STARTED}"),
            "phases": of(f"count by (run) ({starts})"),
            "score": of(last("pinchpoint_run_score", "run", ', unit="score"')),
            "valid": of(f"{last('pinchpoint_run_valid', 'run', of='min')} or 2 * group by (run) ({STARTED})"),
            "alerts": of(f"count by (run) (group by (run, alertname) ({fired})) or {none}"),
        },
        {
            "run": Column(
                "run",
                link="/d/pinchpoint-bottleneck?${datasource:queryparam}&var-run=${__value.raw}"
                "&from=${__data.fields.began.numeric}&to=${__data.fields.ended.numeric}",
                link_title="Bottleneck now, at its time",
            ),
            "benchmark": Column("benchmark", width=100),
            "state": Column("state", width=75),
            "valid": Column("valid", words={"1": "valid", "0": "INVALID", "2": "-"}, width=75),
            "score": Column("score", width=65, decimals=3),
            "phases": Column("phases", width=65),
            "alerts": Column("alerts", width=60),
            "took": Column("took", unit="s", width=85),
            "began": Column("began", unit="dateTimeAsLocal", width=180),
            "ended": Column("ended", hidden=True),
        },
        size=(16, 8),
        sort="began",
        nothing="no run in this time",
    )


def scores() -> Panel:
    """Return the scores, the best first."""
    about = About(
        f"The {BEST} best scores of the selected runs, as the benchmark reported them; IO500's is the geometric mean "
        "of its bandwidths and rates.",
        "Higher. But two runs without any change also differ: by 5 % in a public diary of 18 runs.",
        "A difference within the spread of repeats means nothing, in either direction: `pinchpoint compare` "
        "computes the spread.",
        ("docs/results.md",),
    )
    score = last("pinchpoint_run_score", "run", ', unit="score"')
    query = Query(f"sort_desc({named(f'topk({BEST}, {score})')})", "{{name}}")
    return bars("Score", about, query, unit="none", size=(8, 8))


RATES = {"operations_per_second": "ops/s", "bytes_per_second": "B/s", "bits_per_second": "b/s"}
"""Short names of units."""
CHANGES = {name: Column(name, unit="percentunit", decimals=1, width=75) for name in (CHANGE, NOISE)}


def compared(title: str, about: About, unit: str, grafana: str) -> Panel:
    """Return the results in one unit: a row for each, a column for each run and one for the change."""
    found = figures(f', unit="{unit}"')
    return matrix(
        title,
        about,
        Query(named(figure(f"({found} or {changed(found)})"))),
        row="figure",
        column="name",
        column_order="run",
        order=in_order(found),
        first=Column("phase", width=170),
        others=CHANGES | {CLEAR: Column(CLEAR, unit="percentunit", decimals=1, width=70, signed=True)},
        unit=grafana,
        size=(24, 10),
        nothing="no result of this kind",
    )


def operations() -> Panel:
    """Return the rates of operations."""
    about = About(
        f"Operations per second of each phase. {CHANGED}",
        "All phases rise, or the intended ones rise while the others stay the same.",
        "One phase rises at the cost of another. Without repeats a change of a few per cent means nothing.",
        ("docs/results.md", "PhaseTooShort", "ThroughputDecay"),
    )
    return compared("Operations", about, "operations_per_second", "ops")


def bandwidth() -> Panel:
    """Return the bandwidths."""
    about = About(
        f"Bytes per second of each phase. {CHANGED}",
        "All phases rise, or the intended ones rise while the others stay the same.",
        "`easy` falls where `hard` rises: without deep idle states ior_hard_write gained 49 %, ior_easy lost 7 %.",
        ("docs/results.md", "DeepIdleInLatencyPhase"),
    )
    return compared("Bandwidth", about, "bytes_per_second", "binBps")


def others() -> Panel:
    """Return all other figures, with their units."""
    about = About(
        "Everything else that the benchmark reported, such as latencies and amounts, with its unit.",
        "Latencies fall.",
        "The mean falls while the maximum rises: a few requests wait for a long time.",
        ("docs/results.md", "OsdSlowOps"),
    )
    found = figures(', unit!~"(bytes|operations)_per_second"')
    return matrix(
        "Other figures",
        about,
        Query(named(figure(f"({found} or {changed(found)})", "unit"))),
        row="figure",
        column="name",
        column_order="run",
        order=in_order(found),
        first=Column("phase", width=320),
        others=CHANGES | {CLEAR: Column(CLEAR, unit="percentunit", decimals=1, width=70)},
        unit="sishort",
        size=(24, 8),
        nothing="the benchmarks gave no other figures",
    )


def verdicts() -> Panel:
    """Return what limited each phase."""
    about = About(
        "What limited each phase, judged over its whole duration, and the confidence; only one if there were "
        "several limits. Imported runs have no verdict, because they have no samples.",
        "The limit is the intended one, and the same in repeats.",
        "The limit is the same before and after a change: the change did not affect the limit.",
        ("docs/verdict.md", "docs/report.md"),
    )
    found = f"count_over_time(pinchpoint_phase_verdict_info{{{RUN}}}[$__range])"
    found = f"max by (run, phase, kind, resource, owner, confidence) ({found})"
    limit = f'label_join(topk by (run, phase) (1, {found}), "limit", " of ", "resource", "owner")'
    limit = nothing_named(limit)
    limit = f'label_replace({limit}, "more", " and more", "kind", "several")'
    limit = f'label_replace({limit}, "sure", " ($1)", "confidence", "(.+)")'
    text = f'label_join({limit}, "verdict", "", "limit", "more", "sure") and {SHOWN}'
    return matrix(
        "Limited by",
        about,
        Query(named(f"({text})")),
        row="phase",
        column="name",
        column_order="run",
        cell="verdict",
        order=in_order(f"({text})"),
        first=Column("phase", width=170),
        size=(24, 14),
        nothing="no verdict: imported, or too short",
    )


def seconds() -> Panel:
    """Return how long each phase took."""
    about = About(
        "Duration of each phase, as reported by the benchmark.",
        "About the configured time (IO500 writes for 300 s), and at least 30 s.",
        "Far longer: IO500 waits for the slowest process. Under 30 s: too short to be repeatable.",
        ("PhaseTooShort", "PhaseOverrun"),
    )
    took = f"({last('pinchpoint_phase_elapsed_seconds', 'run, phase')} and {SHOWN})"
    return matrix(
        "Time taken",
        about,
        Query(named(took)),
        row="phase",
        column="name",
        column_order="run",
        order=in_order(took),
        first=Column("phase", width=170),
        unit="s",
        size=(24, 14),
        nothing="no phase",
    )


def differences() -> Panel:
    """Return the settings in which the runs differ."""
    about = About(
        "Host settings and Ceph options that differ between these runs, and on how many hosts they had each "
        "value; tags and notes of exported runs. A setting with two values in one run was changed during the run, "
        "or its hosts differ.",
        "One line: what you changed.",
        "More than that: the runs do not show the effect of the change alone. Nothing: they are repeats, or a "
        "setting changed that is not recorded.",
        ("HostsDiffer", "docs/results.md"),
    )
    hosts = f"max by (run, fact, value) (max_over_time(pinchpoint_run_fact_hosts{{{RUN}}}[$__range])) and {SHOWN}"
    share = f"({hosts}) / on (run, fact) group_left () sum by (run, fact) ({hosts})"
    by = "by (fact, value)"
    differ = (
        f"max {by} ({share}) > min {by} ({share}) or count {by} ({hosts}) < scalar(count(group by (run) ({hosts})))"
    )
    return matrix(
        "What differs",
        about,
        Query(named(f'label_join(({hosts}) and on (fact) ({differ}), "setting", " = ", "fact", "value")')),
        row="setting",
        column="name",
        column_order="run",
        first=Column("setting", width=300),
        unit="none",
        size=(24, 6),
        nothing="no known difference",
    )


def trend() -> Panel:
    """Return when the results of the newest run changed to the level that they are at."""
    about = About(
        "When each result, and the score, last changed to another level, according to `pinchpoint export --trend`: "
        "since which run, and from the mean of the runs before to the mean of the runs since. Without a change, since "
        "the first run.",
        "A change at the run in which you changed something, in the intended direction.",
        "A change that nobody intended: the same setting in `What differs`, an update, a disk that grows old.",
        ("docs/results.md",),
    )
    of = "(benchmark, phase, operation, unit)"
    by = "benchmark, run, phase, operation, unit"
    level, since, ratio = (
        last(f"pinchpoint_result_level{suffix}", by, OF_BENCHMARK)
        for suffix in ("", "_start_timestamp_seconds", "_change_ratio")
    )
    started = f"{STARTS} * on (benchmark, run) group_right () group by ({by}) ({level})"
    newest = f"on ({by}) topk by {of} (1, {started})"

    def of_newest(expr: str) -> Query:
        found = f"max by {of} ({expr} and {newest})"
        return Query(figure(f'label_replace({found}, "phase", "score", "phase", "")'))

    return rows(
        "Trend",
        about,
        {
            "level": of_newest(level),
            "change": of_newest(f"({ratio} - 1)"),
            "since": of_newest(f"(1000 * {since})"),
        },
        {
            "benchmark": Column("benchmark", width=100),
            "figure": Column("result"),
            "level": Column("level", unit="sishort", width=90),
            "unit": Column("unit", words=RATES, width=70),
            "change": Column("change", unit="percentunit", decimals=1, width=90, signed=True),
            "since": Column("since", unit="dateTimeAsLocal", width=180),
        },
        size=(24, 8),
        sort="since",
        nothing="no run of this time was exported with --trend",
    )


def alerts() -> Panel:
    """Return the alerts of each run."""
    about = About(
        "How long each alert fired while this was the only run. The name links to the runbook.",
        "None, or the same in all runs.",
        "An alert that fired only in the slower run: check it first as the cause of the difference.",
        ("RunInvalid", "ClusterDegradedDuringRun"),
    )
    fired = f'count_over_time(pinchpoint:run_alert:info{{severity!="info", {RUN}}}[$__range])'
    return matrix(
        "Alerts",
        about,
        Query(named(f"{EVALUATED} * max by (run, alertname) ({fired}) and {SHOWN}")),
        row="alertname",
        column="name",
        column_order="run",
        first=Column("alert", width=180, link=f"{PAGES}runbooks/${{__value.text}}.md", link_title="Runbook"),
        unit="s",
        decimals=0,
        size=(24, 8),
        nothing="none fired",
    )
