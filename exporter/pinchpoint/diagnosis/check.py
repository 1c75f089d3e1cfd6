"""What to know before a run: settings that slow it down, hosts that differ, and what will not be seen.

Pure: everything comes from snapshots, so that this host, others and those that a Prometheus knows are judged alike.
The checks and their texts are data: see `findings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pinchpoint.diagnosis.check_daemons import DAEMONS
from pinchpoint.diagnosis.check_fleet import FLEET, HEALTH
from pinchpoint.diagnosis.check_host import HOST
from pinchpoint.diagnosis.findings import Finding, Level, all_checks, checked, found
from pinchpoint.metrics import ALERT_THRESHOLD
from pinchpoint.model import Snapshot, Snapshots

__all__ = ["NO_METRICS", "SILENT", "check", "sources"]

UNREACHABLE, PROMETHEUS = "unreachable", "prometheus"
SILENT = frozenset({UNREACHABLE, PROMETHEUS})
"""Checks that find that something does not answer."""
NO_METRICS = "it answers, but has no metrics of Pinchpoint: is this its exporter?"
ORDER = (Level.PROBLEM, Level.HINT, Level.UNSEEN, Level.OK)


def sources() -> list[str]:
    """Return every metric that a check needs, sorted."""
    return sorted({name for entry in all_checks().values() for name in entry.source} | {ALERT_THRESHOLD.name})


def check(
    hosts: Snapshots, unreachable: Mapping[str, str], servers: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return what is found, the worst first.

    `unreachable` are hosts, and `servers` Prometheus servers, that did not answer, with the reason. A snapshot without
    series of Pinchpoint may come from a Ceph manager; any other is unknown.
    """
    own = {name: host for name, host in hosts.items() if _is_exporter(host)}
    strange = {name: NO_METRICS for name, host in hosts.items() if name not in own and HEALTH not in host.values}
    findings = [
        *_silent(UNREACHABLE, {**unreachable, **strange}),
        *_silent(PROMETHEUS, servers or {}),
        *(finding for name, host in own.items() for finding in _look_at(name, host)),
        *_look_at_all(hosts),
    ]
    names = list(all_checks())
    return tuple(sorted(_merged(findings), key=lambda one: (ORDER.index(one.level), names.index(one.check))))


def _is_exporter(host: Snapshot) -> bool:
    return any(name.startswith("pinchpoint_") for name in host.values)


def _silent(check_name: str, reasons: Mapping[str, str]) -> Iterator[Finding]:
    for name, reason in reasons.items():
        if finding := checked(check_name, found(host=name, reason=reason), (name,)):
            yield finding


def _look_at(name: str, host: Snapshot) -> Iterator[Finding]:
    for check_name, look in (*HOST.items(), *DAEMONS.items()):
        for outcome in look(host, all_checks()[check_name]):
            if finding := checked(check_name, outcome, (name,)):
                yield finding


def _look_at_all(hosts: Snapshots) -> Iterator[Finding]:
    for check_name, look in FLEET.items():
        for outcome in look(hosts, all_checks()[check_name]):
            if finding := checked(check_name, outcome, ()):
                yield finding


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings that say the same of several hosts once, with all of the hosts."""
    same: dict[tuple[str, Level, str, str], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.check, finding.level, finding.text, finding.matters), []).append(finding)
    for group in same.values():
        first = group[0]
        hosts = tuple(dict.fromkeys(host for finding in group for host in finding.hosts))
        yield Finding(
            check=first.check,
            what=first.what,
            level=first.level,
            hosts=hosts,
            text=first.text,
            matters=first.matters,
            harmless=first.harmless,
            page=first.page,
        )
