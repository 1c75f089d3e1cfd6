"""Rules, their promtool tests, their pages and both servers' configurations agree with each other and the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from pinchpoint import roles

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
RUNBOOKS = ROOT / "runbooks"
COMPOSE = ROOT / "compose"

RUNBOOK_URL = "https://github.com/pinchpoint/pinchpoint/blob/main/runbooks/"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "Did not help", "Sources"]
PAGE_LINES = 60
SATURATION = re.compile(
    r'rate\(pinchpoint_resource_saturated_seconds_total\{resource="(?P<resource>\w+)"\}\[15s\]\) > 0\.5'
)
HALF = 0.5
"""Rules ask whether something holds for more than half of a window: no threshold, though one may have this value."""
FOREIGN = {"up", "scrape_duration_seconds", "node_cpu_seconds_total"}
"""Metrics of Prometheus itself and of node_exporter that rules and pages may use."""
TARGET_LABELS = {"job", "instance", "group"}

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
"""Debian's name of the server, and its own."""
alertmanager = pytest.mark.skipif(ALERTMANAGER is None, reason="Alertmanager is not installed")

T = TypeVar("T")


@dataclass(frozen=True)
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
        """The resource of a rule that says "full more than half of the last 15 s", and maybe more."""
        found = SATURATION.match(self.expr)
        return found["resource"] if found else None


def read_rules() -> list[Rule]:
    return [
        Rule(file, rule["alert"], rule["expr"], seconds(rule["for"]), rule["labels"], rule["annotations"])
        for file in sorted(ALERTS.glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)(s|m)", text)
    assert found, f"{text!r} is no duration"
    return int(found[1]) * (60 if found[2] == "m" else 1)


RULES = read_rules()
NAMES = sorted({rule.alert for rule in RULES})
PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page.stem != "README")
PROMTOOL_TESTS = sorted((ALERTS / "tests").glob("*.yml"))

each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
each_name = pytest.mark.parametrize("name", NAMES)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- What an expression is made of: enough of PromQL's grammar for names, labels and numbers.

KEYWORDS = {"and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}


def without_strings(expr: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)


def metric_names(expr: str) -> set[str]:
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", without_strings(expr))
    text = re.sub(r"\b(on|ignoring|by|without|group_left|group_right)\s*\([^)]*\)", " ", text)
    words = re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)(\s*\()?", text)
    return {word for word, call in words if not call and word.lower() not in KEYWORDS}


def selectors(expr: str) -> list[tuple[str, dict[str, str]]]:
    """Return each metric that is selected by labels, with what its matchers compare with."""
    matcher = r'(\w+)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"'
    # A brace may stand inside a string, so strings are part of what is skipped.
    found = re.findall(r'([a-zA-Z_:][\w:]*)\{((?:"(?:[^"\\]|\\.)*"|[^}"])*)\}', expr)
    return [(name, dict(re.findall(matcher, inside))) for name, inside in found]


def numbers(expr: str) -> set[float]:
    text = re.sub(r"\[[^]]*\]", " ", without_strings(expr))
    return {float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", text)}


def code_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def exported_labels() -> dict[str, set[str]]:
    from pinchpoint import catalogue  # imported here: the other tests of rules need no probe

    return {metric.name: set(metric.labels) for metric in catalogue.all_metrics()}


def file_thresholds() -> set[float]:
    """Return every threshold of the roles file."""
    file = tomllib.loads(Path(roles.__file__).with_name("roles.toml").read_text())
    entries = [file, *file["role"], *file["resource"].values()]
    return {entry["threshold"] for entry in entries if "threshold" in entry} | set(file["alert"].values())


def test_the_helpers_see_what_an_expression_is_made_of() -> None:
    expr = 'sum by (a) (rate(x_total{b=~"c}d|0.7", e!="f"}[15s])) > on (a) group_left () y{g="h"} * 2e-3 unless z'
    assert metric_names(expr.replace("}d", "")) == {"x_total", "y", "z"}
    assert selectors(expr) == [("x_total", {"b": "c}d|0.7", "e": "f"}), ("y", {"g": "h"})]
    assert numbers(expr) == {0.002}


# ---- Rules.


@promtool
def test_promtool_accepts_the_rules() -> None:
    run("promtool", "check", "rules", *ALERTS.glob("*.yml"))


@promtool
@pytest.mark.parametrize("file", PROMTOOL_TESTS, ids=lambda file: file.stem)
def test_rules_fire_and_stay_silent_as_their_tests_say(file: Path) -> None:
    run("promtool", "test", "rules", file)


@each_rule
def test_a_rule_says_who_why_and_what_to_read(rule: Rule) -> None:
    assert rule.labels["severity"] in ("info", "warning", "critical")
    assert rule.labels["layer"] == {"host.yml": "host", "fleet.yml": "fleet"}.get(rule.file.name, "pinchpoint")
    assert "pinchpoint_phase_active" in rule.labels["run"]
    assert set(rule.annotations) == {"summary", "description", "phases", "runbook_url"}
    assert "$labels." in rule.annotations["summary"]
    assert rule.annotations["description"].endswith((".", "{{- end }}"))
    assert rule.annotations["runbook_url"] == f"{RUNBOOK_URL}{rule.alert}.md"


def test_only_a_blind_host_is_critical() -> None:
    assert {rule.alert for rule in RULES if rule.labels["severity"] == "critical"} == {"ExporterDown"}


@each_rule
def test_a_rule_waits_10_to_30_seconds_unless_it_is_about_a_steady_state(rule: Rule) -> None:
    steady = {"HostsDiffer", "ScrapeTooSlow"}
    assert 10 <= rule.wait <= (60 if rule.alert in steady else 30)


@each_rule
def test_a_rule_uses_only_metrics_and_labels_that_are_exported(rule: Rule) -> None:
    exported = exported_labels()
    assert metric_names(rule.expr) <= set(exported) | FOREIGN
    for name, matchers in selectors(rule.expr):
        assert set(matchers) <= exported.get(name, set()) | TARGET_LABELS


@each_rule
def test_a_rule_names_resources_and_thresholds_that_the_roles_file_has(rule: Rule) -> None:
    known = roles.load_roles()
    for name, matchers in selectors(rule.expr):
        if name.startswith("pinchpoint_resource_"):
            assert matchers["resource"] in known.thresholds
        if name == "pinchpoint_alert_threshold":
            assert matchers["alert"] == rule.alert
            assert rule.alert in known.alerts


@each_rule
def test_no_rule_repeats_a_threshold(rule: Rule) -> None:
    assert not numbers(rule.expr) & (file_thresholds() - {HALF})
    assert "pinchpoint_resource_threshold_ratio" not in rule.expr, "the exporter has compared already"


def test_every_threshold_of_the_roles_file_belongs_to_an_alert_that_uses_it() -> None:
    using = {rule.alert for rule in RULES if f'pinchpoint_alert_threshold{{alert="{rule.alert}"}}' in rule.expr}
    assert set(roles.load_roles().alerts) == using


@promtool
def test_saturation_reaches_an_alert_within_15_s_and_its_waiting_time(tmp_path: Path) -> None:
    """The load starts between two scrapes at 20 s and ends at 90 s."""
    tests = []
    for rule in (rule for rule in RULES if rule.resource):
        if rule.labels["severity"] == "warning" and rule.alert == "KswapdSaturated":
            continue  # its load is two series: see the promtool tests
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
    assert len(tests) >= 6
    file = tmp_path / "timing.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS / "host.yml")], "evaluation_interval": "2s", "tests": tests})
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


@pytest.mark.parametrize("phase", LATENCY_PHASES.split())
def test_phases_bound_by_latency_are_known_by_name(phase: str) -> None:
    assert is_latency_phase(phase)


@pytest.mark.parametrize("phase", OTHER_PHASES.split())
def test_bandwidth_phases_and_unknown_ones_get_no_advice_about_idle_states(phase: str) -> None:
    assert not is_latency_phase(phase)


def is_latency_phase(phase: str) -> bool:
    (expr,) = (rule.expr for rule in RULES if rule.alert == "DeepIdleInLatencyPhase")
    wanted = re.search(r'phase=~"([^"]*)"', expr)
    unwanted = re.search(r'phase!~"([^"]*)"', expr)
    assert wanted
    assert unwanted
    return bool(re.fullmatch(wanted[1], phase)) and not re.fullmatch(unwanted[1], phase)


# ---- Alert, test and page belong together.


def promtool_cases() -> Iterator[tuple[str, bool]]:
    for file in PROMTOOL_TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for case in test["alert_rule_test"]:
                yield case["alertname"], bool(case.get("exp_alerts"))


@each_name
def test_an_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    assert {fires for alert, fires in promtool_cases() if alert == name} == {True, False}


@each_rule
def test_every_variant_of_an_alert_has_a_test_in_which_it_fires(rule: Rule) -> None:
    fired = [
        alert["exp_labels"]
        for file in PROMTOOL_TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == rule.alert
        for alert in case.get("exp_alerts", [])
    ]
    constant = {key: value for key, value in rule.labels.items() if "{{" not in value}
    assert any(constant.items() <= labels.items() for labels in fired)


def test_every_test_is_about_an_alert_that_exists() -> None:
    assert {alert for alert, _ in promtool_cases()} == set(NAMES)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert [page.stem for page in PAGES] == NAMES


def test_the_index_of_pages_lists_each_alert_with_its_severities() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \| ([\w, ]+) \| .+ \|$", (RUNBOOKS / "README.md").read_text(), re.M)
    severities = {name: {rule.labels["severity"] for rule in RULES if rule.alert == name} for name in NAMES}
    assert {name: set(words.split(", ")) for name, _, words in rows} == severities
    assert [name for name, _, _ in rows] == [page for _, page, _ in rows] == NAMES


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
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr


@each_page
def test_the_queries_of_a_page_use_only_metrics_and_labels_that_are_exported(page: Path) -> None:
    exported = exported_labels()
    for block in code_blocks(page, "promql"):
        assert metric_names(block) <= set(exported) | FOREIGN
        for name, matchers in selectors(block):
            if name in exported:
                assert set(matchers) <= exported[name] | TARGET_LABELS


@promtool
def test_the_queries_of_all_pages_can_be_parsed(tmp_path: Path) -> None:
    queries = [block for page in [*PAGES, RUNBOOKS / "README.md"] for block in code_blocks(page, "promql")]
    records = [{"record": f"page:query:number{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "pages", "rules": records}]}))
    run("promtool", "check", "rules", file)


# ---- Prometheus and Alertmanager.


@promtool
def test_promtool_accepts_the_configuration_of_prometheus_with_rules_and_targets_beside_it(tmp_path: Path) -> None:
    shutil.copy(COMPOSE / "prometheus.yml", tmp_path)
    shutil.copytree(COMPOSE / "targets", tmp_path / "targets")
    shutil.copytree(ALERTS, tmp_path / "rules")
    said = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert f"SUCCESS: {len(list(ALERTS.glob('*.yml')))} rule files found" in said


def test_prometheus_scrapes_as_often_as_the_rules_need_and_every_targets_file_exists() -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    assert config["global"]["scrape_interval"] == config["global"]["evaluation_interval"] == "2s"
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == {"pinchpoint", "node", "prometheus", "alertmanager"}
    assert "scrape_interval" not in jobs["pinchpoint"]
    discoveries = [
        discovery
        for part in [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
        for discovery in part["file_sd_configs"]
    ]
    files = {file for discovery in discoveries for file in discovery["files"]}
    assert files == {f"targets/{file.name}" for file in (COMPOSE / "targets").iterdir()}
    for file in files:
        (group,) = yaml.safe_load((COMPOSE / file).read_text())
        assert [target.rpartition(":")[0] for target in group["targets"]] == ["127.0.0.1"]


@amtool
def test_amtool_accepts_the_configuration_of_alertmanager() -> None:
    run("amtool", "check-config", COMPOSE / "alertmanager.yml")


@amtool
@each_rule
def test_every_alert_is_routed_to_the_screen(rule: Rule) -> None:
    labels = [f"{key}={value}" for key, value in rule.labels.items() if "{{" not in value]
    config = f"--config.file={COMPOSE / 'alertmanager.yml'}"
    run("amtool", "config", "routes", "test", config, "--verify.receivers=screen", f"alertname={rule.alert}", *labels)


def test_alerts_are_grouped_by_run_and_inhibited_only_by_and_for_alerts_that_exist() -> None:
    config = yaml.safe_load((COMPOSE / "alertmanager.yml").read_text())
    assert config["route"]["group_by"] == ["run", "phase"]
    for inhibition in config["inhibit_rules"]:
        matchers = " ".join(inhibition["source_matchers"] + inhibition["target_matchers"])
        assert set(re.findall(r"\b[A-Z]\w+[a-z]\b", matchers)) <= set(NAMES)
        assert "instance" in inhibition["equal"], "a cause on one host explains nothing on another"


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
        yield "http://" + until(lambda: listening(log), f"Alertmanager does not listen, see {log}")
    finally:
        process.terminate()
        process.wait(timeout=10)


def listening(log: Path) -> str:
    for line in log.read_text().splitlines():
        entry = json.loads(line) if line.endswith("}") else {}
        if entry.get("msg") == "Listening on":
            return str(entry["address"])
    return ""


def until(ready: Callable[[], T], otherwise: str, limit: float = 20.0) -> T:
    """Return the first answer of `ready` that is true; fail after `limit` seconds."""
    end = time.monotonic() + limit
    while not (answer := ready()):
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)
    return answer


def suppressed(url: str, alerts: list[dict[str, str]]) -> set[str]:
    """Send alerts of a new host to Alertmanager; return which of them it inhibits."""
    host = alerts[0]["instance"]
    # Inhibition learns of alerts in the order in which they were sent: when it knows the last pair, it knows all.
    last = [{"alertname": name, "instance": f"{host}-last"} for name in ("ExporterDown", "DiskSaturated")]
    now = datetime.now(UTC)
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
    body = json.dumps([{"labels": labels, **times} for labels in alerts + last]).encode()
    send = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(send, timeout=10).close()

    def inhibited() -> list[dict[str, str]]:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=10) as answer:
            return [alert["labels"] for alert in json.load(answer) if alert["status"]["inhibitedBy"]]

    until(lambda: last[1] in inhibited(), "Alertmanager did not inhibit what it has to")
    return {
        "-".join(filter(None, (labels["alertname"], labels.get("reason"), labels.get("owner"))))
        for labels in inhibited()
        if labels in alerts
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
    ],
)
def test_causes_inhibit_their_symptoms(
    alertmanager_url: str, alerts: list[str], hidden: set[str], request: pytest.FixtureRequest
) -> None:
    labels = []
    for alert in alerts:
        name, *pairs = alert.split()
        labels.append(
            {"alertname": name, "instance": request.node.name} | dict(pair.split("=", maxsplit=1) for pair in pairs)
        )
    assert suppressed(alertmanager_url, labels) == hidden


@alertmanager
def test_a_cause_on_one_host_hides_nothing_on_another(alertmanager_url: str) -> None:
    alerts = [{"alertname": "ExporterDown", "instance": "x"}, {"alertname": "DiskSaturated", "instance": "y"}]
    assert suppressed(alertmanager_url, alerts) == set()
