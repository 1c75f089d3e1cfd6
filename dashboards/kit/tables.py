"""Tables: a row for each set of labels, or a matrix of two labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import common, dashboard

from dashboards.kit.about import About
from dashboards.kit.colours import TEXT_COLOUR
from dashboards.kit.panel import field_property, fixed_colour, framed, targets
from dashboards.kit.queries import Query
from pinchpoint.report.palette import STATUS

__all__ = ["LAST", "Column", "matrix", "rows"]


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
    panel = framed(table.Panel(), title, about, size).targets(targets(values.values(), instant=True, as_table=True))
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
    panel = framed(table.Panel(), title, about, size).targets(targets(queries, instant=True, as_table=True))
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
    any_column = [field_property("custom.wrapHeaderText", True), field_property("custom.minWidth", MIN_COLUMN)]
    panel.override_by_regexp("/.*/", any_column)
    panel.override_by_name(first.label, _column(first, row))
    for name, other in (others or {}).items():
        panel.override_by_name(name, _column(other))
    panel.cell_height(common.TableCellHeight.SM)
    return panel


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
    properties = [field_property("noValue", "-")]
    if column.unit:
        properties.append(field_property("unit", column.unit))
    if column.decimals is not None:
        properties.append(field_property("decimals", column.decimals))
    if column.bar:
        properties += [
            field_property("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}),
            field_property("min", 0),
            field_property("max", 1),
            fixed_colour(column.bar),
        ]
    if column.signed:
        steps = [{"value": None, "color": STATUS["bad"]}, {"value": 0, "color": STATUS["good"]}]
        properties += [
            field_property("custom.cellOptions", {"type": "color-text"}),
            field_property("thresholds", {"mode": "absolute", "steps": steps}),
            field_property("color", {"mode": "thresholds"}),
        ]
    if column.wrap:
        properties.append(field_property("custom.cellOptions", {"type": "auto", "wrapText": True}))
    if column.words:
        properties.append(field_property("mappings", [_mapping(column.words)]))
    elif label in SHORTER:
        pattern, text = SHORTER[label]
        shorter = {"type": "regex", "options": {"pattern": pattern, "result": {"text": text, "index": 0}}}
        properties.append(field_property("mappings", [shorter]))
    if column.link:
        link = {"title": column.link_title, "url": column.link, "targetBlank": column.link.startswith("http")}
        properties.append(field_property("links", [link]))
    if column.width:
        properties.append(field_property("custom.width", column.width))
    else:
        # Grafana's own is 150.
        properties.append(field_property("custom.minWidth", MIN_COLUMN))
    if column.hidden:
        properties.append(field_property("custom.hidden", True))
    return properties


def _mapping(words: Mapping[str, str]) -> dict[str, object]:
    options = {value: {"text": word, "index": index} for index, (value, word) in enumerate(words.items())}
    return {"type": "value", "options": options}
