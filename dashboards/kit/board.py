"""Dashboards: variables, links, annotations, rows, and the JSON that Grafana reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from dashboards.kit.about import TAG, board_link
from dashboards.kit.colours import FULL_COLOUR, WAIT_COLOURS
from dashboards.kit.panel import SOURCE, Panel
from dashboards.kit.queries import HOST, RUN
from pinchpoint.grafana import LIVE_REFRESH

__all__ = ["REGION_STEP_SECONDS", "board", "compared_with", "derived", "encoded", "folded", "panels_of"]


REFRESH = ["1s", "2s", "5s", "10s", "30s", "1m", "5m"]
"""Intervals to choose from. Grafana leaves out what is below its min_refresh_interval, which is 5 s by default."""


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


def folded(title: str, *panels: Panel) -> builders.Row:
    """Return a row of panels that Grafana asks for only when somebody opens it."""
    row = builders.Row(title)
    for panel in panels:
        row.with_panel(panel)
    return row
