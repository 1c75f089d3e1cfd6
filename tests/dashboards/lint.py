"""Requirements for every dashboard, as functions over its JSON: each yields what is wrong, in words.

A rule is pure: it takes a dashboard and a `World`, with which dashboards are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from dashboards.kit.board import panels_of
from dashboards.kit.colours import class_colour
from dashboards.kit.queries import FULL
from dashboards.kit.tables import LAST
from grafana import values_of
from metrics import Known
from pinchpoint.diagnosis.advice import Advice, advice_on, kind_advice
from pinchpoint.report.palette import IDLE_STATES, KINDS, SERIES, STATUS, WAITS
from pinchpoint.resources import all_resources
from pinchpoint.rules import PAGES
from pinchpoint.threads.roles import load_roles
from promql import (
    Aggregate,
    Binary,
    Call,
    Literal,
    Node,
    PromqlError,
    Selector,
    Subquery,
    labels_of,
    parse,
    shown,
    walk,
)

__all__ = ["RULES", "Asked", "Dashboard", "Panel", "Rule", "World", "queries_of"]

Dashboard = Mapping[str, Any]
Panel = Mapping[str, Any]
Problems = Iterator[str]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
SERIES_PANELS = ("timeseries", "bargauge", "state-timeline", "stat")
"""Types of panels that draw each series under its name."""
PALETTE = {colour.lower() for colour in [*WAITS.values(), *KINDS.values(), *STATUS.values(), *SERIES, *IDLE_STATES]}
THEME = {"text", "transparent"}
"""Colours with a light and a dark version in Grafana."""
MODES = {"fixed", "palette-classic", "thresholds"}
"""A colour of ours, a distinct one for each series, and ours from a threshold: all others are gradients or shades."""
LAPTOP = 1366
"""Pixels of the narrowest screen on which no column is cut off; a dashboard's panels share all but `FRAME` of them."""
FRAME, GAP, SIGNS = 32, 24, 64
CHARACTER = 8
"""Pixels of a character of a heading."""
SLOW_METRICS = ("ceph_", "node_")
SLOW_SCRAPES = {"5s", "15s"}
"""compose/prometheus.yml scrapes them every 5 s; a mgr renews its answer every 15 s."""
RATE_WINDOWS = {"$__rate_interval"}
INCREASE_WINDOWS = {"$__rate_interval", "$__range", "$elapsed"}
RATES = {"rate", "increase", "irate", "resets", "changes"}
"""Functions through which a counter may be shown."""
UNITS = re.compile(r"[_:](seconds|bytes|hertz|ratio|bytes_total)$")
"""Metrics whose values mean nothing without a unit. (Seconds in a second are a number, of CPUs for example.)"""
CLASSES = re.compile(r"\{\{(wait|resource|role|limit)\}\}")
"""Legends whose series are named after wait classes, resources or limits."""
EXCEEDING = {
    "pinchpoint-power": ("Lost leaving each state", "Lost in deep states, worst CPU of a host"),
    "pinchpoint-clients": ("Dirty pages against their threshold",),
    "pinchpoint-osd": ("Throttles, fullest OSD",),
    "pinchpoint-threads": ("Samples lost",),
}
"""Panels of shares whose axis ends where their values do: they can be above 1, or are far below it."""
COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


@dataclass(frozen=True)
class World:
    """The surroundings of a dashboard: the tree of files, the metrics, the uids of all dashboards."""

    tree: Path
    metrics: Mapping[str, Known]
    uids: frozenset[str]
    labels: Mapping[str, frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", {name: known.labels for name, known in self.metrics.items()})


@dataclass(frozen=True)
class Asked:
    """A query of a dashboard; `where` says in words which one."""

    where: str
    expr: str
    interval: str = ""


def queries_of(found: Dashboard) -> Iterator[Asked]:
    """Yield the queries of all panels, then those of annotations, then the selectors of variables."""
    for panel in panels_of(found):
        for target in panel.get("targets") or []:
            yield Asked(f"{_name(panel)}, query {target['refId']}", target["expr"], target.get("interval", ""))
    for annotation in found["annotations"]["list"]:
        yield Asked(f"annotation {annotation['name']!r}", annotation["expr"])
    for variable in _variables(found):
        if variable["type"] == "query":
            yield Asked(f"variable {variable['name']!r}", values_of(variable)[0])


def _name(panel: Panel) -> str:
    return f"panel {panel.get('title') or panel.get('id')!r}"


def _variables(found: Dashboard) -> list[dict[str, Any]]:
    return list(found["templating"]["list"])


def _shown(found: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield the panels that show data."""
    for panel in panels_of(found):
        if panel["type"] != "row":
            yield panel


def _trees(found: Dashboard) -> Iterator[tuple[Asked, Node]]:
    for asked in queries_of(found):
        try:
            yield asked, parse(asked.expr)
        except PromqlError:
            pass  # queries_are_promql reports it


def _strings(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from _strings(value)
    elif isinstance(part, list):
        for value in part:
            yield from _strings(value)


def _overrides(panel: Panel) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the matcher of each override, and its properties by name."""
    for override in panel.get("fieldConfig", {}).get("overrides") or []:
        yield override["matcher"], {entry["id"]: entry.get("value") for entry in override["properties"]}


@dataclass(frozen=True)
class Table:
    """How a table treats the fields of its queries."""

    fields: tuple[str, ...]
    """Shown fields; of a matrix, whose other columns are values of a label, the field with the names of rows."""
    matrix: bool
    columns: Mapping[str, str]
    """New names of renamed fields."""
    properties: Mapping[str, Mapping[str, Any]]
    """Properties of columns by their displayed names."""

    @classmethod
    def of(cls, panel: Panel) -> Table:
        """Return the table that the transformations and overrides describe."""
        options = {step["id"]: step["options"] for step in panel.get("transformations") or []}
        fields = options.get("filterFieldsByName", {}).get("include", {}).get("names", [])
        columns = options.get("organize", {}).get("renameByName", {})
        matrix = options.get("groupingToMatrix")
        if matrix:
            # Grafana calls the first column ROW\\COLUMN (groupingToMatrix.ts).
            fields = [matrix["rowField"]]
            columns = {field.partition("\\")[0]: column for field, column in columns.items()}
        named = {
            matcher["options"]: properties for matcher, properties in _overrides(panel) if matcher["id"] == "byName"
        }
        columns = {field.removesuffix(LAST): column for field, column in columns.items()}
        return cls(tuple(field.removesuffix(LAST) for field in fields), bool(matrix), columns, named)

    def column(self, name: str) -> str:
        return self.columns.get(name, name)


def panels_say_what_they_answer(found: Dashboard, world: World) -> Problems:
    """Titles, and descriptions that say what good and bad look like, and where to read more."""
    for panel in panels_of(found):
        if not panel.get("title"):
            yield f"{_name(panel)} has no title"
        if panel["type"] == "row":
            continue
        description = panel.get("description") or ""
        for part in ("**Good:** ", "**Bad:** ", "**Read on:** ["):
            if part not in description:
                yield f"the description of {_name(panel)} has no {part.strip(' [')!r}"


def panels_have_queries(found: Dashboard, world: World) -> Problems:
    """Every panel that shows data asks for some."""
    for panel in _shown(found):
        if not panel.get("targets") and panel["type"] != "text":
            yield f"{_name(panel)} has no query"
        refs = [target["refId"] for target in panel.get("targets") or []]
        if len(refs) != len(set(refs)):
            yield f"{_name(panel)} has two queries with one refId"


def values_have_units(found: Dashboard, world: World) -> Problems:
    """Panels with data have a unit; so have values (also in columns) that are times, bytes, clocks or shares."""
    for panel in _shown(found):
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        table = Table.of(panel)
        if panel["type"] not in ("table", "state-timeline", "text") and not unit:
            yield f"{_name(panel)} has no unit"
        for target in panel.get("targets") or []:
            measured = sorted(_measured(target["expr"]))
            if panel["type"] == "table":
                values = [one for one in (f"Value #{target['refId']}", "Value") if one in table.fields]
                for column in map(table.column, values if measured else ()):
                    if not {"unit", "mappings", "custom.hidden"} & table.properties.get(column, {}).keys():
                        yield f"column {column!r} of {_name(panel)} has no unit, and shows {measured[0]}"
            elif measured and unit in ("none", "short") and panel.get("options", {}).get("textMode") != "name":
                yield f"{_name(panel)} has the unit {unit!r}, and shows {measured[0]}"


def _measured(expr: str) -> set[str]:
    """Return the metrics with a unit that a query shows, and does not divide by each other."""
    try:
        tree = parse(expr)
    except PromqlError:
        return set()
    if any(isinstance(node, Binary) and node.operator == "/" for node, _ in walk(tree)):
        return set()
    return {selector.name for selector, _ in shown(tree) if UNITS.search(selector.name)}


def panels_have_ids(found: Dashboard, world: World) -> Problems:
    """Every panel has an id, and no id occurs twice."""
    ids = [panel.get("id") for panel in panels_of(found)]
    if None in ids or len(ids) != len(set(ids)):
        yield f"panel ids are {ids}"


def the_grid_has_no_overlap(found: Dashboard, world: World) -> Problems:
    """Panels are within 24 columns, and none overlaps another."""
    panels = panels_of(found)
    taken: dict[tuple[int, int], int] = {}
    for number, panel in enumerate(panels):
        place = panel["gridPos"]
        if place["w"] < 1 or place["h"] < 1 or place["x"] < 0 or place["x"] + place["w"] > COLUMNS:
            yield f"{_name(panel)} is not inside of {COLUMNS} columns"
        cells = product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        for other in sorted({taken.setdefault(cell, number) for cell in cells} - {number}):
            yield f"{_name(panel)} is on {_name(panels[other])}"


def tables_show_labels_that_exist(found: Dashboard, world: World) -> Problems:
    """Columns are labels or values of the queries."""
    for panel in _shown(found):
        if panel["type"] != "table":
            continue
        table = Table.of(panel)
        given = {target["refId"]: _given(target["expr"], world) for target in panel.get("targets") or []}
        every = frozenset[str]().union(*given.values())
        values = {f"Value #{ref}" for ref in given} if len(given) > 1 else {"Value"}
        for name in table.fields:
            if name not in every | values | {"Time"}:
                yield f"{_name(panel)} shows {name!r}, which no query gives"
        columns = {table.column(name) for name in table.fields}
        for name in table.properties.keys() - columns if not table.matrix else ():
            yield f"{_name(panel)} has properties for a column {name!r}, which it does not have"


def titles_fit_a_laptop(found: Dashboard, world: World) -> Problems:
    """No title is cut off on a screen of 1366 pixels, beside the sign of its description."""
    for panel in _shown(found):
        needed, room = CHARACTER * len(panel["title"]) + SIGNS, _room(panel)
        if needed > room:
            yield f"the title of {_name(panel)} needs {needed} pixels, and has {room}"


def _room(panel: Panel) -> int:
    return int((LAPTOP - FRAME) * panel["gridPos"]["w"] // COLUMNS - GAP)


def tables_fit_a_laptop(found: Dashboard, world: World) -> Problems:
    """No column of a table is cut off on a screen of 1366 pixels."""
    for panel in _shown(found):
        table = Table.of(panel)
        if panel["type"] != "table" or table.matrix:
            continue
        room = _room(panel)
        columns = [table.column(name) for name in table.fields]
        needed = sum(_width(column, table.properties.get(column, {})) for column in columns)
        if needed > room:
            yield f"{_name(panel)} needs {needed} pixels, and has {room}"


def _width(column: str, properties: Mapping[str, Any]) -> int:
    if properties.get("custom.hidden"):
        return 0
    heading = CHARACTER * len(column) + GAP
    return int(properties.get("custom.width") or max(properties.get("custom.minWidth", 150), heading))


def legends_are_tables(found: Dashboard, world: World) -> Problems:
    """Legends of lines say the last and the highest value, the highest first."""
    for panel in _shown(found):
        legend = panel.get("options", {}).get("legend", {})
        wanted = {"displayMode": "table", "calcs": ["lastNotNull", "max"], "sortBy": "Max", "sortDesc": True}
        if panel["type"] == "timeseries" and not legend.items() >= wanted.items():
            yield f"the legend of {_name(panel)} is {legend}"


def shares_end_at_one(found: Dashboard, world: World) -> Problems:
    """An axis of shares that cannot be above 1 ends there, and nothing is drawn below 0."""
    for panel in _shown(found):
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] != "timeseries":
            continue
        if defaults.get("min") is None or any(
            properties.get("custom.transform") == "negative-Y" for _, properties in _overrides(panel)
        ):
            yield f"{_name(panel)} can be below 0"
        exceeding = EXCEEDING.get(str(found["uid"]), ())
        if defaults.get("unit") == "percentunit" and defaults.get("decimals") == 0:
            yield f"{_name(panel)} has ticks only at integers, and shows shares"
        if (defaults.get("unit") == "percentunit") == (defaults.get("max") != 1) != (panel["title"] in exceeding):
            yield f"the axis of {_name(panel)} ends at {defaults.get('max')}"


def legends_name_labels_that_exist(found: Dashboard, world: World) -> Problems:
    """Legends are templates over labels of the result; drawn series have one."""
    for panel in _shown(found):
        named = panel["type"] in SERIES_PANELS and panel.get("options", {}).get("textMode") != "value"
        for target in panel.get("targets") or []:
            legend = target.get("legendFormat", "")
            where = f"{_name(panel)}, query {target['refId']}"
            if named and target.get("format") != "table" and legend in ("", "__auto"):
                yield f"{where} has no legend"
            labels = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend))
            for label in sorted(labels - _given(target["expr"], world)):
                yield f"the legend of {where} has {label!r}, which the query does not give"


def _given(expr: str, world: World) -> frozenset[str]:
    """Return the labels of a query; nothing if the query is wrong, which other rules report."""
    try:
        return labels_of(parse(expr), world.labels)
    except (PromqlError, KeyError):
        return frozenset()


def queries_are_promql(found: Dashboard, world: World) -> Problems:
    """Every query can be parsed by our grammar."""
    for variable in _variables(found):
        if variable["type"] == "query":
            try:
                values_of(variable)
            except ValueError as error:
                yield f"variable {variable['name']!r}: {error}"
                return
    for asked in queries_of(found):
        try:
            parse(asked.expr)
        except PromqlError as error:
            yield f"{asked.where}: {error}"


def metrics_and_labels_exist(found: Dashboard, world: World) -> Problems:
    """Queries read metrics that are exported or recorded, and match and group by labels that these have."""
    for asked, tree in _trees(found):
        unknown = {
            str(node.name or node.matchers)
            for node, _ in walk(tree)
            if isinstance(node, Selector) and not world.metrics.keys() & node.names(world.metrics)
        }
        for name in sorted(unknown):
            yield f"{asked.where} reads {name}, which no exporter or rule provides"
        if not unknown:
            for node, _ in walk(tree):
                for wrong in _wrong_labels(node, world):
                    yield f"{asked.where}: {wrong}"
    for variable in _variables(found):
        if variable["type"] == "query":
            selector, label = values_of(variable)
            if label not in _given(selector, world):
                yield f"variable {variable['name']!r} asks for the label {label!r}, which {selector} does not have"


def _wrong_labels(node: Node, world: World) -> Problems:
    match node:
        case Selector(name=name, matchers=matchers):
            for label, _, _ in matchers:
                if label not in labels_of(node, world.labels):
                    yield f"{name or matchers} has no label {label!r}"
        case Aggregate(labels=labels, inner=inner):
            for label in sorted(set(labels) - labels_of(inner, world.labels)):
                yield f"{node.name} {node.grouping} {label!r}, a label that its operand does not have"
        case Binary(matching="on", labels=labels, left=left, right=right):
            for side in (left, right):
                for label in sorted(set(labels) - labels_of(side, world.labels)):
                    yield f"{node.operator} on {label!r}, which one side does not have"
        case Call(name="label_replace", arguments=(inner, _, _, Literal(text=source), _)):
            if source[1:-1] and source[1:-1] not in labels_of(inner, world.labels):
                yield f"label_replace from {source}, a label that its operand does not have"


def no_counter_is_raw(found: Dashboard, world: World) -> Problems:
    """Counters are shown only as rates."""
    for asked, tree in _trees(found):
        for selector, inside in shown(tree):
            if not asked.where.startswith("variable") and not (isinstance(inside, Call) and inside.name in RATES):
                for name in selector.names(world.metrics):
                    if _is_counter(name, world):
                        yield f"{asked.where} shows the counter {name} itself"


def _is_counter(name: str, world: World) -> bool:
    known = world.metrics.get(name)
    return known.kind == "counter" if known else name.endswith(("_total", "_sum", "_count", "_bucket"))


def rates_look_back_as_far_as_they_have_to(found: Dashboard, world: World) -> Problems:
    """Windows of rates are Grafana's: four scrapes, or a step and a scrape."""
    for asked, tree in _trees(found):
        for node, _ in walk(tree):
            if isinstance(node, Call) and node.name in ("rate", "irate", "increase") and node.arguments:
                over = node.arguments[0]
                window = over.range.partition(":")[0] if isinstance(over, Selector | Subquery) else ""
                fixed = isinstance(over, Selector) and over.fixed
                wanted = INCREASE_WINDOWS if node.name == "increase" or fixed else RATE_WINDOWS
                if window not in wanted:
                    yield f"{asked.where}: {node.name} over [{window}], not {' or '.join(sorted(wanted))}"
                if isinstance(over, Selector) and over.name in world.metrics and not _is_counter(over.name, world):
                    yield f"{asked.where}: {node.name} of {over.name}, which is not a counter"


def slow_scrapes_are_known(found: Dashboard, world: World) -> Problems:
    """Queries of series that are scraped every 5 s declare it; otherwise rate windows have 1 or 2 samples."""
    for asked, tree in _trees(found):
        slow = any(isinstance(node, Selector) and node.name.startswith(SLOW_METRICS) for node, _ in walk(tree))
        if slow and asked.where.startswith("panel") and asked.interval not in SLOW_SCRAPES:
            yield f"{asked.where} has the interval {asked.interval!r}, and reads what is scraped every 5 s"


def thresholds_are_series(found: Dashboard, world: World) -> Problems:
    """No query repeats the threshold of a resource, and no panel has thresholds but those of the roles."""
    numbers = {f"{threshold:g}" for threshold in load_roles().thresholds.values()}
    for asked, tree in _trees(found):
        for node, _ in walk(tree):
            match node:
                case Binary(operator=operator, right=Literal(text)) if operator in COMPARISONS and text in numbers:
                    yield f"{asked.where} compares with {text}, which is a threshold of the roles file"
    for panel in _shown(found):
        for step in panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps") or []:
            if step.get("value") is not None and f"{step['value']:g}" not in numbers:
                yield f"{_name(panel)} has a threshold of its own: {step['value']}"


def the_data_source_is_the_variable(found: Dashboard, world: World) -> Problems:
    """Only the variable names a data source."""
    variables = _variables(found)
    if not any(one["type"] == "datasource" and one["name"] == "datasource" for one in variables):
        yield "there is no variable 'datasource'"
    places: list[tuple[str, Mapping[str, Any]]] = [
        (f"variable {one['name']!r}", one) for one in variables if one["type"] == "query"
    ]
    places += [(f"annotation {one['name']!r}", one) for one in found["annotations"]["list"]]
    for panel in _shown(found):
        places.append((_name(panel), panel))
        places += [(f"{_name(panel)}, query {target['refId']}", target) for target in panel.get("targets") or []]
    for where, part in places:
        if part.get("datasource") != SOURCE:
            yield f"the data source of {where} is {part.get('datasource')}"


def variables_are_defined_and_used(found: Dashboard, world: World) -> Problems:
    """Each used variable is defined, each defined one is used, and those with many values are matched accordingly."""
    defined = {variable["name"]: variable for variable in _variables(found)}
    used: set[str] = set()
    for text in _strings([found["panels"], found["annotations"], found["templating"], found["links"], found["title"]]):
        # A "$" at the end of a regular expression and the "$1" of a label_replace are not variables.
        used |= {name for pair in re.findall(r"\$([a-zA-Z_]\w*)|\$\{([a-zA-Z_]\w*)", text) for name in pair if name}
    used = {name for name in used if not name.startswith("__")}
    for name in sorted(used - defined.keys()):
        yield f"${name} is not defined"
    for name in sorted(defined.keys() - used):
        yield f"variable {name!r} is not used"
    for name, variable in defined.items():
        if not variable.get("label"):
            yield f"variable {name!r} has no label"
        if variable.get("includeAll") and not variable.get("allValue"):
            yield f"variable {name!r} has no value for all"
    many = {name for name, variable in defined.items() if variable.get("multi")}
    for asked, tree in _trees(found):
        for node, _ in walk(tree):
            for label, operator, value in node.matchers if isinstance(node, Selector) else ():
                names = {name for name in many if re.search(rf"\$({name}\b|\{{{name}[:}}])", value)}
                if names and operator not in ("=~", "!~"):
                    yield f"{asked.where}: {label}{operator}{value!r}, and ${names.pop()} can have several values"


def links_resolve(found: Dashboard, world: World) -> Problems:
    """Pages are in this tree, dashboards are ours, and columns that are part of an address exist."""
    for link in found.get("links") or []:
        if link.get("url"):
            yield from _unresolved(link["url"], world)
    for panel, url in _links(found):
        places = list(_places(url, panel, world))
        if not places:
            yield f"{_name(panel)}: no page or dashboard is known for {url}"
        for place in places:
            yield from (f"{_name(panel)}: {problem}" for problem in _unresolved(place, world))


def _links(found: Dashboard) -> Iterator[tuple[Panel, str]]:
    for panel in panels_of(found):
        urls = re.findall(r"\]\(([^)]+)\)", panel.get("description") or "")
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        urls += [link["url"] for link in defaults.get("links") or []]
        for matcher, properties in _overrides(panel):
            own = f"${{__data.fields.{matcher['options']}"
            for link in properties.get("links") or []:
                urls.append(link["url"].replace("${__value.text}", f"{own}}}").replace("${__value.raw}", f"{own}}}"))
        for url in urls:
            yield panel, url


FIELD = re.compile(r"\$\{__data\.fields\.(\w+)(\.text)?\}")
TIMES = (("${__url_time_range}",), ("from=", "to="))


def _unresolved(url: str, world: World) -> Problems:
    if url.startswith("/d/"):
        uid = re.split(r"[/?]", url.removeprefix("/d/"))[0]
        if uid not in world.uids:
            yield f"no dashboard has the uid {uid!r}"
        if "${datasource:queryparam}" not in url or not any(all(part in url for part in parts) for parts in TIMES):
            yield f"{url} does not keep the data source and the time, and has no other"
    elif not url.startswith(PAGES):
        yield f"{url} leads out of this project"
    elif not _is_page(url, world):
        yield f"there is no page {url.removeprefix(PAGES)}"


def _places(url: str, panel: Panel, world: World) -> Iterator[str]:
    """Yield every address that a link can have: with each word or value of the column that is in its path."""
    path, question, rest = url.partition("?")
    found = FIELD.search(path)
    if found is None:
        yield url
        return
    table = Table.of(panel)
    field = next((one for one in table.fields if found[1] in (one, table.column(one))), None)
    if field is None:
        return
    mappings = table.properties.get(table.column(field), {}).get("mappings") or []
    if field == "page" and not mappings:
        values = sorted({advice.page for advice in [*kind_advice().values(), *map(_advice, all_resources())]})
    elif found[2]:
        values = [word["text"] for mapping in mappings for word in mapping["options"].values()]
    elif field == "alertname":
        values = sorted(
            page.stem for page in (world.tree / "runbooks").glob("*.md")
        )  # tests of rules: each alert has one
    else:
        values = sorted({value for target in panel["targets"] for value in _values_of(target["expr"], field)})
    for value in values:
        yield path.replace(found[0], value) + question + rest


def _advice(resource: str) -> Advice:
    return advice_on(resource, "")


def _values_of(expr: str, label: str) -> Iterator[str]:
    """Yield the values that a query gives a label with `label_replace`, unless they are part of another label."""
    for node, _ in walk(parse(expr)):
        match node:
            case Call("label_replace", (_, Literal(target), Literal(value), _, _)) if target[1:-1] == label:
                if "$" not in value:
                    yield value[1:-1]


def _is_page(url: str, world: World) -> bool:
    path, _, anchor = url.removeprefix(PAGES).partition("#")
    file = world.tree / path
    if not file.is_file():
        return False
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if anchor else []
    return not anchor or anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def the_frame_is_shared(found: Dashboard, world: World) -> Problems:
    """Crosshair, refresh, time and links are the same on all dashboards, and the phases are regions on each."""
    wanted = {"graphTooltip": 1, "editable": False, "timezone": "browser"}
    for key, value in wanted.items():
        if found.get(key) != value:
            yield f"{key} is {found.get(key)!r}, not {value!r}"
    for key in ("description", "refresh"):
        if not found.get(key):
            yield f"the dashboard has no {key}"
    if found.get("time", {}).get("to") != "now":
        yield "the time does not end now"
    links = [link for link in found.get("links") or [] if link["type"] == "dashboards"]
    if not any(link["keepTime"] and link["includeVars"] and link["tags"] == found.get("tags") for link in links):
        yield "no link leads to the other dashboards with time and variables"
    phases = [one for one in found["annotations"]["list"] if one["name"] == "Phases"]
    if not any(one.get("useValueForTime") and one.get("titleFormat") == "{{phase}}" for one in phases):
        yield "the phases cannot be shown as regions"
    for annotation in found["annotations"]["list"]:
        if annotation["enable"]:
            yield f"annotation {annotation['name']!r} is drawn over every panel"
    for annotation in found["annotations"]["list"]:
        for key in ("titleFormat", "textFormat", "tagKeys"):
            text = annotation.get(key, "")
            labels = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text)) if key != "tagKeys" else set(text.split(","))
            for label in sorted(labels - _given(annotation["expr"], world) - {""}):
                yield f"{key} of annotation {annotation['name']!r} has {label!r}, which the query does not give"


def colours_are_of_the_palette(found: Dashboard, world: World) -> Problems:
    """Every colour is from report/palette.py or the theme, and none from a palette of Grafana's."""
    for annotation in found["annotations"]["list"]:
        if annotation["iconColor"].lower() not in PALETTE | THEME:
            yield f"annotation {annotation['name']!r} has the colour {annotation['iconColor']}"
    for panel in panels_of(found):
        for colour in sorted(set(_colours(panel.get("fieldConfig", {}))) - PALETTE - THEME):
            yield f"{_name(panel)} has the colour {colour}"
        mode = panel.get("fieldConfig", {}).get("defaults", {}).get("color", {}).get("mode")
        if panel["type"] in SERIES_PANELS and mode not in MODES:
            yield f"{_name(panel)} has colours from {mode}"


def _colours(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if isinstance(value, str) and (key in ("fixedColor", "color") or re.fullmatch(r"#[0-9a-fA-F]{3,8}", value)):
                yield value.lower() if value.startswith("#") else value
            else:
                yield from _colours(value)
    elif isinstance(part, list):
        for value in part:
            yield from _colours(value)


def a_class_has_one_colour(found: Dashboard, world: World) -> Problems:
    """A series named after a wait class, a resource or a kind of verdict has its colour, here as everywhere."""
    right: dict[str, set[str]] = {}
    for colours in (WAITS, KINDS, {resource: class_colour(resource) for resource in load_roles().serves}):
        for name, colour in colours.items():
            right.setdefault(name, set()).add(colour)
    for panel in _shown(found):
        legends = " ".join(target.get("legendFormat", "") for target in panel.get("targets") or [])
        classes = CLASSES.search(legends)
        seen: dict[str, str] = {}
        for matcher, properties in _overrides(panel):
            fixed = (properties.get("color") or {}).get("fixedColor")
            # A pattern that matches anything is not specific to a class.
            if (
                fixed
                and panel["type"] != "table"
                and not _matches(matcher, "")
                and (classes or matcher["id"] == "byName")
            ):
                seen |= {name: fixed for name in right if _matches(matcher, name)}
        for name, colour in seen.items():
            if colour.lower() not in {one.lower() for one in right[name]}:
                yield f"{name!r} is {colour} on {_name(panel)}, and {' or '.join(sorted(right[name]))} elsewhere"


def _matches(matcher: Mapping[str, Any], name: str) -> bool:
    wanted = matcher["options"]
    if matcher["id"] == "byName":
        return bool(wanted == name)
    if matcher["id"] == "byRegexp":
        return re.search(wanted.strip("/"), name) is not None
    return False


def limits_are_dashed(found: Dashboard, world: World) -> Problems:
    """A threshold among loads is drawn as one."""
    for panel in _shown(found):
        limits = [one for one in panel.get("targets") or [] if one.get("legendFormat", "").startswith(FULL)]
        if panel["type"] == "timeseries" and limits:
            dashed = any(
                "custom.lineStyle" in properties and _matches(matcher, FULL)
                for matcher, properties in _overrides(panel)
            )
            if not dashed:
                yield f"the limit of {_name(panel)} is not dashed, so it looks like a load"


Rule = Callable[[Dashboard, World], Problems]
RULES: tuple[Rule, ...] = (
    panels_say_what_they_answer,
    panels_have_queries,
    panels_have_ids,
    values_have_units,
    the_grid_has_no_overlap,
    tables_show_labels_that_exist,
    titles_fit_a_laptop,
    tables_fit_a_laptop,
    legends_are_tables,
    shares_end_at_one,
    legends_name_labels_that_exist,
    queries_are_promql,
    metrics_and_labels_exist,
    no_counter_is_raw,
    rates_look_back_as_far_as_they_have_to,
    slow_scrapes_are_known,
    thresholds_are_series,
    the_data_source_is_the_variable,
    variables_are_defined_and_used,
    links_resolve,
    the_frame_is_shared,
    colours_are_of_the_palette,
    a_class_has_one_colour,
    limits_are_dashed,
)
