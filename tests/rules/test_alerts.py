"""Rules, their promtool tests, their pages and both servers' configurations agree with each other and the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from patience import patience
from pinchpoint.diagnosis.check_fleet import INCOMPARABLE
from pinchpoint.metrics import EXPORTER, JUDGE, TREND
from pinchpoint.threads.roles import load_roles
from polling import until
from serving import QuietHandler, handled

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
RUNBOOKS = ROOT / "runbooks"
COMPOSE = ROOT / "compose"
SCRAPES = ROOT / "tests" / "fixtures" / "ceph" / "mgr_prometheus"

RUNBOOK_URL = "http://127.0.0.1:9749/runbooks/"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "Did not help", "Sources"]
PAGE_LINES = 62
SATURATION = re.compile(
    r'rate\(pinchpoint_resource_saturated_seconds_total\{resource="(?P<resource>\w+)"\}\[15s\]\) > 0\.5'
)
HALF = 0.5
"""Rules test whether something holds for more than half of a window: not a threshold, even if one has this value."""
FOREIGN: dict[str, set[str]] = {
    "up": set(),
    "scrape_duration_seconds": set(),
    "node_cpu_seconds_total": {"cpu", "mode"},
}
"""Metrics of Prometheus itself and of node_exporter that rules and pages may use, with their labels."""
OTHER_RELEASES: dict[str, set[str]] = {
    # src/exporter/DaemonMetricCollector.cc, 18.2.0
    "ceph_exporter_scrape_time": {"host", "function"},
    # The same file, ceph/ceph#60167 (2024), after 19.2.0
    "ceph_daemon_socket_up": {"ceph_daemon", "hostname"},
    # src/pybind/mgr/prometheus/module.py, 17.2.6
    "ceph_cluster_osd_blocklist_count": set(),
}
"""Ceph's metrics that the recorded release lacks: their origin, and since when."""
OTHER_CHECKS = {
    # src/messages/MMDSBeacon.h, mds_metric_name; _MANY is added by src/mds/MDSMap.cc, get_health_checks
    "MDS_CLIENT_RECALL_MANY",
    "MDS_CLIENT_LATE_RELEASE",
    "MDS_CLIENT_LATE_RELEASE_MANY",
    "MDS_READ_ONLY",
    "MDS_DAMAGE",
    # src/mds/FSMap.cc, get_health_checks
    "MDS_INSUFFICIENT_STANDBY",
    "FS_DEGRADED",
    # src/mds/MDSMap.cc, get_health_checks
    "MDS_ALL_DOWN",
    # src/mon/PGMap.cc, get_health_checks
    "TOO_FEW_PGS",
    # src/pybind/mgr/pg_autoscaler/module.py
    "POOL_TOO_FEW_PGS",
}
"""Health checks that were not raised in the recorded states."""
SPOILING = {"ClusterDegradedDuringRun", "MdsReadOnlyOrDamaged", "ClientBlocklisted", "DaemonStuck"}
"""Alerts that make the result of a run void, whatever the run itself reports."""
VOID = SPOILING | {"RunInvalid", "BenchmarkFailed"}
UNSEEN = {"ExporterDown", "CephMetricsAbsent"}
"""Critical alerts: the result is void, or its cause is not visible."""
LONG = {
    "HostsDiffer": "settings do not change during a run",
    "ScrapeTooSlow": "a new target has to collect its first minute",
    "CephMetricsAbsent": "a standby mgr takes over after 30 s (mon_mgr_beacon_grace)",
}
"""Alerts that wait up to a minute, and why."""
RECORDED_LABELS = {
    *("source", "cause"),
    *("benchmark", "run", "slot", "wait", "part", "owner", "resource", "serves", "device", "bdi", "whose", "kind"),
}
"""Labels with which a rule selects recorded series."""
TARGET_LABELS = {"job", "instance", "group", "cluster"}

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
"""The server's name in Debian, and its upstream name."""
alertmanager = pytest.mark.skipif(ALERTMANAGER is None, reason="Alertmanager is not installed")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Rule:
    file: Path
    alert: str
    expr: str
    wait: int
    labels: dict[str, str]
    annotations: dict[str, str]

    def __str__(self) -> str:
        return "-".join(filter(None, (self.alert, self.labels["severity"], self.labels.get("reason"))))

    @property
    def resource(self) -> str | None:
        """The resource of a rule that says "full more than half of the last 15 s", perhaps with more conditions."""
        found = SATURATION.match(self.expr)
        return found["resource"] if found else None


def read_groups() -> list[tuple[Path, dict[str, Any]]]:
    """Return each rule, including recording rules, with its file."""
    return [
        (file, rule)
        for file in sorted(ALERTS.glob("*.yml"))
        for group in yaml.load(file.read_text(), yaml.CSafeLoader)["groups"]
        for rule in group["rules"]
    ]


def read_rules() -> list[Rule]:
    return [
        Rule(
            file=file,
            alert=rule["alert"],
            expr=rule["expr"],
            wait=seconds(rule["for"]),
            labels=rule["labels"],
            annotations=rule["annotations"],
        )
        for file, rule in read_groups()
        if "alert" in rule
    ]


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)(s|m)", text)
    assert found, f"{text!r} is not a duration"
    return int(found[1]) * (60 if found[2] == "m" else 1)


RULES = read_rules()
RECORDED = {rule["record"]: rule["expr"] for _, rule in read_groups() if "record" in rule}
NAMES = sorted({rule.alert for rule in RULES})
PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page.stem != "README")
PROMTOOL_TESTS = sorted((ALERTS / "tests").glob("*.yml"))

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
each_name = pytest.mark.parametrize("name", NAMES)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


KEYWORDS = {"and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}


def without_strings(expr: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)


def metric_names(expr: str) -> set[str]:
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", without_strings(expr))
    text = re.sub(r"\b(on|ignoring|by|without|group_left|group_right)\s*\([^)]*\)", " ", text)
    words = re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)(\s*\()?", text)
    return {word for word, call in words if not call and word.lower() not in KEYWORDS}


def selectors(expr: str) -> list[tuple[str, dict[str, str]]]:
    """Return each metric that is selected by labels, with the values in its matchers."""
    matcher = r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"'
    # A brace may be part of a string, so strings are skipped too.
    found = re.findall(r'([a-zA-Z_:][\w:]*)\{((?:"(?:[^"\\]|\\.)*"|[^}"])*)\}', expr)
    return [(name, dict(re.findall(matcher, inside))) for name, inside in found]


def numbers(expr: str) -> set[float]:
    text = re.sub(r"\[[^]]*\]", " ", without_strings(expr))
    return {float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", text)}


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@cache
def known_labels() -> dict[str, set[str]]:
    """Return the labels of every metric that a rule or a page may query."""
    metrics = (*EXPORTER, *JUDGE, *TREND)
    own = {metric.name: set(metric.labels) for metric in metrics}
    rules = {"ALERTS": {"alertname", "alertstate", "severity", "layer"}} | dict.fromkeys(RECORDED, RECORDED_LABELS)
    return FOREIGN | recorded_labels() | OTHER_RELEASES | rules | own


@cache
def recorded_series() -> list[tuple[str, dict[str, str]]]:
    """Return the series that Ceph's mgr had in the recording."""
    text = "".join(file.read_text() for file in sorted(SCRAPES.glob("*.prom")))
    return [
        (sample.name, sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples
    ]


def recorded_labels() -> dict[str, set[str]]:
    labels: dict[str, set[str]] = {}
    for name, series in recorded_series():
        labels.setdefault(name, set()).update(series)
    return labels


def unknown_parts(expr: str) -> set[str]:
    """Return the metrics of an expression that are not exported, and the labels that a metric does not have."""
    known = known_labels()
    names = {name for name in metric_names(expr) if name not in known}
    return names | {
        f"{name}{{{label}}}"
        for name, matchers in selectors(expr)
        for label in matchers
        if name in known and label not in known[name] | TARGET_LABELS
    }


def own_thresholds(rule: Rule) -> set[float]:
    """Return the thresholds that a rule could repeat: those of resources and roles, and its own."""
    known = load_roles()
    own = {known.alerts[rule.alert]} if rule.alert in known.alerts else set()
    return {*known.thresholds.values(), *own}


def text_queries(rule: Rule) -> list[str]:
    """Return the queries in labels and annotations, with a word in place of each template value."""
    texts = " ".join([*rule.labels.values(), *rule.annotations.values()])
    return [query.replace("%q", '"x"') for query in re.findall(r"`([^`]+)`", texts)]


def test_hosts_are_compared_in_the_same_facts_as_by_the_check() -> None:
    (rule,) = (rule for rule in read_rules() if rule.alert == "HostsDiffer")
    (left_out,) = set(re.findall(r'fact!~"([^"]*)"', rule.expr))
    own_checks = {"mtu", "mtu_members"}

    for name in ("network:10.0.0.0/8", *sorted(set(INCOMPARABLE) - own_checks)):
        assert re.fullmatch(left_out, name), name
    assert not any(re.fullmatch(left_out, name) for name in ("governor", "kernel", *own_checks))


def test_the_helpers_see_what_an_expression_is_made_of() -> None:
    expr = 'sum by (a) (rate(x_total{b=~"c}d|0.7", e!="f"}[15s])) > on (a) group_left () y{g="h"} * 2e-3 unless z'
    assert metric_names(expr.replace("}d", "")) == {"x_total", "y", "z"}
    assert selectors(expr) == [("x_total", {"b": "c}d|0.7", "e": "f"}), ("y", {"g": "h"})]
    assert numbers(expr) == {0.002}


def test_the_recorded_scrapes_have_what_a_metric_is_asked_for_by() -> None:
    labels = recorded_labels()

    assert labels["ceph_pg_degraded"] == {"pool_id"}
    assert labels["ceph_health_detail"] == {"name", "severity"}
    assert labels["ceph_health_status"] == set()
    assert not set(OTHER_RELEASES) & set(labels)
    assert unknown_parts('ceph_pg_degraded{pool="1"} > ceph_pg_bad') == {"ceph_pg_degraded{pool}", "ceph_pg_bad"}


@promtool
def test_promtool_accepts_the_rules() -> None:
    run("promtool", "check", "rules", *ALERTS.glob("*.yml"))


@promtool
@pytest.mark.parametrize("file", PROMTOOL_TESTS, ids=lambda file: file.stem)
def test_rules_fire_and_stay_silent_as_their_tests_say(file: Path) -> None:
    run("promtool", "test", "rules", file)


@each_rule
def test_no_label_of_a_rule_depends_on_what_runs(rule: Rule) -> None:
    """Else the alert would end with every phase, and begin its `for` anew under another name."""
    assert not any("_active" in value for value in rule.labels.values())


@each_rule
def test_a_rule_says_who_why_and_what_to_read(rule: Rule) -> None:
    assert rule.labels["severity"] in ("info", "warning", "critical")
    assert rule.labels["layer"] == rule.file.stem
    assert set(rule.annotations) == {"summary", "description", "phases", "runbook_url"}
    assert "$labels." in rule.annotations["summary"]
    assert rule.annotations["description"].endswith((".", "{{- end }}"))
    assert rule.annotations["runbook_url"] == f"{RUNBOOK_URL}{rule.alert}.md"


def test_critical_is_what_makes_a_result_void_or_hides_where_it_comes_from() -> None:
    assert {rule.alert for rule in RULES if rule.labels["severity"] == "critical"} == VOID | UNSEEN


@each_rule
def test_a_rule_waits_10_to_30_seconds_unless_there_is_a_reason_to_wait_longer(rule: Rule) -> None:
    assert 10 <= rule.wait <= (60 if rule.alert in LONG else 30)


@each_rule
def test_a_rule_uses_only_metrics_and_labels_that_are_exported(rule: Rule) -> None:
    assert unknown_parts(rule.expr) == set()


@each_rule
def test_the_texts_of_an_alert_ask_only_for_metrics_and_labels_that_are_exported(rule: Rule) -> None:
    assert [unknown_parts(query) for query in text_queries(rule)] == [set()] * len(text_queries(rule))


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_rule_uses_only_metrics_and_labels_that_are_exported(name: str) -> None:
    assert unknown_parts(RECORDED[name]) == set()


@each_rule
def test_a_rule_asks_for_health_checks_that_ceph_has(rule: Rule) -> None:
    checks = OTHER_CHECKS | {series["name"] for name, series in recorded_series() if name == "ceph_health_detail"}
    for name, matchers in selectors(rule.expr):
        if name == "ceph_health_detail":
            for wanted in matchers["name"].split("|"):
                assert any(re.fullmatch(wanted, check) for check in checks), wanted


@each_rule
def test_a_rule_names_resources_and_thresholds_that_the_roles_file_has(rule: Rule) -> None:
    known = load_roles()
    for name, matchers in selectors(rule.expr):
        if name.startswith("pinchpoint_resource_"):
            assert matchers["resource"] in known.thresholds
        if name == "pinchpoint_alert_threshold":
            assert matchers["alert"] == rule.alert
            assert rule.alert in known.alerts


@each_rule
def test_no_rule_repeats_a_threshold(rule: Rule) -> None:
    assert not numbers(rule.expr) & (own_thresholds(rule) - {HALF})
    assert "pinchpoint_resource_threshold_ratio" not in rule.expr, "the exporter has already compared"


def test_every_threshold_of_the_roles_file_belongs_to_an_alert_that_uses_it() -> None:
    using = {rule.alert for rule in RULES if f'pinchpoint_alert_threshold{{alert="{rule.alert}"}}' in rule.expr}
    assert set(load_roles().alerts) == using


@promtool
def test_saturation_reaches_an_alert_within_15_s_and_its_waiting_time(tmp_path: Path) -> None:
    """The load starts between two scrapes at 20 s and ends at 90 s."""
    # The load in the kswapd warning consists of two series: see the promtool tests.
    rules = [rule for rule in RULES if rule.resource and str(rule) != "KswapdSaturated-warning"]
    alone = [{"alert": rule.alert, "expr": rule.expr, "for": f"{rule.wait}s", "labels": rule.labels} for rule in rules]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "alone", "rules": alone}]}))
    tests = []
    for rule in rules:
        series = f'pinchpoint_resource_saturated_seconds_total{{instance="a",resource="{rule.resource}",owner="o"}}'
        tests.append(
            {
                "interval": "2s",
                "input_series": [{"series": series, "values": "0x9 1+2x35 71x30"}],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{rule.alert}",alertstate="firing"}})',
                        "eval_time": f"{at}s",
                        "exp_samples": [{"value": 1}] if firing else [],
                    }
                    for at, firing in ((20 + rule.wait, False), (20 + 15 + rule.wait, True), (90, True), (105, False))
                ],
            }
        )
    assert len(tests) >= 11
    file = tmp_path / "timing.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": ["rules.yml"],
                "evaluation_interval": "2s",
                "tests": tests,
            }
        )
    )
    run("promtool", "test", "rules", file)


LATENCY_PHASES = """
    ior_hard_write ior_hard_read mdtest_hard_write mdtest_easy_stat mdtest_hard_stat mdtest_easy_delete fsync_write
    4k_sync_write_1 randread rand_write RANDOM_READ rnd4K latency stat
"""
OTHER_PHASES = """
    ior_easy_write ior_easy_read mdtest_easy_write seqwrite seq_read randseq write read run steady_state libaio_async
    hardware_check grand_total flat
"""
MEASURING_PHASES = """
    ior_easy_write mdtest_hard_stat mdtest_easy_delete find write seq rand randread file_creation file_removal
    directory_stat mdworkbench_create mdworkbench_delete run rewrite reread
"""
PREPARING_PHASES = "timestamp cleanup rados_cleanup remove setup prepare layout tree_creation tree_removal"


@pytest.mark.parametrize("phase", LATENCY_PHASES.split())
def test_phases_bound_by_latency_are_known_by_name(phase: str) -> None:
    assert is_latency_phase(phase)


@pytest.mark.parametrize("phase", OTHER_PHASES.split())
def test_bandwidth_phases_and_unknown_ones_get_no_advice_about_idle_states(phase: str) -> None:
    assert not is_latency_phase(phase)


@pytest.mark.parametrize("phase", MEASURING_PHASES.split())
def test_a_phase_that_measures_can_be_too_short(phase: str) -> None:
    assert not re.fullmatch(short_on_purpose(), phase)


@pytest.mark.parametrize("phase", PREPARING_PHASES.split())
def test_a_phase_that_prepares_or_cleans_up_may_be_short(phase: str) -> None:
    assert re.fullmatch(short_on_purpose(), phase)


def short_on_purpose() -> str:
    (expr,) = (rule.expr for rule in RULES if rule.alert == "PhaseTooShort")
    (matchers,) = (matchers for name, matchers in selectors(expr) if name == "pinchpoint_phase_elapsed_seconds")
    return matchers["phase"]


def test_a_run_is_invalid_by_every_alert_that_makes_results_void_and_names_it() -> None:
    expr = RECORDED["pinchpoint:run_void:timestamp_seconds"]
    asked = [matchers for name, matchers in selectors(expr) if name == "ALERTS"]
    assert {matchers["alertname"] for matchers in asked} == SPOILING
    assert {(matchers["alertstate"], matchers["severity"]) for matchers in asked} == {("firing", "critical")}
    assert re.findall(r'"cause", "(\w+)"', expr) == [matchers["alertname"] for matchers in asked]


def is_latency_phase(phase: str) -> bool:
    (expr,) = (rule.expr for rule in RULES if rule.alert == "DeepIdleInLatencyPhase")
    wanted = re.search(r'phase=~"([^"]*)"', expr)
    unwanted = re.search(r'phase!~"([^"]*)"', expr)
    assert wanted
    assert unwanted
    return bool(re.fullmatch(wanted[1], phase)) and not re.fullmatch(unwanted[1], phase)


@cache
def promtool_tests() -> list[dict[str, Any]]:
    """Return the content of all test files; reading them takes a second."""
    return [test for file in PROMTOOL_TESTS for test in yaml.load(file.read_text(), yaml.CSafeLoader)["tests"]]


def promtool_cases() -> Iterator[tuple[str, bool]]:
    for test in promtool_tests():
        for case in test.get("alert_rule_test", []):
            yield case["alertname"], bool(case.get("exp_alerts"))


@each_name
def test_an_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    assert {fires for alert, fires in promtool_cases() if alert == name} == {True, False}


@each_rule
def test_every_variant_of_an_alert_has_a_test_in_which_it_fires(rule: Rule) -> None:
    fired = [
        alert["exp_labels"]
        for test in promtool_tests()
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == rule.alert
        for alert in case.get("exp_alerts", [])
    ]
    constant = {key: value for key, value in rule.labels.items() if "{{" not in value}
    assert any(constant.items() <= labels.items() for labels in fired)


def test_every_recording_rule_has_a_test() -> None:
    asked = {
        case["expr"]
        for test in promtool_tests()
        for case in test.get("promql_expr_test", [])
        if case.get("exp_samples")
    }
    assert asked >= set(RECORDED)


def test_every_test_is_about_an_alert_that_exists() -> None:
    assert {alert for alert, _ in promtool_cases()} == set(NAMES)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert [page.stem for page in PAGES] == NAMES


def test_the_index_of_pages_names_the_alerts_that_only_a_ceph_manager_can_raise() -> None:
    def by_manager(rule: Rule) -> bool:
        return all(name.startswith("ceph_") for name in metric_names(rule.expr) - {"pinchpoint_phase_active"})

    named = (RUNBOOKS / "README.md").read_text().split("can raise ")[1].split(". ")[0]
    alerts = {name for name in NAMES if all(by_manager(rule) for rule in RULES if rule.alert == name)}
    assert set(re.findall(r"[A-Z]\w+", named)) == alerts


@each_page
def test_a_page_has_its_headings_in_order_and_fits_a_screen_or_two(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert lines[0] == f"# {page.stem}"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADINGS
    assert len(lines) <= PAGE_LINES
    sections = re.split(r"^## .*$", page.read_text(), flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections)
    assert not re.search(r"\b(TODO|FIXME|TBD)\b", page.read_text())


@each_page
def test_a_default_that_a_page_names_is_the_threshold(page: Path) -> None:
    known = load_roles()
    meaning = " ".join(page.read_text().partition("## Meaning")[2].partition("## Impact")[0].split())
    exprs = " ".join(rule.expr for rule in RULES if rule.alert == page.stem)
    resources = [name for names in re.findall(r'resource=~?"([\w|]+)"', exprs) for name in names.split("|")]
    thresholds = {known.thresholds[name] for name in resources if name in known.thresholds}
    thresholds |= {known.alerts[page.stem]} if page.stem in known.alerts else set()

    for number, percent in re.findall(r"(\d+(?:\.\d+)?)( %)?[^\d(]*\(default\)", meaning):
        assert any(float(number) == pytest.approx(one * (100 if percent else 1)) for one in thresholds), number


@each_page
def test_a_page_has_a_query_and_a_command_to_paste_and_says_how_to_undo(page: Path) -> None:
    diagnosis = page.read_text().split("## Diagnosis")[1].split("## Mitigation")[0]
    mitigation = page.read_text().split("## Mitigation")[1].split("## Did not help")[0]
    assert "```promql\n" in diagnosis
    assert "```sh\n" in diagnosis
    assert "undo" in mitigation.lower()


@each_page
def test_a_page_links_only_to_pages_that_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", prose):
        assert (page.parent / target).is_file(), target


@each_page
def test_the_commands_of_a_page_are_valid_shell(page: Path) -> None:
    for block in code_blocks(page, "sh"):
        done = subprocess.run(
            ["bash", "-n"], input=block, capture_output=True, text=True, timeout=patience(10), check=False
        )
        assert done.returncode == 0, done.stderr


@each_page
def test_the_queries_of_a_page_use_only_metrics_and_labels_that_are_exported(page: Path) -> None:
    for block in code_blocks(page, "promql"):
        assert unknown_parts(block) == set()


@promtool
def test_the_queries_of_all_pages_can_be_parsed(tmp_path: Path) -> None:
    queries = [block for page in [*PAGES, RUNBOOKS / "README.md"] for block in code_blocks(page, "promql")]
    records = [{"record": f"page:query:number{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "pages", "rules": records}]}))
    run("promtool", "check", "rules", file)


@promtool
def test_promtool_accepts_the_configuration_of_prometheus_with_rules_and_targets_beside_it(tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "prometheus.yml", tmp_path)
    shutil.copytree(COMPOSE / "targets", tmp_path / "targets")
    shutil.copytree(ALERTS, tmp_path / "rules")
    said = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert f"SUCCESS: {len(list(ALERTS.glob('*.yml')))} rule files found" in said


def scrape_jobs(text: str) -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}


def test_prometheus_scrapes_as_often_as_the_rules_need_and_every_targets_file_exists() -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    assert config["global"]["scrape_interval"] == config["global"]["evaluation_interval"] == "2s"
    jobs = scrape_jobs((COMPOSE / "prometheus.yml").read_text())
    assert set(jobs) == {
        "pinchpoint",
        "pinchpoint-judge",
        "node",
        "ceph",
        "ceph-exporter",
        "prometheus",
        "alertmanager",
    }
    assert "scrape_interval" not in jobs["pinchpoint"]
    assert jobs["ceph"]["honor_labels"], "the module's label instance is the host of a disk"
    discoveries = [
        discovery
        for part in [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
        for discovery in part["file_sd_configs"]
    ]
    files = {file for discovery in discoveries for file in discovery["files"]}
    named = {f"targets/{file.name}" for file in (COMPOSE / "targets").iterdir()}
    # The local stack writes the others, for its own components.
    parts = ("pinchpoint", "judge", "node", "prometheus", "alertmanager")
    assert files - named == {f"local/{name}.yml" for name in parts}
    assert named <= files
    for file in named:
        assert yaml.safe_load((COMPOSE / file).read_text()) == [], "a list has no hosts or clusters by default"


def with_cephadm() -> str:
    """Return Prometheus' configuration with the option from its comments: discovery by cephadm."""
    return re.sub(r"^(    )# ( *(?:- )?\w+:.*)$", r"\1\2", (COMPOSE / "prometheus.yml").read_text(), flags=re.MULTILINE)


class Cephadm(QuietHandler, BaseHTTPRequestHandler):
    """Answers as src/pybind/mgr/cephadm/service_discovery.py does."""

    answers: ClassVar[dict[str, Any]] = {
        "mgr-prometheus": [{"targets": ["mgr1:9283"], "labels": {}}],
        "node-exporter": [{"targets": ["10.0.0.1:9100"], "labels": {"instance": "osd1"}}],
        "ceph-exporter": [{"targets": ["10.0.0.1:9926"], "labels": {"instance": "osd1"}}],
    }

    def do_GET(self) -> None:
        path, _, service = self.path.partition("?service=")
        self.send_response(200 if path == "/sd/prometheus/sd-config" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(self.answers[service]).encode())


@promtool
def test_the_discovery_that_the_configuration_offers_finds_managers_exporters_and_hosts(tmp_path: Path) -> None:
    with handled(Cephadm) as address:
        text = re.sub(r"http://MGR\d:8765/", f"http://{address}/", with_cephadm())
        (tmp_path / "prometheus.yml").write_text(text)
        shutil.copytree(COMPOSE / "targets", tmp_path / "targets")
        (tmp_path / "targets" / "pinchpoint.yml").write_text("- targets: [client1:19748]\n")
        shutil.copytree(ALERTS, tmp_path / "rules")

        def found(job: str) -> set[tuple[str, str]]:
            command = ["promtool", "check", "service-discovery", "--timeout=2s", str(tmp_path / "prometheus.yml"), job]
            targets = [target["labels"] for target in json.loads(run(*command))]
            return {(labels["__address__"], labels["instance"]) for labels in targets}

        assert found("ceph") == {("mgr1:9283", "mgr1:9283")}
        assert found("ceph-exporter") == {("10.0.0.1:9926", "osd1")}
        # The targets in the file keep their port.
        assert found("pinchpoint") == {("10.0.0.1:9748", "osd1"), ("client1:19748", "client1:19748")}


@amtool
def test_amtool_accepts_the_configuration_of_alertmanager() -> None:
    run("amtool", "check-config", COMPOSE / "alertmanager.yml")


@amtool
@each_rule
def test_every_alert_is_routed_to_the_screen(rule: Rule) -> None:
    labels = [f"{key}={value}" for key, value in rule.labels.items() if "{{" not in value]
    config = f"--config.file={COMPOSE / 'alertmanager.yml'}"
    run("amtool", "config", "routes", "test", config, "--verify.receivers=screen", f"alertname={rule.alert}", *labels)


def inhibitions() -> list[tuple[set[str], set[str], dict[str, Any]]]:
    """Return the names of causes and of symptoms of each inhibition; an absent name stands for all alerts."""

    def names(matchers: list[str]) -> set[str]:
        found = re.findall(r"^alertname\s*=~?\s*\"?([\w|]+)\"?$", "\n".join(matchers), re.MULTILINE)
        return {name for group in found for name in group.split("|")} or set(NAMES)

    rules = yaml.safe_load((COMPOSE / "alertmanager.yml").read_text())["inhibit_rules"]
    return [(names(rule["source_matchers"]), names(rule["target_matchers"]), rule) for rule in rules]


def test_alerts_of_a_run_are_one_group_and_all_are_inhibited_only_by_and_for_alerts_that_exist() -> None:
    config = yaml.safe_load((COMPOSE / "alertmanager.yml").read_text())
    assert config["route"]["group_by"] == ["run", "phase"]
    for causes, symptoms, _ in inhibitions():
        assert causes | symptoms <= set(NAMES)


def test_a_cause_and_its_symptom_are_of_one_host_or_cluster_or_the_symptom_names_none() -> None:
    for _, _, rule in inhibitions():
        assert {"instance", "cluster"} & set(rule.get("equal", [])) or 'cluster = ""' in rule["target_matchers"]


def test_only_what_is_critical_hides_what_is_critical() -> None:
    critical = VOID | UNSEEN
    for causes, symptoms, _ in inhibitions():
        assert causes <= critical or not symptoms & critical


@pytest.fixture(scope="module")
def alertmanager_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("alertmanager")
    log = folder / "log"
    command = [
        ALERTMANAGER or "",
        f"--config.file={COMPOSE / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
        "--log.format=json",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        address = until(20, lambda: listening(log))
        assert address, f"Alertmanager does not listen:\n{log.read_text()}"
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=patience(10))


def listening(log: Path) -> str:
    for line in log.read_text().splitlines():
        entry = json.loads(line) if line.endswith("}") else {}
        if entry.get("msg") == "Listening on":
            return str(entry["address"])
    return ""


def send(url: str, alerts: list[dict[str, str]], end: datetime) -> None:
    times = {"startsAt": (end - timedelta(hours=2)).isoformat(), "endsAt": end.isoformat()}
    body = json.dumps([{"labels": labels, **times} for labels in alerts]).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=patience(10)).close()


def suppressed(url: str, alerts: list[dict[str, str]]) -> set[str]:
    """Send alerts to Alertmanager; return those that it inhibits. They then end, so as not to affect later ones."""
    # Inhibition processes alerts in the order of sending: once it knows the last pair, it knows all.
    host = uuid.uuid4().hex
    last = [{"alertname": name, "instance": host} for name in ("ExporterDown", "DiskSaturated")]
    now = datetime.now(UTC)
    send(url, alerts + last, now + timedelta(hours=1))

    def inhibited() -> list[dict[str, str]]:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=patience(10)) as answer:
            return [alert["labels"] for alert in json.load(answer) if alert["status"]["inhibitedBy"]]

    assert until(20, lambda: last[1] in inhibited()), "Alertmanager did not inhibit what it should"
    found = [labels for labels in inhibited() if labels in alerts]
    send(url, alerts + last, now)
    return {
        "-".join(filter(None, (labels["alertname"], labels.get("reason"), labels.get("owner")))) for labels in found
    }


@alertmanager
@pytest.mark.parametrize(
    ("alerts", "hidden"),
    [
        pytest.param(
            ["ExporterDown", "DiskSaturated owner=vda", "SamplerLate probe=tasks"],
            {"DiskSaturated-vda", "SamplerLate"},
            id="a blind host hides what was last seen of it",
        ),
        pytest.param(
            [
                "RunQueueWaitHigh resource=benchmark owner=fio",
                "BenchmarkThreadSaturated resource=benchmark owner=fio",
                "BenchmarkThreadSaturated resource=benchmark owner=ior",
                "WritebackWorkerSaturated resource=writeback_worker owner=fio",
            ],
            {"BenchmarkThreadSaturated-fio"},
            id="waiting for a CPU hides the thread that waits, and no other",
        ),
        pytest.param(
            ["GovernorPowersave", "FrequencyCapped reason=clock", "FrequencyCapped reason=turbo"],
            {"FrequencyCapped-clock"},
            id="a governor hides the slow clock and not the switched-off turbo",
        ),
        pytest.param(
            ["FrequencyCapped reason=clock", "FrequencyCapped reason=frequency_limit"],
            {"FrequencyCapped-clock"},
            id="a limit hides the slow clock it explains",
        ),
        pytest.param(
            ["ProbeFailing probe=tasks", "SamplerLate probe=tasks"],
            {"SamplerLate"},
            id="a failing probe hides its lost samples",
        ),
        pytest.param(
            ["ProbeFailing probe=memory", "SamplerLate probe=tasks"],
            set(),
            id="a failing probe does not hide another's lost samples",
        ),
        pytest.param(
            [
                "DiskSaturated resource=disk owner=vda",
                "WritebackWorkerSaturated resource=writeback_worker owner=254:0",
                "KswapdSaturated resource=kswapd owner=node0",
                "NicSaturated resource=link owner=eth0",
                "SoftirqSaturated resource=softirq_cpu owner=host",
            ],
            set(),
            id="limits that stand side by side are all shown",
        ),
        pytest.param(
            [
                "RunQueueWaitHigh resource=mds_lock owner=mds.a",
                "MdsLockSaturated resource=mds_lock owner=mds.a cluster=c1",
                "MdsLockSaturated resource=mds_lock owner=mds.b cluster=c1",
                "RunQueueWaitHigh resource=kv_sync owner=osd.0",
                "KvSyncSaturated resource=kv_sync owner=osd.0",
                "KvSyncSaturated resource=kv_commit owner=osd.1",
                "OsdOpThreadsSaturated resource=osd_op owner=osd.0",
            ],
            {"MdsLockSaturated-mds.a", "KvSyncSaturated-osd.0"},
            id="waiting for a CPU hides a full thread of Ceph, and no other",
        ),
        pytest.param(
            [
                "DaemonStuck daemon=osd.3 cluster=c1",
                "MdsSlowMetadataIO instance= cluster=c1",
                "MdsSlowRequest instance= cluster=c2",
                "MdsTrimBehind instance=mds1 daemon=mds.a cluster=c1",
                "InflightCollapsed instance=client1 client=ceph-1",
            ],
            {"MdsSlowMetadataIO", "MdsTrimBehind", "InflightCollapsed"},
            id="a stuck OSD on one host hides what waits for it on others of its cluster",
        ),
        pytest.param(
            ["DaemonStuck daemon=osd.3 cluster=c1", "MdsSlowRequest instance=", "OsdSlowOps instance="],
            {"MdsSlowRequest", "OsdSlowOps"},
            id="figures without a cluster are of the one there is",
        ),
        pytest.param(
            [
                "DaemonStuck daemon=mds.a cluster=c1",
                "MdsSlowMetadataIO instance= cluster=c1",
                "DaemonBlind reason=socket",
            ],
            set(),
            id="a stuck MDS does not make OSDs slow",
        ),
        pytest.param(
            [
                "ClusterDegradedDuringRun instance= cluster=c1",
                "OsdSlowOps instance= cluster=c1",
                "PgImbalance instance= cluster=c1 device_class=ssd",
                "MdsSlowRequest instance= cluster=c1",
                "PgImbalance instance= cluster=c2 owner=other",
                "DiskSaturated resource=disk owner=vda",
            ],
            {"OsdSlowOps", "PgImbalance", "MdsSlowRequest"},
            id="a degraded cluster hides slowness and imbalance of its own, along the chain, and no limit of a host",
        ),
        pytest.param(
            [
                "MdsCacheOversized daemon=mds.a cluster=c1",
                "MdsCacheNearLimit daemon=mds.a cluster=c1 owner=a",
                "MdsCacheNearLimit daemon=mds.b cluster=c1 owner=b",
                "MdsClientRecall instance= cluster=c1",
                "MdsTrimBehind daemon=mds.a cluster=c1",
                "MdsJournalGrowing daemon=mds.a cluster=c1 owner=a",
                "MdsJournalGrowing daemon=mds.b cluster=c1 owner=b",
            ],
            {"MdsCacheNearLimit-a", "MdsClientRecall", "MdsJournalGrowing-a"},
            id="the higher degree hides the lower one of the same MDS, and the recall that follows",
        ),
        pytest.param(
            ["MdsClientLateRelease instance= cluster=c1", "MdsSlowRequest instance= cluster=c1"],
            {"MdsSlowRequest"},
            id="a client that keeps a cap hides the requests that wait for it",
        ),
        pytest.param(
            [
                "ClientBlocklisted client=ceph-1",
                "InflightCollapsed client=ceph-1 owner=1",
                "InflightCollapsed client=ceph-2 owner=2",
            ],
            {"InflightCollapsed-1"},
            id="a mount that was shut out hides that it sends nothing",
        ),
        pytest.param(
            ["ExporterDown instance=", "CephMetricsAbsent instance= reason=absent cluster=c1"],
            set(),
            id="that no host is seen hides no cluster",
        ),
        pytest.param(
            ["CephMetricsAbsent instance= reason=stale", "OsdSlowOps instance=", "MdsTrimBehind daemon=mds.a"],
            set(),
            id="a manager that does not answer hides nothing",
        ),
        pytest.param(
            [
                "PhaseStalled run=r phase=write owner=1",
                "PhaseOverrun run=r phase=write",
                "ThroughputDecay run=r phase=write",
                "ThroughputDecay run=s phase=write owner=2",
            ],
            {"PhaseOverrun", "ThroughputDecay"},
            id="a phase that stands still hides that it is late and slow",
        ),
        pytest.param(
            [
                "BenchmarkFailed run=r",
                "RunInvalid run=r reason=benchmark owner=1",
                "RunInvalid run=r reason=alert owner=2",
            ],
            {"RunInvalid-benchmark-1"},
            id="a run that failed has no result to call invalid",
        ),
        pytest.param(
            ["DaemonStuck daemon=osd.0 instance=b cluster=c1", "PhaseStalled run=r phase=write"],
            {"PhaseStalled"},
            id="a stuck daemon hides the phase that waits for it",
        ),
    ],
)
def test_causes_inhibit_their_symptoms(alertmanager_url: str, alerts: list[str], hidden: set[str]) -> None:
    """All are from one host, except where `instance` says otherwise: alerts about a cluster have no instance."""
    labels = []
    for alert in alerts:
        name, *pairs = alert.split()
        named = {"alertname": name, "instance": "a"} | dict(pair.split("=", maxsplit=1) for pair in pairs)
        labels.append({label: value for label, value in named.items() if value})
    assert suppressed(alertmanager_url, labels) == hidden


@alertmanager
def test_a_cause_on_one_host_hides_nothing_on_another(alertmanager_url: str) -> None:
    alerts = [{"alertname": "ExporterDown", "instance": "x"}, {"alertname": "DiskSaturated", "instance": "y"}]
    assert suppressed(alertmanager_url, alerts) == set()
