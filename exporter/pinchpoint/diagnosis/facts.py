"""The settings of each host, as saved with a run: what may explain why two runs differ.

Only settings and hardware. Counters, times and fill levels, which differ between any two runs, do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pinchpoint.diagnosis.series import label, series
from pinchpoint.expressions import expression
from pinchpoint.metrics import (
    CEPH_DAEMON_INFO,
    CEPH_OPTION_DAEMONS,
    CEPH_SOCKET_UP,
    CGROUP_CPU_QUOTA_CPUS,
    CGROUP_IO_LIMIT,
    CGROUP_MEMORY_LIMIT_BYTES,
    CPU_FREQUENCY_LIMIT_HERTZ,
    CPU_GOVERNOR_INFO,
    CPU_IDLE_STATE_DISABLED_CPUS,
    CPU_PERFORMANCE_LIMIT_RATIO,
    CPU_TURBO_DISABLED,
    HOST_FACT_INFO,
    MDS_RANK_HELD,
)
from pinchpoint.model import Snapshot, Snapshots
from pinchpoint.units import BYTES_PER_MEBIBYTE

__all__ = ["Facts", "absence_tells", "facts", "merged", "uses_ceph"]

Facts = dict[str, dict[str, list[str]]]
"""Values by fact and by host: several where daemons, CPUs or devices of the host differ, sorted."""

DAEMONS = ":daemons"
"""Suffix of the fact with the number of daemons of a type on the host."""
RANKS = "mds:ranks"
"""Number of MDSs on the host with a rank."""
MAX_FACTS_PER_HOST = 1024
"""Maximum number of facts kept per host; a host has 100."""
MAX_VALUES_PER_FACT = 16
"""Maximum number of values kept per fact."""
MAX_VALUE_CHARACTERS = 128
"""Longest value that is kept, in characters."""
COUNTED = ("mds", "osd", "mon", "mgr")
"""Daemons whose number matters; clients come and go with the benchmark."""
OF_CEPH = expression(r"(?:client|mds|mon|osd):version|mount:(?:ceph|fuse\.ceph.*)")
TELLING_PREFIXES = ("mount:", "cpu_quota:", "io_limit:", "memory_limit:")
HERTZ_PER_GIGAHERTZ = 1e9


def facts(snapshots: Snapshots) -> Facts:
    """Return the settings that snapshots of hosts show; a host that shows none is left out.

    Settings are exported slowly, and daemons are found one after the other: see `merged`.
    """
    found = {host: _facts(snapshot) for host, snapshot in snapshots.items()}
    return {host: known for host, known in found.items() if known}


def merged(earlier: Facts, later: Facts) -> Facts:
    """Return the combined settings of two moments of a run.

    A setting that was changed in between has both values. For numbers of daemons the larger one is kept: the exporter
    needs seconds to find them all.
    """
    return {host: _merged(earlier.get(host, {}), later.get(host, {})) for host in [*earlier, *(later.keys() - earlier)]}


def uses_ceph(known: Facts) -> bool:
    """Return whether the settings show a daemon, a client or a mount of Ceph."""
    return any(OF_CEPH.fullmatch(fact) for host in known.values() for fact in host)


def absence_tells(fact: str) -> bool:
    """Return whether a host without this fact lacks its subject; otherwise it is only unknown."""
    return fact.startswith(TELLING_PREFIXES) or fact.endswith(DAEMONS) or fact == "cmdline"


def _merged(earlier: dict[str, list[str]], later: dict[str, list[str]]) -> dict[str, list[str]]:
    found = {}
    for fact in sorted({*earlier, *later})[:MAX_FACTS_PER_HOST]:
        values = sorted({*earlier.get(fact, ()), *later.get(fact, ())})[:MAX_VALUES_PER_FACT]
        if fact.endswith(DAEMONS) or fact == RANKS:
            values = sorted(values, key=lambda value: (len(value), value))[-1:]
        found[fact] = values
    return found


def _facts(snapshot: Snapshot) -> dict[str, list[str]]:
    values: dict[str, set[str]] = {}
    for source in (_host, _clock, _idle, _ceph, _cgroups):
        for fact, value in source(snapshot):
            if value and (fact in values or len(values) < MAX_FACTS_PER_HOST):
                values.setdefault(fact, set()).add(value[:MAX_VALUE_CHARACTERS])
    if any(fact.startswith("idle_state:") for fact in values):
        values.pop("idle_states", None)  # the same in one line
    return {fact: sorted(found)[:MAX_VALUES_PER_FACT] for fact, found in sorted(values.items())}


def _host(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for labels, value in series(snapshot, HOST_FACT_INFO):
        if value:
            yield label(labels, "fact"), label(labels, "value")


def _clock(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for labels, value in series(snapshot, CPU_GOVERNOR_INFO):
        if value:
            yield "governor", label(labels, "governor")
            yield "cpu_driver", label(labels, "driver")
            yield "energy_preference", label(labels, "epp")
    for _, value in series(snapshot, CPU_TURBO_DISABLED):
        yield "turbo", "off" if value else "on"
    for _, value in series(snapshot, CPU_PERFORMANCE_LIMIT_RATIO):
        yield "cpu_performance_limit", f"{value:.0%}"
    limits = {value for _, value in series(snapshot, CPU_FREQUENCY_LIMIT_HERTZ)}
    for value in limits:
        yield "cpu_frequency_limit", f"{value / HERTZ_PER_GIGAHERTZ:.2f} GHz"


def _idle(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield each idle state, and whether CPUs may use it."""
    cpus = {label(labels, "value") for labels, _ in series(snapshot, HOST_FACT_INFO)
            if label(labels, "fact") == "cpus"}  # fmt: skip
    for labels, disabled in series(snapshot, CPU_IDLE_STATE_DISABLED_CPUS):
        state = label(labels, "state")
        everywhere = not cpus or f"{disabled:.0f}" in cpus
        yield f"idle_state:{state}", "on" if not disabled else "off" if everywhere else f"off on {disabled:.0f} CPUs"


def _ceph(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for labels, value in series(snapshot, CEPH_OPTION_DAEMONS):
        if value:
            # An empty value counts: it may be the option's default.
            yield f"{label(labels, 'type')}:{label(labels, 'option')}", label(labels, "value") or "(empty)"
    for labels, _ in series(snapshot, CEPH_DAEMON_INFO):
        yield f"{_type(label(labels, 'daemon'))}:version", label(labels, "version")
    daemons = {label(labels, "daemon") for labels, _ in series(snapshot, CEPH_SOCKET_UP)}
    for type_, number in Counter(map(_type, daemons)).items():
        if type_ in COUNTED:
            yield f"{type_}{DAEMONS}", str(number)
    ranks = [value for _, value in series(snapshot, MDS_RANK_HELD)]
    if ranks:
        yield RANKS, f"{sum(ranks):.0f}"


def _cgroups(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for labels, value in series(snapshot, CGROUP_CPU_QUOTA_CPUS):
        yield f"cpu_quota:{label(labels, 'owner')}", f"{value:.3g} CPUs"
    for labels, value in series(snapshot, CGROUP_IO_LIMIT):
        yield f"io_limit:{label(labels, 'owner')}:{label(labels, 'limit')}", f"{value:.0f}"
    for labels, value in series(snapshot, CGROUP_MEMORY_LIMIT_BYTES):
        yield f"memory_limit:{label(labels, 'owner')}", f"{value / BYTES_PER_MEBIBYTE:.0f} MiB"


def _type(daemon: str) -> str:
    return daemon.partition(".")[0]
