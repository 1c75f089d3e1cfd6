"""Building blocks of the dashboards: variables, annotations, links, and panels with a common look.

Each panel answers a question, and has an `About` that says what good and bad look like and where to read more.
Statements about Grafana are true of version 12.3 (dashboard schema version 42).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import bargauge, nodegraph, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import text as text_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from pinchpoint.grafana import LIVE_REFRESH
from pinchpoint.report.palette import PHASES, SERIES, STATUS, WAITS
from pinchpoint.rules import PAGES
from pinchpoint.threads.roles import load_roles

__all__ = [
    "CLUSTER",
    "DAEMON_CLUSTER",
    "FULL",
    "HOST",
    "JUDGED",
    "JUDGED_HOST",
    "LAST",
    "PAGES",
    "RUN",
    "WAIT_COLOURS",
    "About",
    "Column",
    "Panel",
    "Query",
    "bars",
    "board",
    "board_link",
    "class_colour",
    "class_colours",
    "compared_with",
    "derived",
    "encoded",
    "folded",
    "fullest",
    "limit_of_alert",
    "lines",
    "matrix",
    "node_graph",
    "nothing_named",
    "numbers",
    "on_the_right",
    "page",
    "panels_of",
    "rows",
    "states",
    "words",
]

TAG = "pinchpoint"
Panel = Builder[dashboard.Panel]
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

RUN = 'run=~"$run"'
JUDGED = 'run=~"($run)|(job[0-9].*|@uid[0-9]+)?"'
"""Also matches processes whose run is not known on their host, and verdicts on them: `pinchpoint.runs.stray`."""
HOST = 'instance=~"$host"'
JUDGED_HOST = 'host=~"$host"'
"""Matches the host that a series of the judge describes; the `instance` of such a series is the judge itself."""
CLUSTER = 'cluster=~"($cluster)|"'
"""Matches Ceph's own series, which have a label ``cluster`` only if the scrape configuration adds it."""
DAEMON_CLUSTER = 'on (instance, daemon) group_left () pinchpoint_ceph_daemon_info{cluster=~"$cluster"}'
"""After ``*``: keeps the daemons of the chosen cluster."""

MOST_SERIES = 5
"""How many series of many a panel shows."""

FULL = "full from"
"""Name of the series with the threshold of a resource, drawn as a dashed line."""
FULL_COLOUR = "#C2410C"

ROLES = load_roles()
WAIT_COLOURS = WAITS
TEXT_COLOUR = "text"
REFRESH = ["1s", "2s", "5s", "10s", "30s", "1m", "5m"]
"""Intervals to choose from. Grafana leaves out what is below its min_refresh_interval, which is 5 s by default."""
SCRAPE_SECONDS = 2
"""How often the exporter is scraped (compose/prometheus.yml); node_exporter and Ceph every 5 s."""


@dataclass(frozen=True)
class About:
    """What a panel shows, what good and bad look like, and which pages to read next.

    `pages` are names of runbooks, or paths of other pages from the root of this repository.
    """

    shows: str
    good: str
    bad: str
    pages: Sequence[str]


@dataclass(frozen=True)
class Query:
    """A PromQL expression; `legend` is Grafana's template, `scrape` the seconds between samples of the series."""

    expr: str
    legend: str = ""
    scrape: int = SCRAPE_SECONDS


def page(name: str) -> str:
    """Return the URL of a page, given the name of a runbook or the path of any other page."""
    return PAGES + (name if "/" in name else f"runbooks/{name}.md")


def describe(about: About) -> str:
    """Return the description of a panel, in Markdown."""
    links = ", ".join(f"[{name.rpartition('/')[2].removesuffix('.md')}]({page(name)})" for name in about.pages)
    return f"{about.shows}\n\n**Good:** {about.good}\n\n**Bad:** {about.bad}\n\n**Read on:** {links}"


def board_link(name: str, host: str = "${host:queryparam}", time: str = "${__url_time_range}") -> str:
    """Return a link to a dashboard that keeps data source and run, and hosts and time unless others are given."""
    return f"/d/{TAG}-{name}?" + "&".join(filter(None, ("${datasource:queryparam}", host, "${run:queryparam}", time)))


def nothing_named(limits: str) -> str:
    """Return a query for `limits`; if a verdict names no resource, its label ``limit`` is the kind of the verdict."""
    both = f'label_join({limits}, "named", ":", "kind", "resource")'
    return f'label_replace(label_replace({both}, "limit", "$1", "named", "([^:]*):"), "named", "", "", "")'


def limit_of_alert(alert: str) -> str:
    """Return the threshold of an alert, without labels."""
    return f'max(pinchpoint_alert_threshold{{alert="{alert}"}})'


def fullest(expr: str, most: int = MOST_SERIES) -> str:
    """Return a query for the series of `expr` with the highest means over the time range: the same at every step."""
    over = expr.replace("[$__rate_interval]", "[$__range] @ end()")
    if over == expr:
        over = f"avg_over_time(({expr})[$__range:15s] @ end())"
    return f"{expr} and topk({most}, {over})"


def class_colour(resource: str) -> str:
    """Return the colour of a resource on all dashboards: the colour of the first wait class that it serves."""
    serves = ROLES.serves.get(resource) or ("other",)
    return WAIT_COLOURS[serves[0]]


def class_colours() -> dict[str, str]:
    """Return the colours of all resources, for series whose name begins with one."""
    classes: dict[str, list[str]] = {}
    for resource in sorted(ROLES.serves):
        classes.setdefault(class_colour(resource), []).append(resource)
    return {f"/^({'|'.join(resources)})( |$)/": colour for colour, resources in classes.items()}


# ---- Dashboards


def board(uid: str, title: str, question: str, *, variables: Sequence[str] = ("host", "run")) -> builders.Dashboard:
    """Return an empty dashboard that answers `question`; `variables` names the entries of `VARIABLES` that it uses.

    Every dashboard also has the variables ``datasource``, ``run``, ``began`` and ``ended``, and can show the phases of
    ``run`` as regions. Tables with a column that is shown for several hosts alone need ``several``.
    """
    host = "${host:queryparam}" if "host" in variables else ""
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(question)
        .tags([TAG])
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time("now-30m", "now")
        .refresh(LIVE_REFRESH)
        .timepicker(builders.TimePicker().refresh_intervals(REFRESH))
        .readonly()
        .link(
            builders.DashboardLink("Pinchpoint")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .link(
            builders.DashboardLink("Time of the run")
            .type(dashboard.DashboardLinkType.LINK)
            .url(board_link(uid.removeprefix(f"{TAG}-"), host, time="from=${began}&to=${ended}"))
            .tooltip("From the start of the newest chosen run to its end, or to now while it goes on.")
        )
        .with_variable(
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
            .current(dashboard.VariableOption(text="default", value="default"))
        )
    )
    for name in dict.fromkeys([*variables, "run", "began", "ended"]):
        made.with_variable(VARIABLES[name]())
    for annotation in (_phases(), _alerts()):
        made.annotation(annotation)
    return made


def _choice(name: str, label: str, query: str, *, all_value: str = ".+", sort: dashboard.VariableSort) -> Any:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": f"variable-{name}"})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(sort)
        .multi(True)
        .include_all(True)
        .all_value(all_value)
        .current(dashboard.VariableOption(text="All", value="$__all"))
    )


def derived(name: str, expr: str, label: str) -> Any:
    """Return a hidden variable: the value of a label in the first result of `expr`."""
    return (
        builders.QueryVariable(name)
        .label(name)
        .datasource(SOURCE)
        .query({"query": f"query_result({expr})", "refId": f"variable-{name}"})
        .regex(f'/{label}="([^"]*)"/')
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
    )


def compared_with(name: str, nothing: str, runs: str) -> Any:
    """Return the variable Compare with: at first `nothing`, then the runs of a query, the newest first."""
    first = f'label_replace(vector(1), "run", "{nothing}", "", "")'
    made = derived(name, f"{first} or group by (run) ({runs})", "run").label("Compare with")
    made.hide(dashboard.VariableHide.DONT_HIDE).sort(dashboard.VariableSort.ALPHABETICAL_DESC)
    return made.current(dashboard.VariableOption(text=nothing, value=nothing))


def _at() -> Any:
    # Grafana replaces variables in a legend before labels, so the value may be a template itself.
    hosts = f"count(count by (instance) (pinchpoint_build_info{{{HOST}}}))"
    several = f'label_replace({hosts} > 1, "at", " {{{{instance}}}}", "", "")'
    one = f'label_replace({hosts} == 1, "at", " ", "", "")'
    return derived("at", f"{several} or {one}", "at")


def _several() -> Any:
    """Return the variable with the pattern for hosts, without their ports, in tables; with one host it matches none."""
    hosts = 'count(group by (instance) (pinchpoint_build_info or up{job="pinchpoint"}))'
    several = f'label_replace({hosts} > 1, "several", "(.+?)(?::[0-9]+)?", "", "")'
    one = f'label_replace({hosts} == 1, "several", "-", "", "")'
    return derived("several", f"{several} or {one}", "several")


NEWEST = f"topk(1, max by (run) (last_over_time(pinchpoint_run_start_timestamp_seconds{{{RUN}}}[$__range])))"
"""Start of the newest of the chosen runs, in Unix seconds."""


def _began() -> Any:
    return derived("began", f'count_values("began", floor(1000 * {NEWEST}))', "began")


def _ended() -> Any:
    starts, elapsed = (
        f"last_over_time(pinchpoint_phase_{name}{{{RUN}}}[$__range])"
        for name in ("start_timestamp_seconds", "elapsed_seconds")
    )
    ended = f"max(({starts} + {elapsed}) and on (run) {NEWEST})"
    goes_on = f"group(pinchpoint_phase_active{{{RUN}}} == 1 and on (run) {NEWEST})"
    now = f'label_replace({goes_on}, "ended", "now", "", "")'
    return derived("ended", f'{now} or on () count_values("ended", ceil(1000 * {ended}))', "ended")


def _run() -> Any:
    # A run's id begins with its start time, so this order puts the newest first.
    query = "label_values(pinchpoint_phase_active, run)"
    return _choice("run", "Run", query, sort=dashboard.VariableSort.ALPHABETICAL_DESC)


def _host() -> Any:
    query = "label_values(pinchpoint_build_info, instance)"
    return _choice("host", "Host", query, sort=dashboard.VariableSort.NATURAL_ASC)


def _cluster() -> Any:
    # An empty label is a cluster too, hence `.*`; other variables use `.+`.
    query = "label_values(pinchpoint_ceph_daemon_info, cluster)"
    return _choice("cluster", "Cluster", query, all_value=".*", sort=dashboard.VariableSort.ALPHABETICAL_ASC)


def _benchmark() -> Any:
    query = "label_values(pinchpoint_run_start_timestamp_seconds, benchmark)"
    return _choice("benchmark", "Benchmark", query, sort=dashboard.VariableSort.ALPHABETICAL_ASC)


VARIABLES = {
    "run": _run,
    "host": _host,
    "cluster": _cluster,
    "at": _at,
    "several": _several,
    "began": _began,
    "ended": _ended,
    "benchmark": _benchmark,
}


REGION_STEP_SECONDS = 10
"""Seconds between two points of an annotation query."""
EVENTS: Mapping[str, Mapping[str, object]] = {
    "Phases": {
        "titleFormat": "{{phase}}",
        "textFormat": "{{benchmark}} {{run}}",
        "tagKeys": "benchmark",
        "step": f"{REGION_STEP_SECONDS}s",
        "useValueForTime": True,
    },
    "Alerts": {
        "titleFormat": "{{alertname}}",
        "textFormat": "{{owner}} {{daemon}}",
        "tagKeys": "severity",
        "step": "10s",
    },
}
"""Fields of annotation queries that the builder does not know (grafana-prometheus, annotations.ts)."""


def _event(name: str, expr: str, colour: str) -> builders.AnnotationQuery:
    return builders.AnnotationQuery().name(name).datasource(SOURCE).expr(expr).icon_color(colour)


def _phases() -> builders.AnnotationQuery:
    """Return the phases as regions with their exact starts and ends.

    Grafana joins the values of a series to a region, from the first to the last, where each is at most a step after
    the one before (grafana-prometheus, datasource.ts: processAnnotationResponse). As values these are the times of the
    step before, moved into the phase: the first of them is its start, and the last its end.
    """
    by = "by (benchmark, run, phase)"
    start = f"max {by} (pinchpoint_phase_start_timestamp_seconds{{{RUN}}})"
    end = f"({start} + max {by} (pinchpoint_phase_elapsed_seconds{{{RUN}}}))"
    before = f"(time() - {REGION_STEP_SECONDS})"
    expr = f"1000 * (({end} < {before}) or ({start} > {before}) or ({start} * 0 + {before}))"
    return _event("Phases", expr, WAIT_COLOURS["network"]).enable(False)


def _alerts() -> builders.AnnotationQuery:
    expr = 'ALERTS{alertstate="firing", severity!="info"}'
    return _event("Alerts", expr, FULL_COLOUR).enable(False)


def encoded(made: builders.Dashboard) -> str:
    """Return a dashboard as JSON for Grafana, with numbered panels and sorted keys."""
    found = json.loads(JSONEncoder().encode(made.build()))
    for number, panel in enumerate(panels_of(found), 1):
        panel["id"] = number
        # The builder requires at least 1, but then Grafana shows a page control even if all rows fit.
        panel.get("options", {}).pop("perPage", None)
    for annotation in found["annotations"]["list"]:
        annotation.update(EVENTS.get(annotation["name"], {}))
    return json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def panels_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all panels of a dashboard or row; the panels inside a row come after it."""
    every: list[dict[str, Any]] = []
    for panel in found.get("panels") or []:
        every += [panel, *panels_of(panel)]
    return every


# ---- Panels

P = TypeVar(
    "P",
    timeseries.Panel,
    table.Panel,
    stat.Panel,
    bargauge.Panel,
    statetimeline.Panel,
    nodegraph.Panel,
    text_builders.Panel,
)


def _panel(panel: P, title: str, about: About, size: tuple[int, int]) -> P:
    width, height = size
    return panel.title(title).description(describe(about)).datasource(SOURCE).span(width).height(height)


def _target(query: Query, ref: str, *, instant: bool, as_table: bool) -> Builder[Any]:
    made = prometheus.Dataquery().expr(query.expr).ref_id(ref).legend_format(query.legend or "__auto")
    made.datasource(SOURCE)
    if query.scrape != SCRAPE_SECONDS:
        made.interval(f"{query.scrape}s")
    if as_table:
        made.format(PromQueryFormat.TABLE)
    return made.instant() if instant else made.range()


def _refs(queries: Iterable[Query], *, instant: bool = False, as_table: bool = False) -> list[Builder[Any]]:
    return [_target(query, chr(ord("A") + i), instant=instant, as_table=as_table) for i, query in enumerate(queries)]


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def _fixed(colour: str) -> dashboard.DynamicConfigValue:
    return _property("color", {"mode": "fixed", "fixedColor": colour})


def lines(
    title: str,
    about: About,
    *queries: Query,
    unit: str,
    size: tuple[int, int] = (12, 9),
    colours: Mapping[str, str] | None = None,
    stack: bool = False,
    least: float | None = 0,
    most: float | None = None,
    decimals: int | None = None,
    limit: str = FULL,
    phases: bool = False,
    nothing: str = "",
) -> timeseries.Panel:
    """Return lines over time.

    The keys of `colours` are names of series, or regular expressions in slashes; other series get a colour each.
    `stack` draws areas on top of each other. Series whose name begins with `limit` are dashed: a limit, not a load.
    `phases` shades the background in the colours of the phases. The panel shows the text `nothing` if there is no
    series. Shares are without `decimals`: with 0, Grafana has ticks at integers only.
    """
    asked = [*queries, PHASE_BANDS] if phases else queries
    panel = _panel(timeseries.Panel(), title, about, size).targets(_refs(asked)).unit(unit)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC))
    panel.line_width(1 if stack else 2).fill_opacity(75 if stack else 0).show_points(common.VisibilityMode.NEVER)
    panel.span_nulls(False)
    panel.tooltip(
        common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    panel.legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
        .sort_by("Max")
        .sort_desc(True)
        .show_legend(True)
    )
    panel.transformations([_without_ports()])
    if stack:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if least is not None:
        panel.min(least)
    if most is not None:
        panel.max(most)
    if decimals is not None:
        panel.decimals(decimals)
    if nothing:
        panel.no_value(nothing)
    _colour(panel, colours or {})
    if any(query.legend.startswith(limit) for query in queries):
        dashed = [
            _fixed(FULL_COLOUR),
            _property("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
            _property("custom.lineWidth", 1),
            _property("custom.stacking", {"mode": "none"}),
            _property("custom.fillOpacity", 0),
        ]
        panel.override_by_regexp(f"/^{limit}/", dashed)
    if phases:
        _shade_phases(panel)
    return panel


BAND = "phase"
"""Begins the names of the series that shade a panel's background."""
PHASE_BANDS = Query(f"max by (phase) (pinchpoint_phase_active{{{RUN}}} == 1)", f"{BAND} {{{{phase}}}}")


def _shade_phases(panel: timeseries.Panel) -> None:
    """Draw the series of `PHASE_BANDS` as bands over the whole height, without a line, an axis or a legend."""
    look = [
        _property("unit", "bool_yes_no"),
        _property("min", 0),
        _property("max", 1),
        _property("custom.axisPlacement", "hidden"),
        _property("custom.lineWidth", 0),
        _property("custom.fillOpacity", 15),
        _property("custom.stacking", {"mode": "none"}),
        _property("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    panel.override_by_regexp(f"/^{BAND} /", look)
    # Of several that match, the last counts.
    for pattern, colour in reversed(PHASES.items()):
        panel.override_by_regexp(f"/^{BAND}.*({pattern})/", [_fixed(colour)])


def on_the_right(panel: timeseries.Panel, names: str, unit: str) -> timeseries.Panel:
    """Return a panel whose series with `names`, a regular expression, have an axis of their own on the right."""
    axis = [_property("unit", unit), _property("custom.axisPlacement", "right")]
    return panel.override_by_regexp(f"/{names}/", axis)


def _without_ports() -> dashboard.DataTransformerConfig:
    """Return what shortens ``host:port`` at the end of a legend to the host."""
    return dashboard.DataTransformerConfig(
        id_val="renameByRegex", options={"regex": "^(.*[^ ].*?)(:[0-9]+)$", "renamePattern": "$1"}
    )


Coloured = TypeVar("Coloured", timeseries.Panel, bargauge.Panel, stat.Panel, statetimeline.Panel)


def _colour(panel: Coloured, colours: Mapping[str, str]) -> None:
    for name, colour in colours.items():
        if name.startswith("/"):
            panel.override_by_regexp(name, [_fixed(colour)])
        else:
            panel.override_by_regexp(rf"/^{re.escape(name)}( \(Ceph\))?$/", [_fixed(colour)])


@dataclass(frozen=True)
class Column:
    """A column of a table with the heading `label`.

    `unit` is one of Grafana's units. `bar` draws a share as a bar of this colour. `words` maps values to the text shown
    in their place. In the URL `link`, ``${__data.fields.NAME}`` is another column of the row. `width` is in pixels.
    `wrap` breaks long text into lines. `signed` colours gains and losses. `several` marks the label of a host that is
    not shown where there is only one.
    """

    label: str
    unit: str = ""
    bar: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    link_title: str = "Read on"
    width: int = 0
    hidden: bool = False
    decimals: int | None = None
    wrap: bool = False
    signed: bool = False
    several: bool = False


AT = "at"
"""The label with the host that a table shows."""
LAST = " (lastNotNull)"
"""What Grafana appends to the name of a field whose last value it takes (groupBy.ts)."""
IDENTITY = ("benchmark", "cluster", "instance", "run")
"""Labels that tell rows apart even in tables without such a column."""


def rows(
    title: str,
    about: About,
    values: Mapping[str, Query],
    columns: Mapping[str, Column],
    *,
    size: tuple[int, int] = (12, 8),
    sort: str = "",
    ascending: bool = False,
    nothing: str = "nothing",
) -> table.Panel:
    """Return a table of instant queries, one row for each set of labels.

    `values` maps names of columns to queries. All queries have to return the same labels, which are columns too.
    The table shows only `columns`, in this order.
    """
    for host in [name for name, column in columns.items() if column.several]:
        values = {
            name: replace(query, expr=f'label_replace({query.expr}, "{AT}", "$1", "{host}", "$several")')
            for name, query in values.items()
        }
        columns = {AT if name == host else name: column for name, column in columns.items()}
    refs = {name: chr(ord("A") + index) for index, name in enumerate(values)}
    panel = _panel(table.Panel(), title, about, size).targets(_refs(values.values(), instant=True, as_table=True))
    panel.no_value(nothing).mappings([_no_value_in_cells()])
    fields = {name: f"Value #{ref}{LAST}" if len(refs) > 1 else "Value" for name, ref in refs.items()}
    order = {fields.get(name, name): place for place, name in enumerate(columns)}
    steps: list[tuple[str, dict[str, object]]] = []
    if len(refs) > 1:
        steps.append(("merge", {}))
        # Of a table without rows this leaves no field, and only then does Grafana show the text `nothing`.
        keys = [*columns.keys() - refs.keys(), *IDENTITY]
        grouped: dict[str, object] = {key: {"operation": "groupby", "aggregations": []} for key in sorted(keys)}
        last = {"operation": "aggregate", "aggregations": ["lastNotNull"]}
        grouped |= {f"Value #{ref}": last for ref in refs.values()}
        steps.append(("groupBy", {"fields": grouped}))
    steps.append(("filterFieldsByName", {"include": {"names": list(order)}}))
    names = {fields.get(name, name): column.label for name, column in columns.items()}
    steps.append(("organize", {"indexByName": order, "renameByName": names, "excludeByName": {}}))
    if sort:
        by = {"field": columns[sort].label, "desc": not ascending}
        steps.append(("sortBy", {"sort": [by], "fields": {}}))
    panel.transformations([dashboard.DataTransformerConfig(id_val=step, options=options) for step, options in steps])
    for name, column in columns.items():
        panel.override_by_name(column.label, _column(column, name))
    panel.cell_height(common.TableCellHeight.SM)
    return panel


def matrix(
    title: str,
    about: About,
    query: Query,
    *,
    row: str,
    column: str,
    cell: str = "",
    order: Query | None = None,
    column_order: str = "",
    first: Column,
    others: Mapping[str, Column] | None = None,
    unit: str = "",
    decimals: int | None = None,
    size: tuple[int, int] = (12, 8),
    nothing: str = "nothing",
) -> table.Panel:
    """Return a table with a row for each value of the label `row` and a column for each of the label `column`.

    Cells hold the values of `query`, or those of its label `cell`. Rows are sorted by the values of `order`, a query
    with some of the same labels, otherwise by name; columns by the label `column_order`, otherwise by name. `first` is
    the column with the names of the rows; `others` maps values of `column` to columns that look different.
    """
    queries = [query] if order is None else [query, order]
    panel = _panel(table.Panel(), title, about, size).targets(_refs(queries, instant=True, as_table=True))
    panel.no_value(nothing)
    value, rank = ("Value", row) if order is None else ("Value #A", "Value #B")
    steps: list[tuple[str, dict[str, object]]] = [("merge", {})] if order else []
    # Rows and columns appear in the order in which Grafana first meets their names; its sorting is stable.
    for name in (rank, column_order or column):
        steps.append(("sortBy", {"sort": [{"field": name}], "fields": {}}))
    made: dict[str, object] = {
        "rowField": row,
        "columnField": column,
        "valueField": cell or value,
        "emptyValue": "null",
    }
    steps.append(("groupingToMatrix", made))
    # Without any series there is no matrix, and Grafana shows `nothing` only if there are no fields either.
    steps.append(("filterFieldsByName", {"exclude": {"pattern": "^(Time|Value( #[AB])?)$"}}))
    steps.append(("organize", {"renameByName": {f"{row}\\{column}": first.label}, "excludeByName": {}}))
    panel.transformations([dashboard.DataTransformerConfig(id_val=step, options=options) for step, options in steps])
    if unit:
        panel.unit(unit)
    if decimals is not None:
        panel.decimals(decimals)
    panel.mappings([_no_value_in_cells()])
    any_column = [_property("custom.wrapHeaderText", True), _property("custom.minWidth", MIN_COLUMN)]
    panel.override_by_regexp("/.*/", any_column)
    panel.override_by_name(first.label, _column(first, row))
    for name, other in (others or {}).items():
        panel.override_by_name(name, _column(other))
    panel.cell_height(common.TableCellHeight.SM)
    return panel


def node_graph(
    title: str,
    about: About,
    nodes: Mapping[str, str],
    edges: Mapping[str, str],
    *,
    arcs: Mapping[str, tuple[str, str]],
    stat: str,
    size: tuple[int, int],
) -> nodegraph.Panel:
    """Return a graph of the present.

    `nodes` and `edges` map Grafana's names of fields (grafana-data, nodeGraph.ts) to expressions, which have the
    labels ``id``, ``title`` and ``subtitle``, or ``id``, ``source`` and ``target``. The first of each has the text that
    is shown as the label ``mainstat`` too: Grafana writes numbers with two decimals. `arcs` has the words and the
    colour of each field that is a part of a node's circle, and `stat` says what the text is.
    """
    queries = [Query(_union("field", fields)) for fields in (nodes, edges)]
    panel = _panel(nodegraph.Panel(), title, about, size).targets(_refs(queries, instant=True)).unit("percentunit")
    # This gives fields their names; `organize` changes only those that are displayed.
    named = {"mode": "columns", "valueLabel": "field"}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="labelsToFields", options=named))
    for ref in "AB":
        those = dashboard.MatcherConfig(id_val="byRefId", options=ref)
        panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", filter_val=those, options={}))
    shown = {"mainstat": stat, **{name: words_ for name, (words_, _) in arcs.items()}}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options={"renameByName": shown}))
    parts: list[Builder[Any]] = [nodegraph.ArcOption().field(name).color(colour) for name, (_, colour) in arcs.items()]
    return panel.nodes(nodegraph.NodeOptions().arcs(parts))


def _union(label: str, parts: Mapping[str, str]) -> str:
    """Return a query for all series of the expressions, whose keys are the values of `label`."""
    return " or ".join(f'label_replace({expr}, "{label}", "{value}", "", "")' for value, expr in parts.items())


def _no_value_in_cells() -> dashboard.SpecialValueMap:
    """Return the mapping for empty cells: without it, each would show the text for an empty table."""
    return dashboard.SpecialValueMap(
        options=dashboard.DashboardSpecialValueMapOptions(
            match=dashboard.SpecialValueMatch.NULL,
            result=dashboard.ValueMappingResult(text="-", color=TEXT_COLOUR, index=0),
        )
    )


MIN_COLUMN = 90
"""Pixels of the narrowest column without a width of its own."""
SHORTER = {
    "instance": ("^(.*):[0-9]+$", "$1"),
    "host": ("^(.*):[0-9]+$", "$1"),
    "run": ("^[0-9]{8}T([0-9]{2})([0-9]{2})[0-9]{2}Z-(.*)$", "$3 $1:$2"),
}
"""How labels are shortened in tables: hosts lose their ports, and runs begin with their names."""


def _column(column: Column, label: str = "") -> list[dashboard.DynamicConfigValue]:
    # Otherwise every empty cell would show the text for an empty table.
    properties = [_property("noValue", "-")]
    if column.unit:
        properties.append(_property("unit", column.unit))
    if column.decimals is not None:
        properties.append(_property("decimals", column.decimals))
    if column.bar:
        properties += [
            _property("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}),
            _property("min", 0),
            _property("max", 1),
            _fixed(column.bar),
        ]
    if column.signed:
        steps = [{"value": None, "color": STATUS["bad"]}, {"value": 0, "color": STATUS["good"]}]
        properties += [
            _property("custom.cellOptions", {"type": "color-text"}),
            _property("thresholds", {"mode": "absolute", "steps": steps}),
            _property("color", {"mode": "thresholds"}),
        ]
    if column.wrap:
        properties.append(_property("custom.cellOptions", {"type": "auto", "wrapText": True}))
    if column.words:
        properties.append(_property("mappings", [_mapping(column.words)]))
    elif label in SHORTER:
        pattern, text = SHORTER[label]
        shorter = {"type": "regex", "options": {"pattern": pattern, "result": {"text": text, "index": 0}}}
        properties.append(_property("mappings", [shorter]))
    if column.link:
        link = {"title": column.link_title, "url": column.link, "targetBlank": column.link.startswith("http")}
        properties.append(_property("links", [link]))
    if column.width:
        properties.append(_property("custom.width", column.width))
    else:
        # Grafana's own is 150.
        properties.append(_property("custom.minWidth", MIN_COLUMN))
    if column.hidden:
        properties.append(_property("custom.hidden", True))
    return properties


def _mapping(words: Mapping[str, str]) -> dict[str, object]:
    options = {value: {"text": word, "index": index} for index, (value, word) in enumerate(words.items())}
    return {"type": "value", "options": options}


def numbers(
    title: str,
    about: About,
    *queries: Query,
    unit: str = "none",
    size: tuple[int, int] = (4, 4),
    colours: Mapping[str, str] | None = None,
    name: bool = False,
    value: bool = True,
    sparkline: bool = False,
    good: Mapping[str, str] | None = None,
    full: str = "",
    nothing: str = "-",
    decimals: int | None = None,
) -> stat.Panel:
    """Return the last values as large figures; `name` shows the names of series too, without `value` only them.

    `good` maps values that are fine to the text shown in their place; all others need attention. `full` names the
    resource from whose threshold on the figure does.
    """
    modes = {
        (True, True): common.BigValueTextMode.VALUE_AND_NAME,
        (True, False): common.BigValueTextMode.NAME,
        (False, True): common.BigValueTextMode.VALUE,
    }
    panel = _panel(stat.Panel(), title, about, size).targets(_refs(queries, instant=not sparkline)).unit(unit)
    panel.text_mode(modes[name, value]).no_value(nothing)
    panel.color_mode(common.BigValueColorMode.VALUE)
    panel.graph_mode(common.BigValueGraphMode.AREA if sparkline else common.BigValueGraphMode.NONE)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(TEXT_COLOUR))
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])).transformations([_without_ports()])
    if decimals is not None:
        panel.decimals(decimals)
    if good:
        panel.mappings([_value_map(good, dict.fromkeys(good, STATUS["good"])), _all_others(STATUS["bad"])])
    if full:
        steps = [dashboard.Threshold(value=None, color=TEXT_COLOUR)]
        steps.append(dashboard.Threshold(value=ROLES.thresholds[full], color=FULL_COLOUR))
        absolute = builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
        panel.thresholds(absolute).color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    _colour(panel, colours or {})
    return panel


def _value_map(words: Mapping[str, str], colours: Mapping[str, str]) -> dashboard.ValueMap:
    return dashboard.ValueMap(
        options={
            value: dashboard.ValueMappingResult(text=word, color=colours.get(value), index=i)
            for i, (value, word) in enumerate(words.items())
        }
    )


def _all_others(colour: str) -> dashboard.RangeMap:
    """Return the mapping that colours all values; mappings before it take precedence."""
    result = dashboard.ValueMappingResult(color=colour, index=1)
    return dashboard.RangeMap(options=dashboard.DashboardRangeMapOptions(from_val=None, to=None, result=result))


def words(title: str, about: About, content: str, *, size: tuple[int, int]) -> text_builders.Panel:
    """Return a panel with text in Markdown, which may use variables of the dashboard."""
    return _panel(text_builders.Panel(), title, about, size).mode(TextMode.MARKDOWN).content(content)


def folded(title: str, *panels: Panel) -> builders.Row:
    """Return a row of panels that Grafana asks for only when somebody opens it."""
    row = builders.Row(title)
    for panel in panels:
        row.with_panel(panel)
    return row


def bars(
    title: str,
    about: About,
    *queries: Query,
    unit: str,
    size: tuple[int, int] = (8, 8),
    colours: Mapping[str, str] | None = None,
    shade: str = SERIES[0],
    most: float | None = None,
) -> bargauge.Panel:
    """Return the last values as horizontal bars, in the order of the queries' results."""
    panel = _panel(bargauge.Panel(), title, about, size).targets(_refs(queries, instant=True)).unit(unit).min(0)
    panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(shade))
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    if most is not None:
        panel.max(most)
    _colour(panel, colours or {})
    return panel


def states(
    title: str,
    about: About,
    *queries: Query,
    size: tuple[int, int] = (24, 4),
    colours: Mapping[str, str] | None = None,
    text_of: str = "",
    words: Mapping[str, str] | None = None,
    value_colours: Mapping[str, str] | None = None,
    show_value: bool = True,
) -> statetimeline.Panel:
    """Return states over time.

    Without `text_of`, each series is a row, drawn while it has a value; its values may have `value_colours`. With it,
    there is a single row whose states are the values of that label; the keys of `colours` and `words` are then regular
    expressions for states, in slashes.
    """
    panel = _panel(statetimeline.Panel(), title, about, size)
    panel.targets(_refs(queries, as_table=bool(text_of))).row_height(0.85).line_width(0).fill_opacity(85)
    panel.show_value(common.VisibilityMode.AUTO if show_value else common.VisibilityMode.NEVER)
    panel.merge_values(True)
    panel.legend(common_builders.VizLegendOptions().show_legend(False).display_mode(common.LegendDisplayMode.LIST))
    if text_of:
        steps = [
            ("filterFieldsByName", {"include": {"names": ["Time", text_of]}}),
            ("sortBy", {"sort": [{"field": "Time"}], "fields": {}}),
        ]
        panel.transformations(
            [dashboard.DataTransformerConfig(id_val=step, options=options) for step, options in steps]
        )
        panel.mappings(
            [
                dashboard.RegexMap(
                    options=dashboard.DashboardRegexMapOptions(
                        pattern=pattern,
                        result=dashboard.ValueMappingResult(text=(words or {}).get(pattern), color=colour, index=index),
                    )
                )
                for index, (pattern, colour) in enumerate((colours or {}).items())
            ]
        )
        panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(WAITS["other"]))
    else:
        if words:
            panel.mappings([_value_map(words, value_colours or {})])
        panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(SERIES[0]))
        _colour(panel, colours or {})
    return panel
