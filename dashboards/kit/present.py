"""Panels that show the present: figures, bars, text, graphs of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grafana_foundation_sdk.builders import bargauge, nodegraph, stat
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import text as text_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.text import TextMode

from dashboards.kit.about import About
from dashboards.kit.colours import FULL_COLOUR, ROLES, TEXT_COLOUR
from dashboards.kit.panel import colour_series, framed, targets, value_map, without_ports
from dashboards.kit.queries import Query
from pinchpoint.report.palette import SERIES, STATUS

__all__ = ["bars", "node_graph", "numbers", "words"]


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
    panel = framed(nodegraph.Panel(), title, about, size).targets(targets(queries, instant=True)).unit("percentunit")
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
    panel = framed(stat.Panel(), title, about, size).targets(targets(queries, instant=not sparkline)).unit(unit)
    panel.text_mode(modes[name, value]).no_value(nothing)
    panel.color_mode(common.BigValueColorMode.VALUE)
    panel.graph_mode(common.BigValueGraphMode.AREA if sparkline else common.BigValueGraphMode.NONE)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(TEXT_COLOUR))
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"])).transformations([without_ports()])
    if decimals is not None:
        panel.decimals(decimals)
    if good:
        panel.mappings([value_map(good, dict.fromkeys(good, STATUS["good"])), _all_others(STATUS["bad"])])
    if full:
        steps = [dashboard.Threshold(value=None, color=TEXT_COLOUR)]
        steps.append(dashboard.Threshold(value=ROLES.thresholds[full], color=FULL_COLOUR))
        absolute = builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)
        panel.thresholds(absolute).color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    colour_series(panel, colours or {})
    return panel


def _all_others(colour: str) -> dashboard.RangeMap:
    """Return the mapping that colours all values; mappings before it take precedence."""
    result = dashboard.ValueMappingResult(color=colour, index=1)
    return dashboard.RangeMap(options=dashboard.DashboardRangeMapOptions(from_val=None, to=None, result=result))


def words(title: str, about: About, content: str, *, size: tuple[int, int]) -> text_builders.Panel:
    """Return a panel with text in Markdown, which may use variables of the dashboard."""
    return framed(text_builders.Panel(), title, about, size).mode(TextMode.MARKDOWN).content(content)


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
    panel = framed(bargauge.Panel(), title, about, size).targets(targets(queries, instant=True)).unit(unit).min(0)
    panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(shade))
    panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    if most is not None:
        panel.max(most)
    colour_series(panel, colours or {})
    return panel
