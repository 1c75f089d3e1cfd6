from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from pinchpoint.grafana import LIVE_REFRESH, boards, bundle
from pinchpoint.rules import PAGES, rules

FILES = Path(__file__).parent.parent / "dashboards" / "json"
JUDGE = "https://judge.example:9749"


def test_the_boards_are_the_files_with_a_revision() -> None:
    found = {f"{board.name}.json": board for board in boards()}

    assert found.keys() == {path.name for path in FILES.glob("*.json")}
    for name, board in found.items():
        assert json.loads(board.text) == {**json.loads((FILES / name).read_text()), "revision": board.revision}


def test_a_revision_changes_with_the_content_alone_and_is_exact_in_javascript() -> None:
    first, second, elsewhere = (
        {board.uid: board.revision for board in found} for found in (boards(), boards(), boards(pages=JUDGE))
    )

    assert first == second
    assert all(first[uid] != elsewhere[uid] for uid in first)
    assert all(0 <= revision < 2**53 for revision in first.values())


@pytest.mark.parametrize("pages", [JUDGE, f"{JUDGE}/"])
def test_links_lead_to_the_pages_that_are_given(pages: str) -> None:
    text = "".join(board.text for board in boards(pages=pages))

    assert PAGES not in text
    assert f"{JUDGE}/runbooks/ExporterDown.md" in text
    assert f"{JUDGE}//" not in text


def test_queries_name_the_job_that_is_given() -> None:
    text = "".join(board.text for board in boards(job="hpc"))

    assert r"job=\"hpc\"" in text
    assert r"job=\"pinchpoint\"" not in text


def test_what_is_watched_during_a_run_refreshes_as_often_as_asked() -> None:
    own, slower = (
        {board.name: board.document["refresh"] for board in found} for found in (boards(), boards(refresh="30s"))
    )

    assert own == dict.fromkeys(own, LIVE_REFRESH) | {"runs": "1m"}
    assert slower == dict.fromkeys(own, "30s") | {"runs": "1m"}


def test_how_long_an_alert_fired_is_counted_in_the_interval_of_the_rules() -> None:
    texts = ["".join(board.text for board in boards(seconds=seconds)) for seconds in (2, 15)]

    for seconds, text in zip((2, 15), texts, strict=True):
        counted = re.findall(r"(\d+) \* max by \(run, alertname\) \(count_over_time\(pinchpoint:run_alert:info", text)
        assert counted == [str(seconds)]
        (group,) = (one for one in yaml.safe_load(rules(seconds))["groups"] if "run_alert" in str(one["rules"]))
        assert group["interval"] == f"{seconds}s"


def test_a_bundle_has_dashboards_what_provisions_them_and_rules(tmp_path: Path) -> None:
    found = bundle(tmp_path, pages=JUDGE, seconds=15, prometheus="http://prometheus:9090")

    (provider,) = yaml.safe_load(found["provisioning/dashboards/pinchpoint.yml"])["providers"]
    (source,) = yaml.safe_load(found["provisioning/datasources/pinchpoint.yml"])["datasources"]
    rules = yaml.safe_load(found["pinchpoint-rules.yml"])["groups"]
    maps = yaml.safe_load(found["dashboards/kustomization.yaml"])["configMapGenerator"]
    assert provider["options"]["path"] == str(tmp_path / "dashboards")
    assert (source["url"], source["jsonData"]["timeInterval"]) == ("http://prometheus:9090", "15s")
    assert {f"dashboards/{file.partition('=')[2]}" for map_ in maps for file in map_["files"]} == {
        name for name in found if name.endswith(".json")
    }
    links = [rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"] if "alert" in rule]
    assert len(links) > 40
    assert all(link.startswith(f"{JUDGE}/runbooks/") for link in links)


def test_a_bundle_without_a_prometheus_has_no_data_source(tmp_path: Path) -> None:
    assert not [name for name in bundle(tmp_path) if "datasources" in name]
