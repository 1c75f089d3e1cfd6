"""Queries for Ceph's daemons: the exporter's series on the chosen hosts, and Ceph's own series elsewhere.

Ceph's own performance counters have the same names in the manager (up to Quincy) and in ceph-exporter (since Reef), and
come from both if ``mgr/prometheus/exclude_perf_counters`` is false: `ceph` counts each daemon once.
"""

from __future__ import annotations

from dashboards.kit.queries import CLUSTER, DAEMON_CLUSTER, FULL, HOST, Query
from pinchpoint.report.palette import STATUS

__all__ = [
    "HEALTH_COLOURS",
    "HEALTH_WORDS",
    "MANAGER",
    "busy",
    "ceph",
    "daemon_of_owner",
    "full_from",
    "health_checks",
    "instead",
    "of_cluster",
    "rate",
    "used",
]

MANAGER = 15
"""Seconds between two updates of a manager's answer (mgr/prometheus/scrape_interval); more scrapes add nothing."""
HEALTH_WORDS = {"0": "ok", "1": "warning", "2": "error", "3": "not scraped"}
HEALTH_COLOURS = {"0": STATUS["good"], "1": STATUS["bad"], "2": STATUS["bad"]}
LATELY = "2m"
"""For how long an exporter that does not answer is still the source."""
ELSEWHERE = 'pinchpoint_ceph_daemon_info{cluster!~"$cluster"}'
ALIVE = 'pinchpoint_threads{role="messenger"} > 0'
"""Owners with a running process; the counters of a process that has ended remain."""


def rate(metric: str, *selectors: str) -> str:
    """Return the rate of one of the exporter's counters, on the chosen hosts."""
    return f"rate({metric}{{{', '.join([*selectors, HOST])}}}[$__rate_interval])"


def of_cluster(expr: str) -> str:
    """Return the series of `expr` whose label ``daemon`` names a daemon of the chosen cluster."""
    return f"({expr}) * {DAEMON_CLUSTER}"


def daemon_of_owner(expr: str) -> str:
    """Return the series of `expr`, which name a daemon in the label ``owner``, with the label ``daemon`` added.

    Daemons that have ended and those of other clusters are left out. The cluster of a daemon whose socket is silent is
    unknown; such a daemon is kept.
    """
    named = f'label_replace({expr} and on (instance, owner) {ALIVE}, "daemon", "$1", "owner", "(.*)")'
    return f"({named} unless on (instance, daemon) {ELSEWHERE})"


def used(counter: str, resource: str, daemons: str) -> str:
    """Return how much of the time a resource was busy, full (saturated) or without a CPU (runqueue), by daemon.

    `resource` and `daemons` are regular expressions.
    """
    selectors = (f'resource=~"{resource}"', f'owner=~"{daemons}"')
    return daemon_of_owner(rate(f"pinchpoint_resource_{counter}_seconds_total", *selectors))


def busy(resource: str, daemons: str) -> str:
    """Return how much of the time a resource was busy, by daemon."""
    return used("busy", resource, daemons)


def full_from(resource: str) -> Query:
    """Return the busy share from which a resource counts as full, as a line."""
    return Query(f'max(pinchpoint_resource_threshold_ratio{{resource=~"{resource}", {HOST}}})', FULL)


def health_checks(names: str) -> Query:
    """Return the health checks that are raised: 1 for a warning, 2 for an error; `names` is a matcher of ``name``."""

    def raised(severity: str) -> str:
        return f"max by (name) (ceph_health_detail{{{names}, {severity}, {CLUSTER}}} == 1)"

    errors, warnings = raised('severity="HEALTH_ERR"'), raised('severity!="HEALTH_ERR"')
    return Query(f"2 * {errors} or {warnings}", "{{name}}", scrape=5)


def ceph(metric: str, selector: str = CLUSTER) -> str:
    """Return the rate of one of Ceph's performance counters, by daemon."""
    return f"max by (cluster, ceph_daemon) (rate({metric}{{{selector}}}[$__rate_interval]))"


def instead(expr: str, own: str, legend: str, *, scrape: int = MANAGER) -> Query:
    """Return a query of Ceph's own series; it has a result only if the chosen hosts have had no series `own` lately.

    So an exporter that misses a scrape is not replaced for a moment. It is a query of its own, beside the one that it
    replaces: series that are scraped less often need longer windows.
    """
    info = f'last_over_time(pinchpoint_ceph_daemon_info{{cluster=~"$cluster"}}[{LATELY}])'
    seen = f"last_over_time({own}{{{HOST}}}[{LATELY}]) * on (instance, daemon) group_left () {info}"
    return Query(f"({expr}) unless on () ({seen})", f"{legend} (Ceph)" if legend else "", scrape)
