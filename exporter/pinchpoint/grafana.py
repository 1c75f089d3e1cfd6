"""The dashboards for a Grafana of one's own: the files of ``dashboards/json``, rewritten, and what provisions them.

These files are for the local stack: their links lead to its judge, one query names the exporters' job, and one counts
evaluations of a rule, each of which stands for the interval of its group.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pinchpoint.expressions import expression
from pinchpoint.rules import DEFAULT_SCRAPE_INTERVAL_SECONDS, JOB, PAGES, RUNBOOKS, rules
from pinchpoint.shipped import shipped

__all__ = ["FOLDER_TITLE", "FOLDER_UID", "LIVE_REFRESH", "SOURCE_UID", "Board", "boards", "bundle", "data_source"]

FOLDER_UID, FOLDER_TITLE = "pinchpoint", "Pinchpoint"
SOURCE_UID, SOURCE_NAME = "pinchpoint-prometheus", "Pinchpoint"
EVALUATIONS = expression(
    rf"\b{DEFAULT_SCRAPE_INTERVAL_SECONDS}( \* [^\"]{{0,64}}count_over_time\(pinchpoint:run_alert:info\b)"
)
"""Seconds of a rule group's interval, times how often it was evaluated."""
LIVE_REFRESH = "5s"
"""How often a dashboard refreshes that one watches during a run."""
REVISION_DIGITS = 12
"""Hexadecimal digits of a revision: JavaScript's numbers are exact up to 2^53."""


class Board(NamedTuple):
    """A dashboard."""

    name: str
    """Name of its file, without ending."""
    uid: str
    title: str
    revision: int
    """Changes with its content; the dashboard has it as ``revision``, which Grafana keeps."""
    document: dict[str, Any]

    @property
    def text(self) -> str:
        """The content of its file."""
        return json.dumps(self.document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _files() -> dict[str, str]:
    """Return the text of each file of dashboards and for kustomize, by its name."""
    folder = shipped("dashboards")
    found = {file.name: file for file in folder.iterdir() if file.name.endswith((".json", ".yaml"))}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def boards(
    pages: str = PAGES,
    job: str = JOB,
    seconds: int = DEFAULT_SCRAPE_INTERVAL_SECONDS,
    refresh: str = LIVE_REFRESH,
) -> list[Board]:
    """Return all dashboards, for pages at the address `pages` (a judge's) and exporters of the job `job`.

    Prometheus scrapes them every so many seconds. `refresh` is how often those refresh that one watches during a run.
    """
    base = f"{pages.rstrip('/')}/"
    found = []
    for name, text in _files().items():
        if name.endswith(".json"):
            text = text.replace(PAGES, base).replace(rf"job=\"{JOB}\"", rf"job=\"{job}\"")
            text = EVALUATIONS.sub(rf"{seconds}\g<1>", text)
            text = text.replace(f'"refresh": "{LIVE_REFRESH}"', f'"refresh": "{refresh}"')
            revision = int(sha256(text.encode()).hexdigest()[:REVISION_DIGITS], 16)
            document = {**json.loads(text), "revision": revision}
            found.append(Board(name.removesuffix(".json"), document["uid"], document["title"], revision, document))
    return found


def data_source(url: str, seconds: int = DEFAULT_SCRAPE_INTERVAL_SECONDS) -> dict[str, Any]:
    """Return the data source for a Prometheus that scrapes every so many seconds, as Grafana's HTTP API has it."""
    return {
        "uid": SOURCE_UID,
        "name": SOURCE_NAME,
        "type": "prometheus",
        "access": "proxy",
        "url": url,
        # Grafana makes $__rate_interval four times as long, at least; and a query may be longer than a URL.
        "jsonData": {"timeInterval": f"{seconds}s", "httpMethod": "POST"},
    }


def bundle(
    folder: Path,
    *,
    pages: str = PAGES,
    job: str = JOB,
    seconds: int = DEFAULT_SCRAPE_INTERVAL_SECONDS,
    refresh: str = LIVE_REFRESH,
    prometheus: str = "",
) -> dict[str, str]:
    """Return the files that bring everything into a Grafana and its Prometheus, by their paths in `folder`.

    `prometheus` is the address of that server; without it there is no file for the data source.
    """
    found = {f"dashboards/{board.name}.json": board.text for board in boards(pages, job, seconds, refresh)}
    found |= {f"dashboards/{name}": text for name, text in _files().items() if name.endswith(".yaml")}
    provider = {
        "name": FOLDER_UID,
        "type": "file",
        "folder": FOLDER_TITLE,
        "folderUid": FOLDER_UID,
        "allowUiUpdates": False,
        "options": {"path": str(folder / "dashboards")},
    }
    found["provisioning/dashboards/pinchpoint.yml"] = _yaml({"apiVersion": 1, "providers": [provider]})
    if prometheus:
        source = data_source(prometheus, seconds)
        found["provisioning/datasources/pinchpoint.yml"] = _yaml({"apiVersion": 1, "datasources": [source]})
    found["pinchpoint-rules.yml"] = rules(seconds, job, f"{pages.rstrip('/')}/{RUNBOOKS.removeprefix(PAGES)}")
    return found


def _yaml(document: dict[str, Any]) -> str:
    # JSON is YAML, and Grafana's reader needs no more.
    return json.dumps(document, indent=2) + "\n"
