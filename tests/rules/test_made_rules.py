"""The rules that `pinchpoint rules` generates for other scrape intervals."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from pinchpoint.cli import main
from pinchpoint.rules import files, rules

HERE = Path(__file__).parent
ALERTS = HERE.parents[1] / "alerts"
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, Debian's package prometheus")


def parsed(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_the_rules_that_are_checked_in_are_those_for_the_default() -> None:
    checked_in = [rule for path in sorted(ALERTS.glob("*.yml")) for rule in parsed(path.read_text())]

    assert list(files()) == sorted(path.stem for path in ALERTS.glob("*.yml"))
    assert parsed(rules()) == checked_in


@promtool
@pytest.mark.parametrize("seconds", [1, 2, 5, 10, 15, 30, 60])
def test_promtool_accepts_them_at_every_interval(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "rules.yml").write_text(rules(seconds))

    subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True)


@promtool
def test_they_fire_and_stay_silent_at_15_s_as_their_tests_say(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules(15))
    shutil.copy(HERE / "at_15s.yml", tmp_path)

    done = subprocess.run(["promtool", "test", "rules", tmp_path / "at_15s.yml"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seconds", [5, 10, 15, 30, 60])
def test_every_window_holds_enough_scrapes(seconds: int) -> None:
    spans = [
        int(number) * (60 if unit == "m" else 1) for number, unit in re.findall(r"\[(\d+)([sm])\]", rules(seconds))
    ]

    assert min(spans) >= 2 * seconds
    assert sum(span < 4 * seconds for span in spans) <= 4, "only those that bridge the gap between two phases"
    groups = yaml.safe_load(rules(seconds))["groups"]
    assert {group["interval"] for group in groups} <= {f"{seconds}s", "5s", "15s"}


@pytest.mark.parametrize("seconds", [2, 10, 60])
def test_an_alert_that_blames_the_phase_lasts_until_its_window_holds_nothing_of_the_one_before(seconds: int) -> None:
    for rule in parsed(rules(seconds)):
        if rule.get("alert") in ("DeepIdleInLatencyPhase", "InflightCollapsed"):
            assert rule["for"] == f"{max(15, 4 * seconds)}s"


@pytest.mark.parametrize("seconds", [1, 2, 5, 10, 60])
def test_no_group_is_evaluated_more_often_than_hosts_are_scraped(seconds: int) -> None:
    intervals = {group["name"]: group["interval"] for group in yaml.safe_load(rules(seconds))["groups"]}

    assert all(int(interval.removesuffix("s")) >= seconds for interval in intervals.values())
    assert intervals["pinchpoint-mds"] == f"{seconds}s"


def test_a_text_names_the_window_that_its_rule_has() -> None:
    for text in rules(15).split("- alert: ")[1:]:
        named = set(re.findall(r"last\s+(\d+) s", text))
        assert named <= {"60", "150"}, text


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["rules", *arguments])
    return result.exit_code, result.output


def test_job_and_runbooks_are_those_of_the_site() -> None:
    status, text = invoke("--job", "hpc", "--runbooks", "http://judge:9749/runbooks")

    assert status == 0
    assert 'up{job="hpc"} == 0 or absent(up{job="hpc"})' in text
    assert 'job="pinchpoint"' not in text
    assert "127.0.0.1" not in text
    assert "runbook_url: http://judge:9749/runbooks/MdsLockSaturated.md\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scrape-interval", "fast"], "'fast' is not a duration such as 10s or 1m"),
        (["--scrape-interval", "0s"], "'0s': 1s to 60s can be"),
        (["--scrape-interval", "5m"], "'5m': 1s to 60s can be"),
        (["--job", 'a"b'], "is not a valid job name"),
        (["--runbooks", "ftp://x/"], "'ftp://x/' is not an address such as"),
        (["--runbooks", "http://x/{{y}}"], "is not an address such as"),
    ],
)
def test_what_no_rules_can_be_made_for_is_said(arguments: list[str], message: str) -> None:
    status, text = invoke(*arguments)

    assert status == 2
    assert message in " ".join(text.split())
