"""What the dashboards are made of: variables, annotations, links, and panels that look alike.

A panel answers a question. `About` says what good and bad look like and where to read on, and every panel has one.
Facts about Grafana are of 12.3, its schema's version 42.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import bargauge, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from pinchpoint.report.palette import SERIES, WAITS
from pinchpoint.rules import PAGES
from pinchpoint.threads.roles import load_roles

__all__ = [
    "CLUSTER",
    "DAEMON_CLUSTER",
    "FULL",
    "HOST",
    "JUDGED",
    "JUDGED_HOST",
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
    "encoded",
    "limit_of_alert",
    "lines",
    "matrix",
    "nothing_named",
    "numbers",
    "page",
    "panels_of",
    "rows",
    "states",
]

TAG = "pinchpoint"
Panel = Builder[dashboard.Panel]
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

RUN = 'run=~"$run"'
JUDGED = 'run=~"($run)|"'
"""Matches verdicts on processes, too, whose run no host knows: their label ``run`` is empty."""
HOST = 'instance=~"$host"'
JUDGED_HOST = 'host=~"$host"'
"""Matches the host that a series of the judge is about: `instance` is the judge itself."""
CLUSTER = 'cluster=~"($cluster)|"'
"""Matches Ceph's own series, which have a label ``cluster`` only where the scrape configuration gives them one."""
DAEMON_CLUSTER = 'on (instance, daemon) group_left () pinchpoint_ceph_daemon_info{cluster=~"$cluster"}'
"""After ``*``: keeps the daemons of the chosen cluster."""

FULL = "full from"
"""Name of the series that is the threshold of a resource; drawn as a dashed line."""
FULL_COLOUR = "#C2410C"

ROLES = load_roles()
WAIT_COLOURS = WAITS
TEXT_COLOUR = "text"
SCRAPE_SECONDS = 2
"""How often the exporter is scraped (compose/prometheus.yml); node_exporter and Ceph every 5 s."""


@dataclass(frozen=True)
class About:
    """What a panel shows, how good and bad look, and the pages that say more.

    `pages` are names of runbooks, or paths of pages from the root of this repository.
    """

    shows: str
    good: str
    bad: str
    pages: Sequence[str]


@dataclass(frozen=True)
class Query:
    """A PromQL expression; `legend` is Grafana's template, `scrape` the seconds between samples of what is read."""

    expr: str
    legend: str = ""
    scrape: int = SCRAPE_SECONDS


def page(name: str) -> str:
    """Return the address of a page: of a runbook by its name, of any other by its path."""
    return PAGES + (name if "/" in name else f"runbooks/{name}.md")


def describe(about: About) -> str:
    """Return the description of a panel, in Markdown."""
    links = ", ".join(f"[{name.rpartition('/')[2].removesuffix('.md')}]({page(name)})" for name in about.pages)
    return f"{about.shows}\n\n**Good:** {about.good}\n\n**Bad:** {about.bad}\n\n**Read on:** {links}"


def board_link(name: str, host: str = "${host:queryparam}") -> str:
    """Return a link to another dashboard that keeps data source, run and time, and the hosts unless `host` is given."""
    return f"/d/pinchpoint-{name}?${{datasource:queryparam}}&{host}&${{run:queryparam}}&${{__url_time_range}}"


def nothing_named(limits: str) -> str:
    """Return a query for limits whose label ``limit`` is the kind of the verdict where it names no resource."""
    both = f'label_join({limits}, "named", ":", "kind", "resource")'
    return f'label_replace(label_replace({both}, "limit", "$1", "named", "([^:]*):"), "named", "", "", "")'


def limit_of_alert(alert: str) -> str:
    """Return the threshold of an alert, without labels."""
    return f'max(pinchpoint_alert_threshold{{alert="{alert}"}})'


def class_colour(resource: str) -> str:
    """Return the colour of a resource: that of the wait class that it serves, everywhere the same."""
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
    """Return an empty dashboard that answers `question`; `variables` are those of `VARIABLES` that it uses.

    Every dashboard has the variable ``datasource`` and the phases of ``run`` as regions.
    """
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(question)
        .tags([TAG])
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time("now-30m", "now")
        .refresh("5s")
        .readonly()
        .link(
            builders.DashboardLink("Pinchpoint")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
            .current(dashboard.VariableOption(text="default", value="default"))
        )
    )
    for name in dict.fromkeys([*variables, "run"]):
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


def _run() -> Any:
    # An id begins with the time of its run: the newest first.
    query = "label_values(pinchpoint_phase_active, run)"
    return _choice("run", "Run", query, sort=dashboard.VariableSort.ALPHABETICAL_DESC)


def _host() -> Any:
    query = "label_values(pinchpoint_build_info, instance)"
    return _choice("host", "Host", query, sort=dashboard.VariableSort.NATURAL_ASC)


def _cluster() -> Any:
    # An empty label is a cluster too: `.*`, where other variables have `.+`.
    query = "label_values(pinchpoint_ceph_daemon_info, cluster)"
    return _choice("cluster", "Cluster", query, all_value=".*", sort=dashboard.VariableSort.ALPHABETICAL_ASC)


VARIABLES = {"run": _run, "host": _host, "cluster": _cluster}


EVENTS: Mapping[str, Mapping[str, object]] = {
    "Phases": {
        "titleFormat": "{{phase}}",
        "textFormat": "{{benchmark}} {{run}}",
        "tagKeys": "benchmark",
        "step": "10s",
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
    expr = f"max by (benchmark, run, phase) (pinchpoint_phase_active{{{RUN}}}) == 1"
    return _event("Phases", expr, WAIT_COLOURS["network"]).enable(True)


def _alerts() -> builders.AnnotationQuery:
    expr = 'ALERTS{alertstate="firing", severity!="info"}'
    return _event("Alerts", expr, FULL_COLOUR).enable(False)


def encoded(made: builders.Dashboard) -> str:
    """Return a dashboard as Grafana imports it: panels numbered, keys in order."""
    found = json.loads(JSONEncoder().encode(made.build()))
    for number, panel in enumerate(panels_of(found), 1):
        panel["id"] = number
        # The builder wants 1 or more, and then there is a page control below rows that all fit.
        panel.get("options", {}).pop("perPage", None)
    for annotation in found["annotations"]["list"]:
        annotation.update(EVENTS.get(annotation["name"], {}))
    return json.dumps(found, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def panels_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all panels of a dashboard or a row, those inside of rows after their row."""
    every: list[dict[str, Any]] = []
    for panel in found.get("panels") or []:
        every += [panel, *panels_of(panel)]
    return every


# ---- Panels

P = TypeVar("P", timeseries.Panel, table.Panel, stat.Panel, bargauge.Panel, statetimeline.Panel)


def _panel(panel: P, title: str, about: About, size: tuple[int, int]) -> P:
    width, height = size
    panel.title(title).description(describe(about)).datasource(SOURCE).span(width).height(height)
    panel.links(
        [
            builders.DashboardLink(name.rpartition("/")[2].removesuffix(".md"))
            .type(dashboard.DashboardLinkType.LINK)
            .url(page(name))
            .target_blank(True)
            for name in about.pages
        ]
    )
    return panel


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
    size: tuple[int, int] = (12, 8),
    colours: Mapping[str, str] | None = None,
    shade: str = SERIES[0],
    stack: bool = False,
    least: float | None = 0,
    most: float | None = None,
    mirrored: str = "",
    decimals: int | None = None,
    limit: str = FULL,
    nothing: str = "",
) -> timeseries.Panel:
    """Return lines over time.

    `colours` are by series name or, in slashes, by a regular expression for it; what has none gets a shade of `shade`.
    `stack` draws areas on top of each other. Series whose name begins with `limit` are dashed: a limit, not a load.
    Those whose name matches `mirrored` are drawn downwards. `nothing` is said where there is no series.
    """
    panel = _panel(timeseries.Panel(), title, about, size).targets(_refs(queries)).unit(unit)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.SHADES).fixed_color(shade))
    panel.line_width(1 if stack else 2).fill_opacity(75 if stack else 0).show_points(common.VisibilityMode.NEVER)
    panel.span_nulls(False)
    panel.tooltip(
        common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    panel.legend(
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
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
    if mirrored:
        panel.override_by_regexp(f"/{mirrored}/", [_property("custom.transform", "negative-Y")])
    if any(query.legend.startswith(limit) for query in queries):
        dashed = [
            _fixed(FULL_COLOUR),
            _property("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
            _property("custom.lineWidth", 1),
            _property("custom.stacking", {"mode": "none"}),
            _property("custom.fillOpacity", 0),
        ]
        panel.override_by_regexp(f"/^{limit}/", dashed)
    return panel


Coloured = TypeVar("Coloured", timeseries.Panel, bargauge.Panel, stat.Panel, statetimeline.Panel)


def _colour(panel: Coloured, colours: Mapping[str, str]) -> None:
    for name, colour in colours.items():
        if name.startswith("/"):
            panel.override_by_regexp(name, [_fixed(colour)])
        else:
            panel.override_by_name(name, [_fixed(colour)])


@dataclass(frozen=True)
class Column:
    """A column of a table: `label` is what it is called above it.

    `unit` is Grafana's. `bar` draws a share as a bar of this colour; `words` replace values; `link` is an address,
    in which ``${__data.fields.NAME}`` is another column of the row; `width` is in pixels; `wrap` lets long text have
    more than one line.
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

    `values` are queries by the name of their column: all of them have to give the same labels, which are columns too.
    What stands in `columns` is shown, in this order; everything else is left out.
    """
    refs = {name: chr(ord("A") + index) for index, name in enumerate(values)}
    panel = _panel(table.Panel(), title, about, size).targets(_refs(values.values(), instant=True, as_table=True))
    panel.no_value(nothing).mappings([_no_value_in_cells()])
    sources = {f"Value #{ref}" if len(refs) > 1 else "Value": name for name, ref in refs.items()}
    fields = {name: source for source, name in sources.items()}
    order = {fields.get(name, name): place for place, name in enumerate(columns)}
    steps: list[tuple[str, dict[str, object]]] = []
    if len(refs) > 1:
        steps.append(("merge", {}))
    steps.append(("filterFieldsByName", {"include": {"names": list(order)}}))
    names = {fields.get(name, name): column.label for name, column in columns.items()}
    steps.append(("organize", {"indexByName": order, "renameByName": names, "excludeByName": {}}))
    if sort:
        by = {"field": columns[sort].label, "desc": not ascending}
        steps.append(("sortBy", {"sort": [by], "fields": {}}))
    panel.transformations([dashboard.DataTransformerConfig(id_val=step, options=options) for step, options in steps])
    for column in columns.values():
        panel.override_by_name(column.label, _column(column))
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

    Cells hold the values of `query`, or those of its label `cell`. Rows are in the order of the values of `order`, a
    query with some of the same labels, or else of their names; columns in that of the label `column_order`. `first` is
    the column of the rows' names; `others` are columns that look different from the rest, by their value of `column`.
    """
    queries = [query] if order is None else [query, order]
    panel = _panel(table.Panel(), title, about, size).targets(_refs(queries, instant=True, as_table=True))
    panel.no_value(nothing)
    value, rank = ("Value", row) if order is None else ("Value #A", "Value #B")
    steps: list[tuple[str, dict[str, object]]] = [("merge", {})] if order else []
    # Rows and columns come in the order in which their names are first met; sorting is stable.
    for name in (rank, column_order or column):
        steps.append(("sortBy", {"sort": [{"field": name}], "fields": {}}))
    made: dict[str, object] = {
        "rowField": row,
        "columnField": column,
        "valueField": cell or value,
        "emptyValue": "null",
    }
    steps.append(("groupingToMatrix", made))
    # Without any series there is no matrix, and `nothing` is only said where there are no fields either.
    steps.append(("filterFieldsByName", {"exclude": {"pattern": "^(Time|Value( #[AB])?)$"}}))
    steps.append(("organize", {"renameByName": {f"{row}\\{column}": first.label}, "excludeByName": {}}))
    panel.transformations([dashboard.DataTransformerConfig(id_val=step, options=options) for step, options in steps])
    if unit:
        panel.unit(unit)
    if decimals is not None:
        panel.decimals(decimals)
    panel.mappings([_no_value_in_cells()])
    panel.override_by_regexp("/.*/", [_property("custom.wrapHeaderText", True)])
    for name, other in [(first.label, first), *(others or {}).items()]:
        panel.override_by_name(name, _column(other))
    panel.cell_height(common.TableCellHeight.SM)
    return panel


def _no_value_in_cells() -> dashboard.SpecialValueMap:
    """Return what an empty cell shows: else it would say why the table is empty."""
    return dashboard.SpecialValueMap(
        options=dashboard.DashboardSpecialValueMapOptions(
            match=dashboard.SpecialValueMatch.NULL, result=dashboard.ValueMappingResult(text="-", index=0)
        )
    )


def _column(column: Column) -> list[dashboard.DynamicConfigValue]:
    # What is said of an empty table would otherwise stand in every empty cell, too.
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
    if column.wrap:
        properties.append(_property("custom.cellOptions", {"type": "auto", "wrapText": True}))
    if column.words:
        properties.append(_property("mappings", [_mapping(column.words)]))
    if column.link:
        link = {"title": column.link_title, "url": column.link, "targetBlank": column.link.startswith("http")}
        properties.append(_property("links", [link]))
    if column.width:
        properties.append(_property("custom.width", column.width))
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
    words: Mapping[str, str] | None = None,
    nothing: str = "-",
    decimals: int | None = None,
) -> stat.Panel:
    """Return the last values as large figures; with `name` what they are called, with `value` false only that."""
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
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    if decimals is not None:
        panel.decimals(decimals)
    if words:
        panel.mappings([_value_map(words)])
    _colour(panel, colours or {})
    return panel


def _value_map(words: Mapping[str, str]) -> dashboard.ValueMap:
    return dashboard.ValueMap(
        options={
            value: dashboard.ValueMappingResult(text=word, index=i) for i, (value, word) in enumerate(words.items())
        }
    )


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
    show_value: bool = True,
) -> statetimeline.Panel:
    """Return states over time, a row each.

    Without `text_of` a row is a series, there while it has a value. With it there is one row, whose states are the
    values of that label; `colours`, and `words` for them, are by regular expression, in slashes, of the state then.
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
            panel.mappings([_value_map(words)])
        panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(SERIES[0]))
        _colour(panel, colours or {})
    return panel
