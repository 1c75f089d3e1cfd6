"""Panels that show how something changes: lines and states."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import statetimeline, timeseries
from grafana_foundation_sdk.models import common, dashboard

from dashboards.kit.about import About
from dashboards.kit.colours import FULL_COLOUR
from dashboards.kit.panel import colour_series, field_property, fixed_colour, framed, targets, value_map, without_ports
from dashboards.kit.queries import FULL, RUN, Query
from pinchpoint.report.palette import PHASES, SERIES, WAITS

__all__ = ["lines", "on_the_right", "states"]


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
    panel = framed(timeseries.Panel(), title, about, size).targets(targets(asked)).unit(unit)
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
    panel.transformations([without_ports()])
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
    colour_series(panel, colours or {})
    if any(query.legend.startswith(limit) for query in queries):
        dashed = [
            fixed_colour(FULL_COLOUR),
            field_property("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
            field_property("custom.lineWidth", 1),
            field_property("custom.stacking", {"mode": "none"}),
            field_property("custom.fillOpacity", 0),
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
        field_property("unit", "bool_yes_no"),
        field_property("min", 0),
        field_property("max", 1),
        field_property("custom.axisPlacement", "hidden"),
        field_property("custom.lineWidth", 0),
        field_property("custom.fillOpacity", 15),
        field_property("custom.stacking", {"mode": "none"}),
        field_property("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    panel.override_by_regexp(f"/^{BAND} /", look)
    # Of several that match, the last counts.
    for pattern, colour in reversed(PHASES.items()):
        panel.override_by_regexp(f"/^{BAND}.*({pattern})/", [fixed_colour(colour)])


def on_the_right(panel: timeseries.Panel, names: str, unit: str) -> timeseries.Panel:
    """Return a panel whose series with `names`, a regular expression, have an axis of their own on the right."""
    axis = [field_property("unit", unit), field_property("custom.axisPlacement", "right")]
    return panel.override_by_regexp(f"/{names}/", axis)


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
    panel = framed(statetimeline.Panel(), title, about, size)
    panel.targets(targets(queries, as_table=bool(text_of))).row_height(0.85).line_width(0).fill_opacity(85)
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
            panel.mappings([value_map(words, value_colours or {})])
        panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(SERIES[0]))
        colour_series(panel, colours or {})
    return panel
