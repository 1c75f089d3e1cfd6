"""Which phase, is it alive, what limits it, since when, on which host, what to do: one screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard

from dashboards.kit.about import About, page
from dashboards.kit.board import board, compared_with, derived, folded
from dashboards.kit.colours import WAIT_COLOURS, class_colours
from dashboards.kit.over_time import lines, on_the_right, states
from dashboards.kit.panel import Panel
from dashboards.kit.present import node_graph, numbers, words
from dashboards.kit.queries import HOST, JUDGED, JUDGED_HOST, RUN, Query
from dashboards.kit.tables import Column, rows
from dashboards.verdict import ACTIVE, LIMIT, WHERE, advices, blames, limits, sentences
from pinchpoint.report.palette import KINDS, PARTS, PHASES, WAIT_WORDS
from pinchpoint.rules import PAGES
from pinchpoint.waits.chain import KIND_WORDS, Kind

NO_PHASE = "no phase"
NONE = f"vector(1) unless on () ({ACTIVE})"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    made = board(
        "pinchpoint-bottleneck",
        "Pinchpoint / Bottleneck now",
        "Which phase, is it alive, what limits it, since when, on which host, what to do.",
        variables=("run", "host", "several"),
    )
    for variable in (*compared_rate(), so_far(), *sentences()):
        made.with_variable(variable)
    now = (sentence, phases, phase, limit, progress)
    for panel in (*now, rate, waits, ranking, since, advice, results, alerts, blind):
        made.with_panel(panel())
    why = (chain, passed, graph, costs, ranks)
    made.with_row(folded("Who makes it wait, why it is full, and which rank lags", *(panel() for panel in why)))
    return made


def otherwise(words: str, where: str = "vector(1)") -> str:
    """Return a query with `words` as the label ``limit`` while there is no verdict and `where` has a result."""
    return f'label_replace(group({where}) unless on () ({limits()}), "limit", "{words}", "", "")'


def compared_rate() -> Iterator[Any]:
    """Yield the variables ``ghost``, the run to compare the rate with, at first none, and ``shift``."""
    yield compared_with("ghost", "none", "last_over_time(pinchpoint_run_start_timestamp_seconds[7d])")
    yield derived("shift", _shift(), "shift")


def _shift() -> str:
    """Return a query whose label ``shift`` is how long after the run to compare with the chosen one began."""
    newest = f"max(pinchpoint_run_start_timestamp_seconds{{{RUN}}})"
    other = 'max(last_over_time(pinchpoint_run_start_timestamp_seconds{run="$ghost"}[7d]))'
    return _duration("shift", f"{newest} - {other}")


def so_far() -> Any:
    """Return the variable ``elapsed``: for how long the longest active phase of the chosen runs has been running."""
    return derived("elapsed", _duration("elapsed", f"max({_of_phases('elapsed_seconds')})"), "elapsed")


def _of_phases(metric: str) -> str:
    return f"max by (benchmark, run, phase) (pinchpoint_phase_{metric}{{{RUN}}} and on (run, phase) {ACTIVE})"


def _duration(label: str, seconds: str) -> str:
    """Return a query whose label is a time in whole seconds as a duration of PromQL, 1 s if there is none."""
    # Prometheus 2.42 refuses an offset, and any version a range, of 0 s.
    whole = f'label_replace(count_values("seconds", clamp_min(round({seconds}), 1)), "unit", "s", "", "")'
    none = f'label_replace(vector(1), "{label}", "1s", "", "")'
    return f'label_join({whole}, "{label}", "", "seconds", "unit") or on () {none}'


def about_sentence() -> About:
    """Return the description of panels with the verdict as a sentence."""
    return About(
        "What limits the current phase, how much of the benchmark's time it takes, and the first thing to do; judged "
        "over the last 3 s and all hosts. With several runs: the limit with the most blame.",
        "A limit that you meant to reach: the disks, or the network.",
        "A single thread or lock, a quota, or a daemon that is stuck: the cluster could do more.",
        ("docs/verdict.md",),
    )


def sentence() -> Panel:
    """Return the verdict as a sentence, and the first thing to do."""
    return words("What limits it", about_sentence(), "### $verdict\n\n$advice", size=(24, 5))


def phases() -> Panel:
    """Return the phase ribbon."""
    about = About(
        "The phase of the run over time. Blue writes, light blue reads, yellow finds and stats, orange deletes.",
        "Phases follow each other without gaps.",
        "A phase that takes far longer than in the previous run, or a gap: see below what limits it.",
        ("PhaseStalled", "PhaseOverrun", "docs/results.md"),
    )
    nothing = f'label_replace(vector(0) unless on () ({ACTIVE}), "phase", "{NO_PHASE}", "", "")'
    query = Query(f"max by (run, phase) ({ACTIVE}) or {nothing}")
    return states(
        "Phases",
        about,
        query,
        size=(24, 3),
        text_of="phase",
        colours={f"/^{NO_PHASE}$/": "transparent"} | {f"/{pattern}/": colour for pattern, colour in PHASES.items()},
        words={f"/^{NO_PHASE}$/": " "},
    )


def phase(size: tuple[int, int] = (5, 4)) -> Panel:
    """Return the current phase in large type."""
    about = About(
        "The current phase, and how long it has been running.",
        "The phase that you expect, with about the same duration as in the previous run.",
        "A phase that takes far longer: check in Running whether it makes progress, and what limits it.",
        ("PhaseStalled", "PhaseOverrun"),
    )
    elapsed = f"max by (run, phase) (pinchpoint_phase_elapsed_seconds{{{RUN}}} and on (run, phase) {ACTIVE})"
    return numbers(
        "Phase now", about, Query(elapsed, "{{phase}}"), unit="s", size=size, name=True, nothing="none", decimals=0
    )


def limit(size: tuple[int, int] = (7, 4)) -> Panel:
    """Return the verdict in one line of large type."""
    about = About(
        "What limits the current phase, judged over the last 3 s and all hosts, regardless of the selection.",
        "A limit that you meant to reach: the disks, or the network.",
        "A single thread or lock, a quota, or a daemon that is stuck: the cluster could do more.",
        ("docs/verdict.md",),
    )
    shown = [
        f"max by (kind, limit) ({limits()})",
        otherwise("measuring", ACTIVE),
        otherwise("no verdict", NONE),
    ]
    colours = {f"/^{kind}/": KINDS[kind] for kind in ("latency-bound", "straggler", "unknown", "blind", "idle")}
    return numbers(
        "Limited by",
        about,
        Query(" or ".join(shown), "{{limit}}"),
        size=size,
        name=True,
        value=False,
        colours={"/ of /": KINDS["resource"], **colours},
    )


def progress() -> Panel:
    """Return the current phases: for how long, how far, and whether they make progress."""
    about = About(
        "The current phases: elapsed time, progress, expected duration, what is left if it goes on like this, and for "
        "how long nothing has been done.",
        "Progress grows, and `stalled` stays below a few seconds.",
        "`stalled` grows: the phase hangs. Elapsed time exceeds the expected duration: it will not end soon.",
        ("PhaseStalled", "PhaseOverrun", "BenchmarkFailed"),
    )

    def of(metric: str) -> Query:
        return Query(_of_phases(metric))

    expected, elapsed, done = (_of_phases(name) for name in ("expected_seconds", "elapsed_seconds", "progress_ratio"))
    return rows(
        "Running",
        about,
        {
            "elapsed": of("elapsed_seconds"),
            "progress": of("progress_ratio"),
            "expected": of("expected_seconds"),
            "left": Query(f"clamp_min({expected} - {elapsed}, 0) or {elapsed} / ({done} > 0) - {elapsed}"),
            "stalled": of("stalled_seconds"),
        },
        {
            "run": Column("run"),
            "phase": Column("phase", width=160),
            "elapsed": Column("for", unit="s", width=60, decimals=0),
            "progress": Column("done", unit="percentunit", bar=WAIT_COLOURS["osd"], width=100, decimals=0),
            "expected": Column("of", unit="s", width=55, decimals=0),
            "left": Column("left", unit="s", width=55, decimals=0),
            "stalled": Column("stalled", unit="s", width=60, decimals=0),
        },
        size=(12, 4),
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
    advised = f"{limits()} * on {LIMIT} group_left (advice, page) {advices()}"
    blame = blames(f"run, {WHERE}")
    return rows(
        "What to do",
        about,
        {"blame": Query(f"{advised} * on {LIMIT} group_left () {blame} or {advised} * 0")},
        {
            "limit": Column("limited by", width=180),
            "host": Column("on", width=100, several=True),
            "blame": Column("blame", unit="percentunit", width=60, decimals=0),
            "confidence": Column("sure", width=70),
            "advice": Column("do first", wrap=True, link=f"{PAGES}${{__data.fields.page.text}}", link_title="Read on"),
            "page": Column("page", hidden=True),
        },
        size=(24, 5),
        sort="blame",
        nothing="no verdict",
    )


def rate() -> Panel:
    """Return how fast the benchmark works."""
    about = About(
        "What the benchmark's processes move by their calls or at storage, and how many requests they wait for (main "
        "threads that slept), on all hosts. Dashed: the run chosen as Compare with, from its own start. The background "
        "has the colour of the phase.",
        "Level in each phase, and above the other run.",
        "It falls during a phase, or has gaps in which nobody works.",
        ("ThroughputDecay", "PhaseStalled", "docs/results.md"),
    )

    def of(unit: str, runs: str, offset: str = "") -> str:
        selector = f'pinchpoint_workload_done_total{{{runs}, unit="{unit}"}}'
        return f"sum(rate({selector}[$__rate_interval]{offset}))"

    queries = [
        Query(of(unit, which, offset), f"{name}{now}")
        for unit, now in (("bytes", "bytes"), ("waits", "requests"))
        for which, offset, name in ((RUN, "", ""), ('run="$ghost"', " offset $shift", "before: "))
    ]
    panel = lines(
        "Rate",
        about,
        *queries,
        unit="binBps",
        colours={"bytes": WAIT_COLOURS["osd"], "requests": WAIT_COLOURS["runqueue"]},
        limit="before: ",
        phases=True,
        nothing="no benchmark runs",
    )
    return on_the_right(panel, "requests", "ops")


def results() -> Panel:
    """Return the results that the benchmark has printed."""
    about = About(
        "Results of each phase as soon as the benchmark prints them, and the benchmark's own figures for the "
        "current phase. `so far`: the mean since it began, in bytes moved and requests waited for; if it goes on like "
        "this, the result.",
        "As much as in the best run so far.",
        "Lower than before by more than the spread of repeats (dashboard Runs).",
        ("docs/results.md", "ThroughputDecay", "RunInvalid"),
    )

    longest = f"topk(1, max by (run, phase) ({_of_phases('elapsed_seconds')}))"

    def of(unit: str, counted: str) -> Query:
        selector = f'{{{RUN}, unit="{unit}"}}'
        found = f"pinchpoint_phase_rate{selector} or pinchpoint_phase_result{selector}"
        done = f'sum by (run) (increase(pinchpoint_workload_done_total{{{RUN}, unit="{counted}"}}[$elapsed]))'
        mean = f'label_replace({done} / on (run) group_right () {longest}, "operation", "so far", "", "")'
        return Query(f"max by (run, phase, operation) ({found} or {mean})")

    started = f"max by (run, phase) (pinchpoint_phase_start_timestamp_seconds{{{RUN}}})"
    by_bytes, by_operations = of("bytes_per_second", "bytes"), of("operations_per_second", "waits")
    every = f"max by (run, phase, operation) ({by_bytes.expr} or {by_operations.expr})"
    return rows(
        "Results",
        about,
        {
            "bytes": by_bytes,
            "operations": by_operations,
            "start": Query(f"1000 * {started} * on (run, phase) group_right () ({every} * 0 + 1)"),
        },
        {
            "phase": Column("phase"),
            "operation": Column("operation", width=85),
            "bytes": Column("bytes", unit="binBps", width=90),
            "operations": Column("operations", unit="ops", width=95),
            "start": Column("began", unit="time:HH:mm:ss", width=80),
        },
        size=(10, 7),
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
        phases=True,
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
            "resource": Column("resource", width=110),
            "owner": Column("of", width=95),
            "instance": Column("on", width=95, several=True),
            "blame": Column("blame", unit="percentunit", bar=KINDS["resource"], decimals=0),
            "busy": Column("busy", unit="percentunit", bar=WAIT_COLOURS["osd"], decimals=0),
            "full": Column("full for", unit="percentunit", width=70, decimals=0),
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
    return states("Since when", about, query, size=(12, 7), colours=colours, show_value=False)


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
            "of": Column("of", width=125),
            "instance": Column("on", width=95, several=True),
            "age": Column("for", unit="s", width=65, decimals=0),
        },
        size=(10, 7),
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
        {"blind": Column("what"), "instance": Column("on", several=True)},
        size=(4, 7),
        nothing="all is seen",
    )


def chain() -> Panel:
    """Return who is responsible for the time of the benchmark's threads."""
    about = About(
        "Who is responsible for the time of the benchmark's threads, by who wakes whom, in the last 16 to 24 s: "
        "itself, daemons, or any other process, on all hosts together.",
        "The benchmark itself, and what it is to measure.",
        "A process that you did not think of has a large share.",
        ("docs/chain.md",),
    )
    shares = f"sum by (run, owner, role) (pinchpoint_verdict_chain_ratio{{{JUDGED}}})"
    return rows(
        "Who makes it wait",
        about,
        {"share": Query(f"topk(12, {_itself(shares, 'owner')})")},
        {
            "run": Column("run"),
            "owner": Column("who", width=100),
            "role": Column("its threads", width=110),
            "share": Column("of its time", unit="percentunit", bar=KINDS["resource"], width=105, decimals=0),
        },
        size=(10, 9),
        sort="share",
        nothing="no benchmark works, or it cannot be seen who wakes whom",
    )


def passed() -> Panel:
    """Return who wakes whom."""
    about = About(
        "Who wakes whom until the benchmark goes on, and the part of the waker's own share after which it did, on all "
        "hosts together.",
        "A chain from the daemons that you want to measure to the benchmark.",
        "A process that you did not think of wakes what the benchmark waits for.",
        ("docs/chain.md",),
    )
    shares = f"max by (run, owner, role, to_owner, to_role) (pinchpoint_verdict_chain_passed_ratio{{{JUDGED}}})"
    return rows(
        "Who wakes whom",
        about,
        {"share": Query(f"topk(20, {_itself(shares, 'to_owner')})")},
        {
            "owner": Column("who", width=110),
            "role": Column("its threads", width=125),
            "to_owner": Column("wakes", width=110),
            "to_role": Column("of it", width=125),
            "share": Column("of the time", unit="percentunit", bar=KINDS["resource"], width=110, decimals=1),
        },
        size=(14, 9),
        sort="share",
        nothing="no benchmark works, or it cannot be seen who wakes whom",
    )


GRAPH_WIDTH, GRAPH_COLUMN, GRAPH_ROW = 880, 200, 130
"""Pixels: of the whole graph, and at most from one column, and from one row, to the next."""
GRAPH_KINDS = (Kind.CPU, Kind.RUNQUEUE, Kind.DISK, Kind.NETWORK, Kind.TIMER)
"""What nodes do; the rest is one part of their circles."""


def graph() -> Panel:
    """Return who wakes whom as a graph, in which the nodes stand still."""
    about = About(
        "The same as a graph: what the benchmark waits for leads to it from the left. A figure is a share of the "
        "benchmark's time, a circle what these threads did in it, the width of an arrow what passed. Choose one run.",
        "A chain from the daemons that you want to measure to the benchmark.",
        "A process that you did not think of is on the way.",
        ("docs/chain.md",),
    )
    whole = _of_nodes()
    nodes = {"share": _with_text(_node(whole), NODE)}
    for axis, field, step in (
        ("column", "fixedx", f"scalar(clamp_max({GRAPH_WIDTH} / clamp_min({{span}}, 1), {GRAPH_COLUMN}))"),
        ("row", "fixedy", str(GRAPH_ROW)),
    ):
        place = f'max by (owner, role) (pinchpoint_verdict_chain_place{{{JUDGED}, axis="{axis}"}})'
        middle, span = f"scalar((max({place}) + min({place})) / 2)", f"(max({place}) - min({place}))"
        nodes[field] = _node(f"({place} - {middle}) * {step.format(span=span)}")
    looks = {f'kind="{kind}"': (f"arc__{kind}", KIND_WORDS[kind], PARTS[kind]) for kind in GRAPH_KINDS}
    looks[f'kind!~"{"|".join(GRAPH_KINDS)}"'] = "arc__other", "otherwise", WAIT_COLOURS["other"]
    arcs = {}
    for kinds, (field, shown, colour) in looks.items():
        nodes[field] = _node(f"({_of_nodes(kinds)} or 0 * {whole}) / clamp_min({whole}, 1e-9)")
        arcs[field] = shown, colour
    share = f"max by (owner, role, to_owner, to_role) (pinchpoint_verdict_chain_passed_ratio{{{JUDGED}}})"
    edges = {"share": _with_text(_edge(share), EDGE), "thickness": _edge(f"1 + 9 * clamp_max({share}, 1)")}
    return node_graph("Who wakes whom, as a graph", about, nodes, edges, arcs=arcs, stat="of the time", size=(24, 15))


NODE, EDGE = "id, title, subtitle", "id, source, target"


def _itself(expr: str, label: str) -> str:
    """Return an expression in which the benchmark's own threads, whose owner is empty, are called so."""
    return f'label_replace({expr}, "{label}", "itself", "{label}", "")'


def _of_nodes(kinds: str = "") -> str:
    """Return an expression for the share of each node, or what it did of these kinds; of several runs, the largest."""
    chosen = ", ".join(filter(None, (JUDGED, kinds)))
    return f"max by (owner, role) (sum by (run, owner, role) (pinchpoint_verdict_chain_ratio{{{chosen}}}))"


def _with_text(expr: str, labels: str) -> str:
    """Return an expression with the label ``mainstat``, its value in per cent."""
    text = f'count_values by ({labels}) ("mainstat", round(100 * {expr}))'
    return f'label_replace({text}, "mainstat", "$1 %", "mainstat", "(.*)")'


def _node(expr: str) -> str:
    """Return an expression about nodes with the labels ``id``, ``title`` and ``subtitle``."""
    found = _itself(expr, "owner")
    for name, label in (("title", "owner"), ("subtitle", "role")):
        found = f'label_replace({found}, "{name}", "$1", "{label}", "(.*)")'
    return f'sum by ({NODE}) (label_join({found}, "id", " ", "owner", "role"))'


def _edge(expr: str) -> str:
    """Return an expression about edges with the labels ``id``, ``source`` and ``target``."""
    found = _itself(_itself(expr, "owner"), "to_owner")
    for name, labels in (("source", '"owner", "role"'), ("target", '"to_owner", "to_role"')):
        found = f'label_join({found}, "{name}", " ", {labels})'
    return f'sum by ({EDGE}) (label_join({found}, "id", " ", "source", "target"))'


def costs() -> Panel:
    """Return what full threads spend their CPU time on."""
    about = About(
        "What the threads of a full resource spend their CPU time on, in classes, from samples of their stacks; on the "
        "selected hosts.",
        "The work that you want to measure.",
        "Logging, the allocator, locks or checksums take a large share: the page says what helps.",
        ("docs/costs.md", "docs/profile.md"),
    )
    labels = "(instance, resource, owner, class)"
    return rows(
        "Why it is full",
        about,
        {"share": Query(f"topk(12, max by {labels} (pinchpoint_cost_ratio{{{HOST}}}))")},
        {
            "resource": Column("resource", width=130),
            "owner": Column("of", width=130),
            "instance": Column("on", width=110, several=True),
            "class": Column("spends CPU time on", link=page("docs/costs.md")),
            "share": Column("share", unit="percentunit", bar=KINDS["resource"], width=150, decimals=0),
        },
        size=(24, 7),
        sort="share",
        nothing="nothing has been full lately, or no profile can be taken",
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
            "instance": Column("on", width=160, several=True),
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
