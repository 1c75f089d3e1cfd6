"""Every dashboard follows the rules in lint.py, and each rule finds the mistakes that it is for."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import lint
from dashboards.boards import generated
from dashboards.kit.about import About
from dashboards.kit.board import board, encoded
from dashboards.kit.over_time import lines
from dashboards.kit.present import numbers
from dashboards.kit.queries import Query
from dashboards.kit.tables import Column, rows
from lint import RULES, Rule, World
from metrics import TREE, known_metrics
from pinchpoint.report.palette import WAITS

ABOUT = About("What it shows.", "Little.", "Much.", ("PhaseStalled", "docs/verdict.md"))
BUSY = "max by (resource) (rate(pinchpoint_resource_busy_seconds_total[$__rate_interval]))"
BLAME = "max by (resource) (pinchpoint_verdict_blame_ratio)"


@cache
def boards() -> dict[str, dict[str, Any]]:
    return {name.removesuffix(".json"): json.loads(text) for name, text in generated().items()}


@cache
def world() -> World:
    return World(TREE, known_metrics(), frozenset(one["uid"] for one in boards().values()))


@pytest.mark.parametrize("name", boards())
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_dashboard_follows_the_rules(name: str, rule: Rule) -> None:
    problems = list(rule(boards()[name], world()))

    assert not problems, "\n".join(problems)


@cache
def good_board() -> dict[str, Any]:
    made = board("pinchpoint-bottleneck", "Good", "What is it?", variables=("run", "host", "at"))
    here = "/d/pinchpoint-bottleneck?${datasource:queryparam}&${__url_time_range}"
    slow = "sum by (method) (rate(ceph_prometheus_collect_duration_seconds_count[$__rate_interval]))"
    queries = (
        Query(BUSY, "{{resource}}$at"),
        Query('max(pinchpoint_resource_threshold_ratio{resource="mds_lock"})', "full from"),
    )
    table = rows(
        "Rows",
        ABOUT,
        {"blame": Query(BLAME), "words": Query(f"{BLAME} * 2")},
        {
            "resource": Column("of", link=f"{here}&var-owner=${{__data.fields.of}}"),
            "blame": Column("blame", unit="percentunit"),
            "words": Column("words", words={"0": "runbooks/PhaseStalled.md"}),
        },
    )
    made.with_panel(lines("Lines", ABOUT, *queries, unit="percentunit", most=1, colours={"mds": WAITS["mds"]}))
    made.with_panel(table)
    made.with_panel(numbers("Number", ABOUT, Query('count(pinchpoint_build_info{instance=~"$host"})', "hosts")))
    made.with_panel(numbers("Slow", ABOUT, Query(slow, "{{method}}", scrape=5)))
    return dict(json.loads(encoded(made)))


LINES, ROWS, NUMBER, SLOW = range(4)


def panel(number: int, change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda found: change(found["panels"][number])


def asks(expr: str, number: int = LINES) -> Callable[[dict[str, Any]], object]:
    """Return a change that makes a panel query something else."""
    return panel(number, lambda found: found["targets"][0].update(expr=expr))


def described(old: str, new: str) -> Callable[[dict[str, Any]], object]:
    return panel(LINES, lambda found: found.update(description=found["description"].replace(old, new)))


def linked(url: str, number: int = LINES) -> Callable[[dict[str, Any]], object]:
    return panel(number, lambda found: found.update(description=f"{found['description']}, [more]({url})"))


def column_linked(url: str) -> Callable[[dict[str, Any]], object]:
    def change(found: dict[str, Any]) -> None:
        (entry,) = [
            entry
            for override in found["fieldConfig"]["overrides"]
            for entry in override["properties"]
            if entry["id"] == "links"
        ]
        entry["value"][0]["url"] = url

    return panel(ROWS, change)


def column_without(property_name: str) -> Callable[[dict[str, Any]], object]:
    def change(found: dict[str, Any]) -> None:
        for override in found["fieldConfig"]["overrides"]:
            override["properties"] = [entry for entry in override["properties"] if entry["id"] != property_name]

    return panel(ROWS, change)


def shows(field: str) -> Callable[[dict[str, Any]], object]:
    def change(found: dict[str, Any]) -> None:
        (step,) = [step for step in found["transformations"] if step["id"] == "filterFieldsByName"]
        step["options"]["include"]["names"].append(field)

    return panel(ROWS, change)


def coloured(name: str, colour: str, matcher: str = "byName") -> Callable[[dict[str, Any]], object]:
    override = {
        "matcher": {"id": matcher, "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
    }
    return panel(LINES, lambda found: found["fieldConfig"]["overrides"].append(override))


def annotation(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["annotations"]["list"][0].update(changes)


def variable(called: str, **changes: object) -> Callable[[dict[str, Any]], object]:
    def change(found: dict[str, Any]) -> None:
        next(one for one in found["templating"]["list"] if one["name"] == called).update(changes)

    return change


BAD: list[tuple[Rule, Callable[[dict[str, Any]], object]]] = [
    (lint.panels_say_what_they_answer, panel(LINES, lambda found: found.update(title=""))),
    (lint.panels_say_what_they_answer, panel(NUMBER, lambda found: found.pop("description"))),
    (lint.panels_say_what_they_answer, described("**Good:**", "Good:")),
    (lint.panels_say_what_they_answer, described("**Read on:** [", "Read on: [")),
    (lint.panels_have_queries, panel(LINES, lambda found: found.update(targets=[]))),
    (lint.panels_have_queries, panel(LINES, lambda found: found["targets"][1].update(refId="A"))),
    (lint.panels_have_ids, panel(LINES, lambda found: found.pop("id"))),
    (lint.panels_have_ids, panel(LINES, lambda found: found.update(id=2))),
    (lint.values_have_units, panel(LINES, lambda found: found["fieldConfig"]["defaults"].pop("unit"))),
    (lint.values_have_units, column_without("unit")),
    (lint.values_have_units, column_without("mappings")),
    (lint.values_have_units, asks("sum by (owner) (pinchpoint_memory_dirty_bytes)", NUMBER)),
    (lint.the_grid_has_no_overlap, panel(ROWS, lambda found: found["gridPos"].update(x=11))),
    (lint.the_grid_has_no_overlap, panel(ROWS, lambda found: found["gridPos"].update(x=13))),
    (lint.the_grid_has_no_overlap, panel(ROWS, lambda found: found["gridPos"].update(h=0))),
    (lint.tables_show_labels_that_exist, panel(ROWS, lambda found: found.update(targets=found["targets"][:1]))),
    (lint.tables_show_labels_that_exist, shows("owner")),
    (lint.tables_show_labels_that_exist, panel(ROWS, lambda found: found["targets"].pop())),
    (lint.titles_fit_a_laptop, panel(NUMBER, lambda found: found.update(title="Number of what has a long name"))),
    (lint.tables_fit_a_laptop, panel(ROWS, lambda found: found["gridPos"].update(w=2))),
    (lint.legends_are_tables, panel(LINES, lambda found: found["options"]["legend"].update(displayMode="list"))),
    (lint.legends_are_tables, panel(LINES, lambda found: found["options"]["legend"].update(calcs=[]))),
    (lint.shares_end_at_one, panel(LINES, lambda found: found["fieldConfig"]["defaults"].pop("max"))),
    (lint.shares_end_at_one, panel(LINES, lambda found: found["fieldConfig"]["defaults"].pop("min"))),
    (lint.shares_end_at_one, panel(LINES, lambda found: found["fieldConfig"]["defaults"].update(decimals=0))),
    (lint.legends_name_labels_that_exist, asks(BUSY.replace("(resource)", "(owner)"))),
    (lint.legends_name_labels_that_exist, panel(LINES, lambda found: found["targets"][0].pop("legendFormat"))),
    (lint.queries_are_promql, asks("sum(")),
    (lint.queries_are_promql, annotation(expr="up up")),
    (lint.queries_are_promql, variable("run", query={"query": "query_result(up)", "refId": "A"})),
    (lint.queries_are_promql, variable("at", regex="/.*/")),
    (lint.metrics_and_labels_exist, asks("pinchpoint_nothing")),
    (lint.metrics_and_labels_exist, asks("ceph_nothing")),
    (lint.metrics_and_labels_exist, asks("pinchpoint:nothing:ratio")),
    (lint.metrics_and_labels_exist, asks('{__name__=~"ceph_nothing_.*"}')),
    (lint.metrics_and_labels_exist, asks('pinchpoint_threads{daemon="a"}')),
    (lint.metrics_and_labels_exist, asks("sum by (daemon) (pinchpoint_threads)")),
    (lint.metrics_and_labels_exist, asks("pinchpoint_threads * on (daemon) group_left () pinchpoint_mds_caps")),
    (lint.metrics_and_labels_exist, asks('label_replace(pinchpoint_threads, "x", "$1", "daemon", "(.*)")')),
    (lint.metrics_and_labels_exist, variable("run", query={"query": "label_values(up, run)", "refId": "A"})),
    (lint.no_counter_is_raw, asks("pinchpoint_mds_requests_total")),
    (lint.no_counter_is_raw, asks("sum by (daemon) (pinchpoint_mds_requests_total)")),
    (lint.no_counter_is_raw, asks("pinchpoint_mds_requests_total and pinchpoint_mds_caps")),
    (lint.no_counter_is_raw, asks('{__name__=~"pinchpoint_mds_re.*_total"}')),
    (lint.no_counter_is_raw, asks("max_over_time(pinchpoint_mds_requests_total[$__range])")),
    (lint.no_counter_is_raw, asks("ceph_prometheus_collect_duration_seconds_count", SLOW)),
    (lint.no_counter_is_raw, annotation(expr="pinchpoint_mds_requests_total")),
    (lint.rates_look_back_as_far_as_they_have_to, asks(BUSY.replace("$__rate_interval", "1m"))),
    (lint.rates_look_back_as_far_as_they_have_to, asks(BUSY.replace("$__rate_interval", "$__interval"))),
    (lint.rates_look_back_as_far_as_they_have_to, asks("increase(pinchpoint_mds_requests_total[1h])")),
    (lint.rates_look_back_as_far_as_they_have_to, asks("rate(pinchpoint_mds_caps[$__rate_interval])")),
    (lint.rates_look_back_as_far_as_they_have_to, asks("rate(pinchpoint:owner_cpu:rate[$__rate_interval])")),
    (lint.slow_scrapes_are_known, panel(SLOW, lambda found: found["targets"][0].pop("interval"))),
    (lint.slow_scrapes_are_known, panel(SLOW, lambda found: found["targets"][0].update(interval="2s"))),
    (lint.slow_scrapes_are_known, asks("ceph_health_status")),
    (lint.thresholds_are_series, asks(f"{BUSY} > 0.8")),
    (
        lint.thresholds_are_series,
        panel(LINES, lambda found: found["fieldConfig"]["defaults"].update(thresholds={"steps": [{"value": 80}]})),
    ),
    (lint.the_data_source_is_the_variable, panel(LINES, lambda found: found["datasource"].update(uid="prom"))),
    (lint.the_data_source_is_the_variable, panel(LINES, lambda found: found["targets"][0].pop("datasource"))),
    (lint.the_data_source_is_the_variable, annotation(datasource={"type": "prometheus", "uid": "prom"})),
    (lint.the_data_source_is_the_variable, variable("run", datasource=None)),
    (lint.the_data_source_is_the_variable, variable("datasource", name="source")),
    (lint.variables_are_defined_and_used, asks('pinchpoint_threads{owner=~"$owner"}')),
    (lint.variables_are_defined_and_used, asks('pinchpoint_threads{owner=~"${owner:regex}"}')),
    (
        lint.variables_are_defined_and_used,
        panel(LINES, lambda found: found["targets"][0].update(legendFormat="{{resource}}")),
    ),
    (lint.variables_are_defined_and_used, asks('pinchpoint_threads{instance="$host"}')),
    (lint.variables_are_defined_and_used, variable("host", allValue="")),
    (lint.variables_are_defined_and_used, variable("host", label="")),
    (lint.links_resolve, linked("http://127.0.0.1:9749/runbooks/Nothing.md")),
    (lint.links_resolve, linked("http://127.0.0.1:9749/docs/verdict.md#no-such-heading")),
    (lint.links_resolve, linked("https://example.com/")),
    (lint.links_resolve, linked("/d/pinchpoint-nothing?${datasource:queryparam}&${__url_time_range}")),
    (lint.links_resolve, linked("/d/pinchpoint-bottleneck?${datasource:queryparam}")),
    (lint.links_resolve, described("PhaseStalled.md", "Nothing.md")),
    (lint.links_resolve, column_linked("/d/${__data.fields.of}?${datasource:queryparam}&${__url_time_range}")),
    (lint.links_resolve, column_linked("/d/${__data.fields.board}?${datasource:queryparam}&${__url_time_range}")),
    (
        lint.links_resolve,
        column_linked("http://127.0.0.1:9749/docs/${__data.fields.words.text}"),
    ),
    (lint.the_frame_is_shared, lambda found: found.update(graphTooltip=0)),
    (lint.the_frame_is_shared, lambda found: found.pop("refresh")),
    (lint.the_frame_is_shared, lambda found: found["links"][0].update(keepTime=False)),
    (lint.the_frame_is_shared, lambda found: found["links"][0].update(includeVars=False)),
    (lint.the_frame_is_shared, lambda found: found["annotations"]["list"].pop(0)),
    (lint.the_frame_is_shared, annotation(enable=True)),
    (lint.the_frame_is_shared, annotation(useValueForTime=False)),
    (lint.the_frame_is_shared, annotation(titleFormat="{{phase}}", textFormat="{{owner}}")),
    (lint.colours_are_of_the_palette, annotation(iconColor="red")),
    (lint.colours_are_of_the_palette, coloured("a", "#123456")),
    (lint.colours_are_of_the_palette, coloured("a", "semi-dark-red")),
    (
        lint.colours_are_of_the_palette,
        panel(LINES, lambda found: found["fieldConfig"]["defaults"]["color"].update(mode="shades")),
    ),
    (lint.a_class_has_one_colour, coloured("osd", WAITS["mds"])),
    (lint.a_class_has_one_colour, coloured("/^(kv_sync|osd_op)( |$)/", WAITS["mds"], "byRegexp")),
    (lint.limits_are_dashed, panel(LINES, lambda found: found["fieldConfig"]["overrides"].clear())),
]  # fmt: skip


def test_a_good_dashboard_has_no_problem() -> None:
    assert {rule.__name__: problems for rule in RULES if (problems := list(rule(good_board(), world())))} == {}


@pytest.mark.parametrize(
    ("rule", "change"), BAD, ids=[f"{rule.__name__}-{number}" for number, (rule, _) in enumerate(BAD)]
)
def test_a_rule_sees_what_is_wrong(rule: Rule, change: Callable[[dict[str, Any]], object]) -> None:
    found = copy.deepcopy(good_board())
    change(found)

    assert found != good_board()
    assert list(rule(found, world())) != []


def test_every_rule_has_something_that_it_sees() -> None:
    assert {rule for rule, _ in BAD} == set(RULES)


def test_a_link_may_be_made_of_values_that_are_known() -> None:
    found = copy.deepcopy(good_board())
    expr = f'label_replace({BLAME}, "resource", "pinchpoint-bottleneck", "", "")'
    asks(expr, ROWS)(found)
    column_linked("/d/${__data.fields.of}?${datasource:queryparam}&${__url_time_range}")(found)

    assert list(lint.links_resolve(found, world())) == []


@pytest.mark.parametrize(
    "expr",
    [
        "count(pinchpoint_mds_requests_total)",
        "pinchpoint_mds_caps and pinchpoint_mds_requests_total > 0",
        "rate(pinchpoint_mds_requests_total[$__rate_interval]) * 2 or pinchpoint_mds_caps",
    ],
)
def test_a_counter_may_say_what_there_is(expr: str) -> None:
    found = copy.deepcopy(good_board())
    asks(expr)(found)

    assert list(lint.no_counter_is_raw(found, world())) == []


@pytest.mark.parametrize(
    ("name", "colour"), [("osd", WAITS["osd"]), ("kv_sync", WAITS["osd"]), ("anything", "#5BB191"), ("idle", "#9AA0A6")]
)
def test_a_class_may_have_its_colour_and_other_names_any(name: str, colour: str) -> None:
    found = copy.deepcopy(good_board())
    coloured(name, colour)(found)

    assert list(lint.a_class_has_one_colour(found, world())) == []
