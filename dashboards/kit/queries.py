"""Parts of PromQL queries: what the variables of dashboards match, and what several panels ask."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CLUSTER",
    "DAEMON_CLUSTER",
    "FULL",
    "HOST",
    "JUDGED",
    "JUDGED_HOST",
    "RUN",
    "SCRAPE_SECONDS",
    "Query",
    "fullest",
    "limit_of_alert",
    "nothing_named",
]


RUN = 'run=~"$run"'
JUDGED = 'run=~"($run)|(job[0-9].*|@uid[0-9]+)?"'
"""Also matches processes whose run is not known on their host, and verdicts on them: `pinchpoint.runs.stray`."""
HOST = 'instance=~"$host"'
JUDGED_HOST = 'host=~"$host"'
"""Matches the host that a series of the judge describes; the `instance` of such a series is the judge itself."""
CLUSTER = 'cluster=~"($cluster)|"'
"""Matches Ceph's own series, which have a label ``cluster`` only if the scrape configuration adds it."""
DAEMON_CLUSTER = 'on (instance, daemon) group_left () pinchpoint_ceph_daemon_info{cluster=~"$cluster"}'
"""After ``*``: keeps the daemons of the chosen cluster."""
MOST_SERIES = 5
"""How many series of many a panel shows."""
FULL = "full from"
"""Name of the series with the threshold of a resource, drawn as a dashed line."""
SCRAPE_SECONDS = 2
"""How often the exporter is scraped (compose/prometheus.yml); node_exporter and Ceph every 5 s."""


@dataclass(frozen=True)
class Query:
    """A PromQL expression; `legend` is Grafana's template, `scrape` the seconds between samples of the series."""

    expr: str
    legend: str = ""
    scrape: int = SCRAPE_SECONDS


def nothing_named(limits: str) -> str:
    """Return a query for `limits`; if a verdict names no resource, its label ``limit`` is the kind of the verdict."""
    both = f'label_join({limits}, "named", ":", "kind", "resource")'
    return f'label_replace(label_replace({both}, "limit", "$1", "named", "([^:]*):"), "named", "", "", "")'


def limit_of_alert(alert: str) -> str:
    """Return the threshold of an alert, without labels."""
    return f'max(pinchpoint_alert_threshold{{alert="{alert}"}})'


def fullest(expr: str, most: int = MOST_SERIES) -> str:
    """Return a query for the series of `expr` with the highest means over the time range: the same at every step."""
    over = expr.replace("[$__rate_interval]", "[$__range] @ end()")
    if over == expr:
        over = f"avg_over_time(({expr})[$__range:15s] @ end())"
    return f"{expr} and topk({most}, {over})"
