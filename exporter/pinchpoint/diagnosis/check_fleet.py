"""Checks across all hosts: whether they agree with each other, and the cluster they belong to.

Each function is one check of ``check.toml``, by its name: it takes the snapshots of all hosts and yields what it found.
A Ceph manager's data comes in snapshots too: from the manager itself, or from the Prometheus that scrapes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec

from pinchpoint.diagnosis.check_host import ceph_daemons
from pinchpoint.diagnosis.findings import (
    Check,
    Level,
    Outcome,
    all_checks,
    facts,
    fine,
    found,
    listed,
    unseen,
)
from pinchpoint.diagnosis.series import MAX_VALUE, label, series
from pinchpoint.metrics import (
    ALERT_THRESHOLD,
    BUILD_INFO,
    CEPH_CLIENT_INSTANCES,
    CEPH_DAEMON_INFO,
    CEPH_OPTION_DAEMONS,
    OSD_PGS,
    OSD_SLOW_STORE_OP_AGE_SECONDS,
    OSD_SLOW_STORE_OPS,
    PROBE_SUCCESS,
)
from pinchpoint.model import Snapshots

__all__ = ["FLEET", "HEALTH", "LookAtAll"]

LookAtAll = Callable[[Snapshots, Check], Iterator[Outcome]]

HEALTH = "ceph_health_status"
STATUS = {0: "HEALTH_OK", 1: "HEALTH_WARN", 2: "HEALTH_ERR"}
NETWORK = "network:"
SECONDS_PER_MINUTE = 60.0
INCOMPARABLE = (
    "architecture",
    "cpu_model",
    "cpus",
    "sockets",
    "memory_gib",
    "disks:ssd",
    "disks:hdd",
    "mtu",
    "mtu_members",
    "swapped",
)
"""Facts that are hardware, and facts with their own check."""


def hosts_differ(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    groups: dict[str, dict[str, dict[str, str]]] = {}
    for name, host in hosts.items():
        if settings := facts(host):
            groups.setdefault("with" if ceph_daemons(host) else "without", {})[name] = settings
        elif PROBE_SUCCESS.name in host.values:
            yield Outcome(Level.UNSEEN, {}, (name,))
    for kind, group in sorted(groups.items()):
        if len(group) < 2:
            continue
        outcomes = list(_differing(kind, group))
        yield from outcomes or [fine(number=len(group), kind=kind)]


def _differing(kind: str, group: Mapping[str, Mapping[str, str]]) -> Iterator[Outcome]:
    for fact in sorted({fact for settings in group.values() for fact in settings}):
        if fact in INCOMPARABLE or fact.startswith(NETWORK):
            continue
        values = {name: settings[fact] for name, settings in group.items() if fact in settings}
        if len(set(values.values())) > 1:
            yield _spread(values, kind=kind, fact=fact)


def _spread(values: Mapping[str, str], **words: str) -> Outcome:
    """Return that hosts have different values of something; the finding names those without the most common one."""
    ranked = Counter(values.values()).most_common()
    common = ranked[0][0] if ranked[0][1] > ranked[1][1] else None
    text = "; ".join(
        f"{value or 'none'} on {listed(name for name in values if values[name] == value)}" for value, _ in ranked
    )
    others = tuple(name for name, value in values.items() if value != common)
    return Outcome(None, {"values": text, **words}, others)


def mtu(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    networks: dict[str, dict[str, str]] = {}
    for name, host in hosts.items():
        for fact, value in facts(host).items():
            if fact.startswith(NETWORK):
                networks.setdefault(fact.removeprefix(NETWORK), {})[name] = value
    for network, values in sorted(networks.items()):
        several = {name: value for name, value in values.items() if "," in value}
        if len(set(values.values())) > 1:
            yield _spread(values, network=network)
        elif several:
            words = {"network": network, "values": f"{next(iter(several.values()))} on {listed(several)}"}
            yield Outcome(None, words, tuple(several))
        elif len(values) > 1:
            yield fine(network=network, value=next(iter(values.values())))


def options_differ(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    options: dict[str, dict[str, dict[str, float]]] = {}
    for host in hosts.values():
        for labels, number in series(host, CEPH_OPTION_DAEMONS):
            values = options.setdefault(label(labels, "type"), {}).setdefault(label(labels, "option"), {})
            values[label(labels, "value")] = values.get(label(labels, "value"), 0.0) + number
    for type_, every in sorted(options.items()):
        differing = {option: values for option, values in sorted(every.items()) if len(values) > 1}
        for option, values in differing.items():
            if option not in check.words:
                ranked = sorted(values.items(), key=lambda entry: (-entry[1], entry[0]))
                text = listed(f"{value or 'empty'} ({number:.0f} daemons)" for value, number in ranked)
                yield found(type=type_.upper(), option=option, values=text)
        if not differing.keys() - set(check.words):
            yield fine(type=type_.upper())


def releases_differ(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    clusters: dict[str, dict[str, list[str]]] = {}
    for host in hosts.values():
        for labels, _ in series(host, CEPH_DAEMON_INFO):
            if version := label(labels, "version"):
                releases = clusters.setdefault(label(labels, "cluster"), {})
                releases.setdefault(version, []).append(label(labels, "daemon"))
    for releases in clusters.values():
        words = [f"{version} ({listed(sorted(daemons))})" for version, daemons in sorted(releases.items())]
        yield found(values="; ".join(words)) if len(releases) > 1 else fine(value=next(iter(releases)))


def versions_differ(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    versions = {
        name: label(labels, "version") for name, host in hosts.items() for labels, _ in series(host, BUILD_INFO)
    }
    if len(set(versions.values())) > 1:
        yield _spread(versions)
    elif len(versions) > 1:
        yield fine(value=next(iter(versions.values())))


class _Health(msgspec.Struct, frozen=True):
    """What a manager reports about one cluster."""

    status: int
    active: frozenset[str]
    """Raised health checks."""


def _clusters(hosts: Snapshots) -> dict[str, _Health]:
    """Return the health of each cluster by its label; two sources may report one, and the worse one counts."""
    status: dict[str, int] = {}
    active: dict[str, set[str]] = {}
    for host in hosts.values():
        for labels, value in series(host, HEALTH):
            cluster = label(labels, "cluster")
            status[cluster] = max(status.get(cluster, 0), min(2, int(value)))
        for labels, value in series(host, "ceph_health_detail"):
            if value:
                active.setdefault(label(labels, "cluster"), set()).add(label(labels, "name"))
    return {cluster: _Health(value, frozenset(active.get(cluster, ()))) for cluster, value in status.items()}


def health(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    clusters = _clusters(hosts)
    if not clusters and any(_has_ceph(hosts)):
        yield unseen()
    elsewhere = set(all_checks()["nearfull"].words)
    for cluster in clusters.values():
        bad = cluster.active - set(check.words) - elsewhere
        status = STATUS[cluster.status]
        if cluster.status == 2 or bad or (cluster.status and not cluster.active):
            # Releases before Pacific report no checks.
            why = listed(sorted(cluster.active)) or "ask `ceph health detail` why"
            yield found(status=status, checks=why)
        else:
            yield fine(status=status, checks=f" ({listed(sorted(cluster.active))})" if cluster.active else "")


def _has_ceph(hosts: Snapshots) -> Iterator[bool]:
    for host in hosts.values():
        yield bool(ceph_daemons(host) or any(value for _, value in series(host, CEPH_CLIENT_INSTANCES)))


def nearfull(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    for cluster in _clusters(hosts).values():
        if short := cluster.active & set(check.words):
            yield found(checks=listed(sorted(short)))


def _sums(hosts: Snapshots, metric: str) -> dict[str, float]:
    """Return the sum of a manager's metric over its pools, by cluster; of several sources the largest."""
    sums: dict[str, float] = {}
    for host in hosts.values():
        own: dict[tuple[str, str], float] = {}
        for labels, value in series(host, metric):
            key = label(labels, "cluster"), label(labels, "instance")
            own[key] = own.get(key, 0.0) + value
        for (cluster, _), value in own.items():
            sums[cluster] = max(sums.get(cluster, 0.0), value)
    return sums


def slow_store_ops(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    if not any(cluster.active & set(check.words) for cluster in _clusters(hosts).values()):
        return
    ages, numbers = (
        {label(labels, "daemon"): value for host in hosts.values() for labels, value in series(host, metric)}
        for metric in (OSD_SLOW_STORE_OP_AGE_SECONDS, OSD_SLOW_STORE_OPS)
    )
    if ages:
        daemon = min(ages, key=lambda name: ages[name])
        yield found(age=f"the last slow operation was {ages[daemon] / SECONDS_PER_MINUTE:.0f} min ago, in {daemon}")
    elif any(numbers.values()):
        slow = sorted(name for name, number in numbers.items() if number)
        yield found(age=f"{listed(slow)} had slow operations, the last before their exporters started")
    else:
        yield found(age="the age of the last slow operation is not known (`ceph health detail` names the OSDs)")


def pgs_unclean(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    total, clean, stale = (_sums(hosts, f"ceph_pg_{name}") for name in ("total", "clean", "stale"))
    for cluster, number in total.items():
        wrong = max(number - clean.get(cluster, 0.0), stale.get(cluster, 0.0))
        words = {"total": f"{number:.0f}"}
        yield found(number=f"{wrong:.0f}", **words) if wrong > 0 else fine(**words)


def scrubbing(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    for number in _sums(hosts, "ceph_pg_scrubbing").values():
        yield found(number=f"{number:.0f}") if number else fine()


class _Osd(msgspec.Struct, frozen=True):
    """An OSD and its placement groups."""

    name: str
    kind: tuple[str, str]
    """OSDs are compared with those of the same cluster and device class."""
    pgs: float
    size: float
    """Bytes, or 1 if not known."""


def _osds(hosts: Snapshots) -> list[_Osd]:
    """Return the OSDs that have placement groups: as reported by a manager, else as seen by exporters."""
    told: dict[tuple[str, str], float] = {}
    sizes: dict[tuple[str, str], float] = {}
    classes: dict[tuple[str, str], str] = {}
    seen: dict[tuple[str, str], float] = {}
    for name, host in hosts.items():
        for metric, into in (("ceph_osd_numpg", told), ("ceph_osd_stat_bytes", sizes)):
            for labels, value in series(host, metric):
                into[label(labels, "cluster"), label(labels, "ceph_daemon")] = value
        for labels, _ in series(host, "ceph_osd_metadata"):
            key = label(labels, "cluster"), label(labels, "ceph_daemon")
            classes[key] = label(labels, "device_class")
        for labels, value in series(host, OSD_PGS):
            if label(labels, "role") != "stray":
                # Daemon names are unique only on one host.
                own = name, label(labels, "daemon")
                seen[own] = seen.get(own, 0.0) + value
    if not told:
        return [_Osd(daemon, ("", ""), pgs, 1.0) for (_, daemon), pgs in seen.items() if pgs]
    weighed = all(sizes.get(osd) for osd, pgs in told.items() if pgs)
    return [
        _Osd(osd[1], (osd[0], classes.get(osd, "")), pgs, sizes[osd] if weighed else 1.0)
        for osd, pgs in told.items()
        if pgs
    ]


def _threshold(hosts: Snapshots, check: Check) -> float:
    """Return the hosts' threshold, the largest if they differ, or else the check's own."""
    known = [
        value
        for host in hosts.values()
        for labels, value in series(host, ALERT_THRESHOLD)
        if check.alert and label(labels, "alert") == check.alert
    ]
    return max(known, default=MAX_VALUE if check.threshold is None else check.threshold)


def pgs_few(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    if osds := _osds(hosts):
        mean = sum(osd.pgs for osd in osds) / len(osds)
        yield (found if mean < _threshold(hosts, check) else fine)(mean=f"{mean:.0f}")


def pgs_many(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    if osds := _osds(hosts):
        fullest = max(osds, key=lambda osd: osd.pgs)
        if fullest.pgs > _threshold(hosts, check):
            yield found(osd=fullest.name, number=f"{fullest.pgs:.0f}")


def pgs_uneven(hosts: Snapshots, check: Check) -> Iterator[Outcome]:
    kinds: dict[tuple[str, str], list[_Osd]] = {}
    for osd in _osds(hosts):
        kinds.setdefault(osd.kind, []).append(osd)
    for osds in kinds.values():
        fullest = max(osds, key=lambda osd: osd.pgs / osd.size)
        # As many as an OSD of its size would have if all had the same number per byte.
        mean = fullest.size * sum(osd.pgs / osd.size for osd in osds) / len(osds)
        if len(osds) > 1 and fullest.pgs / mean - 1 > _threshold(hosts, check):
            share = f"{fullest.pgs / mean - 1:.0%}"
            yield found(osd=fullest.name, number=f"{fullest.pgs:.0f}", share=share, mean=f"{mean:.0f}")


FLEET: Mapping[str, LookAtAll] = {
    look.__name__: look
    for look in (
        health, slow_store_ops, pgs_unclean, nearfull, scrubbing, pgs_few, pgs_many, pgs_uneven, mtu, hosts_differ,
        options_differ, releases_differ, versions_differ,
    )
}  # fmt: skip
