"""What all panels have in common: title, description, queries, and properties of their series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import bargauge, nodegraph, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import text as text_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.kit.about import About, describe
from dashboards.kit.queries import SCRAPE_SECONDS, Query

__all__ = [
    "SOURCE",
    "Panel",
    "colour_series",
    "field_property",
    "fixed_colour",
    "framed",
    "targets",
    "value_map",
    "without_ports",
]


Panel = Builder[dashboard.Panel]
SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
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


def framed(panel: P, title: str, about: About, size: tuple[int, int]) -> P:
    """Return a panel with a title, a description and a size: columns of 24, and rows of 30 pixels."""
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


def targets(queries: Iterable[Query], *, instant: bool = False, as_table: bool = False) -> list[Builder[Any]]:
    """Return what a panel asks for: the first query is A, the second B, and so on."""
    return [_target(query, chr(ord("A") + i), instant=instant, as_table=as_table) for i, query in enumerate(queries)]


def field_property(name: str, value: object) -> dashboard.DynamicConfigValue:
    """Return a property that some fields of a panel have, unlike the others."""
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def fixed_colour(colour: str) -> dashboard.DynamicConfigValue:
    """Return the property of a field that always has this colour."""
    return field_property("color", {"mode": "fixed", "fixedColor": colour})


def without_ports() -> dashboard.DataTransformerConfig:
    """Return what shortens ``host:port`` at the end of a legend to the host."""
    return dashboard.DataTransformerConfig(
        id_val="renameByRegex", options={"regex": "^(.*[^ ].*?)(:[0-9]+)$", "renamePattern": "$1"}
    )


Coloured = TypeVar("Coloured", timeseries.Panel, bargauge.Panel, stat.Panel, statetimeline.Panel)


def colour_series(panel: Coloured, colours: Mapping[str, str]) -> None:
    """Give series colours by their names, or by regular expressions in slashes."""
    for name, colour in colours.items():
        if name.startswith("/"):
            panel.override_by_regexp(name, [fixed_colour(colour)])
        else:
            panel.override_by_regexp(rf"/^{re.escape(name)}( \(Ceph\))?$/", [fixed_colour(colour)])


def value_map(words: Mapping[str, str], colours: Mapping[str, str]) -> dashboard.ValueMap:
    """Return the mapping from values to words, in `colours` by value."""
    return dashboard.ValueMap(
        options={
            value: dashboard.ValueMappingResult(text=word, color=colours.get(value), index=i)
            for i, (value, word) in enumerate(words.items())
        }
    )
